//! Admission: what becomes of one transcript that was checked, in a transaction of the registry.
//!
//! # Invariants
//!
//! - A refusal leaves nothing behind: where an invite was used up before it, its transaction is undone. Only that an invite was refused is
//!   recorded.
//! - The consumers of wires that are for a name are made anew once its Rack has left it: that is owed from the transaction on.
//! - A Rack that has another name is owed its part of the scenario by it, in the same transaction.
//! - A passport counter below the highest one the Rack has shown is stale: a copy of an old state file. One above the
//!   last shown but below the last issued is a lost answer, and fine.
//! - A Rack keeps its key for the bus, and no two Racks have one.
//!
//! Not here: the checks of the transcript, and the transaction ([`super`]); names ([`super::name_claims`]); invites ([`super::invitation`]).

use std::time::Duration;

use model::control::{EnrollReply, EnrollTranscript, RackState, RefusalCode};
use model::lifecycle_event::LifecycleEvent;
use model::passport::{self, Passport};
use model::{EntityId, Timestamp};

use super::invitation::{self, InviteDecision};
use super::name_claims::{claimed, free_name, reserve_number};
use super::{AdmissionError, AdmissionOutcome, EnrollmentService, no};
use crate::liveness::DEFAULT_INTERVAL_MS;
use crate::registry::{AuditActor, AuditEntry, RackRow, RegistryTransaction, begun};

/// Racks that may wait for approval at one time.
pub(super) const MAX_PENDING: usize = 1000;
/// How exactly it is kept when a Rack that waits for approval was heard of.
pub(super) const HEARD_OF: Duration = Duration::from_secs(60);
/// How long a Rack that waits for approval was not heard of when another one may have its place.
const GIVEN_UP: Duration = Duration::from_secs(3_600);

impl EnrollmentService {
    /// The outcome, and whether it must be durable. A refusal is an outcome where nothing was written before it, and else an error.
    pub(super) fn admit(
        &self,
        change: &RegistryTransaction<'_>,
        transcript: &EnrollTranscript,
    ) -> Result<(AdmissionOutcome, bool), AdmissionError> {
        let now = self.ambient.0.now();
        let before = change.rack_with_key(&transcript.rack_key)?;
        let mut is_written = false;
        let admitted = invitation::redeem(change, transcript, before.as_ref(), now).and_then(|decision| {
            is_written = matches!(decision, InviteDecision::Admitted { .. });
            let (admitted_by, news) = match decision {
                InviteDecision::Refused(refusal) => return Ok((AdmissionOutcome::refused(refusal), true)),
                InviteDecision::Admitted { why, displaced } => (Some(why), displaced.map(|entry| *entry)),
                InviteDecision::NotInvited => (self.auto_adopt.then(|| "enrollment.auto_adopt".to_owned()), None),
            };
            self.admit_by(change, (transcript, now), before, (admitted_by, news))
        });
        match admitted {
            Err(refused @ AdmissionError::Refused(_)) if !is_written => {
                Ok((AdmissionOutcome::refused(refused.into_refusal()), false))
            }
            admitted => admitted,
        }
    }

