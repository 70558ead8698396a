//! The log level, which can change while the process runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use model::Level;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{self, Context};

use crate::config::LoggingConfig;

/// Libraries that say too much below warn; the overrides `trace` and `debug` open them.
const LIBRARIES: [&str; 12] = [
    "async_nats",
    "datafusion",
    "h2",
    "hyper",
    "hyper_util",
    "mio",
    "notify",
    "object_store",
    "parquet",
    "rustls",
    "sqlparser",
    "tower",
];

/// The level in force: for our own lines and for those of libraries.
#[derive(Debug)]
pub(super) struct LiveLevel {
    ours: AtomicU8,
    libraries: AtomicU8,
}

impl LiveLevel {
    pub(super) fn new(config: &LoggingConfig) -> Self {
        let (ours, libraries) = levels(config);
        Self {
            ours: AtomicU8::new(rank(ours)),
            libraries: AtomicU8::new(rank(libraries)),
        }
    }

    pub(super) fn apply(&self, config: &LoggingConfig) {
        let (ours, libraries) = levels(config);
        self.ours.store(rank(ours), Ordering::Relaxed);
        self.libraries.store(rank(libraries), Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
    }

    /// This level for our own lines; libraries say no more than warn.
    pub(super) fn set(&self, level: Level) {
        let own = filter(level);
        self.ours.store(rank(own), Ordering::Relaxed);
        self.libraries
            .store(rank(own.min(LevelFilter::WARN)), Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
    }

    fn lets(&self, metadata: &Metadata<'_>) -> bool {
        let root = metadata.target().split("::").next().unwrap_or_default();
        let level = if LIBRARIES.contains(&root) {
            &self.libraries
        } else {
            &self.ours
        };
        rank(LevelFilter::from_level(*metadata.level())) <= level.load(Ordering::Relaxed)
    }

    fn widest(&self) -> LevelFilter {
        let rank = self
            .ours
            .load(Ordering::Relaxed)
            .max(self.libraries.load(Ordering::Relaxed));
        match rank {
            0 => LevelFilter::OFF,
            1 => LevelFilter::ERROR,
            2 => LevelFilter::WARN,
            3 => LevelFilter::INFO,
            4 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        }
    }
}

const fn filter(level: Level) -> LevelFilter {
    match level {
        Level::Debug => LevelFilter::DEBUG,
        Level::Info => LevelFilter::INFO,
        Level::Warn => LevelFilter::WARN,
        Level::Error => LevelFilter::ERROR,
    }
}

/// The levels for our own lines and for those of libraries.
fn levels(config: &LoggingConfig) -> (LevelFilter, LevelFilter) {
    let own = filter(config.level);
    match config {
        LoggingConfig { trace: true, .. } => (LevelFilter::TRACE, LevelFilter::TRACE),
        LoggingConfig { debug: true, .. } => (LevelFilter::DEBUG, LevelFilter::DEBUG),
        _ => (own, own.min(LevelFilter::WARN)),
    }
}

/// A level as a number that grows with what is let through.
fn rank(level: LevelFilter) -> u8 {
    match level.into_level() {
        None => 0,
        Some(tracing::Level::ERROR) => 1,
        Some(tracing::Level::WARN) => 2,
        Some(tracing::Level::INFO) => 3,
        Some(tracing::Level::DEBUG) => 4,
        Some(tracing::Level::TRACE) => 5,
    }
}

/// A layer's filter: the live level, within a bound of the layer.
#[derive(Debug, Clone)]
pub(super) struct LayerFilter {
    level: Arc<LiveLevel>,
    bound: LevelFilter,
}

impl LayerFilter {
    pub(super) fn all(level: &Arc<LiveLevel>) -> Self {
        Self {
            level: Arc::clone(level),
            bound: LevelFilter::TRACE,
        }
    }

    pub(super) fn stderr(level: &Arc<LiveLevel>, bound: LevelFilter) -> Self {
        Self {
            level: Arc::clone(level),
            bound,
        }
    }

    fn lets(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.bound && self.level.lets(metadata)
    }
}

impl<S: Subscriber> layer::Filter<S> for LayerFilter {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.lets(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.lets(metadata) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level.widest().min(self.bound))
    }
}
