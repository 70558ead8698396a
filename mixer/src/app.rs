//! The Mixer as a whole: the order in which its services start, and stop in reverse.
//!
//! ```text
//!  start: specs ─ engine ─ registry ─ bus server, streams ─ cluster ─ scenario ─ ingest ─ agent RPC, rollout, liveness monitor ─ views ─
//!         dead-letter queue ─ own spans ─ export ─ Iceberg catalogue ─ API ─ PostgreSQL
//!  close: PostgreSQL ─ API ─ agent RPC, rollout, liveness monitor, views, dead-letter queue, own spans, export, Iceberg catalogue ─ ingest drains ─ queries end ─ engine publishes and closes ─
//!         last views ─ bus server stops
//! ```
//!
//! # Invariants
//!
//! - A start that fails closes what it had started.
//! - A task that dies, or an engine that is poisoned, ends the Mixer with an error: [`Mixer::failed`].
//!
//! # Not here
//!
//! Command line, log files, signals (`main`).

mod lifecycle;
mod listeners;
pub(crate) mod settings;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chassis::ExitReason;
use model::{Clock, Entropy};

use crate::api::ApiServer;
use crate::config::MixerConfig;
use crate::control::ControlPlane;
use crate::tasks::{FailureReceiver, failure_channel};
use lifecycle::MixerComponents;
use listeners::ListenAddresses;
pub use listeners::OtlpAddresses;

pub use crate::start_error::StartError;

/// How often the ingest pipeline is asked whether it still runs.
const LOOK: Duration = Duration::from_millis(200);

/// A running Mixer.
#[derive(Debug)]
pub struct Mixer {
    parts: MixerComponents,
    failures: FailureReceiver,
    control: Arc<ControlPlane>,
    addresses: ListenAddresses,
}

/// Why a Mixer cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct MixerFailure {
    /// What died.
    pub reason: String,
    /// The exit code.
    pub exit: ExitReason,
}

impl Mixer {
    /// Starts everything. When it returns, Racks can enrol and the API answers.
    ///
    /// # Errors
    /// [`StartError`], after what had been started is closed again.
    pub async fn start(config: MixerConfig, clock: Clock, entropy: Entropy) -> Result<Self, StartError> {
        let (fatal, failures) = failure_channel();
        let mut parts = MixerComponents::default();
        match parts.start(config, clock, entropy, &fatal).await {
            Ok((control, addresses)) => Ok(Self {
                parts,
                failures,
                control,
                addresses,
            }),
            Err(error) => {
                parts.close().await;
                Err(error)
            }
        }
    }

    /// The control plane's handle.
    #[must_use]
    pub const fn control(&self) -> &Arc<ControlPlane> {
        &self.control
    }

    /// Where the REST API listens.
    #[must_use]
    pub const fn api_addr(&self) -> SocketAddr {
        self.addresses.api
    }

    /// Where PostgreSQL clients connect, if they may.
    #[must_use]
    pub const fn postgres_addr(&self) -> Option<SocketAddr> {
        self.addresses.postgres
    }

    /// Where OTLP is received at ports of its own, if it is.
    #[must_use]
    pub const fn otlp_addresses(&self) -> Option<OtlpAddresses> {
        self.addresses.otlp
    }

    /// The services that its API calls.
    #[cfg(test)]
    pub(crate) fn api_parts(&self) -> Option<crate::api::ApiParts> {
        Some(crate::api::ApiParts {
            querier: Arc::clone(self.parts.querier.as_ref()?),
            control: Arc::clone(&self.control),
            dlq: Arc::clone(self.parts.dlq.as_ref()?),
            engine: Arc::clone(self.parts.engine.as_ref()?),
            ingest: self.parts.ingest.as_ref().map(ingest::IngestPipeline::live_stats),
            views: self.parts.views.as_ref()?.stats(),
            specs: Arc::clone(self.parts.specs.as_ref()?),
            authenticator: Arc::clone(self.parts.authenticator.as_ref()?),
            backups: Arc::clone(self.parts.backups.as_ref()?),
            security: Arc::default(),
            export: self.parts.exported.clone(),
            catalog: self.parts.catalog.clone(),
            tls: None,
            senders: crate::api::SenderAnswers {
                clock: chassis::system_clock(),
                otlp_entity: ["service.name".to_owned()].into(),
                loki_entity: ["host".to_owned()].into(),
                elasticsearch_entity: ["host.name".to_owned()].into(),
                prometheus_entity: ["instance".to_owned()].into(),
            },
            spans: crate::self_tracing::SpanRecorder::default(),
            reports_itself: true,
        })
    }

    /// Returns when telemetry that is sent is stored: at once where collection is off.
    pub fn ready(&self) -> impl Future<Output = ()> + use<> {
        let stats = self.parts.ingest.as_ref().map(ingest::IngestPipeline::live_stats);
        async move {
            if let Some(stats) = stats {
                stats.wait_until_open().await;
            }
        }
    }

    /// Asks the API as its clients do, through its listener, and what every request needs: the engine's state and the registry. It comes back as long as
    /// none of them hangs, whatever they answer: who waits for room on the disk, or for the bus, is alive.
    ///
    /// It does not see a writer of the log, or a consumer of the bus, that stands still by itself: rows that wait for them wait for a slow disk too, which is
    /// no reason to end. One that ends is [`Mixer::failed`].
    pub fn liveness_probe(&self) -> impl Fn() + Clone + Send + use<> {
        let (engine, registry) = (self.parts.engine.clone(), Arc::clone(&self.control.registry));
        let api = self.parts.api.as_ref().map(ApiServer::probe);
        move || {
            if let Some(engine) = &engine {
                let _ = engine.health_issue();
            }
            let _ = registry.active_scenario();
            if let Some(api) = &api {
                api.wait_for_answer();
            }
        }
    }

    /// Returns when the Mixer cannot go on; then close it and exit.
    pub async fn failed(&mut self) -> MixerFailure {
        let died = |reason| MixerFailure {
            reason,
            exit: ExitReason::Io,
        };
        let poisoned = async {
            match &self.parts.engine {
                Some(engine) => engine.poisoned().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            reason = self.failures.first() => died(reason),
            reason = poisoned => died(format!("the storage engine failed: {reason}")),
            () = ended(self.parts.ingest.as_ref()) => died("the ingest pipeline stopped unexpectedly".to_owned()),
        }
    }

    /// Stops everything in order. What was acknowledged is on disk when it returns.
    pub async fn close(self) {
        self.parts.close().await;
    }
}

async fn ended(ingest: Option<&ingest::IngestPipeline>) {
    let Some(ingest) = ingest else {
        return std::future::pending().await;
    };
    while !ingest.is_finished() {
        tokio::time::sleep(LOOK).await;
    }
}
