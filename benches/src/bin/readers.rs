//! Outside readers on a live tree: glob loops of DuckDB, polars, pyarrow and ClickHouse while the engine publishes every
//! 50 ms, seals and rotates. Counts each reader's errors and every torn, missing or doubled row.
//!
//! Method: the engine runs in this process, at 20,000 rows/s over four hours of event time at once; the clock is injected and an hour
//! passes every four seconds, so partitions end, are sealed and, above 6 MB, removed. Each row carries its hour and its number in that hour;
//! before each query a reader notes how many rows of each hour were published, and no answer may have fewer, nor gaps, nor
//! a number twice. `BENCH_PYTHON` names a Python with the packages of `benches/requirements.txt`; the loops are
//! `benches/readers.py`, all at once.
//!
//! Sizes: `BENCH_SECONDS` (60), `BENCH_FOLDER`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use benches::{load, setting};
use engine::{AppendBatch, BatchOrigin, Engine, RetentionPolicy, Settings};
use harness::Failure;
use model::telemetry_codec::{BatchId, encode_arrow};
use model::{Attributes, ByteSize, Clock, EntityId, Entropy, Level, LogRecord, Table, TelemetryRecord, Timestamp};
use serde_json::json;

const READERS: [&str; 4] = ["duckdb", "polars", "pyarrow", "chdb"];
const HOUR: i64 = 3_600_000_000;
/// Real time in which an hour of the data passes.
const HOUR_TAKES: Duration = Duration::from_secs(4);
/// Rows of a batch; one is sent every 12.5 ms.
const ROWS: u64 = 250;
const PAUSE: Duration = Duration::from_micros(12_500);
/// Hours that take rows at once.
const HOURS: i64 = 4;

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(run())
}

async fn run() -> Result<(), Failure> {
    let python = std::env::var_os("BENCH_PYTHON").ok_or("BENCH_PYTHON names no Python; benches/run.sh sets it")?;
    let seconds = setting("BENCH_SECONDS", 60);
    let root = std::env::var_os("BENCH_FOLDER").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(root)?;
    println!("load before: {}", load());
    let writer = Writer::open(folder.path()).await?;
    writer.write_state()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("readers.py");
    let start = |name: &&str| -> Result<Child, Failure> {
        let mut command = Command::new(&python);
        command.arg(&script).arg(name);
        command.arg(&writer.engine.settings().data_dir).arg(&writer.state_file);
        Ok(command.arg(seconds.to_string()).stdout(Stdio::piped()).spawn()?)
    };
    let readers = READERS.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    let done = Arc::new(AtomicBool::new(false));
    let waiting = {
        let done = Arc::clone(&done);
        tokio::task::spawn_blocking(move || {
            let outputs: Vec<_> = readers.into_iter().map(Child::wait_with_output).collect();
            done.store(true, Ordering::Relaxed);
            outputs
        })
    };
    let writer = writer.write(&done).await?;
    for output in waiting.await? {
        print!("{}", String::from_utf8_lossy(&output?.stdout));
    }
    let stats = writer.engine.stats();
    println!(
        "writer: {} rows, {} flushes, {} seals, {} of them longer than before, {} partitions removed, {} files left",
        stats.appended_rows, stats.flushes, stats.seals, writer.grown, stats.rotated_partitions, stats.files
    );
    println!("load after: {}", load());
    writer.engine.close().await?;
    Ok(())
}

/// The engine, and what it has been given.
struct Writer {
    engine: Arc<Engine>,
    now: Arc<AtomicI64>,
    state_file: PathBuf,
    /// Rows of each hour so far.
    appended: BTreeMap<i64, u64>,
    /// Rows of each hour that data files have.
    published: BTreeMap<i64, u64>,
    batches: u64,
    /// The length of each open file.
    open: BTreeMap<u64, u64>,
    /// Seals that made a file longer: a reader with the length of before finds no footer there.
    grown: u64,
}

impl Writer {
    async fn open(folder: &Path) -> Result<Self, Failure> {
        let now = Arc::new(AtomicI64::new(benches::data::START.micros()));
        let read = Arc::clone(&now);
        let clock = Clock::new(move || Timestamp::from_micros(read.load(Ordering::Relaxed)));
        let mut settings = Settings::new(folder.join("store"));
        settings.flush_interval = Duration::from_millis(50);
        settings.segment_size = ByteSize::bytes(512 << 10);
        settings.wal_max = ByteSize::mib(8);
        settings.rotation.policy = RetentionPolicy::Size;
        settings.rotation.max_size = ByteSize::mib(6 + 8);
        settings.rotation.check_interval = Duration::from_millis(500);
        std::fs::create_dir_all(&settings.data_dir)?;
        Ok(Self {
            engine: Engine::open(settings, clock, Entropy::new(|bytes| bytes.fill(3))).await?,
            now,
            state_file: folder.join("state.json"),
            appended: BTreeMap::new(),
            published: BTreeMap::new(),
            batches: 0,
            open: BTreeMap::new(),
            grown: 0,
        })
    }

