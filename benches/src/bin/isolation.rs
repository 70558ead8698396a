//! Ten healthy guaranteed wires alone, and beside a Rack that was never enrolled, a receiver that is stuck and one that is renamed.
//!
//! Method: the release Mixer with `BENCH_STORE_MB` (10240) for its streams, and three Racks with default settings. Ten `generator`s, five at
//! each of two Racks, send `BENCH_RATE` (500) messages a second of 200 bytes each to as many `log_sink`s at a third. Beside them, at the same
//! Racks: one generator whose receiver is at a Rack that does not exist, one whose receiver is an `http_out` to a server that never answers,
//! both twice as fast with 16 KiB a message, so that they have what they may after some seconds; and one whose receiver gets another name
//! once in each run. Runs of `BENCH_SECONDS` (20) alone and beside them take turns, three of each. The rate is that of the sinks' spans of
//! the healthy wires within a run, five seconds after its scenario runs.

use std::net::TcpListener;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use benches::{load, median, setting};
use harness::{Failure, TestMixer, TestRack};
use serde_json::{Value, json};

const HEALTHY: usize = 10;
/// From the activation until a run is measured.
const SETTLES: Duration = Duration::from_secs(5);

/// The scenario; beside the healthy wires those that are not, the last of which ends at a gear of this name.
fn scenario(version: u32, rate: u64, others: Option<(&str, &str)>) -> String {
    let (mut gears, mut wires) = (String::new(), String::new());
    let mut wire = |from: usize, name: &str, config: &str, (to, at, receiver): (&str, &str, &str)| {
        let rack = if from.is_multiple_of(2) { "rack-a" } else { "rack-b" };
        gears += &format!("  - {{ name: {name}, type: generator, deploy: {rack}, config: {{ {config} }} }}\n");
        gears += &format!("  - {{ name: {to}, deploy: {at}, {receiver} }}\n");
        wires += &format!("  - {{ from: {name}.out, to: {to}.in }}\n");
    };
    let healthy = format!("rate: {rate}, size: 200");
    let large = format!("rate: {}, size: 16384", rate * 2);
    for number in 0..HEALTHY {
        let sink = format!("sink-{number}");
        wire(
            number,
            &format!("numbers-{number}"),
            &healthy,
            (&sink, "rack-c", "type: log_sink"),
        );
    }
    if let Some((url, renamed)) = others {
        let stuck = format!("type: http_out, config: {{ url: '{url}' }}");
        wire(0, "to-nobody", &large, ("absent", "rack-z", "type: log_sink"));
        wire(1, "to-stuck", &large, ("stuck", "rack-c", &stuck));
        wire(0, "to-renamed", &healthy, (renamed, "rack-c", "type: log_sink"));
    }
    format!(
        "meta: {{ name: bench, version: '{version}' }}\nracks: [ {{ name: rack-a }}, {{ name: rack-b }}, {{ name: rack-c }}, {{ name: rack-z }} ]\n\
         gears:\n{gears}wires:\n{wires}"
    )
}

fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    let (rate, seconds) = (setting("BENCH_RATE", 500), setting("BENCH_SECONDS", 20));
    let store = setting("BENCH_STORE_MB", 10_240).to_string();
    // Connections are taken by the system and never by anybody.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", silent.local_addr()?);
    let mixer = TestMixer::with(&[("snake.max_store_mb", store.as_str())], &[])?;
    let mut racks = Vec::new();
    for name in ["rack-a", "rack-b", "rack-c"] {
        let mut rack = TestRack::new(name, &mixer.bus_url, "")?;
        rack.start()?;
        racks.push(rack);
    }
    let (mut alone, mut beside, mut version) = (Vec::new(), Vec::new(), 0);
    let mut run = |others: bool| -> Result<f64, Failure> {
        version += 1;
        activate(
            &mixer,
            &scenario(version, rate, others.then_some((&url, "renamed"))),
            version,
        )?;
        sleep(SETTLES);
        let from = now();
        sleep(Duration::from_secs(seconds / 2));
        if others {
            version += 1;
            activate(&mixer, &scenario(version, rate, Some((&url, "renamed-2"))), version)?;
        }
        sleep(Duration::from_secs(seconds).saturating_sub(Duration::from_micros(now().abs_diff(from))));
        let until = now();
        sleep(Duration::from_secs(2));
        seen(&mixer, from, until)
    };
    for number in 1..=3 {
        alone.push(run(false)?);
        beside.push(run(true)?);
        println!(
            "{number}: alone {:.0}/s, beside {:.0}/s",
            alone[number - 1],
            beside[number - 1]
        );
        println!("{}", wires(&mixer)?);
    }
    let (alone, beside) = (median(&mut alone), median(&mut beside));
    println!(
        "medians: alone {alone:.0}/s, beside {beside:.0}/s: {:.3}",
        beside / alone
    );
    println!("load after: {}", load());
    drop(silent);
    Ok(())
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

fn activate(mixer: &TestMixer, yaml: &str, version: u32) -> Result<(), Failure> {
    let kind = [("content-type", "application/yaml")];
    let stored = mixer.api.send("/api/v1/scenarios", &kind, yaml.as_bytes())?;
    let path = format!("/api/v1/scenarios/bench:{version}/activate?wait=5s");
    let activated = mixer.api.post(&path, &json!({}))?;
    match (stored.status, activated.status) {
        (200, 200) => Ok(()),
        _ => Err(format!("{} {}", stored.text, activated.text).into()),
    }
}

/// The messages of the healthy wires a second.
#[allow(clippy::cast_precision_loss, reason = "figures of a bench")]
fn seen(mixer: &TestMixer, from: u64, until: u64) -> Result<f64, Failure> {
    let query = format!(
        "SELECT count(*) AS n FROM traces WHERE span_name LIKE 'log_sink sink-%' AND arrow_cast(ts, 'Int64') BETWEEN {from} AND {until}"
    );
    let answer = mixer.api.post("/api/v1/sql", &json!({ "query": query }))?;
    let count = answer.json["data"][0]["n"].as_u64().ok_or(answer.text)?;
    Ok(count as f64 * 1e6 / (until - from) as f64)
}

/// The wires that something waits for.
fn wires(mixer: &TestMixer) -> Result<String, Failure> {
    let answer = mixer.api.get("/api/v1/wires")?;
    let rows = answer.json["data"].as_array().ok_or("no wires")?;
    let waits = |wire: &&Value| wire["waiting_bytes"].as_u64() > Some(1 << 20);
    let line = |wire: &Value| {
        format!(
            "  {}: {} bytes of {} wait, held {}\n",
            wire["wire"], wire["waiting_bytes"], wire["limit_bytes"], wire["is_held"]
        )
    };
    Ok(rows.iter().filter(waits).map(line).collect())
}
