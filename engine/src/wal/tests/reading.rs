//! Reading beside the writer: every durable frame once, in order, and nothing else, whatever becomes of the files.

use std::fs;

use super::*;

fn reader(place: &Place, last: u64) -> LogReader {
    LogReader::new(&place.log(), place.options().store, last, &[])
}

/// Every frame up to `durable`.
fn read_all(reader: &mut LogReader, durable: u64) -> Result<Vec<WalFrame>, Error> {
    std::iter::from_fn(|| reader.next(durable).transpose()).collect()
}

#[test]
fn frames_are_read_while_they_are_written_into_segments_that_are_used_again() {
    let place = Place::new();
    let (mut wal, _) = place.open();
    let mut reader = reader(&place, 0);
    let (mut lsn, mut numbers) = (1, std::collections::BTreeSet::new());
    for round in 0..300u64 {
        // Now and then one that is larger than a segment, and than what is read at once.
        let (len, count) = match round % 50 {
            49 => (70_000, 1),
            _ => (200 + round as usize * 7, round % 4 + 1),
        };
        let group: Vec<WalFrame> = (lsn..lsn + count).map(|lsn| frame(lsn, len)).collect();
        lsn += count;
        fill(&mut wal, &[&group]);
        if round % 2 == 0 {
            wal.write_sync_mark().unwrap();
        }
        if round % 3 < 2 {
            // What is not read yet stays: nothing is released.
            continue;
        }
        let durable = lsn - 1;
        let from = new_lsns(&mut reader, durable);
        assert_eq!(from.last(), Some(&durable), "round {round}");
        numbers.extend(from);
        wal.release(durable).unwrap();
    }
    assert_eq!(numbers.len() as u64, lsn - 1, "each frame once");
    assert!(place.disk_bytes() <= 64 * BLOCK, "files were used again");
}

/// The LSNs of the frames up to `durable` that were not read before, each of which must be what was written.
fn new_lsns(reader: &mut LogReader, durable: u64) -> Vec<u64> {
    let found = read_all(reader, durable).unwrap();
    let lsns: Vec<u64> = found.iter().map(|frame| frame.lsn).collect();
    assert!(lsns.is_sorted_by(|a, b| a < b), "{lsns:?}");
    for read in found {
        assert_eq!(read, frame(read.lsn, read.payload.len()));
    }
    lsns
}

#[test]
fn a_reader_begins_at_any_frame_and_ends_at_what_is_durable() {
    let place = Place::new();
    let (mut wal, _) = place.open();
    let written: Vec<WalFrame> = (1..=40).map(|lsn| frame(lsn, 1_000)).collect();
    for group in written.chunks(3) {
        fill(&mut wal, &[group]);
    }
    assert!(place.logs().len() > 2, "several segments");
    for last in 0..=40 {
        for durable in [last, last + 1, 40] {
            let durable = durable.min(40);
            let found = read_all(&mut reader(&place, last), durable).unwrap();
            assert_eq!(found, written[last as usize..durable as usize], "{last} {durable}");
        }
    }
    // A group that is written and not synced is not there yet.
    let mut reader = reader(&place, 38);
    wal.append(&[frame(41, 10)]).unwrap();
    assert_eq!(read_all(&mut reader, 40).unwrap(), written[38..]);
    wal.sync().unwrap();
    assert_eq!(read_all(&mut reader, 41).unwrap(), [frame(41, 10)]);
}

#[test]
fn frames_that_the_log_does_not_have_any_more_are_passed_and_counted() {
    let place = Place::new();
    let (mut wal, _) = place.open();
    for lsn in 1..=40 {
        fill(&mut wal, &[&[frame(lsn, 1_000)]]);
    }
    wal.release(20).unwrap();
    for (last, gaps) in [(3, 1), (20, 0)] {
        let mut reader = reader(&place, last);
        let found = read_all(&mut reader, 40).unwrap();
        let ends = found
            .first()
            .zip(found.last())
            .map(|(first, last)| (first.lsn, last.lsn));
        assert!(matches!(ends, Some((5..=21, 40))), "{ends:?}");
        assert_eq!((reader.take_gaps(), reader.take_gaps()), (gaps, 0), "behind {last}");
    }
    // One that looks before the frame behind the gap is durable, and begins again.
    let mut reader = reader(&place, 3);
    for durable in 4..=20 {
        let _ = reader.next(durable).unwrap();
    }
    assert_eq!(reader.take_gaps(), 1);
    reader.rewind(3);
    let found = read_all(&mut reader, 40).unwrap();
    assert!(found.len() >= 20 && found.last().is_some_and(|frame| frame.lsn == 40));
    assert_eq!(reader.take_gaps(), 0);
}

#[test]
fn a_recovered_log_is_read_on_from_where_the_reader_was() {
    let place = Place::new();
    let mut read = 0;
    for life in 0..6u64 {
        let (mut wal, _) = place.open();
        let mut reader = reader(&place, read);
        for _ in 0..5 {
            let lsn = wal.next_lsn();
            fill(&mut wal, &[&[frame(lsn, 700)]]);
        }
        let durable = wal.next_lsn() - 1;
        assert_eq!(wal.tail(), durable);
        // Half of what is there.
        let until = read + (durable - read).div_ceil(2);
        let found = read_all(&mut reader, until).unwrap();
        assert_eq!(found.first().map(|frame| frame.lsn), Some(read + 1), "life {life}");
        read = until;
    }
}

#[test]
fn a_frame_that_was_changed_is_an_error_and_nothing_behind_it_is_read() {
    let place = Place::new();
    let (mut wal, _) = place.open();
    for lsn in 1..=12 {
        fill(&mut wal, &[&[frame(lsn, 1_500)]]);
    }
    let log = place.logs().remove(0);
    let whole = fs::read(&log).unwrap();
    // The header of the second frame and its rows.
    for at in [1, 8, 60, 900].map(|at| HEADER_BLOCK + frame(1, 1_500).encoded_len() as usize + at) {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        fs::write(&log, &damaged).unwrap();
        let mut reader = reader(&place, 0);
        assert_eq!(reader.next(12).unwrap().map(|frame| frame.lsn), Some(1));
        for _ in 0..2 {
            let refused = reader.next(12).unwrap_err();
            assert!(matches!(refused, Error::Damaged { .. }), "byte {at}: {refused}");
        }
        fs::write(&log, &whole).unwrap();
        assert_eq!(read_all(&mut reader, 12).unwrap().len(), 11, "byte {at}");
    }
}
