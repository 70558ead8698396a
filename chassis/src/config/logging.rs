//! The section `[logging]` of every process, and `[logging.throttling]` of those that run gears.

use std::path::{Path, PathBuf};

use model::{ByteSize, Level};

use super::schema::{ConfigKey, ValueKind};
use super::settings::Settings;

/// What `[logging]` rules, for the schemas.
pub const DOC: &str = "Log files: level and rotation.";
/// What `[logging.throttling]` rules, for the schemas.
pub const THROTTLING_DOC: &str = "Rate limit for the log lines of gears.";

/// The keys of `[logging]` without those of throttling, with the default of `filename` as a TOML literal.
#[must_use]
pub const fn keys(filename: &'static str) -> [ConfigKey; 7] {
    [
        ConfigKey::new(
            "logging.level",
            ValueKind::Word(&["debug", "info", "warn", "error"]),
            "\"info\"",
            "Minimum level that is logged",
        )
        .live()
        .aliases(&["PLATFORM_LEVEL"]),
        ConfigKey::new(
            "logging.filename",
            ValueKind::Path,
            filename,
            "Log file; its folder is created if it is missing",
        ),
        ConfigKey::new(
            "logging.max_size_mb",
            ValueKind::Int { min: 1, max: 1 << 20 },
            "100",
            "Size in MiB at which the log file is rotated",
        ),
        ConfigKey::new(
            "logging.max_backups",
            ValueKind::Int { min: 0, max: 100_000 },
            "7",
            "Rotated log files that are kept; 0 keeps none",
        )
        .previous_default("3"),
        ConfigKey::new(
            "logging.compress",
            ValueKind::Bool,
            "true",
            "Whether rotated log files are compressed with gzip",
        ),
        ConfigKey::new(
            "logging.trace",
            ValueKind::Bool,
            "false",
            "Logs everything, libraries included, whatever the level says",
        )
        .live()
        .aliases(&["PLATFORM_TRACE"]),
        ConfigKey::new(
            "logging.debug",
            ValueKind::Bool,
            "false",
            "Logs everything from debug up, libraries included, whatever the level says",
        )
        .live()
        .aliases(&["PLATFORM_DEBUG"]),
    ]
}

/// The keys of `[logging.throttling]`.
#[must_use]
pub const fn throttling_keys() -> [ConfigKey; 3] {
    [
        ConfigKey::new(
            "logging.throttling.enabled",
            ValueKind::Bool,
            "true",
            "Whether the log lines of a gear are throttled",
        )
        .live(),
        ConfigKey::new(
            "logging.throttling.rate",
            ValueKind::Float { min: 0.001, max: 1e9 },
            "500.0",
            "Log lines per second that one gear may write",
        )
        .live()
        .previous_default("100.0"),
        ConfigKey::new(
            "logging.throttling.burst",
            ValueKind::Int {
                min: 1,
                max: 1_000_000_000,
            },
            "50",
            "Log lines that one gear may write at once",
        )
        .live()
        .previous_default("10"),
    ]
}

/// The section `[logging]`.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggingConfig {
    /// The least level that is logged.
    pub level: Level,
    /// The log file.
    pub filename: PathBuf,
    /// The size at which it is rotated.
    pub max_size: ByteSize,
    /// How many rotated files are kept.
    pub max_backups: usize,
    /// Whether rotated files are compressed.
    pub compress: bool,
    /// Log everything.
    pub trace: bool,
    /// Log everything from debug up.
    pub debug: bool,
}

/// The section `[logging.throttling]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogThrottleConfig {
    /// Whether lines are throttled at all.
    pub enabled: bool,
    /// Lines per second and gear.
    pub rate: f64,
    /// Lines at once and gear.
    pub burst: u32,
}

impl LogThrottleConfig {
    /// The section of some settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        Self {
            enabled: settings.bool("logging.throttling.enabled"),
            rate: settings.float("logging.throttling.rate"),
            burst: u32::try_from(settings.int("logging.throttling.burst")).unwrap_or(u32::MAX),
        }
    }
}

impl LoggingConfig {
    /// The section of some settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        Self {
            level: settings.text("logging.level").parse().unwrap_or(Level::Info),
            filename: settings.path("logging.filename"),
            max_size: ByteSize::mib(settings.int("logging.max_size_mb")),
            max_backups: settings.count("logging.max_backups"),
            compress: settings.bool("logging.compress"),
            trace: settings.bool("logging.trace"),
            debug: settings.bool("logging.debug"),
        }
    }

    /// The folder of the log files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        durable_fs::parent_of(&self.filename)
    }
}
