//! Operations on scenarios: stored, shown, dry-run, activated, rolled back.
//!
//! # Invariants
//!
//! - What is stored was checked. A reference changes its meaning only if that is asked for.
//! - Changing what a reference means changes nothing that runs: active is a content hash.

use std::sync::Arc;
use std::time::Duration;

use model::Token;
use model::control::RackState;
use model::lifecycle_event::LifecycleEvent;
use model::scenario::{self, Scenario, ScenarioReview};
use serde::{Deserialize, Serialize};

use super::dual_control::{ChangeOutcome, DualChange, DualControlDecision};
use super::view::{ImportReport, ScenarioReport, ScenarioView};
use super::{ControlError, ControlPlane};
use crate::registry::{ActiveScenario, AuditActor, AuditEntry, ClusterRegistry, RegistryError, ScenarioRow};
use crate::scenario::{ConvergenceMonitor, ScenarioGraph, ScenarioRef, groups, racks, stored};

/// Where wires that were paused go on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumePoint {
    /// Where they were paused: what waited for them goes to them.
    #[default]
    Floor,
    /// With what comes from now on.
    Now,
}

/// The shortest beginning of a hash that means a scenario.
const SHORTEST_HASH: usize = 8;

impl ControlPlane {
    /// Every stored scenario that a reference means, by reference, without the texts.
    ///
    /// # Errors
    /// [`ControlError::Registry`].
    pub fn scenarios(&self) -> Result<Vec<ScenarioView>, ControlError> {
        let active = self.registry.active_scenario()?.map(|active| active.hash);
        let rows = self.registry.scenarios()?;
        Ok(rows
            .into_iter()
            .map(|head| ScenarioView::listed(head, active.as_deref()))
            .collect())
    }

    /// One stored scenario, by `name:version`, `name:latest`, `name`, or the beginning of its hash.
    ///
    /// # Errors
    /// [`ControlError::UnknownScenario`], [`ControlError::Registry`].
    pub fn scenario(&self, reference: &str) -> Result<ScenarioView, ControlError> {
        let row = find_scenario(reference, &self.registry)?;
        let active = self.registry.active_scenario()?.map(|active| active.hash);
        Ok(ScenarioView::new(row, active.as_deref()))
    }

    /// The gears and wires of a stored scenario, without its text.
    ///
    /// # Errors
    /// [`ControlError::UnknownScenario`], [`ControlError::BadScenario`] if this program cannot read it any more, [`ControlError::Registry`].
    pub fn scenario_graph(&self, reference: &str) -> Result<ScenarioGraph, ControlError> {
        let row = find_scenario(reference, &self.registry)?;
        let parsed = scenario::parse(&row.text, gear_spec::manifests()).map_err(ControlError::BadScenario)?;
        let reference = row.reference();
        let hash = row.hash;
        Ok(ScenarioGraph::of(&parsed, ScenarioRef { reference, hash }))
    }

    /// The scenario that Racks should run, if any.
    ///
    /// # Errors
    /// [`ControlError::Registry`].
    pub fn active_scenario(&self) -> Result<Option<ActiveScenario>, ControlError> {
        Ok(self.registry.active_scenario()?)
    }

