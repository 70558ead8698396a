//! Positions over kills, torn blocks, failed syncs and switches.
#![allow(clippy::unwrap_used, reason = "tests")]
use durable_fs::fault_injection::{FaultInjector, FsOperation};

use super::*;

const STORE: Uuid = Uuid::from_u128(7);

fn read(dir: &Path) -> Option<ExportPositions> {
    ExportPositions::read(dir, STORE, 3).unwrap()
}

fn begin(dir: &Path) -> ExportCursors {
    ExportCursors::begin(dir, STORE, ExportMode::Copy, read(dir), 5)
        .unwrap()
        .unwrap()
}

fn at(lsn: u64, row: usize) -> ArrivalPosition {
    ArrivalPosition { lsn, row }
}

#[test]
fn positions_survive_a_kill_without_a_sync_and_only_synced_ones_release_the_log() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(read(dir.path()), None);
    let cursors = begin(dir.path());
    for table in [Table::Logs, Table::Traces, Table::Metrics] {
        assert_eq!(cursors.next(table), Some(at(5, 0)));
    }
    cursors.advance(Table::Logs, at(7, 3)).unwrap();
    cursors.advance(Table::Logs, at(6, 0)).unwrap();
    cursors.advance(Table::Traces, at(9, 0)).unwrap();
    cursors.advance(Table::Metrics, at(8, 1)).unwrap();
    assert_eq!(cursors.low_water(), 5, "not synced yet");
    let found = read(dir.path()).unwrap();
    assert_eq!(found.next, [at(7, 3), at(9, 0), at(8, 1)]);
    cursors.sync().unwrap();
    assert_eq!((cursors.low_water(), found.highest()), (7, 9));
    drop(cursors);
    assert_eq!(begin(dir.path()).next(Table::Logs), Some(at(7, 3)));
}

#[test]
fn a_torn_block_leaves_the_one_before_and_two_damaged_ones_export_again() {
    let dir = tempfile::tempdir().unwrap();
    let cursors = begin(dir.path());
    for lsn in [6, 7] {
        cursors.advance(Table::Logs, at(lsn, 0)).unwrap();
    }
    let path = dir.path().join(NAME);
    let whole = std::fs::read(&path).unwrap();
    let newest = usize::from(cursors.inner.lock().now.version % 2 == 1) * BLOCK;
    let torn = |places: &[usize]| {
        let mut bytes = whole.clone();
        places.iter().for_each(|at| bytes[at + 50] ^= 1);
        std::fs::write(&path, bytes).unwrap();
        read(dir.path()).unwrap().next[0]
    };
    assert_eq!(torn(&[]), at(7, 0));
    assert_eq!(torn(&[newest]), at(6, 0));
    assert_eq!(torn(&[0, BLOCK]), at(3, 0), "from the low water on");
    let other = ExportPositions::read(dir.path(), Uuid::from_u128(8), 4).unwrap();
    assert_eq!(
        other.map(|found| (found.unstored_from, found.low_water())),
        Some((u64::MAX, 4))
    );
}

#[test]
fn after_a_failed_sync_the_file_is_made_anew_and_the_log_waits_until_then() {
    let dir = tempfile::tempdir().unwrap();
    let faults = FaultInjector::below(dir.path());
    let cursors = begin(dir.path());
    for table in [Table::Logs, Table::Traces, Table::Metrics] {
        cursors.advance(table, at(9, 0)).unwrap();
    }
    faults.fail(FsOperation::SyncFile, NAME, 2, 5);
    assert!(cursors.sync().is_err(), "the sync");
    assert!(cursors.sync().is_err(), "the new file's");
    assert_eq!(cursors.low_water(), 5);
    cursors.sync().unwrap();
    assert_eq!((cursors.low_water(), faults.left()), (9, 0));
    cursors.advance(Table::Logs, at(11, 0)).unwrap();
    assert_eq!(read(dir.path()).unwrap().next[0], at(11, 0), "the new file is written");
}

#[test]
fn what_was_not_kept_here_is_told_from_what_was() {
    let found = ExportPositions {
        version: 1,
        unstored_from: 10,
        next: [at(20, 0), at(15, 2), at(20, 0)],
    };
    for (table, lsn, mode, wanted) in [
        (Table::Logs, 9, ExportMode::Only, false),
        (Table::Logs, 10, ExportMode::Only, true),
        (Table::Logs, 30, ExportMode::Only, true),
        (Table::Messages, 30, ExportMode::Only, false),
        (Table::DeadLetters, 30, ExportMode::Only, false),
        (Table::Logs, 19, ExportMode::Copy, true),
        (Table::Logs, 20, ExportMode::Copy, false),
        (Table::Traces, 15, ExportMode::Off, false),
        (Table::Traces, 14, ExportMode::Off, true),
    ] {
        assert_eq!(found.is_unstored(table, lsn, mode), wanted, "{table} {lsn} {mode:?}");
    }
}

#[test]
fn switching_moves_no_position_and_marks_what_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let begin = |mode, next| ExportCursors::begin(dir.path(), STORE, mode, read(dir.path()), next).unwrap();
    begin(ExportMode::Copy, 5);
    assert_eq!(read(dir.path()).unwrap().unstored_from, u64::MAX);
    begin(ExportMode::Only, 8);
    let found = read(dir.path()).unwrap();
    assert_eq!((found.unstored_from, found.next[0]), (8, at(5, 0)));
    begin(ExportMode::Only, 12);
    assert_eq!(read(dir.path()).unwrap().unstored_from, 8);
    assert!(begin(ExportMode::Off, 12).is_none());
    assert_eq!(read(dir.path()), None);
}
