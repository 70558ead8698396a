//! Sections of counts alone: what was counted comes out, and nothing else is believed.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::Path;

use model::{Attributes, EntityId, Level, LogRecord, Table, TelemetryRecord, Timestamp};
use parquet::arrow::ArrowWriter;
use proptest::prelude::*;
use uuid::Uuid;

use super::super::path_of;
use super::super::sidecar_format::{EncodedSection, IndexedFile, encode};
use super::rollup_builder::{FileRollupBuilder, RollupSectionBuilder};
use super::*;
use crate::Error;
use crate::datafile::{FilePrefix, read_metadata};
use crate::index::IndexQueue;

/// Minutes, levels and entities of rows.
type Rows = Vec<(i64, u8, u8)>;

/// Rows by level, entity and minute.
type Cells = BTreeMap<(String, Option<String>, i64), u64>;

fn level(n: u8) -> String {
    format!("level {n}")
}

fn entity(n: u8) -> String {
    "ö".repeat(usize::from(n))
}

fn section(rows: &Rows, by: RollupDimension) -> Option<Vec<u8>> {
    let mut builder = RollupSectionBuilder::new(64 << 10);
    for (minute, of, from) in rows {
        let entity = entity(*from);
        let entity = (by == RollupDimension::LevelAndEntity).then_some(entity.as_str());
        builder.add_row(*minute, &level(*of), entity)?;
    }
    builder.finish(rows.len() as u64)
}

fn expected(rows: &Rows, by: RollupDimension) -> Cells {
    let mut cells = Cells::new();
    for (minute, of, from) in rows {
        let entity = (by == RollupDimension::LevelAndEntity).then(|| entity(*from));
        *cells.entry((level(*of), entity, *minute)).or_default() += 1;
    }
    cells
}

fn cells(counts: &MinuteRollup) -> Cells {
    let mut cells = Cells::new();
    for group in counts.groups() {
        let minutes: Vec<_> = group.minutes().collect();
        assert!(minutes.is_sorted() && group.first == minutes[0].0 && group.last == minutes[minutes.len() - 1].0);
        assert_eq!(group.rows, minutes.iter().map(|(_, rows)| rows).sum::<u64>());
        for (minute, rows) in minutes {
            let key = (group.level.to_owned(), group.entity.map(str::to_owned), minute);
            assert_eq!(cells.insert(key, rows), None);
        }
    }
    cells
}

fn owner(rows: usize) -> IndexedFile {
    IndexedFile {
        store: Uuid::from_u128(7),
        table: Table::Logs,
        segment: 12,
        version: 3,
        size: 1 << 20,
        crc: 0xfeed,
        rows: rows as u64,
    }
}

fn sidecar(rows: &Rows) -> Vec<u8> {
    let part = |by: RollupDimension| EncodedSection {
        kind: by.kind(),
        form: 0,
        bytes: section(rows, by).unwrap(),
        is_checked: false,
    };
    encode(&owner(rows.len()), 2048, 1, &RollupDimension::ALL.map(part))
}

fn open(folder: &Path, rows: usize, bytes: &[u8], memory: usize) -> Result<SidecarIndex, Error> {
    let path = path_of(folder, Table::Logs, (12, 3));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    SidecarIndex::open(&folder.into(), &owner(rows), &Arc::new(IndexQueue::new(2 * memory)))
}

fn some() -> Rows {
    let n = |n: i64| u8::try_from(n).unwrap();
    (0..3_000)
        .rev()
        .map(|at| (29_000_000 + at * at / 40_000, n(at * 7 % 5), n(at * 11 % 6)))
        .collect()
}

#[test]
fn a_small_section_is_read_once() {
    let (rows, folder) = (some(), tempfile::tempdir().unwrap());
    for (memory, again) in [(1 << 20, false), (0, true)] {
        let index = open(folder.path(), rows.len(), &sidecar(&rows), memory).unwrap();
        for by in RollupDimension::ALL {
            let (counts, bytes) = index.counts(by).unwrap();
            assert_eq!(bytes, section(&rows, by).unwrap().len() as u64);
            assert_eq!(cells(&counts), expected(&rows, by));
            let (counts, bytes) = index.counts(by).unwrap();
            assert_eq!((bytes > 0, cells(&counts)), (again, expected(&rows, by)));
        }
    }
}

#[test]
fn no_flipped_byte_and_no_cut_changes_a_count() {
    let (rows, folder) = (some(), tempfile::tempdir().unwrap());
    let whole = sidecar(&rows);
    let expected = RollupDimension::ALL.map(|by| expected(&rows, by));
    let holds = |bytes: &[u8], what: &str| {
        let Ok(index) = open(folder.path(), rows.len(), bytes, 0) else {
            return 0;
        };
        let said = RollupDimension::ALL.iter().zip(&expected).filter(|(by, expected)| {
            let counts = index.counts(**by);
            assert!(
                counts.as_ref().is_none_or(|(counts, _)| cells(counts) == **expected),
                "{what}"
            );
            counts.is_some()
        });
        said.count()
    };
    assert_eq!(holds(&whole, "whole"), 2);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        assert!(holds(&bytes, &format!("a bit of byte {at}")) < 2 || at >= 80, "{at}");
        bytes[at] = !whole[at];
        holds(&bytes, &format!("byte {at}"));
    }
    for length in (0..whole.len()).step_by(13) {
        assert!(holds(&whole[..length], &format!("{length} bytes")) < 2);
    }
}

