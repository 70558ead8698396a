//! The control plane's handle: what the REST API and `main` ask of it. Everything about Racks and scenarios goes through here.
//!
//! # Invariants
//!
//! - A change is durable in the registry before it is told to the Rack, and before the call returns.
//! - Telling the Rack is best effort: its next heartbeat or handshake brings the same news. What it is told last is what the registry
//!   says last, whoever changes its state at the same time.
//! - Whatever changes is in the audit log, with who did it, in the same transaction.
//!
//! # Not here
//!
//! What Racks ask of the Mixer (`enrollment`, `heartbeat`); HTTP ([`crate::api`]).

mod audit;
mod dual_control;
mod invites;
mod labels;
mod scenarios;
mod tap;
mod view;

use std::sync::Arc;
use std::time::Duration;

use model::control::{LevelChange, RackState, StateChange};
use model::lifecycle_event::LifecycleEvent;
use model::scenario::BadScenario;
use model::subject::RackCommand;
use model::{ByteSize, Clock, ClusterId, EntityId, Entropy, KeyFingerprint, Level, Token};
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::bus_server::{BusStatus, MixerBus};
use crate::cluster::Cluster;
use crate::command_clock::CommandClock;
use crate::config::MixerConfig;
use crate::enrollment::{is_id, reserve_number};
use crate::events::EventPublisher;
use crate::liveness::LivenessTracker;
use crate::registry::{
    ActiveScenario, AuditActor, AuditEntry, ClusterRegistry, MOST_SCENARIO_BYTES, MOST_SCENARIOS, RackRow,
    RegistryError, RegistryTransaction,
};
use crate::rejection_counters::RejectionCounters;
use crate::scenario::{BusAcl, FlowControl, ReferenceCache, ScenarioRollout, WireBacklog};
use dual_control::{DualChange, DualControlDecision};

pub(crate) use dual_control::{ChangeOutcome, ChangeRequestView, DualControl};
pub(crate) use invites::{INVITE_LIFETIME, InviteView};
pub(crate) use labels::MOST_LABELS;
pub use scenarios::ResumePoint;
pub(crate) use tap::{MOST_TAPS, TapEvent, TapStream};
pub use view::{ControlStats, ImportReport, RackView, ScenarioReport, ScenarioStatus, ScenarioView};

/// How long a Rack may take to answer that it heard its new state.
const TELL: Duration = Duration::from_secs(2);

