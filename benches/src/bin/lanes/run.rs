//! One run: messages of one lane on a new Mixer with two new Racks.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use benches::bus_site::{BusGuard, BusSite, INVITE};
use benches::{Cost, cost, moved_mib, quantile, setting};
use harness::{Failure, Link, TestMixer, TestRack, eventually};
use serde_json::json;

/// The processes of a run.
pub(crate) const PROCESSES: [&str; 4] = ["Mixer", "nats-server", "sender", "receiver"];

/// What a run showed.
#[derive(Debug)]
pub(crate) struct LaneRun {
    /// Messages a second, from the sink's first one to its last.
    pub(crate) per_second: f64,
    /// Seconds from the start of the sender until the Mixer has the span of every message.
    pub(crate) stored_seconds: f64,
    /// Of each process from its start, in their order.
    pub(crate) costs: [Cost; 4],
    /// What the bus server moved.
    pub(crate) bus_mib: f64,
    /// Rows of all tables that the Mixer has stored.
    pub(crate) rows: f64,
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

/// A Rack of the site, started.
fn rack(site: &BusSite, name: &str, bus_url: &str) -> Result<TestRack, Failure> {
    let invite = site.invite(name)?;
    let envs: Vec<_> = invite.iter().map(|invite| (INVITE, invite.as_str())).collect();
    let mut rack = TestRack::with(name, bus_url, &[], &envs)?;
    rack.start()?;
    Ok(rack)
}

/// Sends so many messages over a lane, at a rate or as fast as they go, and prints what that took.
#[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
pub(crate) fn measure(
    guard: BusGuard,
    lane: &str,
    source: &str,
    rate: Option<u64>,
    count: u64,
) -> Result<LaneRun, Failure> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("scenario.yaml");
    let at = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let config = match source {
        "tcp_in" => format!("listen: '{at}', framing: {{ delimiter: '\\n' }}"),
        "syslog_in" => format!("listen: '{at}', udp: false"),
        _ => format!("rate: {}, count: {count}, size: 200", rate.unwrap_or(1_000_000)),
    };
    std::fs::write(&file, scenario(lane, source, &config))?;
    let mut site = BusSite::start(guard, &file)?;
    let mut receiver = rack(&site, "rack-b", &site.mixer.bus_url)?;
    let delay = Duration::from_millis(setting("BENCH_ROUND_TRIP_MS", 0) / 2);
    let link = (!delay.is_zero())
        .then(|| Link::with_delay(&site.mixer.bus_url, delay))
        .transpose()?;
    let bus_url = link.as_ref().map_or_else(|| site.mixer.bus_url.clone(), Link::bus_url);
    let mut sender = rack(&site, "rack-a", &bus_url)?;
    let began = Instant::now();
    if source != "generator" {
        feed(at, count)?;
    }
    let number = |query: &str| number(&site.mixer, query);
    eventually("every message at the sink", Duration::from_secs(600), || {
        // Asking more often would be load beside what is measured.
        std::thread::sleep(Duration::from_millis(500));
        let there = number("SELECT count(*) AS n FROM traces WHERE span_name = 'log_sink sink'");
        (there.ok()? >= count).then_some(())
    })?;
    let stored_seconds = began.elapsed().as_secs_f64();
    let archived = || number("SELECT count(*) AS n FROM messages");
    if lane == "guaranteed" {
        // The receiver may be ahead of the archive.
        eventually("every message in the archive", Duration::from_secs(60), || {
            (archived().ok()? >= count).then_some(())
        })
        .ok();
    }
    let archived = archived()?;
    let different = number("SELECT count(DISTINCT flux_id) AS n FROM messages")?;
    let mut rows = archived;
    for table in ["logs", "traces", "metrics"] {
        rows += number(&format!("SELECT count(*) AS n FROM {table}"))?;
    }
    let [mixer, bus] = site.pids()?;
    let pids = [
        mixer,
        bus,
        sender.process()?.pid().as_raw(),
        receiver.process()?.pid().as_raw(),
    ];
    let (costs, bus_mib) = (pids.map(cost), moved_mib(bus));
    let (per_second, ages) = ages(&site.mixer, source)?;
    println!(
        "{guard}, {lane}, {source}, {}: {} of {count} messages, {per_second:.0} a second; age p50 {:.2} ms, p99 {:.2} ms, worst {:.1} ms; archived {archived} ({different} different); {stored_seconds:.0} s in all",
        rate.map_or_else(|| "as fast as they go".to_owned(), |rate| format!("{rate}/s")),
        ages.len(),
        quantile(&ages, 0.5),
        quantile(&ages, 0.99),
        quantile(&ages, 1.0),
    );
    for (name, cost) in PROCESSES.iter().zip(costs) {
        println!("  {name}: {:.1} CPU s, peak {:.0} MiB", cost.cpu_seconds, cost.peak_mib);
    }
    Ok(LaneRun {
        per_second,
        stored_seconds,
        costs,
        bus_mib,
        rows: rows as f64,
    })
}

/// The `n` of the only row of an answer.
fn number(mixer: &TestMixer, query: &str) -> Result<u64, Failure> {
    let answer = mixer.api.post("/api/v1/sql", &json!({ "query": query }))?;
    let number = answer.json["data"][0]["n"].as_u64();
    number.ok_or_else(|| format!("{query}: {} {}", answer.status, answer.text).into())
}

/// The age in ms of every message at the sink, in order, and how many came a second from the first to the last.
#[allow(clippy::cast_precision_loss, reason = "times of a bench")]
fn ages(mixer: &TestMixer, source: &str) -> Result<(f64, Vec<f64>), Failure> {
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
    let (mut ages, mut first, mut last) = (Vec::with_capacity(rows.len()), f64::MAX, f64::MIN);
    for row in rows {
        let (a, b) = (micros(row, "a").ok_or("no time")?, micros(row, "b").ok_or("no time")?);
        ages.push((b - a) as f64 / 1e3);
        (first, last) = (first.min(b as f64), last.max(b as f64));
    }
    ages.sort_by(f64::total_cmp);
    Ok((ages.len() as f64 / ((last - first) / 1e6), ages))
}
