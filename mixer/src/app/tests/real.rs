//! A real Rack in this process, with a clock of its own, whose messages cross the bus and end in a file.

use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;

use chassis::config::LogThrottleConfig;
use chassis::log_rate_limiter::LogRateLimiter;
use model::Clock;
use rack::config::RackConfig;
use rack::telemetry::TelemetryLayer;
use rack::{AgentParts, RackAgent};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// Lines of a file go to a file over lane hot, and over lane guaranteed to another one.
pub(super) fn scenario(lines: &Path, folder: &Path) -> String {
    std::fs::create_dir_all(folder.join("files")).unwrap();
    let (near, far) = (folder.join("files/near.txt"), folder.join("files/far.txt"));
    let [lines, near, far] = [lines, &near, &far].map(Path::display);
    format!(
        "meta: {{ name: real, version: '1' }}\nracks: [ {{ name: rack-a }} ]\ngears:\n  \
         - {{ name: tail, type: file_tail, deploy: rack-a, config: {{ path: '{lines}', poll_interval: 10ms }} }}\n  \
         - {{ name: near, type: file_out, deploy: rack-a, config: {{ path: '{near}' }} }}\n  \
         - {{ name: far, type: file_out, deploy: rack-a, config: {{ path: '{far}' }} }}\nwires:\n  \
         - {{ from: tail.out, to: near.in, lane: hot }}\n  - {{ from: tail.out, to: far.in, lane: guaranteed }}\n"
    )
}

/// Starts `rack-a`, whose state is in the folder.
pub(super) async fn agent(folder: &Path, mixer: &Mixer, clock: Clock) -> RackAgent {
    agent_at(folder, &mixer.control().bus_status().url, clock).await
}

/// The same where a bus is said to be.
pub(super) async fn agent_at(folder: &Path, url: &str, clock: Clock) -> RackAgent {
    let dir = folder.join("rack").display().to_string();
    let files = folder.join("files").display().to_string();
    let flags = [
        ("base.name", "rack-a"),
        ("base.state_dir", dir.as_str()),
        ("store.dir", dir.as_str()),
        ("policy.read_roots", files.as_str()),
        ("policy.write_roots", files.as_str()),
        ("snake.url", url),
        ("snake.reconnect_wait", "50ms"),
        ("snake.convergence_delay", "10ms"),
        ("rack.heartbeat_interval", "100ms"),
    ];
    let sources = ConfigSources {
        flags: flags.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec(),
        ..ConfigSources::default()
    };
    let config = RackConfig::of(&load(&rack::config::SCHEMA, &sources).unwrap()).unwrap();
    let throttle = Arc::new(LogRateLimiter::new(LogThrottleConfig {
        enabled: true,
        rate: 500.0,
        burst: 50,
    }));
    let parts = AgentParts::new(
        config,
        clock,
        chassis::os_entropy(),
        throttle,
        TelemetryLayer::default(),
    );
    RackAgent::start(parts).await.unwrap()
}

fn line(number: u32) -> String {
    format!("line {number:05}")
}

/// Appends lines, as a program would that logs.
pub(super) fn write(file: &Path, numbers: Range<u32>) {
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .unwrap();
    let text: String = numbers.map(|number| line(number) + "\n").collect();
    file.write_all(text.as_bytes()).unwrap();
}

/// Whether the first gear has had a line; it may have had one twice where the Rack was stopped.
pub(super) fn is_near(folder: &Path, number: u32) -> Option<()> {
    let text = std::fs::read_to_string(folder.join("files/near.txt")).ok()?;
    text.lines().any(|had| had == line(number)).then_some(())
}

/// Whether the last gear has had so many lines: each once, in order, none that is not there.
pub(super) fn is_written(folder: &Path, count: u32) -> Option<()> {
    let text = std::fs::read_to_string(folder.join("files/far.txt")).ok()?;
    // The last line may be half written.
    let had: Vec<&str> = text.rsplit_once('\n').map_or("", |(whole, _)| whole).lines().collect();
    let wanted: Vec<String> = (0..count).map(line).collect();
    assert!(
        had.len() <= wanted.len() && had.iter().zip(&wanted).all(|(had, wanted)| had == wanted),
        "lost, twice or out of order: {had:?}"
    );
    (had.len() == wanted.len()).then_some(())
}

/// Whether the archive has so many messages of the first gear, each once.
pub(super) async fn is_archived(mixer: &Mixer, count: u64) -> Option<()> {
    let query = "SELECT count(*) AS n, count(DISTINCT raw_msg) AS d FROM messages WHERE src_gear_id = 'tail'";
    let row = sql(mixer, query).await;
    let (all, distinct) = (row["n"].as_u64()?, row["d"].as_u64()?);
    assert!(all == distinct && all <= count, "{all} messages, {distinct} different");
    (all == count).then_some(())
}

/// The one row that a statement gives.
pub(super) async fn sql(mixer: &Mixer, query: &str) -> Value {
    let body = json!({ "query": query }).to_string();
    let request = format!(
        "POST /api/v1/sql HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = tokio::net::TcpStream::connect(mixer.api_addr()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let body = answer.find('{').map(|at| &answer[at..=answer.rfind('}').unwrap()]);
    let body: Value = serde_json::from_str(body.unwrap_or_else(|| panic!("{answer}"))).unwrap();
    body["data"][0].clone()
}
