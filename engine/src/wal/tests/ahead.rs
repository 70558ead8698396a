//! The next segment's file, made ahead: ready when it is wanted, within the cap, and no matter when it cannot be made.

use std::os::unix::fs::MetadataExt;

use super::super::directory::DiskOperation;
use super::super::fault_injection::DiskFaultPlan;
use super::super::preallocate::FillPace;
use super::*;

const SEGMENT: u64 = 1 << 20;
/// Three of them fill a segment.
const THIRD: usize = 300_000;

fn options(place: &Place, segments: u64) -> WalOptions {
    WalOptions {
        segment_bytes: SEGMENT,
        max_bytes: segments * SEGMENT,
        ..place.options()
    }
}

/// Files that are being prepared, once that has ended.
fn prepared(place: &Place, wal: &WriteAheadLog) -> usize {
    wal.spares.ahead.iter().for_each(SegmentPreallocation::wait);
    place.files().iter().filter(|(name, _)| name.ends_with(".new")).count()
}

#[test]
fn the_next_segments_file_is_there_before_it_is_wanted_and_goes_when_the_log_closes() {
    let place = Place::new();
    let faults = DiskFaultInjector::default();
    let (mut wal, _) = place.open_with(options(&place, 8), &faults).unwrap();
    fill(&mut wal, &[&[frame(1, THIRD)]]);
    assert_eq!(prepared(&place, &wal), 0);
    fill(&mut wal, &[&[frame(2, THIRD)]]);
    assert_eq!(prepared(&place, &wal), 1);
    assert_eq!(wal.disk_bytes(), place.disk_bytes());
    // From here on no file could be made.
    faults.plan(Some(DiskFaultPlan {
        at: 0,
        op: Some(DiskOperation::Create),
        on: true,
        errno: libc::EIO,
    }));
    fill(&mut wal, &[&[frame(3, THIRD)], &[frame(4, THIRD)], &[frame(5, THIRD)]]);
    assert_eq!((place.logs().len(), prepared(&place, &wal)), (2, 0));
    faults.plan(None);
    fill(&mut wal, &[&[frame(6, THIRD)], &[frame(7, THIRD)], &[frame(8, THIRD)]]);
    assert_eq!(prepared(&place, &wal), 1);
    drop(wal);
    assert!(
        place.files().iter().all(|(name, _)| name.ends_with(".log")),
        "{:?}",
        place.files()
    );
    assert_eq!(lsns(place.open().1), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_file_that_is_only_reserved_has_its_blocks_and_takes_frames_like_one_of_zeros() {
    let place = Place::new();
    let (mut wal, _) = place
        .open_with(options(&place, 8), &DiskFaultInjector::default())
        .unwrap();
    let name = file_name(WalFileRole::Spare, wal.take_number().unwrap());
    let file = wal.disk.create(&name, SEGMENT, &FillPace::reserved()).unwrap();
    let found = file.metadata().unwrap();
    assert_eq!(found.len(), SEGMENT);
    assert!(found.blocks() * 512 >= SEGMENT, "{} blocks", found.blocks());
    wal.spares.numbers.push(wal.next_number - 1);
    fill(
        &mut wal,
        &[
            &[frame(1, THIRD)],
            &[frame(2, THIRD)],
            &[frame(3, THIRD)],
            &[frame(4, THIRD)],
        ],
    );
    assert!(wal.spares.numbers.is_empty(), "the file is in use");
    drop(wal);
    assert_eq!(lsns(place.open().1), [1, 2, 3, 4]);
}

#[test]
fn whatever_call_fails_on_the_way_ahead_every_append_is_stored() {
    for op in [
        DiskOperation::Create,
        DiskOperation::Allocate,
        DiskOperation::Write,
        DiskOperation::SyncFile,
    ] {
        let place = Place::new();
        let faults = DiskFaultInjector::default();
        let (mut wal, _) = place.open_with(options(&place, 8), &faults).unwrap();
        fill(&mut wal, &[&[frame(1, THIRD)]]);
        wal.append(&[frame(2, THIRD)]).unwrap();
        wal.sync().unwrap();
        wal.spares.ahead = None;
        wal.spares.tried_ahead = 0;
        faults.plan(Some(DiskFaultPlan {
            at: 0,
            op: Some(op),
            on: false,
            errno: libc::ENOSPC,
        }));
        wal.look_ahead();
        assert_eq!(prepared(&place, &wal), 0, "{op:?}");
        assert_eq!(faults.failed(), Some(op));
        fill(&mut wal, &[&[frame(3, THIRD)], &[frame(4, THIRD)]]);
        assert!(wal.poisoned().is_none(), "{op:?}");
        drop(wal);
        assert_eq!(lsns(place.open().1), [1, 2, 3, 4]);
    }
}

#[test]
fn what_is_made_ahead_never_takes_the_log_over_its_cap_nor_room_from_an_append() {
    let place = Place::new();
    let (mut wal, _) = place
        .open_with(options(&place, 4), &DiskFaultInjector::default())
        .unwrap();
    let mut lsn = 0;
    let mut append = |wal: &mut WriteAheadLog| {
        lsn += 1;
        wal.append(&[frame(lsn, THIRD)])
    };
    loop {
        match append(&mut wal) {
            Ok(()) => wal.sync().unwrap(),
            Err(Error::LogFull { .. }) => break,
            Err(other) => panic!("{other}"),
        }
        wal.spares.ahead.iter().for_each(SegmentPreallocation::wait);
        assert!(place.disk_bytes() <= 4 * SEGMENT);
    }
    assert_eq!(lsn, 13, "four segments of three");
    // A group of another size than a segment finds room that the file made ahead takes.
    wal.release(7).unwrap();
    wal.append(&[frame(14, THIRD), frame(15, THIRD)]).unwrap();
    wal.sync().unwrap();
    wal.spares.ahead.iter().for_each(SegmentPreallocation::wait);
    assert!(place.disk_bytes() <= 4 * SEGMENT);
    wal.release(16).unwrap();
    let group: Vec<_> = (16..26).map(|lsn| frame(lsn, THIRD)).collect();
    wal.append(&group).unwrap();
    wal.sync().unwrap();
    assert!(place.disk_bytes() <= 4 * SEGMENT);
    drop(wal);
    assert_eq!(lsns(place.open_above(16).1), (16..26).collect::<Vec<_>>());
}