/// Why the control plane says no.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// There is no such Rack.
    #[error("there is no Rack {0:?}: `platform racks list` shows names and ids")]
    UnknownRack(String),
    /// Another Rack has the name.
    #[error("the name {name} belongs to Rack {holder}: choose another, or remove that Rack first")]
    NameTaken {
        /// The name.
        name: Token,
        /// Who has it.
        holder: EntityId,
    },
    /// A name that could be taken for an id.
    #[error("the name {0} looks like an id and could mean another Rack: choose another")]
    NameIsId(Token),
    /// The Rack's state does not allow it.
    #[error("Rack {rack} is {state}, it cannot be {verb}{hint}")]
    State {
        /// The Rack's name.
        rack: Token,
        /// Its state.
        state: RackState,
        /// What was asked: `approved`, `suspended`, …
        verb: &'static str,
        /// What to do instead, with its punctuation; may be empty.
        hint: &'static str,
    },
    /// Another key waits than the one that was approved.
    #[error(
        "the key that waits as {rack} is {waiting}, not {approved}: another Rack has the name; compare with what the Rack prints at \
         its start"
    )]
    KeyMismatch {
        /// The Rack's name.
        rack: Token,
        /// Whose key it is.
        waiting: KeyFingerprint,
        /// Whose it should be.
        approved: KeyFingerprint,
    },
    /// There is no such invite.
    #[error("there is no open invite {0:?}: `platform racks invites` shows which there are")]
    UnknownInvite(String),
    /// There are too many.
    #[error("there are {0} invites, as many as there may be: revoke some")]
    TooManyInvites(usize),
    /// It would be good for too long.
    #[error("expires_in: an invite is good for 30 days at most")]
    InviteLifetime,
    /// It has no text: a defect.
    #[error("the invite cannot be written: {0}")]
    InviteForm(String),
    /// No such change waits.
    #[error("no change {0:?} waits for a second person: `platform requests list` shows which do")]
    UnknownRequest(String),
    /// As many changes wait as may.
    #[error(
        "{0} changes wait for a second person, and one person has half of the places at most: withdraw some, or wait until they expire"
    )]
    TooManyRequests(usize),
    /// A Rack does not answer.
    #[error("Rack {rack} did not confirm the command: {reason}")]
    Silent {
        /// The Rack's name.
        rack: Token,
        /// What happened instead.
        reason: String,
    },
    /// A Rack has no such port.
    #[error("on Rack {rack} there is {lacks}; {known}")]
    UnknownPort {
        /// The Rack's name.
        rack: Token,
        /// What there is not.
        lacks: String,
        /// What there is.
        known: String,
    },
    /// As many ports are watched as may be.
    #[error("{0} taps are open, the maximum: end one, or wait until one has ended")]
    TooManyTaps(usize),
    /// There is no such scenario.
    #[error(
        "there is no scenario {reference:?} (name:version, name, or the beginning of a hash); stored are: {}",
        listed(known)
    )]
    UnknownScenario {
        /// What was asked for.
        reference: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The scenario has faults.
    #[error("the scenario is invalid: {0}")]
    BadScenario(BadScenario),
    /// The scenario that was active before has faults by now.
    #[error("{reference}, which was active before, cannot be run by this version, nothing was changed: {reason}")]
    BadFormer {
        /// `name:version`.
        reference: String,
        /// What is wrong with it.
        reason: BadScenario,
    },
    /// The reference means another content.
    #[error(
        "{reference} is stored with another content ({hash:.12}): give the file a new meta.version, or replace it \
         (replace=true, --replace); Racks keep running the old content until it is activated again"
    )]
    ReferenceTaken {
        /// `name:version`.
        reference: String,
        /// The content that it means.
        hash: String,
    },
    /// The content is not what its reference means: there is nothing to delete.
    #[error("{0} means another content or is deleted: only a rollback still knows this one, and nothing was deleted")]
    NotStored(String),
    /// The scenario is what Racks should run.
    #[error("{0} is active: activate another one first (platform scenario activate)")]
    ScenarioActive(String),
    /// A Rack would have more labels than it may.
    #[error("it would have {0} labels, {MOST_LABELS} at most")]
    TooManyLabels(usize),
    /// There are as many scenarios, or as much text of them, as there may be.
    #[error(
        "as many scenarios are stored as may be ({MOST_SCENARIOS}, and {} of texts): delete some that are not needed any more \
         (platform scenario delete)",
        ByteSize::bytes(MOST_SCENARIO_BYTES)
    )]
    TooManyScenarios,
    /// There is nothing to go back to.
    #[error("no scenario was active before: activate one (platform scenario list shows which there are)")]
    NothingBefore,
    /// A rollback would go back to another scenario than the request says.
    #[error(
        "a rollback goes back to {reference} ({hash:.12}) by now, not to {expected:.12}: nothing was changed; look again what it would do \
         (dry_run)"
    )]
    FormerChanged {
        /// The content that the request means.
        expected: String,
        /// `name:version` of what was active before.
        reference: String,
        /// Its content.
        hash: String,
    },
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl ControlError {
    /// A stable code for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownRack(_) => "unknown_rack",
            Self::NameTaken { .. } => "name_taken",
            Self::NameIsId(_) => "name_is_id",
            Self::State { .. } => "wrong_state",
            Self::KeyMismatch { .. } => "key_mismatch",
            Self::UnknownInvite(_) => "unknown_invite",
            Self::TooManyInvites(_) => "too_many_invites",
            Self::InviteLifetime => "invite_lifetime",
            Self::InviteForm(_) => "internal",
            Self::UnknownRequest(_) => "unknown_request",
            Self::Silent { .. } => "rack_silent",
            Self::UnknownPort { .. } => "unknown_port",
            Self::TooManyTaps(_) | Self::TooManyRequests(_) => "too_many",
            Self::UnknownScenario { .. } | Self::NotStored(_) => "unknown_scenario",
            Self::BadScenario(_) | Self::BadFormer { .. } => "bad_scenario",
            Self::ReferenceTaken { .. } => "reference_taken",
            Self::ScenarioActive(_) => "scenario_active",
            Self::TooManyLabels(_) => "too_many_labels",
            Self::TooManyScenarios => "too_many_scenarios",
            Self::NothingBefore => "nothing_before",
            Self::FormerChanged { .. } => "former_changed",
            Self::Registry(_) => "registry",
        }
    }
}

