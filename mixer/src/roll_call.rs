//! The roll call: who went offline, and last sightings into the registry.
//!
//! # Invariants
//!
//! - Sightings are written in one transaction per [`WRITE_EVERY`] and at the end, not per heartbeat.
//! - A sighting never overwrites a decision: only `last_seen`, the interval and the running scenario are taken over.

use std::sync::Arc;
use std::time::Duration;

use model::EntityId;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::events::{Event, Events};
use crate::presence::{Presence, Sighting};
use crate::registry::{Registry, RegistryError};

const LOOK_EVERY: Duration = Duration::from_millis(100);
const WRITE_EVERY: Duration = Duration::from_secs(30);

/// What the roll call needs.
#[derive(Debug)]
pub(crate) struct RollCall {
    pub(crate) registry: Arc<Registry>,
    pub(crate) presence: Arc<Presence>,
    pub(crate) events: Events,
}

impl RollCall {
    /// Calls the roll until stopped.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut written = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => {}
            }
            for id in self.presence.newly_offline() {
                self.announce(&id).await;
            }
            if written.elapsed() >= WRITE_EVERY {
                written = Instant::now();
                self.write().await;
            }
        }
        self.write().await;
    }

    async fn announce(&self, id: &EntityId) {
        match self.registry.rack(id) {
            Ok(Some(rack)) if rack.is_adopted() => {
                tracing::warn!(rack = %rack.name, entity_id = %id, "rack is offline: three heartbeats were missed");
                self.events.rack(Event::RackOffline, &rack).await;
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "the roll cannot be called"),
        }
    }

    async fn write(&self) {
        let fresh = self.presence.take_unwritten();
        if fresh.is_empty() {
            return;
        }
        if let Err(error) = self.registry.commit(move |change| record(change, &fresh)).await {
            tracing::error!(%error, "last sightings were not written to the registry");
        }
    }
}

fn record(change: &crate::registry::Change<'_>, fresh: &[(EntityId, Sighting)]) -> Result<(), RegistryError> {
    for (id, sighting) in fresh {
        if let Some(mut row) = change.rack(id)? {
            row.last_seen = row.last_seen.max(sighting.at);
            row.interval_ms = sighting.interval_ms;
            if sighting.boot_epoch != 0 {
                row.scenario.clone_from(&sighting.running);
            }
            change.put_rack(&row)?;
        }
    }
    Ok(())
}
