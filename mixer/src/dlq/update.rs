//! Replay and drop requests: selects letters, checks them, and records their state.
//!
//! # Invariants
//!
//! - The marks of one request are one transaction; the letters of a gear go back in the order in which they failed.
//! - A gear's letters are there to be sent in the order of their numbers, whoever asks at the same time: its Rack takes a number to
//!   mean that those before it came too.
//! - Asked twice, a letter goes back once: what waits, or was replayed or dropped, stays what it is unless it is asked for again by
//!   name ([`LetterUpdate::again`]). Then it has a new turn.
//! - A request that changes letters is one entry of the audit log, in their transaction; one that changes none is no entry.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use model::control::RackState;
use model::dead_letter::LetterState;
use model::filter::{LetterFilter, TimePoint};
use model::lifecycle_event::LifecycleEvent;
use model::scenario::Scenario;
use model::{EntityId, LetterId, Timestamp, Token};
use query::QueryEngine;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use super::letter::{DeadLetterEntry, DeliveryFailure};
use super::{DeadLetterQueue, DlqError, MOST_CHANGED, lock};
use crate::registry::{AuditActor, AuditEntry, LetterMark, MAX_MARKS, RackRow, RegistryError, RegistryTransaction};
use crate::scenario::{FailurePoint, check_failure_point};

/// Letters that an entry of the audit log names.
const TOLD: usize = 3;
/// Refusals that an answer names.
const NAMED: usize = 100;
/// The longest name of who asks.
const MAX_BY: usize = 128;

/// What is to become of which letters.
#[derive(Debug, Clone, Default)]
pub struct LetterUpdate {
    /// These.
    pub ids: Vec<LetterId>,
    /// Or those.
    pub filter: Option<LetterFilter>,
    /// Also what went back or was dropped before.
    pub again: bool,
    /// Only say what would be.
    pub dry_run: bool,
    /// Who asks, by its own word.
    pub by: String,
    /// Who asks, as far as that is known.
    pub actor: AuditActor,
    /// How long to wait for the gears.
    pub wait: Duration,
}

/// What a wish came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LetterUpdateReport {
    /// The letters that it meant.
    pub matched: u64,
    /// Of these, those that it changed, or would.
    pub changed: u64,
    /// Those that were so already.
    pub already: u64,
    /// Of the changed, those that wait for their gear.
    pub waiting: u64,
    /// Those that their gear has taken.
    pub replayed: u64,
    /// Those that are dropped.
    pub dropped: u64,
    /// Those that cannot be.
    pub refused_total: u64,
    /// Why not, of the first of them.
    pub refused: Vec<LetterRefusal>,
    /// Whether nothing was changed because only that was asked.
    pub dry_run: bool,
    /// The times that a filter came to; with them it means no letter that came later. Absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Timestamp")]
    pub since: Option<Timestamp>,
    /// The end of these times.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Timestamp")]
    pub until: Option<Timestamp>,
    /// Why letters that the filter means may be missing; absent when none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub partial: Option<String>,
}

/// A replay that is written down.
#[derive(Debug)]
pub struct PendingReplay {
    report: LetterUpdateReport,
    changed: Vec<(LetterId, LetterMark)>,
    deadline: Instant,
}

/// Why a letter cannot be what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LetterRefusal {
    /// Which.
    pub id: LetterId,
    /// Why not.
    pub reason: String,
    /// Whether there is no such letter.
    #[serde(skip)]
    pub(crate) unknown: bool,
}

impl LetterUpdateReport {
    fn refuse(&mut self, id: LetterId, reason: String, unknown: bool) {
        self.refused_total += 1;
        if self.refused.len() < NAMED {
            self.refused.push(LetterRefusal { id, reason, unknown });
        }
    }

    /// The same as an error, for one letter that was asked for by its id.
    pub(crate) fn or_refused(self) -> Result<(), DlqError> {
        match self.refused.into_iter().next() {
            Some(LetterRefusal { id, unknown: true, .. }) => Err(DlqError::Unknown(id)),
            Some(LetterRefusal { id, reason, .. }) => Err(DlqError::Refused { id, reason }),
            None => Ok(()),
        }
    }
}

/// What becomes of one letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LetterAction {
    Replay,
    Drop,
}

impl LetterAction {
    const fn event(self) -> LifecycleEvent {
        match self {
            Self::Replay => LifecycleEvent::LettersReplayed,
            Self::Drop => LifecycleEvent::LettersDropped,
        }
    }
}

/// A letter that may change, and where it goes back to.
struct UpdateCandidate {
    id: LetterId,
    subject: String,
    rack: Option<Token>,
    to: Option<super::GearAddress>,
}

