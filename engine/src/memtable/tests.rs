//! Rows in memory.
#![allow(clippy::unwrap_used, reason = "tests")]

use model::batch::{row_json, time_range};
use model::{Attributes, EntityId, Level, LogRecord, TelemetryRecord, Timestamp};

use super::*;
use crate::PartitionBy;

fn insert(hot: &mut MemtableSet, lsn: u64, rows: usize) {
    let rows: Vec<_> = (0..rows)
        .map(|n| LogRecord {
            ts: Timestamp::from_micros(n as i64),
            entity_id: EntityId::for_name("rack-a"),
            entity_name: "rack-a".into(),
            flux_id: None,
            level: Level::Info,
            message: format!("{lsn}-{n}"),
            attributes: Attributes::new(),
        })
        .collect();
    let batch = LogRecord::to_batch(&rows).unwrap();
    let (min_ts, max_ts) = time_range(&batch).unwrap();
    hot.insert(
        place(),
        HotBatch {
            batch,
            min_ts,
            max_ts,
            spec: None,
            counts: OnceLock::new(),
        },
        100,
        lsn,
        &BatchOrigin::default(),
    );
    hot.join(place());
}

fn place() -> PartitionKey {
    (
        Table::Logs,
        TimePartition::of(Timestamp::from_micros(0), PartitionBy::Hour),
    )
}

fn messages(hot: &MemtableSet) -> Vec<String> {
    let mut all = Vec::new();
    for chunk in hot.list(Table::Logs) {
        for row in 0..chunk.batch.num_rows() {
            all.push(row_json(&chunk.batch, row)["message"].as_str().unwrap().to_owned());
        }
    }
    all
}

#[test]
fn a_thousand_small_batches_are_few_chunks_in_their_order() {
    let mut hot = MemtableSet::default();
    (1..=1000).for_each(|lsn| insert(&mut hot, lsn, 3));
    assert!(
        hot.list(Table::Logs).len() <= 3 * FAN,
        "{}",
        hot.list(Table::Logs).len()
    );
    let wanted: Vec<_> = (1..=1000)
        .flat_map(|lsn| (0..3).map(move |n| format!("{lsn}-{n}")))
        .collect();
    assert_eq!(messages(&hot), wanted);
    assert_eq!((hot.rows(), hot.weight()), (3000, 100_000));
}

#[test]
fn rows_taken_for_a_flush_do_not_change() {
    let mut hot = MemtableSet::default();
    insert(&mut hot, 1, 2);
    insert(&mut hot, 2, 2);
    let frozen = hot.freeze(place(), 2, 1000, 1 << 30).unwrap();
    assert_eq!((frozen.first, frozen.through, frozen.more), (1, 2, false));
    insert(&mut hot, 3, 2);
    assert_eq!((hot.rows(), hot.first_fresh_lsn()), (6, Some(3)));
    hot.unfreeze(place());
    assert_eq!((messages(&hot).len(), hot.first_fresh_lsn()), (6, Some(1)));
    let frozen = hot.freeze(place(), 3, 1000, 1 << 30).unwrap();
    assert_eq!(frozen.rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 6);
    insert(&mut hot, 4, 1);
    assert_eq!(hot.drop_flushed(place()).0, 300);
    assert_eq!(
        (messages(&hot), hot.first_fresh_lsn()),
        (vec!["4-0".to_owned()], Some(4))
    );
    hot.freeze(place(), 9, 1000, 1 << 30).unwrap();
    hot.drop_flushed(place());
    assert!(!hot.has(place()) && hot.flush_candidates().is_empty() && hot.weight() == 0);
}

#[test]
fn a_bounded_freeze_is_complete_through_the_lsn_before_the_rest() {
    let mut hot = MemtableSet::default();
    for (lsn, rows) in [(1, 100), (4, 40), (9, 10)] {
        insert(&mut hot, lsn, rows);
    }
    let frozen = hot.freeze(place(), 12, 110, 1 << 30).unwrap();
    assert_eq!((frozen.first, frozen.through, frozen.more), (1, 3, true));
    hot.drop_flushed(place());
    let frozen = hot.freeze(place(), 12, 1, 1).unwrap();
    assert_eq!((frozen.first, frozen.through, frozen.more), (4, 8, true));
}

#[test]
fn a_freeze_is_complete_only_through_what_was_inserted() {
    let mut hot = MemtableSet::default();
    for lsn in 1..=20 {
        insert(&mut hot, lsn, 1);
    }
    hot.join(place());
    for (stored, wanted) in [(u64::MAX, 40), (30, 30), (20, 20), (5, 20)] {
        let mut frozen = hot.freeze(place(), 40, 1000, 1 << 30).unwrap();
        frozen.limit_through(stored);
        assert_eq!((frozen.first, frozen.through), (1, wanted), "{stored}");
        hot.unfreeze(place());
    }
}
