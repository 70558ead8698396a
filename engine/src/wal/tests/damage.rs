//! Cuts, flipped bits, missing and foreign files: never a wrong frame, never a silent loss.

use std::collections::BTreeSet;
use std::fs;

use proptest::prelude::*;

use super::*;
use crate::wal::directory::DiskOperation;
use crate::wal::fault_injection::DiskFaultPlan;
use crate::wal::segment::SegmentHeader;

/// A log of `count` frames, synced one by one, over several segments.
fn log_of(count: u64, len: usize) -> (Place, Vec<WalFrame>) {
    let place = Place::new();
    let (mut wal, _) = place.open();
    let written: Vec<WalFrame> = (1..=count).map(|lsn| frame(lsn, len)).collect();
    for group in written.chunks(1) {
        fill(&mut wal, &[group]);
    }
    (place, written)
}

/// Where the last frame of a segment file ends, and where each of its frames starts.
fn spans(path: &Path) -> (Vec<usize>, usize) {
    let bytes = fs::read(path).unwrap();
    let header = SegmentHeader::decode(&bytes).unwrap();
    let identity = SegmentIdentity::new(header.store, header.number);
    let scan = frame::SegmentScan::run(&identity, &bytes, HEADER_BLOCK);
    let mut starts = vec![HEADER_BLOCK];
    starts.extend(scan.prefix.iter().map(|found| found.end));
    let end = starts.pop().unwrap();
    (starts, end)
}

#[test]
fn a_log_cut_at_any_byte_of_its_last_three_frames_keeps_every_frame_before_the_cut() {
    let (place, written) = log_of(9, 150);
    let newest = place.logs().pop().unwrap();
    let (starts, end) = spans(&newest);
    let before_newest = written.len() - starts.len();
    let whole = fs::read(&newest).unwrap();
    for cut in starts[starts.len() - 3]..=end {
        for lost_as_zeros in [false, true] {
            let twin = place.twin();
            let mut bytes = whole[..cut].to_vec();
            if lost_as_zeros {
                bytes.resize(whole.len(), 0);
            }
            fs::write(twin.log().join(newest.file_name().unwrap()), &bytes).unwrap();
            let (_, recovered) = twin.open();
            assert_eq!(recovered.damage, [], "cut at {cut}");
            let torn = recovered.torn_bytes;
            let recovered = frames(recovered);
            // A frame's padding may be missing: its end is its last byte that is not padding.
            let kept = before_newest
                + starts
                    .iter()
                    .zip(starts[1..].iter().chain([&end]))
                    .filter(|(start, _)| {
                        let len = u32::from_le_bytes(whole[**start..**start + 4].try_into().unwrap());
                        let data = **start + usize::try_from(len).unwrap();
                        let missing = &whole[cut.min(data)..data];
                        cut >= data || (lost_as_zeros && missing.iter().all(|byte| *byte == 0))
                    })
                    .count();
            assert_eq!(recovered, written[..kept], "cut at {cut}");
            assert!(torn > 0 || kept == written.len() || cut < starts[kept - before_newest] + 16 || !lost_as_zeros);
        }
    }
}

#[test]
fn a_missing_end_of_a_failed_log_is_reported_until_newer_frames_follow() {
    let place = Place::new();
    let faults = DiskFaultInjector::default();
    let (mut wal, _) = place.open_with(place.options(), &faults).unwrap();
    for lsn in 1..=6 {
        fill(&mut wal, &[&[frame(lsn, 150)]]);
    }
    faults.plan(Some(DiskFaultPlan {
        at: 0,
        op: Some(DiskOperation::Write),
        on: false,
        errno: libc::ENOSPC,
    }));
    wal.append(&[frame(7, 150)]).unwrap_err();
    drop(wal);
    // The disk has lost what it had taken last, and shows zeros.
    let newest = place.logs().pop().unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    let (starts, _) = spans(&newest);
    bytes[starts[3]..].fill(0);
    fs::write(&newest, &bytes).unwrap();
    for start in 1..=2 {
        let (_, recovered) = place.open();
        let missing: Vec<_> = recovered.damage.iter().map(|damage| damage.missing.clone()).collect();
        assert_eq!(missing, [Some(4..=6)], "start {start}");
        assert_eq!(recovered.next_lsn, 7);
        assert_eq!(lsns(recovered), [1, 2, 3]);
    }
    let (mut wal, _) = place.open();
    fill(&mut wal, &[&[frame(7, 150)]]);
    drop(wal);
    let (_, recovered) = place.open();
    assert_eq!(recovered.damage, []);
    assert_eq!(lsns(recovered), [1, 2, 3, 7]);
}

