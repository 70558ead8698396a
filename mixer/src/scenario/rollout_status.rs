//! Rollout status: which Racks should run a scenario, which do, and why others do not.
//!
//! # Invariants
//!
//! - A Rack counts if the scenario names it, if gears of a group are its, or if it runs something and is there: then it has
//!   to stop that.
//!
//! # Not here
//!
//! Waiting for it to change (`converge`).

use std::collections::{BTreeMap, BTreeSet};

use model::control::RackState;
use model::scenario::{RackEntry, Scenario};
use model::{EntityId, Token};
use schemars::JsonSchema;
use serde::Serialize;

use super::assignment::ScenarioIndex;
use crate::liveness::{LivenessRecord, LivenessTracker};
use crate::registry::{ClusterRegistry, RackRow, RegistryError};

/// A scenario by name and content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ScenarioRef {
    /// `name:version`; empty for a hash that this registry does not know.
    pub reference: String,
    /// SHA-256 of the file, hex.
    pub hash: String,
}

/// The words for what Racks run, each looked up once: most run the same.
#[derive(Debug)]
pub(crate) struct ReferenceCache<'r> {
    registry: &'r ClusterRegistry,
    known: BTreeMap<String, String>,
}

impl<'r> ReferenceCache<'r> {
    pub(crate) const fn of(registry: &'r ClusterRegistry) -> Self {
        Self {
            registry,
            known: BTreeMap::new(),
        }
    }

    /// The scenario of a hash.
    pub(crate) fn scenario(&mut self, hash: &str) -> Result<ScenarioRef, RegistryError> {
        let reference = match self.known.get(hash) {
            Some(reference) => reference.clone(),
            None => {
                let reference = self.registry.reference_of(hash)?.unwrap_or_default();
                self.known.entry(hash.to_owned()).or_insert(reference).clone()
            }
        };
        Ok(ScenarioRef {
            reference,
            hash: hash.to_owned(),
        })
    }
}

/// How one Rack stands to a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RackRolloutStatus {
    /// Its name.
    pub name: Token,
    /// Its identity; none before its first handshake.
    pub id: Option<EntityId>,
    /// Its state; none before its first handshake.
    pub state: Option<RackState>,
    /// The gears that it should run.
    pub gears: Vec<Token>,
    /// What it should run.
    pub wanted: ScenarioRef,
    /// What it last said that it runs; none once a suspended one has said that its gears are stopped.
    pub running: Option<ScenarioRef>,
    /// Whether it runs what it should.
    pub converged: bool,
    /// Why it does not.
    pub reason: Option<String>,
    /// Whether it has answered that it cannot.
    #[serde(skip)]
    pub(crate) refused: bool,
}

/// Which Racks a group means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GroupMembership {
    /// Its name.
    pub group: Token,
    /// The labels that its members have.
    pub labels: BTreeMap<String, String>,
    /// The adopted Racks that have them.
    pub racks: Vec<Token>,
    /// The gears that are deployed to it.
    pub gears: Vec<Token>,
}

impl GroupMembership {
    /// What its author should know.
    pub(crate) fn warning(&self) -> Option<String> {
        let is_idle = self.racks.is_empty() && !self.gears.is_empty();
        let labels: Vec<_> = self
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        is_idle.then(|| {
            format!(
                "no adopted Rack has the labels of group {} ({}): {} gears run nowhere until one does",
                self.group,
                labels.join(", "),
                self.gears.len()
            )
        })
    }
}