    /// The same of a Rack that is admitted for this reason, or that nobody vouches for, with what became of others by it. Unless an invite was
    /// used up before, nothing is written before the last reason to refuse.
    fn admit_by(
        &self,
        change: &RegistryTransaction<'_>,
        (transcript, now): (&EnrollTranscript, Timestamp),
        before: Option<RackRow>,
        (admitted_by, displaced): (Option<String>, Option<AuditEntry>),
    ) -> Result<(AdmissionOutcome, bool), AdmissionError> {
        let mut news: Vec<AuditEntry> = displaced.into_iter().collect();
        let mut row = match before.clone() {
            Some(row) => returning(change, row, transcript)?,
            None => self.newcomer(change, transcript, now)?,
        };
        row.last_seen = now;
        row.host.clone_from(&transcript.host);
        row.ip.clone_from(&transcript.ip);
        row.software.clone_from(&transcript.software);
        row.heard = begun(row.heard, transcript.boot_epoch);
        row.bus_key = own_bus_key(change, transcript, &row)?;
        if before.is_none() && admitted_by.is_none() {
            news.extend(make_room(change, now)?);
        }
        if admitted_by.is_some() && row.state == RackState::Pending {
            row.state = RackState::Active;
        }
        let reply = if row.is_adopted() {
            self.issue(&mut row, now)?
        } else {
            EnrollReply::Pending {
                entity_id: row.entity_id,
                bus_credential: None,
            }
        };
        if row.is_adopted()
            && before
                .as_ref()
                .is_none_or(|before| !before.is_adopted() || before.name != row.name)
        {
            reserve_number(change, &row)?;
        }
        change.put_rack(&row)?;
        for entry in what_is_new(before.as_ref(), &row, admitted_by, now) {
            news.push(change.record(entry)?);
        }
        let renamed = before
            .as_ref()
            .filter(|before| before.is_adopted() && before.name != row.name);
        let left_wires = match renamed {
            Some(before) => change.leave_wires(&before.name, now)?,
            None => false,
        };
        let is_as_before = before.as_ref().is_some_and(|before| waits_as_before(before, &row));
        let is_listed_anew = before.is_none_or(|before| {
            (&before.bus_key, &before.name, before.is_adopted()) != (&row.bus_key, &row.name, row.is_adopted())
        });
        let outcome = AdmissionOutcome {
            reply,
            rack: Some(row),
            news,
            is_listed_anew,
            left_wires,
        };
        let is_kept = !is_as_before || !outcome.news.is_empty();
        Ok((outcome, is_kept))
    }

    /// The row of a Rack that is not known.
    fn newcomer(
        &self,
        change: &RegistryTransaction<'_>,
        transcript: &EnrollTranscript,
        now: Timestamp,
    ) -> Result<RackRow, AdmissionError> {
        let entity_id = EntityId::at(now, self.ambient.1.bytes());
        Ok(RackRow {
            entity_id,
            name: free_name(change, &transcript.claim, None)?,
            claimed: claimed(&transcript.claim),
            rack_key: transcript.rack_key.clone(),
            state: RackState::Pending,
            counter: 0,
            confirmed: transcript.counter,
            first_seen: now,
            last_seen: now,
            interval_ms: DEFAULT_INTERVAL_MS,
            host: String::new(),
            ip: String::new(),
            software: String::new(),
            labels: std::collections::BTreeMap::new(),
            relabelled: None,
            scenario: None,
            offline: false,
            bus_key: None,
            heard: None,
        })
    }

    fn issue(&self, row: &mut RackRow, now: Timestamp) -> Result<EnrollReply, AdmissionError> {
        row.counter = row.counter.max(row.confirmed).saturating_add(1);
        let passport = Passport {
            version: passport::VERSION,
            cluster_id: self.cluster.id(),
            cluster_key: self.cluster.public_key(),
            entity_id: row.entity_id,
            name: row.name.clone(),
            rack_key: row.rack_key.clone(),
            issued: now,
            counter: row.counter,
        };
        Ok(EnrollReply::Adopted {
            passport: passport.sign(self.cluster.key())?,
            state: row.state,
            bus_credential: None,
        })
    }
}

/// Lets one more Rack wait for approval: where too many do, the one that was not heard of for the longest time is forgotten.
fn make_room(change: &RegistryTransaction<'_>, now: Timestamp) -> Result<Option<AuditEntry>, AdmissionError> {
    let (count, stalest) = change.pending()?;
    if count < MAX_PENDING {
        return Ok(None);
    }
    let Some(gone) = stalest.filter(|rack| now.since(rack.last_seen) >= GIVEN_UP) else {
        let reason = format!("{MAX_PENDING} Racks wait for approval already: approve or remove some first");
        return Err(no(RefusalCode::Internal, reason));
    };
    change.forget_rack(&gone)?;
    let reason = format!("it waited for approval and has been silent since {}", gone.last_seen);
    let entry = AuditEntry::new(LifecycleEvent::RackRemoved, &AuditActor::Mixer, now).of(&gone);
    Ok(Some(change.record(entry.because(reason))?))
}

