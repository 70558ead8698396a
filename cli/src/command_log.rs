//! The optional log file of a command: `--log`, or `PLATFORM_CLI_LOG=true`.
//!
//! One line says what was asked, one how it ended; each request to the Mixer is detail between them (level debug).
//!
//! # Not here
//!
//! The agent's log (`agent`): it always has one.

use std::time::Instant;

use chassis::config::{self, LoggingConfig, without_credentials};
use chassis::logs::{self, LogFile, ProcessLog};

use crate::args::{CliCommand, PlatformArgs};
use crate::commands::config::sources;
use crate::error::Error;

/// The log of this command, if there is one.
pub(crate) struct CommandLog {
    logs: Option<ProcessLog>,
    started: Instant,
}

impl CommandLog {
    /// Opens `platform-cli.log` beside the Rack's log file if it is wished for, and says what is asked.
    pub(crate) fn start(args: &PlatformArgs) -> Result<Self, Error> {
        let started = Instant::now();
        let is_agent = matches!(args.command, None | Some(CliCommand::Run));
        if is_agent || !args.global.log {
            return Ok(Self { logs: None, started });
        }
        let settings = config::load(&rack::config::SCHEMA, &sources(&args.global))
            .map_err(|bad| Error::Config(bad.to_string()))?;
        let logs = logs::start(&LoggingConfig::of(&settings), LogFile::Cli, None)?;
        for warning in settings.warnings() {
            tracing::warn!("{warning}");
        }
        let words: Vec<String> = std::env::args_os()
            .skip(1)
            .map(|word| shown(&word.to_string_lossy()))
            .collect();
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(version, command = words.join(" "), "asked");
        Ok(Self {
            logs: Some(logs),
            started,
        })
    }

    /// Says how it ended and writes what is queued.
    pub(crate) fn close(self, exit: u8, error: Option<&Error>) {
        let Some(logs) = self.logs else { return };
        let took_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        match error.filter(|_| exit != 0) {
            None => tracing::info!(exit, took_ms, "done"),
            Some(error) => tracing::error!(exit, took_ms, error = error.chain(), "failed"),
        }
        logs.close();
    }
}

/// A word of the command line; an address without its credentials.
fn shown(word: &str) -> String {
    if word.contains("://") {
        without_credentials(word)
    } else {
        word.to_owned()
    }
}
