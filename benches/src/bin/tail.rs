//! Live tail: how late rows are at many followers of a steady stream, and what that costs the Mixer.
//!
//! Method: the release Mixer with default settings in a temporary folder. `BENCH_FOLLOWERS` (50) keep-alive connections over loopback follow the
//! logs without a filter; one connection posts `BENCH_RATE` (20,000) rows a second as NDJSON, in bodies of 200 rows at an even pace, for
//! `BENCH_SECONDS` (30). A row's message has its number and the time at which its body was about to be sent. Each follower checks every
//! number against the one before, and notes how old every 16th row is when it is read: that is the lag, from before the request to the reader, the
//! row's durability included. Missed are numbers that did not come, beside what the Mixer said was missed; repeated ones end the bench. Followers and the
//! sender share the machine's cores with the Mixer. CPU and peak memory are the kernel's figures of the Mixer's process, from before the first
//! row to the last; the same stream without followers comes first, for comparison.

use std::io::BufRead;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use benches::{Cost, cost, load, quantile, setting};
use harness::tail::Tail;
use harness::{Api, Failure, TestMixer};
use model::Timestamp;

/// Rows of a body.
const ROWS: u64 = 200;
/// Every so many rows the lag is noted.
const NOTED: u64 = 16;

fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    let followers = setting("BENCH_FOLLOWERS", 50);
    for followers in [0, followers] {
        measure(followers)?;
    }
    println!("load after: {}", load());
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
fn measure(followers: u64) -> Result<(), Failure> {
    let (rate, seconds) = (setting("BENCH_RATE", 20_000), setting("BENCH_SECONDS", 30));
    let all = rate * seconds / ROWS * ROWS;
    let mut mixer = TestMixer::start("[observability.embedded]\nflush_interval = \"5s\"\n")?;
    let pid = mixer.process()?.pid().as_raw();
    let tails: Result<Vec<Tail>, Failure> = (0..followers).map(|_| Tail::open(&mixer.api, "", None)).collect();
    let before = cost(pid);
    let (told, started) = (AtomicU64::new(0), Instant::now());
    let (read, sent) = std::thread::scope(|scope| {
        let reading = |tail| {
            let told = &told;
            scope.spawn(move || read(tail, all, told))
        };
        let reading: Vec<_> = tails?.into_iter().map(reading).collect();
        let sent = post(&mixer.api, rate, all);
        let read: Result<Vec<Read>, Failure> = reading
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a follower died")?)
            .collect();
        Ok::<_, Failure>((read?, sent?))
    })?;
    let (took, after) = (started.elapsed().as_secs_f64(), cost(pid));
    let spent = Cost {
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        ..after
    };
    let missed: u64 = read.iter().map(|read| read.missed).sum();
    let mut lags: Vec<f64> = read.into_iter().flat_map(|read| read.lags).collect();
    lags.sort_by(f64::total_cmp);
    println!(
        "{followers} followers, {:.0} rows/s for {took:.1} s (behind its pace by {:.2} s at the end): lag p50 {:.1} ms, p99 {:.1} ms, worst {:.1} ms; \
         missed {missed} (told {}); {:.2} CPU s of the Mixer, {:.2} a second, peak {:.0} MiB",
        all as f64 / took,
        sent,
        quantile(&lags, 0.5),
        quantile(&lags, 0.99),
        quantile(&lags, 1.0),
        told.load(Ordering::Relaxed),
        spent.cpu_seconds,
        spent.cpu_seconds / took,
        spent.peak_mib,
    );
    Ok(())
}

/// Microseconds since 1970.
fn now() -> u64 {
    let now = Timestamp::from(SystemTime::now()).micros();
    u64::try_from(now).unwrap_or(0)
}

/// Posts rows at an even pace; by how many seconds the last body was late.
fn post(api: &Api, rate: u64, all: u64) -> Result<f64, Failure> {
    let (start, mut late) = (Instant::now(), Duration::ZERO);
    let mut body = String::new();
    for first in (0..all).step_by(usize::try_from(ROWS)?) {
        let due = start + Duration::from_micros(first * 1_000_000 / rate);
        let wait = due.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            late = due.elapsed();
        } else {
            std::thread::sleep(wait);
        }
        body.clear();
        let (micros, ts) = (now(), Timestamp::from(SystemTime::now()));
        for number in first..first + ROWS {
            use std::fmt::Write as _;
            writeln!(
                body,
                "{{\"ts\":\"{ts}\",\"level\":\"info\",\"message\":\"row {number} {micros} GET /api/v2/items 200 in 12 ms\",\"attributes\":{{\"http.status\":200,\"host\":\"web-7\"}}}}"
            )?;
        }
        let answer = api.send(
            "/api/v1/ingest/logs",
            &[("Content-Type", "application/x-ndjson")],
            body.as_bytes(),
        )?;
        if answer.status != 200 {
            return Err(format!("{} {}", answer.status, answer.text).into());
        }
    }
    Ok(late.as_secs_f64())
}

/// What one follower saw.
struct Read {
    missed: u64,
    /// In milliseconds.
    lags: Vec<f64>,
}

/// Reads until the last row.
#[allow(clippy::cast_precision_loss, reason = "milliseconds of a bench")]
fn read(tail: Tail, all: u64, told: &AtomicU64) -> Result<Read, Failure> {
    let mut reader = tail.into_reader();
    let (mut next, mut missed) = (0, 0);
    let (mut line, mut lags) = (Vec::new(), Vec::new());
    while next < all {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Err("a stream has ended".into());
        }
        if let Some(said) = line.strip_prefix(b"data: {\"missed\":") {
            let digits = said.iter().take_while(|byte| byte.is_ascii_digit());
            let rows = digits.fold(0, |sum, byte| sum * 10 + u64::from(byte - b'0'));
            told.fetch_add(rows, Ordering::Relaxed);
            continue;
        }
        let Some((number, micros)) = row(&line) else { continue };
        if number < next {
            return Err(format!("row {number} came again, after {next}").into());
        }
        missed += number - next;
        next = number + 1;
        if number % NOTED == 0 {
            lags.push(now().saturating_sub(micros) as f64 / 1e3);
        }
    }
    Ok(Read { missed, lags })
}

/// The number and the time in a row's message.
fn row(line: &[u8]) -> Option<(u64, u64)> {
    const BEFORE: &[u8] = b"\"message\":\"row ";
    let at = line.windows(BEFORE.len()).position(|window| window == BEFORE)?;
    let rest = std::str::from_utf8(line.get(at + BEFORE.len()..)?).ok()?;
    let mut words = rest.split(' ');
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}
