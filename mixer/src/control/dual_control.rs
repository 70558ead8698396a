//! Dual control: what `api.second_person` names is done once two callers have asked for exactly the same within an hour.
//!
//! ```text
//!  first caller ─▶ checked ─▶ waits: audit entry, 202 ─┬─ another caller asks for the same ─▶ done; its entry names both
//!                                                       └─ an hour is over, a restart, withdrawn, the first may it no more ─▶ forgotten
//! ```
//!
//! # Invariants
//!
//! - The same is: the same Rack, key and name; an invite of the same name and lifetime; the same content hash and resume point.
//! - Whether somebody is the first or the second is decided in the transaction of the registry that makes the change: of two calls at
//!   once one is the first, and nothing changes between the check and the change.
//! - Local users are one person. A token is one person; who has two tokens is two.
//! - What waits is in memory, and bounded; one person has half of it at most.
//!
//! # Not here
//!
//! Which rights a caller has ([`crate::access`]). What the Mixer does by its own configuration needs nobody.

use std::sync::Arc;
use std::time::Duration;

use model::{EntityId, HumanDuration, KeyFingerprint, Timestamp, Token};
use parking_lot::{Mutex, MutexGuard};
use schemars::JsonSchema;
use serde::Serialize;

use super::scenarios::ResumePoint;
use super::{ControlError, ControlPlane};
use crate::access::{AccessRight, CallerIdentity, DualControlAction, TokenDigest};
use crate::authentication::TokenStore;
use crate::lifecycle_event::LifecycleEvent;
use crate::registry::{AuditActor, AuditEntry, RegistryTransaction};

/// How long a change waits for its second person.
const PATIENCE: Duration = Duration::from_secs(60 * 60);
/// So many changes wait at most.
const MOST_WAITING: usize = 1_000;

/// A change that may need two persons.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestingPerson {
    /// Whoever needs no token.
    Local,
    Token(TokenDigest),
}

/// A change that waits for its second person.
#[derive(Debug)]
struct WaitingChange {
    change: DualChange,
    person: RequestingPerson,
    view: ChangeRequestView,
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

/// The changes that wait, and which have to.
#[derive(Debug)]
pub(crate) struct DualControl {
    actions: Vec<DualControlAction>,
    tokens: Arc<TokenStore>,
    waiting: Mutex<Vec<WaitingChange>>,
}

impl DualControl {
    /// Nothing waits.
    pub(crate) fn new(actions: Vec<DualControlAction>, tokens: Arc<TokenStore>) -> Self {
        Self {
            actions,
            tokens,
            waiting: Mutex::default(),
        }
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
        let mut waiting = self.in_force(now);
        if let Some(at) = waiting.iter().position(|waits| waits.change == change) {
            let view = waiting.get(at).filter(|waits| waits.person == person);
            if let Some(view) = view.map(|waits| waits.view.clone()) {
                return Ok(DualControlDecision::Awaited(Box::new(AwaitedChange {
                    view,
                    news: None,
                })));
            }
            let first = waiting.remove(at).view;
            let first = format!("requested by {} at {}", first.requested_by, first.requested);
            return Ok(DualControlDecision::Granted(Some(first)));
        }
        let own = waiting.iter().filter(|waits| waits.person == person).count();
        if waiting.len() >= MOST_WAITING || own >= MOST_WAITING / 2 {
            return Err(ControlError::TooManyRequests(waiting.len()));
        }
        let until = now.plus(PATIENCE);
        let entry = change.entry(LifecycleEvent::ChangeRequested, by, now);
        let news = transaction.record(entry.because(format!("{}; until {until}", change.details())))?;
        let view = ChangeRequestView {
            id: news.id,
            change: change.verb(),
            rack: news.rack.clone(),
            entity_id: news.entity_id,
            reference: news.reference.clone(),
            hash: news.hash.clone(),
            details: change.details(),
            requested_by: news.by.clone(),
            requested: now,
            until,
        };
        waiting.push(WaitingChange {
            change,
            person,
            view: view.clone(),
        });
        let news = Some(news);
        Ok(DualControlDecision::Awaited(Box::new(AwaitedChange { view, news })))
    }

    /// What waits still: requests that are too old, and of those who may ask for such a change no more, are forgotten.
    fn in_force(&self, now: Timestamp) -> MutexGuard<'_, Vec<WaitingChange>> {
        let mut waiting = self.waiting.lock();
        waiting.retain(|waits| {
            // A clock that was set back makes no request live longer.
            let is_young = (waits.view.requested..waits.view.until).contains(&now);
            let may_ask = match waits.person {
                RequestingPerson::Local => true,
                RequestingPerson::Token(digest) => self.tokens.has_right(digest, waits.change.right()),
            };
            is_young && may_ask
        });
        waiting
    }
}

impl ControlPlane {
    /// The changes that wait for a second person, the oldest first.
    pub(crate) fn change_requests(&self) -> Vec<ChangeRequestView> {
        let waiting = self.dual_control.in_force(self.clock.now());
        waiting.iter().map(|waits| waits.view.clone()).collect()
    }

    /// Forgets a change that waits for a second person.
    ///
    /// # Errors
    /// [`ControlError::UnknownRequest`], [`ControlError::Registry`].
    pub(crate) async fn withdraw_request(&self, id: &str, by: &AuditActor) -> Result<ChangeRequestView, ControlError> {
        let unknown = || ControlError::UnknownRequest(id.to_owned());
        let number: u64 = id.parse().map_err(|_| unknown())?;
        let now = self.clock.now();
        let gone = {
            let mut waiting = self.dual_control.in_force(now);
            let at = waiting.iter().position(|waits| waits.view.id == number);
            waiting.remove(at.ok_or_else(unknown)?)
        };
        let entry = gone.change.entry(LifecycleEvent::RequestWithdrawn, by, now);
        let why = format!("request {number} of {}", gone.view.requested_by);
        self.record(entry.because(why)).await?;
        Ok(gone.view)
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