/// The Racks that count, by name.
pub(crate) fn racks(
    scenario: &Scenario,
    wanted: &ScenarioRef,
    registry: &ClusterRegistry,
    liveness: &LivenessTracker,
) -> Result<Vec<RackRolloutStatus>, RegistryError> {
    let layout = ScenarioIndex::of(scenario);
    let mut references = ReferenceCache::of(registry);
    let mut standings = BTreeMap::new();
    let mut absent: BTreeSet<&Token> = scenario.racks.iter().filter_map(|entry| entry.name.as_ref()).collect();
    for row in registry
        .racks()?
        .into_iter()
        .filter(|row| row.state != RackState::Removed)
    {
        let is_named = absent.remove(&row.name);
        let sighting = liveness.of(&row.entity_id);
        let gears: Vec<Token> = layout
            .gears(&row.name, &row.labels)
            .map(|gear| gear.name.clone())
            .collect();
        let has_to_stop = is_fresh(sighting.as_ref()) && sighting.as_ref().is_some_and(|seen| seen.running.is_some());
        if is_named || (row.state == RackState::Active && (has_to_stop || !gears.is_empty())) {
            standings.insert(
                row.name.clone(),
                standing(&row, sighting, gears, wanted, &mut references)?,
            );
        }
    }
    for name in absent {
        let gears: Vec<Token> = layout
            .gears(name, &BTreeMap::new())
            .map(|gear| gear.name.clone())
            .collect();
        let standing = RackRolloutStatus {
            name: name.clone(),
            id: None,
            state: None,
            gears,
            wanted: wanted.clone(),
            running: None,
            converged: false,
            reason: Some("it is not enrolled".to_owned()),
            refused: false,
        };
        standings.insert(name.clone(), standing);
    }
    Ok(standings.into_values().collect())
}

/// Whether a Rack was heard since the Mixer started and has not missed its heartbeats.
fn is_fresh(sighting: Option<&LivenessRecord>) -> bool {
    sighting.is_some_and(|seen| seen.boot_epoch != 0 && !seen.is_late())
}

fn standing(
    row: &RackRow,
    sighting: Option<LivenessRecord>,
    gears: Vec<Token>,
    wanted: &ScenarioRef,
    references: &mut ReferenceCache<'_>,
) -> Result<RackRolloutStatus, RegistryError> {
    let seen = sighting.as_ref();
    let is_late = row.is_adopted() && seen.is_some_and(LivenessRecord::is_late);
    let state = if is_late { RackState::Offline } else { row.state };
    let running = match seen {
        Some(seen) => seen.runs(row.state),
        None => row.scenario.as_ref(),
    };
    let running = running.map(|hash| references.scenario(hash)).transpose()?;
    let runs_it = running.as_ref().is_some_and(|running| running.hash == wanted.hash) && row.relabelled.is_none();
    let has_answered = seen.is_some_and(|seen| seen.answered.as_ref() == Some(&wanted.hash));
    let error = seen.and_then(|seen| seen.error.as_ref());
    let reason = match (state, error) {
        (RackState::Active, _) if !is_fresh(seen) => Some("it has not reported yet".to_owned()),
        (RackState::Active, _) if runs_it => None,
        (RackState::Active, Some(error)) if has_answered => Some(error.clone()),
        (RackState::Active, _) => Some("it has not applied it yet".to_owned()),
        (RackState::Pending, _) => Some("it is pending: platform racks approve".to_owned()),
        (RackState::Suspended, _) => Some("it is suspended: platform racks resume".to_owned()),
        (state, _) => Some(format!("it is {state}")),
    };
    Ok(RackRolloutStatus {
        name: row.name.clone(),
        id: Some(row.entity_id),
        state: Some(state),
        gears,
        wanted: wanted.clone(),
        running,
        converged: reason.is_none(),
        refused: has_answered && error.is_some() && !runs_it,
        reason,
    })
}

/// The groups of a scenario.
pub(crate) fn groups(scenario: &Scenario, registry: &ClusterRegistry) -> Result<Vec<GroupMembership>, RegistryError> {
    let rows: Vec<_> = registry.racks()?.into_iter().filter(RackRow::is_adopted).collect();
    let layout = ScenarioIndex::of(scenario);
    let meant: Vec<_> = rows
        .iter()
        .map(|row| (row, layout.targets(&row.name, &row.labels)))
        .collect();
    let standing = |entry: &RackEntry| {
        let group = entry.group.as_ref()?;
        let members = meant.iter().filter(|(_, targets)| targets.contains(group));
        let gears = scenario.gears.iter().filter(|gear| gear.deploy == *group);
        Some(GroupMembership {
            group: group.clone(),
            labels: entry.labels.clone(),
            racks: members.map(|(row, _)| row.name.clone()).collect(),
            gears: gears.map(|gear| gear.name.clone()).collect(),
        })
    };
    Ok(scenario.racks.iter().filter_map(standing).collect())
}
