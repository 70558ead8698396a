//! Resident memory of the Mixer: of logs, then metrics, then traces at full speed, and over a steady stream beside readers.
//!
//! Method: the release Mixer with default settings in a temporary folder, the kernel's figures of its process. The clients share
//! its cores.
//!
//! - `mix`: `BENCH_ROWS` (3,000,000) rows of each table as NDJSON in bodies of 10,000 lines, a table after another in one process, over
//!   `BENCH_CONNECTIONS` (4) keep-alive connections, as fast as they are answered. Rows per second; the peak so far; what stays
//!   resident when every row is in a file.
//! - `steady`: `BENCH_RATE` (30,000) log rows a second as NDJSON for `BENCH_MINUTES` (30), ten bodies a second, 1 % of the rows up to ten minutes late; three
//!   clients ask five times a second for the newest fifty rows of the last hour, a histogram of it, and a text that is in no row.
//!   Each minute: resident memory, what of it belongs to no file, data files, the clients' p50 and p99.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use benches::data::Source;
use benches::lines::{self, LINES, write_lines};
use benches::{anonymous_mib, cost, load, quantile, resident_mib, setting};
use harness::{Api, Failure, TestMixer, eventually};
use model::batch::row_json;
use model::{Table, Timestamp};

const TABLES: [Table; 3] = [Table::Logs, Table::Metrics, Table::Traces];
/// Bodies of the steady stream in a second.
const BODIES: u64 = 10;
/// So many seconds of it are made beforehand, and sent again and again with other times.
const CYCLE: u64 = 10;
const PAUSE: Duration = Duration::from_millis(200);

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    println!("load before: {}", load());
    match words[..] {
        ["mix"] => mix()?,
        ["steady"] => steady()?,
        [] => {
            mix()?;
            steady()?;
        }
        _ => return Err("usage: bench-memory [mix|steady]".into()),
    }
    println!("load after: {}", load());
    Ok(())
}

fn all_published(api: &Api) -> Result<(), Failure> {
    eventually("every row in a file", Duration::from_secs(300), || {
        let storage = api.get("/api/v1/storage").ok()?.json;
        (storage["data"]["hot_rows"] == 0).then_some(())
    })
}

#[allow(clippy::cast_precision_loss, reason = "counts and seconds of a bench")]
fn mix() -> Result<(), Failure> {
    let root = std::env::var_os("BENCH_FOLDER").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(root)?;
    let rows = usize::try_from(setting("BENCH_ROWS", 3_000_000))?;
    let mut files = Vec::new();
    for table in TABLES {
        let path = folder.path().join(format!("{table}.ndjson"));
        files.push((table, write_lines(&path, table, rows)?, path));
    }
    let mut mixer = TestMixer::start("[observability.embedded]\nflush_interval = \"5s\"\n")?;
    let pid = mixer.process()?.pid().as_raw();
    println!(
        "idle: resident {:.0} MiB, anonymous {:.0} MiB",
        resident_mib(pid),
        anonymous_mib(pid)
    );
    for (table, bodies, path) in files {
        let started = Instant::now();
        let connections = setting("BENCH_CONNECTIONS", 4);
        lines::post(&mixer.api, table, &path, connections, bodies.iter().copied())?;
        let speed = (bodies.len() * LINES) as f64 / started.elapsed().as_secs_f64();
        all_published(&mixer.api)?;
        println!(
            "{table}: {speed:.0} rows/s, peak {:.0} MiB; published: resident {:.0} MiB, anonymous {:.0} MiB",
            cost(pid).peak_mib,
            resident_mib(pid),
            anonymous_mib(pid)
        );
    }
    Ok(())
}

/// Lines whose times are set anew before they are sent.
struct Body {
    text: Vec<u8>,
    /// Where the time of each line is, and how late it comes, in µs.
    times: Vec<(usize, i64)>,
}

impl Body {
    fn new(source: &mut Source, rows: usize) -> Result<Self, Failure> {
        const TS: &[u8] = b"\"ts\":\"";
        let batch = source.batch(Table::Logs, rows)?;
        let (mut text, mut times) = (Vec::new(), Vec::new());
        for row in 0..rows {
            let mut line = row_json(&batch, row);
            line.retain(|_, value| !value.is_null());
            let ts: Timestamp = line["ts"].as_str().unwrap_or_default().parse()?;
            let line = serde_json::to_vec(&line)?;
            let at = line.windows(TS.len()).rposition(|window| window == TS).ok_or("no ts")?;
            times.push((text.len() + at + TS.len(), source.now().micros() - ts.micros()));
            text.extend(line);
            text.push(b'\n');
        }
        Ok(Self { text, times })
    }

