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
//!
//! `bench-lanes guarded` compares buses instead: see `lanes/guarded.rs`.

#[path = "lanes/guarded.rs"]
mod guarded;
#[path = "lanes/run.rs"]
mod run;

use benches::bus_site::BusGuard;
use benches::{load, setting};
use harness::Failure;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    println!("load before: {}", load());
    let lanes = std::env::var("BENCH_LANES").unwrap_or_else(|_| "hot,guaranteed".to_owned());
    match words[..] {
        [] => lanes.split(',').try_for_each(all_rates)?,
        ["guarded"] => lanes.split(',').try_for_each(guarded::compare)?,
        _ => return Err("usage: bench-lanes [guarded]".into()),
    }
    println!("load after: {}", load());
    Ok(())
}

/// A lane at every rate, on the bus as it is by default.
fn all_rates(lane: &str) -> Result<(), Failure> {
    let rates = std::env::var("BENCH_RATES").unwrap_or_else(|_| "1000,5000".to_owned());
    let rates: Result<Vec<u64>, _> = rates.split(',').map(str::parse).collect();
    let source = std::env::var("BENCH_SOURCE").unwrap_or_else(|_| "generator".to_owned());
    for rate in rates?.into_iter().filter(|_| source == "generator") {
        let count = rate * setting("BENCH_SECONDS", 20);
        run::measure(BusGuard::Keys, lane, &source, Some(rate), count)?;
    }
    run::measure(BusGuard::Keys, lane, &source, None, setting("BENCH_ROWS", 100_000))?;
    Ok(())
}
