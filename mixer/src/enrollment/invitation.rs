//! Admission by invite: a transcript that proves an invite is admitted at once, under the invite's name, and uses it up.
//!
//! | what comes | what becomes of it |
//! |---|---|
//! | nothing, or a Rack that is admitted already | as if there were no invites |
//! | an invite that is open, and its name | admitted; a stranger that waits under the name is forgotten |
//! | one that was used, has expired, or is for another name | refused, in the audit log the first [`TOLD`] times |
//! | one that is not known, or no proof of it | refused, in the Mixer's log: anybody can send that |
//!
//! # Invariants
//!
//! - An invite is used in the transaction of the admission: one Rack is admitted with it, or none.
//!
//! Not here: making and revoking invites ([`crate::control`]).

use model::control::{EnrollTranscript, NameClaim, RackRefusal, RackState, RefusalCode};
use model::lifecycle_event::LifecycleEvent;
use model::{KeyFingerprint, Timestamp};

use super::{AdmissionError, no, refusal};
use crate::registry::{AuditActor, AuditEntry, InviteRow, RackRow, RegistryTransaction};

/// So many refusals of an invite are in the audit log: who has it could fill it.
const TOLD: u8 = 8;

/// What an invite does for a transcript.
pub(super) enum InviteDecision {
    /// Nothing.
    NotInvited,
    /// Its Rack is admitted.
    Admitted {
        /// For the audit log.
        why: String,
        /// A stranger under its name.
        displaced: Option<Box<AuditEntry>>,
    },
    /// Its Rack is not, and that is in the audit log.
    Refused(RackRefusal),
}

/// Uses up the invite of a transcript, or says why not.
pub(super) fn redeem(
    change: &RegistryTransaction<'_>,
    transcript: &EnrollTranscript,
    known: Option<&RackRow>,
    now: Timestamp,
) -> Result<InviteDecision, AdmissionError> {
    let Some(proof) = &transcript.invite else {
        return Ok(InviteDecision::NotInvited);
    };
    if known.is_some_and(|row| row.state != RackState::Pending) {
        return Ok(InviteDecision::NotInvited);
    }
    if !proof.is_for(&transcript.challenge.nonce, &transcript.rack_key) {
        let reason = "the invite is not proved: its signature is not for this handshake";
        return Err(no(RefusalCode::Invite, reason));
    }
    let Some(mut invite) = change.invite(&proof.key)? else {
        let reason = "the invite is not known here: it was revoked, or another one was made for its name since; ask for a new one";
        return Err(no(RefusalCode::Invite, reason));
    };
    let key = KeyFingerprint::of(&transcript.rack_key);
    if let Some(reason) = obstacle(&invite, transcript, now) {
        if invite.refused < TOLD {
            invite.refused += 1;
            change.put_invite(&invite)?;
            let why = format!("{key} at {}: {reason}", transcript.host);
            let entry = AuditEntry::new(LifecycleEvent::InviteRefused, &AuditActor::Mixer, now);
            change.record(entry.at(Some(invite.name), None).because(why))?;
        }
        tracing::warn!(%key, reason, "refused a Rack with an invite");
        return Ok(InviteDecision::Refused(refusal(RefusalCode::Invite, reason)));
    }
    let displaced = displace(change, &invite, transcript, now)?.map(Box::new);
    invite.used = Some((now, key));
    change.put_invite(&invite)?;
    Ok(InviteDecision::Admitted {
        why: format!("invite {} by {}; {key}", invite.id(), invite.created_by),
        displaced,
    })
}

/// Why the invite does not admit this Rack.
fn obstacle(invite: &InviteRow, transcript: &EnrollTranscript, now: Timestamp) -> Option<String> {
    let name = &invite.name;
    if let Some((at, key)) = invite.used {
        return Some(format!(
            "the invite for {name} was used at {at} by the Rack with the key {key}: if that was not this Rack, somebody else has the \
             invite, so remove that Rack (`platform racks remove {name}`) and make a new invite"
        ));
    }
    if now >= invite.expires {
        let expired = invite.expires;
        return Some(format!(
            "the invite for {name} has expired at {expired}: make a new one (`platform racks invite {name}`)"
        ));
    }
    match &transcript.claim {
        NameClaim::Name(claimed) if claimed == name => None,
        claim => Some(format!(
            "the invite is for {name}, and this Rack asks to be {}: set base.name to {name}, or make an invite for the other name",
            super::name_claims::claimed(claim)
        )),
    }
}

/// Forgets a stranger that waits under the name of an invite.
fn displace(
    change: &RegistryTransaction<'_>,
    invite: &InviteRow,
    transcript: &EnrollTranscript,
    now: Timestamp,
) -> Result<Option<AuditEntry>, AdmissionError> {
    let holder = change
        .holder(&invite.name)?
        .map(|id| change.rack(&id))
        .transpose()?
        .flatten();
    let is_stranger = |row: &RackRow| row.state == RackState::Pending && row.rack_key != transcript.rack_key;
    let Some(stranger) = holder.filter(is_stranger) else {
        return Ok(None);
    };
    change.forget_rack(&stranger)?;
    let key = KeyFingerprint::of(&stranger.rack_key);
    let entry = AuditEntry::new(LifecycleEvent::RackRemoved, &AuditActor::Mixer, now).of(&stranger);
    let entry = entry.because(format!(
        "it waited with the key {key}, and another Rack came with the invite for its name"
    ));
    Ok(Some(change.record(entry)?))
}
