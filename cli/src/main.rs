//! The command `platform`: without a subcommand it is the Rack agent, with one it asks or administers a Mixer.
//!
//! # Invariants
//!
//! - Data goes to standard output, everything else to standard error.
//! - Exit codes follow sysexits; this is the only place that turns an error into one.
//!
//! # Not here
//!
//! What a Rack does (`rack`), what a query means (the Mixer). This program links no Parquet and no query engine.

mod agent;
mod args;
mod chart;
mod client;
mod commands;
mod error;
mod gear_page;
mod graph;
#[cfg(test)]
mod hostile;
mod lines;
mod log;
mod output;
mod pager;
mod progress;
mod screen;
mod spans;
mod stream;
mod timeline;
mod times;
mod waterfall;

use std::process::ExitCode;

use clap::Parser;
use tikv_jemallocator::Jemalloc;

use crate::args::{Args, Command};
use crate::error::Error;
use crate::log::CommandLog;

/// A fifth of a busy Rack's time went into the allocator of the C library.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let code = if error.use_stderr() { 64 } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let log = match CommandLog::start(&args) {
        Ok(log) => log,
        Err(error) => return ExitCode::from(complain(&error)),
    };
    let ended = run(args);
    let code = match &ended {
        Err(error) if !error.is_closed_pipe() => complain(error),
        _ => 0,
    };
    log.close(code, ended.err().as_ref());
    ExitCode::from(code)
}

/// Says what went wrong; the exit code for it.
fn complain(error: &Error) -> u8 {
    error.complain();
    error.exit_code()
}

fn run(args: Args) -> Result<(), Error> {
    match args.command {
        None | Some(Command::Run) => agent::run(&args.global),
        Some(Command::Logs(query)) => commands::logs::run(&query),
        Some(Command::Tail(query)) => commands::tail::run(&query),
        Some(Command::Tap(tap)) => commands::tap::run(&tap),
        Some(Command::Traces(query)) => commands::traces::list(&query),
        Some(Command::Trace(query)) => commands::traces::show(&query),
        Some(Command::Metrics(query)) => commands::metrics::run(&query),
        Some(Command::Messages(query)) => commands::messages::run(&query),
        Some(Command::Flux(query)) => commands::flux::show(&query),
        Some(Command::DeadLetters(query)) => commands::logs::dead_letters(&query),
        Some(Command::Dlq(dlq)) => commands::dlq::run(&dlq),
        Some(Command::Sql(query)) => commands::sql::run(&args.global, &query),
        Some(Command::Storage(query)) => commands::storage::run(&query),
        Some(Command::Racks(racks)) => commands::racks::run(&racks),
        Some(Command::Wires(api)) => commands::wires::run(&api),
        Some(Command::Audit(audit)) => commands::audit::run(&audit),
        Some(Command::Scenario(scenario)) => commands::scenario::run(&scenario),
        Some(Command::Spec(spec)) => commands::spec::run(&spec),
        Some(Command::Gears(gears)) => commands::gears::run(&gears),
        Some(Command::Config(config)) => commands::config::run(&args.global, &config),
        Some(Command::Schema(schema)) => commands::schema::run(&schema),
        Some(Command::Doctor(doctor)) => commands::doctor::run(&args.global, &doctor),
        Some(Command::Completions(completions)) => commands::program::completions(&completions),
        Some(Command::Man(man)) => commands::program::man(&man),
    }
}
