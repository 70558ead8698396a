//! Texts in messages over days: what an index of them costs, and what it spares. Five million log rows (`BENCH_TEXT_ROWS`) at 20 a
//! second (`BENCH_TEXT_RATE`), in hour partitions, all sealed, or all open; one row of the middle has a text that no other has.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use benches::data::{START, Source};
use benches::feed::{batch, open, runtime, seal_all};
use benches::{cost, median, setting};
use harness::Failure;
use model::filter::{LogFilter, TimePoint};
use model::telemetry_codec::encode_arrow;
use model::{Attributes, ByteSize, Clock, EntityId, Level, LogRecord, Table, TelemetryRecord};
use query::{ListQuery, QueryEngine, QueryLimits};

/// What one row has.
const RARE: &str = "kernel panic: not syncing";

/// Whether files are sealed, or all stay open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Files {
    Sealed,
    Open,
}

impl Files {
    pub(crate) fn of(word: &str) -> Self {
        if word == "open" { Self::Open } else { Self::Sealed }
    }

    fn configure(self, settings: &mut engine::Settings) {
        // Rows come up to ten minutes late: their hour's file is still open.
        settings.seal_grace = Duration::from_secs(3_600);
        settings.max_age = Duration::from_secs(400 * 86_400);
        if self == Self::Open {
            settings.seal_grace = settings.max_age;
            settings.open_max = 1_000;
        }
    }
}

/// A store of files without indexes.
pub(crate) async fn make(store: &Path, files: Files) -> Result<(), Failure> {
    let (rate, rows) = (setting("BENCH_TEXT_RATE", 20), setting("BENCH_TEXT_ROWS", 5_000_000));
    let (engine, now) = open(store, |settings| {
        files.configure(settings);
        settings.flush_interval = Duration::from_millis(50);
        settings.index = false;
    })
    .await?;
    let mut source = Source::with_rate(7, rate.cast_signed());
    let hour = rate * 3_600;
    let (mut seq, mut sent) = (0, 0);
    while sent < rows {
        let mut batches = Vec::new();
        let until = (sent + hour).min(rows);
        while sent < until {
            let count = (until - sent).min(10_000);
            batches.push(source.batch(Table::Logs, usize::try_from(count)?)?);
            sent += count;
        }
        if (rows / 2..rows / 2 + hour).contains(&sent) {
            let row = LogRecord {
                ts: source.now(),
                entity_id: EntityId::for_name("web-00"),
                entity_name: "web-00".to_owned(),
                flux_id: None,
                level: Level::Error,
                message: RARE.to_owned(),
                attributes: Attributes::new(),
            };
            batches.push(LogRecord::to_batch(&[row])?);
        }
        now.fetch_max(source.now().micros(), Ordering::Relaxed);
        for rows in batches {
            seq += 1;
            let payload = encode_arrow(&[rows])?.into();
            engine.append(batch(Table::Logs, seq, &payload)?).await?;
        }
        engine.flush().await?;
    }
    if files == Files::Sealed {
        seal_all(&engine, &now).await?;
    }
    let stats = engine.stats();
    println!(
        "texts: {} rows in {} files, {} open, of {:.1} MiB",
        stats.file_rows,
        stats.files,
        stats.open_files,
        mebibytes(stats.file_bytes)
    );
    engine.close().await?;
    Ok(())
}

