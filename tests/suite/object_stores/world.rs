//! A bucket, machines that use it, rows that can be told apart.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use engine::{
    AppendBatch, AppendOutcome, BatchOrigin, DataFileHandle, Engine, ReadView, RemoteSettings, RemoteStats, Settings,
};
use futures::TryStreamExt;
use harness::Failure;
use model::batch::row_json;
use model::telemetry_codec::{BatchId, encode_arrow};
use model::{Attributes, ByteSize, Clock, EntityId, Entropy, Level, LogRecord, Table, TelemetryRecord, Timestamp};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};

pub(super) const HOUR: i64 = 3_600_000_000;
/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A place for one store.
#[derive(Clone)]
pub(super) struct Bucket {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) multipart: Option<Arc<dyn MultipartStore>>,
    pub(super) prefix: Path,
}

impl Bucket {
    pub(super) fn new(store: Arc<dyn ObjectStore>, multipart: Option<Arc<dyn MultipartStore>>) -> Self {
        Self {
            store,
            multipart,
            prefix: Path::default(),
        }
    }

    pub(super) fn under(&self, name: &str) -> Self {
        Self {
            prefix: Path::from(name),
            ..self.clone()
        }
    }

    /// The objects whose names, below the prefix, begin with `below`.
    pub(super) async fn objects(&self, below: &str) -> Result<Vec<ObjectMeta>, Failure> {
        let prefix: Path = self.prefix.parts().chain(Path::from(below).parts()).collect();
        let mut found: Vec<ObjectMeta> = self.store.list(Some(&prefix)).try_collect().await?;
        found.sort_by(|a, b| a.location.cmp(&b.location));
        Ok(found)
    }
}

/// A machine: a folder, and a clock that is set by hand.
pub(super) struct Machine {
    _folder: tempfile::TempDir,
    pub(super) settings: Settings,
    pub(super) now: Arc<AtomicI64>,
}

impl Machine {
    /// Ticks every few milliseconds, and seals what is past at once.
    pub(super) fn new(bucket: &Bucket, host: &str) -> Result<Self, Failure> {
        let mut machine = Self::without_bucket()?;
        machine.attach(bucket, host);
        Ok(machine)
    }

    pub(super) fn without_bucket() -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let mut settings = Settings::new(folder.path().join("store"));
        settings.flush_interval = Duration::from_millis(20);
        settings.seal_grace = Duration::ZERO;
        settings.wal_max = ByteSize::mib(64);
        let noon: Timestamp = "2026-11-21T12:30:00Z".parse()?;
        Ok(Self {
            _folder: folder,
            settings,
            now: Arc::new(AtomicI64::new(noon.micros())),
        })
    }

    pub(super) fn attach(&mut self, bucket: &Bucket, host: &str) {
        let url = format!("s3://test/{}", bucket.prefix);
        let remote = RemoteSettings::new(url, Arc::clone(&bucket.store), bucket.prefix.clone());
        self.settings.remote = Some(RemoteSettings {
            multipart: bucket.multipart.clone(),
            host: host.to_owned(),
            poll: Duration::from_millis(20),
            // A test says when.
            upload_interval: Duration::from_secs(3_600),
            close_patience: Duration::ZERO,
            ..remote
        });
    }

    pub(super) fn remote(&mut self) -> &mut RemoteSettings {
        self.settings.remote.as_mut().expect("it has a bucket")
    }

    pub(super) fn now(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(super) fn advance(&self, by: i64) {
        self.now.fetch_add(by, Ordering::Relaxed);
    }

    pub(super) async fn open(&self) -> Result<Arc<Engine>, engine::Error> {
        let now = Arc::clone(&self.now);
        let clock = Clock::new(move || Timestamp::from_micros(now.load(Ordering::Relaxed)));
        Engine::open(self.settings.clone(), clock, entropy()).await
    }

    pub(super) fn files(&self) -> Vec<PathBuf> {
        files_below(&self.settings.data_dir)
    }
}

pub(super) fn files_below(dir: &FsPath) -> Vec<PathBuf> {
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

/// Different in every call.
pub(super) fn entropy() -> Entropy {
    Entropy::new(|bytes| {
        for chunk in bytes.chunks_mut(8) {
            let random = RandomState::new().build_hasher().finish().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    })
}

/// A batch of a producer; its rows are named `seq/n`.
pub(super) fn batch(seq: u64, times: &[i64]) -> AppendBatch {
    of_rows(seq, times, |n| format!("{seq}/{n}"))
}

pub(super) fn of_rows(seq: u64, times: &[i64], message: impl Fn(usize) -> String) -> AppendBatch {
    let rows = times.iter().enumerate().map(|(n, ts)| LogRecord {
        ts: Timestamp::from_micros(*ts),
        entity_id: EntityId::for_name("rack-a"),
        entity_name: "rack-a".into(),
        flux_id: None,
        level: Level::Info,
        message: message(n),
        attributes: Attributes::new(),
    });
    let rows = LogRecord::to_batch(&rows.collect::<Vec<_>>()).expect("rows fit their columns");
    AppendBatch {
        table: Table::Logs,
        origin: BatchOrigin {
            producer: Some(BatchId {
                entity: EntityId::for_name("rack-a"),
                boot_epoch: 1,
                seq,
            }),
            ..BatchOrigin::default()
        },
        payload: encode_arrow(std::slice::from_ref(&rows))
            .expect("rows fit the wire")
            .into(),
        rows: vec![rows],
    }
}

pub(super) fn stored(rows: usize) -> AppendOutcome {
    AppendOutcome::Stored { rows }
}

pub(super) fn remote(engine: &Engine) -> RemoteStats {
    engine.stats().remote.unwrap_or_default()
}

/// A file's rows, read as a query would.
pub(super) fn read(segment: &DataFileHandle) -> Result<Vec<RecordBatch>, Failure> {
    let metadata = ArrowReaderMetadata::try_new(segment.metadata()?, ArrowReaderOptions::new())?;
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(segment.open()?, metadata);
    Ok(reader.build()?.collect::<Result<_, _>>()?)
}

/// The messages of a view, ordered.
pub(super) fn messages(view: &ReadView) -> Result<Vec<String>, Failure> {
    let mut batches: Vec<RecordBatch> = view.hot(Table::Logs).iter().map(|hot| hot.batch.clone()).collect();
    for segment in view.files(Table::Logs) {
        batches.extend(read(segment)?);
    }
    let mut all = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            all.push(row_json(&batch, row)["message"].as_str().unwrap_or_default().to_owned());
        }
    }
    all.sort();
    Ok(all)
}

/// Waits for a condition; fails with its name when it does not come.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<(), Failure> {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > end {
            return Err(format!("waited in vain until {what}").into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Waits until closed partitions are sealed, `open` files are left, and has everything uploaded.
pub(super) async fn uploaded(engine: &Engine, open: u64) -> Result<(), Failure> {
    engine.flush().await?;
    until("closed files are sealed", || {
        let stats = engine.stats();
        stats.open_files == open && stats.memtable_rows == 0
    })
    .await?;
    let end = Instant::now() + PATIENCE;
    while let Err(error) = engine.sync_remote().await {
        if Instant::now() > end {
            return Err(error.into());
        }
    }
    let stats = remote(engine);
    assert_eq!((stats.unuploaded_files, stats.unuploaded_rows), (0, 0), "{stats:?}");
    Ok(())
}

/// The process is killed: no orderly end.
pub(super) fn kill(engine: Arc<Engine>) {
    drop(engine);
}
