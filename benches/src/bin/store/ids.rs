//! Lookups of ids over thirty days: 720 hour partitions (`BENCH_ID_HOURS`) of logs and of spans, of which one has the id, or none.
//!
//! Ids of spans' traces are random, so no least and greatest rules a file out; flux ids carry their time.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use benches::data::{START, Source};
use benches::feed::{batch, open, runtime, seal_all};
use benches::{median, setting};
use harness::Failure;
use model::filter::{LogFilter, TimePoint, TraceFilter};
use model::telemetry_codec::encode_arrow;
use model::{Clock, FluxId, Table, Timestamp, TraceId};
use query::{ListQuery, QueryEngine, QueryLimits, QueryStats};

const HOUR: i64 = 3_600_000_000;

/// A store of thirty days at a row or a few a second (`BENCH_ID_RATE`, 1), sealed and indexed.
pub(crate) async fn make(store: &Path) -> Result<(), Failure> {
    let rate = setting("BENCH_ID_RATE", 1);
    let (engine, now) = open(store, |settings| {
        settings.flush_interval = Duration::from_millis(50);
        // Rows come up to ten minutes late: their hour's file is still open.
        settings.seal_grace = Duration::from_secs(3_600);
        settings.max_age = Duration::from_secs(400 * 86_400);
    })
    .await?;
    let end = START.micros() + hours()? * HOUR;
    let mut sources = [Table::Logs, Table::Traces].map(|table| (table, Source::with_rate(7, rate.cast_signed())));
    let (mut seq, rows) = (0, usize::try_from(rate * 3_600)?);
    while sources.iter().any(|(_, source)| source.now().micros() < end) {
        for (table, source) in sources.iter_mut().filter(|(_, source)| source.now().micros() < end) {
            let payload = encode_arrow(&[source.batch(*table, rows)?])?.into();
            now.fetch_max(source.now().micros(), Ordering::Relaxed);
            seq += 1;
            engine.append(batch(*table, seq, &payload)?).await?;
        }
        engine.flush().await?;
    }
    seal_all(&engine, &now).await?;
    let began = Instant::now();
    engine.index_all().await?;
    let stats = engine.stats();
    println!(
        "ids: {} rows in {} files of {} MiB; {} indexes of {:.1} MiB, the last of them {:.2} s after the last seal",
        stats.file_rows,
        stats.files,
        stats.file_bytes >> 20,
        stats.index_files,
        mebibytes(stats.index_bytes),
        began.elapsed().as_secs_f64()
    );
    engine.close().await?;
    Ok(())
}

/// Hours, and partitions of each table.
fn hours() -> Result<i64, Failure> {
    Ok(i64::try_from(setting("BENCH_ID_HOURS", 720))?)
}

#[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Asks for ids that are there and that are not, in a process of its own.
pub(crate) fn ask(store: &Path) -> Result<(), Failure> {
    let runtime = runtime()?;
    let (engine, now) = runtime.block_on(open(store, |settings| {
        settings.max_age = Duration::from_secs(400 * 86_400);
    }))?;
    let began = Instant::now();
    runtime.block_on(engine.index_all())?;
    println!("ids: indexes opened in {:.3} s", began.elapsed().as_secs_f64());
    let last = engine.view().files(Table::Logs).iter().map(|file| file.max_ts).max();
    let last = last.ok_or("no logs")?;
    now.store(last.micros(), Ordering::Relaxed);
    let querier = QueryEngine::new(Arc::clone(&engine), QueryLimits::default(), Clock::new(move || last))?;
    let since = Some(TimePoint::At(START.minus(Duration::from_secs(3_600))));
    let logs = |flux_id: FluxId| {
        let filter = LogFilter {
            since,
            flux_id: Some(flux_id),
            ..LogFilter::default()
        };
        let page = runtime.block_on(querier.page(ListQuery::Logs(filter.clone())))?;
        Ok((page.rows.len(), page.stats))
    };
    let trace = |id: TraceId| match runtime.block_on(querier.trace(id)) {
        Ok(spans) => Ok((spans.rows().num_rows(), spans.stats)),
        Err(error) if error.kind() == query::QueryErrorKind::NotFound => Ok((0, QueryStats::default())),
        Err(error) => Err(Failure::from(error)),
    };
    let middle = Timestamp::from_micros(START.micros() + hours()? * HOUR / 2);
    let around = TraceFilter {
        since: Some(TimePoint::At(middle)),
        until: Some(TimePoint::At(middle.plus(Duration::from_secs(600)))),
        ..TraceFilter::default()
    };
    let found = runtime.block_on(querier.page(ListQuery::Traces(around.clone())))?;
    let text = |name: &str| found.rows.iter().find_map(|row| row[name].as_str());
    let trace_id: TraceId = text("trace_id").ok_or("no trace")?.parse()?;
    let around = LogFilter {
        since: Some(TimePoint::At(middle)),
        until: Some(TimePoint::At(middle.plus(Duration::from_secs(600)))),
        ..LogFilter::default()
    };
    let found = runtime.block_on(querier.page(ListQuery::Logs(around.clone())))?;
    let flux_id = found.rows.iter().find_map(|row| row["flux_id"].as_str());
    let flux_id: FluxId = flux_id.ok_or("no flux id")?.parse()?;
    timed("logs by flux id, hit", || logs(flux_id))?;
    timed("logs by flux id, miss", || logs(FluxId::at(middle, [9; 10])))?;
    timed("one trace with its logs, hit", || trace(trace_id))?;
    timed("one trace, miss", || trace(TraceId::from_entropy([9; 16])))?;
    std::process::exit(0)
}

/// The median of as many as `timed` in the other parts, and what one of them read.
fn timed(name: &str, run: impl Fn() -> Result<(usize, QueryStats), Failure>) -> Result<(), Failure> {
    let mut times = Vec::new();
    let mut last = (0, QueryStats::default());
    for round in 0..9 {
        let began = Instant::now();
        last = run()?;
        if round >= 2 {
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    let (rows, stats) = last;
    println!(
        "ids: {name}: {:.2} ms, {rows} rows, {} of {} files read, {} pruned, {} bytes",
        median(&mut times),
        stats.files_read,
        stats.files_considered,
        stats.files_pruned,
        stats.bytes_read
    );
    Ok(())
}