    fn date(&mut self, now: Timestamp) {
        for (at, late) in &self.times {
            let ts = Timestamp::from_micros(now.micros() - late).to_string();
            self.text[*at..][..ts.len()].copy_from_slice(ts.as_bytes());
        }
    }
}

/// Sends the stream until it is over.
fn stream(api: &Api, mut bodies: Vec<Body>, start: Instant, over: &AtomicBool) -> Result<(), Failure> {
    let count = bodies.len();
    for number in 0u32.. {
        let due = start + Duration::from_secs(1) / u32::try_from(BODIES)? * number;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if over.load(Ordering::Relaxed) {
            return Ok(());
        }
        let body = &mut bodies[number as usize % count];
        body.date(SystemTime::now().into());
        let headers = [("Content-Type", "application/x-ndjson")];
        let answer = api.send("/api/v1/ingest/logs", &headers, &body.text)?;
        if answer.status != 200 {
            return Err(format!("{} {}", answer.status, answer.text).into());
        }
    }
    Ok(())
}

/// Asks one question again and again; milliseconds of each answer go to `took`.
fn ask(api: &Api, question: &str, took: &Mutex<Vec<f64>>, over: &AtomicBool) -> Result<(), Failure> {
    while !over.load(Ordering::Relaxed) {
        let now = Timestamp::from(SystemTime::now());
        let since = Timestamp::from_micros(now.micros() - 3_600_000_000);
        let began = Instant::now();
        let answer = api.get(&format!("/api/v1/telemetry/{question}&since={since}&until={now}"))?;
        if answer.status != 200 {
            return Err(format!("{question}: {} {}", answer.status, answer.text).into());
        }
        took.lock()
            .map_err(|_| "a client died")?
            .push(began.elapsed().as_secs_f64() * 1e3);
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn steady() -> Result<(), Failure> {
    let rows = usize::try_from(setting("BENCH_RATE", 30_000) / BODIES)?;
    let mut source = Source::with_rate(7, i64::try_from(rows)? * i64::try_from(BODIES)?);
    let bodies: Vec<Body> = (0..CYCLE * BODIES)
        .map(|_| Body::new(&mut source, rows))
        .collect::<Result<_, _>>()?;
    let mut mixer = TestMixer::start("[observability.embedded]\nflush_interval = \"5s\"\n")?;
    let pid = mixer.process()?.pid().as_raw();
    let api = &mixer.api;
    let questions = [
        "logs?limit=50",
        "logs/histogram?interval=1m&by=level",
        "logs?limit=50&q=quorum%20of%20shard%20xk-4711",
    ];
    let (over, took) = (AtomicBool::new(false), questions.map(|_| Mutex::default()));
    let start = Instant::now();
    std::thread::scope(|scope| {
        let stream = scope.spawn(|| stream(&Api::new(&api.base), bodies, start, &over));
        let clients: Vec<_> = questions
            .iter()
            .zip(&took)
            .map(|(question, took)| scope.spawn(|| ask(&Api::new(&api.base), question, took, &over)))
            .collect();
        let reported = (1..=setting("BENCH_MINUTES", 30)).try_for_each(|minute| {
            let due = start + Duration::from_secs(60 * minute);
            while Instant::now() < due && !stream.is_finished() {
                std::thread::sleep(Duration::from_millis(100));
            }
            report(api, pid, minute, &took)
        });
        over.store(true, Ordering::Relaxed);
        for thread in clients.into_iter().chain([stream]) {
            thread.join().map_err(|_| "a client died")??;
        }
        reported
    })
}

fn report(api: &Api, pid: i32, minute: u64, took: &[Mutex<Vec<f64>>]) -> Result<(), Failure> {
    let storage = api.get("/api/v1/storage")?.json;
    print!(
        "minute {minute}: resident {:.0} MiB, anonymous {:.0}, peak {:.0}; {} files; p50/p99 ms of list, histogram, rare text:",
        resident_mib(pid),
        anonymous_mib(pid),
        cost(pid).peak_mib,
        storage["data"]["files"]
    );
    for took in took {
        let mut took = std::mem::take(&mut *took.lock().map_err(|_| "a client died")?);
        took.sort_by(f64::total_cmp);
        print!(" {:.0}/{:.0}", quantile(&took, 0.5), quantile(&took, 0.99));
    }
    println!();
    Ok(())
}
