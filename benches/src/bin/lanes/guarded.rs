//! What keys and TLS of the bus cost a lane.
//!
//! Method: `BENCH_ROWS` (100,000) messages of 200 bytes as fast as they go, on each of three buses ([`BusGuard`]): a server that no Mixer runs, without
//! users and in clear text; the managed one with a key for each Rack, in clear text; and that with TLS, which Racks join by an invite. The
//! server has the same limits on each. `BENCH_ROUNDS` (5) rounds, each with a new Mixer, a new server and new Racks on every bus, in another order
//! each round. Messages a second are those at the sink, from the first to the last. Over lane hot messages stay in the Rack, and only their traces and
//! log rows pass the bus; over lane guaranteed messages do too. Stored is how long it took from the sender's start until the Mixer had the span of
//! every message, asked twice a second. CPU is of each process from its start, its peak memory the kernel's; what the server moved is the
//! kernel's count of bytes that it read and wrote, connections and files. Medians; the ratios are those of medians.

use benches::bus_site::BusGuard;
use benches::{median, setting};
use harness::Failure;

use super::run::{LaneRun, PROCESSES, measure};

/// Compares the buses on one lane.
pub(crate) fn compare(lane: &str) -> Result<(), Failure> {
    let (rounds, rows) = (setting("BENCH_ROUNDS", 5), setting("BENCH_ROWS", 100_000));
    let mut runs = BusGuard::ALL.map(|guard| (guard, Vec::new()));
    for round in 0..rounds {
        for guard in BusGuard::in_turn(round) {
            let run = measure(guard, lane, "generator", None, rows)?;
            let of = runs.iter_mut().find(|(known, _)| *known == guard);
            of.ok_or("no such bus")?.1.push(run);
        }
    }
    let middle = |runs: &[LaneRun], figure: fn(&LaneRun) -> f64| median(&mut figures(runs, figure));
    let [without, stored_without] = [
        middle(&runs[0].1, |run| run.per_second),
        middle(&runs[0].1, |run| run.stored_seconds),
    ];
    println!("{lane}: {rows} messages of 200 bytes, medians of {rounds} rounds");
    for (guard, runs) in &runs {
        let speeds = figures(runs, |run| run.per_second);
        let (slowest, fastest) = speeds.iter().fold((f64::MAX, f64::MIN), |(low, high), speed| {
            (low.min(*speed), high.max(*speed))
        });
        let (per_second, stored) = (
            middle(runs, |run| run.per_second),
            middle(runs, |run| run.stored_seconds),
        );
        println!(
            "  {guard}: {per_second:.0} messages/s ({slowest:.0} to {fastest:.0}), ratio {:.3}; stored after {stored:.1} s, ratio of the speeds {:.3}; \
             the server moved {:.0} MiB; {:.0} rows",
            per_second / without,
            stored_without / stored,
            middle(runs, |run| run.bus_mib),
            middle(runs, |run| run.rows),
        );
        for (at, name) in PROCESSES.iter().enumerate() {
            let of = |figure: fn(&benches::Cost) -> f64| {
                median(&mut runs.iter().map(|run| figure(&run.costs[at])).collect::<Vec<_>>())
            };
            println!(
                "    {name}: {:.2} CPU s, peak {:.0} MiB",
                of(|cost| cost.cpu_seconds),
                of(|cost| cost.peak_mib)
            );
        }
    }
    Ok(())
}

fn figures(runs: &[LaneRun], figure: fn(&LaneRun) -> f64) -> Vec<f64> {
    runs.iter().map(figure).collect()
}
