//! The Rack program: how big it is, how soon it is ready, what memory it takes idle and at 5,000 messages a second.
//!
//! Method: the release Mixer and Rack with default settings, each in a temporary folder. Size is that of the `platform` file that runs here
//! (`make build` puts the static one into `dist/`; `PLATFORM_TEST_BIN_DIR=dist` measures that). Start-up is the time from starting the process to its line `ready`, which comes when
//! it is adopted and listens: once as a Rack that the Mixer has never seen, then `BENCH_STARTS` (11) times as one that was killed. Idle is
//! resident memory and CPU over `BENCH_SECONDS` (20) without a scenario. Then a `generator` of `BENCH_RATE` (5,000) messages a second of 200 bytes sends to a `log_sink`
//! for as long: on the same Rack over lane hot, then to a second Rack over lane guaranteed. Resident memory is read once a second and its middle printed beside the peak.

use std::time::{Duration, Instant};

use benches::{cost, load, median, quantile, resident_mib, setting};
use harness::{Failure, TestMixer, TestRack, binary, eventually};
use serde_json::json;

fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    let size = std::fs::metadata(binary("platform")?)?.len();
    println!("size: {size} bytes");
    start_up(setting("BENCH_STARTS", 11))?;
    let (rate, seconds) = (setting("BENCH_RATE", 5_000), setting("BENCH_SECONDS", 20));
    idle(seconds)?;
    for lane in ["hot", "guaranteed"] {
        busy(lane, rate, seconds)?;
    }
    println!("load after: {}", load());
    Ok(())
}

fn start_up(starts: u64) -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut took = Vec::new();
    for _ in 0..=starts {
        let began = Instant::now();
        rack.start()?;
        took.push(began.elapsed().as_secs_f64() * 1e3);
        rack.kill9()?;
    }
    let first = took.remove(0);
    let middle = median(&mut took);
    println!(
        "start-up: unknown to the Mixer {first:.0} ms; known {middle:.0} ms (median of {starts}; worst {:.0} ms)",
        quantile(&took, 1.0)
    );
    Ok(())
}

fn idle(seconds: u64) -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, USUAL)?;
    rack.start()?;
    println!("idle: {}", watched(&mut rack, seconds)?);
    Ok(())
}

fn busy(lane: &str, rate: u64, seconds: u64) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("scenario.yaml");
    let to = if lane == "hot" { "rack-a" } else { "rack-b" };
    let scenario = format!(
        "meta: {{ name: bench, version: '1' }}\nracks: [ {{ name: rack-a }}, {{ name: rack-b }} ]\ngears:\n  \
         - {{ name: numbers, type: generator, deploy: rack-a, config: {{ rate: {rate}, size: 200 }} }}\n  \
         - {{ name: sink, type: log_sink, deploy: {to} }}\nwires:\n  - {{ from: numbers.out, to: sink.in, lane: {lane} }}\n"
    );
    std::fs::write(&file, scenario)?;
    let place = format!("{:?}", file.display().to_string());
    let mixer = TestMixer::start(&format!("[mixer]\nstartup_scenario = {place}\n"))?;
    let mut receiver = TestRack::new("rack-b", &mixer.bus_url, USUAL)?;
    receiver.start()?;
    let mut sender = TestRack::new("rack-a", &mixer.bus_url, USUAL)?;
    sender.start()?;
    eventually("the first messages", Duration::from_secs(60), || {
        (arrived(&mixer)? > 0).then_some(())
    })?;
    let (began, before) = (Instant::now(), arrived(&mixer).unwrap_or(0));
    let costs = watched(&mut sender, seconds)?;
    let more = arrived(&mixer).unwrap_or(0).saturating_sub(before);
    #[allow(clippy::cast_precision_loss, reason = "a count of a bench")]
    let rate = more as f64 / began.elapsed().as_secs_f64();
    println!("{lane}, {rate:.0} messages a second at the sink: sender {costs}");
    if lane != "hot" {
        let pid = receiver.process()?.pid().as_raw();
        println!("  receiver: peak {:.1} MiB", cost(pid).peak_mib);
    }
    Ok(())
}

/// Heartbeats as by default.
const USUAL: &str = "[rack]\nheartbeat_interval = \"10s\"\n";

/// Messages that the sink has handled, by their spans.
fn arrived(mixer: &TestMixer) -> Option<u64> {
    let query = "SELECT count(*) AS n FROM traces WHERE span_name = 'log_sink sink'";
    let answer = mixer.api.post("/api/v1/sql", &json!({ "query": query })).ok()?;
    answer.json["data"][0]["n"].as_u64()
}

/// What a Rack takes over some seconds, in words.
fn watched(rack: &mut TestRack, seconds: u64) -> Result<String, Failure> {
    let pid = rack.process()?.pid().as_raw();
    let before = cost(pid);
    let mut resident = Vec::new();
    for _ in 0..seconds {
        std::thread::sleep(Duration::from_secs(1));
        resident.push(resident_mib(pid));
    }
    let after = cost(pid);
    Ok(format!(
        "resident {:.1} MiB (median), peak {:.1} MiB, {:.2} CPU s in {seconds} s",
        median(&mut resident),
        after.peak_mib,
        after.cpu_seconds - before.cpu_seconds
    ))
}