    /// Checks and stores a scenario. The same content again changes nothing.
    ///
    /// # Errors
    /// [`ControlError::BadScenario`], [`ControlError::ReferenceTaken`] unless `replace`, [`ControlError::TooManyScenarios`],
    /// [`ControlError::Registry`].
    pub async fn import(&self, text: String, replace: bool, by: &AuditActor) -> Result<ImportReport, ControlError> {
        let (ScenarioReview { scenario, warnings, .. }, text) = review(text, self.limits.max_hops).await?;
        let row = ScenarioRow {
            hash: scenario::content_hash(&text),
            name: scenario.meta.name,
            version: scenario.meta.version,
            stored: self.clock.now(),
            text,
        };
        let (reference, hash) = (row.reference(), row.hash.clone());
        let taken = reference.clone();
        let entry = AuditEntry::new(LifecycleEvent::ScenarioImported, by, self.clock.now()).scenario(&reference, &hash);
        let (news, replaced) = self
            .registry
            .commit(move |change| match change.meaning(&taken)? {
                Some(hash) if hash == row.hash => Ok((None, None)),
                Some(hash) if !replace => Err(ControlError::ReferenceTaken { reference: taken, hash }),
                before => {
                    let replaced = change.put_scenario(&row)?;
                    if change.has_too_many_scenarios()? {
                        return Err(ControlError::TooManyScenarios);
                    }
                    let news = change.record(entry.turn(before, &row.hash))?;
                    Ok((Some(news), replaced))
                }
            })
            .await?;
        let new = news.is_some();
        if let Some(news) = news {
            tracing::info!(%reference, %hash, replaced = replaced.as_deref().unwrap_or_default(), by = news.by, "scenario imported");
            self.events.publish(&news).await;
        }
        Ok(ImportReport {
            reference,
            hash,
            new,
            replaced,
            warnings,
        })
    }

    /// Deletes a stored scenario; its content stays as long as a rollback may go back to it.
    ///
    /// # Errors
    /// [`ControlError::UnknownScenario`], [`ControlError::ScenarioActive`], [`ControlError::Registry`].
    pub async fn delete_scenario(&self, reference: &str, by: &AuditActor) -> Result<ScenarioRef, ControlError> {
        let row = self.found(reference).await?;
        let (reference, hash) = (row.reference(), row.hash);
        let entry = AuditEntry::new(LifecycleEvent::ScenarioDeleted, by, self.clock.now()).scenario(&reference, &hash);
        let deleted = ScenarioRef { reference, hash };
        let wanted = deleted.clone();
        let news = self
            .registry
            .commit(move |change| {
                if change
                    .active_scenario()?
                    .is_some_and(|active| active.hash == wanted.hash)
                {
                    return Err(ControlError::ScenarioActive(wanted.reference));
                }
                // Only a rollback knows it, or somebody else has deleted it.
                if change.meaning(&wanted.reference)?.as_ref() != Some(&wanted.hash) {
                    return Err(ControlError::NotStored(wanted.reference));
                }
                change.delete_scenario(&wanted.reference)?;
                Ok(change.record(entry)?)
            })
            .await?;
        tracing::info!(reference = deleted.reference, by = news.by, "scenario deleted");
        self.events.publish(&news).await;
        Ok(deleted)
    }