/// What one transaction did.
#[derive(Default)]
struct UpdateOutcome {
    changed: Vec<(LetterId, LetterMark)>,
    already: u64,
    refused: Vec<(LetterId, String)>,
    /// The Racks that the changed ones are of.
    racks: BTreeSet<(Option<Token>, Option<EntityId>)>,
    news: Option<AuditEntry>,
}

impl UpdateOutcome {
    /// What the audit log says of it.
    fn told(&self, entry: AuditEntry, by: &str) -> AuditEntry {
        let ids: Vec<_> = self.changed.iter().take(TOLD).map(|(id, _)| id.to_string()).collect();
        let (count, ids) = (self.changed.len(), ids.join(", "));
        let more = if count > TOLD { ", …" } else { "" };
        let letters = if count == 1 { "letter" } else { "letters" };
        let entry = entry.because(format!("{count} {letters}, {by}: {ids}{more}"));
        match self.racks.first() {
            Some((rack, entity)) if self.racks.len() == 1 => entry.at(rack.clone(), *entity),
            _ => entry,
        }
    }
}

impl DeadLetterQueue {
    /// Has letters go back to the gears that could not handle them: that they shall is durable when this returns.
    /// [`DeadLetterQueue::wait_for_gears`] waits for the gears.
    ///
    /// # Errors
    /// [`DlqError`]; letters that cannot go back are in the report.
    pub async fn replay(
        self: Arc<Self>,
        querier: Arc<QueryEngine>,
        wish: LetterUpdate,
    ) -> Result<PendingReplay, DlqError> {
        let deadline = Instant::now() + wish.wait;
        let (report, changed) = self.change(LetterAction::Replay, &querier, wish).await?;
        if !changed.is_empty() {
            self.bell.notify_one();
        }
        Ok(PendingReplay {
            report,
            changed,
            deadline,
        })
    }

    /// Waits until the gears have what goes back to them, as long as the wish says. Nothing is lost if nobody does.
    ///
    /// # Errors
    /// [`DlqError::Registry`].
    pub async fn wait_for_gears(&self, begun: PendingReplay) -> Result<LetterUpdateReport, DlqError> {
        let PendingReplay {
            mut report,
            changed,
            deadline,
        } = begun;
        if !changed.is_empty() {
            self.wait_until_settled(&changed, deadline, &mut report).await?;
        }
        Ok(report)
    }

    /// Marks letters as dropped: their rows stay until rotation.
    ///
    /// # Errors
    /// [`DlqError`]; letters that cannot be dropped are in the report.
    pub async fn drop_letters(
        self: Arc<Self>,
        querier: Arc<QueryEngine>,
        wish: LetterUpdate,
    ) -> Result<LetterUpdateReport, DlqError> {
        let (mut report, changed) = self.change(LetterAction::Drop, &querier, wish).await?;
        report.dropped = changed.len() as u64;
        self.dropped.fetch_add(report.dropped, Relaxed);
        Ok(report)
    }

