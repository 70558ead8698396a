//! Dual control: what `api.second_person` names is done once two callers have asked for exactly the same within an hour.
//!
//! ```text
//!  first caller ─▶ checked ─▶ waits: audit entry, 202 ─┬─ another caller asks for the same ─▶ done; its entry names both
//!                                                       └─ an hour is over, withdrawn, the first may it no more ─▶ forgotten
//! ```
//!
//! # Invariants
//!
//! - The same is: the same Rack, key and name; an invite of the same name and lifetime; the same content hash and resume point.
//! - What waits is in the registry, and read and written in the transaction that makes the change: of two calls at once one is the
//!   first, nothing changes between the check and the change, and a change that is not made leaves its request.
//! - A request for an activation or a rollback is good while what was active then is active.
//! - Local users are one person. A token is one person; who has two tokens is two.
//! - What waits is bounded; one person has half of it at most.
//!
//! # Not here
//!
//! Which rights a caller has ([`crate::access`]). What the Mixer does by its own configuration needs nobody.

use std::sync::Arc;
use std::time::Duration;

use model::lifecycle_event::LifecycleEvent;
use model::{EntityId, HumanDuration, KeyFingerprint, Timestamp, Token};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scenarios::ResumePoint;
use super::{ControlError, ControlPlane};
use crate::access::{AccessRight, CallerIdentity, DualControlAction, TokenDigest};
use crate::authentication::TokenStore;
use crate::registry::{AuditActor, AuditEntry, RegistryTransaction};

/// How long a change waits for its second person.
const PATIENCE: Duration = Duration::from_secs(60 * 60);
/// So many changes wait at most.
const MOST_WAITING: usize = 1_000;

/// Of two calls the one that looks at the clock first may come second. A clock that is set back to before the request ends it.
const CLOCK_SLACK: Duration = Duration::from_secs(60);

/// A change that may need two persons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum DualChange {
    /// Admitting the Rack that has this key, under this name.
    Approve {
        rack: EntityId,
        name: Token,
        key: KeyFingerprint,
    },
    /// Making an invite.
    Invite { name: Token, lifetime: Duration },
    /// Activating a content.
    Activate {
        reference: String,
        hash: String,
        resume: ResumePoint,
    },
    /// Going back to a content.
    RollBack {
        reference: String,
        hash: String,
        resume: ResumePoint,
    },
}

impl DualChange {
    const fn action(&self) -> DualControlAction {
        match self {
            Self::Approve { .. } | Self::Invite { .. } => DualControlAction::Approve,
            Self::Activate { .. } | Self::RollBack { .. } => DualControlAction::Activate,
        }
    }

    const fn right(&self) -> AccessRight {
        match self {
            Self::Approve { .. } => AccessRight::AdmitRacks,
            Self::Invite { .. } => AccessRight::InviteRacks,
            Self::Activate { .. } | Self::RollBack { .. } => AccessRight::ActivateScenarios,
        }
    }

    const fn verb(&self) -> &'static str {
        match self {
            Self::Approve { .. } => "approve",
            Self::Invite { .. } => "invite",
            Self::Activate { .. } => "activate",
            Self::RollBack { .. } => "roll_back",
        }
    }

    /// What it is about, beyond the Rack or the scenario.
    fn details(&self) -> String {
        match self {
            Self::Approve { key, .. } => format!("key {key}"),
            Self::Invite { lifetime, .. } => format!("expires_in {}", HumanDuration::from(*lifetime)),
            Self::Activate { resume, .. } | Self::RollBack { resume, .. } => match resume {
                ResumePoint::Floor => "resume_from floor".to_owned(),
                ResumePoint::Now => "resume_from now".to_owned(),
            },
        }
    }

    /// The entry of something that happened to a request for it.
    fn entry(&self, event: LifecycleEvent, by: &AuditActor, now: Timestamp) -> AuditEntry {
        let entry = AuditEntry::new(event, by, now).turn(None::<&str>, self.verb());
        match self {
            Self::Approve { rack, name, .. } => entry.at(Some(name.clone()), Some(*rack)),
            Self::Invite { name, .. } => entry.at(Some(name.clone()), None),
            Self::Activate { reference, hash, .. } | Self::RollBack { reference, hash, .. } => {
                entry.scenario(reference, hash)
            }
        }
    }
}

/// Who counts as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum RequestingPerson {
    /// Whoever needs no token.
    Local,
    Token(TokenDigest),
}

