//! From acknowledged to visible.
//!
//! Method: one connection stores log rows (`benches::data`, as Arrow streams) in four bodies a second, paced by the clock; when each is acknowledged
//! is noted. Meanwhile a client loads the table from the catalogue every 100 ms. Rows become visible in the order in which they were acknowledged,
//! so those of a body are visible in the first table whose snapshot has as many rows as had been acknowledged by then. After the time that is
//! measured rows go on coming until all of it are visible, so that no row is left out because it took long. `BENCH_SECONDS` overrules how
//! long that is.
//!
//! Behind a bucket with the default `upload_interval` of 60 s and with 5 s. In a folder rows wait until their file is sealed, which its size or
//! the end of its hour decides; first by its size, by default 128 MiB and the least that can be set, 1 MiB: all rows have times of one hour. Then by the end of the
//! hour: the Mixer's clock is set to 75 s before one (a library that is preloaded; it needs a C compiler), rows come for 45 s, and the time from
//! the end of the hour to the table that has them is the part that does not depend on when in the hour a row came.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use benches::data::Source;
use benches::feed::runtime;
use benches::{cost, quantile, setting};
use harness::stepped_clock::SteppedClock;
use harness::{Api, Failure, TestMixer, TestS3};
use model::Timestamp;

use super::catalog_mixer::{PublishedLogs, at_bucket, in_folder, published_logs, send_rows};

/// Bodies a second.
const BODIES: u32 = 4;
/// The time between two loads of the table.
const POLL: Duration = Duration::from_millis(100);
/// How long rows may take until they are visible.
const PATIENCE: Duration = Duration::from_secs(1_800);
const HOUR: i64 = 3_600_000_000;
/// How long before the end of the hour the Mixer's clock begins.
const BEFORE_HOUR_END: i64 = 75_000_000;

/// A store, and what it gets.
struct LagCase {
    name: &'static str,
    is_at_bucket: bool,
    keys: &'static [(&'static str, &'static str)],
    rate: u64,
    seconds: u64,
}

const CASES: [LagCase; 4] = [
    LagCase {
        name: "bucket, default settings (upload_interval 60 s)",
        is_at_bucket: true,
        keys: &[],
        rate: 1_000,
        seconds: 600,
    },
    LagCase {
        name: "bucket, upload_interval 5 s",
        is_at_bucket: true,
        keys: &[("observability.embedded.storage.upload_interval", "\"5s\"")],
        rate: 1_000,
        seconds: 300,
    },
    LagCase {
        name: "folder, segment_size_mb 1",
        is_at_bucket: false,
        keys: &[("observability.embedded.storage.segment_size_mb", "1")],
        rate: 20_000,
        seconds: 180,
    },
    LagCase {
        name: "folder, default settings (segment_size_mb 128)",
        is_at_bucket: false,
        keys: &[],
        rate: 20_000,
        seconds: 600,
    },
];

/// Rows that come, and when they were acknowledged.
#[derive(Default)]
struct LagFeed {
    ended: AtomicBool,
    /// For each body when it was acknowledged, and all rows until then.
    bodies: Mutex<Vec<(Instant, u64)>>,
}

impl LagFeed {
    /// Sends `rate` rows a second until it is told to end; by a clock that is so far ahead, and all of one hour.
    fn run(&self, api: &Api, rate: u64, ahead: Duration) -> Result<(), Failure> {
        let (each, began) = (rate.div_ceil(u64::from(BODIES)), Instant::now());
        let mut source = Source::new(7);
        let last = Timestamp::from_micros(hour_end(now().plus(ahead)) - 1);
        for at in 0u32.. {
            let due = Duration::from_secs(1) * at / BODIES;
            std::thread::sleep(due.saturating_sub(began.elapsed()));
            if self.ended.load(Ordering::Relaxed) {
                break;
            }
            send_rows(api, &mut source, each, now().plus(ahead).min(last))?;
            let mut bodies = self.bodies.lock().map_err(|_| "the client died")?;
            bodies.push((Instant::now(), each * (u64::from(at) + 1)));
        }
        Ok(())
    }

    fn acknowledged(&self) -> Result<Vec<(Instant, u64)>, Failure> {
        Ok(self.bodies.lock().map_err(|_| "the sender died")?.clone())
    }
}

fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

/// The end of the hour of a moment, in microseconds.
fn hour_end(at: Timestamp) -> i64 {
    (at.micros().div_euclid(HOUR) + 1) * HOUR
}

/// What was seen of the rows.
struct LagOutcome {
    /// Seconds of each body, sorted.
    lags: Vec<f64>,
    /// When all of them were visible.
    end: Instant,
    published: PublishedLogs,
}

