//! Liveness of Racks between two changes of the registry: last heartbeat, what they run, host facts.
//!
//! # Invariants
//!
//! - Only Racks that the registry knows are here, so its size is bounded by the registry's.
//! - *Offline* is derived: three heartbeat intervals without a sign of life, measured by a clock that does not jump.
//!   A Rack that was not heard since the Mixer started gets its three intervals from the start, unless it was offline before.
//! - A heartbeat counts once, and only in the run that its Rack named in its last handshake, over restarts of both: what was
//!   recorded of a Rack keeps nobody alive. After a kill of the Mixer, the heartbeats since the last writing may count again.
//!   Runs are compared for being the same, not by their order: a Rack that lost its files under a clock that was set back says
//!   so in a handshake.
//!
//! # Not here
//!
//! Durability: `liveness_monitor` writes `last_seen` into the registry from time to time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::control::{Heartbeat, RackState};
use model::{Attributes, EntityId, Timestamp};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use crate::registry::{RackRow, begun};

/// Heartbeats a Rack may miss before it counts as offline.
const MISSED: u32 = 3;
/// What a Rack says about its interval is believed within these bounds.
const INTERVALS: std::ops::RangeInclusive<u64> = 10..=3_600_000;
/// The interval of a Rack that has not said one.
pub(crate) const DEFAULT_INTERVAL_MS: u64 = 30_000;

/// The last thing seen of one Rack.
#[derive(Debug, Clone)]
pub struct LivenessRecord {
    /// When, by the Mixer's clock.
    pub at: Timestamp,
    /// Its run; 0 before its first heartbeat.
    pub boot_epoch: u64,
    /// The heartbeat interval, in milliseconds.
    pub interval_ms: u64,
    /// The content hash of the scenario that is in force there.
    pub running: Option<String>,
    /// Whether it has said that no gear runs.
    pub stopped: bool,
    /// Why the wanted scenario does not run.
    pub error: Option<String>,
    /// The content hash of the push that its present run answered last.
    pub answered: Option<String>,
    /// Bytes in its spool that are not known to be durable.
    pub spool_bytes: u64,
    /// Host facts.
    pub facts: Attributes,
    due: Instant,
    /// Its run, as of its last handshake, and the number of its last heartbeat.
    last: Option<(u64, u64)>,
    /// What [`LivenessTracker::take_transitions`] last told of it: whether it is offline.
    told: bool,
    /// Whether it changed since [`LivenessTracker::take_unwritten`].
    unwritten: bool,
}

impl LivenessRecord {
    /// Whether three heartbeats were missed, and the liveness monitor has reported it: a Rack that returns before was not offline.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.told && Instant::now() > self.due
    }

    /// The content hash of what its gears do; none once a suspended Rack has said that it stopped them.
    pub(crate) fn runs(&self, state: RackState) -> Option<&String> {
        let is_stopped = self.stopped && state == RackState::Suspended;
        self.running.as_ref().filter(|_| !is_stopped)
    }

    /// Its run, as of its last handshake, and the number of its last heartbeat.
    pub(crate) const fn last_heartbeat(&self) -> Option<(u64, u64)> {
        self.last
    }

    fn first(at: Timestamp, interval_ms: u64, offline: bool) -> Self {
        Self {
            at,
            boot_epoch: 0,
            interval_ms,
            running: None,
            stopped: false,
            error: None,
            answered: None,
            spool_bytes: 0,
            facts: Attributes::new(),
            due: Instant::now() + if offline { Duration::ZERO } else { patience(interval_ms) },
            last: None,
            told: offline,
            unwritten: false,
        }
    }
}

/// Every Rack's last [`LivenessRecord`].
#[derive(Debug, Default)]
pub struct LivenessTracker {
    seen: Mutex<HashMap<EntityId, LivenessRecord>>,
    changed: Notify,
}

