//! The liveness monitor: detects Racks that go offline or return, and stores last-seen times in the registry.
//!
//! # Invariants
//!
//! - Sightings are written in one transaction per [`WRITE_EVERY`] and at the end, not per heartbeat.
//! - A sighting never overwrites a decision: only `last_seen`, the last heartbeat, its interval, the running scenario and
//!   whether the Rack is offline are taken over.
//! - All Racks that turn at one look are one transaction: a bus that breaks turns every Rack at once.

use std::sync::Arc;
use std::time::Duration;

use model::control::RackState;
use model::lifecycle_event::LifecycleEvent;
use model::{Clock, EntityId};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::events::EventPublisher;
use crate::liveness::{LivenessRecord, LivenessTracker};
use crate::registry::{AuditActor, AuditEntry, ClusterRegistry, RegistryError, RegistryTransaction};
use crate::scenario::ScenarioRollout;

const LOOK_EVERY: Duration = Duration::from_millis(100);
const WRITE_EVERY: Duration = Duration::from_secs(30);
/// The pause after a registry that failed.
const REST: Duration = Duration::from_secs(1);

/// What the liveness monitor needs.
#[derive(Debug)]
pub(crate) struct LivenessMonitor {
    pub(crate) registry: Arc<ClusterRegistry>,
    pub(crate) liveness: Arc<LivenessTracker>,
    pub(crate) events: EventPublisher,
    pub(crate) clock: Clock,
    pub(crate) rollout: ScenarioRollout,
}

impl LivenessMonitor {
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
            let turns = self.liveness.take_transitions();
            if !turns.is_empty() {
                self.announce(turns).await;
            }
            if written.elapsed() >= WRITE_EVERY {
                written = Instant::now();
                self.write().await;
            }
        }
        self.write().await;
    }

    async fn announce(&self, turns: Vec<(EntityId, bool)>) {
        let (now, of) = (self.clock.now(), turns.clone());
        let written = self.registry.commit(move |change| {
            let mut entries = Vec::new();
            for (id, offline) in of {
                entries.extend(record_transition(change, &id, offline, now)?);
            }
            Ok::<_, RegistryError>(entries)
        });
        let entries = match written.await {
            Ok(entries) => entries,
            Err(error) => {
                tracing::error!(%error, "could not write offline Racks to the registry; retrying");
                self.liveness.restore_transitions(&turns);
                tokio::time::sleep(REST).await;
                return;
            }
        };
        for entry in entries {
            let rack = entry.rack.as_ref().map(ToString::to_string).unwrap_or_default();
            if entry.kind == LifecycleEvent::RackOffline.as_str() {
                tracing::warn!(rack, "rack is offline: three heartbeats were missed");
            } else {
                tracing::info!(rack, "rack is online again");
            }
            self.events.publish(&entry).await;
        }
        // What only a Rack that is away now runs is in force no more.
        self.rollout.rewire();
    }

    async fn write(&self) {
        let fresh = self.liveness.take_unwritten();
        if fresh.is_empty() {
            return;
        }
        if let Err(error) = self.registry.commit(move |change| record(change, &fresh)).await {
            tracing::error!(%error, "could not write last-seen times to the registry");
        }
    }
}

/// Writes down that an adopted Rack is offline, or back; nothing if that is what the registry knows.
fn record_transition(
    change: &RegistryTransaction<'_>,
    id: &EntityId,
    offline: bool,
    now: model::Timestamp,
) -> Result<Option<AuditEntry>, RegistryError> {
    let row = change
        .rack(id)?
        .filter(|row| row.is_adopted() && row.offline != offline);
    let Some(mut row) = row else { return Ok(None) };
    row.offline = offline;
    change.put_rack(&row)?;
    let entry = if offline {
        let entry = AuditEntry::new(LifecycleEvent::RackOffline, &AuditActor::Mixer, now).of(&row);
        entry
            .turn(Some(row.state), RackState::Offline)
            .because("three heartbeats were missed")
    } else {
        let own = AuditActor::Rack(row.name.clone());
        let entry = AuditEntry::new(LifecycleEvent::RackOnline, &own, now).of(&row);
        entry.turn(Some(RackState::Offline), row.state)
    };
    change.record(entry).map(Some)
}

fn record(change: &RegistryTransaction<'_>, fresh: &[(EntityId, LivenessRecord)]) -> Result<(), RegistryError> {
    for (id, sighting) in fresh {
        if let Some(mut row) = change.rack(id)? {
            row.last_seen = sighting.at;
            row.interval_ms = sighting.interval_ms;
            row.heard = sighting.last_heartbeat();
            if sighting.boot_epoch != 0 {
                row.scenario = sighting.runs(row.state).cloned();
            }
            change.put_rack(&row)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::Timestamp;

    use super::*;
    use crate::registry::tests::row;

    #[tokio::test(start_paused = true)]
    async fn a_rack_that_went_silent_while_pending_is_reported_once_approved() {
        let folder = tempfile::tempdir().unwrap();
        let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
        let (presence, now) = (LivenessTracker::default(), Timestamp::from_micros(1));
        let mut row = row("a");
        row.state = RackState::Pending;
        let put = |row: &crate::registry::RackRow| registry.change(|change| change.put_rack(row)).unwrap();
        let look = || -> Vec<String> {
            let told = presence.take_transitions().into_iter().filter_map(|(id, offline)| {
                let entry = registry
                    .change(|change| record_transition(change, &id, offline, now))
                    .unwrap();
                entry.map(|entry| entry.kind)
            });
            told.collect()
        };
        put(&row);
        presence.record_handshake(row.entity_id, now, None);
        tokio::time::advance(Duration::from_secs(91)).await;
        assert_eq!(look(), [""; 0], "nobody waits for it");
        row.state = RackState::Active;
        put(&row);
        presence.record_adoption(&row);
        assert_eq!(look(), [LifecycleEvent::RackOffline.as_str()]);
        assert!(presence.of(&row.entity_id).unwrap().is_late());
        assert_eq!(look(), [""; 0]);
        presence.record_handshake(row.entity_id, now, None);
        assert_eq!(look(), [LifecycleEvent::RackOnline.as_str()]);
    }
}