/// The handle. Used as `Arc<ControlPlane>`.
#[derive(Debug)]
pub struct ControlPlane {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) registry: Arc<ClusterRegistry>,
    pub(crate) liveness: Arc<LivenessTracker>,
    pub(crate) bus: MixerBus,
    pub(crate) rollout: ScenarioRollout,
    pub(crate) flow_control: Arc<FlowControl>,
    pub(crate) events: EventPublisher,
    pub(crate) clock: Clock,
    pub(crate) entropy: Entropy,
    pub(crate) command_clock: Arc<CommandClock>,
    pub(crate) acl: BusAcl,
    pub(crate) rejections: Arc<RejectionCounters>,
    pub(crate) dual_control: Arc<DualControl>,
    pub(crate) limits: ControlLimits,
}

/// What an approval may say.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RackApproval {
    /// The name under which the Rack is adopted, unless its own.
    pub name: Option<Token>,
    /// The key that the Rack must have.
    pub key_fingerprint: Option<KeyFingerprint>,
}

/// What the control plane allows at most.
#[derive(Debug)]
pub(crate) struct ControlLimits {
    /// Places for taps.
    pub(crate) taps: Arc<Semaphore>,
    /// Places for looks through the audit log.
    pub(crate) audit_scans: Arc<Semaphore>,
    /// `mixer.scenario_wait_timeout`.
    pub(crate) scenario_wait: Duration,
    /// `mixer.max_hops`.
    pub(crate) max_hops: u32,
}

impl ControlLimits {
    /// What a configuration allows.
    pub(crate) fn of(config: &MixerConfig) -> Self {
        Self {
            taps: Arc::new(Semaphore::new(MOST_TAPS)),
            audit_scans: Arc::new(Semaphore::new(audit::AUDIT_SCANS)),
            scenario_wait: config.mixer.scenario_wait_timeout,
            max_hops: config.mixer.max_hops.into(),
        }
    }
}

impl ControlPlane {
    /// The cluster's identity.
    #[must_use]
    pub fn cluster_id(&self) -> ClusterId {
        self.cluster.id()
    }

    /// How the bus is.
    #[must_use]
    pub fn bus_status(&self) -> BusStatus {
        self.bus.status()
    }

    /// Changes the level of a Rack's own log until its process ends or its file says another.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::Silent`] if the Rack does not say that it obeys.
    pub async fn set_log_level(
        &self,
        id_or_name: &str,
        level: Level,
        by: &AuditActor,
    ) -> Result<RackView, ControlError> {
        let row = self.find(id_or_name)?;
        if !row.is_adopted() {
            return Err(refuse(&row, "given a log level", ""));
        }
        let change = LevelChange {
            entity_id: row.entity_id,
            issued: self.command_clock.next().await?,
            level,
        };
        let id = &row.entity_id;
        // Before the Rack obeys: what it does is never without an entry.
        let entry = AuditEntry::new(LifecycleEvent::RackLogLevel, by, self.clock.now()).of(&row);
        self.record(entry.clone().turn(None::<Level>, level)).await?;
        let told = self
            .bus
            .command(&self.cluster, id, RackCommand::LogLevel, &change, TELL)
            .await;
        if let Err(error) = told {
            let silent = ControlError::Silent {
                rack: row.name,
                reason: error.to_string(),
            };
            let entry = entry.turn(None::<Level>, level);
            self.record(entry.because(silent.to_string())).await?;
            return Err(silent);
        }
        tracing::info!(rack = %row.name, entity_id = %id, %level, "rack log level changed");
        self.rack(&id.to_string())
    }

