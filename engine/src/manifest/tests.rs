//! The catalogue's files under damage, growth and interruption.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use durable_fs::fault_injection::{FaultInjector, FsOperation};
use model::{Table, Timestamp};

use super::*;
use crate::PartitionBy;
use crate::layout::TimePartition;

fn entry(id: u64, version: u32) -> FileEntry {
    FileEntry {
        id,
        version,
        table: Table::Logs,
        partition: TimePartition::of(Timestamp::from_micros(0), PartitionBy::Hour),
        form: crate::datafile::FileFormat::Parquet,
        number: u32::try_from(id).unwrap(),
        prefix: None,
        size: 100,
        rows: 10,
        min_ts: -5,
        max_ts: 5,
        sealed: false,
        runs: Vec::new(),
        crc: 1,
        footer_crc: 2,
        first: 1,
        last: 1,
        published: 0,
    }
}

fn put(id: u64, version: u32) -> ManifestRecord {
    ManifestRecord {
        put: vec![entry(id, version)],
        ..ManifestRecord::default()
    }
}

fn open(dir: &Path) -> Result<StoreManifest, Error> {
    StoreManifest::read(dir, Uuid::nil())?.begin()
}

fn ids(catalog: &StoreManifest) -> Vec<(u64, u32)> {
    catalog.state().files().map(|file| (file.id, file.version)).collect()
}

fn newest(dir: &Path, prefix: &str) -> PathBuf {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let of_kind = names.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix));
    of_kind.max().unwrap()
}

#[test]
fn what_was_committed_is_there_after_any_number_of_openings() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = open(dir.path()).unwrap();
    catalog.commit(put(1, 1)).unwrap();
    catalog.commit(put(2, 1)).unwrap();
    catalog.commit(put(1, 2)).unwrap();
    catalog
        .commit(ManifestRecord {
            remove: vec![2],
            low_water: 9,
            through: vec![(entry(1, 1).place(), 8), (entry(1, 1).place(), 12)],
            ..ManifestRecord::default()
        })
        .unwrap();
    for _ in 0..3 {
        drop(catalog);
        catalog = open(dir.path()).unwrap();
        assert_eq!(ids(&catalog), [(1, 2)]);
        assert_eq!(
            (catalog.state().low_water, catalog.state().through(entry(1, 1).place())),
            (9, 12)
        );
        assert_eq!(catalog.state().file(1), Some(&entry(1, 2)));
    }
    assert_eq!(catalog.state().epoch, 4);
    let (id, number) = catalog.allocate(entry(1, 1).place());
    assert_eq!((id, number), (3, 3), "numbers of removed files are not given out again");
}

#[test]
fn a_long_log_is_replaced_by_a_checkpoint_and_old_generations_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = open(dir.path()).unwrap();
    let many = |round: u32| ManifestRecord {
        put: (1..=2000).map(|id| entry(id, round)).collect(),
        ..ManifestRecord::default()
    };
    (1..=12).for_each(|round| catalog.commit(many(round)).unwrap());
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    assert!(files <= 4, "{files} files");
    drop(catalog);
    let catalog = open(dir.path()).unwrap();
    assert_eq!(ids(&catalog).len(), 2000);
    assert!(ids(&catalog).iter().all(|(_, version)| *version == 12));
}

#[test]
fn an_unreadable_checkpoint_is_replaced_by_the_one_before_and_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = open(dir.path()).unwrap();
    catalog.commit(put(1, 1)).unwrap();
    drop(catalog);
    let mut catalog = open(dir.path()).unwrap();
    catalog.commit(put(2, 1)).unwrap();
    drop(catalog);
    let checkpoint = newest(dir.path(), "checkpoint_");
    let mut bytes = std::fs::read(&checkpoint).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&checkpoint, bytes).unwrap();
    assert_eq!(ids(&open(dir.path()).unwrap()), [(1, 1), (2, 1)]);
}

