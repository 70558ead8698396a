//! The questions of operators and analysts, put to the Mixer over REST and as statements, and to other engines on its files, in one run.
//!
//! Method: a store of two days as `benches/src/days.rs` makes it, or with `BENCH_OPEN=1` of eighteen hours whose files are all open. Then the Mixer's binary is started on it with default settings (its retention apart), and `benches/queries.py` asks: `BENCH_ROUNDS` (7) rounds
//! after two, every engine in turn, medians, and every answer compared. `BENCH_PYTHON` names a Python with the packages of
//! `benches/requirements.txt`; `BENCH_QUERY_PEERS` (duckdb,datafusion,polars,clickhouse,mergetree) says which others are asked. The file cache is warm.
//!
//! # Not here
//!
//! What an answer costs without HTTP: `bench-store query`.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use benches::data::START;
use benches::days::{HOUR, NEEDLE, SEALED_AFTER, hours, is_open, make, mixer, some};
use benches::feed::runtime;
use benches::{load, setting};
use harness::Failure;
use model::Timestamp;
use serde_json::json;

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
    let mixer = mixer("")?;
    let begun = Instant::now();
    let telemetry = mixer.telemetry();
    let middle = Timestamp::from_micros(START.micros() + hours() * HOUR / 2);
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
        "end": some(&mixer, &format!("/api/v1/telemetry/logs?{newest}"), "ts")?,
        "flux_id": some(&mixer, &format!("/api/v1/telemetry/logs?{around}"), "flux_id")?,
        "trace_id": some(&mixer, &format!("/api/v1/telemetry/traces?{around}"), "trace_id")?,
        "needle": NEEDLE,
        "rounds": setting("BENCH_ROUNDS", 7),
        "peers": std::env::var("BENCH_QUERY_PEERS").unwrap_or_else(|_| "duckdb,datafusion,polars,clickhouse,mergetree".to_owned()).split(',').collect::<Vec<_>>(),
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("queries.py");
    let status = Command::new(python).arg(script).arg(setup.to_string()).status()?;
    println!("load after: {}", load());
    if is_open() && begun.elapsed() > SEALED_AFTER {
        return Err("files were sealed before the last question was asked: give BENCH_ROUNDS fewer".into());
    }
    if status.success() {
        Ok(())
    } else {
        Err(format!("queries.py ended with {status}").into())
    }
}
