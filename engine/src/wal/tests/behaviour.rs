//! Order, caps, recycling, big groups, full disks: the log with nothing broken.

use super::*;
use crate::wal::directory::DiskOperation;
use crate::wal::fault_injection::DiskFaultPlan;

#[test]
fn what_was_synced_comes_back_in_order() {
    let place = Place::new();
    let (mut wal, recovered) = place.open();
    assert_eq!(recovered.next_lsn, 1);
    assert_eq!(frames(recovered), []);
    let written: Vec<WalFrame> = (1..=40).map(|lsn| frame(lsn, 1000)).collect();
    for group in written.chunks(3) {
        fill(&mut wal, &[group]);
    }
    drop(wal);
    for life in 0..3 {
        let (wal, recovered) = place.open();
        assert_eq!(recovered.next_lsn, 41, "life {life}");
        assert_eq!(wal.next_lsn(), 41);
        assert_eq!(recovered.damage, []);
        assert_eq!(recovered.torn_bytes, 0);
        assert_eq!(frames(recovered), written, "life {life}");
    }
}

#[test]
fn frames_appended_after_a_recovery_follow_the_recovered_ones() {
    let place = Place::new();
    let mut written = Vec::new();
    for life in 0..6u64 {
        let (mut wal, recovered) = place.open();
        assert_eq!(frames(recovered), written, "life {life}");
        for _ in 0..5 {
            written.push(frame_of(wal.next_lsn(), 700, life));
            fill(&mut wal, &[&written[written.len() - 1..]]);
        }
    }
}

#[test]
fn frames_below_the_low_water_do_not_come_back_and_are_not_missed() {
    let place = Place::new();
    let (mut wal, _) = place.open();
    for lsn in 1..=50 {
        fill(&mut wal, &[&[frame(lsn, 1000)]]);
    }
    wal.release(30).unwrap();
    drop(wal);
    let (_, recovered) = place.open_above(30);
    assert_eq!(recovered.damage, []);
    assert_eq!(recovered.next_lsn, 51);
    assert_eq!(lsns(recovered), (30..=50).collect::<Vec<u64>>());
    let (_, recovered) = place.open_above(1000);
    assert_eq!(recovered.next_lsn, 1000);
    assert!(lsns(recovered).is_empty());
}

#[test]
fn released_segments_are_used_again_and_their_old_frames_never_come_back() {
    let place = Place::new();
    let (mut wal, _) = place.open();
    let mut sizes = Vec::new();
    let mut low_water = 1;
    for lsn in 1..=400 {
        fill(&mut wal, &[&[frame(lsn, 900)]]);
        if lsn % 10 == 0 {
            low_water = lsn - 3;
            wal.release(low_water).unwrap();
            sizes.push(place.disk_bytes());
        }
        if lsn % 37 == 0 {
            // A crash here sees a segment whose end is an earlier life's frames.
            let twin = place.twin();
            let (_, recovered) = twin.open_above(low_water);
            assert_eq!(recovered.damage, [], "after {lsn}");
            assert_eq!(recovered.torn_bytes, 0, "after {lsn}");
            let written: Vec<WalFrame> = (low_water..=lsn).map(|lsn| frame(lsn, 900)).collect();
            assert_eq!(frames(recovered), written);
        }
    }
    let steady = sizes[5];
    assert!(
        sizes[5..].iter().all(|size| *size == steady),
        "no growth and no new files: {sizes:?}"
    );
}

#[test]
fn a_group_larger_than_a_segment_gets_its_own() {
    let place = Place::new();
    let (mut wal, _) = place.open();
    let large = 10 * usize::try_from(BLOCK).unwrap();
    let written = [
        frame(1, 10),
        frame(2, large),
        frame(3, 10),
        frame(4, large),
        frame(5, 20),
    ];
    fill(
        &mut wal,
        &[&written[..1], &written[1..2], &written[2..3], &written[3..]],
    );
    drop(wal);
    let (mut wal, recovered) = place.open();
    assert_eq!(frames(recovered), written);
    wal.release(6).unwrap();
    fill(&mut wal, &[&[frame(6, large)], &[frame(7, 10)]]);
    wal.release(7).unwrap();
    let over = place.files().iter().filter(|(_, len)| *len != 4 * BLOCK).count();
    assert!(
        over <= 1,
        "segments of odd sizes go when they are released: {:?}",
        place.files()
    );
}