/// A Rack whose key is known: not revoked, not a stale copy, perhaps under a new name.
fn returning(
    change: &RegistryTransaction<'_>,
    mut row: RackRow,
    transcript: &EnrollTranscript,
) -> Result<RackRow, AdmissionError> {
    if row.state == RackState::Removed {
        let reason = format!(
            "the identity {} was removed from this cluster: start the Rack with a fresh state file to enrol again",
            row.entity_id
        );
        return Err(no(RefusalCode::Removed, reason));
    }
    if transcript.counter < row.confirmed {
        let reason = format!(
            "the passport has counter {}, but {} was seen already: this state file is an old copy. Use the newest one, or \
             remove the Rack {} and start with a fresh state file",
            transcript.counter, row.confirmed, row.name
        );
        return Err(no(RefusalCode::StalePassport, reason));
    }
    row.confirmed = transcript.counter;
    let claim = claimed(&transcript.claim);
    if claim != row.claimed {
        let name = free_name(change, &transcript.claim, Some(&row.entity_id))?;
        if row.is_adopted() && name != row.name {
            // What it remembers is the part of its old name.
            row.relabelled.get_or_insert_with(|| row.labels.clone());
        }
        row.name = name;
        row.claimed = claim;
    }
    Ok(row)
}

/// Whether nothing about a Rack that waits is new but that it was heard of a moment ago: strangers cost no write each time that they ask.
fn waits_as_before(before: &RackRow, row: &RackRow) -> bool {
    let heard = RackRow {
        last_seen: row.last_seen,
        ..before.clone()
    };
    row.state == RackState::Pending && heard == *row && row.last_seen.since(before.last_seen) < HEARD_OF
}

/// The key that the Rack tells for the bus. It stays the same: with another one at each handshake a stranger would have the server read its users
/// without rest. And no other Rack has it: the bus would take them for one.
fn own_bus_key(
    change: &RegistryTransaction<'_>,
    transcript: &EnrollTranscript,
    row: &RackRow,
) -> Result<Option<String>, AdmissionError> {
    let Some(key) = transcript
        .bus_key
        .as_ref()
        .filter(|key| row.bus_key.as_ref() != Some(key))
    else {
        return Ok(row.bus_key.clone());
    };
    if row.bus_key.is_some() {
        let reason = "the key for the bus is another one than before, and follows from the key of the Rack: start it with a fresh state file";
        return Err(no(RefusalCode::Malformed, reason));
    }
    if let Some(holder) = change.bus_key_holder(key)? {
        let reason = format!(
            "the key for the bus belongs to Rack {holder}: two Racks run with copies of one state file; start this one \
             with a fresh state file"
        );
        return Err(no(RefusalCode::Malformed, reason));
    }
    Ok(Some(key.clone()))
}

/// What a handshake changed: that a Rack is known, that it is adopted, that its first passport leaves, that it has another name.
fn what_is_new(
    before: Option<&RackRow>,
    row: &RackRow,
    admitted_by: Option<String>,
    now: Timestamp,
) -> Vec<AuditEntry> {
    let own = AuditActor::Rack(row.name.clone());
    let mut news = Vec::new();
    // What a Rack that waits is called is in the entry of its approval.
    if let Some(before) = before.filter(|before| before.name != row.name && before.state != RackState::Pending) {
        let renamed = AuditEntry::new(LifecycleEvent::RackRenamed, &own, now).of(row);
        news.push(renamed.turn(Some(&before.name), &row.name));
    }
    let from = before.map(|row| row.state);
    match row.state {
        RackState::Pending if from.is_none() => {
            let pending = AuditEntry::new(LifecycleEvent::RackPending, &own, now).of(row);
            news.push(pending.turn(from, row.state));
        }
        RackState::Active if from != Some(RackState::Active) => {
            let adopted = AuditEntry::new(LifecycleEvent::RackAdopted, &AuditActor::Mixer, now).of(row);
            news.push(adopted.turn(from, row.state).because(admitted_by.unwrap_or_default()));
        }
        _ if row.is_adopted() && row.counter == 1 => {
            let adopted = AuditEntry::new(LifecycleEvent::RackAdopted, &own, now).of(row);
            news.push(adopted.because("it has its first passport"));
        }
        _ => {}
    }
    news
}
