//! What waits at an inlet for earlier messages, of all sources of its wire.
//!
//! # Invariants
//!
//! - At most [`MOST_BYTES`] of messages wait here. What is the furthest from its turn beyond that is left with the bus, which
//!   sends it again when its turn comes: an inlet goes on taking however much waits, so that what they wait for can come.
//! - What is left with the bus is counted among what is with us: a proof does not suffer from it.

use std::collections::BTreeMap;

use async_nats::Subject;
use bytes::Bytes;

use super::Taken;
use super::order::{Place, Source, Waiting};

/// The bytes of messages that may wait here for earlier ones.
const MOST_BYTES: usize = 16 << 20;
/// What a message takes beside its body, about.
const BESIDE: usize = 512;
/// Messages of a source that the bus is asked for at once.
const ASK_FOR: usize = 64;

/// A message that waits for the ones before it.
pub(super) struct Held {
    pub(super) subject: Subject,
    pub(super) body: Bytes,
}

impl Held {
    /// The memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.body.len() + BESIDE
    }
}

/// A message whose turn has come.
pub(super) struct Due {
    pub(super) held: Held,
    pub(super) taken: Taken,
    /// How many before it never come.
    pub(super) missing: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Sources {
    all: BTreeMap<String, Source<Held>>,
    /// Of those that wait here.
    bytes: usize,
}

impl Sources {
    /// A message came; `last` is the last number of its source that was given out before.
    pub(super) fn came(&mut self, taken: &Taken, message: Waiting<Held>, last: impl FnOnce() -> Option<u64>) {
        let Place { outbox, number } = taken.place;
        let bytes = message.item.bytes();
        let source = self.all.entry(taken.key.clone());
        if source
            .or_insert_with(|| Source::new(outbox, last()))
            .came(number, message)
        {
            self.bytes += bytes;
        }
    }

    /// The messages whose turn has come, those of each source in order.
    pub(super) fn due(&mut self, sure: Option<u64>) -> Vec<Due> {
        let mut all = Vec::new();
        for (key, source) in &mut self.all {
            while let Some((place, held, missing)) = source.next(sure) {
                self.bytes = self.bytes.saturating_sub(held.bytes());
                let taken = Taken {
                    key: key.clone(),
                    place,
                };
                all.push(Due { held, taken, missing });
            }
        }
        all
    }

    /// What the bus is to send again now.
    pub(super) fn ask_for(&mut self, sure: Option<u64>) -> Vec<Taken> {
        let mut all = Vec::new();
        for (key, source) in &mut self.all {
            let places = source.ask_for(sure, ASK_FOR).into_iter();
            all.extend(places.map(|place| Taken {
                key: key.clone(),
                place,
            }));
        }
        all
    }

    /// Leaves with the bus what there is no memory for; says whether there was any.
    pub(super) fn leave(&mut self) -> bool {
        let mut any = false;
        while self.bytes > MOST_BYTES {
            let furthest = self.all.values_mut().max_by_key(|source| source.reach());
            let Some((_, held)) = furthest.and_then(Source::leave_last) else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(held.bytes());
            any = true;
        }
        any
    }

    /// The bus does not have a message any more; false if it was not left there.
    pub(super) fn forget_left(&mut self, taken: &Taken) -> bool {
        let source = self.all.get_mut(&taken.key);
        source.is_some_and(|source| source.forget_left(taken.place.number))
    }

    /// What was delivered later than this delivery counts as not delivered. Says what was left with the bus and is known no more:
    /// it is not with us either.
    pub(super) fn forget_after(&mut self, delivery: u64) -> Vec<Taken> {
        let mut all = Vec::new();
        for (key, source) in &mut self.all {
            let gone = source.forget_after(delivery).into_iter();
            all.extend(gone.map(|place| Taken {
                key: key.clone(),
                place,
            }));
        }
        all
    }

    /// The stream is another one: no foreign message of the old one comes any more.
    pub(super) fn stream_is_lost(&mut self) {
        self.all.values_mut().for_each(Source::stream_is_lost);
    }

    /// Whether any wait.
    pub(super) fn is_waiting(&self) -> bool {
        self.all.values().any(|source| source.waiting() > 0)
    }

    /// Whether some are left with the bus.
    pub(super) fn has_left(&self) -> bool {
        self.all.values().any(Source::has_left)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use uuid::Uuid;

    use super::*;

    fn message(bytes: usize, delivery: u64) -> Waiting<Held> {
        Waiting {
            item: Held {
                subject: Subject::from("flux.msg.rack-a.tail.out"),
                body: vec![0; bytes].into(),
            },
            delivery: Some(delivery),
            landed: 0,
        }
    }

    fn taken(key: &str, number: u64) -> Taken {
        let outbox = Uuid::from_bytes([7; 16]);
        Taken {
            key: key.to_owned(),
            place: Place { outbox, number },
        }
    }

    #[test]
    fn what_waits_is_bounded_in_bytes_and_what_is_the_furthest_from_its_turn_is_left_with_the_bus() {
        let mut sources = Sources::default();
        for (delivery, number) in (1..).zip(2..40) {
            for key in ["a", "b"] {
                sources.came(&taken(key, number), message(1 << 20, delivery), || None);
            }
            sources.leave();
            assert!(sources.bytes <= MOST_BYTES, "{}", sources.bytes);
        }
        assert!(sources.has_left() && sources.due(None).is_empty() && sources.ask_for(None).is_empty());
        sources.came(&taken("a", 1), message(1 << 20, 100), || None);
        let due = |sources: &mut Sources| -> Vec<u64> {
            let due = sources.due(None).into_iter();
            due.map(|due| due.taken.place.number).collect()
        };
        let here = due(&mut sources);
        let next = *here.last().unwrap() + 1;
        assert!((8..=10).contains(&next), "both have about the same here: {here:?}");
        assert_eq!(
            sources.ask_for(None),
            (next..40).map(|at| taken("a", at)).collect::<Vec<_>>()
        );
        for number in next..40 {
            sources.came(&taken("a", number), message(1 << 20, 100 + number), || None);
            assert_eq!(due(&mut sources), [number]);
        }
        assert!(!sources.forget_left(&taken("b", 2)) && sources.forget_left(&taken("b", 39)));
    }
}
