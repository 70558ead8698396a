//! The engine alone, in one process: append → sealed, next to the bare two-thread Arrow → Parquet writer on the same
//! batches; and the time to an answer at a fixed rate, next to the bare append + fdatasync of the disk.
//!
//! Method: `generate` writes deterministic batches (`benches::data`) to a file as Arrow IPC; every run is a process of its
//! own that reads that file through the page cache, so its peak memory is the engine's. `append`: 32 concurrent appenders,
//! default settings but for a tick of 1 s, as seals are offered at ticks and the run ends when every row is in a sealed file;
//! the clock of the engine is that of the data. `writer`:
//! two threads, each its own file, row groups of 256k rows, zstd 1, no sync until the end. `latency`: batches of 20 rows,
//! open loop, each timed from when it was due.
//!
//! Sizes: `BENCH_ROWS` (10,000,000 of each table), `BENCH_ROUNDS` (3), `BENCH_SECONDS` (20), `BENCH_FOLDER`.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use benches::data::Source;
use benches::{Cost, cost, load, median, quantile, setting};
use bytes::Bytes;
use engine::{Batch, Engine, Origin, Settings};
use harness::Failure;
use model::wire::{BatchId, decode_arrow, encode_arrow};
use model::{Clock, EntityId, Entropy, Table, Timestamp};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

/// Rows of a batch, as a busy Rack sends them.
const BATCH_ROWS: usize = 500;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        [] => compare(),
        ["generate", table, rows, file] => generate(parse(table)?, rows.parse()?, Path::new(file)),
        ["append", table, file, store] => runtime()?.block_on(append(parse(table)?, Path::new(file), Path::new(store))),
        ["writer", table, file, folder] => writer(parse(table)?, Path::new(file), Path::new(folder)),
        ["latency", rate, seconds, file, store] => {
            let (rate, seconds) = (rate.parse()?, seconds.parse()?);
            runtime()?.block_on(latency(rate, seconds, Path::new(file), Path::new(store)))
        }
        ["sync", seconds, folder] => bare_sync(seconds.parse()?, Path::new(folder)),
        _ => Err("usage: bench-engine [generate|append|writer|latency|sync …]".into()),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?)
}

fn parse(table: &str) -> Result<Table, Failure> {
    let found = Table::ALL.into_iter().find(|known| known.name() == table);
    found.ok_or_else(|| format!("no table is named {table}").into())
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
            bare.push(figure(&this(&["writer", table, &text(&file), &text(out.path())])?)?);
            let store = tempfile::tempdir_in(folder.path())?;
            ours.push(figure(&this(&["append", table, &text(&file), &text(store.path())])?)?);
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
            this(&["sync", &seconds.to_string(), &text(store.path())])?;
            let file = text(&folder.path().join("logs"));
            this(&["latency", rate, &seconds.to_string(), &file, &text(store.path())])?;
        }
    }
    println!("load after: {}", load());
    Ok(())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Runs one part in a process of its own and passes on what it prints.
fn this(args: &[&str]) -> Result<String, Failure> {
    let output = Command::new(std::env::current_exe()?).args(args).output()?;
    std::io::stderr().write_all(&output.stderr)?;
    let printed = String::from_utf8(output.stdout)?;
    print!("{printed}");
    if output.status.success() {
        Ok(printed)
    } else {
        Err(format!("{args:?} ended with {}", output.status).into())
    }
}

/// The number behind `rows/s `.
fn figure(printed: &str) -> Result<f64, Failure> {
    let (_, rest) = printed.split_once("rows/s ").ok_or("no rows/s were printed")?;
    Ok(rest.split([',', ' ']).next().unwrap_or_default().parse()?)
}

fn generate(table: Table, rows: usize, file: &Path) -> Result<(), Failure> {
    let mut source = Source::new(7);
    let mut out = BufWriter::with_capacity(1 << 20, File::create(file)?);
    let mut bytes = 0;
    for _ in 0..rows / BATCH_ROWS {
        let batch = source.batch(table, BATCH_ROWS)?;
        let payload = encode_arrow(&[batch])?;
        bytes += payload.len();
        out.write_all(&u32::try_from(payload.len())?.to_le_bytes())?;
        out.write_all(&source.now().micros().to_le_bytes())?;
        out.write_all(&payload)?;
    }
    out.into_inner()?.sync_all()?;
    let name = table.name();
    println!(
        "data: {name} {rows} rows, {} bytes per row as Arrow IPC",
        bytes / rows.max(1)
    );
    Ok(())
}

/// The batches of a generated file, in order.
struct Batches(std::io::BufReader<File>);

impl Batches {
    fn open(file: &Path) -> Result<Self, Failure> {
        Ok(Self(std::io::BufReader::with_capacity(1 << 20, File::open(file)?)))
    }

    fn next(&mut self) -> Result<Option<(i64, Bytes)>, Failure> {
        let mut head = [0; 12];
        match self.0.read_exact(&mut head) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let (length, now) = head.split_at(4);
        let mut payload = vec![0; u32::from_le_bytes(length.try_into()?) as usize];
        self.0.read_exact(&mut payload)?;
        Ok(Some((i64::from_le_bytes(now.try_into()?), payload.into())))
    }
}

fn batch(table: Table, seq: u64, payload: &Bytes) -> Result<Batch, Failure> {
    let producer = BatchId {
        entity: EntityId::for_name("bench"),
        boot_epoch: 1,
        seq,
    };
    Ok(Batch {
        table,
        origin: Origin {
            producer: Some(producer),
            ..Origin::default()
        },
        payload: payload.clone(),
        rows: decode_arrow(table, payload)?,
    })
}

