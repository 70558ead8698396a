//! The room's promises, tried against a real engine whose rows lie in sealed files, open files and memory at once.

#![allow(clippy::unwrap_used, clippy::panic, clippy::large_futures, reason = "tests")]

mod aggregates;
mod bounds;
mod cancellation;
mod concurrent_changes;
mod contexts;
mod counts;
mod damage;
mod exemplars;
mod flux;
mod formats;
mod histograms;
mod hostile;
mod hostile_generator;
mod hostile_sql;
mod indexed;
mod indexed_sql;
mod lists;
mod live_text_index;
mod messages;
mod minute_rollups;
mod paging;
mod point_rollups;
mod random_world;
mod rates;
mod rows;
mod scan;
mod scan_filters;
mod scoped_statements;
mod scoped_world;
mod scopes;
mod series_walks;
mod services;
mod shortcuts;
mod snapshots;
mod specs;
mod sql;
mod statement_bounds;
mod summaries;
mod tail;
mod text_index;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{AppendBatch, BatchOrigin, CompressionCodec, Engine, Settings, StorageFormat};
use model::telemetry_codec::encode_arrow;
use model::{Clock, Entropy, TelemetryRecord, Timestamp, TraceId};

use crate::{Error, JsonPage, QueryEngine, QueryLimits};

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;

/// Noon and a half, the time at which all tests happen.
fn now() -> Timestamp {
    "2026-11-21T12:30:00Z".parse().unwrap()
}

/// A store in a folder of its own, and a querier over it. Rows become files only when told to.
struct Bench {
    engine: Arc<Engine>,
    querier: QueryEngine,
    limits: QueryLimits,
    dir: tempfile::TempDir,
    /// Each opening of the store takes the next of them for new files.
    forms: &'static [(StorageFormat, CompressionCodec)],
    openings: usize,
    indexing: Indexing,
}

/// Whether sealed files are indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Indexing {
    No,
    /// Each lookup reads them.
    OnDisk,
    /// They are kept in memory once they were read.
    InMemory,
}

/// The store with ticks as often as `tick`; past files are sealed at a tick.
async fn open_at(dir: &tempfile::TempDir, tick: Duration, clock: Clock) -> Arc<Engine> {
    open_as(
        dir,
        tick,
        clock,
        (StorageFormat::Parquet, CompressionCodec::Zstd),
        Indexing::OnDisk,
    )
    .await
}

async fn open_as(
    dir: &tempfile::TempDir,
    tick: Duration,
    clock: Clock,
    (format, compression): (StorageFormat, CompressionCodec),
    indexing: Indexing,
) -> Arc<Engine> {
    let mut settings = Settings::new(dir.path().join("store"));
    settings.format = format;
    settings.compression = compression;
    settings.flush_interval = tick;
    settings.seal_grace = Duration::ZERO;
    settings.index = indexing != Indexing::No;
    if indexing == Indexing::OnDisk {
        settings.index_memory = model::ByteSize::bytes(0);
    }
    let entropy = Entropy::new(|bytes| bytes.fill(7));
    Engine::open(settings, clock, entropy).await.unwrap()
}

impl Bench {
    async fn new() -> Self {
        Self::with(QueryLimits::new(model::ByteSize::mib(256), Duration::from_secs(60), 4)).await
    }

    /// A store whose files are of all forms.
    async fn of_lines() -> Self {
        let forms = &[
            (StorageFormat::Json, CompressionCodec::Zstd),
            (StorageFormat::Json, CompressionCodec::None),
            (StorageFormat::Parquet, CompressionCodec::Zstd),
            (StorageFormat::Json, CompressionCodec::Snappy),
        ];
        let limits = QueryLimits::new(model::ByteSize::mib(256), Duration::from_secs(60), 4);
        Self::made_of(limits, forms).await
    }

    async fn with(limits: QueryLimits) -> Self {
        Self::made_of(limits, &[(StorageFormat::Parquet, CompressionCodec::Zstd)]).await
    }

