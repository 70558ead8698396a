//! A store behind an object store: what an hour without it leaves, what it is asked for, how old a reader's rows are.
//!
//! | argument | what is measured |
//! |---|---|
//! | `outage [MINUTES]` (60) | the S3 server is away that long at 20,000 rows/s: peak memory, largest record, seconds until nothing older than an interval waits |
//! | `requests [SECONDS]` (600) | requests that write, an hour, while idle and at 10, 1,000 and 100,000 rows/s |
//! | `reader [SECONDS]` (600) | age of the newest row that a read-only Mixer answers with, asked every second, at 1,000 rows/s |
//!
//! Method: the release Mixer with default settings in a temporary folder (`BENCH_FOLDER`), its bucket in a `SeaweedFS` of one process on
//! loopback; both share the machine's cores with the sender. NDJSON over one connection in four bodies a second, paced by the clock: a
//! body that is late is not left out. Each row has its own number; at the end all that were acknowledged are counted. What the bucket is
//! asked for is the Mixer's own count of requests, checkpoints and records included, first without the time of the start.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use benches::feed::runtime;
use benches::{cost, load, quantile, resident_mib};
use harness::s3::{BUCKET, KEY, SECRET};
use harness::{Api, Failure, TestMixer, TestS3, eventually};
use model::Timestamp;
use serde_json::Value;

/// Bodies a second.
const BODIES: u32 = 4;
/// How long anything else may take.
const PATIENCE: Duration = Duration::from_secs(600);

fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    let number = |default| args.next().map_or(Ok(default), |text| text.parse::<u64>());
    match what.as_str() {
        "outage" => outage(Duration::from_secs(60 * { number }(60)?), 20_000)?,
        "requests" => {
            let span = Duration::from_secs({ number }(600)?);
            for rate in [0, 10, 1_000, 100_000] {
                requests(span, rate)?;
            }
        }
        "reader" => reader(Duration::from_secs({ number }(600)?), 1_000)?,
        _ => return Err("say outage, requests or reader".into()),
    }
    println!("load after: {}", load());
    Ok(())
}

