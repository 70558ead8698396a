//! Counts of a store's segments: they are those of its rows, and come to sidecars that were made without them.

use std::collections::BTreeMap;

use super::index::{finds_everything, sealed, segments, sidecars};
use super::*;
use crate::{MINUTE, RollupDimension};

type Cells = BTreeMap<(String, Option<String>, i64), u64>;

/// What is counted of a segment, and what its rows are; `None` if nothing is.
fn counted(segment: &DataFileHandle, by: RollupDimension) -> Option<(Cells, Cells)> {
    let (counts, _) = segment.index().unwrap().counts(by)?;
    let (mut said, mut there) = (Cells::new(), Cells::new());
    for group in counts.groups() {
        for (minute, rows) in group.minutes() {
            let key = (group.level.to_owned(), group.entity.map(str::to_owned), minute);
            said.insert(key, rows);
        }
    }
    for batch in read(segment) {
        for row in (0..batch.num_rows()).map(|row| row_json(&batch, row)) {
            let ts: Timestamp = row["ts"].as_str().unwrap().parse().unwrap();
            let text = |name: &str| row[name].as_str().unwrap().to_owned();
            let entity = (by == RollupDimension::LevelAndEntity).then(|| text("entity_name"));
            *there
                .entry((text("level"), entity, ts.micros().div_euclid(MINUTE)))
                .or_default() += 1;
        }
    }
    Some((said, there))
}

/// Of logs all rows are counted, of other tables none.
fn counts_everything(engine: &Engine) {
    for segment in segments(engine) {
        for by in [RollupDimension::Level, RollupDimension::LevelAndEntity] {
            let counted = counted(&segment, by);
            assert_eq!(counted.is_some(), segment.table == Table::Logs);
            counted.into_iter().for_each(|(said, there)| assert_eq!(said, there));
        }
    }
}

/// Random levels, entities and times of some hours, late ones among them.
async fn append_some(bench: &Bench, engine: &Engine, seed: i64) {
    let rows: Vec<LogRecord> = (0..400)
        .map(|n| {
            let mixed = (n + 1) * (seed * 7_919 + 104_729) % 65_537;
            let entity = format!("räck {}", mixed % 7);
            LogRecord {
                ts: Timestamp::from_micros(bench.now() - HOUR - mixed * 150_001),
                entity_id: EntityId::for_name(&entity),
                entity_name: entity,
                flux_id: None,
                level: Level::ALL[usize::try_from(mixed).unwrap() % Level::ALL.len()],
                message: String::new(),
                attributes: Attributes::new(),
            }
        })
        .collect();
    let rows = LogRecord::to_batch(&rows).unwrap();
    let batch = AppendBatch {
        table: Table::Logs,
        origin: BatchOrigin::default(),
        payload: encode_arrow(std::slice::from_ref(&rows)).unwrap().into(),
        rows: vec![rows],
    };
    engine.append(batch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_of_sealed_logs_is_counted_in_its_minute_with_its_level_and_entity() {
    let mut bench = Bench::new();
    let engine = sealed(&mut bench, 2).await;
    for seed in 1..4 {
        append_some(&bench, &engine, seed).await;
        engine.flush().await.unwrap();
    }
    until("all files are sealed", || {
        segments(&engine).iter().all(|segment| segment.sealed)
    })
    .await;
    engine.index_all().await.unwrap();
    counts_everything(&engine);
}

/// Makes a sidecar one of another form.
pub(super) fn make_old(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[7] = b'0';
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sidecars_of_another_form_are_made_anew() {
    let mut bench = Bench::new();
    let engine = sealed(&mut bench, 3).await;
    engine.index_all().await.unwrap();
    engine.close().await.unwrap();
    drop(engine);
    let old = sidecars(&bench);
    old.iter().for_each(|path| make_old(path));
    let engine = bench.open().await;
    engine.index_all().await.unwrap();
    let stats = stats(&engine);
    assert_eq!((stats.index_builds, stats.index_failures), (old.len() as u64, 0));
    finds_everything(&engine);
    counts_everything(&engine);
}
