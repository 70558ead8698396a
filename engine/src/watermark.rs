//! What was stored already: per producer run and per bus stream, as sets of sequence numbers; and the last requests.
//!
//! A batch with a producer key is a duplicate exactly if the key was stored. One without is a duplicate exactly if its bus
//! position was stored: its sequence and its store time ([`crate::eras`]). A bus that lost acknowledged messages gives their
//! sequences to new ones, which it stores later or which carry a new producer key: they are stored and counted as a regression.
//!
//! # Invariants
//!
//! - Marks only grow, those of requests apart, which are bounded. Neither retention nor a restart takes anything back.
//! - Telling a reused sequence without producer key from a redelivery relies on the bus's clock, as [`crate::eras`] says.

use std::collections::{BTreeMap, BTreeSet};

use model::{EntityId, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::eras::{Eras, Seen};
use crate::requests::{Requests, Stored};
use crate::seqs::Seqs;
use crate::{BusPosition, Origin, StoredRequest};

/// A producer's run.
pub(crate) type Run = (EntityId, u64);
/// A stream and its incarnation.
pub(crate) type Stream = (String, i64);

/// What the marks say of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not stored yet.
    New,
    /// Not stored yet, under a bus sequence that was used before.
    NewUnderUsedSequence,
    /// Stored.
    Duplicate,
}

/// Some producers' and streams' marks, as the catalogue stores them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marks {
    producers: Vec<(Run, Seqs)>,
    streams: Vec<(Stream, Eras)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    requests: Vec<Stored>,
}

#[cfg(test)]
impl Marks {
    fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.streams.is_empty() && self.requests.is_empty()
    }
}

/// All marks of the store.
#[derive(Debug, Default)]
pub(crate) struct Watermarks {
    producers: BTreeMap<Run, Seqs>,
    streams: BTreeMap<Stream, Eras>,
    requests: Requests,
    /// What changed since the last [`Watermarks::take_changes`].
    changed_producers: BTreeSet<Run>,
    changed_streams: BTreeSet<Stream>,
}

fn stream_of(position: &BusPosition) -> Stream {
    (position.stream.clone(), position.incarnation)
}

impl Watermarks {
    /// Whether a batch of this origin was stored. Without any key it never was.
    pub(crate) fn judge(&self, origin: &Origin) -> Verdict {
        if origin.request.is_some_and(|part| self.requests.contains(&part)) {
            return Verdict::Duplicate;
        }
        let bus = origin.bus_key().map(|position| {
            let eras = self.streams.get(&stream_of(position));
            eras.map_or(Seen::Never, |eras| eras.check(position))
        });
        let producer = origin.producer_key().map(|id| {
            let seqs = self.producers.get(&(id.entity, id.boot_epoch));
            seqs.is_some_and(|seqs| seqs.contains(id.seq))
        });
        match (producer, bus) {
            (Some(true), _) | (None, Some(Seen::Before)) => Verdict::Duplicate,
            (Some(false), Some(Seen::Before | Seen::Reused)) | (None, Some(Seen::Reused)) => {
                Verdict::NewUnderUsedSequence
            }
            _ => Verdict::New,
        }
    }

    /// Marks an origin as stored, and what its producer settled.
    pub(crate) fn mark(&mut self, origin: &Origin) {
        if let Some(part) = &origin.request {
            self.requests.insert(part);
        }
        if let Some(id) = origin.producer_key() {
            let run = (id.entity, id.boot_epoch);
            let seqs = self.producers.entry(run).or_default();
            // A batch in hand is not settled, whatever its header says: a wrong header must not hide what is yet to come.
            seqs.raise(origin.settled.min(id.seq.saturating_sub(1)));
            seqs.insert(id.seq);
            self.changed_producers.insert(run);
        }
        if let Some(position) = origin.bus_key() {
            let stream = stream_of(position);
            self.streams.entry(stream.clone()).or_default().insert(position);
            self.changed_streams.insert(stream);
        }
    }

    /// Counts every batch of a run up to `last` as stored, where nothing better is known.
    pub(crate) fn assume_run(&mut self, run: Run, last: u64) {
        self.producers.entry(run).or_default().raise(last);
    }

