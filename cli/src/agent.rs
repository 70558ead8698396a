//! The Rack agent as a process: configuration, log file, signals, and the live keys.
//!
//! # Not here
//!
//! What a Rack does (`rack`).

use std::process::ExitCode;
use std::sync::Arc;

use chassis::config::{self, Change, LoggingConfig, Settings};
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
pub(crate) fn run(global: &Global) -> Result<ExitCode, Error> {
    let sources = sources(global);
    let settings = config::load(&SCHEMA, &sources).map_err(|bad| Error::Config(bad.to_string()))?;
    let rack = RackConfig::of(&settings).map_err(|bad| Error::Config(bad.to_string()))?;
    let layer = TelemetryLayer::default();
    let logs = logs::start(&rack.logging, LogFile::Rack, Some(Box::new(layer.clone()))).map_err(of_chassis)?;
    let throttle = Arc::new(Throttle::new(rack.logging.throttling));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Agent {
            reason: format!("no runtime: {error}"),
            exit: Exit::Unavailable,
        })?;
    let parts = AgentParts::new(rack, system_clock(), os_entropy(), Arc::clone(&throttle), layer);
    let logs = Arc::new(logs);
    let ended = runtime.block_on(serve(sources, settings, parts, Arc::clone(&logs), throttle));
    drop(runtime);
    if let Some(logs) = Arc::into_inner(logs) {
        logs.close();
    }
    ended.map(|()| ExitCode::SUCCESS)
}

async fn serve(
    sources: config::Sources,
    settings: Settings,
    parts: AgentParts,
    logs: Arc<Logs>,
    throttle: Arc<Throttle>,
) -> Result<(), Error> {
    let shutdown = Shutdown::start().map_err(of_chassis)?;
    settings
        .warnings()
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
    let apply = move |settings: &Settings, _: &Change| {
        let logging = LoggingConfig::of(settings);
        logs.apply(&logging);
        throttle.apply(logging.throttling);
    };
    let watch = config::watch(sources, settings, apply).unwrap_or_else(|error| {
        tracing::warn!(%error, "changes of the configuration file will not be noticed");
        None
    });
    let ended = rack::run(parts, shutdown.token()).await;
    if let Err(error) = &ended {
        tracing::error!(%error, "the rack cannot run");
    }
    if let Some(watch) = watch {
        watch.close().await.map_err(of_chassis)?;
    }
    shutdown.close().await;
    ended.map_err(|error| Error::Agent {
        exit: error.exit(),
        reason: error.to_string(),
    })
}

fn of_chassis(error: chassis::Error) -> Error {
    Error::Agent {
        exit: error.exit(),
        reason: error.to_string(),
    }
}
