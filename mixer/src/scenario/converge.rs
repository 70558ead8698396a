//! After an activation: wait until the Racks it names run it, and say who does not.

use std::sync::Arc;
use std::time::Duration;

use model::Token;
use model::control::RackState;
use model::scenario::Scenario;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::presence::Presence;
use crate::registry::{ActiveScenario, Registry, RegistryError};

/// What is awaited.
#[derive(Debug)]
pub(crate) struct Convergence {
    pub(crate) registry: Arc<Registry>,
    pub(crate) presence: Arc<Presence>,
    pub(crate) active: ActiveScenario,
    pub(crate) scenario: Scenario,
    /// `mixer.scenario_wait_timeout`.
    pub(crate) within: Duration,
}

impl Convergence {
    /// Waits, then reports wanted against running.
    pub(crate) async fn report(self, stop: CancellationToken) {
        let deadline = Instant::now() + self.within;
        let mut missing;
        loop {
            let news = self.presence.news();
            tokio::pin!(news);
            // Registered before looking, so that no answer falls in between.
            news.as_mut().enable();
            missing = match self.missing() {
                Ok(missing) => missing,
                Err(error) => {
                    tracing::error!(%error, "cannot tell whether the scenario runs");
                    return;
                }
            };
            if missing.is_empty() {
                break;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                awaited = timeout_at(deadline, news) => if awaited.is_err() { break },
            }
        }
        let named = self.named().count();
        let reference = &self.active.reference;
        if missing.is_empty() {
            tracing::info!(%reference, racks = named, "the scenario runs on every Rack it names");
        } else {
            let missing = missing.join("; ");
            tracing::warn!(
                %reference, racks = named, %missing,
                "the scenario does not run everywhere yet; Racks get it when they appear"
            );
        }
    }

    fn named(&self) -> impl Iterator<Item = &Token> {
        self.scenario.racks.iter().filter_map(|entry| entry.name.as_ref())
    }

    /// A sentence for each named Rack that does not run it.
    fn missing(&self) -> Result<Vec<String>, RegistryError> {
        let mut missing = Vec::new();
        for name in self.named() {
            let Some(row) = self.registry.rack_named(name)? else {
                missing.push(format!("{name} is not enrolled"));
                continue;
            };
            if row.state != RackState::Active {
                missing.push(format!("{name} is {}", row.state));
                continue;
            }
            let seen = self.presence.of(&row.entity_id);
            let runs = seen.as_ref().and_then(|seen| seen.running.as_ref());
            let is_fresh = seen
                .as_ref()
                .is_some_and(|seen| seen.boot_epoch != 0 && !seen.is_late());
            if !is_fresh {
                missing.push(format!("{name} was not heard yet"));
            } else if runs != Some(&self.active.hash) {
                let why = seen.as_ref().and_then(|seen| seen.error.as_ref());
                missing.push(match why {
                    Some(error) => format!("{name}: {error}"),
                    None => format!("{name} runs {}", runs.map_or("nothing", String::as_str)),
                });
            }
        }
        Ok(missing)
    }
}
