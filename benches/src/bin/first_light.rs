//! From a line in a file to a row in a query, through every process: latency at 1,000 rows/s, and throughput.
//!
//! Method: the release binaries and a real bus in a temporary folder, default intervals. Latency: a writer appends numbered
//! lines, a poller asks REST for the newest rows (and DuckDB over the live tree); a line counts as visible when an answer
//! holds it or a later one. Throughput: a file of `rows` lines exists before the Rack starts; the clock runs from the first
//! row in REST until the last line is in an answer. CPU and peak memory are the kernel's figures of each process.
//! `BENCH_ROWS` (1,000,000) and `BENCH_SECONDS` (30) change the size.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use benches::{Cost, cost, load, quantile, setting};
use harness::{Api, Failure, TestMixer, TestRack, duckdb, eventually, gear_files, process};

fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    latency(setting("BENCH_SECONDS", 30))?;
    throughput(setting("BENCH_ROWS", 1_000_000))?;
    println!("load after: {}", load());
    Ok(())
}

/// A Mixer with default intervals and one Rack that follows `file`.
fn start(file: &Path, folder: &Path) -> Result<(TestMixer, TestRack), Failure> {
    let scenario = folder.join("scenario.yaml");
    let yaml = format!(
        "meta: {{ name: bench, version: '1' }}\nracks: [ {{ name: rack-a }} ]\ngears:\n  \
         - {{ name: tail, type: file_tail, deploy: rack-a, config: {{ path: {:?} }} }}\n",
        file.display().to_string()
    );
    std::fs::write(&scenario, yaml)?;
    let mixer = TestMixer::start(&format!(
        "[mixer]\nstartup_scenario = {:?}\n[observability.embedded]\nflush_interval = \"5s\"\n",
        scenario.display().to_string()
    ))?;
    let rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    Ok((mixer, rack))
}

/// The greatest line number among the newest rows.
fn newest(api: &Api) -> Option<u64> {
    let rows = api.rows("/api/v1/telemetry/logs?gear_id=tail&limit=50&since=1h").ok()?;
    rows.iter()
        .filter_map(|row| number(row.get("message")?.as_str()?))
        .max()
}

fn number(message: &str) -> Option<u64> {
    message.strip_prefix("line ")?.split_whitespace().next()?.parse().ok()
}

fn line(at: u64) -> String {
    let level = if at.is_multiple_of(50) { "WARN" } else { "INFO" };
    format!(
        "line {at:09} {level} request {:08x} of user {} took {} ms, status 200\n",
        at.wrapping_mul(0x9e37_79b9),
        at % 971,
        at % 83
    )
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds and counts of a bench")]
fn latency(seconds: u64) -> Result<(), Failure> {
    let folder = gear_files()?;
    let file = folder.path().join("app.log");
    let (mixer, mut rack) = start(&file, folder.path())?;
    rack.start()?;
    let written: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (written, stop) = (Arc::clone(&written), Arc::clone(&stop));
        let mut out = process::append_to(&file)?;
        std::thread::spawn(move || -> std::io::Result<()> {
            let begin = Instant::now();
            for at in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                out.write_all(line(at).as_bytes())?;
                written
                    .lock()
                    .map_err(|_| std::io::Error::other("poisoned"))?
                    .push(Instant::now());
                let due = begin + Duration::from_millis(at + 1);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            Ok(())
        })
    };
    let duck = {
        let (stop, written, tree) = (Arc::clone(&stop), Arc::clone(&written), mixer.telemetry());
        std::thread::spawn(move || {
            follow(&stop, &written, || {
                let sql = format!(
                    "select max(split_part(message, ' ', 2)::bigint) from read_parquet('{}/logs/**/*.parquet') where message like 'line %'",
                    tree.display()
                );
                duckdb::scalar(&sql, &tree).ok()?.parse().ok()
            })
        })
    };
    let rest = {
        let (stop, written, api) = (Arc::clone(&stop), Arc::clone(&written), mixer.api.clone());
        std::thread::spawn(move || follow(&stop, &written, || newest(&api)))
    };
    std::thread::sleep(Duration::from_secs(seconds));
    stop.store(true, Ordering::Relaxed);
    writer.join().map_err(|_| "the writer died")??;
    let rest = rest.join().map_err(|_| "the poller died")?;
    let duck = duck.join().map_err(|_| "the outside reader died")?;
    println!(
        "append to visible at 1,000 rows/s: REST median {:.0} ms, p99 {:.0} ms ({} rows); DuckDB median {:.0} ms, worst {:.0} ms ({} rows)",
        quantile(&rest, 0.5),
        quantile(&rest, 0.99),
        rest.len(),
        quantile(&duck, 0.5),
        quantile(&duck, 1.0),
        duck.len()
    );
    Ok(())
}