    /// Every Rack, the oldest first; removed ones included.
    ///
    /// # Errors
    /// [`ControlError::Registry`].
    pub fn racks(&self) -> Result<Vec<RackView>, ControlError> {
        let active = self.registry.active_scenario()?;
        let rows = self.registry.racks()?;
        let mut references = ReferenceCache::of(&self.registry);
        let view = |row| self.view(row, active.as_ref(), &mut references);
        rows.into_iter().map(view).collect()
    }

    /// The wires of lane guaranteed and what waits for each, those that hold the most first.
    #[must_use]
    pub fn wires(&self) -> Vec<WireBacklog> {
        self.flow_control.wires()
    }

    /// One Rack, by id or name.
    ///
    /// # Errors
    /// [`ControlError::UnknownRack`], [`ControlError::Registry`].
    pub fn rack(&self, id_or_name: &str) -> Result<RackView, ControlError> {
        let row = self.find(id_or_name)?;
        let active = self.registry.active_scenario()?;
        self.view(row, active.as_ref(), &mut ReferenceCache::of(&self.registry))
    }

    /// Adopts a pending Rack, under another name if one is given, and only with the key that is given, if one is. It receives its passport, and then its part of the
    /// scenario, on its next handshake. Approving a Rack that is active under that name already changes nothing. It may need a second
    /// person.
    ///
    /// # Errors
    /// [`ControlError`].
    pub(crate) async fn approve(
        &self,
        id_or_name: &str,
        approval: RackApproval,
        by: &AuditActor,
    ) -> Result<ChangeOutcome<RackView>, ControlError> {
        let id = self.find(id_or_name)?.entity_id;
        let (dual_control, by, now) = (Arc::clone(&self.dual_control), by.clone(), self.clock.now());
        let adopted = self
            .registry
            .commit(move |change| {
                let admitted = AdmittedRack::review(change, &id, approval)?;
                let Some(admitted) = admitted else {
                    return Ok(ChangeOutcome::Done((rack_in(change, &id)?, None)));
                };
                match dual_control.decide(change, admitted.change(), &by, now)? {
                    DualControlDecision::Awaited(awaited) => Ok(ChangeOutcome::Awaited(awaited)),
                    DualControlDecision::Granted(first) => {
                        let entry = AuditEntry::new(LifecycleEvent::RackApproved, &by, now);
                        let (row, news) = admitted.adopt(change, entry, first)?;
                        Ok::<_, ControlError>(ChangeOutcome::Done((row, Some(news))))
                    }
                }
            })
            .await?;
        let (row, news) = match adopted {
            ChangeOutcome::Done(done) => done,
            ChangeOutcome::Awaited(awaited) => return Ok(self.announce(awaited).await),
        };
        if let Some(news) = news {
            tracing::info!(rack = %row.name, entity_id = %row.entity_id, by = news.by, "rack approved");
            self.liveness.record_adoption(&row);
            self.acl.refresh().await;
            self.events.publish(&news).await;
            self.tell(&row.entity_id).await;
        }
        Ok(ChangeOutcome::Done(self.rack(&row.entity_id.to_string())?))
    }

    /// Stops an active Rack's gears until [`ControlPlane::resume`].
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn suspend(&self, id_or_name: &str, by: &AuditActor) -> Result<RackView, ControlError> {
        let verb = ("suspended", LifecycleEvent::RackSuspended);
        self.change_state(id_or_name, RackState::Suspended, verb, by).await
    }

