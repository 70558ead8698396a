//! A fleet: many Racks in one process enrol, beat and get a scenario; then some of them fall silent.
//!
//! Method: the release Mixer with default settings. `BENCH_RACKS` (500) agents of this process, each with a state folder, a spool, an outbox
//! and a connection to the bus of its own, start at once and speak the real protocol (heartbeat every 10 s). The scenario has two gears for every
//! Rack. Timed from the first start until the Mixer says of every Rack, asked ten times a second, that it is active (its admission is durable), and
//! until it says of each that it runs the wanted content; CPU of that time and peak memory of the Mixer, the bus server and the Racks. Then the
//! Mixer's CPU over a further minute of heartbeats. Then a tenth of the Racks is dropped without a word: how long until exactly these are offline.
//!
//! `guarded`: only the enrolment, on each of three buses ([`BusGuard`]) in turn, `BENCH_ROUNDS` (3) rounds in another order each, and medians of them.
//! Each is in a process of its own, with a new Mixer, a new server and new folders. Over TLS each Rack joins by an invite of its own. The
//! invites are made before, one call of the API each, as a script of whoever sets up 500 machines does; how long that takes is printed, and not
//! part of the enrolment. Each Rack finds its invite in its environment, and keeps it at its start.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use benches::bus_site::{BusGuard, BusSite, INVITE};
use benches::feed::{figure, runtime, this};
use benches::{cost, load, median, setting};
use chassis::config::{ConfigSources, LogThrottleConfig};
use chassis::log_rate_limiter::LogRateLimiter;
use harness::{Failure, TestMixer, eventually};
use rack::telemetry::TelemetryLayer;
use rack::{AgentParts, RackAgent};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const SCENARIO: &str = "
meta: { name: fleet, version: '1' }
racks: [ { group: all } ]
gears:
  - { name: numbers, type: generator, deploy: all, config: { rate: 0.1 } }
  - { name: sink, type: log_sink, deploy: all }
wires:
  - { from: numbers.out, to: sink.in }
";

/// The figures of an enrolment, as they are printed: behind its name, in its unit.
const FIGURES: [(&str, &str); 8] = [
    ("enrolled after", "s"),
    ("running after", "s"),
    ("Mixer CPU", "s"),
    ("nats-server CPU", "s"),
    ("Racks CPU", "s"),
    ("Mixer peak", "MiB"),
    ("nats-server peak", "MiB"),
    ("Racks peak", "MiB"),
];

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    println!("load before: {}", load());
    match words[..] {
        [] => whole()?,
        ["guarded"] => guarded()?,
        ["enrolment", name] => {
            let guard = BusGuard::ALL.into_iter().find(|guard| guard.to_string() == name);
            Fleet::enrol(guard.ok_or("no such bus")?)?.close(usize::MAX);
        }
        _ => return Err("usage: bench-fleet [guarded]".into()),
    }
    println!("load after: {}", load());
    Ok(())
}

/// Enrolments on each bus.
fn guarded() -> Result<(), Failure> {
    let rounds = setting("BENCH_ROUNDS", 3);
    let mut seen = BusGuard::ALL.map(|guard| (guard, Vec::new()));
    for round in 0..rounds {
        for guard in BusGuard::in_turn(round) {
            let printed = this(&["enrolment", &guard.to_string()])?;
            let figures: Result<Vec<f64>, _> = FIGURES.iter().map(|(name, _)| figure(&printed, name)).collect();
            let of = seen.iter_mut().find(|(known, _)| *known == guard);
            of.ok_or("no such bus")?.1.push(figures?);
        }
    }
    println!("medians of {rounds} rounds:");
    for (guard, rounds) in seen {
        let figures = FIGURES.iter().enumerate().map(|(at, (name, unit))| {
            let mut figures: Vec<f64> = rounds.iter().map(|figures| figures[at]).collect();
            format!("{name} {:.1} {unit}", median(&mut figures))
        });
        println!("  {guard}: {}", figures.collect::<Vec<_>>().join(", "));
    }
    Ok(())
}

