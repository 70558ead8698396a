//! Replays waiting letters to their gears, in the order of their turns.
//!
//! ```text
//! waiting letters of a gear ─ a batch ─▶ Rack ─ taken up to n ─▶ marks "replayed"
//!                                          ├─ later ─▶ the same again after a pause
//!                                          └─ never ─▶ mark "open", with the reason
//! ```
//!
//! # Invariants
//!
//! - One batch of a gear is on its way at a time. What is not known to be taken is sent again, under the same numbers.
//! - A Rack gets letters only while it runs the active scenario, by the name and the labels that it has: what the last one could not
//!   handle waits for the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::FutureExt as _;
use model::control::{RackState, ReplayAnswer, ReplayCommand, ReplayLetter, ReplayRejection};
use model::dead_letter::LetterState;
use model::subject::RackCommand;
use model::{LetterId, signed};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::letter::DeadLetterEntry;
use super::{DeadLetterQueue, DlqError, GearAddress, lock};
use crate::registry::{LetterMark, RegistryError, ReplaySequence};

/// Batches on their way at once.
const AT_ONCE: usize = 8;
/// Letters of a batch.
const BATCH: usize = 64;
/// How long a Rack may take to answer: longer than it waits for the gear.
const ANSWER: Duration = Duration::from_secs(20);
/// The pause before the same again, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// What a command has besides its letters.
const OVERHEAD: usize = 4 << 10;

/// Why a gear's letters still wait.
type DelayReason = String;

/// What one batch came to.
#[derive(Debug, Default)]
struct ReplayOutcome {
    /// The letters up to this number are taken.
    taken: u64,
    /// These can never be.
    never: Vec<(u64, String)>,
    late: Option<DelayReason>,
}

/// The task; see the module.
#[derive(Debug)]
pub(crate) struct LetterReplayer {
    dlq: Arc<DeadLetterQueue>,
    under_way: BTreeSet<GearAddress>,
    /// When a gear is looked at again, and the pause before.
    paused: BTreeMap<GearAddress, (Instant, Duration)>,
}

impl LetterReplayer {
    pub(crate) const fn new(dlq: Arc<DeadLetterQueue>) -> Self {
        Self {
            dlq,
            under_way: BTreeSet::new(),
            paused: BTreeMap::new(),
        }
    }

    /// Delivers until stopped.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut sends: JoinSet<(GearAddress, Result<(), DlqError>, Option<DelayReason>)> = JoinSet::new();
        loop {
            while sends.len() < AT_ONCE
                && let Some(gear) = self.next()
            {
                self.under_way.insert(gear.clone());
                let dlq = Arc::clone(&self.dlq);
                sends.spawn(async move {
                    let done = AssertUnwindSafe(dlq.deliver(&gear)).catch_unwind().await;
                    // Its gear must not wait for ever.
                    let (settled, late) =
                        done.unwrap_or_else(|_| (Ok(()), Some("the replay panicked, a defect".to_owned())));
                    (gear, settled, late)
                });
            }
            let next = self.soonest();
            let dlq = Arc::clone(&self.dlq);
            tokio::select! {
                () = stop.cancelled() => break,
                () = dlq.bell.notified() => {}
                Some(done) = sends.join_next() => match done {
                    Ok((gear, settled, late)) => self.delivered(gear, settled, late),
                    Err(error) => tracing::error!(%error, "a replay of letters was aborted"),
                },
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
        }
        // A batch that was cut off is sent again by the next run, under the same numbers.
        sends.shutdown().await;
    }

    /// A gear whose letters can be sent now.
    fn next(&self) -> Option<GearAddress> {
        let now = Instant::now();
        let waiting = lock(&self.dlq.waiting);
        let is_due = |gear: &&GearAddress| {
            !self.under_way.contains(*gear) && self.paused.get(*gear).is_none_or(|(at, _)| *at <= now)
        };
        waiting.keys().find(is_due).cloned()
    }