    async fn made_of(limits: QueryLimits, forms: &'static [(StorageFormat, CompressionCodec)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // As the Mixer has it: how many batches a plan holds at once depends on how its threads take turns.
        let spill = limits.spill_dir.unwrap_or_else(|| dir.path().join("spill"));
        let limits = QueryLimits {
            spill_dir: Some(spill),
            ..limits
        };
        let engine = open_as(
            &dir,
            Duration::from_secs(3_600),
            Clock::new(now),
            forms[0],
            Indexing::OnDisk,
        )
        .await;
        let querier = QueryEngine::new(Arc::clone(&engine), limits.clone(), Clock::new(now)).unwrap();
        Self {
            engine,
            querier,
            limits,
            dir,
            forms,
            openings: 1,
            indexing: Indexing::OnDisk,
        }
    }

    async fn append<R: TelemetryRecord>(&self, rows: &[R]) {
        append(&self.engine, rows).await;
    }

    /// Publishes everything and seals what lies in past hours, by ticks of the store while nobody else has it.
    async fn seal(&mut self) {
        self.engine.close().await.unwrap();
        let parquet = (StorageFormat::Parquet, CompressionCodec::Zstd);
        let ticking = open_as(
            &self.dir,
            Duration::from_millis(20),
            Clock::new(now),
            parquet,
            self.indexing,
        )
        .await;
        let past = |ts: Timestamp| ts.micros() < now().micros() - HOUR / 2;
        let unsealed = || {
            let view = ticking.view();
            let files = model::Table::ALL.map(|table| view.files(table).to_vec());
            let open = files.iter().flatten().filter(|file| !file.sealed && past(file.max_ts));
            let hot = model::Table::ALL.map(|table| view.hot(table).len());
            open.count() + hot.iter().sum::<usize>()
        };
        until("the seal of past files", || unsealed() == 0).await;
        ticking.close().await.unwrap();
        drop(ticking);
        let form = self.forms[self.openings % self.forms.len()];
        self.openings += 1;
        self.open_again(form).await;
    }

    /// Whether sealed files are indexed from now on; of indexes nothing is kept in memory.
    async fn set_index(&mut self, index: bool) {
        self.set_indexing(if index { Indexing::OnDisk } else { Indexing::No })
            .await;
    }

    async fn set_indexing(&mut self, indexing: Indexing) {
        self.engine.close().await.unwrap();
        self.indexing = indexing;
        self.open_again(self.forms[0]).await;
    }

    async fn open_again(&mut self, form: (StorageFormat, CompressionCodec)) {
        self.engine = open_as(
            &self.dir,
            Duration::from_secs(3_600),
            Clock::new(now),
            form,
            self.indexing,
        )
        .await;
        self.querier = QueryEngine::new(Arc::clone(&self.engine), self.limits.clone(), Clock::new(now)).unwrap();
    }

    async fn publish(&self) {
        self.engine.flush().await.unwrap();
    }

    async fn close(self) {
        self.querier.close().await;
        self.engine.close().await.unwrap();
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().to_owned()
    }
}

async fn append<R: TelemetryRecord>(engine: &Engine, rows: &[R]) {
    if rows.is_empty() {
        return;
    }
    append_batch(engine, R::TABLE, R::to_batch(rows).unwrap()).await;
}

async fn append_batch(engine: &Engine, table: model::Table, batch: arrow_array::RecordBatch) {
    let payload = encode_arrow(std::slice::from_ref(&batch)).unwrap();
    let batch = AppendBatch {
        table,
        origin: BatchOrigin::default(),
        payload: payload.into(),
        rows: vec![batch],
    };
    engine.append(batch).await.unwrap();
}

/// Waits for something that other threads bring about.
/// The spans and the logs of a trace.
async fn spans_and_logs(querier: &QueryEngine, id: TraceId) -> Result<(JsonPage, JsonPage), Error> {
    let spans = querier.trace(id).await?;
    let logs = spans.beside.clone().map(|(_, logs)| JsonPage::from(*logs));
    Ok((spans.into(), logs.unwrap_or_default()))
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
