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
mod client;
mod commands;
mod error;
mod output;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};
use crate::error::Error;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let code = if error.use_stderr() { 64 } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match run(args) {
        Ok(code) => code,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "platform: {}", error.chain());
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(args: Args) -> Result<ExitCode, Error> {
    let Some(command) = args.command else {
        return agent::run(&args.global);
    };
    match command {
        Command::Run => return agent::run(&args.global),
        Command::Logs(query) => commands::logs::run(&query)?,
        Command::Traces(query) => commands::traces::list(&query)?,
        Command::Trace(query) => commands::traces::show(&query)?,
        Command::Metrics(query) => commands::metrics::run(&query)?,
        Command::DeadLetters(query) => commands::logs::dead_letters(&query)?,
        Command::Storage(query) => commands::storage::run(&query)?,
        Command::Racks(racks) => commands::racks::run(&racks)?,
        Command::Scenario(scenario) => commands::scenario::run(&scenario)?,
        Command::Gears(gears) => commands::gears::run(&gears)?,
        Command::Config(config) => return commands::config::run(&args.global, &config),
    }
    Ok(ExitCode::SUCCESS)
}
