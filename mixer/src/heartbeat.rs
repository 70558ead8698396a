//! Heartbeats: a Rack says that it lives and what it runs, the Mixer answers what it should be and run, and how far its
//! batches are durable.
//!
//! # Invariants
//!
//! - Nothing of a heartbeat is believed before its signature was checked with the key that the registry knows. One that was
//!   heard before, or is of another run than the last handshake, is refused.
//! - The answer is signed by the cluster for this heartbeat: a Rack trims its spool on it, or stops its gears.
//! - A Rack whose clock is not ours works all the same: it is told of once, and shown as [`CLOCK_OFFSET`].
//! - A Rack that reports another scenario than it should run, or has another name or other labels since it got
//!   its part, is sent it again.

use std::sync::Arc;
use std::time::Duration;

use model::control::{DurableFloor, Heartbeat, HeartbeatReply, RackLimits, RackRefusal, RackState, RefusalCode};
use model::passport::public_key;
use model::{BusCredential, Clock, EntityId, SignedPayload, SigningContext, Timestamp};

use crate::bus_server::MixerBus;
use crate::enrollment::refusal;
use crate::liveness::LivenessTracker;
use crate::registry::{ClusterRegistry, RackRow, RegistryError};
use crate::rejection_counters::RejectionCounters;
use crate::scenario::{FlowControl, ScenarioRollout};

/// Floors answered in one heartbeat; the rest come with the next.
const MAX_FLOORS: usize = 256;
/// Bytes of the host facts that are kept.
const MAX_FACTS: usize = 16 << 10;

/// The host fact that says by how many seconds a Rack's clock is ahead, where that is [`CLOCKS_DIFFER`] or more.
pub(crate) const CLOCK_OFFSET: &str = "clock.offset";
/// What two clocks may differ.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60);

/// How far a producer run is durable.
pub(crate) type FloorLookup = Arc<dyn Fn(EntityId, u64) -> DurableFloor + Send + Sync>;

/// Answers heartbeats.
pub(crate) struct HeartbeatHandler {
    pub(crate) registry: Arc<ClusterRegistry>,
    pub(crate) liveness: Arc<LivenessTracker>,
    pub(crate) rollout: ScenarioRollout,
    pub(crate) floor: FloorLookup,
    pub(crate) flow_control: Arc<FlowControl>,
    /// Which has a certificate of some authority.
    pub(crate) bus: MixerBus,
    /// What every Rack is allowed.
    pub(crate) limits: RackLimits,
    pub(crate) clock: Clock,
    pub(crate) rejections: Arc<RejectionCounters>,
}

impl std::fmt::Debug for HeartbeatHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Heartbeats")
    }
}

impl HeartbeatHandler {
    /// Answers one heartbeat.
    pub(crate) fn answer(&self, body: &[u8]) -> HeartbeatReply {
        self.hear(body).unwrap_or_else(|refusal| {
            tracing::warn!(code = ?refusal.code, reason = %refusal.reason, "refused a heartbeat");
            self.rejections.heartbeats.count_rejection(refusal.code);
            HeartbeatReply::Refused(refusal)
        })
    }

    fn hear(&self, body: &[u8]) -> Result<HeartbeatReply, RackRefusal> {
        let malformed = |error: model::BadSignature| refusal(RefusalCode::Malformed, error.to_string());
        let signed = SignedPayload::from_bytes(body).map_err(malformed)?;
        let claimed: Heartbeat = signed.peek().map_err(malformed)?;
        let Some(row) = self.registry.rack(&claimed.entity_id).map_err(internal)? else {
            let reason = format!(
                "the Rack {} is not known to this cluster: enrol again",
                claimed.entity_id
            );
            return Err(refusal(RefusalCode::Unknown, reason));
        };
        let beat: Heartbeat = public_key(&row.rack_key)
            .ok()
            .and_then(|key| signed.open(SigningContext::Heartbeat, &key).ok())
            .ok_or_else(|| {
                let reason = format!("the heartbeat of {} is not signed by its key", row.name);
                refusal(RefusalCode::Signature, reason)
            })?;
        if row.state == RackState::Removed {
            let reason = format!("the identity {} was removed from this cluster", row.entity_id);
            return Err(refusal(RefusalCode::Removed, reason));
        }
        let beat = self.with_offset(bounded(beat), &row);
        if !self.liveness.record_heartbeat(&beat, self.clock.now()) {
            let reason = format!(
                "the heartbeat of {} is a copy of an earlier one, or not of the run of its last handshake: enrol again",
                row.name
            );
            return Err(refusal(RefusalCode::Nonce, reason));
        }
        let wanted = self.wanted(&row).map_err(internal)?;
        let is_owed = wanted.is_some() && row.relabelled.is_some();
        if row.state == RackState::Active && (is_owed || wanted != beat.scenario) {
            self.rollout.deliver(row.entity_id);
        }
        Ok(HeartbeatReply::Ok {
            state: row.state,
            scenario: wanted,
            floors: self.floors(&beat),
            limits: Some(self.limits),
            credits: self.flow_control.credits(row.entity_id, &row.name),
            authority: self.bus.authority(),
            bus_credential: self.credential(&row, beat.credential_expires),
        })
    }

    /// The heartbeat with what its clock differs from ours; said when that begins.
    fn with_offset(&self, mut beat: Heartbeat, row: &RackRow) -> Heartbeat {
        let Some(seconds) = clock_offset(&beat, self.clock.now()) else {
            return beat;
        };
        let before = self.liveness.of(&row.entity_id);
        if before.is_none_or(|before| before.facts.get(CLOCK_OFFSET).is_none()) {
            tracing::warn!(
                rack = %row.name,
                seconds,
                "the clocks of the Rack and the Mixer differ: its data is stored under its own times. Correct one of \
                 the clocks"
            );
        }
        beat.facts.set(CLOCK_OFFSET, seconds);
        beat
    }

    /// With what the bus knows the Rack from now on, if that is due.
    fn credential(&self, row: &RackRow, expires: Option<Timestamp>) -> Option<BusCredential> {
        self.bus.credential(&row.entity_id, row.bus_key.as_deref()?, expires)
    }

    fn wanted(&self, row: &RackRow) -> Result<Option<String>, RegistryError> {
        if row.state != RackState::Active {
            return Ok(None);
        }
        Ok(self.registry.active_scenario()?.map(|active| active.hash))
    }

    fn floors(&self, beat: &Heartbeat) -> Vec<DurableFloor> {
        let waiting = beat.waiting.iter().take(MAX_FLOORS);
        waiting.map(|run| (self.floor)(run.entity_id, run.boot_epoch)).collect()
    }
}

/// By how many seconds the Rack's clock is ahead, if that is more than the way here explains.
fn clock_offset(beat: &Heartbeat, now: Timestamp) -> Option<i64> {
    let micros = beat.ts.micros().saturating_sub(now.micros());
    (u128::from(micros.unsigned_abs()) >= CLOCKS_DIFFER.as_micros()).then_some(micros / 1_000_000)
}

/// The heartbeat without facts that are too large to keep.
fn bounded(mut beat: Heartbeat) -> Heartbeat {
    if beat.facts.to_json().len() > MAX_FACTS {
        beat.facts = model::Attributes::new();
    }
    beat
}

fn internal(error: RegistryError) -> RackRefusal {
    tracing::error!(%error, "cannot answer a heartbeat");
    refusal(
        RefusalCode::Internal,
        "the Mixer cannot read its registry; its log says why",
    )
}
