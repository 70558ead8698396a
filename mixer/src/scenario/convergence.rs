//! Convergence after an activation: waits until the Racks that count run it, and says which do not.

use std::sync::Arc;
use std::time::Duration;

use model::scenario::Scenario;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::rollout_status::{self, RackRolloutStatus, ScenarioRef};
use crate::liveness::LivenessTracker;
use crate::registry::{ClusterRegistry, RegistryError};

/// Answers of so long are looked at together: each look reads all Racks.
const GATHERING: Duration = Duration::from_millis(50);

/// What is awaited.
#[derive(Debug)]
pub(crate) struct ConvergenceMonitor {
    pub(crate) registry: Arc<ClusterRegistry>,
    pub(crate) liveness: Arc<LivenessTracker>,
    pub(crate) wanted: ScenarioRef,
    pub(crate) scenario: Scenario,
    /// `mixer.scenario_wait_timeout`, or what a request says.
    pub(crate) within: Duration,
}

impl ConvergenceMonitor {
    /// Waits, then logs wanted against running.
    pub(crate) async fn report(self, stop: CancellationToken) {
        let standings = tokio::select! {
            () = stop.cancelled() => return,
            standings = self.wait() => standings,
        };
        let standings = match standings {
            Ok(standings) => standings,
            Err(error) => {
                tracing::error!(%error, "cannot determine whether the Racks run the scenario");
                return;
            }
        };
        let reference = &self.wanted.reference;
        let missing = standings
            .iter()
            .filter_map(|rack| Some(format!("{}: {}", rack.name, rack.reason.as_ref()?)));
        let missing = missing.collect::<Vec<_>>().join("; ");
        if missing.is_empty() {
            tracing::info!(%reference, racks = standings.len(), "the scenario runs on every Rack that it concerns");
        } else {
            tracing::warn!(
                %reference, racks = standings.len(), %missing,
                "the scenario does not run everywhere yet; Racks get it when they appear"
            );
        }
    }

    /// How the Racks stand once all run it, or no other will, or the time is over.
    pub(crate) async fn wait(&self) -> Result<Vec<RackRolloutStatus>, RegistryError> {
        let deadline = Instant::now() + self.within;
        loop {
            let news = self.liveness.news();
            tokio::pin!(news);
            // Registered before looking, so that no answer falls in between.
            news.as_mut().enable();
            let standings = rollout_status::racks(&self.scenario, &self.wanted, &self.registry, &self.liveness)?;
            if standings.iter().all(|rack| rack.converged || rack.refused) {
                return Ok(standings);
            }
            if timeout_at(deadline, news).await.is_err() {
                return Ok(standings);
            }
            sleep_until(deadline.min(Instant::now() + GATHERING)).await;
        }
    }
}
