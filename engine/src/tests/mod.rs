//! The engine as its users see it: append, view, flush, close, and ends without warning.

#![allow(clippy::unwrap_used, clippy::panic, clippy::large_futures, reason = "tests")]

mod admission;
mod append_withdrawal;
mod appends;
mod fault_injection;
mod first_open;
mod fuzzing;
mod group_commit;
mod index;
mod integrity_check;
mod late_rows;
mod live_index;
mod live_tail;
mod log_follower;
mod message_tree;
mod minute_rollup;
mod model_based;
mod ndjson;
mod open_damage;
mod pending_delete;
mod pinned_files;
mod published_files;
mod published_objects;
mod rebuild;
mod remote_check;
mod repair;
mod replay;
mod restarts;
mod retention;
mod scrubber;
mod sealing;
mod side_objects;
mod snapshots;
mod spec_files;
mod spec_histories;
mod tombstones;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use ::model::batch::row_json;
use ::model::telemetry_codec::{BatchId, encode_arrow};
use ::model::{Attributes, ByteSize, Clock, EntityId, Entropy, Level, LogRecord, Table, TelemetryRecord, Timestamp};
use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use serde_json::{Map, Value};

use crate::{
    AppendBatch, AppendOutcome, BatchOrigin, BusPosition, DataFileHandle, Engine, EngineStats, Error, ReadView,
    Settings,
};

const HOUR: i64 = 3_600_000_000;

/// A store in a folder of its own, with a clock that stands still.
struct Bench {
    dir: tempfile::TempDir,
    settings: Settings,
    now: Arc<AtomicI64>,
}

impl Bench {
    /// Ticks come only when they are asked for; nothing is indexed.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(dir.path().join("store"));
        settings.flush_interval = Duration::from_secs(3_600);
        settings.wal_max = ByteSize::mib(16);
        settings.hot_max = ByteSize::mib(16);
        settings.index = false;
        settings.reader_rest = Duration::ZERO;
        let noon: Timestamp = "2026-11-21T12:30:00Z".parse().unwrap();
        Self {
            dir,
            settings,
            now: Arc::new(AtomicI64::new(noon.micros())),
        }
    }

    fn ticks_every(&mut self, interval: Duration) {
        self.settings.flush_interval = interval;
    }

    fn now(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }

    fn advance(&self, by: Duration) {
        self.now
            .fetch_add(i64::try_from(by.as_micros()).unwrap(), Ordering::Relaxed);
    }

    async fn try_open(&self) -> Result<Arc<Engine>, Error> {
        let now = Arc::clone(&self.now);
        let clock = Clock::new(move || Timestamp::from_micros(now.load(Ordering::Relaxed)));
        Engine::open(self.settings.clone(), clock, Entropy::new(|bytes| bytes.fill(7))).await
    }

    async fn open(&self) -> Arc<Engine> {
        self.try_open().await.unwrap()
    }

    fn tree(&self) -> Vec<PathBuf> {
        files_below(&self.settings.data_dir)
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            files.extend(files_below(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}

/// Copies a store as a power cut at this moment might leave it.
fn copy_tree(from: &Path, to: &Path) {
    for file in files_below(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(file, target).unwrap();
    }
}

/// Log records named `name`, at these times.
fn rows(name: &str, times: &[i64]) -> RecordBatch {
    let rows: Vec<_> = times
        .iter()
        .enumerate()
        .map(|(n, ts)| LogRecord {
            ts: Timestamp::from_micros(*ts),
            entity_id: EntityId::for_name("rack-a"),
            entity_name: "rack-a".into(),
            flux_id: None,
            level: Level::Info,
            message: format!("{name}/{n}"),
            attributes: Attributes::new().with("n", n as u64),
        })
        .collect();
    LogRecord::to_batch(&rows).unwrap()
}

fn batch(name: &str, times: &[i64], origin: BatchOrigin) -> AppendBatch {
    let rows = rows(name, times);
    AppendBatch {
        table: Table::Logs,
        origin,
        payload: encode_arrow(std::slice::from_ref(&rows)).unwrap().into(),
        rows: vec![rows],
    }
}

fn from_producer(seq: u64) -> BatchOrigin {
    BatchOrigin {
        producer: Some(BatchId {
            entity: EntityId::for_name("rack-a"),
            boot_epoch: 1,
            seq,
        }),
        ..BatchOrigin::default()
    }
}

fn from_bus(seq: u64) -> BatchOrigin {
    BatchOrigin {
        bus: Some(BusPosition {
            stream: "flux-telemetry".to_owned(),
            incarnation: 1,
            seq,
            identity: seq as i64,
        }),
        ..BatchOrigin::default()
    }
}

fn floor(engine: &Engine) -> u64 {
    engine.floor(EntityId::for_name("rack-a"), 1)
}

/// A file's rows, read as a query would.
fn read(segment: &DataFileHandle) -> Vec<RecordBatch> {
    if !segment.is_parquet() {
        return segment.lines().unwrap().map(Result::unwrap).collect();
    }
    let metadata = ArrowReaderMetadata::try_new(segment.metadata().unwrap(), ArrowReaderOptions::new()).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(segment.open().unwrap(), metadata);
    let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows as u64, segment.rows);
    batches
}

/// Every row of a view, as JSON, ordered by message.
fn all_rows(view: &ReadView) -> Vec<Map<String, Value>> {
    let hot = view.hot(Table::Logs).iter().map(|hot| hot.batch.clone());
    let cold = view.files(Table::Logs).iter().flat_map(|segment| read(segment));
    let mut all = Vec::new();
    for batch in hot.chain(cold) {
        all.extend((0..batch.num_rows()).map(|row| row_json(&batch, row)));
    }
    all.sort_by(|a, b| a["message"].as_str().cmp(&b["message"].as_str()));
    all
}

/// The messages of a view, ordered.
fn messages(view: &ReadView) -> Vec<String> {
    all_rows(view)
        .iter()
        .map(|row| row["message"].as_str().unwrap().to_owned())
        .collect()
}

/// Waits for a condition of the engine; fails with its name when it does not come.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn stored(rows: usize) -> AppendOutcome {
    AppendOutcome::Stored { rows }
}

fn stats(engine: &Engine) -> EngineStats {
    engine.stats()
}