/// A store whose clock is the data's.
async fn open(store: &Path) -> Result<(Arc<Engine>, Arc<AtomicI64>), Failure> {
    let now = Arc::new(AtomicI64::new(benches::data::START.micros()));
    let read = Arc::clone(&now);
    let clock = Clock::new(move || Timestamp::from_micros(read.load(Ordering::Relaxed)));
    let entropy = Entropy::new(|bytes| bytes.fill(7));
    let mut settings = Settings::new(store);
    settings.flush_interval = Duration::from_secs(1);
    Ok((Engine::open(settings, clock, entropy).await?, now))
}

async fn append(table: Table, file: &Path, store: &Path) -> Result<(), Failure> {
    let (engine, now) = open(store).await?;
    let source = Arc::new(Mutex::new((Batches::open(file)?, 0u64)));
    let bytes = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let appenders: Vec<_> = (0..32)
        .map(|_| {
            let (engine, source) = (Arc::clone(&engine), Arc::clone(&source));
            let (now, bytes) = (Arc::clone(&now), Arc::clone(&bytes));
            tokio::spawn(async move {
                loop {
                    let next = {
                        let mut source = source.lock().map_err(|_| "a reader failed")?;
                        source.1 += 1;
                        (source.1, source.0.next().map_err(|error| error.to_string())?)
                    };
                    let (seq, Some((at, payload))) = next else {
                        return Ok::<(), String>(());
                    };
                    now.fetch_max(at, Ordering::Relaxed);
                    bytes.fetch_add(payload.len() as u64, Ordering::Relaxed);
                    let batch = batch(table, seq, &payload).map_err(|error| error.to_string())?;
                    engine.append(batch).await.map_err(|error| error.to_string())?;
                }
            })
        })
        .collect();
    for appender in appenders {
        appender.await??;
    }
    let appended = start.elapsed();
    engine.flush().await?;
    let published = start.elapsed();
    now.fetch_add(2 * 3_600_000_000, Ordering::Relaxed);
    while engine.stats().open_segments > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let sealed = start.elapsed();
    let stats = engine.stats();
    let Cost { cpu_seconds, peak_mib } = cost(i32::try_from(std::process::id())?);
    engine.close().await?;
    let rows = stats.appended_rows as f64;
    let payload = bytes.load(Ordering::Relaxed) as f64;
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
        "  {} files, {:.1} bytes per row; file bytes written {:.2}x of what stays, all bytes written {:.2}x of the payload; {} syncs, {} publishes, {} seals",
        stats.files,
        stats.file_bytes as f64 / rows,
        stats.file_bytes_written as f64 / stats.file_bytes as f64,
        (stats.file_bytes_written as f64 + payload) / payload,
        stats.fsyncs,
        stats.publishes,
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
        let next = source.lock().map_err(|_| "a reader failed")?.next()?;
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

async fn latency(rate: u64, seconds: u64, file: &Path, store: &Path) -> Result<(), Failure> {
    const ROWS: u64 = 20;
    let (engine, now) = open(store).await?;
    let mut source = Batches::open(file)?;
    let start = Instant::now();
    let mut answers = Vec::new();
    for seq in 1..=rate * seconds / ROWS {
        let next = match source.next()? {
            // The same rows again: what makes a batch another one is its sequence.
            None => {
                source = Batches::open(file)?;
                source.next()?
            }
            found => found,
        };
        let Some((at, payload)) = next else {
            return Err("the file has no rows".into());
        };
        now.fetch_max(at, Ordering::Relaxed);
        let rows = decode_arrow(Table::Logs, &payload)?
            .first()
            .map(|batch| batch.slice(0, usize::try_from(ROWS).unwrap_or(1)));
        let payload: Bytes = encode_arrow(&rows.into_iter().collect::<Vec<_>>())?.into();
        let batch = batch(Table::Logs, seq, &payload)?;
        let due = start + Duration::from_nanos(seq * ROWS * 1_000_000_000 / rate);
        tokio::time::sleep_until(due.into()).await;
        // The timer's own grain of a millisecond is not the engine's.
        let sent = Instant::now().max(due);
        let engine = Arc::clone(&engine);
        answers.push(tokio::spawn(async move {
            engine.append(batch).await.map_err(|error| error.to_string())?;
            Ok::<f64, String>(sent.elapsed().as_secs_f64() * 1e3)
        }));
    }
    let mut times = Vec::with_capacity(answers.len());
    for answer in answers {
        times.push(answer.await??);
    }
    engine.close().await?;
    times.sort_by(f64::total_cmp);
    println!(
        "latency: {rate} rows/s in batches of {ROWS}: p50 {:.2} ms, p99 {:.2} ms, worst {:.2} ms",
        quantile(&times, 0.5),
        quantile(&times, 0.99),
        quantile(&times, 1.0)
    );
    Ok(())
}

/// The disk alone: 4 KiB appended and synced, again and again.
fn bare_sync(seconds: u64, folder: &Path) -> Result<(), Failure> {
    let mut file = File::create(folder.join("bare"))?;
    let end = Instant::now() + Duration::from_secs(seconds.min(5));
    let mut times = Vec::new();
    while Instant::now() < end {
        let start = Instant::now();
        file.write_all(&[0x5a; 4096])?;
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    println!(
        "disk: append 4 KiB + fdatasync: p50 {:.2} ms, p99 {:.2} ms",
        quantile(&times, 0.5),
        quantile(&times, 0.99)
    );
    Ok(())
}
