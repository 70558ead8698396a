//! How long a busy guaranteed wire is silent around a restart, beyond the absence of what was restarted.
//!
//! Method: the release Mixer and two Racks with default settings; a `generator` at rack-a sends `BENCH_RATE` (500) messages a second to a
//! `log_sink` at rack-b over lane guaranteed. Then, one after another and ten seconds apart: rack-b is stopped and started (SIGTERM), killed
//! and started, suspended and resumed; the bus server is killed (its Mixer starts it again); the Mixer is killed, and its bus server with it, and started;
//! rack-a is killed and started. The silence is the longest time between two spans of the sink that overlaps the absence or the eight seconds
//! behind it; the absence is from the signal until the process says that it is ready, or the answer to the resume. Each message is counted.

use std::thread::sleep;
use std::time::Duration;

use benches::{load, setting};
use harness::{Failure, TestMixer, TestRack, eventually, process};
use serde_json::json;

/// Between two events.
const APART: Duration = Duration::from_secs(10);

/// What was restarted, and from when until when it was away, in µs since the epoch.
type Event = (&'static str, i64, i64);

fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    let rate = setting("BENCH_RATE", 500);
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("scenario.yaml");
    std::fs::write(
        &file,
        format!(
            "meta: {{ name: bench, version: '1' }}\nracks: [ {{ name: rack-a }}, {{ name: rack-b }} ]\ngears:\n  \
             - {{ name: numbers, type: generator, deploy: rack-a, config: {{ rate: {rate}, size: 200 }} }}\n  \
             - {{ name: sink, type: log_sink, deploy: rack-b }}\nwires:\n  - {{ from: numbers.out, to: sink.in, lane: guaranteed }}\n"
        ),
    )?;
    // The bus of a Mixer that starts again is where it was.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port()
        .to_string();
    let file = format!("{:?}", file.display().to_string());
    let mut mixer = TestMixer::with(&[("mixer.startup_scenario", &file), ("snake.port", &port)], &[])?;
    let mut receiver = TestRack::new("rack-b", &mixer.bus_url, "")?;
    receiver.start()?;
    let mut sender = TestRack::new("rack-a", &mixer.bus_url, "")?;
    sender.start()?;
    let mut events: Vec<Event> = Vec::new();
    let mut note = |what, done: &mut dyn FnMut() -> Result<(), Failure>| {
        sleep(APART);
        let from = now();
        done()?;
        events.push((what, from, now()));
        Ok::<_, Failure>(())
    };
    note("receiver, stopped and started", &mut || {
        receiver.process()?.terminate(Duration::from_secs(30))?;
        receiver.start()
    })?;
    note("receiver, killed and started", &mut || {
        receiver.kill9()?;
        receiver.start()
    })?;
    note("receiver, suspended for 3 s and resumed", &mut || {
        ask(&mixer, "/api/v1/racks/rack-b/suspend")?;
        sleep(Duration::from_secs(3));
        ask(&mixer, "/api/v1/racks/rack-b/resume")
    })?;
    note("bus, killed", &mut || {
        let before = mixer.bus_pid()?;
        process::kill9(before)?;
        eventually("the bus is back", Duration::from_secs(30), || {
            let now = mixer.bus_pid().ok()?;
            let ready = mixer.api.get("/readyz").ok()?;
            (now != before && ready.status == 200).then_some(())
        })
    })?;
    note("Mixer and its bus, killed and started", &mut || {
        mixer.kill9()?;
        mixer.restart()
    })?;
    note("sender, killed and started", &mut || {
        sender.kill9()?;
        sender.start()
    })?;
    sleep(APART);
    report(&mixer, &events)?;
    println!("load after: {}", load());
    Ok(())
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

fn ask(mixer: &TestMixer, path: &str) -> Result<(), Failure> {
    let answer = mixer.api.post(path, &json!({}))?;
    if answer.status == 200 {
        Ok(())
    } else {
        Err(answer.text.into())
    }
}

#[allow(clippy::cast_precision_loss, reason = "times of a bench")]
fn report(mixer: &TestMixer, events: &[Event]) -> Result<(), Failure> {
    let asked = |query: &str| mixer.api.post("/api/v1/sql", &json!({ "query": query }));
    let all = asked("SELECT count(*) AS n FROM traces WHERE span_name = 'log_sink sink'")?;
    let query = "SELECT a, b FROM (SELECT arrow_cast(ts, 'Int64') AS a, arrow_cast(lead(ts) OVER (ORDER BY ts), 'Int64') AS b FROM traces \
                 WHERE span_name = 'log_sink sink') WHERE b - a > 10000 ORDER BY a";
    let answer = asked(query)?;
    let rows = answer.json["data"].as_array().ok_or_else(|| answer.text.clone())?;
    let micros = |value: &serde_json::Value| value.as_i64().or_else(|| value.as_str()?.parse().ok());
    let silences: Vec<(i64, i64)> = rows
        .iter()
        .filter_map(|row| Some((micros(&row["a"])?, micros(&row["b"])?)))
        .collect();
    println!("{} messages", all.json["data"][0]["n"]);
    for (what, from, back) in events {
        let overlaps = |(a, b): &&(i64, i64)| *b >= *from && *a <= *back + 8_000_000;
        let silence = silences.iter().filter(overlaps).map(|(a, b)| b - a).max();
        let (silence, absence) = (silence.unwrap_or(0) as f64 / 1e6, (back - from) as f64 / 1e6);
        println!(
            "{what}: silent for {silence:.2} s, away for {absence:.2} s, beyond it {:.2} s",
            silence - absence
        );
    }
    Ok(())
}
