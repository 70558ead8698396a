//! A store at its start and when it is asked: recovery of the log, opening of 100,000 files, scans, lookups.
//!
//! Method: every part is a process of its own, so that its peak memory is its own.
//! `recovery`: 50,000-row-a-second-sized batches of log rows fill a log of `BENCH_WAL_MB` (1,024) while nothing is published; the
//! process ends without closing, and another opens the store with default settings (the log's cap apart), timed until it is open.
//! `open`: `BENCH_FILES` (100,000) sealed files of an hour each are made by the engine, in memory where the system has `/dev/shm`,
//! then opened, timed until it is open; next to the same with an empty store.
//! `scan` and `lookup`: 10,000,000 rows (`BENCH_ROWS`) of logs and metrics, sealed by the engine, asked by the querier in one
//! process, median of seven after two; the file cache is warm.
//! `ids`: lookups of ids over 720 hour partitions of logs and spans, sealed and indexed; `BENCH_ID_RATE` (1) rows a second of each.
//! `texts`: what an index of texts costs and spares over 70 hour partitions of logs, asked with it and without; `open-texts`: the same
//! while all of their files are open.
//!
//! `bench-store recovery|open|query|ids|texts|open-texts`, without a word all; three rounds each (`BENCH_ROUNDS`).

#[path = "store/ids.rs"]
mod ids;
#[path = "store/texts.rs"]
mod texts;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use benches::data::{START, Source};
use benches::feed::{BATCH_ROWS, Batches, batch, figure, generate, open, runtime, seal_all, text, this};
use benches::{cost, load, median, setting};
use harness::Failure;
use model::filter::{LogFilter, MetricAggregate, MetricFilter, TimePoint};
use model::telemetry_codec::encode_arrow;
use model::{ByteSize, Clock, Level, LogRecord, Table, TelemetryRecord, Timestamp};
use query::{ListQuery, QueryEngine, QueryLimits};

use self::texts::Files;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = std::env::var_os("BENCH_FOLDER").map_or_else(std::env::temp_dir, PathBuf::from);
    match words[..] {
        ["fill", store] => runtime()?.block_on(fill(Path::new(store))),
        ["files", count, store] => runtime()?.block_on(files(count.parse()?, Path::new(store))),
        ["start", what, store] => runtime()?.block_on(start(what, Path::new(store))),
        ["make", table, file, store] => {
            runtime()?.block_on(make(benches::feed::table(table)?, Path::new(file), Path::new(store)))
        }
        ["ask", store] => ask(Path::new(store)),
        ["make-ids", store] => runtime()?.block_on(ids::make(Path::new(store))),
        ["ask-ids", store] => ids::ask(Path::new(store)),
        ["make-texts", store, files] => runtime()?.block_on(texts::make(Path::new(store), Files::of(files))),
        ["index-texts", store] => texts::index(Path::new(store)),
        ["ask-texts", store, files, how] => texts::ask(Path::new(store), Files::of(files), how),
        _ => {
            println!("load before: {}", load());
            let all = words.is_empty();
            if all || words.contains(&"recovery") {
                recovery(&root)?;
            }
            if all || words.contains(&"open") {
                opening(&root)?;
            }
            if all || words.contains(&"query") {
                let folder = tempfile::tempdir_in(&root)?;
                let (store, file) = (text(&folder.path().join("store")), text(&folder.path().join("rows")));
                for table in [Table::Logs, Table::Metrics] {
                    generate(
                        table,
                        usize::try_from(setting("BENCH_ROWS", 10_000_000))?,
                        Path::new(&file),
                    )?;
                    this(&["make", table.name(), &file, &store])?;
                }
                this(&["ask", &store])?;
            }
            if all || words.contains(&"ids") {
                let folder = tempfile::tempdir_in(&root)?;
                let store = text(&folder.path().join("store"));
                this(&["make-ids", &store])?;
                this(&["ask-ids", &store])?;
            }
            for (part, files) in [("texts", "sealed"), ("open-texts", "open")] {
                if all || words.contains(&part) {
                    let folder = tempfile::tempdir_in(&root)?;
                    let store = text(&folder.path().join("store"));
                    this(&["make-texts", &store, files])?;
                    if files == "sealed" {
                        this(&["index-texts", &store])?;
                    }
                    this(&["ask-texts", &store, files, "with"])?;
                    this(&["ask-texts", &store, files, "without"])?;
                }
            }
            println!("load after: {}", load());
            Ok(())
        }
    }
}

