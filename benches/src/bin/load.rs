//! A Mixer that many ask: answers under 200 clients, queries beside ingest, and hostile statements in little memory.
//!
//! Method: a store of two days as `benches/src/days.rs` makes it, the Mixer's binary on it with default settings (its retention apart), clients over
//! loopback on the same cores. A dozen questions over closed ranges are asked once alone; later answers must have the same data.
//!
//! - `clients`: `BENCH_CLIENTS` (200) threads, each with a connection of its own, ask at random without a pause for `BENCH_SECONDS` (60).
//!   Answers, those that were turned away (429 and 503), wrong ones; latency of the answers; the Mixer's peak memory next to what it is configured to use.
//! - `beside`: `BENCH_SECONDS` each of ten questions a second, of NDJSON as fast as four connections post it, and of both.
//! - `hostile`: another Mixer with 384 MiB for queries and 128 MiB for ingest in a memory cgroup of 1 GiB without swap; twelve threads send huge groupings, sorted
//!   cross joins, unselective patterns and whole downloads for `BENCH_SECONDS`, and one asks an everyday question ten times a second.
//!   Whether the process lives, what the everyday question met, peak memory of the group. Needs root; left out, loudly, elsewhere.
//! - `generated`: another Mixer, without that store, with 64 MiB for queries and a timeout of 5 s: NDJSON as fast as four connections post it for
//!   `BENCH_SECONDS`, then `BENCH_STATEMENTS` (10,000) statements of the generator of the tests (`query/src/tests/hostile_generator/mod.rs`, seed `BENCH_SEED`) over `BENCH_CLIENTS` (4)
//!   connections, half of them alone and half beside such NDJSON. Outcomes, the latest answer, peak memory of each part over what the idle
//!   process had, rows a second of each; over one connection, the statements that took most. Fails if the process does not live or an answer is later than 6 s.
//! - `present [minutes]`: the questions of a dashboard of the present hour, beside 30,000 rows a second; see `load/present.rs`.

#[path = "load/clients.rs"]
mod clients;
#[path = "load/generated.rs"]
mod generated;
#[path = "../../../query/src/tests/hostile_generator/mod.rs"]
mod greed;
#[path = "load/hostile.rs"]
mod hostile;
#[path = "load/present.rs"]
mod present;

use std::path::Path;

use benches::days::make;
use benches::feed::runtime;
use benches::load;
use harness::Failure;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    println!("load before: {}", load());
    match words[..] {
        ["make", store] => runtime()?.block_on(make(Path::new(store)))?,
        [] => {
            clients::both()?;
            hostile::run()?;
            generated::run()?;
        }
        ["generated"] => generated::run()?,
        ["hostile"] => hostile::run()?,
        ["clients"] => clients::both()?,
        ["present"] => present::run(60)?,
        ["present", minutes] => present::run(minutes.parse()?)?,
        _ => return Err("usage: bench-load [clients|hostile|generated|present [minutes]]".into()),
    }
    println!("load after: {}", load());
    Ok(())
}
