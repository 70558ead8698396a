//! The engine alone, in one process: append → sealed, next to the bare two-thread Arrow → Parquet writer on the same
//! batches; and the time to an answer at a fixed rate, next to the bare append + fdatasync of the disk.
//!
//! Method: `generate` writes deterministic batches (`benches::data`) to a file as Arrow IPC; every run is a process of its
//! own that reads that file through the page cache, so its peak memory is the engine's. `append`: 32 concurrent appenders,
//! default settings but for a tick of 1 s and no rest before a seal, which is idle time for the sake of readers from outside:
//! the run ends when every row is in a sealed file; the clock of the engine is that of the data. `writer`:
//! two threads, each its own file, row groups of 256k rows, zstd 1, no sync until the end. `latency`: batches of 20 rows,
//! open loop, each timed from when it was due, default settings: each is handed to a task of a runtime of two threads, as by a
//! server that reads in one and stores in another. `sync`: the same disk without us, as fast as it can and at the same pace,
//! there too from when each was due.
//!
//! Sizes: `BENCH_ROWS` (10,000,000 of each table), `BENCH_ROUNDS` (3), `BENCH_SECONDS` (20), `BENCH_FOLDER`.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use benches::feed::{
    Batches, append_all, batch, figure, generate, open, runtime, seal_all, table as parse, text, this,
};
use benches::{Cost, cost, load, median, quantile, setting};
use bytes::Bytes;
use harness::Failure;
use model::Table;
use model::telemetry_codec::{decode_arrow, encode_arrow};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

/// Rows of the small batches whose time to an answer is measured.
const ROWS: u64 = 20;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        [] => compare(),
        ["generate", table, rows, file] => generate(parse(table)?, rows.parse()?, Path::new(file)),
        ["append", table, file, store] => runtime()?.block_on(append(parse(table)?, Path::new(file), Path::new(store))),
        ["writer", table, file, folder] => writer(parse(table)?, Path::new(file), Path::new(folder)),
        ["latency", rate, seconds, file, store] => {
            latency(rate.parse()?, seconds.parse()?, Path::new(file), Path::new(store))
        }
        ["sync", rate, seconds, folder] => bare_sync(rate.parse()?, seconds.parse()?, Path::new(folder)),
        _ => Err("usage: bench-engine [generate|append|writer|latency|sync …]".into()),
    }
}

/// All runs of all tables, in turn, and the medians.
fn compare() -> Result<(), Failure> {
    let rows = setting("BENCH_ROWS", 10_000_000);
    let rounds = setting("BENCH_ROUNDS", 3);
    let seconds = setting("BENCH_SECONDS", 20);
    let root = std::env::var_os("BENCH_FOLDER").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(root)?;
    println!("load before: {}", load());
    for table in ["logs", "metrics"] {
        let file = folder.path().join(table);
        this(&["generate", table, &rows.to_string(), &text(&file)])?;
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let out = tempfile::tempdir_in(folder.path())?;
            bare.push(figure(
                &this(&["writer", table, &text(&file), &text(out.path())])?,
                "rows/s",
            )?);
            let store = tempfile::tempdir_in(folder.path())?;
            ours.push(figure(
                &this(&["append", table, &text(&file), &text(store.path())])?,
                "rows/s",
            )?);
        }
        let (bare, ours) = (median(&mut bare), median(&mut ours));
        println!(
            "{table}: median {ours:.0} rows/s sealed, {:.2} of the bare writer's {bare:.0}",
            ours / bare
        );
    }
    for rate in ["1000", "50000"] {
        for _ in 0..rounds {
            let store = tempfile::tempdir_in(folder.path())?;
            let seconds = seconds.to_string();
            this(&["sync", "0", &seconds, &text(store.path())])?;
            this(&["sync", rate, &seconds, &text(store.path())])?;
            let file = text(&folder.path().join("logs"));
            let store = tempfile::tempdir_in(folder.path())?;
            this(&["latency", rate, &seconds, &file, &text(store.path())])?;
        }
    }
    println!("load after: {}", load());
    Ok(())
}

async fn append(table: Table, file: &Path, store: &Path) -> Result<(), Failure> {
    let change = |settings: &mut engine::Settings| {
        settings.flush_interval = Duration::from_secs(1);
    };
    let (engine, now) = open(store, change).await?;
    let start = Instant::now();
    let bytes = append_all(&engine, &now, table, file).await?;
    let appended = start.elapsed();
    engine.flush().await?;
    let published = start.elapsed();
    seal_all(&engine, &now).await?;
    let sealed = start.elapsed();
    let stats = engine.stats();
    let Cost { cpu_seconds, peak_mib } = cost(i32::try_from(std::process::id())?);
    engine.close().await?;
    let rows = stats.appended_rows as f64;
    let payload = bytes as f64;
    println!(
        "append: {} rows/s {:.0} (appended {:.0}, published {:.0}), {:.0} MB/s, {:.2} CPU s per M rows, peak {peak_mib:.0} MiB",
        table.name(),
        rows / sealed.as_secs_f64(),
        rows / appended.as_secs_f64(),
        rows / published.as_secs_f64(),
        payload / 1e6 / sealed.as_secs_f64(),
        cpu_seconds / rows * 1e6,
    );
    println!(
        "  {} files, {:.1} bytes per row; file bytes written {:.2}x of what stays, all bytes written {:.2}x of the payload; {} syncs, {} flushes, {} seals",
        stats.files,
        stats.file_bytes as f64 / rows,
        stats.file_written_bytes as f64 / stats.file_bytes as f64,
        (stats.file_written_bytes as f64 + payload) / payload,
        stats.fsyncs,
        stats.flushes,
        stats.seals
    );
    Ok(())
}

