//! NDJSON over HTTP → durable: rows per second, and what they cost the Mixer; next to DuckDB and ClickHouse with the same file.
//!
//! Method: `BENCH_ROWS` (5,000,000) log lines are written to one file beforehand, their times the last seconds. Ours: the
//! release Mixer with default settings in a temporary folder; `BENCH_CONNECTIONS` (4) keep-alive connections over loopback read
//! 10,000 lines at a time from the file and post them, until all are answered with 200. The clients share the machine's cores.
//! CPU and peak memory are the kernel's figures of the Mixer's process: when the last row was answered (durable and visible),
//! and when no row waits to be published into Parquet any more. Theirs: `benches/peers.py`, each a process of its own that
//! reads the file as JSON and writes Parquet, or a MergeTree, with zstd, and syncs what it wrote. In turn, three rounds
//! (`BENCH_ROUNDS`); the peers are left out where their Python packages are not installed (`BENCH_PEERS=1 benches/run.sh` installs them).

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use benches::lines::{self, LINES, write_lines};
use benches::{cost, load, median, setting};
use harness::{Failure, TestMixer, eventually};
use model::Table;

const PEERS: [&str; 3] = ["duckdb-parquet", "clickhouse-parquet", "clickhouse-mergetree"];

fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    let rounds = setting("BENCH_ROUNDS", 3);
    let root = std::env::var_os("BENCH_FOLDER").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(root)?;
    let path = folder.path().join("logs.ndjson");
    let bodies = write_lines(&path, Table::Logs, usize::try_from(setting("BENCH_ROWS", 5_000_000))?)?;
    let mut figures: Vec<(String, Vec<f64>, Vec<f64>)> = Vec::new();
    for _ in 0..rounds {
        note(&mut figures, "ours", post(&path, &bodies)?);
        for peer in PEERS {
            if let Some(figure) = peer_of(peer, &path, bodies.len() * LINES)? {
                note(&mut figures, peer, figure);
            }
        }
    }
    for (name, speeds, costs) in &mut figures {
        let (speed, cost) = (median(speeds), median(costs));
        println!("{name}: median {speed:.0} rows/s, {cost:.2} CPU s per million rows");
    }
    println!("load after: {}", load());
    Ok(())
}

fn note(figures: &mut Vec<(String, Vec<f64>, Vec<f64>)>, name: &str, (speed, cost): (f64, f64)) {
    let at = figures.iter().position(|(other, ..)| other == name).unwrap_or_else(|| {
        figures.push((name.to_owned(), Vec::new(), Vec::new()));
        figures.len() - 1
    });
    figures[at].1.push(speed);
    figures[at].2.push(cost);
}

/// Rows per second and CPU seconds per million rows.
#[allow(clippy::cast_precision_loss, reason = "counts and seconds of a bench")]
fn post(path: &Path, bodies: &[(u64, usize)]) -> Result<(f64, f64), Failure> {
    let mut mixer = TestMixer::start("[observability.embedded]\nflush_interval = \"5s\"\n")?;
    let pid = mixer.process()?.pid().as_raw();
    let before = cost(pid);
    let started = Instant::now();
    let connections = setting("BENCH_CONNECTIONS", 4);
    lines::post(&mixer.api, Table::Logs, path, connections, bodies.iter().copied())?;
    let seconds = started.elapsed().as_secs_f64();
    let rows = (bodies.len() * LINES) as f64;
    let millions = rows / 1e6;
    let answered = cost(pid);
    let storage = eventually("every row in a file", Duration::from_secs(120), || {
        let storage = mixer.api.get("/api/v1/storage").ok()?.json;
        (storage["data"]["hot_rows"] == 0).then_some(storage)
    })?;
    let (published, after) = (cost(pid), started.elapsed().as_secs_f64());
    let spent = published.cpu_seconds - before.cpu_seconds;
    println!(
        "ours: answered {:.0} rows/s, {:.2} CPU s per million rows; published {:.0} rows/s, {:.2} CPU s per million rows, peak {:.0} MiB, {:.1} bytes per row",
        rows / seconds,
        (answered.cpu_seconds - before.cpu_seconds) / millions,
        rows / after,
        spent / millions,
        published.peak_mib,
        storage["data"]["bytes"].as_f64().unwrap_or(0.0) / rows,
    );
    Ok((rows / seconds, spent / millions))
}

/// The same of a peer; `None` where it is not installed.
#[allow(clippy::cast_precision_loss, reason = "counts and seconds of a bench")]
fn peer_of(name: &str, path: &Path, rows: usize) -> Result<Option<(f64, f64)>, Failure> {
    let Some(python) = std::env::var_os("BENCH_PYTHON") else {
        return Ok(None);
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers.py");
    let output = Command::new(python).arg(script).arg(name).arg(path).output()?;
    std::io::stderr().write_all(&output.stderr)?;
    if !output.status.success() {
        return Err(format!("{name} ended with {}", output.status).into());
    }
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let figure = |key: &str| figures[key].as_f64().unwrap_or(0.0);
    if figure("rows") != rows as f64 {
        return Err(format!("{name} stored {} of {rows} rows", figure("rows")).into());
    }
    let (speed, cost) = (
        rows as f64 / figure("seconds"),
        figure("cpu_seconds") / rows as f64 * 1e6,
    );
    println!(
        "{name}: {speed:.0} rows/s, {cost:.2} CPU s per million rows, peak {:.0} MiB, {:.1} bytes per row",
        figure("peak_mib"),
        figure("bytes") / rows as f64
    );
    Ok(Some((speed, cost)))
}