    /// Appends until the readers are done.
    async fn write(mut self, done: &AtomicBool) -> Result<Self, Failure> {
        let start = Instant::now();
        let begin = self.now.load(Ordering::Relaxed);
        while !done.load(Ordering::Relaxed) {
            let passed = start.elapsed().as_secs_f64() / HOUR_TAKES.as_secs_f64();
            self.now.store(begin + (passed * HOUR as f64) as i64, Ordering::Relaxed);
            self.append().await?;
            if self.batches.is_multiple_of(8) {
                self.note_published();
                self.write_state()?;
            }
            tokio::time::sleep_until((start + PAUSE * u32::try_from(self.batches)?).into()).await;
        }
        Ok(self)
    }

    async fn append(&mut self) -> Result<(), Failure> {
        self.batches += 1;
        let now = self.now.load(Ordering::Relaxed);
        let hour = now.div_euclid(HOUR) - i64::try_from(self.batches)? % HOURS;
        let first = self.appended.get(&hour).copied().unwrap_or(0);
        let records: Vec<_> = (first..first + ROWS).map(|number| record(hour, number)).collect();
        let rows = vec![LogRecord::to_batch(&records)?];
        let origin = BatchOrigin {
            producer: Some(BatchId {
                entity: EntityId::for_name("bench"),
                boot_epoch: 1,
                seq: self.batches,
            }),
            ..BatchOrigin::default()
        };
        let payload = encode_arrow(&rows)?.into();
        let table = Table::Logs;
        self.engine
            .append(AppendBatch {
                table,
                origin,
                payload,
                rows,
            })
            .await?;
        self.appended.insert(hour, first + ROWS);
        Ok(())
    }

    /// What is in files now, by the view; a view comes after the files.
    fn note_published(&mut self) {
        let view = self.engine.view();
        let mut rows: BTreeMap<i64, u64> = BTreeMap::new();
        for file in view.files(Table::Logs) {
            *rows.entry(file.min_ts.micros().div_euclid(HOUR)).or_default() += file.rows;
            if !file.sealed {
                self.open.insert(file.id, file.size);
            } else if let Some(size) = self.open.remove(&file.id) {
                self.grown += u64::from(file.size > size);
            }
        }
        self.published.extend(rows.iter().map(|(hour, rows)| (*hour, *rows)));
        for (hour, published) in &mut self.published {
            if !rows.contains_key(hour) {
                *published = 0;
            }
        }
    }

    /// Replaces the state that the readers look at.
    fn write_state(&self) -> Result<(), Failure> {
        let live = self.published.iter().filter(|(_, rows)| **rows > 0);
        let published: BTreeMap<String, u64> = live.map(|(hour, rows)| (name(*hour), *rows)).collect();
        let gone = self.published.iter().filter(|(_, rows)| **rows == 0);
        let removed: BTreeSet<String> = gone.map(|(hour, _)| name(*hour)).collect();
        let state = json!({
            "published": published, "removed": removed, "seals": self.engine.stats().seals,
            "length": Attributes::to_json(&attributes(0)).len(),
        });
        let next = self.state_file.with_extension("next");
        std::fs::write(&next, state.to_string())?;
        std::fs::rename(next, &self.state_file)?;
        Ok(())
    }
}

fn name(hour: i64) -> String {
    format!("{hour:010}")
}

/// A row that says who it is. Its attributes are always as long.
fn record(hour: i64, number: u64) -> LogRecord {
    let spread = i64::try_from(number).unwrap_or(0).wrapping_mul(7_919_777) % HOUR;
    LogRecord {
        ts: Timestamp::from_micros(hour * HOUR + spread),
        entity_id: EntityId::for_name("bench"),
        entity_name: "bench".to_owned(),
        flux_id: None,
        level: if number.is_multiple_of(9) {
            Level::Error
        } else {
            Level::Info
        },
        message: format!(
            "{hour:010}{number:010} {:016x}",
            number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ),
        attributes: attributes(number),
    }
}

fn attributes(number: u64) -> Attributes {
    Attributes::new()
        .with("gear.id", "bench")
        .with("part", format!("{:08x}", number.wrapping_mul(2_654_435_761) as u32))
}