impl LivenessTracker {
    /// Starts from what the registry remembers: every Rack gets its three intervals from now.
    pub(crate) fn of_registry(rows: &[RackRow]) -> Self {
        let adopted = rows.iter().filter(|row| row.is_adopted());
        let seen = adopted.map(|row| {
            let mut sighting = LivenessRecord::first(row.last_seen, row.interval_ms, row.offline);
            sighting.running.clone_from(&row.scenario);
            sighting.last = row.heard;
            (row.entity_id, sighting)
        });
        Self {
            seen: Mutex::new(seen.collect()),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EntityId, LivenessRecord>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sign of life outside a heartbeat: a handshake, and what the registry knows of the heartbeats of the run that it was for.
    pub(crate) fn record_handshake(&self, id: EntityId, at: Timestamp, heard: Option<(u64, u64)>) {
        let mut seen = self.lock();
        let sighting = seen
            .entry(id)
            .or_insert_with(|| LivenessRecord::first(at, DEFAULT_INTERVAL_MS, false));
        sighting.at = at;
        sighting.last = begun(sighting.last, heard.map(|(run, _)| run)).max(heard);
        sighting.due = Instant::now() + patience(sighting.interval_ms);
        sighting.unwritten = true;
    }

    /// A Rack is adopted: whether it is silent matters from now on, and nobody was told so far.
    pub(crate) fn record_adoption(&self, row: &RackRow) {
        let mut seen = self.lock();
        let sighting = seen
            .entry(row.entity_id)
            .or_insert_with(|| LivenessRecord::first(row.last_seen, row.interval_ms, false));
        sighting.told = false;
    }

    /// A heartbeat. False if it is a copy of an earlier one or of another run than the last handshake: it says nothing then.
    pub(crate) fn record_heartbeat(&self, beat: &Heartbeat, at: Timestamp) -> bool {
        let interval_ms = beat.interval_ms.clamp(*INTERVALS.start(), *INTERVALS.end());
        let mut seen = self.lock();
        let last = seen.get(&beat.entity_id).and_then(|seen| seen.last);
        let number = beat.seq.map(|seq| (beat.boot_epoch, seq));
        let is_next = |(run, seq): (u64, u64)| last.is_none_or(|(known, last)| run == known && seq > last);
        if !number.is_none_or(is_next) {
            return false;
        }
        let same_run = seen
            .get(&beat.entity_id)
            .filter(|seen| seen.boot_epoch == beat.boot_epoch);
        let answered = same_run.and_then(|seen| seen.answered.clone());
        let told = seen.get(&beat.entity_id).is_some_and(|seen| seen.told);
        seen.insert(
            beat.entity_id,
            LivenessRecord {
                at,
                boot_epoch: beat.boot_epoch,
                interval_ms,
                running: beat.scenario.clone(),
                stopped: beat.stopped,
                error: beat.scenario_error.clone(),
                answered,
                spool_bytes: beat.spool_bytes,
                facts: beat.facts.clone(),
                due: Instant::now() + patience(interval_ms),
                last: number.or(last),
                told,
                unwritten: true,
            },
        );
        drop(seen);
        self.changed.notify_waiters();
        true
    }

    /// Waits for the next heartbeat or answer to a push.
    pub(crate) fn news(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// What a Rack says it runs, in answer to a push of this hash.
    pub(crate) fn record_push_reply(&self, id: &EntityId, hash: &str, running: Option<String>, error: Option<String>) {
        if let Some(sighting) = self.lock().get_mut(id) {
            sighting.answered = Some(hash.to_owned());
            sighting.running = running;
            sighting.error = error;
        }
        self.changed.notify_waiters();
    }

    /// A Rack has said that it is in this state.
    pub(crate) fn record_obeyed_state(&self, id: &EntityId, state: RackState) {
        if let Some(sighting) = self.lock().get_mut(id) {
            sighting.stopped = state != RackState::Active;
            sighting.unwritten = true;
        }
        self.changed.notify_waiters();
    }

    /// The last sighting of a Rack.
    #[must_use]
    pub fn of(&self, id: &EntityId) -> Option<LivenessRecord> {
        self.lock().get(id).cloned()
    }

    /// Forgets a Rack.
    pub(crate) fn forget(&self, id: &EntityId) {
        self.lock().remove(id);
    }

    /// The Racks that went offline or came back since the last call, and which of both.
    pub(crate) fn take_transitions(&self) -> Vec<(EntityId, bool)> {
        let now = Instant::now();
        let mut seen = self.lock();
        let turned = seen.iter_mut().filter(|(_, s)| s.told != (now > s.due));
        turned
            .map(|(id, sighting)| {
                sighting.told = !sighting.told;
                (*id, sighting.told)
            })
            .collect()
    }

    /// Turns that were not written down: [`LivenessTracker::take_transitions`] gives them again.
    pub(crate) fn restore_transitions(&self, turns: &[(EntityId, bool)]) {
        let mut seen = self.lock();
        for (id, offline) in turns {
            if let Some(sighting) = seen.get_mut(id) {
                sighting.told = !offline;
            }
        }
    }

    /// What the registry has not heard yet, and counts it as written.
    pub(crate) fn take_unwritten(&self) -> Vec<(EntityId, LivenessRecord)> {
        let mut seen = self.lock();
        let fresh = seen.iter_mut().filter(|(_, sighting)| sighting.unwritten);
        fresh
            .map(|(id, sighting)| {
                sighting.unwritten = false;
                (*id, sighting.clone())
            })
            .collect()
    }
}

fn patience(interval_ms: u64) -> Duration {
    Duration::from_millis(interval_ms.clamp(*INTERVALS.start(), *INTERVALS.end())) * MISSED
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::registry::tests::row;

    const LONG: Duration = Duration::from_secs(91);

    #[tokio::test(start_paused = true)]
    async fn a_rack_that_returns_before_it_was_reported_was_not_offline() {
        let (presence, row) = (LivenessTracker::default(), row("a"));
        let id = row.entity_id;
        let is_late = || presence.of(&id).unwrap().is_late();
        presence.record_handshake(id, row.last_seen, None);
        assert_eq!(presence.take_transitions(), []);
        tokio::time::advance(LONG).await;
        assert!(!is_late(), "there is no event so far");
        presence.record_handshake(id, row.last_seen, None);
        assert_eq!(presence.take_transitions(), []);

        tokio::time::advance(LONG).await;
        assert_eq!(presence.take_transitions(), [(id, true)]);
        assert!(is_late());
        presence.record_handshake(id, row.last_seen, None);
        assert!(!is_late(), "at once");
        assert_eq!(presence.take_transitions(), [(id, false)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rack_that_was_not_heard_since_the_start_is_offline_three_intervals_after_it_is_adopted() {
        let presence = LivenessTracker::of_registry(&[]);
        let row = row("a");
        presence.record_adoption(&row);
        assert_eq!(presence.take_transitions(), []);
        tokio::time::advance(Duration::from_millis(row.interval_ms) * MISSED + Duration::from_millis(1)).await;
        assert_eq!(presence.take_transitions(), [(row.entity_id, true)]);
    }
}