/// A change that waits for its second person, as the registry has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct WaitingChange {
    change: DualChange,
    person: RequestingPerson,
    /// The number of its entry in the audit log.
    id: u64,
    requested_by: String,
    requested: Timestamp,
    /// The content hash of what was active.
    active: Option<String>,
}

impl WaitingChange {
    fn until(&self) -> Timestamp {
        self.requested.plus(PATIENCE)
    }

    fn view(&self) -> ChangeRequestView {
        let (mut rack, mut entity_id, mut reference, mut hash) = (None, None, None, None);
        match &self.change {
            DualChange::Approve { rack: id, name, .. } => (rack, entity_id) = (Some(name.clone()), Some(*id)),
            DualChange::Invite { name, .. } => rack = Some(name.clone()),
            DualChange::Activate {
                reference: meant,
                hash: of,
                ..
            }
            | DualChange::RollBack {
                reference: meant,
                hash: of,
                ..
            } => (reference, hash) = (Some(meant.clone()), Some(of.clone())),
        }
        ChangeRequestView {
            id: self.id,
            change: self.change.verb(),
            rack,
            entity_id,
            reference,
            hash,
            details: self.change.details(),
            requested_by: self.requested_by.clone(),
            requested: self.requested,
            until: self.until(),
        }
    }
}

/// A change that waits for its second person, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct ChangeRequestView {
    /// The number of its entry in the audit log.
    pub(crate) id: u64,
    /// `approve`, `invite`, `activate` or `roll_back`.
    pub(crate) change: &'static str,
    /// The Rack's name, or that of an invite.
    pub(crate) rack: Option<Token>,
    /// The Rack's identity.
    pub(crate) entity_id: Option<EntityId>,
    /// The scenario, `name:version`.
    pub(crate) reference: Option<String>,
    /// Its content hash.
    pub(crate) hash: Option<String>,
    /// The Rack's key, the lifetime of an invite, or where wires go on.
    pub(crate) details: String,
    /// Who asked for it first.
    pub(crate) requested_by: String,
    pub(crate) requested: Timestamp,
    /// From then on it is forgotten.
    pub(crate) until: Timestamp,
}

/// What becomes of a change.
#[derive(Debug)]
pub(crate) enum ChangeOutcome<T> {
    /// It was made.
    Done(T),
    /// Nothing was changed: a second person has to ask for the same.
    Awaited(Box<AwaitedChange>),
}

#[cfg(test)]
impl<T> ChangeOutcome<T> {
    /// What was made.
    pub(crate) fn done(self) -> Option<T> {
        match self {
            Self::Done(done) => Some(done),
            Self::Awaited(_) => None,
        }
    }
}

/// A change that waits, and the entry of the audit log if that was just written.
#[derive(Debug)]
pub(crate) struct AwaitedChange {
    pub(crate) view: ChangeRequestView,
    news: Option<AuditEntry>,
}

/// What is decided about a change.
pub(super) enum DualControlDecision {
    /// It may be made; with the word of who asked first, where that was asked for.
    Granted(Option<String>),
    /// It waits.
    Awaited(Box<AwaitedChange>),
}

/// Which changes have to wait, and who may still ask for them.
#[derive(Debug)]
pub(crate) struct DualControl {
    actions: Vec<DualControlAction>,
    tokens: Arc<TokenStore>,
}

impl DualControl {
    /// What `api.second_person` names has to wait.
    pub(crate) fn new(actions: Vec<DualControlAction>, tokens: Arc<TokenStore>) -> Self {
        Self { actions, tokens }
    }