pub(crate) fn measure() -> Result<(), Failure> {
    let runtime = runtime()?;
    for case in &CASES {
        let server = match case.is_at_bucket {
            true => Some(runtime.block_on(TestS3::start())?),
            false => None,
        };
        let mut mixer = match &server {
            Some(server) => at_bucket(&server.url(), case.keys)?,
            None => in_folder(case.keys, &[])?,
        };
        let seconds = setting("BENCH_SECONDS", case.seconds);
        let span = Duration::from_secs(seconds);
        let seen = while_fed(&mixer.api, (case.rate, Duration::ZERO), |feed| {
            observe(&mixer.api, feed, (span, RowFlow::On))
        })?;
        println!(
            "lag, {}: {} rows/s for {seconds} s: p50 {:.1} s, p99 {:.1} s, most {:.1} s",
            case.name,
            case.rate,
            quantile(&seen.lags, 0.5),
            quantile(&seen.lags, 0.99),
            quantile(&seen.lags, 1.0)
        );
        print_cost(&mut mixer, &seen.published)?;
    }
    at_hour_end()
}

fn print_cost(mixer: &mut TestMixer, published: &PublishedLogs) -> Result<(), Failure> {
    let spent = cost(mixer.process()?.pid().as_raw());
    println!(
        "  {} rows in {} files, version {}; the Mixer {:.1} CPU s, peak {:.0} MiB",
        published.rows, published.files, published.version, spent.cpu_seconds, spent.peak_mib
    );
    Ok(())
}

/// Does something while rows come.
fn while_fed<T>(
    api: &Api,
    (rate, ahead): (u64, Duration),
    what: impl FnOnce(&LagFeed) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let feed = LagFeed::default();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| feed.run(api, rate, ahead));
        let done = what(&feed);
        feed.ended.store(true, Ordering::Relaxed);
        sender.join().map_err(|_| "the sender panicked")??;
        done
    })
}

/// Whether rows go on coming when the time that is measured is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowFlow {
    On,
    Ends,
}

/// Loads the table until all rows of a time are visible, and says how long each body took.
fn observe(api: &Api, feed: &LagFeed, (span, going): (Duration, RowFlow)) -> Result<LagOutcome, Failure> {
    let began = Instant::now();
    let (mut seen, mut measured): (Vec<(Instant, u64)>, Option<u64>) = (Vec::new(), None);
    let mut published = PublishedLogs::default();
    while measured.is_none_or(|rows| published.rows < rows) {
        if began.elapsed() > span + PATIENCE {
            return Err(format!("{measured:?} rows are acknowledged, and {published:?} visible").into());
        }
        published = published_logs(api).unwrap_or_default();
        if seen.last().is_none_or(|(_, known)| published.rows > *known) {
            seen.push((Instant::now(), published.rows));
        }
        if measured.is_none() && began.elapsed() >= span {
            if going == RowFlow::Ends {
                feed.ended.store(true, Ordering::Relaxed);
            }
            measured = feed.acknowledged()?.last().map(|(_, rows)| *rows);
        }
        std::thread::sleep(POLL);
    }
    let rows = measured.unwrap_or_default();
    let bodies = feed.acknowledged()?;
    let lags = bodies.iter().filter(|(_, until)| *until <= rows).map(|(at, until)| {
        let visible = seen.iter().find(|(_, rows)| rows >= until);
        visible.map(|(then, _)| then.saturating_duration_since(*at).as_secs_f64())
    });
    let lags: Option<Vec<f64>> = lags.collect();
    let mut lags = lags.ok_or("rows are visible that were not seen")?;
    lags.sort_by(f64::total_cmp);
    let end = seen.last().map_or(began, |(at, _)| *at);
    Ok(LagOutcome { lags, end, published })
}

/// The end of an hour, which seals what is not full.
fn at_hour_end() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let clock = match SteppedClock::new(folder.path(), "mixer") {
        Ok(clock) => clock,
        Err(lacking) => {
            println!("lag, the end of an hour: {lacking}");
            return Ok(());
        }
    };
    let started = now();
    let ahead = (hour_end(started) - BEFORE_HOUR_END - started.micros()).rem_euclid(HOUR) / 1_000_000;
    clock.step_to(ahead)?;
    let ahead = Duration::from_secs(u64::try_from(ahead)?);
    let end = hour_end(now().plus(ahead));
    let mut mixer = in_folder(&[], &clock.envs())?;
    let seen = while_fed(&mixer.api, (1_000, ahead), |feed| {
        observe(&mixer.api, feed, (Duration::from_secs(45), RowFlow::Ends))
    })?;
    let visible = now().plus(ahead).micros() - i64::try_from(seen.end.elapsed().as_micros())?;
    let after = (visible - end) as f64 / 1e6;
    println!(
        "lag, folder, default settings, the end of the hour: visible {after:.1} s after it, so {:.1} s (p50) and {:.1} s (p99) for rows at an even rate \
         that fill no file",
        after + 1_800.0,
        after + 3_564.0
    );
    print_cost(&mut mixer, &seen.published)
}