    /// When the next pause ends, if there is a place for what comes then.
    fn soonest(&self) -> Option<Instant> {
        if self.under_way.len() >= AT_ONCE {
            return None;
        }
        let idle = self.paused.iter().filter(|(gear, _)| !self.under_way.contains(*gear));
        idle.map(|(_, (at, _))| *at).min()
    }

    fn delivered(&mut self, gear: GearAddress, settled: Result<(), DlqError>, late: Option<DelayReason>) {
        self.under_way.remove(&gear);
        let late = match settled {
            Ok(()) => late,
            Err(error) => {
                tracing::error!(%error, entity_id = %gear.0, gear.id = %gear.1, "cannot replay letters");
                Some(error.to_string())
            }
        };
        let mut reasons = lock(&self.dlq.late);
        if !lock(&self.dlq.waiting).contains_key(&gear) {
            self.paused.remove(&gear);
            reasons.remove(&gear);
            return;
        }
        match late {
            None => {
                self.paused.remove(&gear);
                reasons.remove(&gear);
            }
            Some(reason) => {
                let pause = self
                    .paused
                    .get(&gear)
                    .map_or(PAUSE.0, |(_, pause)| (*pause * 2).min(PAUSE.1));
                self.paused.insert(gear.clone(), (Instant::now() + pause, pause));
                reasons.insert(gear, reason);
            }
        }
    }
}

impl DeadLetterQueue {
    /// Sends a gear its next letters, and marks what came of it.
    async fn deliver(&self, gear: &GearAddress) -> (Result<(), DlqError>, Option<DelayReason>) {
        let turns: Vec<(u64, LetterId)> = {
            let waiting = lock(&self.waiting);
            let turns = waiting.get(gear).into_iter().flatten();
            turns.take(BATCH).map(|(number, id)| (*number, *id)).collect()
        };
        let outcome = match self.send(gear, &turns).await {
            Ok(outcome) => outcome,
            Err(error) => return (Err(error), None),
        };
        let late = outcome.late.clone();
        (self.note(gear, turns, outcome).await, late)
    }