#[test]
fn at_the_cap_appends_wait_and_after_a_release_they_go_on() {
    let place = Place::new();
    let (mut wal, _) = place.open();
    let mut lsn = 1;
    let full = loop {
        let next = frame(lsn, 3000);
        let fits = wal.would_fit(next.encoded_len());
        match wal.append(std::slice::from_ref(&next)) {
            Ok(()) => assert!(fits, "frame {lsn}"),
            Err(error) => {
                assert!(!fits, "frame {lsn}");
                break error;
            }
        }
        wal.sync().unwrap();
        lsn += 1;
        assert!(place.disk_bytes() <= 64 * BLOCK && wal.disk_bytes() == place.disk_bytes());
    };
    assert!(
        matches!(full, Error::LogFull { limit, .. } if limit == 64 * BLOCK),
        "{full}"
    );
    assert!(wal.used_bytes() > 60 * BLOCK);
    assert!(wal.poisoned().is_none());
    // Smaller ones may still fit; what was appended stays.
    wal.release(lsn / 2).unwrap();
    for _ in 0..10 {
        fill(&mut wal, &[&[frame(lsn, 3000)]]);
        lsn += 1;
    }
    assert!(place.disk_bytes() <= 64 * BLOCK);
    drop(wal);
    let low = lsn / 2;
    let (wal, recovered) = place.open_above(low);
    assert_eq!(lsns(recovered), (low..lsn).collect::<Vec<u64>>());
    assert!(wal.disk_bytes() <= 64 * BLOCK && wal.disk_bytes() == place.disk_bytes());
}

#[test]
fn the_largest_group_fits_once_everything_is_released() {
    let place = Place::new();
    let (mut wal, _) = place.open();
    fill(&mut wal, &[&[frame(1, 100)], &[frame(2, 14_000)], &[frame(3, 14_000)]]);
    let most = wal.options.max_group_bytes();
    let overhead = frame(4, 0).encoded_len();
    let largest = frame(4, usize::try_from(most - overhead).unwrap());
    assert_eq!(largest.encoded_len(), most);
    assert!(!wal.would_fit(most));
    assert!(matches!(
        wal.append(std::slice::from_ref(&largest)),
        Err(Error::LogFull { .. })
    ));
    wal.release(4).unwrap();
    assert!(wal.would_fit(most));
    fill(&mut wal, &[std::slice::from_ref(&largest)]);
    assert!(place.disk_bytes() <= 64 * BLOCK);
    let larger = frame(5, usize::try_from(most).unwrap());
    assert!(matches!(wal.append(&[larger]), Err(Error::LogGroup { .. })));
    assert!(wal.poisoned().is_none());
    drop(wal);
    let (_, recovered) = place.open_above(4);
    assert_eq!(frames(recovered), [largest]);
}

#[test]
fn an_lsn_that_does_not_grow_is_refused_and_changes_nothing() {
    let place = Place::new();
    let (mut wal, _) = place.open();
    fill(&mut wal, &[&[frame(5, 10)]]);
    for group in [
        vec![frame(5, 10)],
        vec![frame(6, 10), frame(6, 10)],
        vec![frame(7, 1), frame(6, 1)],
    ] {
        assert!(matches!(wal.append(&group), Err(Error::LogOrder { .. })));
    }
    fill(&mut wal, &[&[frame(9, 10)]]);
    drop(wal);
    assert_eq!(lsns(place.open().1), [5, 9]);
}

#[test]
fn a_full_disk_is_back_pressure_and_appends_go_on_when_there_is_room() {
    let enospc = |at, op| DiskFaultPlan {
        at,
        op: Some(op),
        on: true,
        errno: libc::ENOSPC,
    };
    for op in [DiskOperation::Create, DiskOperation::Allocate, DiskOperation::SyncFile] {
        let place = Place::new();
        let faults = DiskFaultInjector::default();
        let (mut wal, _) = place.open_with(place.options(), &faults).unwrap();
        fill(&mut wal, &[&[frame(1, 10_000)]]);
        let before = place.files();
        faults.plan(Some(enospc(0, op)));
        for _ in 0..3 {
            let refused = wal.append(&[frame(2, 10_000)]).unwrap_err();
            assert!(matches!(refused, Error::NoSpace { .. }), "{op:?}: {refused}");
        }
        assert!(wal.poisoned().is_none(), "{op:?}");
        assert_eq!(place.files(), before, "{op:?}: nothing half made stays");
        faults.plan(None);
        // What is left of the segment may be used, and the group that was refused may come again.
        fill(&mut wal, &[&[frame(2, 100)], &[frame(3, 10_000)]]);
        drop(wal);
        assert_eq!(lsns(place.open().1), [1, 2, 3]);
    }
}

