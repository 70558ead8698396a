//! Messages between gears: how many a second, and how old they are when the next gear begins with them.
//!
//! Method: the release Mixer and two Racks with default settings, each in a temporary folder. A `generator` sends to a `log_sink`: on one
//! Rack over lane hot, and from one Rack to the other over lane guaranteed, where a message is synced at its Rack, passes the bus, is archived by the Mixer
//! and acknowledged after the receiver has synced that it was taken. `BENCH_RATES` (1000,5000) messages a second for `BENCH_SECONDS` (20), then
//! `BENCH_ROWS` (100,000) as fast as they go. The age is the start of the sink's span less the time of the message, both of
//! this machine's clock, over all messages. Traces and log rows of every message are stored as by default: that is part of the work. `BENCH_LANES`
//! (hot,guaranteed) chooses the lanes. With `BENCH_SOURCE` (generator) `tcp_in` or `syslog_in` the rows come as lines of 200 bytes over one TCP
//! connection, as fast as they are taken, and nothing else is measured. Archived is what `messages` has in the end.
//! With `BENCH_ROUND_TRIP_MS` the sender reaches the bus over a link with this round trip.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use benches::{cost, load, quantile, setting};
use harness::{Failure, Link, TestMixer, TestRack, eventually};
use serde_json::json;

fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    let rates = std::env::var("BENCH_RATES").unwrap_or_else(|_| "1000,5000".to_owned());
    let rates: Result<Vec<u64>, _> = rates.split(',').map(str::parse).collect();
    let (seconds, rows) = (setting("BENCH_SECONDS", 20), setting("BENCH_ROWS", 100_000));
    let lanes = std::env::var("BENCH_LANES").unwrap_or_else(|_| "hot,guaranteed".to_owned());
    let source = std::env::var("BENCH_SOURCE").unwrap_or_else(|_| "generator".to_owned());
    for lane in lanes.split(',') {
        for rate in rates.clone()?.iter().filter(|_| source == "generator") {
            measure(lane, &source, Some(*rate), rate * seconds)?;
        }
        measure(lane, &source, None, rows)?;
    }
    println!("load after: {}", load());
    Ok(())
}

fn scenario(lane: &str, source: &str, config: &str) -> String {
    let to = if lane == "hot" { "rack-a" } else { "rack-b" };
    format!(
        "meta: {{ name: bench, version: '1' }}\nracks: [ {{ name: rack-a }}, {{ name: rack-b }} ]\ngears:\n  \
         - {{ name: numbers, type: {source}, deploy: rack-a, config: {{ {config} }} }}\n  \
         - {{ name: sink, type: log_sink, deploy: {to} }}\nwires:\n  - {{ from: numbers.out, to: sink.in, lane: {lane} }}\n"
    )
}