    /// Counts every message of a stream up to `last` as stored, if the bus had it by `until`.
    pub(crate) fn assume_stream(&mut self, stream: Stream, last: u64, until: Timestamp) {
        self.streams.entry(stream).or_default().assume(last, until.micros());
    }

    /// The contiguous floor of a producer's run; 0 for an unknown one.
    pub(crate) fn floor(&self, entity: EntityId, boot_epoch: u64) -> u64 {
        self.producers.get(&(entity, boot_epoch)).map_or(0, Seqs::floor)
    }

    /// What is known of a request.
    pub(crate) fn request(&self, id: Uuid) -> Option<StoredRequest> {
        self.requests.get(id)
    }

    /// Joins stored marks into these, without counting them as changed.
    pub(crate) fn join(&mut self, marks: &Marks) {
        for (run, seqs) in &marks.producers {
            self.producers.entry(*run).or_default().join(seqs);
        }
        for (stream, eras) in &marks.streams {
            self.streams.entry(stream.clone()).or_default().join(eras);
        }
        self.requests.join(&marks.requests);
    }

    /// The marks that changed since they were last taken. If they cannot be stored, give them back with
    /// [`Watermarks::return_changes`].
    pub(crate) fn take_changes(&mut self) -> Marks {
        let producers = std::mem::take(&mut self.changed_producers);
        let streams = std::mem::take(&mut self.changed_streams);
        let get = |run: Run| Some((run, self.producers.get(&run)?.clone()));
        Marks {
            producers: producers.into_iter().filter_map(get).collect(),
            streams: streams
                .into_iter()
                .filter_map(|stream| self.streams.get(&stream).cloned().map(|eras| (stream, eras)))
                .collect(),
            requests: self.requests.take_changes(),
        }
    }

    /// Counts marks as changed again.
    pub(crate) fn return_changes(&mut self, marks: Marks) {
        self.requests.return_changes(&marks.requests);
        self.changed_producers
            .extend(marks.producers.into_iter().map(|(run, _)| run));
        self.changed_streams
            .extend(marks.streams.into_iter().map(|(stream, _)| stream));
    }