    /// Lets a suspended Rack run its gears again.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn resume(&self, id_or_name: &str, by: &AuditActor) -> Result<RackView, ControlError> {
        let verb = ("resumed", LifecycleEvent::RackResumed);
        self.change_state(id_or_name, RackState::Active, verb, by).await
    }

    /// Revokes a Rack's identity for ever and gives its name back.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn remove(&self, id_or_name: &str, by: &AuditActor) -> Result<RackView, ControlError> {
        let verb = ("removed", LifecycleEvent::RackRemoved);
        self.change_state(id_or_name, RackState::Removed, verb, by).await
    }

    /// Counts for `/metrics`.
    ///
    /// # Errors
    /// [`ControlError::Registry`].
    pub fn stats(&self) -> Result<ControlStats, ControlError> {
        Ok(ControlStats::of(
            &self.racks()?,
            self.rollout.stats(),
            self.events.transitions(),
            self.rejections.all(),
        ))
    }

    async fn change_state(
        &self,
        id_or_name: &str,
        to: RackState,
        (verb, event): (&'static str, LifecycleEvent),
        by: &AuditActor,
    ) -> Result<RackView, ControlError> {
        let id = self.find(id_or_name)?.entity_id;
        let entry = AuditEntry::new(event, by, self.clock.now());
        let (row, news) = self
            .registry
            .commit(move |change| {
                let mut row = rack_in(change, &id)?;
                let from = row.state;
                if !may_become(&row, to, verb)? {
                    return Ok((row, None));
                }
                row.state = to;
                row.offline &= to != RackState::Removed;
                change.put_rack(&row)?;
                let news = change.record(entry.of(&row).turn(Some(from), to))?;
                Ok::<_, ControlError>((row, Some(news)))
            })
            .await?;
        if let Some(news) = news {
            tracing::info!(rack = %row.name, entity_id = %row.entity_id, by = news.by, "rack {verb}");
            self.events.publish(&news).await;
            self.tell(&row.entity_id).await;
            // After it was told: a removed Rack is cut off by this.
            self.acl.refresh().await;
            match to {
                RackState::Active => self.rollout.deliver(row.entity_id),
                RackState::Removed => self.liveness.forget(&row.entity_id),
                _ => {}
            }
        }
        self.rack(&row.entity_id.to_string())
    }

    /// Sends a Rack its state. An offline Rack gets it in the reply to its next heartbeat.
    pub(crate) async fn tell(&self, id: &EntityId) {
        let change = match self.state_of(id).await {
            Ok(Some(change)) => change,
            Ok(None) => return,
            Err(error) => {
                tracing::error!(entity_id = %id, %error, "could not send a Rack its new state; the reply to its next \
                                                          heartbeat carries it");
                return;
            }
        };
        let told = self
            .bus
            .command(&self.cluster, id, RackCommand::State, &change, TELL)
            .await;
        match told {
            // A late answer to a state that is not in force says nothing. What else is wrong the next heartbeat sets right.
            Ok(_) if matches!(self.registry.rack(id), Ok(Some(row)) if row.state == change.state) => {
                self.liveness.record_obeyed_state(id, change.state);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(entity_id = %id, %error, "could not send a Rack its new state; the reply to its next \
                                                          heartbeat carries it");
            }
        }
    }

    /// The state of a Rack, at a time that no later state has an earlier one than: the time is taken first.
    async fn state_of(&self, id: &EntityId) -> Result<Option<StateChange>, RegistryError> {
        let issued = self.command_clock.next().await?;
        Ok(self.registry.rack(id)?.map(|row| StateChange {
            entity_id: row.entity_id,
            issued,
            state: row.state,
        }))
    }

    fn find(&self, id_or_name: &str) -> Result<RackRow, ControlError> {
        let by_id = id_or_name.parse::<EntityId>().ok();
        let found = match by_id.map(|id| self.registry.rack(&id)).transpose()?.flatten() {
            Some(row) => Some(row),
            None => match id_or_name.parse::<Token>() {
                Ok(name) => self.registry.rack_named(&name)?,
                Err(_) => None,
            },
        };
        found.ok_or_else(|| ControlError::UnknownRack(id_or_name.to_owned()))
    }

    fn view(
        &self,
        row: RackRow,
        active: Option<&ActiveScenario>,
        references: &mut ReferenceCache<'_>,
    ) -> Result<RackView, ControlError> {
        let sighting = self.liveness.of(&row.entity_id);
        let running = match &sighting {
            Some(seen) => seen.runs(row.state),
            None => row.scenario.as_ref(),
        };
        let running = running.map(|hash| references.scenario(hash)).transpose()?;
        Ok(RackView::new(row, sighting, running, active))
    }
}

