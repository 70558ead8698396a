//! Invites: made, listed, revoked. An invite admits one Rack under one name.
//!
//! # Invariants
//!
//! - The text of an invite is in the answer to who made it and nowhere else: the registry has its public key.
//! - A new invite for a name takes the place of the one that is open.

use std::sync::Arc;
use std::time::Duration;

use model::lifecycle_event::LifecycleEvent;
use model::{KeyFingerprint, RackInvite, Timestamp, Token};
use schemars::JsonSchema;
use serde::Serialize;

use super::dual_control::{ChangeOutcome, DualChange, DualControlDecision};
use super::{ControlError, ControlPlane};
use crate::enrollment::is_id;
use crate::registry::{AuditActor, AuditEntry, InviteRow, RegistryTransaction};

/// How long an invite is good unless its maker says otherwise.
pub(crate) const INVITE_LIFETIME: Duration = Duration::from_secs(3_600);
/// How long it may be good at most.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3_600);
/// How long one that was used or has expired is remembered.
const REMEMBERED: Duration = Duration::from_secs(90 * 24 * 3_600);
/// So many there may be.
const MOST: usize = 10_000;

/// An invite as it is shown: everything but its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct InviteView {
    /// As the audit log names it.
    pub(crate) id: String,
    /// The name under which a Rack is admitted.
    pub(crate) name: Token,
    /// `open`, `used` or `expired`.
    pub(crate) state: &'static str,
    pub(crate) created: Timestamp,
    /// Who made it.
    pub(crate) created_by: String,
    /// From then on it admits nobody.
    pub(crate) expires: Timestamp,
    /// When a Rack was admitted with it.
    pub(crate) used: Option<Timestamp>,
    /// The key of that Rack.
    pub(crate) used_by: Option<KeyFingerprint>,
}

impl InviteView {
    fn new(row: InviteRow, now: Timestamp) -> Self {
        let state = match (row.used, row.is_open(now)) {
            (Some(_), _) => "used",
            (None, true) => "open",
            (None, false) => "expired",
        };
        Self {
            id: row.id(),
            state,
            used: row.used.map(|(at, _)| at),
            used_by: row.used.map(|(_, key)| key),
            name: row.name,
            created: row.created,
            created_by: row.created_by,
            expires: row.expires,
        }
    }
}

impl ControlPlane {
    /// Every invite that is remembered, the oldest first.
    ///
    /// # Errors
    /// [`ControlError::Registry`].
    pub(crate) fn invites(&self) -> Result<Vec<InviteView>, ControlError> {
        let now = self.clock.now();
        let mut rows = self.registry.invites()?;
        rows.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        Ok(rows.into_iter().map(|row| InviteView::new(row, now)).collect())
    }

    /// Makes an invite for a Rack of this name, and its text. It may need a second person. To a Rack that is admitted under the name it brings the
    /// bus's address and authority, and it admits nobody else while that Rack has the name.
    ///
    /// # Errors
    /// [`ControlError`].
    pub(crate) async fn invite(
        &self,
        name: Token,
        lifetime: Duration,
        by: &AuditActor,
    ) -> Result<ChangeOutcome<(String, InviteView)>, ControlError> {
        if lifetime > LONGEST {
            return Err(ControlError::InviteLifetime);
        }
        if is_id(&name) {
            return Err(ControlError::NameIsId(name));
        }
        let (now, bus) = (self.clock.now(), self.bus.status());
        let invite = RackInvite::new(
            name.clone(),
            bus.url.replace("***@", ""),
            bus.authority,
            KeyFingerprint::of(&self.cluster.public_key()),
            self.entropy.bytes(),
        );
        let key = invite.public_key().map(|key| key.as_bytes().to_vec());
        let row = InviteRow {
            key: key.unwrap_or_default(),
            name,
            created: now,
            created_by: by.to_string(),
            expires: now.plus(lifetime),
            used: None,
            refused: 0,
        };
        let text = invite
            .to_text()
            .map_err(|error| ControlError::InviteForm(error.to_string()))?;
        let wanted = DualChange::Invite {
            name: row.name.clone(),
            lifetime,
        };
        let entry = AuditEntry::new(LifecycleEvent::InviteCreated, by, now).at(Some(row.name.clone()), None);
        let (dual_control, by, kept) = (Arc::clone(&self.dual_control), by.clone(), row.clone());
        let written = self.registry.commit(move |change| {
            let first = match dual_control.decide(change, wanted, &by, now)? {
                DualControlDecision::Awaited(awaited) => return Ok(ChangeOutcome::Awaited(awaited)),
                DualControlDecision::Granted(first) => first,
            };
            make_room(change, &kept.name, now)?;
            change.put_invite(&kept)?;
            let why = [Some(format!("invite {} until {}", kept.id(), kept.expires)), first];
            let why: Vec<_> = why.into_iter().flatten().collect();
            change.record(entry.because(why.join("; ")))?;
            Ok::<_, ControlError>(ChangeOutcome::Done(()))
        });
        if let ChangeOutcome::Awaited(awaited) = written.await? {
            return Ok(self.announce(awaited).await);
        }
        tracing::info!(rack = %row.name, invite = row.id(), by = row.created_by, "made an invite");
        Ok(ChangeOutcome::Done((text, InviteView::new(row, now))))
    }

    /// Revokes the open invite of a name, or the one with this id: it admits nobody when this returns.
    ///
    /// # Errors
    /// [`ControlError`].
    pub(crate) async fn revoke_invite(&self, meant: &str, by: &AuditActor) -> Result<InviteView, ControlError> {
        let (now, meant) = (self.clock.now(), meant.to_owned());
        let entry = AuditEntry::new(LifecycleEvent::InviteRevoked, by, now);
        let revoked = self.registry.commit(move |change| {
            let is_meant = |row: &InviteRow| row.is_open(now) && (row.name.as_str() == meant || row.id() == meant);
            let found = change.invites()?.into_iter().find(is_meant);
            let row = found.ok_or(ControlError::UnknownInvite(meant))?;
            change.remove_invite(&row)?;
            let why = format!("invite {}", row.id());
            change.record(entry.at(Some(row.name.clone()), None).because(why))?;
            Ok::<_, ControlError>(row)
        });
        Ok(InviteView::new(revoked.await?, now))
    }
}

/// Forgets what a new invite replaces and what nobody needs to know any more.
fn make_room(change: &RegistryTransaction<'_>, name: &Token, now: Timestamp) -> Result<(), ControlError> {
    let rows = change.invites()?;
    let (open, over): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.is_open(now));
    // So many that are over are not remembered.
    let is_forgotten = |row: &InviteRow| over.len() >= MOST || now.since(row.expires) >= REMEMBERED;
    for row in over.iter().filter(|row| is_forgotten(row)) {
        change.remove_invite(row)?;
    }
    for row in open.iter().filter(|row| row.name == *name) {
        change.remove_invite(row)?;
    }
    match open.iter().filter(|row| row.name != *name).count() < MOST {
        true => Ok(()),
        false => Err(ControlError::TooManyInvites(MOST)),
    }
}