/// Two threads that do nothing but encode.
fn writer(table: Table, file: &Path, folder: &Path) -> Result<(), Failure> {
    let source = Mutex::new(Batches::open(file)?);
    let rows = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|at| {
                scope.spawn({
                    let (source, rows) = (&source, &rows);
                    move || {
                        write_all(table, source, rows, &folder.join(format!("{at}.parquet")))
                            .map_err(|error| error.to_string())
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a writer failed".to_owned())?)
    })?;
    let took = start.elapsed().as_secs_f64();
    let Cost { cpu_seconds, peak_mib } = cost(i32::try_from(std::process::id())?);
    let rows = rows.load(Ordering::Relaxed) as f64;
    println!(
        "writer: {} rows/s {:.0}, {:.2} CPU s per M rows, peak {peak_mib:.0} MiB",
        table.name(),
        rows / took,
        cpu_seconds / rows * 1e6
    );
    Ok(())
}

fn write_all(table: Table, source: &Mutex<Batches>, rows: &AtomicU64, path: &Path) -> Result<(), Failure> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_max_row_group_row_count(Some(256 << 10))
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path)?, table.schema(), Some(properties))?;
    loop {
        let next = source.lock().map_err(|_| "a reader failed")?.read()?;
        let Some((_, payload)) = next else {
            break;
        };
        for batch in decode_arrow(table, &payload)? {
            rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
            writer.write(&batch)?;
        }
    }
    writer.into_inner()?.sync_all()?;
    Ok(())
}

/// The rows of a file in batches of [`ROWS`], for ever: what makes a batch another one is its sequence.
struct Small<'a> {
    file: &'a Path,
    source: Batches,
    now: i64,
    left: Option<RecordBatch>,
}

impl Small<'_> {
    fn next(&mut self) -> Result<(i64, Bytes), Failure> {
        let rows = usize::try_from(ROWS)?;
        loop {
            if let Some(left) = self.left.take().filter(|left| left.num_rows() >= rows) {
                self.left = Some(left.slice(rows, left.num_rows() - rows));
                return Ok((self.now, encode_arrow(&[left.slice(0, rows)])?.into()));
            }
            let Some((now, payload)) = self.source.read()? else {
                self.source = Batches::open(self.file)?;
                continue;
            };
            self.now = now;
            self.left = decode_arrow(Table::Logs, &payload)?.into_iter().next();
        }
    }
}

/// Appends at a fixed rate, whatever becomes of the ones before. This thread makes batches and waits for their time, as
/// [`bare_sync`] does; the appends are on the runtime.
fn latency(rate: u64, seconds: u64, file: &Path, store: &Path) -> Result<(), Failure> {
    let runtime = runtime()?;
    let (engine, now) = runtime.block_on(open(store, |_| {}))?;
    let source = Batches::open(file)?;
    let (mut small, mut answers) = (
        Small {
            file,
            source,
            now: 0,
            left: None,
        },
        Vec::new(),
    );
    let start = Instant::now();
    for seq in 1..=rate * seconds / ROWS {
        let (at, payload) = small.next()?;
        now.fetch_max(at, Ordering::Relaxed);
        let batch = batch(Table::Logs, seq, &payload)?;
        let due = start + Duration::from_nanos(seq * ROWS * 1_000_000_000 / rate);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        // The timer's own grain is not the engine's.
        let sent = Instant::now().max(due);
        let engine = Arc::clone(&engine);
        answers.push(runtime.spawn(async move {
            engine.append(batch).await.map_err(|error| error.to_string())?;
            Ok::<f64, String>(sent.elapsed().as_secs_f64() * 1e3)
        }));
    }
    let mut times = Vec::new();
    for answer in answers {
        times.push(runtime.block_on(answer)??);
    }
    runtime.block_on(engine.close())?;
    times.sort_by(f64::total_cmp);
    println!(
        "latency: {rate} rows/s in batches of {ROWS}: p50 {:.2} ms, p99 {:.2} ms, worst {:.2} ms",
        quantile(&times, 0.5),
        quantile(&times, 0.99),
        quantile(&times, 1.0)
    );
    Ok(())
}

/// The disk alone: 4 KiB written behind each other into a file that has its size, each synced; again and again without a pause
/// (`rate` 0), or at the pace at which batches of [`ROWS`] come at that rate: a disk and a processor that rest between two
/// syncs answer later.
fn bare_sync(rate: u64, seconds: u64, folder: &Path) -> Result<(), Failure> {
    const SIZE: u64 = 64 << 20;
    let mut file = File::create(folder.join("bare"))?;
    (0..64).try_for_each(|_| file.write_all(&[0; 1 << 20]))?;
    file.sync_all()?;
    let pace = Duration::from_nanos((ROWS * 1_000_000_000).checked_div(rate).unwrap_or(0));
    let begin = Instant::now();
    let (mut times, mut due, mut at) = (Vec::new(), begin, 0);
    while begin.elapsed() < Duration::from_secs(seconds.min(10)) {
        due += pace;
        let wait = due.saturating_duration_since(Instant::now());
        std::thread::sleep(wait);
        // What comes due during a sync waits for it, as an append would.
        let start = if wait.is_zero() && rate > 0 {
            due
        } else {
            Instant::now()
        };
        file.write_all_at(&[0x5a; 4096], at)?;
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        at = (at + 4096) % SIZE;
    }
    times.sort_by(f64::total_cmp);
    let how = if rate == 0 {
        "without a pause".to_owned()
    } else {
        format!("every {pace:?}")
    };
    println!(
        "disk: 4 KiB + fdatasync {how}: p50 {:.2} ms, p99 {:.2} ms",
        quantile(&times, 0.5),
        quantile(&times, 0.99)
    );
    Ok(())
}
