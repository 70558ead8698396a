//! The questions of operators and analysts, put to the Mixer over REST and to other engines on its files, in one run.
//!
//! Method: `make` fills a store with 48 hours of `BENCH_LOGS` (10,000,000) log rows, as many metric points (`BENCH_POINTS`) and
//! `BENCH_SPANS` (5,000,000) spans, through the engine, sealed and indexed, in a process of its own; twelve log rows hold a text that no other has. Then
//! the Mixer's binary is started on it with default settings (its retention apart), and `benches/queries.py` asks: `BENCH_ROUNDS` (7) rounds
//! after two, every engine in turn, medians, and every answer compared. `BENCH_PYTHON` names a Python with the packages of
//! `benches/requirements.txt`; `BENCH_QUERY_PEERS` (duckdb,datafusion,polars,clickhouse,mergetree) says which others are asked. The file cache is warm.
//!
//! # Not here
//!
//! What an answer costs without HTTP: `bench-store query`.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use benches::data::{START, Source};
use benches::feed::{batch, open, runtime, seal_all, text, this};
use benches::{load, setting};
use engine::Engine;
use harness::{Failure, TestMixer};
use model::wire::encode_arrow;
use model::{Attributes, EntityId, Level, LogRecord, Record, Table, Timestamp};
use serde_json::json;

const HOURS: i64 = 48;
const HOUR: i64 = 3_600_000_000;
/// A text that twelve rows have.
const NEEDLE: &str = "quorum of shard xk-4711 was lost";
const NEEDLES: i64 = 12;
/// Rows of a batch: a large one, so that filling the store is quick.
const ROWS: usize = 4096;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["make", store] => runtime()?.block_on(make(Path::new(store))),
        [] => compare(),
        _ => Err("usage: bench-queries".into()),
    }
}

fn compare() -> Result<(), Failure> {
    let python = std::env::var_os("BENCH_PYTHON").ok_or("BENCH_PYTHON names no Python; benches/run.sh sets it")?;
    println!("load before: {}", load());
    let mut mixer = TestMixer::start("[observability.embedded.rotation]\nmax_age_days = 36500\n")?;
    mixer.process()?.terminate(Duration::from_secs(30))?;
    let telemetry = mixer.telemetry();
    this(&["make", &text(telemetry.parent().ok_or("no store")?)])?;
    mixer.restart()?;
    let row = |path: &str, name: &str| -> Result<String, Failure> {
        let rows = mixer.api.rows(path)?;
        let found = rows.iter().find_map(|row| row[name].as_str());
        Ok(found.ok_or_else(|| format!("no {name}"))?.to_owned())
    };
    let middle = Timestamp::from_micros(START.micros() + HOURS * HOUR / 2);
    let around = format!(
        "since={middle}&until={}&limit=1000",
        middle.plus(Duration::from_secs(600))
    );
    let newest = format!("since={START}&limit=1");
    let work = tempfile::tempdir_in(mixer.path())?;
    let setup = json!({
        "api": mixer.api.base,
        "tree": telemetry,
        "work": work.path(),
        "end": row(&format!("/api/v1/telemetry/logs?{newest}"), "ts")?,
        "flux_id": row(&format!("/api/v1/telemetry/logs?{around}"), "flux_id")?,
        "trace_id": row(&format!("/api/v1/telemetry/traces?{around}"), "trace_id")?,
        "needle": NEEDLE,
        "rounds": setting("BENCH_ROUNDS", 7),
        "peers": std::env::var("BENCH_QUERY_PEERS").unwrap_or_else(|_| "duckdb,datafusion,polars,clickhouse,mergetree".to_owned()).split(',').collect::<Vec<_>>(),
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("queries.py");
    let status = Command::new(python).arg(script).arg(setup.to_string()).status()?;
    println!("load after: {}", load());
    if status.success() {
        Ok(())
    } else {
        Err(format!("queries.py ended with {status}").into())
    }
}

/// Fills a store, table beside table, as time goes by.
async fn make(store: &Path) -> Result<(), Failure> {
    let (engine, now) = open(store, |settings| {
        settings.flush_interval = Duration::from_secs(1);
        // Rows come up to ten minutes late: their hour's file is still open.
        settings.seal_grace = Duration::from_secs(1_200);
        settings.seal_rest = Duration::from_millis(1);
        settings.max_age = Duration::from_secs(400 * 86_400);
    })
    .await?;
    let source = |table, name, rows| {
        let rate = setting(name, rows).cast_signed().div_euclid(HOURS * 3_600).max(1);
        (table, Source::with_rate(11, rate))
    };
    let mut sources = [
        source(Table::Logs, "BENCH_LOGS", 10_000_000),
        source(Table::Metrics, "BENCH_POINTS", 10_000_000),
        source(Table::Traces, "BENCH_SPANS", 5_000_000),
    ];
    let end = START.micros() + HOURS * HOUR;
    let (mut seq, mut needles) = (0, 0);
    while let Some((table, source)) = sources.iter_mut().min_by_key(|(_, source)| source.now()) {
        if source.now().micros() >= end {
            break;
        }
        let rows = source.batch(*table, ROWS)?;
        let at = source.now();
        now.fetch_max(at.micros(), Ordering::Relaxed);
        seq += 1;
        let payload = encode_arrow(&[rows])?.into();
        engine.append(batch(*table, seq, &payload)?).await?;
        if at.micros() >= START.micros() + (2 * needles + 1) * HOURS * HOUR / (2 * NEEDLES) {
            needles += 1;
            seq += 1;
            append_needle(&engine, seq, at).await?;
        }
    }
    engine.flush().await?;
    seal_all(&engine, &now).await?;
    engine.index_all().await?;
    let stats = engine.stats();
    println!(
        "store: {} rows in {} files of {} MiB, indexes of {} MiB",
        stats.file_rows,
        stats.files,
        stats.file_bytes >> 20,
        stats.index_bytes >> 20
    );
    engine.close().await?;
    Ok(())
}

async fn append_needle(engine: &Arc<Engine>, seq: u64, ts: Timestamp) -> Result<(), Failure> {
    let row = LogRecord {
        ts,
        entity_id: EntityId::for_name("db-03"),
        entity_name: "db-03".to_owned(),
        flux_id: None,
        level: Level::Warn,
        message: format!("{NEEDLE}, electing anew"),
        attributes: Attributes::new(),
    };
    let payload = encode_arrow(&[LogRecord::to_batch(&[row])?])?.into();
    engine.append(batch(Table::Logs, seq, &payload)?).await?;
    Ok(())
}