/// Makes all indexes, in a process of its own.
#[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
pub(crate) fn index(store: &Path) -> Result<(), Failure> {
    let pid = i32::try_from(std::process::id())?;
    let (before, began) = (cost(pid), Instant::now());
    let report = engine::rebuild_index(&engine::Settings::new(store), |_, _| {})?;
    let after = cost(pid);
    let rows = setting("BENCH_TEXT_ROWS", 5_000_000) as f64;
    let (words, numbers) = sections(&store.join("index/logs"))?;
    println!(
        "texts: {} indexes of {:.1} MiB made in {:.1} s, {:.2} CPU s per million rows, peak {:.0} MiB",
        report.files,
        mebibytes(report.bytes),
        began.elapsed().as_secs_f64(),
        (after.cpu_seconds - before.cpu_seconds) / rows * 1e6,
        after.peak_mib
    );
    println!(
        "texts: words {:.1} MiB, {:.2} bytes a row; numbers {:.1} MiB, {:.2} bytes a row",
        mebibytes(words),
        words as f64 / rows,
        mebibytes(numbers),
        numbers as f64 / rows
    );
    Ok(())
}

/// Bytes of the sections of words and of numbers of all sidecars, by their heads.
fn sections(folder: &Path) -> Result<(u64, u64), Failure> {
    let (mut words, mut numbers) = (0, 0);
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            let (w, n) = sections(&path)?;
            (words, numbers) = (words + w, numbers + n);
            continue;
        }
        let bytes = std::fs::read(&path)?;
        let head = u32::from_le_bytes(bytes[8..12].try_into()?) as usize;
        for section in bytes[80..head].chunks_exact(24) {
            let length = u64::from_le_bytes(section[16..24].try_into()?);
            match section[0] {
                7 => words += length,
                8 => numbers += length,
                _ => {}
            }
        }
    }
    Ok((words, numbers))
}

#[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Asks for texts that are there and that are not, in a process of its own; with indexes or without.
pub(crate) fn ask(store: &Path, files: Files, how: &str) -> Result<(), Failure> {
    let runtime = runtime()?;
    let (engine, now) = runtime.block_on(open(store, |settings| {
        files.configure(settings);
        settings.index = how == "with";
        // As the Mixer has it.
        settings.index_memory = ByteSize::mib(64);
    }))?;
    let pid = i32::try_from(std::process::id())?;
    let (before, began) = (cost(pid), Instant::now());
    runtime.block_on(engine.index_all())?;
    if files == Files::Open {
        println!(
            "texts {how} indexes: {:.1} MiB of them for open files, {:.1} s, {:.2} CPU s",
            mebibytes(engine.stats().live_index_bytes),
            began.elapsed().as_secs_f64(),
            cost(pid).cpu_seconds - before.cpu_seconds
        );
    }
    let last = engine.view().files(Table::Logs).iter().map(|file| file.max_ts).max();
    let last = last.ok_or("no logs")?;
    now.store(last.micros(), Ordering::Relaxed);
    let querier = QueryEngine::new(Arc::clone(&engine), QueryLimits::default(), Clock::new(move || last))?;
    let ask = |q: &str| {
        let filter = LogFilter {
            since: Some(TimePoint::At(START.minus(Duration::from_secs(3_600)))),
            q: Some(q.to_owned()),
            ..LogFilter::default()
        };
        runtime.block_on(querier.page(ListQuery::Logs(filter.clone())))
    };
    let shipment = ask("shipment ")?;
    let shipment = shipment.rows.last().and_then(|row| row["message"].as_str());
    let number = shipment
        .and_then(|text| text.split(' ').nth(1))
        .ok_or("no shipment")?
        .to_owned();
    for (name, q) in [
        ("absent", "segmentation fault"),
        ("in one row", RARE),
        ("absent number", "0123456789ab"),
        ("number in one row", &number),
        ("common", "accepted publickey"),
    ] {
        let mut times = Vec::new();
        let mut page = ask(q)?;
        for _ in 0..7 {
            let began = Instant::now();
            page = ask(q)?;
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        println!(
            "texts {how} indexes: {name}: {:.2} ms, {} rows, {} of {} files read, {} pruned, {} rows looked at, {} bytes",
            median(&mut times),
            page.rows.len(),
            page.stats.files_read,
            page.stats.files_considered,
            page.stats.files_pruned,
            page.stats.rows_scanned,
            page.stats.bytes_read
        );
    }
    std::process::exit(0)
}