    async fn change(
        self: &Arc<Self>,
        verb: LetterAction,
        querier: &QueryEngine,
        wish: LetterUpdate,
    ) -> Result<(LetterUpdateReport, Vec<(LetterId, LetterMark)>), DlqError> {
        let mut report = LetterUpdateReport {
            dry_run: wish.dry_run,
            ..LetterUpdateReport::default()
        };
        let letters = self.select_letters(querier, &wish, &mut report).await?;
        let stage = self.replay_targets().await?;
        let mut candidates = Vec::new();
        for letter in letters {
            let to = match verb {
                LetterAction::Replay => match stage.check(&letter) {
                    Ok(to) => Some(to),
                    Err(reason) => {
                        report.refuse(letter.id, reason, false);
                        continue;
                    }
                },
                LetterAction::Drop => None,
            };
            candidates.push(UpdateCandidate {
                id: letter.id,
                rack: letter.rack().cloned(),
                subject: letter.subject,
                to,
            });
        }
        let (now, by, again, dry_run) = (self.parts.clock.now(), who(&wish.by), wish.again, wish.dry_run);
        let entry = AuditEntry::new(verb.event(), &wish.actor, now);
        let ask = move |change: &RegistryTransaction<'_>| {
            let mut done = mark_all(change, verb, candidates, &LetterMark::new(now, by.clone()), again)?;
            if !done.changed.is_empty() {
                done.news = Some(change.record(done.told(entry, &by))?);
            }
            Ok::<_, DlqError>(done)
        };
        let dlq = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || match dry_run {
            true => dlq.parts.registry.dry_run(ask),
            false => dlq.commit(ask),
        });
        let done = done
            .await
            .map_err(|error| RegistryError::Interrupted(error.to_string()))??;
        report.already = done.already;
        report.changed = done.changed.len() as u64;
        for (id, reason) in done.refused {
            report.refuse(id, reason, false);
        }
        if dry_run {
            return Ok((report, Vec::new()));
        }
        lock(&self.open_counts).outdate();
        if let Some(news) = &done.news {
            self.parts.events.publish(news).await;
        }
        if report.changed > 0 {
            let (what, count) = (
                if verb == LetterAction::Replay {
                    "replayed"
                } else {
                    "dropped"
                },
                report.changed,
            );
            tracing::info!(count, by = who(&wish.by), "dead letters are {what}");
        }
        Ok((report, done.changed))
    }

    /// Marks letters, and has those that got a turn wait for it. Blocks; one at a time from the numbers being given out until they
    /// can be sent.
    fn commit(
        &self,
        ask: impl FnOnce(&RegistryTransaction<'_>) -> Result<UpdateOutcome, DlqError>,
    ) -> Result<UpdateOutcome, DlqError> {
        let _in_order = lock(&self.in_order);
        let done = self.parts.registry.change(ask)?;
        let mut waiting = lock(&self.waiting);
        for (id, mark) in &done.changed {
            if let Some(turn) = mark.turn.clone() {
                let gear = waiting.entry((turn.rack, turn.gear)).or_default();
                gear.insert(turn.number, *id);
            }
        }
        drop(waiting);
        Ok(done)
    }

    /// The letters that a wish means, in the order in which they failed.
    async fn select_letters(
        &self,
        querier: &QueryEngine,
        wish: &LetterUpdate,
        report: &mut LetterUpdateReport,
    ) -> Result<Vec<DeadLetterEntry>, DlqError> {
        if let Some(filter) = &wish.filter {
            // Letters that come later were seen by nobody.
            let now = self.parts.clock.now();
            let until = filter.until.map_or(now, |until| until.resolve(now).min(now));
            report.since = filter.since.map(|since| since.resolve(now));
            report.until = Some(until);
            let filter = LetterFilter {
                since: report.since.map(TimePoint::At),
                until: report.until.map(TimePoint::At),
                ..filter.clone()
            };
            let (letters, partial) = self.select(querier, &filter).await?;
            (report.matched, report.partial) = (letters.len() as u64, partial);
            return Ok(letters);
        }
        if wish.ids.len() > MOST_CHANGED {
            return Err(DlqError::TooMany);
        }
        let ids: BTreeSet<_> = wish.ids.iter().copied().collect();
        let mut letters = Vec::new();
        for id in ids {
            report.matched += 1;
            match self.letter(querier, id).await? {
                Some(letter) => letters.push(letter.without_payload()),
                None => report.refuse(id, "there is no such letter".to_owned(), true),
            }
        }
        letters.sort_by_key(DeadLetterEntry::order);
        Ok(letters)
    }

    /// Waits until the letters wait no more, or the time is over; what became of them.
    async fn wait_until_settled(
        &self,
        changed: &[(LetterId, LetterMark)],
        deadline: Instant,
        report: &mut LetterUpdateReport,
    ) -> Result<(), DlqError> {
        let mut settled = self.settled.subscribe();
        let mut open: BTreeMap<LetterId, &LetterMark> = changed.iter().map(|(id, mark)| (*id, mark)).collect();
        loop {
            settled.mark_unchanged();
            let mut left = BTreeMap::new();
            for (id, asked) in std::mem::take(&mut open) {
                let now = self.parts.registry.mark(&id)?;
                match now {
                    Some(now) if now.turn == asked.turn && now.state == LetterState::Waiting => {
                        left.insert(id, asked);
                    }
                    Some(now) if now.turn == asked.turn && now.state == LetterState::Open => {
                        let reason = now.note.unwrap_or_else(|| "its gear did not take it".to_owned());
                        report.refuse(id, reason, false);
                    }
                    // Asked for once more meanwhile, or forgotten with its row: this turn of it is over.
                    _ => report.replayed += 1,
                }
            }
            open = left;
            if open.is_empty() || timeout_at(deadline, settled.changed()).await.is_err() {
                report.waiting = open.len() as u64;
                return Ok(());
            }
        }
    }

    /// The scenario and the Racks as they are now, read where threads may block: a scenario may be large.
    pub(super) async fn replay_targets(&self) -> Result<ReplayTargets, RegistryError> {
        let staged = self.parts.registry.read(|registry| {
            let active = registry.active_content()?;
            let parsed =
                active.and_then(|(_, stored)| model::scenario::parse(&stored.text, gear_spec::manifests()).ok());
            Ok(ReplayTargets {
                scenario: parsed,
                racks: registry.racks()?,
            })
        });
        staged.await
    }
}