/// Sends so many lines of 200 bytes.
fn feed(to: SocketAddr, count: u64) -> Result<(), Failure> {
    let mut stream = eventually("the source listens", Duration::from_secs(30), || {
        TcpStream::connect(to).ok()
    })?;
    let line = |number: u64| {
        format!(
            "{:<199}\n",
            format!("<34>1 2026-11-21T10:00:00Z host app - - - {number}")
        )
    };
    for first in (0..count).step_by(1_000) {
        let lines: String = (first..count.min(first + 1_000)).map(line).collect();
        stream.write_all(lines.as_bytes())?;
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
fn measure(lane: &str, source: &str, rate: Option<u64>, count: u64) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("scenario.yaml");
    let at = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let config = match source {
        "tcp_in" => format!("listen: '{at}', framing: {{ delimiter: '\\n' }}"),
        "syslog_in" => format!("listen: '{at}', udp: false"),
        _ => format!("rate: {}, count: {count}, size: 200", rate.unwrap_or(1_000_000)),
    };
    std::fs::write(&file, scenario(lane, source, &config))?;
    let mut mixer = benches::mixer(&file)?;
    let mut receiver = TestRack::new("rack-b", &mixer.bus_url, "")?;
    receiver.start()?;
    let delay = Duration::from_millis(setting("BENCH_ROUND_TRIP_MS", 0) / 2);
    let link = (!delay.is_zero())
        .then(|| Link::with_delay(&mixer.bus_url, delay))
        .transpose()?;
    let bus_url = link.as_ref().map_or_else(|| mixer.bus_url.clone(), Link::bus_url);
    let mut sender = TestRack::new("rack-a", &bus_url, "")?;
    sender.start()?;
    let began = Instant::now();
    if source != "generator" {
        feed(at, count)?;
    }
    let query = "SELECT count(*) AS n FROM traces WHERE span_name = 'log_sink sink'";
    let asked = |query: &str| mixer.api.post("/api/v1/sql", &json!({ "query": query }));
    eventually("every message at the sink", Duration::from_secs(600), || {
        // Asking more often would be load beside what is measured.
        std::thread::sleep(Duration::from_millis(500));
        (asked(query).ok()?.json["data"][0]["n"].as_u64()? >= count).then_some(())
    })?;
    let took = began.elapsed().as_secs_f64();
    let mut ages = ages(&mixer, source)?;
    let span = ages
        .iter()
        .map(|(_, at)| *at)
        .fold((f64::MAX, f64::MIN), |(a, b), at| (a.min(at), b.max(at)));
    ages.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let sorted: Vec<f64> = ages.iter().map(|(age, _)| *age).collect();
    let archive = || asked("SELECT count(*) AS n, count(DISTINCT flux_id) AS d FROM messages");
    if lane == "guaranteed" {
        // The receiver may be ahead of the archive.
        eventually("every message in the archive", Duration::from_secs(60), || {
            (archive().ok()?.json["data"][0]["n"].as_u64()? >= count).then_some(())
        })
        .ok();
    }
    let archived = archive()?;
    let archived = &archived.json["data"][0];
    println!(
        "{lane}, {source}, {}: {} of {count} messages, {:.0} a second; age p50 {:.2} ms, p99 {:.2} ms, worst {:.1} ms; archived {} ({} different); {took:.0} s in all",
        rate.map_or_else(|| "as fast as they go".to_owned(), |rate| format!("{rate}/s")),
        sorted.len(),
        sorted.len() as f64 / ((span.1 - span.0) / 1e6),
        quantile(&sorted, 0.5),
        quantile(&sorted, 0.99),
        quantile(&sorted, 1.0),
        archived["n"],
        archived["d"],
    );
    for (name, pid) in [
        ("Mixer", mixer.process()?.pid()),
        ("nats-server", mixer.bus_pid()?),
        ("sender", sender.process()?.pid()),
        ("receiver", receiver.process()?.pid()),
    ] {
        let cost = cost(pid.as_raw());
        println!("  {name}: {:.1} CPU s, peak {:.0} MiB", cost.cpu_seconds, cost.peak_mib);
    }
    Ok(())
}

/// The age in ms of every message at the sink, and when that was, in µs.
#[allow(clippy::cast_precision_loss, reason = "times of a bench")]
fn ages(mixer: &TestMixer, source: &str) -> Result<Vec<(f64, f64)>, Failure> {
    let query = format!(
        "SELECT arrow_cast(r.ts, 'Int64') AS a, arrow_cast(c.ts, 'Int64') AS b FROM traces r JOIN traces c ON r.trace_id = c.trace_id \
         WHERE r.span_name = '{source} numbers' AND c.span_name = 'log_sink sink'"
    );
    let answer = mixer.api.post("/api/v1/sql", &json!({ "query": query }))?;
    let rows = answer.json["data"].as_array().ok_or_else(|| answer.text.clone())?;
    let micros = |row: &serde_json::Value, key: &str| {
        let value = &row[key];
        value.as_i64().or_else(|| value.as_str()?.parse().ok())
    };
    rows.iter()
        .map(|row| {
            let (a, b) = (micros(row, "a").ok_or("no time")?, micros(row, "b").ok_or("no time")?);
            Ok(((b - a) as f64 / 1e3, b as f64))
        })
        .collect()
}