#[test]
fn a_flipped_bit_anywhere_is_never_a_wrong_frame_and_costs_at_most_its_own() {
    let (place, written) = log_of(12, 40);
    assert_eq!(place.logs().len(), 1, "a small log");
    let path = place.logs().pop().unwrap();
    let whole = fs::read(&path).unwrap();
    let (starts, end) = spans(&path);
    let interesting = (0..64).chain(HEADER_BLOCK..end);
    let (mut reported, mut torn) = (0, 0);
    for bit in interesting.flat_map(|at| at * 8..at * 8 + 8) {
        let twin = place.twin();
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(twin.log().join(path.file_name().unwrap()), &bytes).unwrap();
        let (_, recovered) = twin.open();
        let (damage, torn_bytes) = (recovered.damage.clone(), recovered.torn_bytes);
        let recovered = frames(recovered);
        assert!(recovered.iter().all(|frame| written.contains(frame)), "bit {bit}");
        assert!(
            recovered.len() + 1 >= written.len(),
            "bit {bit}: {} frames",
            recovered.len()
        );
        if bit / 8 < 64 {
            assert_eq!(recovered, written, "bit {bit}: the header is not needed to read frames");
            assert_eq!(damage.len(), 1, "bit {bit}");
        } else if recovered.len() < written.len() {
            let lost = starts.iter().rposition(|start| *start <= bit / 8).unwrap() as u64 + 1;
            if lost < written.len() as u64 {
                assert_eq!(damage.len(), 1, "bit {bit} of frame {lost}");
                assert_eq!(damage[0].missing, Some(lost..=lost), "bit {bit}: {}", damage[0]);
                reported += 1;
            } else {
                // Nothing was written after the last one: no different from an interrupted write.
                assert_eq!(damage, []);
                torn += u32::from(torn_bytes > 0);
            }
        }
        for damage in damage {
            assert_eq!(
                fs::read(damage.kept.unwrap()).unwrap(),
                bytes,
                "bit {bit}: the file is kept as it was found"
            );
        }
    }
    assert!(reported > 0 && torn > 0);
}

#[test]
fn damage_in_an_older_segment_is_reported_kept_and_not_reported_again() {
    let (place, written) = log_of(40, 1000);
    let logs = place.logs();
    assert!(logs.len() >= 3);
    let (starts, end) = spans(&logs[1]);
    for (from, to, what) in [
        (starts[2], starts[4], "in the middle"),
        (starts[starts.len() - 2], end, "at the end"),
        (HEADER_BLOCK, end, "everywhere"),
        (0, end, "header and all"),
    ] {
        let twin = place.twin();
        let damaged = twin.log().join(logs[1].file_name().unwrap());
        let mut bytes = fs::read(&damaged).unwrap();
        bytes[from..to].fill(0);
        fs::write(&damaged, &bytes).unwrap();
        let (mut wal, recovered) = twin.open();
        let first = usize::try_from(SegmentHeader::decode(&fs::read(&logs[1]).unwrap()).unwrap().first).unwrap();
        let lost: BTreeSet<u64> = starts
            .iter()
            .enumerate()
            .filter(|(_, start)| (from..to).contains(*start))
            .map(|(at, _)| (first + at) as u64)
            .collect();
        let missing = recovered
            .damage
            .iter()
            .find_map(|damage| damage.missing.clone())
            .unwrap();
        assert_eq!(
            (*missing.start(), *missing.end()),
            (*lost.first().unwrap(), *lost.last().unwrap()),
            "{what}"
        );
        let kept = recovered.damage.iter().find_map(|damage| damage.kept.clone());
        if from > 0 {
            assert_eq!(fs::read(kept.unwrap()).unwrap(), bytes, "{what}");
        } else {
            assert!(kept.is_some(), "{what}");
        }
        let survivors: Vec<WalFrame> = written
            .iter()
            .filter(|frame| !lost.contains(&frame.lsn))
            .cloned()
            .collect();
        assert_eq!(frames(recovered), survivors, "{what}");
        fill(&mut wal, &[&[frame(41, 10)]]);
        drop(wal);
        let (_, again) = twin.open();
        assert_eq!(again.damage, [], "{what}: what was lost is reported once");
        assert_eq!(again.frames.count(), survivors.len() + 1);
    }
}

