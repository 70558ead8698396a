//! The Rack agent as a process: configuration, log file, signals, and the live keys.
//!
//! # Not here
//!
//! What a Rack does (`rack`).

use std::sync::Arc;
use std::time::Duration;

use chassis::config::{self, ConfigChange, ConfigSources, ConfigWatcher, LogThrottleConfig, LoggingConfig, Settings};
use chassis::log_rate_limiter::LogRateLimiter;
use chassis::logs::{self, LogFile, ProcessLog};
use chassis::service_notifier::ServiceNotifier;
use chassis::shutdown::ShutdownListener;
use chassis::{ExitReason, os_entropy, system_clock};
use rack::AgentParts;
use rack::config::{RackConfig, SCHEMA};
use rack::sandbox::{self, SandboxState};
use rack::telemetry::TelemetryLayer;
use tokio::runtime::Runtime;

use crate::allocator_threads::without_allocator_threads;
use crate::args::GlobalArgs;
use crate::commands::config::sources;
use crate::error::Error;

/// How long threads may take to end that something is awaited in which cannot be cut off.
const LAST_THREADS: Duration = Duration::from_millis(100);

/// Runs the agent until it is asked to stop.
pub(crate) fn run(global: &GlobalArgs) -> Result<(), Error> {
    let sources = sources(global);
    let settings = config::load(&SCHEMA, &sources).map_err(|bad| Error::Config(bad.to_string()))?;
    let rack = RackConfig::of(&settings).map_err(|bad| Error::Config(bad.to_string()))?;
    // Before there are other threads: it is for this one and what it starts.
    let confined = without_allocator_threads(|| sandbox::confine(&rack, &settings));
    let sandbox = confined.map_err(|error| Error::Process {
        exit: error.exit(),
        reason: error.to_string(),
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Process {
            reason: format!("cannot start the runtime: {error}"),
            exit: ExitReason::Unavailable,
        })?;
    run_to_end(runtime, serve(sources, (settings, rack), sandbox))
}

/// Does the work; what threads are still at then, such as a name server or a file system that does not answer, ends with the
/// process.
fn run_to_end<T>(runtime: Runtime, work: impl Future<Output = T>) -> T {
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(LAST_THREADS);
    done
}

/// Listens for signals before anything else, so that a stop is orderly from the first moment on.
async fn serve(
    sources: ConfigSources,
    (settings, rack): (Settings, RackConfig),
    sandbox: SandboxState,
) -> Result<(), Error> {
    let shutdown = ShutdownListener::start()?;
    let notifier = ServiceNotifier::of_process().map_err(|error| Error::Process {
        exit: ExitReason::Io,
        reason: error.to_string(),
    })?;
    let layer = TelemetryLayer::default();
    let logs = logs::start(&rack.logging, LogFile::Rack, Some(Box::new(layer.clone())))?;
    let logs = Arc::new(logs);
    settings
        .warnings()
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
    sandbox.log();
    let throttle = Arc::new(LogRateLimiter::new(rack.throttling));
    let watch = watch(sources, settings, Arc::clone(&logs), Arc::clone(&throttle));
    let mut parts = AgentParts::new(rack, system_clock(), os_entropy(), throttle, layer);
    parts.level = Some(logs.level());
    parts.notifier = notifier.clone();
    let ended = tokio::select! {
        ended = rack::run(parts, shutdown.token()) => ended,
        never = notifier.serve_reloads(watch.as_ref()) => match never {},
    };
    if let Err(error) = &ended {
        tracing::error!(%error, "the Rack cannot run");
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
fn watch(
    sources: ConfigSources,
    settings: Settings,
    logs: Arc<ProcessLog>,
    throttle: Arc<LogRateLimiter>,
) -> Option<ConfigWatcher> {
    let apply = move |settings: &Settings, _: &ConfigChange| {
        logs.apply(&LoggingConfig::of(settings));
        throttle.apply(LogThrottleConfig::of(settings));
    };
    config::watch(sources, settings, apply).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot watch the configuration file; changes need a restart");
        None
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_stuck_thread_does_not_delay_the_exit_of_the_process() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        let (never, awaited) = mpsc::channel::<()>();
        let (begins, begun) = mpsc::channel();
        let ended = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let work = async move {
                tokio::task::spawn_blocking(move || {
                    begins.send(()).unwrap();
                    awaited.recv().ok();
                });
                tokio::task::spawn_blocking(move || begun.recv().unwrap())
                    .await
                    .unwrap();
                7
            };
            ended.0.send(run_to_end(runtime, work)).unwrap();
        });
        // Where the thread were awaited, nothing would come before it is let go.
        let result = ended.1.recv_timeout(Duration::from_secs(10));
        drop(never);
        thread.join().unwrap();
        assert_eq!(result, Ok(7));
    }
}