#[test]
fn a_cut_at_any_byte_of_the_last_record_keeps_the_records_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = open(dir.path()).unwrap();
    catalog.commit(put(1, 1)).unwrap();
    let log = newest(dir.path(), "catalogue_");
    let kept = std::fs::read(&log).unwrap().len();
    catalog.commit(put(2, 1)).unwrap();
    let whole = std::fs::read(&log).unwrap();
    let record = whole.len() - 16;
    for cut in kept..whole.len() {
        std::fs::write(&log, &whole[..cut]).unwrap();
        let found = StoreManifest::read(dir.path(), Uuid::nil()).unwrap();
        let (files, end) = if cut < record { (1, kept) } else { (2, record) };
        assert_eq!(found.state.files().count(), files, "cut at {cut}");
        assert_eq!(found.torn, (cut - end) as u64);
        // What a power cut leaves of pages that were not written: zeros up to the length.
        let mut zeros = whole[..cut].to_vec();
        zeros.resize(whole.len(), 0);
        // The record may end with zeros itself.
        let files = if zeros[..record] == whole[..record] { 2 } else { files };
        std::fs::write(&log, zeros).unwrap();
        let found = StoreManifest::read(dir.path(), Uuid::nil()).unwrap();
        assert_eq!(found.state.files().count(), files, "zeros from {cut}");
    }
}

#[test]
fn a_flipped_bit_is_damage_and_never_a_shorter_catalogue() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = open(dir.path()).unwrap();
    let log = newest(dir.path(), "catalogue_");
    (1..=3).for_each(|id| catalog.commit(put(id, 1)).unwrap());
    let whole = std::fs::read(&log).unwrap();
    let mut harmless = 0;
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            std::fs::write(&log, bytes).unwrap();
            match StoreManifest::read(dir.path(), Uuid::nil()) {
                Err(Error::Damaged { path, .. }) => assert_eq!(path, log),
                // A mark: every record is there without it.
                found => {
                    assert_eq!(found.unwrap().state.files().count(), 3, "bit {bit} of byte {at}");
                    harmless += 1;
                }
            }
        }
    }
    assert_eq!(harmless, 3 * 16 * 8, "the bits of three marks");
}

#[test]
fn a_last_record_of_zeros_behind_which_a_mark_stands_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = open(dir.path()).unwrap();
    let log = newest(dir.path(), "catalogue_");
    catalog.commit(put(1, 1)).unwrap();
    let start = std::fs::read(&log).unwrap().len();
    catalog.commit(put(2, 1)).unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    let end = bytes.len() - 16;
    bytes[start..end].fill(0);
    std::fs::write(&log, bytes).unwrap();
    let read = StoreManifest::read(dir.path(), Uuid::nil());
    assert!(matches!(read, Err(Error::Damaged { .. })));
}

#[test]
fn a_lost_mark_between_two_whole_records_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = open(dir.path()).unwrap();
    let log = newest(dir.path(), "catalogue_");
    catalog.commit(put(1, 1)).unwrap();
    let end = std::fs::read(&log).unwrap().len();
    catalog.commit(put(2, 1)).unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[end - 16..end].fill(0);
    std::fs::write(&log, bytes).unwrap();
    assert_eq!(ids(&open(dir.path()).unwrap()), [(1, 1), (2, 1)]);
}

#[test]
fn a_half_written_record_before_a_new_log_that_never_came_to_be_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = open(dir.path()).unwrap();
    catalog.commit(put(1, 1)).unwrap();
    let log = newest(dir.path(), "catalogue_");
    // The disk is full: half a record, and the log that was to replace this one without its checkpoint.
    let mut bytes = std::fs::read(&log).unwrap();
    bytes.extend_from_slice(&[100, 0, 0, 0, 1, 2, 3]);
    std::fs::write(&log, bytes).unwrap();
    let faults = FaultInjector::below(dir.path());
    faults.fail(FsOperation::Create, "checkpoint_", 1, libc::ENOSPC);
    catalog.broken = true;
    assert!(matches!(catalog.commit(put(2, 1)), Err(Error::Io { .. })));
    assert_ne!(newest(dir.path(), "catalogue_"), log);
    assert_eq!(ids(&open(dir.path()).unwrap()), [(1, 1)]);
}

