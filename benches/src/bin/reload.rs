//! A scenario changes under load: one gear of twenty is another, every few seconds, while messages flow through it.
//!
//! Method: the release Mixer and one Rack with default settings, each in a temporary folder; the scenario of `tests/harness/twenty.rs`. A TCP connection
//! feeds `BENCH_RATE` (5,000) numbered lines a second for `BENCH_SECONDS` (30) through five gears, of which the middle one is another in each version, to a
//! file and over one TCP connection to a receiver. Other connections (TCP with replies, HTTP keep-alive, syslog) stay open and are used after every
//! change. `BENCH_CHANGES` (9) activations over REST are spread evenly; what is timed is the request until the Rack runs the new version. Lost, doubled
//! and disordered are counted over all numbers at both ends. The longest pause is the receiver's, between two messages. Rows of logs and spans
//! of every message are stored as by default. CPU and peak memory are the kernel's figures, over the whole run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use benches::{cost, load, quantile, setting};
use harness::twenty::{Tally, Twenty};
use harness::{Failure, TestMixer, TestRack, eventually};

fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    measure(
        setting("BENCH_RATE", 5_000),
        setting("BENCH_SECONDS", 30),
        setting("BENCH_CHANGES", 9),
    )?;
    println!("load after: {}", load());
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
fn measure(rate: u64, seconds: u64, changes: u64) -> Result<(), Failure> {
    let twenty = Twenty::new()?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("scenario.yaml");
    std::fs::write(&file, twenty.scenario(1))?;
    let mut mixer = TestMixer::start(&format!(
        "[mixer]\nstartup_scenario = {:?}\n",
        file.display().to_string()
    ))?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let mut sockets = twenty.open(&mixer)?;
    let over = Arc::new(AtomicBool::new(false));
    let (began, feeding) = (Instant::now(), sockets.feed(rate, Arc::clone(&over))?);
    let mut took = Vec::new();
    for number in 1..=changes {
        // The pace of the bench, not something to wait for.
        let due = Duration::from_secs(seconds).mul_f64(number as f64 / (changes + 1) as f64);
        while began.elapsed() < due {
            std::thread::sleep(due.saturating_sub(began.elapsed()).min(Duration::from_secs(1)));
            sockets.keep_alive()?;
        }
        took.push(twenty.activate(&mixer.api, number + 1)?.as_secs_f64() * 1e3);
        sockets.use_all(&format!("version {}", number + 1))?;
    }
    std::thread::sleep(Duration::from_secs(seconds).saturating_sub(began.elapsed()));
    over.store(true, Ordering::Relaxed);
    let count = feeding.join().map_err(|_| "the feed died")??;
    let fed = began.elapsed().as_secs_f64();
    let all = usize::try_from(count)?;
    // What is lost never comes; then the figures say so.
    let arrived = eventually("all messages at both ends", Duration::from_secs(60), || {
        sockets.keep_alive().ok()?;
        (twenty.written(count).ok()?.all >= all && twenty.pushed(count).0.all >= all).then_some(())
    });
    let (pushed, connections, pause) = twenty.pushed(count);
    took.sort_by(f64::total_cmp);
    println!(
        "reload: {count} messages in {fed:.1} s, {:.0} a second, {changes} changes of one gear of twenty{}",
        count as f64 / fed,
        if arrived.is_ok() {
            ""
        } else {
            "; some did not arrive within 60 s"
        }
    );
    tell("file", &twenty.written(count)?);
    tell("receiver", &pushed);
    println!(
        "  sockets closed: {} of 4 clients, {} of 1 connection of the Rack's; longest pause at the receiver {:.0} ms; activation p50 {:.0} ms, worst {:.0} ms",
        sockets.closed()?.len(),
        connections.saturating_sub(1),
        pause.as_secs_f64() * 1e3,
        quantile(&took, 0.5),
        quantile(&took, 1.0),
    );
    for (name, pid) in [("Mixer", mixer.process()?.pid()), ("Rack", rack.process()?.pid())] {
        let cost = cost(pid.as_raw());
        println!("  {name}: {:.1} CPU s, peak {:.0} MiB", cost.cpu_seconds, cost.peak_mib);
    }
    Ok(())
}

fn tell(place: &str, tally: &Tally) {
    let Tally {
        all,
        lost,
        doubled,
        disordered,
        versions,
    } = tally;
    println!(
        "  {place}: {all} messages, {lost} lost, {doubled} doubled, {disordered} disordered, of {} versions",
        versions.len()
    );
}