#[test]
fn a_disk_that_is_full_at_the_start_keeps_nobody_from_reading() {
    let place = Place::new();
    let faults = DiskFaultInjector::default();
    faults.plan(Some(DiskFaultPlan {
        at: 0,
        op: Some(DiskOperation::Allocate),
        on: true,
        errno: libc::ENOSPC,
    }));
    let (mut wal, recovered) = place.open_with(place.options(), &faults).unwrap();
    assert_eq!(frames(recovered), []);
    assert!(matches!(wal.append(&[frame(1, 10)]), Err(Error::NoSpace { .. })));
    faults.plan(None);
    fill(&mut wal, &[&[frame(1, 10)]]);
    drop(wal);
    assert_eq!(lsns(place.open().1), [1]);
}

#[test]
fn a_failed_write_or_sync_poisons_for_ever_and_a_restart_has_what_was_synced() {
    for (op, errno) in [
        (DiskOperation::Write, libc::EIO),
        (DiskOperation::SyncFile, libc::EIO),
        (DiskOperation::SyncFile, libc::ENOSPC),
    ] {
        let place = Place::new();
        let faults = DiskFaultInjector::default();
        let (mut wal, _) = place.open_with(place.options(), &faults).unwrap();
        fill(&mut wal, &[&[frame(1, 100)], &[frame(2, 100)]]);
        faults.plan(Some(DiskFaultPlan {
            at: 0,
            op: Some(op),
            on: false,
            errno,
        }));
        let failed = wal.append(&[frame(3, 5000)]).and_then(|()| wal.sync()).unwrap_err();
        assert!(matches!(failed, Error::Io { .. }), "{failed}");
        assert_eq!(faults.failed(), Some(op));
        assert!(wal.poisoned().unwrap().contains("wal_"), "{:?}", wal.poisoned());
        // The fault is gone, the poison is not.
        for refused in [wal.append(&[frame(3, 10)]), wal.sync(), wal.release(2)] {
            assert!(matches!(refused, Err(Error::Poisoned { .. })));
        }
        drop(wal);
        let recovered = place.open().1;
        assert_eq!(recovered.damage, []);
        let recovered = frames(recovered);
        assert_eq!(recovered[..2], [frame(1, 100), frame(2, 100)]);
        assert!(recovered[2..].iter().all(|third| *third == frame(3, 5000)));
    }
}

#[test]
fn a_cap_that_cannot_work_is_refused_and_a_large_segment_size_is_cut_to_the_cap() {
    let place = Place::new();
    let tiny = WalOptions {
        max_bytes: 7 * BLOCK,
        ..place.options()
    };
    assert!(matches!(
        place.open_with(tiny, &DiskFaultInjector::default()),
        Err(Error::Setting { .. })
    ));
    let wide = WalOptions {
        segment_bytes: u64::MAX,
        ..place.options()
    };
    let (wal, _) = place.open_with(wide, &DiskFaultInjector::default()).unwrap();
    assert_eq!(wal.used_bytes(), 16 * BLOCK);
}

#[test]
fn a_smaller_cap_at_the_next_start_holds_appends_back_until_rows_are_released() {
    let place = Place::new();
    let (mut wal, _) = place.open();
    for lsn in 1..=40 {
        fill(&mut wal, &[&[frame(lsn, 3000)]]);
    }
    drop(wal);
    let smaller = WalOptions {
        max_bytes: 16 * BLOCK,
        ..place.options()
    };
    let (mut wal, recovered) = place.open_with(smaller, &DiskFaultInjector::default()).unwrap();
    assert_eq!(lsns(recovered), (1..=40).collect::<Vec<u64>>());
    let filler = frame(41, 16_000);
    assert!(!wal.would_fit(filler.encoded_len()));
    wal.release(41).unwrap();
    assert!(wal.would_fit(filler.encoded_len()));
    fill(&mut wal, &[&[filler]]);
    assert!(place.disk_bytes() <= 16 * BLOCK, "{:?}", place.files());
}
