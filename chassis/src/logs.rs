//! Log files of a process, and its log lines on a terminal.
//!
//! ```text
//! tracing ─┬─ level (live) ─ file layer ──▶ queue ──▶ writer thread ─▶ file ─ rotate ─▶ gzip thread
//!          ├─ level (live) ─ stderr layer (everything on a terminal, else warn and up; nothing of a command)
//!          └─ level (live) ─ the caller's layer (a Rack's own telemetry)
//! ```
//!
//! # Invariants
//!
//! - Logging never blocks and never panics: what the queue or the disk cannot take is counted and told later.
//! - [`ProcessLog::close`] returns after every line that was accepted is written.
//! - One line of the file is one event: control characters in a message are escaped.
//!
//! # Not here
//!
//! The throttle per gear ([`crate::log_rate_limiter`]): only a Rack knows which gear speaks.

mod level;
mod rotation;
mod writer;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

use self::level::LiveLevel;
use self::rotation::LogRotationPolicy;
use self::writer::LogWriter;
use crate::Error;
use crate::config::LoggingConfig;

/// A caller's own layer.
pub type ExtraLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Which file a process writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFile {
    /// `platform-rack.log` in the folder of `logging.filename`.
    Rack,
    /// `platform-cli.log` there. The terminal sees nothing of it: a command says on standard error itself what went wrong.
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

/// The running log. Dropping it flushes too, but [`ProcessLog::close`] says so.
#[derive(Debug)]
pub struct ProcessLog {
    level: Arc<LiveLevel>,
    writer: LogWriter,
    path: PathBuf,
}

/// Starts the log of this process: opens the file and takes over `tracing`.
///
/// # Errors
/// If the file cannot be opened, or the log was started before.
pub fn start(config: &LoggingConfig, file: LogFile, extra_layer: Option<ExtraLayer>) -> Result<ProcessLog, Error> {
    let path = file.path(config);
    let writer = LogWriter::start(&path, LogRotationPolicy::of(config))?;
    let level = Arc::new(LiveLevel::new(config));
    let terminal = io::stderr().is_terminal();
    let shown = match (file, terminal) {
        (LogFile::Cli, _) => LevelFilter::OFF,
        (_, true) => LevelFilter::TRACE,
        (_, false) => LevelFilter::WARN,
    };
    let stderr = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
        .log_internal_errors(false)
        .with_filter(level::LayerFilter::stderr(&level, shown));
    let to_file = tracing_subscriber::fmt::layer()
        .with_writer(writer.sink())
        .with_ansi(false)
        .log_internal_errors(false)
        .with_filter(level::LayerFilter::all(&level));
    let subscriber = tracing_subscriber::registry()
        .with(extra_layer.map(|layer| layer.with_filter(level::LayerFilter::all(&level))))
        .with(to_file)
        .with(stderr);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| Error::LogStarted)?;
    Ok(ProcessLog { level, writer, path })
}

/// Changes the level of the process's log; cheap to clone.
#[derive(Debug, Clone)]
pub struct LogLevelHandle(Arc<LiveLevel>);

impl LogLevelHandle {
    /// From now on this level; until the configuration file changes the level, or the process ends.
    pub fn set(&self, level: model::Level) {
        self.0.set(level);
    }
}

impl ProcessLog {
    /// What changes the level.
    #[must_use]
    pub fn level(&self) -> LogLevelHandle {
        LogLevelHandle(Arc::clone(&self.level))
    }

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::{ByteSize, Level};

    use super::*;

    fn config(dir: &Path) -> LoggingConfig {
        LoggingConfig {
            level: Level::Info,
            filename: dir.join("logs/platform.log"),
            max_size: ByteSize::mib(1),
            max_backups: 1,
            compress: true,
            trace: false,
            debug: false,
        }
    }

    #[test]
    fn each_process_writes_its_own_file_in_the_configured_folder() {
        let config = config(Path::new("/var"));
        let names = [LogFile::Rack, LogFile::Cli, LogFile::Exact].map(|file| file.path(&config));
        let expected = [
            "/var/logs/platform-rack.log",
            "/var/logs/platform-cli.log",
            "/var/logs/platform.log",
        ];
        assert_eq!(names, expected.map(PathBuf::from));
    }

    /// The one test here that starts the log: a process can do that once.
    #[test]
    fn the_level_changes_while_the_process_runs_and_a_closed_log_holds_every_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        let logs = start(&config, LogFile::Rack, None).unwrap();
        let path = logs.path().to_owned();
        tracing::debug!("hidden by info");
        tracing::info!(answer = 42, "shown\nby info");
        tracing::info!(target: "async_nats::client", "hidden library");
        config.level = Level::Error;
        logs.apply(&config);
        tracing::info!("hidden by error");
        config.trace = true;
        logs.apply(&config);
        tracing::trace!("shown by trace");
        tracing::trace!(target: "async_nats::client", "shown library");
        assert!(matches!(start(&config, LogFile::Rack, None), Err(Error::LogStarted)));
        assert_eq!(logs.dropped(), 0);
        logs.close();
        let text = std::fs::read_to_string(path).unwrap();
        assert!(!text.contains("hidden"), "{text}");
        let ours: Vec<&str> = text.lines().filter(|line| line.contains("shown")).collect();
        assert_eq!(ours.len(), 3, "{text}");
        assert!(
            ours[0].contains(" INFO ") && ours[0].ends_with("shown\\nby info answer=42"),
            "{text}"
        );
    }
}
