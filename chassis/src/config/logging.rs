//! The section `[logging]` of every process, and `[logging.throttling]` of those that run gears.

use std::path::{Path, PathBuf};

use model::{ByteSize, Level};

use super::config_reader::MebibyteCount;
use super::schema::ConfigKey;
use super::settings::Settings;
use crate::config_section;

config_section! {
    /// Log files: level and rotation.
    pub struct LoggingConfig in "logging" {
        /// Minimum level that is logged.
        level: Level = "info", live(), aliases(&["PLATFORM_LEVEL"]);
        /// Log file; its folder is created if it is missing.
        filename: PathBuf = "logs/platform.log";
        /// Size in MiB at which the log file is rotated.
        max_size("max_size_mb"): ByteSize as MebibyteCount = 100, within(1, 1 << 20);
        /// Rotated log files that are kept; 0 keeps none.
        max_backups: usize = 7, within(0, 100_000), previous_default("3");
        /// Whether rotated log files are compressed with gzip.
        compress: bool = true;
        /// Logs everything, libraries included, whatever the level says.
        trace: bool = false, live(), aliases(&["PLATFORM_TRACE"]);
        /// Logs everything from debug up, libraries included, whatever the level says.
        debug: bool = false, live(), aliases(&["PLATFORM_DEBUG"]);
    }
}

config_section! {
    /// Rate limit for the log lines of gears.
    #[derive(Copy)]
    pub struct LogThrottleConfig in "logging.throttling" {
        /// Whether the log lines of a gear are throttled.
        enabled: bool = true, live();
        /// Log lines per second that one gear may write.
        rate: f64 = 500.0, between(0.001, 1e9), live(), previous_default("100.0");
        /// Log lines that one gear may write at once.
        burst: u32 = 50, within(1, 1_000_000_000), live(), previous_default("10");
    }
}

/// The keys of `[logging]`, with the default of `filename` as a TOML literal.
#[must_use]
pub const fn keys(filename: &'static str) -> [ConfigKey; 7] {
    let [level, file, max_size, max_backups, compress, trace, debug] = LoggingConfig::KEYS;
    [
        level,
        file.default(filename),
        max_size,
        max_backups,
        compress,
        trace,
        debug,
    ]
}

impl LogThrottleConfig {
    /// The section of some settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        Self::read(settings, &mut Vec::new())
    }
}

impl LoggingConfig {
    /// The section of some settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        Self::read(settings, &mut Vec::new())
    }

    /// The folder of the log files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        durable_fs::parent_of(&self.filename)
    }
}
