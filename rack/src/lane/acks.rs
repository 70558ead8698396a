//! The acknowledgements that an inlet owes for what is with it.
//!
//! # Invariants
//!
//! - They are kept by what a message is, not by where it lies in the stream: another stream has another message there. A message
//!   that the stream has twice is owed two.

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
    acker: Acker,
}

impl Acks {
    /// A message came, at a number of the stream and of the consumer.
    pub(super) fn add(&mut self, taken: Taken, (sequence, delivery): (u64, u64), acker: Acker) {
        self.at.insert(sequence, taken.clone());
        let owed = Owed { delivery, acker };
        self.owed.entry(taken).or_default().insert(sequence, owed);
    }

    /// Those for a message, which are not owed any more.
    pub(super) fn remove(&mut self, taken: &Taken) -> Vec<Acker> {
        let owed = self.owed.remove(taken).unwrap_or_default();
        let mut ackers = Vec::with_capacity(owed.len());
        for (sequence, owed) in owed {
            self.at.remove(&sequence);
            ackers.push(owed.acker);
        }
        ackers
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
        for owed in self.owed.values().flat_map(BTreeMap::values) {
            if owed.acker.ack_with(AckKind::Progress).await.is_err() {
                return;
            }
        }
    }
}
