//! The Rack agent as a process: configuration, log file, signals, and the live keys.
//!
//! # Not here
//!
//! What a Rack does (`rack`).

use std::sync::Arc;

use chassis::config::{self, Change, LoggingConfig, Settings, Sources, ThrottleConfig, Watch};
use chassis::logs::{self, LogFile, Logs};
use chassis::shutdown::Shutdown;
use chassis::throttle::Throttle;
use chassis::{Exit, os_entropy, system_clock};
use rack::AgentParts;
use rack::config::{RackConfig, SCHEMA};
use rack::telemetry::TelemetryLayer;

use crate::args::Global;
use crate::commands::config::sources;
use crate::error::Error;

/// Runs the agent until it is told to stop.
pub(crate) fn run(global: &Global) -> Result<(), Error> {
    let sources = sources(global);
    let settings = config::load(&SCHEMA, &sources).map_err(|bad| Error::Config(bad.to_string()))?;
    let rack = RackConfig::of(&settings).map_err(|bad| Error::Config(bad.to_string()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Process {
            reason: format!("no runtime: {error}"),
            exit: Exit::Unavailable,
        })?;
    runtime.block_on(serve(sources, settings, rack))
}

/// Listens for signals before anything else, so that a stop is orderly from the first moment on.
async fn serve(sources: Sources, settings: Settings, rack: RackConfig) -> Result<(), Error> {
    let shutdown = Shutdown::start()?;
    let layer = TelemetryLayer::default();
    let logs = logs::start(&rack.logging, LogFile::Rack, Some(Box::new(layer.clone())))?;
    let logs = Arc::new(logs);
    settings
        .warnings()
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
    let throttle = Arc::new(Throttle::new(rack.throttling));
    let watch = watch(sources, settings, Arc::clone(&logs), Arc::clone(&throttle));
    let mut parts = AgentParts::new(rack, system_clock(), os_entropy(), throttle, layer);
    parts.level = Some(logs.level());
    let ended = rack::run(parts, shutdown.token()).await;
    if let Err(error) = &ended {
        tracing::error!(%error, "the rack cannot run");
    }
    if let Some(watch) = watch {
        watch.close().await?;
    }
    shutdown.close().await;
    if let Some(logs) = Arc::into_inner(logs) {
        logs.close();
    }
    ended.map_err(|error| Error::Process {
        exit: error.exit(),
        reason: error.to_string(),
    })
}

/// Applies the live keys whenever the file changes.
fn watch(sources: Sources, settings: Settings, logs: Arc<Logs>, throttle: Arc<Throttle>) -> Option<Watch> {
    let apply = move |settings: &Settings, _: &Change| {
        logs.apply(&LoggingConfig::of(settings));
        throttle.apply(ThrottleConfig::of(settings));
    };
    config::watch(sources, settings, apply).unwrap_or_else(|error| {
        tracing::warn!(%error, "changes of the configuration file will not be noticed");
        None
    })
}