fn recovery(root: &Path) -> Result<(), Failure> {
    let (mut seconds, mut peaks) = (Vec::new(), Vec::new());
    for _ in 0..setting("BENCH_ROUNDS", 3) {
        let folder = tempfile::tempdir_in(root)?;
        let store = text(folder.path());
        this(&["fill", &store])?;
        let printed = this(&["start", "recovery", &store])?;
        seconds.push(figure(&printed, "per GB of log")?);
        peaks.push(figure(&printed, "peak")?);
    }
    println!(
        "recovery: median {:.2} s per GB of log, peak {:.0} MiB",
        median(&mut seconds),
        median(&mut peaks)
    );
    Ok(())
}

fn opening(root: &Path) -> Result<(), Failure> {
    let memory = Path::new("/dev/shm");
    let folder = tempfile::tempdir_in(if memory.is_dir() { memory } else { root })?;
    let store = text(&folder.path().join("store"));
    this(&["start", "empty", &text(&folder.path().join("empty"))])?;
    this(&["files", &setting("BENCH_FILES", 100_000).to_string(), &store])?;
    let (mut seconds, mut peaks) = (Vec::new(), Vec::new());
    for _ in 0..setting("BENCH_ROUNDS", 3) {
        let printed = this(&["start", "files", &store])?;
        seconds.push(figure(&printed, "open in")?);
        peaks.push(figure(&printed, "peak")?);
    }
    println!(
        "open: median {:.2} s, peak {:.0} MiB",
        median(&mut seconds),
        median(&mut peaks)
    );
    Ok(())
}

/// The log's cap where it is to hold more than by default.
fn large_log(settings: &mut engine::Settings) {
    settings.wal_max = ByteSize::mib(2 * setting("BENCH_WAL_MB", 1024));
}

/// Fills the log, and ends as a crash would.
async fn fill(store: &Path) -> Result<(), Failure> {
    let (engine, now) = open(store, |settings| {
        large_log(settings);
        settings.hot_max = ByteSize::mib(64 << 10);
        settings.flush_interval = Duration::from_secs(86_400);
    })
    .await?;
    let mut source = Source::new(7);
    let (mut seq, mut bytes) = (0, 0);
    while bytes < setting("BENCH_WAL_MB", 1024) << 20 {
        let mut waiting = Vec::new();
        for _ in 0..32 {
            let payload = encode_arrow(&[source.batch(Table::Logs, BATCH_ROWS)?])?.into();
            seq += 1;
            let batch = batch(Table::Logs, seq, &payload)?;
            bytes += payload.len() as u64;
            let engine = Arc::clone(&engine);
            waiting.push(tokio::spawn(async move { engine.append(batch).await }));
        }
        now.store(source.now().micros(), Ordering::Relaxed);
        for appended in waiting {
            appended.await??;
        }
    }
    println!("log: {} rows, {} MiB", engine.stats().appended_rows, bytes >> 20);
    std::process::exit(0)
}

