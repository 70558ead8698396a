//! The catalogue's files under damage, growth and interruption.

#![allow(clippy::unwrap_used, reason = "tests")]

use model::{Table, Timestamp};

use super::*;
use crate::PartitionBy;
use crate::layout::Partition;

fn entry(id: u64, version: u32) -> FileEntry {
    FileEntry {
        id,
        version,
        table: Table::Logs,
        partition: Partition::of(Timestamp::from_micros(0), PartitionBy::Hour),
        number: u32::try_from(id).unwrap(),
        size: 100,
        rows: 10,
        min_ts: -5,
        max_ts: 5,
        sealed: false,
        crc: 1,
        footer_crc: 2,
        first: 1,
        published: 0,
    }
}

fn put(id: u64, version: u32) -> Record {
    Record {
        put: vec![entry(id, version)],
        ..Record::default()
    }
}

fn open(dir: &Path) -> Result<Catalog, Error> {
    Catalog::read(dir, Uuid::nil())?.begin()
}

fn ids(catalog: &Catalog) -> Vec<(u64, u32)> {
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
        .commit(Record {
            remove: vec![2],
            low_water: 9,
            through: vec![(entry(1, 1).place(), 8), (entry(1, 1).place(), 12)],
            ..Record::default()
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
    let many = |round: u32| Record {
        put: (1..=2000).map(|id| entry(id, round)).collect(),
        ..Record::default()
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
    for cut in kept..whole.len() {
        std::fs::write(&log, &whole[..cut]).unwrap();
        let found = Catalog::read(dir.path(), Uuid::nil()).unwrap();
        assert_eq!(found.state.files().count(), 1, "cut at {cut}");
        assert_eq!(found.torn, (cut - kept) as u64);
    }
}

#[test]
fn a_flipped_bit_before_the_last_record_is_damage_and_never_a_shorter_catalogue() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = open(dir.path()).unwrap();
    let log = newest(dir.path(), "catalogue_");
    catalog.commit(put(1, 1)).unwrap();
    let last = std::fs::read(&log).unwrap().len();
    catalog.commit(put(2, 1)).unwrap();
    let whole = std::fs::read(&log).unwrap();
    for at in 0..last {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&log, bytes).unwrap();
        let read = Catalog::read(dir.path(), Uuid::nil());
        assert!(matches!(read, Err(Error::Damaged { .. })), "byte {at}");
    }
}

#[test]
fn another_stores_catalogue_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).unwrap();
    assert!(matches!(
        Catalog::read(dir.path(), Uuid::max()),
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
    Catalog::read(dir.path(), id).unwrap().begin().unwrap();
    std::fs::remove_file(dir.path().join("store.id")).unwrap();
    assert!(matches!(store_id(dir.path(), Uuid::nil), Err(Error::Damaged { .. })));
}
