//! The command `platform`: without a subcommand it runs the Rack agent, with one it queries or administers a Mixer.
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
mod allocator_threads;
mod api_tls;
mod args;
mod chart;
mod client;
mod command_log;
mod commands;
mod confirmation;
mod control_chars;
mod error;
mod gear_page;
mod graph;
mod key_value_view;
mod login;
mod nearest_word;
mod output;
mod pager;
mod progress;
mod span_tree;
mod sse;
mod table_layout;
mod terminal;
#[cfg(test)]
mod test_strings;
mod time_args;
mod value_units;
mod waterfall;

use std::process::ExitCode;

use clap::Parser;
use tikv_jemallocator::Jemalloc;

use crate::args::{CliCommand, PlatformArgs};
use crate::command_log::CommandLog;
use crate::error::Error;

/// A fifth of a busy Rack's time went into the allocator of the C library.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    let args = match PlatformArgs::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let code = if error.use_stderr() { 64 } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    // Manual pages are for everybody.
    if !matches!(args.command, Some(CliCommand::Man(_))) {
        chassis::file_modes::restrict_umask();
    }
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
    error.report();
    error.exit_code()
}

fn run(args: PlatformArgs) -> Result<(), Error> {
    match args.command {
        None | Some(CliCommand::Run) => agent::run(&args.global),
        Some(CliCommand::Logs(query)) => commands::logs::run(&query),
        Some(CliCommand::Tail(query)) => commands::tail::run(&query),
        Some(CliCommand::Tap(tap)) => commands::tap::run(&tap),
        Some(CliCommand::Traces(query)) => commands::traces::list(&query),
        Some(CliCommand::Trace(query)) => commands::traces::show(&query),
        Some(CliCommand::Services(query)) => commands::traces::services(&query),
        Some(CliCommand::Dependencies(query)) => commands::traces::dependencies(&query),
        Some(CliCommand::Metrics(query)) => commands::metrics::run(&query),
        Some(CliCommand::Messages(query)) => commands::messages::run(&query),
        Some(CliCommand::Flux(query)) => commands::flux::show(&query),
        Some(CliCommand::DeadLetters(query)) => commands::logs::dead_letters(&query),
        Some(CliCommand::Dlq(dlq)) => commands::dlq::run(&dlq),
        Some(CliCommand::Sql(query)) => commands::sql::run(&args.global, &query),
        Some(CliCommand::Storage(query)) => commands::storage::run(&query),
        Some(CliCommand::Catalog(query)) => commands::catalog::run(&query),
        Some(CliCommand::Racks(racks)) => commands::racks::run(&racks),
        Some(CliCommand::Requests(requests)) => commands::requests::run(&requests),
        Some(CliCommand::Init(init)) => commands::init::run(&init),
        Some(CliCommand::Join(join)) => commands::join::run(&args.global, &join),
        Some(CliCommand::Wires(api)) => commands::wires::run(&api),
        Some(CliCommand::Backup(api)) => commands::backup::run(&api),
        Some(CliCommand::Audit(audit)) => commands::audit::run(&audit),
        Some(CliCommand::Token(token)) => commands::tokens::run(&token),
        Some(CliCommand::Login(login)) => commands::tokens::login(&login),
        Some(CliCommand::Logout(logout)) => commands::tokens::logout(&logout),
        Some(CliCommand::Whoami(api)) => commands::tokens::whoami(&api),
        Some(CliCommand::Scenario(scenario)) => commands::scenario::run(&scenario),
        Some(CliCommand::Spec(spec)) => commands::spec::run(&spec),
        Some(CliCommand::Gears(gears)) => commands::gears::run(&gears),
        Some(CliCommand::Config(config)) => commands::config::run(&args.global, &config),
        Some(CliCommand::Schema(schema)) => commands::schema::run(&schema),
        Some(CliCommand::Doctor(doctor)) => commands::doctor::run(&args.global, &doctor),
        Some(CliCommand::Completions(completions)) => commands::program::completions(&completions),
        Some(CliCommand::Man(man)) => commands::program::man(&man),
    }
}