fn listed(known: &[String]) -> String {
    if known.is_empty() {
        "none".to_owned()
    } else {
        known.join(", ")
    }
}

fn rack_in(change: &RegistryTransaction<'_>, id: &EntityId) -> Result<RackRow, ControlError> {
    change
        .rack(id)?
        .ok_or_else(|| ControlError::UnknownRack(id.to_string()))
}

/// A pending Rack that may be admitted, with the name that it gets.
struct AdmittedRack {
    row: RackRow,
    key: KeyFingerprint,
    name: Token,
}

impl AdmittedRack {
    /// Checks an approval; none where the Rack is active under that name already.
    fn review(
        change: &RegistryTransaction<'_>,
        id: &EntityId,
        approval: RackApproval,
    ) -> Result<Option<Self>, ControlError> {
        let row = rack_in(change, id)?;
        let waiting = KeyFingerprint::of(&row.rack_key);
        if let Some(approved) = approval.key_fingerprint.filter(|approved| *approved != waiting) {
            return Err(ControlError::KeyMismatch {
                rack: row.name,
                waiting,
                approved,
            });
        }
        let name = approval.name.unwrap_or_else(|| row.name.clone());
        match row.state {
            RackState::Pending => {}
            RackState::Active if name == row.name => return Ok(None),
            RackState::Active => {
                let hint = " under another name: its passport is issued; set base.name at the Rack instead";
                return Err(refuse(&row, "approved", hint));
            }
            RackState::Suspended => return Err(refuse(&row, "approved", ": it was approved before, resume it")),
            RackState::Removed | RackState::Offline => {
                let hint = ": its identity is revoked; start the Rack with a fresh state file";
                return Err(refuse(&row, "approved", hint));
            }
        }
        if let Some(holder) = change.holder(&name)?.filter(|holder| holder != id) {
            return Err(ControlError::NameTaken { name, holder });
        }
        if is_id(&name) {
            return Err(ControlError::NameIsId(name));
        }
        let key = waiting;
        Ok(Some(Self { row, key, name }))
    }

    fn change(&self) -> DualChange {
        DualChange::Approve {
            rack: self.row.entity_id,
            name: self.name.clone(),
            key: self.key,
        }
    }

    /// Admits it; `first` is the word of who asked for it first, where two had to.
    fn adopt(
        self,
        change: &RegistryTransaction<'_>,
        entry: AuditEntry,
        first: Option<String>,
    ) -> Result<(RackRow, AuditEntry), ControlError> {
        let Self { mut row, key, name } = self;
        let asked = std::mem::replace(&mut row.name, name);
        row.state = RackState::Active;
        reserve_number(change, &row)?;
        change.put_rack(&row)?;
        let renamed = (asked != row.name).then(|| format!("it had asked for the name {asked}"));
        let why: Vec<_> = [Some(format!("key {key}")), renamed, first]
            .into_iter()
            .flatten()
            .collect();
        let entry = entry.of(&row).turn(Some(RackState::Pending), row.state);
        let entry = entry.because(why.join("; "));
        Ok((row, change.record(entry)?))
    }
}

fn refuse(row: &RackRow, verb: &'static str, hint: &'static str) -> ControlError {
    ControlError::State {
        rack: row.name.clone(),
        state: row.state,
        verb,
        hint,
    }
}

/// Whether the change is one (true), or already so (false).
fn may_become(row: &RackRow, to: RackState, verb: &'static str) -> Result<bool, ControlError> {
    match (row.state, to) {
        (from, to) if from == to => Ok(false),
        (RackState::Removed, _) => Err(refuse(row, verb, ": its identity is revoked")),
        (_, RackState::Removed) => Ok(true),
        (RackState::Pending, _) => Err(refuse(row, verb, ": approve it first")),
        _ => Ok(true),
    }
}