    async fn send(&self, gear: &GearAddress, turns: &[(u64, LetterId)]) -> Result<ReplayOutcome, DlqError> {
        let late = |reason: &str| ReplayOutcome {
            late: Some(reason.to_owned()),
            ..ReplayOutcome::default()
        };
        let (rack, name) = gear;
        let row = self.parts.registry.rack(rack)?;
        let is_owed = row.as_ref().is_some_and(|row| row.relabelled.is_some());
        match row.map(|row| row.state) {
            Some(RackState::Active) => {}
            Some(RackState::Suspended) => return Ok(late("its Rack is suspended")),
            _ => {
                let reason = "its Rack was removed".to_owned();
                let never = turns.iter().map(|(number, _)| (*number, reason.clone())).collect();
                return Ok(ReplayOutcome {
                    never,
                    ..ReplayOutcome::default()
                });
            }
        }
        let wanted = self.parts.registry.active_scenario()?.map(|active| active.hash);
        let running = self.parts.liveness.of(rack).and_then(|seen| seen.running);
        if wanted.is_none() || running != wanted || is_owed {
            return Ok(late("its Rack does not run the active scenario"));
        }
        let (letters, mut outcome) = self.letters(turns).await?;
        if letters.is_empty() {
            return Ok(outcome);
        }
        let replay = ReplayCommand {
            entity_id: *rack,
            queue: self.turns,
            gear: name.clone(),
            letters,
        };
        let (bus, cluster) = (&self.parts.bus, &self.parts.cluster);
        let answer = bus.command(cluster, rack, RackCommand::Replay, &replay, ANSWER).await;
        let answer: Result<ReplayAnswer, String> = match answer {
            Ok(body) => signed::decode_strict(&body).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match answer {
            Ok(answer) => {
                outcome.taken = answer.taken;
                match answer.not_taken {
                    Some(ReplayRejection::Never { number, reason }) => outcome.never.push((number, reason)),
                    Some(ReplayRejection::Later(reason)) => outcome.late = Some(reason),
                    None => {}
                }
            }
            Err(reason) => outcome.late = Some(format!("its Rack does not answer: {reason}")),
        }
        Ok(outcome)
    }

    /// The letters of a command, as many as it may have; and which of the others can never be sent.
    async fn letters(&self, turns: &[(u64, LetterId)]) -> Result<(Vec<ReplayLetter>, ReplayOutcome), DlqError> {
        let most = self
            .parts
            .bus
            .client()
            .server_info()
            .max_payload
            .saturating_sub(OVERHEAD);
        let (mut letters, mut bytes, mut outcome) = (Vec::new(), 0, ReplayOutcome::default());
        for (number, id) in turns {
            let letter = match self.letter(&self.parts.querier, *id).await? {
                Some(letter) => self.sendable(*number, letter)?,
                None => Err("its row is gone".to_owned()),
            };
            let letter = letter.and_then(|letter| {
                let size = letter.message.len() + 512;
                if size > most {
                    return Err(format!(
                        "its {} bytes are more than a command can have",
                        letter.message.len()
                    ));
                }
                Ok((letter, size))
            });
            match letter {
                Ok((_, size)) if bytes + size > most => break,
                Ok((letter, size)) => {
                    bytes += size;
                    letters.push(letter);
                }
                Err(reason) => outcome.never.push((*number, reason)),
            }
        }
        Ok((letters, outcome))
    }

    fn sendable(&self, number: u64, letter: DeadLetterEntry) -> Result<Result<ReplayLetter, String>, DlqError> {
        let times = self.parts.registry.mark(&letter.id)?.map_or(1, |mark| mark.times);
        let (failure, port) = match letter.replay_point() {
            Ok(found) => found,
            Err(reason) => return Ok(Err(reason)),
        };
        Ok(Ok(ReplayLetter {
            number,
            letter: letter.id,
            port: port.clone(),
            way: failure.way,
            from: failure.from.clone(),
            attempts: failure.attempts,
            replays: failure.replays.saturating_add(times),
            message: letter.payload,
        }))
    }

    /// Marks what became of the letters of a batch.
    async fn note(
        &self,
        gear: &GearAddress,
        turns: Vec<(u64, LetterId)>,
        outcome: ReplayOutcome,
    ) -> Result<(), DlqError> {
        let now = self.parts.clock.now();
        let never: BTreeMap<u64, String> = outcome.never.into_iter().collect();
        let over = turns.into_iter().filter_map(|(number, id)| match never.get(&number) {
            Some(reason) => Some((number, id, Some(reason.clone()))),
            None => (number <= outcome.taken).then_some((number, id, None)),
        });
        let over: Vec<_> = over.collect();
        if over.is_empty() {
            return Ok(());
        }
        let (rack, name) = gear.clone();
        let marked = over.clone();
        let note = move |change: &crate::registry::RegistryTransaction<'_>| {
            for (number, id, reason) in marked {
                let turn = ReplaySequence {
                    rack,
                    gear: name.clone(),
                    number,
                };
                let Some(before) = change.mark(&id)?.filter(|mark| mark.turn.as_ref() == Some(&turn)) else {
                    continue;
                };
                let state = if reason.is_some() {
                    LetterState::Open
                } else {
                    LetterState::Replayed
                };
                let mark = LetterMark {
                    state,
                    at: now,
                    note: reason,
                    ..before
                };
                change.put_mark(&id, &mark)?;
            }
            Ok::<_, RegistryError>(())
        };
        self.parts.registry.commit(note).await?;
        let mut waiting = lock(&self.waiting);
        if let Some(turns) = waiting.get_mut(gear) {
            for (number, ..) in &over {
                turns.remove(number);
            }
            if turns.is_empty() {
                waiting.remove(gear);
            }
        }
        drop(waiting);
        let refused = over.iter().filter(|(.., reason)| reason.is_some()).count();
        self.replayed.fetch_add((over.len() - refused) as u64, Relaxed);
        lock(&self.open_counts).outdate();
        self.settled.send_modify(|count| *count += 1);
        Ok(())
    }
}