    /// Whether a change that was checked may be made now. If it may not, the request for it is recorded, once.
    ///
    /// # Errors
    /// [`ControlError::TooManyRequests`], [`ControlError::Registry`].
    pub(super) fn decide(
        &self,
        transaction: &RegistryTransaction<'_>,
        change: DualChange,
        by: &AuditActor,
        now: Timestamp,
    ) -> Result<DualControlDecision, ControlError> {
        let AuditActor::Caller { identity, .. } = by else {
            return Ok(DualControlDecision::Granted(None));
        };
        if !self.actions.contains(&change.action()) {
            return Ok(DualControlDecision::Granted(None));
        }
        let person = match identity {
            CallerIdentity::Token { digest, .. } => RequestingPerson::Token(*digest),
            CallerIdentity::LocalUser(_) | CallerIdentity::Everybody => RequestingPerson::Local,
        };
        let active = transaction.active_scenario()?.map(|active| active.hash);
        let mut waiting = self.in_force(transaction.change_requests()?, active.as_deref(), now);
        if let Some(first) = waiting.iter().find(|waits| waits.change == change) {
            if first.person == person {
                let view = first.view();
                return Ok(DualControlDecision::Awaited(Box::new(AwaitedChange {
                    view,
                    news: None,
                })));
            }
            let asked = format!("requested by {} at {}", first.requested_by, first.requested);
            waiting.retain(|waits| waits.change != change);
            transaction.put_change_requests(&waiting)?;
            return Ok(DualControlDecision::Granted(Some(asked)));
        }
        let own = waiting.iter().filter(|waits| waits.person == person).count();
        if waiting.len() >= MOST_WAITING || own >= MOST_WAITING / 2 {
            return Err(ControlError::TooManyRequests(waiting.len()));
        }
        let entry = change.entry(LifecycleEvent::ChangeRequested, by, now);
        let why = format!("{}; until {}", change.details(), now.plus(PATIENCE));
        let news = transaction.record(entry.because(why))?;
        let waits = WaitingChange {
            change,
            person,
            id: news.id,
            requested_by: news.by.clone(),
            requested: now,
            active,
        };
        let view = waits.view();
        waiting.push(waits);
        transaction.put_change_requests(&waiting)?;
        let news = Some(news);
        Ok(DualControlDecision::Awaited(Box::new(AwaitedChange { view, news })))
    }

    /// What waits still: requests that are too old, were made while something else was active, or are of who may ask for such a change no more, count for
    /// nothing.
    fn in_force(&self, mut waiting: Vec<WaitingChange>, active: Option<&str>, now: Timestamp) -> Vec<WaitingChange> {
        waiting.retain(|waits| {
            let is_young = (waits.requested.minus(CLOCK_SLACK)..waits.until()).contains(&now);
            let may_ask = match waits.person {
                RequestingPerson::Local => true,
                RequestingPerson::Token(digest) => self.tokens.has_right(digest, waits.change.right()),
            };
            let is_meant = waits.change.action() != DualControlAction::Activate || waits.active.as_deref() == active;
            is_young && may_ask && is_meant
        });
        waiting
    }
}

impl ControlPlane {
    /// The changes that wait for a second person, the oldest first.
    ///
    /// # Errors
    /// [`ControlError::Registry`].
    pub(crate) async fn change_requests(&self) -> Result<Vec<ChangeRequestView>, ControlError> {
        let known = self.registry.read(|registry| {
            let active = registry.active_scenario()?.map(|active| active.hash);
            Ok::<_, ControlError>((registry.change_requests()?, active))
        });
        let (waiting, active) = known.await?;
        let waiting = self.dual_control.in_force(waiting, active.as_deref(), self.clock.now());
        Ok(waiting.iter().map(WaitingChange::view).collect())
    }

    /// Forgets a change that waits for a second person.
    ///
    /// # Errors
    /// [`ControlError::UnknownRequest`], [`ControlError::Registry`].
    pub(crate) async fn withdraw_request(&self, id: &str, by: &AuditActor) -> Result<ChangeRequestView, ControlError> {
        let (dual_control, by, now) = (Arc::clone(&self.dual_control), by.clone(), self.clock.now());
        let id = id.to_owned();
        let withdrawn = self.registry.commit(move |change| {
            let active = change.active_scenario()?.map(|active| active.hash);
            let mut waiting = dual_control.in_force(change.change_requests()?, active.as_deref(), now);
            let meant = waiting.iter().position(|waits| waits.id.to_string() == id);
            let gone = waiting.remove(meant.ok_or(ControlError::UnknownRequest(id))?);
            change.put_change_requests(&waiting)?;
            let entry = gone.change.entry(LifecycleEvent::RequestWithdrawn, &by, now);
            let news = change.record(entry.because(format!("request {} of {}", gone.id, gone.requested_by)))?;
            Ok::<_, ControlError>((gone.view(), news))
        });
        let (view, news) = withdrawn.await?;
        self.events.publish(&news).await;
        Ok(view)
    }

    /// Tells that a change waits.
    pub(super) async fn announce<T>(&self, awaited: Box<AwaitedChange>) -> ChangeOutcome<T> {
        if let Some(news) = &awaited.news {
            let (id, change, by) = (news.id, awaited.view.change, &news.by);
            tracing::info!(id, change, by, "a change waits for a second person");
            self.events.publish(news).await;
        }
        ChangeOutcome::Awaited(awaited)
    }
}