/// Where letters can go back to.
pub(super) struct ReplayTargets {
    scenario: Option<Scenario>,
    racks: Vec<RackRow>,
}

impl ReplayTargets {
    /// The gear that a letter goes back to; or why it cannot.
    pub(super) fn check(&self, letter: &DeadLetterEntry) -> Result<super::GearAddress, String> {
        let (failure, port) = letter.replay_point()?;
        let row = self.rack(failure)?;
        let Some(scenario) = &self.scenario else {
            return Err("no scenario is active: activate one with the gear that failed".to_owned());
        };
        let spot = FailurePoint {
            gear: &failure.gear,
            port,
            way: failure.way,
            from: failure.from.as_deref(),
        };
        check_failure_point(scenario, &row.name, &row.labels, spot)
            .map_err(|reason| format!("it cannot be replayed: {reason}"))?;
        Ok((row.entity_id, failure.gear.clone()))
    }

    /// The Rack that a letter is of: who had its name, unless that one has another name by now. Names are what the bus holds
    /// its publishers to, ids in headers are not.
    fn rack(&self, failure: &DeliveryFailure) -> Result<&RackRow, String> {
        let name = &failure.rack;
        let mut present = self.racks.iter().filter(|row| row.state != RackState::Removed);
        let found = match present.find(|row| row.name == *name) {
            Some(row) if failure.entity.is_none_or(|entity| entity == row.entity_id) => Some(row),
            Some(_) => {
                return Err(format!("the Rack {name} is not the one that the letter comes from"));
            }
            None => self.racks.iter().find(|row| Some(row.entity_id) == failure.entity),
        };
        match found {
            Some(row) if row.is_adopted() => Ok(row),
            Some(row) => Err(format!("the Rack {name} that it comes from is {}", row.state)),
            None => Err(format!("the Rack {name} that it comes from is not known here")),
        }
    }
}

impl LetterMark {
    fn new(at: model::Timestamp, by: String) -> Self {
        Self {
            state: LetterState::Open,
            at,
            by,
            subject: String::new(),
            times: 0,
            turn: None,
            note: None,
        }
    }
}

/// Marks what can be marked.
fn mark_all(
    change: &RegistryTransaction<'_>,
    verb: LetterAction,
    candidates: Vec<UpdateCandidate>,
    fresh: &LetterMark,
    again: bool,
) -> Result<UpdateOutcome, DlqError> {
    let (mut done, mut room) = (UpdateOutcome::default(), MAX_MARKS.saturating_sub(change.marks()?));
    for UpdateCandidate { id, subject, rack, to } in candidates {
        let before = change.mark(&id)?;
        let state = before.as_ref().map_or(LetterState::Open, |mark| mark.state);
        let refusal = match (verb, state) {
            (_, LetterState::Open) => None,
            (LetterAction::Replay, LetterState::Waiting) | (LetterAction::Drop, LetterState::Dropped) => {
                done.already += 1;
                continue;
            }
            (LetterAction::Replay, LetterState::Replayed) if !again => {
                done.already += 1;
                continue;
            }
            (LetterAction::Replay, LetterState::Dropped) if !again => {
                Some("it was dropped: ask for it again to replay it (--again)")
            }
            (LetterAction::Replay, _) => None,
            (LetterAction::Drop, LetterState::Waiting) => Some("it is being replayed"),
            (LetterAction::Drop, LetterState::Replayed) => Some("it was replayed, there is nothing left to drop"),
        };
        if let Some(refusal) = refusal {
            done.refused.push((id, refusal.to_owned()));
            continue;
        }
        if before.is_none() {
            room = room.checked_sub(1).ok_or(DlqError::Full)?;
        }
        let mut mark = LetterMark {
            subject,
            times: before.map_or(0, |mark| mark.times),
            state: LetterState::Dropped,
            ..fresh.clone()
        };
        done.racks.insert((rack, to.as_ref().map(|(entity, _)| *entity)));
        if let Some((rack, gear)) = to {
            mark.state = LetterState::Waiting;
            mark.times = mark.times.saturating_add(1);
            mark.turn = Some(change.next_turn(rack, &gear)?);
        }
        change.put_mark(&id, &mark)?;
        done.changed.push((id, mark));
    }
    Ok(done)
}

/// A name as it is kept: one short line.
fn who(by: &str) -> String {
    let by = by.trim().chars().map(|char| if char.is_control() { ' ' } else { char });
    let by: String = by.take(MAX_BY).collect();
    if by.is_empty() { "unnamed".to_owned() } else { by }
}