/// A Mixer behind the server's bucket.
fn mixer(server: &TestS3, keys: &[(&str, &str)]) -> Result<TestMixer, Failure> {
    let url = format!("\"s3://{BUCKET}/bench\"");
    let usual = [
        ("observability.embedded.storage.url", url.as_str()),
        ("observability.embedded.flush_interval", "\"5s\""),
    ];
    let endpoint = server.url();
    let envs = [
        ("AWS_ACCESS_KEY_ID", KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
    ];
    TestMixer::with(&[&usual, keys].concat(), &envs)
}

/// What rows are sent while it lives.
#[derive(Default)]
struct Feed {
    ended: AtomicBool,
    acknowledged: AtomicU64,
}

impl Feed {
    /// Sends `rate` rows a second until it is told to end.
    fn run(&self, api: &Api, rate: u64) -> Result<(), Failure> {
        let (each, began) = (rate.div_ceil(u64::from(BODIES)), Instant::now());
        let mut body = String::new();
        for at in 0u32.. {
            let due = Duration::from_secs(1) * at / BODIES;
            std::thread::sleep(due.saturating_sub(began.elapsed()));
            if self.ended.load(Ordering::Relaxed) {
                break;
            }
            body.clear();
            let now = Timestamp::from(SystemTime::now());
            for row in 0..each {
                let number = u64::from(at) * each + row;
                let (host, took) = (number % 40, number * 7_919 % 1_009);
                writeln!(
                    body,
                    r#"{{"ts":"{now}","level":"info","message":"request {number} of host-{host} took {took} ms","attributes":{{"host":"host-{host}","status":"200"}}}}"#
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
            self.acknowledged.fetch_add(each, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Does something while rows come.
fn while_fed<T>(api: &Api, rate: u64, what: impl FnOnce() -> Result<T, Failure>) -> Result<(T, u64), Failure> {
    let feed = Feed::default();
    std::thread::scope(|scope| {
        let sender = (rate > 0).then(|| scope.spawn(|| feed.run(api, rate)));
        let done = what();
        feed.ended.store(true, Ordering::Relaxed);
        if let Some(sender) = sender {
            sender.join().map_err(|_| "the sender panicked")??;
        }
        Ok((done?, feed.acknowledged.load(Ordering::Relaxed)))
    })
}

fn storage(api: &Api) -> Option<Value> {
    Some(api.get("/api/v1/storage").ok()?.json["data"]["object_store"].take())
}

fn count(api: &Api) -> Result<u64, Failure> {
    let answer = api.post(
        "/api/v1/sql",
        &serde_json::json!({ "query": "select count(*) as n from logs where message like 'request %'" }),
    )?;
    answer.json["data"][0]["n"].as_u64().ok_or_else(|| answer.text.into())
}

fn outage(away: Duration, rate: u64) -> Result<(), Failure> {
    let runtime = runtime()?;
    let mut server = runtime.block_on(TestS3::start())?;
    let mut mixer = mixer(&server, &[])?;
    let pid = mixer.process()?.pid().as_raw();
    let api = mixer.api.clone();
    let mut largest = 0.0f64;
    let (seconds, acknowledged) = while_fed(&api, rate, || {
        std::thread::sleep(Duration::from_secs(120));
        println!(
            "before: {:.0} MiB resident, {:?} bytes in the last record",
            resident_mib(pid),
            api.metric("platform_object_store_record_bytes")
        );
        server.kill()?;
        let began = Instant::now();
        while began.elapsed() < away {
            std::thread::sleep(Duration::from_secs(60).min(away));
            let waiting = storage(&api).map(|store| store["unuploaded_rows"].clone());
            println!(
                "{:>5.0} s away: {:.0} MiB resident, {waiting:?} rows wait",
                began.elapsed().as_secs_f64(),
                resident_mib(pid)
            );
        }
        runtime.block_on(server.start_again())?;
        let back = Instant::now();
        eventually("nothing old waits", PATIENCE, || {
            largest = largest.max(api.metric("platform_object_store_record_bytes")?);
            (storage(&api)?["unuploaded_rows"].as_u64()? < rate * 60).then_some(())
        })?;
        Ok(back.elapsed().as_secs_f64())
    })?;
    let spent = cost(pid);
    println!(
        "{} s away at {rate} rows/s: caught up in {seconds:.1} s, peak {:.0} MiB, largest record {largest:.0} bytes, {:.0} CPU s",
        away.as_secs(),
        spent.peak_mib,
        spent.cpu_seconds
    );
    println!("{acknowledged} rows acknowledged, {} there", count(&api)?);
    mixer.process()?.terminate(PATIENCE)?;
    let next = self::mixer(&server, &[])?;
    println!("{} there at a new machine", count(&next.api)?);
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
fn requests(span: Duration, rate: u64) -> Result<(), Failure> {
    let runtime = runtime()?;
    let server = runtime.block_on(TestS3::start())?;
    let mut mixer = mixer(&server, &[])?;
    let pid = mixer.process()?.pid().as_raw();
    let api = mixer.api.clone();
    let asked = |name: &str| {
        api.metric(&format!("platform_object_store_{name}_total"))
            .unwrap_or(0.0)
    };
    let (counts, acknowledged) = while_fed(&api, rate, || {
        std::thread::sleep(Duration::from_secs(15));
        let before = [asked("writes"), asked("reads"), asked("uploaded_bytes")];
        std::thread::sleep(span);
        Ok([
            asked("writes") - before[0],
            asked("reads") - before[1],
            asked("uploaded_bytes") - before[2],
        ])
    })?;
    let an_hour = |count: f64| count * 3_600.0 / span.as_secs_f64();
    println!(
        "{rate} rows/s for {} s: {:.0} requests that write and {:.0} that read an hour, {:.1} MB up an hour; {acknowledged} rows acknowledged, peak {:.0} MiB",
        span.as_secs(),
        an_hour(counts[0]),
        an_hour(counts[1]),
        an_hour(counts[2]) / 1e6,
        cost(pid).peak_mib
    );
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "microseconds of a bench")]
fn reader(span: Duration, rate: u64) -> Result<(), Failure> {
    let runtime = runtime()?;
    let server = runtime.block_on(TestS3::start())?;
    let writing = mixer(&server, &[])?;
    let reading = mixer(&server, &[("observability.embedded.storage.read_only", "true")])?;
    let (mut ages, _) = while_fed(&writing.api, rate, || {
        let newest = || -> Option<Timestamp> {
            let rows = reading.api.rows("/api/v1/telemetry/logs?limit=1&q=took").ok()?;
            rows.first()?["ts"].as_str()?.parse().ok()
        };
        eventually("the first rows at the reader", PATIENCE, newest)?;
        let (began, mut ages) = (Instant::now(), Vec::new());
        while began.elapsed() < span {
            let newest = newest().ok_or("the reader has no row")?;
            let age = Timestamp::from(SystemTime::now()).micros() - newest.micros();
            ages.push(age as f64 / 1e6);
            std::thread::sleep(Duration::from_secs(1));
        }
        Ok(ages)
    })?;
    ages.sort_by(f64::total_cmp);
    println!(
        "age of the newest row at a read-only Mixer: p50 {:.1} s, p99 {:.1} s, most {:.1} s; {} samples",
        quantile(&ages, 0.5),
        quantile(&ages, 0.99),
        quantile(&ages, 1.0),
        ages.len()
    );
    Ok(())
}
