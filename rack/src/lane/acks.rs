//! The acknowledgements that an inlet owes for what is with it.
//!
//! # Invariants
//!
//! - They are kept by what a message is, not by where it lies in the stream: another stream has another message there. A message
//!   that the stream has twice is owed two.
//! - What the bus was asked to send again is known here until it comes, and is not in work.

use std::collections::BTreeMap;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::message::Acker;

use super::Taken;

/// See the module.
#[derive(Default)]
pub(super) struct Acks {
    owed: BTreeMap<Taken, BTreeMap<u64, Owed>>,
    /// What lies where in the stream.
    at: BTreeMap<u64, Taken>,
}

struct Owed {
    delivery: u64,
    /// None once the bus was asked to send it again.
    acker: Option<Acker>,
}

impl Acks {
    /// A message came, at a number of the stream and of the consumer.
    pub(super) fn add(&mut self, taken: Taken, (sequence, delivery): (u64, u64), acker: Acker) {
        self.at.insert(sequence, taken.clone());
        let owed = Owed {
            delivery,
            acker: Some(acker),
        };
        self.owed.entry(taken).or_default().insert(sequence, owed);
    }

    /// Those for a message, which are not owed any more.
    pub(super) fn remove(&mut self, taken: &Taken) -> Vec<Acker> {
        let owed = self.owed.remove(taken).unwrap_or_default();
        let mut ackers = Vec::with_capacity(owed.len());
        for (sequence, owed) in owed {
            self.at.remove(&sequence);
            ackers.extend(owed.acker);
        }
        ackers
    }

    /// Asks the bus to send a message again.
    pub(super) async fn ask_for(&mut self, taken: &Taken) {
        let owed = self.owed.get_mut(taken).into_iter().flat_map(BTreeMap::values_mut);
        for acker in owed.filter_map(|owed| owed.acker.take()) {
            // One that is lost: the bus sends it again, since nobody says any more that it is in work.
            if let Err(error) = acker.ack_with(AckKind::Nak(None)).await {
                tracing::debug!(%error, "the bus could not be asked for a message");
            }
        }
    }

    /// What does not lie in the stream any more, whose first number this is.
    pub(super) fn before(&self, first: u64) -> Vec<Taken> {
        let is_gone = |taken: &&Taken| {
            let at = self.owed.get(*taken).and_then(|owed| owed.keys().next_back());
            at.is_none_or(|at| *at < first)
        };
        self.at
            .range(..first)
            .map(|(_, taken)| taken)
            .filter(is_gone)
            .cloned()
            .collect()
    }

    /// Forgets what was delivered later than this.
    pub(super) fn forget_after(&mut self, delivery: u64) {
        let at = &mut self.at;
        self.owed.retain(|_, owed| {
            owed.retain(|sequence, owed| {
                let keep = owed.delivery <= delivery;
                if !keep {
                    at.remove(sequence);
                }
                keep
            });
            !owed.is_empty()
        });
    }

    /// How many of them lie in the stream from this number on.
    pub(super) fn count(&self, first: u64) -> usize {
        self.at.range(first..).count()
    }

    /// Whether what lies at this number of the stream is with us.
    pub(super) fn has(&self, sequence: u64) -> bool {
        self.at.contains_key(&sequence)
    }

    /// For what they are owed.
    pub(super) fn all(&self) -> impl Iterator<Item = &Taken> {
        self.owed.keys()
    }

    /// Tells the bus that all of it is in work.
    pub(super) async fn say_in_work(&self) {
        let all = self.owed.values().flat_map(BTreeMap::values);
        for acker in all.filter_map(|owed| owed.acker.as_ref()) {
            if acker.ack_with(AckKind::Progress).await.is_err() {
                return;
            }
        }
    }
}