    /// How Racks would stand to a scenario if it were activated now. Changes nothing.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn rehearse(&self, reference: &str, resume: ResumePoint) -> Result<ScenarioReport, ControlError> {
        let row = self.found(reference).await?;
        let (reviewed, _) = review(row.text.clone(), self.limits.max_hops).await?;
        let scenario = reviewed.scenario;
        let active = self
            .registry
            .active_scenario()?
            .filter(|active| active.hash == row.hash);
        let wanted = ScenarioRef {
            reference: row.reference(),
            hash: row.hash,
        };
        let racks = racks(&scenario, &wanted, &self.registry, &self.liveness)?;
        let mut report = self.report(&scenario, wanted, active, racks)?;
        match self.rollout.rehearse(&scenario, resume == ResumePoint::Floor).await {
            Ok(wires) => report.wires = wires,
            Err(reason) => report
                .warnings
                .push(format!("the effect on wires is unknown: {reason}")),
        }
        // Whether a group is empty is known here, and is in the report.
        let of_the_file = reviewed.warnings.iter().filter(|it| !reviewed.open_groups.contains(it));
        report.warnings.splice(0..0, of_the_file.map(ToString::to_string));
        Ok(report)
    }

    /// Makes a scenario the one that Racks should run, and sends it to them. [`ControlPlane::await_scenario`] tells what becomes of it.
    /// It may need a second person.
    ///
    /// # Errors
    /// [`ControlError`].
    pub(crate) async fn activate(
        &self,
        reference: &str,
        resume: ResumePoint,
        by: &AuditActor,
    ) -> Result<ChangeOutcome<ActiveScenario>, ControlError> {
        let row = self.found(reference).await?;
        // This program may know other gear types than the one that stored it.
        let (reviewed, _) = review(row.text.clone(), self.limits.max_hops).await?;
        let forgotten = self.forgotten(resume, &reviewed.scenario)?;
        let active = ActiveScenario {
            reference: row.reference(),
            hash: row.hash,
            activated: self.clock.now(),
        };
        let wanted = DualChange::Activate {
            reference: active.reference.clone(),
            hash: active.hash.clone(),
            resume,
        };
        let (dual_control, by, registry) = (Arc::clone(&self.dual_control), by.clone(), Arc::clone(&self.registry));
        let activated = self
            .registry
            .commit(move |change| {
                // Its reference may have been given another content since it was found.
                if !change.has_scenario(&active.hash)? {
                    return Err(unknown(&active.reference, &registry));
                }
                let before = change.active_scenario()?;
                let is_so =
                    |before: &ActiveScenario| before.hash == active.hash && before.reference == active.reference;
                let decision = if resume == ResumePoint::Floor && before.as_ref().is_some_and(is_so) {
                    DualControlDecision::Granted(None)
                } else {
                    dual_control.decide(change, wanted, &by, active.activated)?
                };
                let first = match decision {
                    DualControlDecision::Awaited(awaited) => return Ok(ChangeOutcome::Awaited(awaited)),
                    DualControlDecision::Granted(first) => first,
                };
                change.activate(&active)?;
                change.forget_paused(&forgotten)?;
                let entry = AuditEntry::of_activation(LifecycleEvent::ScenarioActivated, &by, before, &active);
                let news = change.record(named_first(entry, first))?;
                Ok(ChangeOutcome::Done((active, news)))
            })
            .await?;
        self.tell_of(activated).await
    }

    /// Makes the scenario that was active before the one that Racks should run, if this program can read it still. It may need a second
    /// person. With `to` only if it has that content.
    ///
    /// # Errors
    /// [`ControlError::NothingBefore`], [`ControlError::FormerChanged`], [`ControlError::BadFormer`], [`ControlError::Registry`].
    pub(crate) async fn roll_back(
        &self,
        to: Option<String>,
        resume: ResumePoint,
        by: &AuditActor,
    ) -> Result<ChangeOutcome<ActiveScenario>, ControlError> {
        let dual_control = Arc::clone(&self.dual_control);
        let (now, by, registry) = (self.clock.now(), by.clone(), Arc::clone(&self.registry));
        let rollout = self.rollout.clone();
        let activated = self
            .registry
            .commit(move |change| {
                let former = expected(change.former_scenario()?, to)?;
                let scenario = review_former(&former, &registry)?;
                let wanted = DualChange::RollBack {
                    reference: former.reference,
                    hash: former.hash,
                    resume,
                };
                let first = match dual_control.decide(change, wanted, &by, now)? {
                    DualControlDecision::Awaited(awaited) => return Ok(ChangeOutcome::Awaited(awaited)),
                    DualControlDecision::Granted(first) => first,
                };
                let before = change.active_scenario()?;
                let active = change.roll_back(now)?.ok_or(ControlError::NothingBefore)?;
                if resume == ResumePoint::Now {
                    change.forget_paused(&rollout.wires_of(&scenario)?)?;
                }
                let entry = AuditEntry::of_activation(LifecycleEvent::ScenarioRolledBack, &by, before, &active);
                let news = change.record(named_first(entry, first))?;
                Ok::<_, ControlError>(ChangeOutcome::Done((active, news)))
            })
            .await?;
        self.tell_of(activated).await
    }

    /// What a rollback would do. Changes nothing.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn rehearse_rollback(
        &self,
        to: Option<String>,
        resume: ResumePoint,
    ) -> Result<ScenarioReport, ControlError> {
        let former = self.registry.former_scenarios()?.into_iter().next();
        self.rehearse(&expected(former, to)?.hash, resume).await
    }

    /// The wires that are not to resume.
    fn forgotten(&self, resume: ResumePoint, scenario: &Scenario) -> Result<Vec<String>, ControlError> {
        match resume {
            ResumePoint::Floor => Ok(Vec::new()),
            ResumePoint::Now => Ok(self.rollout.wires_of(scenario)?),
        }
    }

    async fn tell_of(
        &self,
        activated: ChangeOutcome<(ActiveScenario, AuditEntry)>,
    ) -> Result<ChangeOutcome<ActiveScenario>, ControlError> {
        let (active, news) = match activated {
            ChangeOutcome::Done(done) => done,
            ChangeOutcome::Awaited(awaited) => return Ok(self.announce(awaited).await),
        };
        tracing::info!(
            kind = news.kind,
            reference = news.reference,
            hash = news.hash,
            by = news.by,
            "the active scenario is another"
        );
        self.acl.refresh().await;
        self.events.publish(&news).await;
        self.rollout.rewire();
        let rows = self.registry.racks()?;
        for row in rows.iter().filter(|row| row.state == RackState::Active) {
            self.rollout.deliver(row.entity_id);
        }
        Ok(ChangeOutcome::Done(active))
    }

    /// Waits until every Rack that an activated scenario concerns runs it or has said that it cannot, or the time is over.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn await_scenario(
        &self,
        active: ActiveScenario,
        within: Duration,
    ) -> Result<ScenarioReport, ControlError> {
        let Some(scenario) = self.parsed(&active).await? else {
            return self.scenario_report().await;
        };
        let wanted = ScenarioRef {
            reference: active.reference.clone(),
            hash: active.hash.clone(),
        };
        let convergence = ConvergenceMonitor {
            registry: Arc::clone(&self.registry),
            liveness: Arc::clone(&self.liveness),
            wanted: wanted.clone(),
            scenario,
            within,
        };
        let racks = convergence.wait().await?;
        self.report(&convergence.scenario, wanted, Some(active), racks)
    }

    /// How Racks stand to the active scenario.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn scenario_report(&self) -> Result<ScenarioReport, ControlError> {
        let Some((active, stored)) = self.registry.read(ClusterRegistry::active_content).await? else {
            return Ok(ScenarioReport {
                scenario: None,
                activated: None,
                converged: true,
                racks: Vec::new(),
                groups: Vec::new(),
                wires: Vec::new(),
                warnings: Vec::new(),
                history: self.registry.former_scenarios()?,
            });
        };
        let scenario = parsed(stored.text).await?;
        let wanted = ScenarioRef {
            reference: active.reference.clone(),
            hash: active.hash.clone(),
        };
        let racks = racks(&scenario, &wanted, &self.registry, &self.liveness)?;
        self.report(&scenario, wanted, Some(active), racks)
    }

    fn report(
        &self,
        scenario: &Scenario,
        wanted: ScenarioRef,
        active: Option<ActiveScenario>,
        racks: Vec<crate::scenario::RackRolloutStatus>,
    ) -> Result<ScenarioReport, ControlError> {
        let groups = groups(scenario, &self.registry)?;
        Ok(ScenarioReport {
            scenario: Some(wanted),
            activated: active.map(|active| active.activated),
            converged: racks.iter().all(|rack| rack.converged),
            racks,
            wires: Vec::new(),
            warnings: groups.iter().filter_map(|group| group.warning()).collect(),
            groups,
            history: self.registry.former_scenarios()?,
        })
    }

    /// The content of an activation; none if the registry lost it.
    async fn parsed(&self, active: &ActiveScenario) -> Result<Option<Scenario>, ControlError> {
        let hash = active.hash.clone();
        match self.registry.read(move |registry| registry.scenario(&hash)).await? {
            Some(row) => Ok(Some(parsed(row.text).await?)),
            None => Ok(None),
        }
    }

    async fn found(&self, reference: &str) -> Result<ScenarioRow, ControlError> {
        let reference = reference.to_owned();
        let found = move |registry: &ClusterRegistry| find_scenario(&reference, registry);
        self.registry.read(found).await
    }
}

