//! NDJSON over HTTP → durable: rows per second, and what they cost the Mixer.
//!
//! Method: the release Mixer with default settings in a temporary folder; `BENCH_CONNECTIONS` (4) keep-alive connections over
//! loopback send bodies of 10,000 log lines, made beforehand, 40 of them again and again until `BENCH_ROWS` (2,000,000) are
//! answered with 200. The clients share the machine's cores. CPU and peak memory are the kernel's figures of the Mixer's
//! process: when the last row was answered, and when no row waits to be published any more.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use benches::data::Source;
use benches::{cost, load, setting};
use harness::{Failure, TestMixer, eventually};
use model::batch::row_json;
use model::{Table, Timestamp};

const LINES: usize = 10_000;
const BODIES: usize = 40;

/// Bodies whose rows happened in the last seconds.
fn bodies() -> Result<Vec<String>, Failure> {
    let mut source = Source::new(7);
    let now = Timestamp::from(SystemTime::now());
    let mut bodies = Vec::with_capacity(BODIES);
    for body in 0..BODIES {
        let batch = source.batch(Table::Logs, LINES)?;
        let mut text = String::new();
        for row in 0..LINES {
            let mut line = row_json(&batch, row);
            let age = Duration::from_micros(((BODIES - body) * LINES - row) as u64 * 50);
            line.insert("ts".to_owned(), now.minus(age).to_string().into());
            writeln!(text, "{}", serde_json::Value::from(line))?;
        }
        bodies.push(text);
    }
    Ok(bodies)
}

#[allow(clippy::cast_precision_loss, reason = "counts and seconds of a bench")]
fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    let (rows, connections) = (setting("BENCH_ROWS", 2_000_000), setting("BENCH_CONNECTIONS", 4));
    let bodies = bodies()?;
    let bytes: usize = bodies.iter().map(String::len).sum();
    println!("{:.0} bytes per NDJSON row", bytes as f64 / (BODIES * LINES) as f64);
    let mut mixer = TestMixer::start("[observability.embedded]\nflush_interval = \"5s\"\n")?;
    let pid = mixer.process()?.pid().as_raw();
    let before = cost(pid);
    let next = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        let send = || -> Result<(), Failure> {
            let api = mixer.api.clone();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at * LINES as u64 >= rows {
                    return Ok(());
                }
                let body = bodies.get(at as usize % BODIES).map_or("", String::as_str);
                let headers = [("Content-Type", "application/x-ndjson")];
                let answer = api.send("/api/v1/ingest/logs", &headers, body.as_bytes())?;
                if answer.status != 200 || answer.json["data"]["stored"] != LINES {
                    return Err(format!("{} {}", answer.status, answer.text).into());
                }
            }
        };
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(send)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a client died")?)
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let (answered, millions) = (cost(pid), rows as f64 / 1e6);
    println!(
        "answered: {:.0} rows/s, {:.2} CPU s per million rows, peak {:.0} MiB",
        rows as f64 / seconds,
        (answered.cpu_seconds - before.cpu_seconds) / millions,
        answered.peak_mib
    );
    eventually("every row in a file", Duration::from_secs(120), || {
        let storage = mixer.api.get("/api/v1/storage").ok()?.json;
        (storage["data"]["hot_rows"] == 0).then_some(())
    })?;
    let published = cost(pid);
    println!(
        "published: {:.2} CPU s per million rows, peak {:.0} MiB",
        (published.cpu_seconds - before.cpu_seconds) / millions,
        published.peak_mib
    );
    println!("load after: {}", load());
    Ok(())
}
