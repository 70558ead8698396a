//! A disk that others filled: a recovery needs no room of its own, and a switch that finds none waits.

use super::*;
use crate::wal::directory::DiskOperation;
use crate::wal::fault_injection::DiskFaultPlan;

fn no_room(at: usize, op: DiskOperation, on: bool) -> Option<DiskFaultPlan> {
    let errno = libc::ENOSPC;
    let op = Some(op);
    Some(DiskFaultPlan { at, op, on, errno })
}

#[test]
fn a_recovery_on_a_full_disk_hands_out_every_frame_and_a_power_cut_takes_none_back() {
    for op in [DiskOperation::Create, DiskOperation::Allocate] {
        let place = Place::new();
        let faults = DiskFaultInjector::model(&place.log());
        let (mut wal, _) = place.open_with(place.options(), &faults).unwrap();
        let mut written: Vec<WalFrame> = (1..=12).map(|lsn| frame(lsn, 3000)).collect();
        fill(&mut wal, &written.chunks(1).collect::<Vec<_>>()[..11]);
        // The last one reached the cache and not the disk: the next sync would not bring it there.
        faults.plan(Some(DiskFaultPlan {
            at: 0,
            op: Some(DiskOperation::SyncFile),
            on: false,
            errno: libc::EIO,
        }));
        wal.append(&written[11..]).unwrap();
        wal.sync().unwrap_err();
        drop(wal);
        for start in 0..3 {
            faults.plan(no_room(0, op, true));
            let (mut wal, recovered) = place.open_with(place.options(), &faults).unwrap();
            assert_eq!(recovered.damage, [], "{op:?}, start {start}");
            assert_eq!((recovered.next_lsn, frames(recovered)), (13, written.clone()));
            let refused = wal.append(&[frame(13, 3000)]).unwrap_err();
            assert!(matches!(refused, Error::NoSpace { .. }), "{op:?}: {refused}");
        }
        let after = Place::new();
        faults.power_cut(&after.log(), |_| 0);
        for place in [place, after] {
            let (mut wal, recovered) = place.open();
            assert_eq!(recovered.damage, []);
            assert_eq!(frames(recovered), written[..12]);
            let next = frame_of(13, 3000, 1);
            fill(&mut wal, &[std::slice::from_ref(&next)]);
            drop(wal);
            written.truncate(12);
            written.push(next);
            assert_eq!(frames(place.open().1), written);
        }
    }
}

#[test]
fn appends_go_on_behind_a_log_that_found_no_room_for_its_copy() {
    let place = Place::new();
    let faults = DiskFaultInjector::default();
    let (mut wal, _) = place.open_with(place.options(), &faults).unwrap();
    fill(&mut wal, &[&[frame(1, 3000)], &[frame(2, 3000)]]);
    // A write that was interrupted: it is cut in place, and its number is used again.
    faults.plan(Some(DiskFaultPlan {
        at: 0,
        op: Some(DiskOperation::Write),
        on: false,
        errno: libc::EIO,
    }));
    wal.append(&[frame(3, 5000)]).unwrap_err();
    drop(wal);
    faults.plan(no_room(0, DiskOperation::Create, true));
    let (mut wal, recovered) = place.open_with(place.options(), &faults).unwrap();
    assert!(recovered.torn_bytes > 0);
    assert_eq!((recovered.next_lsn, lsns(recovered)), (3, vec![1, 2]));
    faults.plan(None);
    let written = [
        frame(1, 3000),
        frame(2, 3000),
        frame_of(3, 5000, 1),
        frame_of(4, 9000, 1),
    ];
    fill(&mut wal, &[&written[2..3], &written[3..]]);
    assert_eq!(wal.disk_bytes(), place.disk_bytes());
    // A kill, with the old segment and the new ones beside each other.
    let twin = place.twin();
    let (_, recovered) = twin.open();
    assert_eq!(recovered.damage, []);
    assert_eq!(frames(recovered), written);
    // Released, it is used again like any other.
    wal.release(4).unwrap();
    assert!(place.files().iter().any(|(name, _)| !name.ends_with(".log")));
    drop(wal);
    assert_eq!(lsns(place.open_above(4).1), [4]);
}

#[test]
fn where_a_whole_segment_finds_no_room_a_copy_takes_what_its_frames_take() {
    let place = Place::new();
    let faults = DiskFaultInjector::default();
    let (mut wal, _) = place.open_with(place.options(), &faults).unwrap();
    fill(&mut wal, &[&[frame(1, 700)], &[frame(2, 700)]]);
    drop(wal);
    faults.plan(no_room(0, DiskOperation::Create, false));
    let (mut wal, recovered) = place.open_with(place.options(), &faults).unwrap();
    assert_eq!(lsns(recovered), [1, 2]);
    assert_eq!(wal.used_bytes(), 2 * BLOCK, "the header and one block");
    // The old segment is the next one.
    faults.plan(no_room(0, DiskOperation::Create, true));
    fill(&mut wal, &[&[frame(3, 3000)]]);
    drop(wal);
    assert_eq!(lsns(place.open().1), [1, 2, 3]);
}

#[test]
fn a_segment_that_a_full_disk_does_not_let_go_of_is_waited_for() {
    let place = Place::new();
    let faults = DiskFaultInjector::default();
    let (mut wal, _) = place.open_with(place.options(), &faults).unwrap();
    fill(&mut wal, &[&[frame(1, 10_000)]]);
    wal.release(2).unwrap();
    faults.plan(no_room(0, DiskOperation::Rename, true));
    for _ in 0..3 {
        let refused = wal.append(&[frame(2, 10_000)]).unwrap_err();
        assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    }
    assert!(wal.poisoned().is_none());
    faults.plan(None);
    fill(&mut wal, &[&[frame(2, 10_000)]]);
    assert_eq!(wal.disk_bytes(), place.disk_bytes());
    drop(wal);
    assert_eq!(lsns(place.open_above(2).1), [2]);
}