/// An entry that says who asked for it first, where two had to.
fn named_first(entry: AuditEntry, first: Option<String>) -> AuditEntry {
    match first {
        Some(first) => entry.because(first),
        None => entry,
    }
}

fn find_scenario(reference: &str, registry: &ClusterRegistry) -> Result<ScenarioRow, ControlError> {
    let found = match stored(reference, registry)? {
        Some(row) => Some(row),
        None => find_by_one_word(reference, registry)?,
    };
    found.ok_or_else(|| unknown(reference, registry))
}

/// By name, the newest version; by the beginning of a hash, if it is one's only.
fn find_by_one_word(word: &str, registry: &ClusterRegistry) -> Result<Option<ScenarioRow>, RegistryError> {
    let Ok(name) = word.parse::<Token>() else {
        return Ok(None);
    };
    if let Some(row) = registry.scenario_named(&name, None)? {
        return Ok(Some(row));
    }
    if word.len() < SHORTEST_HASH {
        return Ok(None);
    }
    let mut found = registry.scenarios_hashed(word)?;
    Ok(if found.len() == 1 { found.pop() } else { None })
}

/// That there is no such scenario, and which there are.
fn unknown(reference: &str, registry: &ClusterRegistry) -> ControlError {
    match registry.references() {
        Ok(known) => ControlError::UnknownScenario {
            reference: reference.to_owned(),
            known,
        },
        Err(error) => error.into(),
    }
}

