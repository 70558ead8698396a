//! The control plane's answers, as the API gives them out.

use std::collections::BTreeMap;

use model::control::RackState;
use model::scenario::{ScenarioVersion, SourceDiagnostic};
use model::{Attributes, EntityId, KeyFingerprint, Timestamp, Token};
use schemars::JsonSchema;
use serde::Serialize;

use crate::events::TransitionCounts;
use crate::liveness::LivenessRecord;
use crate::registry::{ActiveScenario, RackRow, ScenarioHead, ScenarioRow};
use crate::rejection_counters::ReasonCounts;
use crate::scenario::{GroupMembership, RackRolloutStatus, RolloutStats, ScenarioRef, WireChange};

/// A Rack.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RackView {
    /// Its identity.
    pub id: EntityId,
    /// Its name.
    pub name: Token,
    /// The fingerprint of its key, as the Rack prints it.
    pub key_fingerprint: KeyFingerprint,
    /// Its state; `offline` if three heartbeats were missed.
    pub state: RackState,
    /// The first handshake.
    pub first_seen: Timestamp,
    /// The last sign of life.
    pub last_seen: Timestamp,
    /// Its host name.
    pub host: String,
    /// Its primary address.
    pub ip: String,
    /// Its program's version.
    pub software: String,
    /// Labels given by operators.
    pub labels: BTreeMap<String, String>,
    /// What it should run and what it runs.
    pub scenario: ScenarioStatus,
    /// Why the wanted scenario does not run.
    pub error: Option<String>,
    /// Bytes in its spool that are not known to be durable.
    pub spool_bytes: u64,
    /// Host facts of the last heartbeat.
    pub facts: Attributes,
}

impl RackView {
    pub(crate) fn new(
        row: RackRow,
        sighting: Option<LivenessRecord>,
        running: Option<ScenarioRef>,
        active: Option<&ActiveScenario>,
    ) -> Self {
        let late = row.is_adopted() && sighting.as_ref().is_some_and(LivenessRecord::is_late);
        let wanted = active
            .filter(|_| row.state == RackState::Active)
            .map(|active| ScenarioRef {
                reference: active.reference.clone(),
                hash: active.hash.clone(),
            });
        let seen = sighting.as_ref();
        Self {
            id: row.entity_id,
            key_fingerprint: KeyFingerprint::of(&row.rack_key),
            state: if late { RackState::Offline } else { row.state },
            first_seen: row.first_seen,
            last_seen: seen.map_or(row.last_seen, |seen| seen.at),
            scenario: ScenarioStatus { wanted, running },
            error: seen.and_then(|seen| seen.error.clone()),
            spool_bytes: seen.map_or(0, |seen| seen.spool_bytes),
            name: row.name,
            host: row.host,
            ip: row.ip,
            software: row.software,
            labels: row.labels,
            facts: sighting.map(|seen| seen.facts).unwrap_or_default(),
        }
    }
}

/// What a Rack should run and what it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ScenarioStatus {
    /// The active scenario, for an active Rack.
    pub wanted: Option<ScenarioRef>,
    /// What the Rack last said; none once a suspended one has said that its gears are stopped.
    pub running: Option<ScenarioRef>,
}

/// A stored scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ScenarioView {
    /// `name:version`.
    pub reference: String,
    /// Its name.
    pub name: Token,
    /// Its version.
    pub version: ScenarioVersion,
    /// SHA-256 of the file, hex.
    pub hash: String,
    /// When it was stored last.
    pub stored: Timestamp,
    /// Whether Racks should run it.
    pub active: bool,
    /// The file; none in a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub text: Option<String>,
}

impl ScenarioView {
    pub(crate) fn new(row: ScenarioRow, active: Option<&str>) -> Self {
        let head = row.head();
        Self {
            text: Some(row.text),
            ..Self::listed(head, active)
        }
    }

    /// As a list has it.
    pub(crate) fn listed(head: ScenarioHead, active: Option<&str>) -> Self {
        Self {
            reference: head.reference(),
            active: active == Some(head.hash.as_str()),
            name: head.name,
            version: head.version,
            hash: head.hash,
            stored: head.stored,
            text: None,
        }
    }
}

/// What storing a scenario came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ImportReport {
    /// `name:version`.
    pub reference: String,
    /// SHA-256 of the file, hex.
    pub hash: String,
    /// Whether this content was not stored under this reference before.
    pub new: bool,
    /// The content that the reference meant before, if it was another one.
    pub replaced: Option<String>,
    /// What its author should know.
    pub warnings: Vec<SourceDiagnostic>,
}

/// How Racks stand to a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ScenarioReport {
    /// The scenario; none if none is active.
    pub scenario: Option<ScenarioRef>,
    /// When it was activated; none if it is not active.
    pub activated: Option<Timestamp>,
    /// Whether every Rack that it concerns runs it.
    pub converged: bool,
    /// The Racks that it concerns.
    pub racks: Vec<RackRolloutStatus>,
    /// Which Racks its groups mean.
    pub groups: Vec<GroupMembership>,
    /// What activating it does to wires of lane guaranteed; only in a rehearsal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wires: Vec<WireChange>,
    /// What its author should know.
    pub warnings: Vec<String>,
    /// What was active before, the last one first.
    pub history: Vec<ActiveScenario>,
}

/// Counts of the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ControlStats {
    /// Racks by state, every state present.
    pub racks: BTreeMap<&'static str, u64>,
    /// How often Racks went from one state into another since the Mixer started.
    pub transitions: TransitionCounts,
    /// How often handshakes were refused since the Mixer started, every reason present.
    pub handshakes_refused: ReasonCounts,
    /// How often heartbeats were refused since the Mixer started, every reason present.
    pub heartbeats_refused: ReasonCounts,
    /// Adopted Racks that run what they should.
    pub converged: u64,
    /// Scenario pushes that a Rack applied.
    pub pushes_applied: u64,
    /// Scenario pushes that a Rack could not apply or did not answer.
    pub pushes_failed: u64,
    /// Bytes that each admitted Rack keeps for the Mixer, as its last heartbeat said.
    pub spool_bytes: BTreeMap<Token, u64>,
}

impl ControlStats {
    pub(crate) fn of(
        racks: &[RackView],
        rollout: RolloutStats,
        transitions: TransitionCounts,
        (handshakes_refused, heartbeats_refused): (ReasonCounts, ReasonCounts),
    ) -> Self {
        use RackState::{Active, Offline, Pending, Removed, Suspended};
        let mut by_state: BTreeMap<&'static str, u64> = [Pending, Active, Suspended, Offline, Removed]
            .map(|state| (state.as_str(), 0))
            .into();
        let mut converged = 0;
        for rack in racks {
            *by_state.entry(rack.state.as_str()).or_default() += 1;
            let is_so = rack.scenario.wanted == rack.scenario.running;
            converged += u64::from(rack.state == Active && is_so);
        }
        Self {
            racks: by_state,
            transitions,
            handshakes_refused,
            heartbeats_refused,
            converged,
            pushes_applied: rollout.applied,
            pushes_failed: rollout.failed,
            spool_bytes: racks
                .iter()
                .filter(|rack| !matches!(rack.state, Pending | Removed))
                .map(|rack| (rack.name.clone(), rack.spool_bytes))
                .collect(),
        }
    }
}
