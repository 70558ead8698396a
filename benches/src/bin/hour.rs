//! An hour of a steady stream, by the real engine under an injected clock: how many files it makes, how many row groups
//! they have, and how many bytes are written for the bytes that stay.
//!
//! Method: time is compressed. Each real tick the engine gets the log rows of five seconds of event time
//! (`benches::data`, in batches as a Rack sends them: every 200 ms, of 500 rows at most) and the clock goes on by as much, so the
//! flusher sees as many ticks as in a real hour, 720, with as many rows each. The hour ends, its file is sealed, and the
//! store is counted. 680 rows/s are about 20 KB/s as they lie in a sealed file. At 100,000 rows/s six minutes are run, and
//! files are counted for sixty.
//!
//! Sizes: `BENCH_RATES` ("10 680 1000 100000"), `BENCH_FOLDER`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use benches::data::{START, Source};
use benches::{cost, load};
use engine::{AppendBatch, BatchOrigin, Engine, Settings};
use harness::Failure;
use model::telemetry_codec::{BatchId, encode_arrow};
use model::{Clock, EntityId, Entropy, Table, Timestamp};
use tokio::task::JoinSet;

/// Seconds of event time that a tick stands for: the default flush interval.
const TICK: u64 = 5;
/// Above this rate a tenth of an hour is run.
const LONG_RATE: u64 = 20_000;

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let rates = std::env::var("BENCH_RATES").unwrap_or_else(|_| "10 680 1000 100000".to_owned());
    println!("load before: {}", load());
    for rate in rates.split_whitespace() {
        runtime.block_on(hour(rate.parse()?))?;
    }
    println!("load after: {}", load());
    Ok(())
}

async fn hour(rate: u64) -> Result<(), Failure> {
    let root = std::env::var_os("BENCH_FOLDER").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(root)?;
    let now = Arc::new(AtomicI64::new(START.micros()));
    let read = Arc::clone(&now);
    let clock = Clock::new(move || Timestamp::from_micros(read.load(Ordering::Relaxed)));
    // A tick takes as long as its rows do, and no less than a publish.
    let real_tick = Duration::from_micros((rate * TICK * 4).max(20_000));
    let mut settings = Settings::new(folder.path());
    settings.flush_interval = real_tick;
    let engine = Engine::open(settings, clock, Entropy::new(|bytes| bytes.fill(9))).await?;
    let ticks = if rate > LONG_RATE { 72 } else { 720 };
    let payload = run(&engine, &now, rate, ticks, real_tick).await?;
    let (publishes, before) = (engine.stats().flushes, engine.stats().files);
    engine.flush().await?;
    now.fetch_add(7_200_000_000, Ordering::Relaxed);
    while engine.stats().open_files > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let stats = engine.stats();
    let cost = cost(i32::try_from(std::process::id())?);
    engine.close().await?;
    let per_hour = stats.files * 720 / ticks;
    println!(
        "{rate} rows/s: {per_hour} files per hour ({before} before the hour's end), {publishes} flushes, {:.1} bytes per row",
        stats.file_bytes as f64 / stats.file_rows as f64
    );
    println!(
        "  {:.1} KB/s stay; file bytes written {:.2}x of what stays; log and files written {:.2}x of the {:.1} MB that came; peak {:.0} MiB",
        stats.file_bytes as f64 / 1e3 / (ticks * TICK) as f64,
        stats.file_written_bytes as f64 / stats.file_bytes as f64,
        (stats.file_written_bytes + payload) as f64 / payload as f64,
        payload as f64 / 1e6,
        cost.peak_mib
    );
    Ok(())
}

/// Feeds the engine; the bytes of what came.
async fn run(
    engine: &Arc<Engine>,
    now: &AtomicI64,
    rate: u64,
    ticks: u64,
    real_tick: Duration,
) -> Result<u64, Failure> {
    let mut source = Source::with_rate(7, i64::try_from(rate)?);
    let rows = (rate / 5).clamp(1, 500);
    let (mut seq, mut sent, mut payload_bytes) = (0, 0, 0);
    let start = Instant::now();
    for tick in 1..=ticks {
        let mut appends = JoinSet::new();
        while sent < rate * TICK * tick {
            let batch = source.batch(Table::Logs, usize::try_from(rows)?)?;
            let rows_of_batch = vec![batch];
            let payload: bytes::Bytes = encode_arrow(&rows_of_batch)?.into();
            payload_bytes += payload.len() as u64;
            seq += 1;
            sent += rows;
            now.fetch_max(source.now().micros(), Ordering::Relaxed);
            let batch = AppendBatch {
                table: Table::Logs,
                origin: BatchOrigin {
                    producer: Some(BatchId {
                        entity: EntityId::for_name("bench"),
                        boot_epoch: 1,
                        seq,
                    }),
                    ..BatchOrigin::default()
                },
                payload,
                rows: rows_of_batch,
            };
            let engine = Arc::clone(engine);
            appends.spawn(async move { engine.append(batch).await.map_err(|error| error.to_string()) });
            if appends.len() >= 32 {
                appends.join_next().await.transpose()?.transpose()?;
            }
        }
        while let Some(appended) = appends.join_next().await {
            appended??;
        }
        tokio::time::sleep_until((start + real_tick * u32::try_from(tick)?).into()).await;
    }
    Ok(payload_bytes)
}
