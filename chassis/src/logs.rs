//! Log files of a process, and what a person at the terminal sees.
//!
//! ```text
//! tracing ─┬─ level (live) ─ file layer ──▶ queue ──▶ writer thread ─▶ file ─ rotate ─▶ gzip thread
//!          ├─ level (live) ─ stderr layer (everything on a terminal, else warn and up)
//!          └─ level (live) ─ the caller's layer (a Rack's own telemetry)
//! ```
//!
//! # Invariants
//!
//! - Logging never blocks and never panics: what the queue or the disk cannot take is counted and told later.
//! - [`Logs::close`] returns after every line that was accepted is written.
//! - One line of the file is one event: control characters in a message are escaped.
//!
//! # Not here
//!
//! The throttle per gear ([`crate::throttle`]): only a Rack knows which gear speaks.

mod level;
mod rotate;
mod writer;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

use self::level::LiveLevel;
use self::rotate::Rotation;
use self::writer::Writer;
use crate::Error;
use crate::config::LoggingConfig;

/// A caller's own layer.
pub type ExtraLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Which file a process writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFile {
    /// `platform-rack.log` in the folder of `logging.filename`.
    Rack,
    /// `platform-cli.log` there. The terminal sees warnings only.
    Cli,
    /// `logging.filename` itself.
    Exact,
}

impl LogFile {
    /// The file for a configuration.
    #[must_use]
    pub fn path(self, config: &LoggingConfig) -> PathBuf {
        match self {
            Self::Rack => config.dir().join("platform-rack.log"),
            Self::Cli => config.dir().join("platform-cli.log"),
            Self::Exact => config.filename.clone(),
        }
    }
}

/// The running log. Dropping it flushes too, but [`Logs::close`] says so.
#[derive(Debug)]
pub struct Logs {
    level: Arc<LiveLevel>,
    writer: Writer,
    path: PathBuf,
}

/// Starts the log of this process: opens the file and takes over `tracing`.
///
/// # Errors
/// If the file cannot be opened, or the log was started before.
pub fn start(config: &LoggingConfig, file: LogFile, extra_layer: Option<ExtraLayer>) -> Result<Logs, Error> {
    let path = file.path(config);
    let writer = Writer::start(&path, Rotation::of(config))?;
    let level = Arc::new(LiveLevel::new(config));
    let terminal = io::stderr().is_terminal();
    let stderr = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
        .log_internal_errors(false)
        .with_filter(level::Filter::stderr(&level, terminal && file != LogFile::Cli));
    let to_file = tracing_subscriber::fmt::layer()
        .with_writer(writer.sink())
        .with_ansi(false)
        .log_internal_errors(false)
        .with_filter(level::Filter::all(&level));
    let subscriber = tracing_subscriber::registry()
        .with(extra_layer.map(|layer| layer.with_filter(level::Filter::all(&level))))
        .with(to_file)
        .with(stderr);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| Error::LogStarted)?;
    Ok(Logs { level, writer, path })
}

impl Logs {
    /// Applies what may change while the process runs: level, trace, debug.
    pub fn apply(&self, config: &LoggingConfig) {
        self.level.apply(config);
    }

    /// The file written.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lines that neither the queue nor the disk could take, since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.writer.dropped()
    }

    /// Writes what is queued and ends. Later lines go to the terminal only.
    pub fn close(self) {
        self.writer.close();
    }
}