    /// Every mark.
    pub(crate) fn all(&self) -> Marks {
        Marks {
            producers: self.producers.iter().map(|(run, seqs)| (*run, seqs.clone())).collect(),
            streams: self
                .streams
                .iter()
                .map(|(stream, eras)| (stream.clone(), eras.clone()))
                .collect(),
            requests: self.requests.all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use model::wire::BatchId;

    use super::*;

    fn bus(seq: u64, stored: i64) -> Origin {
        Origin {
            bus: Some(BusPosition {
                stream: "flux-telemetry".to_owned(),
                incarnation: 7,
                seq,
                stored: Timestamp::from_micros(stored),
            }),
            ..Origin::default()
        }
    }

    fn producer(seq: u64, settled: u64) -> Origin {
        let entity = EntityId::for_name("rack-a");
        Origin {
            producer: Some(BatchId {
                entity,
                boot_epoch: 3,
                seq,
            }),
            settled,
            ..Origin::default()
        }
    }

    #[test]
    fn a_redelivery_is_a_duplicate_and_a_reused_sequence_is_not() {
        let mut marks = Watermarks::default();
        for seq in 1..=10 {
            marks.mark(&bus(seq, 100 + seq as i64));
        }
        assert_eq!(marks.judge(&bus(8, 108)), Verdict::Duplicate);
        // The bus lost 6 to 10 and gives their numbers out again; they come in any order.
        for (seq, stored) in [(8, 208), (6, 206), (7, 207), (11, 211)] {
            assert_ne!(marks.judge(&bus(seq, stored)), Verdict::Duplicate, "{seq}");
            marks.mark(&bus(seq, stored));
            assert_eq!(marks.judge(&bus(seq, stored)), Verdict::Duplicate, "{seq}");
        }
        assert_eq!(
            marks.judge(&bus(9, 109)),
            Verdict::Duplicate,
            "a late redelivery of the first era"
        );
        assert_eq!(marks.judge(&bus(12, 212)), Verdict::New);
        assert_eq!(
            marks.judge(&bus(8, 308)),
            Verdict::NewUnderUsedSequence,
            "a second loss"
        );
    }

    /// All orders of so many things.
    fn orders(of: usize) -> Vec<Vec<usize>> {
        let mut all = vec![Vec::new()];
        for next in 0..of {
            let longer = |order: &Vec<usize>, at: usize| [&order[..at], &[next], &order[at..]].concat();
            all = all
                .iter()
                .flat_map(|order| (0..=next).map(move |at| longer(order, at)))
                .collect();
        }
        all
    }

    #[test]
    fn whichever_message_after_a_loss_comes_first_none_is_taken_for_one_from_before_it() {
        let before = |seq| bus(seq, 1_000_000 + seq as i64 * 1_000);
        // The bus lost all from 8 on, and was back half a minute later.
        let after = |seq| bus(seq, 31_000_000 + seq as i64 * 1_000);
        // 9 and 11 of before are on their way to us yet.
        let to_come = [before(9), before(11), after(8), after(10), after(11), after(12)];
        for order in orders(to_come.len()) {
            let mut marks = Watermarks::default();
            [1, 2, 3, 4, 5, 6, 7, 8, 10]
                .map(before)
                .iter()
                .for_each(|origin| marks.mark(origin));
            let mut stored = vec![marks.take_changes()];
            for origin in order.iter().map(|at| &to_come[*at]) {
                assert_ne!(marks.judge(origin), Verdict::Duplicate, "{origin:?} in {order:?}");
                marks.mark(origin);
                stored.push(marks.take_changes());
                // The next process knows what is stored.
                marks = Watermarks::default();
                stored.iter().for_each(|changes| marks.join(changes));
            }
            for origin in (1..=11).map(before).chain([8, 10, 11, 12].map(after)) {
                assert_eq!(marks.judge(&origin), Verdict::Duplicate, "{origin:?} in {order:?}");
            }
            assert_eq!(marks.judge(&after(9)), Verdict::NewUnderUsedSequence, "{order:?}");
        }
    }

    #[test]
    fn a_producer_key_decides_alone_and_a_used_bus_position_is_told() {
        let mut marks = Watermarks::default();
        let at = |seq, position| Origin {
            bus: bus(position, position as i64).bus,
            ..producer(seq, 0)
        };
        marks.mark(&at(1, 50));
        assert_eq!(marks.judge(&at(1, 51)), Verdict::Duplicate, "published twice");
        assert_eq!(marks.judge(&at(2, 50)), Verdict::NewUnderUsedSequence);
        assert_eq!(marks.judge(&at(2, 51)), Verdict::New);
        assert_eq!(marks.judge(&Origin::default()), Verdict::New, "no key, no duplicate");
    }

    #[test]
    fn sequence_zero_is_no_key_and_hides_nothing() {
        let mut marks = Watermarks::default();
        for origin in [producer(0, 0), bus(0, 5)] {
            marks.mark(&origin);
            assert_eq!(marks.judge(&origin), Verdict::New);
        }
    }

    #[test]
    fn settled_raises_the_floor_but_never_over_the_batch_itself() {
        let mut marks = Watermarks::default();
        let floor = |marks: &Watermarks| marks.floor(EntityId::for_name("rack-a"), 3);
        marks.mark(&producer(5, 3));
        assert_eq!(floor(&marks), 3);
        marks.mark(&producer(4, 0));
        assert_eq!(floor(&marks), 5);
        marks.mark(&producer(9, u64::MAX));
        assert_eq!(floor(&marks), 9);
        assert_eq!(marks.judge(&producer(10, 0)), Verdict::New);
    }

    #[test]
    fn marks_survive_storing_as_changes_in_any_order_and_twice() {
        let mut marks = Watermarks::default();
        let mut stored = Vec::new();
        for (seq, at) in [(1, 1), (2, 2), (5, 5), (2, 12), (3, 13), (3, 23)] {
            marks.mark(&bus(seq, at));
            marks.mark(&producer(seq, 0));
            marks.mark(&Origin {
                request: Some(crate::RequestPart {
                    id: Uuid::from_u128(u128::from(seq)),
                    digest: 1,
                    part: 0,
                }),
                ..Origin::default()
            });
            stored.push(marks.take_changes());
        }
        assert!(marks.take_changes().is_empty());
        let mut back = Watermarks::default();
        for changes in stored.iter().rev().chain(&stored) {
            back.join(changes);
        }
        assert_eq!(back.all(), marks.all());
        assert!(back.take_changes().is_empty());
    }
}
