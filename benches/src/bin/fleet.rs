//! A fleet: many Racks in one process enrol, beat and get a scenario; then some of them fall silent.
//!
//! Method: the release Mixer with default settings. `BENCH_RACKS` (500) agents of this process, each with a state folder, a spool, an outbox
//! and a connection to the bus of its own, start at once and speak the real protocol (heartbeat every 10 s). The scenario has two gears for every
//! Rack. Timed from the first start until the Mixer says of every Rack that it is active and runs the wanted content; then CPU and peak memory of the Mixer, and its CPU over a
//! further minute of heartbeats. Then a tenth of the Racks is dropped without a word: how long until exactly these are offline.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use benches::feed::runtime;
use benches::{cost, load, setting};
use chassis::config::{ConfigSources, LogThrottleConfig};
use chassis::log_rate_limiter::LogRateLimiter;
use harness::{Failure, TestMixer, eventually};
use rack::telemetry::TelemetryLayer;
use rack::{AgentParts, RackAgent};

const SCENARIO: &str = "
meta: { name: fleet, version: '1' }
racks: [ { group: all } ]
gears:
  - { name: numbers, type: generator, deploy: all, config: { rate: 0.1 } }
  - { name: sink, type: log_sink, deploy: all }
wires:
  - { from: numbers.out, to: sink.in }
";

fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    let racks = usize::try_from(setting("BENCH_RACKS", 500))?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("scenario.yaml");
    std::fs::write(&file, SCENARIO)?;
    let mut mixer = benches::mixer(&file)?;
    let pid = mixer.process()?.pid().as_raw();
    let runtime = runtime()?;
    let (before, began) = (cost(pid), Instant::now());
    let mut agents = runtime.block_on(start(racks, folder.path(), &mixer.bus_url))?;
    println!("{racks} agents started after {:.1} s", began.elapsed().as_secs_f64());
    eventually("every Rack to run the scenario", Duration::from_secs(300), || {
        (count(&mixer, "active", true)? == racks).then_some(())
    })?;
    let after = cost(pid);
    println!(
        "{racks} Racks enrolled, active and with their scenario after {:.1} s; the Mixer: {:.1} CPU s, peak {:.0} MiB",
        began.elapsed().as_secs_f64(),
        after.cpu_seconds - before.cpu_seconds,
        after.peak_mib
    );
    let (before, minute) = (cost(pid), Duration::from_secs(60));
    std::thread::sleep(minute);
    println!(
        "a minute of heartbeats: {:.2} CPU s; {:?} still active",
        cost(pid).cpu_seconds - before.cpu_seconds,
        count(&mixer, "active", true)
    );
    let silent = racks / 10;
    let began = Instant::now();
    let gone = agents.split_off(racks - silent);
    runtime.block_on(async {
        for agent in gone {
            agent.close().await;
        }
    });
    println!("{silent} Racks closed within {:.1} s", began.elapsed().as_secs_f64());
    eventually("the silent ones to be offline", Duration::from_secs(120), || {
        (count(&mixer, "offline", false)? == silent && count(&mixer, "active", true)? == racks - silent).then_some(())
    })?;
    println!(
        "exactly the {silent} silent ones are offline {:.1} s after the first went (three heartbeats are 30 s)",
        began.elapsed().as_secs_f64()
    );
    println!("load after: {}", load());
    Ok(())
}

/// Racks in a state; `right` counts only those that run what they should.
fn count(mixer: &TestMixer, state: &str, right: bool) -> Option<usize> {
    let answer = mixer.api.get("/api/v1/racks").ok()?;
    let racks = answer.json["data"].as_array()?;
    let fits = |rack: &&serde_json::Value| {
        let scenario = &rack["scenario"];
        let runs = scenario["wanted"].is_object() && scenario["wanted"] == scenario["running"];
        rack["state"] == state && (!right || runs)
    };
    Some(racks.iter().filter(fits).count())
}

async fn start(racks: usize, folder: &Path, bus: &str) -> Result<Vec<RackAgent>, Failure> {
    let starting: Result<Vec<_>, Failure> = (0..racks).map(|number| parts(number, folder, bus)).collect();
    let starting = starting?.into_iter().map(|parts| tokio::spawn(RackAgent::start(parts)));
    let mut agents = Vec::with_capacity(racks);
    for agent in starting.collect::<Vec<_>>() {
        agents.push(agent.await??);
    }
    Ok(agents)
}

fn parts(number: usize, folder: &Path, bus: &str) -> Result<AgentParts, Failure> {
    let state = folder.join(format!("rack-{number:04}"));
    let flags = [
        ("base.name", format!("rack-{number:04}")),
        ("base.state_dir", state.display().to_string()),
        ("snake.url", bus.to_owned()),
        ("rack.heartbeat_interval", "10s".to_owned()),
    ];
    let sources = ConfigSources {
        file: None,
        required: false,
        env: Default::default(),
        flags: flags.map(|(key, value)| (key.to_owned(), value)).into_iter().collect(),
    };
    let loaded = chassis::config::load(&rack::config::SCHEMA, &sources)?;
    let throttle = LogRateLimiter::new(LogThrottleConfig {
        enabled: true,
        rate: 500.0,
        burst: 50,
    });
    Ok(AgentParts::new(
        rack::config::RackConfig::of(&loaded)?,
        chassis::system_clock(),
        chassis::os_entropy(),
        Arc::new(throttle),
        TelemetryLayer::default(),
    ))
}