/// An enrolment, a minute of heartbeats, and Racks that fall silent.
fn whole() -> Result<(), Failure> {
    let mut fleet = Fleet::enrol(BusGuard::Keys)?;
    let [mixer, _] = fleet.site.pids()?;
    let (before, minute) = (cost(mixer), Duration::from_secs(60));
    std::thread::sleep(minute);
    println!(
        "a minute of heartbeats: {:.2} CPU s; {:?} still active",
        cost(mixer).cpu_seconds - before.cpu_seconds,
        count(&fleet.site.mixer, "active").map(|[_, running]| running)
    );
    let racks = fleet.agents.len();
    let silent = racks / 10;
    let began = Instant::now();
    fleet.close(silent);
    println!("{silent} Racks closed within {:.1} s", began.elapsed().as_secs_f64());
    eventually("the silent ones to be offline", Duration::from_secs(120), || {
        let mixer = &fleet.site.mixer;
        (count(mixer, "offline")?[0] == silent && count(mixer, "active")?[1] == racks - silent).then_some(())
    })?;
    println!(
        "exactly the {silent} silent ones are offline {:.1} s after the first went (three heartbeats are 30 s)",
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Racks of this process that are active and run their scenario.
struct Fleet {
    agents: Vec<RackAgent>,
    runtime: Runtime,
    site: BusSite,
    _folder: TempDir,
}

impl Fleet {
    /// Starts a Mixer and the Racks, and prints what it took until all run their scenario.
    fn enrol(guard: BusGuard) -> Result<Self, Failure> {
        let racks = usize::try_from(setting("BENCH_RACKS", 500))?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("scenario.yaml");
        std::fs::write(&file, SCENARIO)?;
        let mut site = BusSite::start(guard, &file)?;
        let [mixer, bus] = site.pids()?;
        let began = Instant::now();
        let invites: Result<Vec<_>, Failure> = (0..racks).map(|number| site.invite(&name(number))).collect();
        let invites = invites?;
        println!(
            "{guard}: {} invites made in {:.1} s",
            invites.iter().flatten().count(),
            began.elapsed().as_secs_f64()
        );
        let runtime = runtime()?;
        let pids = [mixer, bus, i32::try_from(std::process::id())?];
        let (before, began) = (pids.map(cost), Instant::now());
        let agents = runtime.block_on(start(invites, folder.path(), &site.mixer.bus_url))?;
        println!("{racks} agents started after {:.1} s", began.elapsed().as_secs_f64());
        let mut enrolled = None;
        eventually("every Rack to run the scenario", Duration::from_secs(300), || {
            // Asking more often would be load beside what is measured.
            std::thread::sleep(Duration::from_millis(100));
            let asked = began.elapsed().as_secs_f64();
            let [active, running] = count(&site.mixer, "active")?;
            if active == racks {
                enrolled.get_or_insert(asked);
            }
            (running == racks).then_some(())
        })?;
        let (seconds, after) = (began.elapsed().as_secs_f64(), pids.map(cost));
        let used: Vec<f64> = before
            .iter()
            .zip(&after)
            .map(|(before, after)| after.cpu_seconds - before.cpu_seconds)
            .collect();
        let times = [enrolled.unwrap_or(seconds), seconds];
        let values = times.into_iter().chain(used).chain(after.map(|cost| cost.peak_mib));
        let figures = FIGURES
            .iter()
            .zip(values)
            .map(|((name, unit), value)| format!("{name} {value:.2} {unit}"));
        println!("{guard}: {racks} Racks: {}", figures.collect::<Vec<_>>().join(", "));
        Ok(Self {
            agents,
            runtime,
            site,
            _folder: folder,
        })
    }

    /// Closes so many of the Racks.
    fn close(&mut self, count: usize) {
        let gone = self.agents.split_off(self.agents.len().saturating_sub(count));
        self.runtime.block_on(async {
            for agent in gone {
                agent.close().await;
            }
        });
    }
}

/// The Racks in a state, and those of them that run what they should.
fn count(mixer: &TestMixer, state: &str) -> Option<[usize; 2]> {
    let answer = mixer.api.get("/api/v1/racks").ok()?;
    let racks = answer.json["data"].as_array()?.iter();
    let there: Vec<_> = racks.filter(|rack| rack["state"] == state).collect();
    let runs = |rack: &&&serde_json::Value| {
        let scenario = &rack["scenario"];
        scenario["wanted"].is_object() && scenario["wanted"] == scenario["running"]
    };
    Some([there.len(), there.iter().filter(runs).count()])
}

async fn start(invites: Vec<Option<String>>, folder: &Path, bus: &str) -> Result<Vec<RackAgent>, Failure> {
    let starting = invites.into_iter().enumerate();
    let starting: Result<Vec<_>, Failure> = starting
        .map(|(number, invite)| parts(number, invite, folder, bus))
        .collect();
    let starting = starting?.into_iter().map(|parts| tokio::spawn(RackAgent::start(parts)));
    let mut agents = Vec::new();
    for agent in starting.collect::<Vec<_>>() {
        agents.push(agent.await??);
    }
    Ok(agents)
}

fn name(number: usize) -> String {
    format!("rack-{number:04}")
}

fn parts(number: usize, invite: Option<String>, folder: &Path, bus: &str) -> Result<AgentParts, Failure> {
    let name = name(number);
    let state = folder.join(&name).display().to_string();
    let mut flags = vec![
        ("base.name", name),
        ("base.state_dir", state),
        ("rack.heartbeat_interval", "10s".to_owned()),
    ];
    if invite.is_none() {
        // An invite says where the bus is.
        flags.push(("snake.url", bus.to_owned()));
    }
    let sources = ConfigSources {
        file: None,
        required: false,
        env: invite.map(|invite| (INVITE.to_owned(), invite)).into_iter().collect(),
        flags: flags.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
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