#[test]
fn damage_to_the_last_frame_of_a_recovered_log_is_noticed() {
    let (place, written) = log_of(5, 100);
    drop(place.open());
    let path = &place.logs()[0];
    let mut bytes = fs::read(path).unwrap();
    bytes[spans(path).0[4] + 50] ^= 1;
    fs::write(path, &bytes).unwrap();
    let (_, recovered) = place.open();
    assert_eq!(recovered.damage.len(), 1);
    assert_eq!(recovered.damage[0].missing, Some(5..=5));
    assert_eq!(frames(recovered), written[..4]);
}

#[test]
fn a_segment_that_is_gone_is_missed() {
    let (place, written) = log_of(40, 1000);
    let logs = place.logs();
    for (gone, path) in logs.iter().enumerate().take(logs.len() - 1) {
        let first = SegmentHeader::decode(&fs::read(path).unwrap()).unwrap().first;
        let next = SegmentHeader::decode(&fs::read(&logs[gone + 1]).unwrap())
            .unwrap()
            .first;
        let twin = place.twin();
        fs::remove_file(twin.log().join(path.file_name().unwrap())).unwrap();
        let (_, recovered) = twin.open();
        assert_eq!(recovered.damage.len(), 1, "segment {gone}");
        assert_eq!(recovered.damage[0].missing, Some(first..=next - 1), "segment {gone}");
        assert_eq!(
            recovered.frames.count(),
            written.len() - usize::try_from(next - first).unwrap()
        );
        // Below the low water nobody misses it.
        let twin = place.twin();
        fs::remove_file(twin.log().join(path.file_name().unwrap())).unwrap();
        assert_eq!(twin.open_above(next).1.damage, []);
    }
}

#[test]
fn segments_under_each_others_names_are_read_as_what_they_are() {
    let (place, written) = log_of(40, 1000);
    let logs = place.logs();
    let aside = place.log().join("aside");
    fs::rename(&logs[0], &aside).unwrap();
    fs::rename(&logs[2], &logs[0]).unwrap();
    fs::rename(&aside, &logs[2]).unwrap();
    let (_, recovered) = place.open();
    assert_eq!(recovered.damage, []);
    assert_eq!(frames(recovered), written);
}

#[test]
fn a_segment_of_another_store_is_kept_aside_and_not_read() {
    let (place, written) = log_of(3, 100);
    let other = Place::new();
    let foreign = WalOptions {
        store: Uuid::from_u128(99),
        ..other.options()
    };
    let (mut wal, _) = other.open_with(foreign, &DiskFaultInjector::default()).unwrap();
    fill(&mut wal, &[&[frame(4, 10)]]);
    drop(wal);
    fs::copy(&other.logs()[0], place.log().join("wal_00000000000000000077.log")).unwrap();
    let (_, recovered) = place.open();
    assert_eq!(recovered.damage.len(), 1);
    assert!(recovered.damage[0].kept.as_ref().unwrap().exists());
    assert_eq!(frames(recovered), written);
}

#[test]
fn a_segment_of_a_later_version_stops_the_start_and_stays() {
    let (place, _) = log_of(3, 100);
    let path = &place.logs()[0];
    let mut bytes = fs::read(path).unwrap();
    bytes[8..12].copy_from_slice(&7u32.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..64]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    fs::write(path, &bytes).unwrap();
    let refused = place
        .open_with(place.options(), &DiskFaultInjector::default())
        .unwrap_err();
    assert!(matches!(refused, Error::Newer { found: 7, known: 1, .. }), "{refused}");
    assert_eq!(fs::read(path).unwrap(), bytes);
}