/// Makes so many sealed files of an hour each.
async fn files(count: u64, store: &Path) -> Result<(), Failure> {
    const AT_ONCE: u64 = 1_000;
    let (engine, now) = open(store, |settings| {
        settings.flush_interval = Duration::from_millis(1);
        settings.seal_grace = Duration::ZERO;
        settings.max_age = Duration::from_secs(50 * 365 * 86_400);
    })
    .await?;
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    now.store(START.plus(hours(2)).micros(), Ordering::Relaxed);
    let mut source = Source::new(7);
    for first in (0..count).step_by(usize::try_from(AT_ONCE)?) {
        let made = source.batch(Table::Logs, 1)?;
        let mut row: LogRecord = serde_json::from_value(model::batch::row_json(&made, 0).into())?;
        let rows: Vec<_> = (first..count.min(first + AT_ONCE))
            .map(|hour| {
                row.ts = START.minus(hours(hour));
                row.clone()
            })
            .collect();
        let payload = encode_arrow(&[LogRecord::to_batch(&rows)?])?.into();
        engine.append(batch(Table::Logs, first + 1, &payload)?).await?;
        engine.flush().await?;
        while engine.stats().open_files > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    println!("files: {}", engine.stats().files);
    engine.close().await?;
    Ok(())
}

/// Opens a store, timed.
#[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
async fn start(what: &str, store: &Path) -> Result<(), Failure> {
    let log: u64 = std::fs::read_dir(store.join("wal"))
        .map(|entries| {
            entries
                .flatten()
                .filter_map(|entry| entry.metadata().ok())
                .map(|meta| meta.len())
                .sum()
        })
        .unwrap_or(0);
    let began = Instant::now();
    let (engine, _) = open(store, large_log).await?;
    let seconds = began.elapsed().as_secs_f64();
    let (cost, stats) = (cost(i32::try_from(std::process::id())?), engine.stats());
    let (cpu, peak, files) = (cost.cpu_seconds, cost.peak_mib, stats.files);
    print!("{what}: open in {seconds:.3} s, {cpu:.2} CPU s, peak {peak:.0} MiB; {files} files");
    if stats.replayed_rows > 0 {
        let (rows, hot) = (stats.replayed_rows, stats.memtable_rows);
        let each = seconds / (log as f64 / 1e9);
        print!(", {rows} rows replayed, {hot} of them in no file yet, per GB of log {each:.2} s");
    }
    println!();
    std::process::exit(0)
}

/// A store with the rows of a file, all sealed.
async fn make(table: Table, file: &Path, store: &Path) -> Result<(), Failure> {
    let (engine, now) = open(store, |settings| settings.flush_interval = Duration::from_secs(1)).await?;
    let (mut source, mut seq) = (Batches::open(file)?, u64::from(table.number()) << 40);
    while let Some((at, payload)) = source.read()? {
        now.fetch_max(at, Ordering::Relaxed);
        seq += 1;
        engine.append(batch(table, seq, &payload)?).await?;
    }
    engine.flush().await?;
    seal_all(&engine, &now).await?;
    engine.close().await?;
    Ok(())
}

fn ask(store: &Path) -> Result<(), Failure> {
    let (engine, now) = runtime()?.block_on(open(store, |_| {}))?;
    let files = engine.view();
    let last = files
        .files(Table::Logs)
        .iter()
        .map(|file| file.max_ts)
        .max()
        .ok_or("no logs")?;
    now.store(last.micros(), Ordering::Relaxed);
    let querier = QueryEngine::new(Arc::clone(&engine), QueryLimits::default(), Clock::new(move || last))?;
    let runtime = runtime()?;
    let newest = runtime.block_on(querier.page(ListQuery::Logs(logs(|_| {}))))?;
    let flux = newest
        .rows
        .iter()
        .find_map(|row| row["flux_id"].as_str())
        .ok_or("no flux id")?
        .parse()?;
    let log = |name: &str, filter: LogFilter| {
        timed(name, || {
            Ok(runtime
                .block_on(querier.page(ListQuery::Logs(filter.clone())))?
                .rows
                .len())
        })
    };
    log("lookup: newest 50", logs(|_| {}))?;
    log(
        "lookup: newest 50 errors",
        logs(|filter| filter.level = Some(Level::Error)),
    )?;
    log(
        "lookup: newest 50 of one host",
        logs(|filter| filter.entity = Some("worker-09".to_owned())),
    )?;
    log("lookup: one flux id", logs(|filter| filter.flux_id = Some(flux)))?;
    log(
        "scan: a text that is in no row",
        logs(|filter| filter.q = Some("no such text".to_owned())),
    )?;
    let metric = |name: &str, filter: MetricFilter| {
        timed(name, || {
            Ok(runtime
                .block_on(querier.page(ListQuery::Metrics(filter.clone())))?
                .rows
                .len())
        })
    };
    let one = MetricFilter {
        name: Some("system.cpu.time".to_owned()),
        since: Some(TimePoint::At(START.minus(Duration::from_secs(3_600)))),
        until: Some(TimePoint::At(Timestamp::from_micros(last.micros() + 1))),
        limit: Some(10_000),
        ..MetricFilter::default()
    };
    metric(
        "lookup: newest 50 points",
        MetricFilter {
            limit: Some(50),
            name: None,
            ..one.clone()
        },
    )?;
    metric(
        "lookup: newest 50 points of one name",
        MetricFilter {
            limit: Some(50),
            ..one.clone()
        },
    )?;
    let average = MetricFilter {
        agg: Some(MetricAggregate::Avg),
        interval: Some("1m".parse()?),
        group_by: Some("entity_name".to_owned()),
        ..one
    };
    metric("scan: one name, average by host and minute", average)?;
    println!("peak {:.0} MiB", cost(i32::try_from(std::process::id())?).peak_mib);
    std::process::exit(0)
}

fn logs(change: impl FnOnce(&mut LogFilter)) -> LogFilter {
    let mut filter = LogFilter {
        limit: Some(50),
        since: Some(TimePoint::At(START.minus(Duration::from_secs(3_600)))),
        ..LogFilter::default()
    };
    change(&mut filter);
    filter
}

fn timed(name: &str, run: impl Fn() -> Result<usize, Failure>) -> Result<(), Failure> {
    let mut times = Vec::new();
    let mut rows = 0;
    for round in 0..9 {
        let began = Instant::now();
        rows = run()?;
        if round >= 2 {
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    println!("{name}: {:.1} ms, {rows} rows", median(&mut times));
    Ok(())
}
