//! Commits of a passive gear: what messages of lane guaranteed made goes to the outbox together with the note that they were taken.
//!
//! # Invariants
//!
//! - Messages are committed in the order in which they came; those of which the gear made one thing in one whole.
//! - Who is cut off while it waits for room leaves what is held to the next life.
//!
//! # Not here
//!
//! When the gear is told to finish, and what it is given next ([`super`]).

use std::collections::BTreeMap;

use model::MessageId;
use model::dead_letter::PortSide;

use super::super::output_transaction::{DeferredOutput, DeliveryGuarantee, GearOutput, collect_output};
use super::super::stall_watchdog::run_watched;
use super::super::trace_context::TraceContext;
use super::super::{GearContext, GearError};
use super::InboxConsumer;
use crate::inbox::UncommittedMessage;
use crate::outbox::{ConsumerOffset, CreditDemand, DeliveryHistory, OutboxDeadLetter, OutboxTransaction};
use crate::spool::DurabilityNotifier;

/// Bytes of what settled messages made that are committed together, about.
const SETTLE_BYTES: u64 = 256 << 10;

impl InboxConsumer<'_> {
    /// Lets the gear finish what it holds back; then what was begun was taken, as far as it is finished.
    pub(super) async fn settle(&mut self) -> Result<(), GearError> {
        let work = collect_output(DeliveryGuarantee::Again, self.gear.flush(self.cx));
        let (flushed, made) = run_watched(self.cx, None, work).await;
        flushed?;
        self.leave_flushed(made).await;
        let unfinished = self.gear.unfinished();
        let is_done =
            |held: &&UncommittedMessage| held.transaction.is_some() && !unfinished.is_some_and(|id| held.has_id(id));
        let done = self.held.iter().take_while(is_done).count();
        // Those that are taken together are done together.
        let done = self.held.range(..done).rposition(|held| !held.commits_with_next);
        let done = done.map_or(0, |last| last + 1);
        self.held.range_mut(..done).for_each(|held| held.is_flushed = true);
        self.commit_flushed().await;
        Ok(())
    }

    /// Commits what was flushed, as far as it is at the front.
    pub(super) async fn commit_flushed(&mut self) {
        while self.held.front().is_some_and(|held| held.is_flushed) {
            // Cut off while it waits, it leaves what is held to the next life.
            let (count, demand) = self.flushed();
            let room = run_watched(self.cx, None, self.cx.room(demand)).await;
            let (transaction, done) = self.take_flushed(count);
            if let Some(room) = room {
                // Where the Rack stops before, the messages come again to its next run.
                room.commit(transaction, done).ok();
            }
        }
    }

    /// How many flushed messages are committed together next, and what they ask for.
    pub(super) fn flushed(&self) -> (usize, CreditDemand) {
        let (mut count, mut demand, mut is_joined) = (0, CreditDemand::default(), false);
        for held in self.held.iter().take_while(|held| held.is_flushed) {
            let made = held
                .transaction
                .as_ref()
                .map(OutboxTransaction::demand)
                .unwrap_or_default();
            // Notes alone need no room: they do not wait with what comes behind them.
            let is_enough = demand.bytes >= SETTLE_BYTES || (demand.bytes == 0 && count > 0 && made.bytes > 0);
            if is_enough && !is_joined {
                break;
            }
            count += 1;
            demand.merge(made);
            is_joined = held.commits_with_next;
        }
        (count, demand)
    }

    /// The first messages as one whole: what they made, in order, and the last place taken of each source.
    fn take_flushed(&mut self, count: usize) -> (OutboxTransaction, Vec<DurabilityNotifier>) {
        let (mut transaction, mut done, mut taken) = (OutboxTransaction::default(), Vec::new(), BTreeMap::new());
        for held in self.held.drain(..count) {
            let Some(receipt) = held.arrival.receipt else { continue };
            if let (Ok(message), Some(_)) = (&held.arrival.message, receipt.past.letter) {
                self.cx.untrack_replay(message.id);
            }
            transaction.append(held.transaction.unwrap_or_default());
            taken.insert(receipt.taken.key, receipt.taken.place);
            done.push(receipt.done);
        }
        let taken = taken
            .into_iter()
            .map(|(key, place)| ConsumerOffset { key, place }.into_checkpoint());
        transaction.notes.extend(taken);
        (transaction, done)
    }

    /// Lets leave what a flush sent: each with the held messages that it is of, the rest with the first one, or at once.
    pub(super) async fn leave_flushed(&mut self, made: GearOutput) {
        let mut rest = made.transaction;
        for DeferredOutput {
            first,
            last,
            transaction,
        } in made.later
        {
            let is_open = |held: &UncommittedMessage, id| !held.is_flushed && held.has_id(id);
            let Some(begin) = self.held.iter().position(|held| is_open(held, first)) else {
                rest.append(transaction);
                continue;
            };
            let end = self.held.iter().rposition(|held| is_open(held, last)).unwrap_or(begin);
            self.held
                .range_mut(begin..end)
                .for_each(|held| held.commits_with_next = true);
            if let Some(held) = self.held.get_mut(begin) {
                held.transaction.get_or_insert_default().append(transaction);
            }
        }
        match self.held.iter_mut().find(|held| !held.is_flushed) {
            Some(held) => held.transaction.get_or_insert_default().append(rest),
            None if rest.is_empty() => {}
            None => drop(self.cx.commit(rest, None).await),
        }
    }
}

impl UncommittedMessage {
    fn has_id(&self, id: MessageId) -> bool {
        self.arrival.message.as_ref().is_ok_and(|message| message.id == id)
    }

    pub(super) fn past(&self) -> Option<&DeliveryHistory> {
        Some(&self.arrival.receipt.as_ref()?.past)
    }

    pub(super) fn way(&self) -> PortSide {
        self.arrival
            .receipt
            .as_ref()
            .map_or(PortSide::In, |receipt| receipt.way)
    }

    /// A dead letter takes the place of what the message would have made.
    pub(super) fn dead_letter(&mut self, cx: &GearContext, reason: String, attempts: u32) {
        let text = format!("a message became a dead letter: {reason}");
        match &self.arrival.message {
            Ok(message) => TraceContext::of(message).in_scope(|| cx.error(text)),
            Err(_) => cx.error(text),
        }
        let dead = OutboxDeadLetter {
            gear: cx.name().clone(),
            port: self.arrival.port.to_owned(),
            way: self.way(),
            reason,
            attempts,
            past: self.past().cloned().unwrap_or_default(),
            body: match &self.arrival.message {
                Ok(message) => message.to_cbor().unwrap_or_default(),
                Err(unreadable) => unreadable.body.to_vec(),
            },
        };
        self.transaction = Some(OutboxTransaction {
            dead: vec![dead],
            ..OutboxTransaction::default()
        });
    }
}