#[test]
fn a_record_counts_only_once_its_sync_has_returned() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = open(dir.path()).unwrap();
    let faults = FaultInjector::below(dir.path());
    faults.fail(FsOperation::SyncFile, "catalogue_", 1, libc::EIO);
    assert!(catalog.commit(put(1, 1)).is_err());
    let log = newest(dir.path(), "catalogue_");
    let bytes = std::fs::read(&log).unwrap();
    assert!(
        (0..bytes.len()).all(|at| bytes[at..].first_chunk::<4>() != Some(&[0xff; 4])),
        "no mark"
    );
    catalog.commit(put(1, 1)).unwrap();
    assert_ne!(
        newest(dir.path(), "catalogue_"),
        log,
        "the failed log is not written again"
    );
    assert_eq!(ids(&open(dir.path()).unwrap()), [(1, 1)]);
}

#[test]
fn another_stores_catalogue_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).unwrap();
    assert!(matches!(
        StoreManifest::read(dir.path(), Uuid::max()),
        Err(Error::Damaged { .. })
    ));
}

#[test]
fn after_a_failed_write_the_next_commit_begins_a_new_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = open(dir.path()).unwrap();
    catalog.commit(put(1, 1)).unwrap();
    let torn = newest(dir.path(), "catalogue_");
    catalog.log.read_only();
    assert!(catalog.commit(put(2, 1)).is_err());
    assert_eq!(ids(&catalog), [(1, 1)]);
    catalog.commit(put(3, 1)).unwrap();
    assert_ne!(newest(dir.path(), "catalogue_"), torn);
    drop(catalog);
    assert_eq!(ids(&open(dir.path()).unwrap()), [(1, 1), (3, 1)]);
}

#[test]
fn a_store_without_its_id_is_not_taken_for_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let id = store_id(dir.path(), Uuid::max).unwrap();
    assert_eq!(store_id(dir.path(), Uuid::nil).unwrap(), id);
    StoreManifest::read(dir.path(), id).unwrap().begin().unwrap();
    std::fs::remove_file(dir.path().join("store.id")).unwrap();
    assert!(matches!(store_id(dir.path(), Uuid::nil), Err(Error::Damaged { .. })));
}

#[test]
fn a_store_id_that_is_no_text_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    store_id(dir.path(), Uuid::max).unwrap();
    let path = dir.path().join("store.id");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[3] ^= 0x80;
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(store_id(dir.path(), Uuid::nil), Err(Error::Damaged { .. })));
}

#[test]
fn files_of_a_later_version_are_refused_by_name_and_version() {
    for (prefix, version) in [("catalogue_", 1), ("checkpoint_", 1)] {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).unwrap().commit(put(1, 1)).unwrap();
        let path = newest(dir.path(), prefix);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[7] = b'9';
        // Its checksums are not ours either.
        bytes[16] ^= 1;
        bytes[17] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        match open(dir.path()) {
            Err(Error::Newer {
                path: named,
                found,
                known,
            }) => assert_eq!((named, found, known), (path, 9, version)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_checkpoints_state_reads_back_and_anything_shorter_or_that_claims_more_is_refused() {
    let mut state = ManifestState::new(Uuid::max());
    for id in 1..=3 {
        state.put(FileEntry {
            prefix: (id == 3).then(|| "other-name".parse().unwrap()),
            form: crate::datafile::FileFormat::JsonZstd,
            sealed: id == 2,
            runs: vec![
                crate::datafile::SortedRun {
                    at: 4,
                    rows: u64::MAX,
                    min_ts: Timestamp::from_micros(-1),
                    max_ts: Timestamp::from_micros(7),
                };
                usize::try_from(id).unwrap() - 1
            ],
            ..entry(id, u32::MAX)
        });
    }
    state.mark_number_used(entry(1, 1).place(), 9, 4);
    let bytes = state.encode().unwrap();
    let mut again = ManifestState::decode(&bytes).unwrap();
    assert!(again.files().eq(state.files()));
    assert_eq!(again.file(3), state.file(3));
    assert_eq!(again.allocate(entry(1, 1).place()), (5, 10));
    for end in 0..bytes.len() {
        assert!(ManifestState::decode(&bytes[..end]).is_err(), "{end} bytes");
    }
    // Counts of more than there can be take no memory.
    for at in 0..bytes.len() {
        let mut claim = bytes[..at].to_vec();
        claim.extend([0xff; 9]);
        claim.push(1);
        let _ = ManifestState::decode(&claim);
    }
}