#[test]
fn files_that_are_not_the_logs_are_left_alone() {
    let (place, written) = log_of(3, 100);
    fs::write(place.log().join("notes.txt"), "mine").unwrap();
    fs::write(place.log().join("wal_1.log"), "not ours").unwrap();
    assert_eq!(frames(place.open().1), written);
    assert_eq!(fs::read(place.log().join("notes.txt")).unwrap(), b"mine");
    assert_eq!(fs::read(place.log().join("wal_1.log")).unwrap(), b"not ours");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_files_open_without_a_panic_and_yield_only_what_was_written(
        noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), proptest::collection::vec(any::<u8>(), 1..600)), 1..6),
        cut in proptest::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>())),
    ) {
        let (place, written) = log_of(30, 700);
        let logs = place.logs();
        for (file, at, bytes) in &noise {
            let path = &logs[file.index(logs.len())];
            let mut content = fs::read(path).unwrap();
            let at = at.index(content.len());
            let end = (at + bytes.len()).min(content.len());
            content[at..end].copy_from_slice(&bytes[..end - at]);
            fs::write(path, content).unwrap();
        }
        if let Some((file, at)) = cut {
            let path = &logs[file.index(logs.len())];
            let content = fs::read(path).unwrap();
            fs::write(path, &content[..at.index(content.len())]).unwrap();
        }
        match place.open_with(place.options(), &DiskFaultInjector::default()) {
            Ok((_, recovered)) => {
                let damage = recovered.damage.len();
                let recovered = frames(recovered);
                prop_assert!(recovered.iter().all(|frame| written.contains(frame)));
                prop_assert!(recovered.windows(2).all(|pair| pair[0].lsn < pair[1].lsn));
                // A loss that reaches the end looks like an interrupted write; any other one is reported.
                let tail_only = recovered == written[..recovered.len()];
                prop_assert!(recovered.len() == written.len() || damage > 0 || tail_only, "a silent loss");
            }
            Err(error) => prop_assert!(matches!(error, Error::Newer { .. }), "{error}"),
        }
    }
}

#[test]
fn a_flipped_bit_in_the_last_frame_is_damage_once_its_sync_was_marked() {
    let (place, written) = log_of(3, 40);
    let newest = place.logs().pop().unwrap();
    let (starts, end) = spans(&newest);
    let header = SegmentHeader::decode(&fs::read(&newest).unwrap()).unwrap();
    let identity = SegmentIdentity::new(header.store, header.number);
    let mut whole = fs::read(&newest).unwrap();
    whole[end..end + frame::MARK_BYTES].copy_from_slice(&frame::mark(&identity, 3));
    let last = *starts.last().unwrap();
    for bit in (last * 8..(end + frame::MARK_BYTES) * 8).step_by(3) {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let twin = place.twin();
        fs::write(twin.log().join(newest.file_name().unwrap()), &bytes).unwrap();
        let (_, recovered) = twin.open();
        let lost: Vec<_> = recovered
            .damage
            .iter()
            .filter_map(|damage| damage.missing.clone())
            .collect();
        let kept = frames(recovered);
        if kept.len() == 3 {
            // Padding, or the mark itself.
            assert_eq!((kept, lost), (written.clone(), vec![]), "bit {bit}");
        } else {
            assert_eq!((kept, lost), (written[..2].to_vec(), vec![3..=3]), "bit {bit}");
        }
    }
}

#[test]
fn a_mark_is_replaced_by_the_next_frame_and_says_nothing_of_an_unsynced_one() {
    let place = Place::new();
    let (mut wal, _) = place.open();
    let written: Vec<WalFrame> = (1..=3).map(|lsn| frame(lsn, 40)).collect();
    for group in written[..2].chunks(1) {
        fill(&mut wal, &[group]);
        wal.write_sync_mark().unwrap();
        wal.write_sync_mark().unwrap();
    }
    wal.append(&written[2..]).unwrap();
    wal.write_sync_mark().unwrap();
    drop(wal);
    let newest = place.logs().pop().unwrap();
    let (starts, _) = spans(&newest);
    assert_eq!(starts.len(), 3);
    let mut bytes = fs::read(&newest).unwrap();
    bytes[starts[2] + 50] ^= 1;
    fs::write(&newest, bytes).unwrap();
    let (_, recovered) = place.open();
    assert_eq!(recovered.damage, [], "it was never acknowledged");
    assert_eq!(frames(recovered), written[..2]);
}