#[test]
fn an_inconsistent_section_is_rejected_whatever_its_checksum() {
    let rows = some();
    for by in RollupDimension::ALL {
        let whole = section(&rows, by).unwrap();
        let believed = |bytes: &[u8], rows: usize| MinuteRollup::new(bytes.into(), rows as u64).is_some();
        assert!(believed(&whole, rows.len()) && !believed(&whole, rows.len() + 1));
        assert!((0..whole.len()).all(|length| !believed(&whole[..length], rows.len())));
        assert!(!believed(&[&whole[..], &[0]].concat(), rows.len()));
    }
    // No cell, a cell of a minute twice, an entity where none is.
    let start = [0; 8];
    let one = |group: &[u8]| [&start[..], &[1, 1, b'x', 0, 1], group].concat();
    let believed = |group: &[u8]| MinuteRollup::new(one(group).into(), 2).is_some();
    assert!(believed(&[0, 0, 2, 0, 0, 2, 0, 1]) && believed(&[0, 0, 2, 0, 1, 4, 0, 0, 1, 0]));
    assert!(!believed(&[0, 0, 2, 0, 0, 0]) && !believed(&[0, 0, 2, 0, 0, 4, 0, 0, 0, 0]));
    assert!(!believed(&[0, 1, 2, 0, 0, 2, 0, 1]) && !believed(&[1, 0, 2, 0, 0, 2, 0, 1]));
    assert!(!believed(&[
        0, 0, 2, 0, 0, 11, 0, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02
    ]));
}

#[test]
fn what_is_too_much_for_a_section_has_none() {
    let count = |rows: i64, entities: i64| {
        let mut builder = RollupSectionBuilder::new(4 << 10);
        let add = |at: i64| builder.add_row(at / entities, "info", Some(&format!("{:08}", at % entities)));
        (0..rows)
            .try_for_each(add)
            .and_then(|()| builder.finish(u64::try_from(rows).unwrap()))
    };
    assert!(count(1_500, 1).is_some() && count(60_000, 100).is_none() && count(5_000, 5_000).is_none());
    assert!(count(60_000, 1).is_none(), "a minute for each row");
    let mut builder = RollupSectionBuilder::new(4 << 10);
    builder.add_row(1, "info", None).unwrap();
    assert!(builder.finish(2).is_none(), "a row was missed");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_was_counted_comes_out(
        rows in prop::collection::vec((-30i64..30, 0u8..4, 0u8..5), 0..400),
        at in prop::sample::select(vec![0i64, 29_000_000, i64::MAX / MINUTE - 30, i64::MIN / MINUTE + 31]),
    ) {
        let rows: Rows = rows.into_iter().map(|(minute, level, entity)| (at + minute, level, entity)).collect();
        for by in RollupDimension::ALL {
            let counts = MinuteRollup::new(section(&rows, by).unwrap().into(), rows.len() as u64).unwrap();
            prop_assert_eq!(cells(&counts), expected(&rows, by));
        }
    }

    #[test]
    fn any_bytes_are_accepted_or_rejected_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        rows in 0u64..10,
    ) {
        if let Some(counts) = MinuteRollup::new(bytes.into(), rows) {
            prop_assert_eq!(cells(&counts).into_values().sum::<u64>(), rows);
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_any_more_is_not_counted() {
    let rows: Vec<LogRecord> = (0..3_000)
        .map(|at| LogRecord {
            ts: Timestamp::from_micros(at),
            entity_id: EntityId::for_name("rack"),
            entity_name: format!("rack-{}", at % 7),
            flux_id: None,
            level: Level::Info,
            message: String::new(),
            attributes: Attributes::new(),
        })
        .collect();
    let rows = LogRecord::to_batch(&rows).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = ArrowWriter::try_new(file.reopen().unwrap(), rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    let source = FilePrefix::open(file.path()).unwrap();
    let footer = Arc::new(read_metadata(&source, file.path(), false).unwrap());
    let count = || {
        let mut counting = FileRollupBuilder::of(Table::Logs, 0, &footer).unwrap();
        let mut left = 100;
        let mut go_on = || {
            left -= 1;
            left > 0
        };
        assert!(counting.take(&source, 0, &mut go_on), "it goes on for ever");
        counting.finish(3_000).len()
    };
    assert_eq!(count(), RollupDimension::ALL.len());
    file.as_file().set_len(4).unwrap();
    assert_eq!(count(), 0);
}