/// The scenario that a rollback goes back to, if it is the one that a request means.
fn expected(former: Option<ActiveScenario>, to: Option<String>) -> Result<ActiveScenario, ControlError> {
    let former = former.ok_or(ControlError::NothingBefore)?;
    match to {
        Some(expected) if expected != former.hash => Err(ControlError::FormerChanged {
            expected,
            reference: former.reference,
            hash: former.hash,
        }),
        _ => Ok(former),
    }
}

/// Checks a scenario that was active before: this program may know other gear types than the one that activated it.
fn review_former(former: &ActiveScenario, registry: &ClusterRegistry) -> Result<Scenario, ControlError> {
    let Some(row) = registry.scenario(&former.hash)? else {
        return Err(unknown(&former.reference, registry));
    };
    match scenario::review(&row.text, gear_spec::manifests()) {
        Ok(reviewed) => Ok(reviewed.scenario),
        Err(reason) => Err(ControlError::BadFormer {
            reference: former.reference.clone(),
            reason,
        }),
    }
}

/// Checks a scenario on a thread that may take its time.
async fn review(text: String, max_hops: u32) -> Result<(ScenarioReview, String), ControlError> {
    let done = tokio::task::spawn_blocking(move || {
        let reviewed = scenario::review_within(&text, gear_spec::manifests(), max_hops);
        reviewed.map(|reviewed| (reviewed, text))
    });
    let done = done
        .await
        .map_err(|error| RegistryError::Interrupted(error.to_string()))?;
    done.map_err(ControlError::BadScenario)
}

/// Reads a scenario that is active, whatever the limits are now.
async fn parsed(text: String) -> Result<Scenario, ControlError> {
    let done = tokio::task::spawn_blocking(move || scenario::parse(&text, gear_spec::manifests()));
    let done = done
        .await
        .map_err(|error| RegistryError::Interrupted(error.to_string()))?;
    done.map_err(ControlError::BadScenario)
}