/// Asks again and again; gives each line's wait in ms, sorted.
fn follow(stop: &AtomicBool, written: &Mutex<Vec<Instant>>, mut ask: impl FnMut() -> Option<u64>) -> Vec<f64> {
    let mut waits = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if let Some(last) = ask() {
            let now = Instant::now();
            let Ok(written) = written.lock() else { break };
            let seen = usize::try_from(last + 1).unwrap_or(usize::MAX).min(written.len());
            waits.extend(
                written[waits.len().min(seen)..seen]
                    .iter()
                    .map(|at| (now - *at).as_secs_f64() * 1e3),
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    waits.sort_by(f64::total_cmp);
    waits
}

#[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
fn throughput(rows: u64) -> Result<(), Failure> {
    let folder = gear_files()?;
    let file = folder.path().join("app.log");
    let mut text = String::new();
    (0..rows).for_each(|at| {
        let _ = text.write_str(&line(at));
    });
    std::fs::write(&file, &text)?;
    let (mut mixer, mut rack) = start(&file, folder.path())?;
    let begin = Arc::new(AtomicU64::new(0));
    rack.start()?;
    eventually("the first row", Duration::from_secs(60), || newest(&mixer.api))?;
    let clock = Instant::now();
    let first = newest(&mixer.api).unwrap_or(0);
    begin.store(first, Ordering::Relaxed);
    eventually("the last row", Duration::from_secs(600), || {
        (newest(&mixer.api)? + 1 == rows).then_some(())
    })?;
    let seconds = clock.elapsed().as_secs_f64();
    let pids = [
        ("mixer", mixer.process()?.pid()),
        ("bus", mixer.bus_pid()?),
        ("rack", rack.process()?.pid()),
    ];
    let costs: Vec<(&str, Cost)> = pids.iter().map(|(name, pid)| (*name, cost(pid.as_raw()))).collect();
    println!(
        "rack to query: {:.0} rows/s ({} rows of {} bytes in {seconds:.1} s)",
        (rows - first) as f64 / seconds,
        rows - first,
        text.len() as u64 / rows
    );
    for (name, cost) in &costs {
        println!(
            "  {name}: {:.2} CPU s per million rows, peak {:.0} MiB",
            cost.cpu_seconds * 1e6 / rows as f64,
            cost.peak_mib
        );
    }
    let stored = "message like 'line %'";
    eventually("every row in DuckDB", Duration::from_secs(60), || {
        (duckdb::count(&mixer.telemetry(), "logs", stored).ok()? == rows).then_some(())
    })?;
    assert!(
        rack.process()?.terminate(Duration::from_secs(5))?.success(),
        "the rack stops cleanly"
    );
    assert!(
        mixer.process()?.terminate(Duration::from_secs(60))?.success(),
        "the mixer stops cleanly"
    );
    println!(
        "  on disk: {:.1} bytes per row in {} files",
        tree_bytes(&mixer.telemetry().join("logs"))?.0 as f64 / rows as f64,
        tree_bytes(&mixer.telemetry().join("logs"))?.1
    );
    Ok(())
}

fn tree_bytes(folder: &Path) -> Result<(u64, u64), Failure> {
    let mut sum = (0, 0);
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let found = if entry.file_type()?.is_dir() {
            tree_bytes(&entry.path())?
        } else {
            (entry.metadata()?.len(), 1)
        };
        sum = (sum.0 + found.0, sum.1 + found.1);
    }
    Ok(sum)
}
