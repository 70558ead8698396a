//! Deduplication: remembers what is stored, per producer run, per bus stream and per request with a key.
//!
//! | a batch with | is a duplicate exactly if |
//! |---|---|
//! | a request's key | the body is the same, and its records are among those of the request that are stored |
//! | a producer's key, of a known run | the run has its sequence |
//! | a bus position | the stream's incarnation has its sequence |
//! | none of these | never |
//!
//! No clock is involved. A bus that lost the end of a stream gives its sequences to new messages; whoever reads the stream notices
//! that, and begins a new incarnation ([`DedupWatermarks::stream_tail`]). A publisher's message id (`Nats-Msg-Id`) is no key here: the
//! bus deduplicates these within its own window, and a message that comes later is meant to be stored.
//!
//! # Invariants
//!
//! - What is remembered of a run, a stream or a request only grows, until the whole entry is forgotten, or its lowest range when it has too
//!   many. Something forgotten may be stored again; but nothing is called a duplicate that was not stored.
//! - Everything is bounded ([`RUNS`], [`STREAMS`], [`REQUESTS`], [`RANGES`], [`crate::sequence_set::RANGES`]), and forgotten in the order of
//!   the log. So a store that reads the records back forgets the same entries, except for ranges.

use model::EntityId;
use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

use crate::grouped_lru::{EntryWeight, GroupedLru, LruBounds, LruEntry};
use crate::sequence_set::SequenceSet;
use crate::{BatchOrigin, BusPosition, REQUESTS_KNOWN, RequestPart, StoredRequest, StreamTail};

/// A producer's run.
pub(crate) type ProducerRunKey = (EntityId, u64);
/// A stream and its incarnation.
pub(crate) type StreamIncarnation = (String, i64);
/// A request's sender and its id.
type RequestKey = (u64, Uuid);

/// Runs of an entity, and of all. A Rack that started often while the bus was away sends batches of many runs at once, and must
/// hear of each that it is durable. One that is forgotten is long over: its batches count by their bus position, else as new.
const RUNS: LruBounds = LruBounds {
    group: 256,
    all: 1 << 17,
    group_weight: RANGES / 16,
    weight: RANGES,
};
/// Incarnations of a stream, and of all.
const STREAMS: LruBounds = LruBounds {
    group: 4,
    all: 1 << 10,
    group_weight: RANGES / 16,
    weight: RANGES,
};
/// Keys of a sender, and of all.
const REQUESTS: LruBounds = LruBounds {
    group: crate::REQUESTS_KNOWN_OF_ONE,
    all: REQUESTS_KNOWN,
    group_weight: 0,
    weight: 0,
};
/// Ranges above the floors of all runs, and of all streams: some 10 MB each. A 16th of them of one entity, or stream: only a
/// publisher that leaves gaps everywhere comes near.
const RANGES: usize = 1 << 18;
/// A stream that was made anew within so many µs, or lost its end so often, is not told from the one before.
const LOSSES: i64 = 1_000;

/// What the watermarks say of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DedupResult {
    /// Not stored yet.
    New,
    /// Not stored yet by its producer's key, under a bus sequence that was used before.
    NewUnderUsedSequence,
    /// Stored.
    Duplicate,
}

impl EntryWeight for SequenceSet {
    fn weight(&self) -> usize {
        self.ranges()
    }
}

impl EntryWeight for StreamMark {
    fn weight(&self) -> usize {
        self.seqs.ranges()
    }
}

impl EntryWeight for RequestMark {
    fn weight(&self) -> usize {
        0
    }
}

/// What is stored of a stream's incarnation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct StreamMark {
    seqs: SequenceSet,
    /// The highest sequence that was stored, and what tells its message from another.
    tail: (u64, i64),
}

/// What is stored of a request: digest, records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct RequestMark(u64, u64);

/// A delta of watermarks, as records and checkpoints store them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WatermarkDelta {
    runs: Vec<LruEntry<EntityId, u64, SequenceSet>>,
    streams: Vec<LruEntry<String, i64, StreamMark>>,
    requests: Vec<LruEntry<u64, Uuid, RequestMark>>,
}

/// All watermarks of the store.
#[derive(Debug, Deserialize)]
#[serde(from = "WatermarkDelta")]
pub(crate) struct DedupWatermarks {
    runs: GroupedLru<EntityId, u64, SequenceSet>,
    streams: GroupedLru<String, i64, StreamMark>,
    requests: GroupedLru<u64, Uuid, RequestMark>,
}

impl Serialize for DedupWatermarks {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.all().serialize(to)
    }
}

impl From<WatermarkDelta> for DedupWatermarks {
    fn from(watermarks: WatermarkDelta) -> Self {
        let mut all = Self::default();
        all.merge_newer(&watermarks);
        all
    }
}

impl Default for DedupWatermarks {
    fn default() -> Self {
        Self {
            runs: GroupedLru::new(RUNS),
            streams: GroupedLru::new(STREAMS),
            requests: GroupedLru::new(REQUESTS),
        }
    }
}

fn stream_of(position: &BusPosition) -> StreamIncarnation {
    (position.stream.clone(), position.incarnation)
}

const fn request_of(part: &RequestPart) -> RequestKey {
    (part.sender, part.id)
}

impl DedupWatermarks {
    /// Whether a batch of this origin was stored. Without any key it never was.
    pub(crate) fn check(&self, origin: &BatchOrigin) -> DedupResult {
        if origin.request.is_some_and(|part| self.has_part(&part)) {
            return DedupResult::Duplicate;
        }
        let is_used = origin.bus_key().is_some_and(|position| self.has_position(position));
        let is_known = origin.producer_key().and_then(|id| {
            let seqs = self.runs.get(&(id.entity, id.boot_epoch))?;
            Some(seqs.contains(id.seq))
        });
        match (is_known, is_used) {
            (Some(true), _) | (None, true) => DedupResult::Duplicate,
            (Some(false), true) => DedupResult::NewUnderUsedSequence,
            (_, false) => DedupResult::New,
        }
    }

    fn has_part(&self, part: &RequestPart) -> bool {
        let known = self.requests.get(&request_of(part));
        known.is_some_and(|RequestMark(digest, through)| *digest == part.digest && part.to <= *through)
    }

    fn has_position(&self, position: &BusPosition) -> bool {
        let known = self.streams.get(&stream_of(position));
        known.is_some_and(|known| known.seqs.contains(position.seq))
    }

    /// Marks an origin as stored, and what its producer settled, as of an LSN.
    pub(crate) fn record(&mut self, origin: &BatchOrigin, lsn: u64) {
        if let Some(part) = origin.request.filter(|part| !self.has_part(part)) {
            self.requests.update(&request_of(&part), lsn, |known| {
                let before = if known.0 == part.digest { known.1 } else { 0 };
                *known = RequestMark(part.digest, before.max(part.to));
            });
        }
        if let Some(id) = origin.producer_key() {
            // A batch in hand is not settled, whatever its header says: a wrong header must not hide what is yet to come.
            let settled = origin.settled.min(id.seq.saturating_sub(1));
            let run = (id.entity, id.boot_epoch);
            let has = |seqs: &SequenceSet| seqs.contains(id.seq) && settled <= seqs.floor();
            if !self.runs.get(&run).is_some_and(has) {
                self.runs.update(&run, lsn, |seqs| {
                    seqs.raise(settled);
                    seqs.insert(id.seq);
                });
            }
        }
        if let Some(position) = origin.bus_key().filter(|position| !self.has_position(position)) {
            self.streams.update(&stream_of(position), lsn, |known| {
                known.seqs.insert(position.seq);
                known.tail = known.tail.max((position.seq, position.identity));
            });
        }
    }

    /// Counts every batch of a run up to `last` as stored, where nothing better is known.
    pub(crate) fn assume_run(&mut self, run: ProducerRunKey, last: u64, lsn: u64) {
        self.runs.update(&run, lsn, |seqs| seqs.raise(last));
    }

    /// Counts every message of a stream up to `last` as stored, where nothing better is known.
    pub(crate) fn assume_stream(&mut self, stream: &StreamIncarnation, last: u64, lsn: u64) {
        self.streams.update(stream, lsn, |known| known.seqs.raise(last));
    }

    /// Counts every message of a stream up to `floor` as done: its reader gets none of them any more. It is recorded with the
    /// next message.
    pub(crate) fn raise_stream(&mut self, stream: &StreamIncarnation, floor: u64) {
        self.streams.shrink(stream, |known| known.seqs.raise(floor));
    }

    /// How far a stream that was created then is stored, in its last incarnation.
    pub(crate) fn stream_tail(&self, stream: &str, created: i64) -> Option<StreamTail> {
        let stream = stream.to_owned();
        let incarnations = self.streams.keys(&stream).copied();
        let incarnation = incarnations
            .filter(|at| (created..created.saturating_add(LOSSES)).contains(at))
            .max()?;
        let known = self.streams.get(&(stream, incarnation))?;
        let (seq, identity) = known.tail;
        Some(StreamTail {
            incarnation,
            last: known.seqs.last().unwrap_or(0),
            newest: (seq > 0).then_some((seq, identity)),
        })
    }

    /// The first sequence not below `from` of which no message is known to be stored.
    pub(crate) fn first_missing(&self, stream: &StreamIncarnation, from: u64) -> u64 {
        let known = self.streams.get(stream);
        known.map_or(from, |known| known.seqs.first_missing(from))
    }

    /// The contiguous floor of a producer's run; 0 for an unknown one.
    pub(crate) fn floor(&self, entity: EntityId, boot_epoch: u64) -> u64 {
        self.runs.get(&(entity, boot_epoch)).map_or(0, SequenceSet::floor)
    }

    /// What is known of a sender's request.
    pub(crate) fn request(&self, sender: u64, id: Uuid) -> Option<StoredRequest> {
        let RequestMark(digest, through) = *self.requests.get(&(sender, id))?;
        Some(StoredRequest { digest, through })
    }

    /// Merges stored watermarks of this store's own history, where they are newer.
    pub(crate) fn merge_newer(&mut self, watermarks: &WatermarkDelta) {
        watermarks.runs.iter().cloned().for_each(|entry| self.runs.join(entry));
        watermarks
            .streams
            .iter()
            .cloned()
            .for_each(|entry| self.streams.join(entry));
        watermarks
            .requests
            .iter()
            .cloned()
            .for_each(|entry| self.requests.join(entry));
    }

    /// Merges watermarks that know other batches than these.
    pub(crate) fn merge_other(&mut self, watermarks: &WatermarkDelta) {
        for (entity, epoch, lsn, seqs) in &watermarks.runs {
            self.runs.update(&(*entity, *epoch), *lsn, |known| known.join(seqs));
        }
        for (stream, incarnation, lsn, mark) in &watermarks.streams {
            self.streams.update(&(stream.clone(), *incarnation), *lsn, |known| {
                known.seqs.join(&mark.seqs);
                known.tail = known.tail.max(mark.tail);
            });
        }
        watermarks
            .requests
            .iter()
            .cloned()
            .for_each(|entry| self.requests.join(entry));
    }

    /// The LSN of the last change: watermarks that were recorded have all changes up to it.
    pub(crate) fn latest(&self) -> u64 {
        let streams = self.streams.latest();
        self.runs.latest().max(streams).max(self.requests.latest())
    }

    /// What changed behind an LSN.
    pub(crate) fn since(&self, lsn: u64) -> WatermarkDelta {
        WatermarkDelta {
            runs: self.runs.since(lsn),
            streams: self.streams.since(lsn),
            requests: self.requests.since(lsn),
        }
    }

    /// Every watermark.
    pub(crate) fn all(&self) -> WatermarkDelta {
        WatermarkDelta {
            runs: self.runs.all(),
            streams: self.streams.all(),
            requests: self.requests.all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::telemetry_codec::BatchId;
    use proptest::prelude::*;

    use super::*;
    use crate::sequence_set::RANGES;

    fn at(incarnation: i64, seq: u64) -> BatchOrigin {
        BatchOrigin {
            bus: Some(BusPosition {
                stream: "flux-telemetry".to_owned(),
                incarnation,
                seq,
                identity: seq as i64 + 1_000 * incarnation,
            }),
            ..BatchOrigin::default()
        }
    }

    fn bus(seq: u64) -> BatchOrigin {
        at(7, seq)
    }

    fn rack() -> EntityId {
        EntityId::for_name("rack-a")
    }

    fn run(boot_epoch: u64, seq: u64, settled: u64) -> BatchOrigin {
        BatchOrigin {
            producer: Some(BatchId {
                entity: rack(),
                boot_epoch,
                seq,
            }),
            settled,
            ..BatchOrigin::default()
        }
    }

    fn producer(seq: u64, settled: u64) -> BatchOrigin {
        run(3, seq, settled)
    }

    fn part(sender: u64, id: u128, digest: u64, (from, to): (u64, u64)) -> BatchOrigin {
        BatchOrigin {
            request: Some(RequestPart {
                id: Uuid::from_u128(id),
                sender,
                digest,
                from,
                to,
            }),
            ..BatchOrigin::default()
        }
    }

    /// Marks origins one after another, from LSN 1 on.
    fn marked(origins: impl IntoIterator<Item = BatchOrigin>) -> DedupWatermarks {
        let mut marks = DedupWatermarks::default();
        (1..).zip(origins).for_each(|(lsn, origin)| marks.record(&origin, lsn));
        marks
    }

    fn bytes(watermarks: &WatermarkDelta) -> usize {
        let mut bytes = Vec::new();
        ciborium::into_writer(watermarks, &mut bytes).map_or(usize::MAX, |()| bytes.len())
    }

    /// What of everything is sent: by a Rack with its key, by others without, by clients in parts.
    fn sent(number: usize) -> BatchOrigin {
        let seq = number as u64 / 3 + 1;
        match number % 3 {
            0 => BatchOrigin {
                bus: bus(2 * seq).bus,
                ..producer(seq, 0)
            },
            1 => bus(2 * seq + 1),
            _ => part(seq % 2, u128::from(seq % 4), 5, (seq - 1, seq)),
        }
    }

    proptest! {
        #[test]
        fn each_message_is_stored_once_in_any_order_over_redeliveries_and_restarts_from_records(
            deliveries in prop::collection::vec((0usize..60, 0u8..10), 0..200),
        ) {
            let (mut marks, mut lsn) = (DedupWatermarks::default(), 0);
            // What records have, and what the log has behind them.
            let (mut recorded, mut log) = (DedupWatermarks::default(), Vec::new());
            let mut stored: BTreeSet<usize> = BTreeSet::new();
            let mut through = [0; 4];
            for (number, event) in deliveries {
                let origin = sent(number);
                let is_stored = match &origin.request {
                    // Parts come in their order; of an earlier one more is stored.
                    Some(part) => part.to <= through[part.id.as_u128() as usize],
                    None => stored.contains(&number),
                };
                prop_assert_eq!(marks.check(&origin) == DedupResult::Duplicate, is_stored, "{:?}", &origin);
                if !is_stored {
                    lsn += 1;
                    stored.insert(number);
                    if let Some(part) = &origin.request {
                        through[part.id.as_u128() as usize] = part.to;
                    }
                    log.push((lsn, origin.clone()));
                }
                marks.record(&origin, lsn);
                if event == 0 {
                    recorded.merge_newer(&marks.since(recorded.latest()));
                    log.retain(|(lsn, _)| *lsn + 3 > recorded.latest());
                    prop_assert_eq!(recorded.all(), marks.all());
                } else if event == 1 {
                    // The next process knows what is recorded and what the log has, some of it twice.
                    marks = DedupWatermarks::default();
                    marks.merge_newer(&recorded.all());
                    log.iter().for_each(|(lsn, origin)| marks.record(origin, *lsn));
                }
            }
        }
    }

    #[test]
    fn a_redelivery_is_a_duplicate_and_the_same_sequence_of_another_incarnation_is_not() {
        let mut marks = marked((1..=10).map(bus));
        assert_eq!(marks.check(&bus(8)), DedupResult::Duplicate);
        assert_eq!(marks.check(&bus(11)), DedupResult::New);
        assert_eq!(marks.check(&at(8, 8)), DedupResult::New);
        marks.record(&at(8, 8), 11);
        assert_eq!(marks.check(&at(8, 8)), DedupResult::Duplicate);
    }

    #[test]
    fn the_tail_is_that_of_the_last_incarnation_of_a_stream_that_was_created_then() {
        let marks = marked([at(5_000, 3), at(5_000, 2), at(5_001, 1), at(9_000, 4)]);
        let tail = |created| marks.stream_tail("flux-telemetry", created);
        let last = |incarnation, last| {
            Some(StreamTail {
                incarnation,
                last,
                newest: Some((last, last as i64 + 1_000 * incarnation)),
            })
        };
        assert_eq!(tail(5_000), last(5_001, 1));
        assert_eq!(tail(9_000), last(9_000, 4));
        assert_eq!(
            (tail(4_000), tail(5_002), marks.stream_tail("other", 5_000)),
            (None, None, None)
        );
    }

    #[test]
    fn a_producer_key_decides_alone_and_a_reused_bus_sequence_is_reported() {
        let of = |seq, position| BatchOrigin {
            bus: bus(position).bus,
            ..producer(seq, 0)
        };
        let marks = marked([of(1, 50)]);
        assert_eq!(marks.check(&of(1, 51)), DedupResult::Duplicate, "published twice");
        assert_eq!(marks.check(&of(2, 50)), DedupResult::NewUnderUsedSequence);
        assert_eq!(marks.check(&of(2, 51)), DedupResult::New);
        assert_eq!(
            marks.check(&BatchOrigin::default()),
            DedupResult::New,
            "no key, no duplicate"
        );
    }

    #[test]
    fn sequence_zero_is_no_key_and_hides_nothing() {
        for origin in [producer(0, 0), bus(0)] {
            assert_eq!(marked([origin.clone()]).check(&origin), DedupResult::New);
        }
    }

    #[test]
    fn settled_raises_the_floor_but_never_over_the_batch_itself() {
        let mut marks = marked([producer(5, 3)]);
        assert_eq!(marks.floor(rack(), 3), 3);
        marks.record(&producer(4, 0), 2);
        assert_eq!(marks.floor(rack(), 3), 5);
        marks.record(&producer(9, u64::MAX), 3);
        assert_eq!(marks.floor(rack(), 3), 9);
        assert_eq!(marks.check(&producer(10, 0)), DedupResult::New);
    }

    #[test]
    fn a_request_is_known_by_its_records_whatever_its_parts_were() {
        let marks = marked([part(1, 42, 9, (0, 100)), part(1, 42, 9, (100, 250))]);
        for stored in [(0, 100), (0, 7), (90, 250)] {
            assert_eq!(
                marks.check(&part(1, 42, 9, stored)),
                DedupResult::Duplicate,
                "{stored:?}"
            );
        }
        assert_eq!(marks.check(&part(1, 42, 9, (250, 251))), DedupResult::New);
        assert_eq!(marks.check(&part(1, 42, 8, (0, 100))), DedupResult::New, "another body");
        assert_eq!(
            marks.check(&part(2, 42, 9, (0, 100))),
            DedupResult::New,
            "another sender"
        );
        let known = StoredRequest {
            digest: 9,
            through: 250,
        };
        assert_eq!(marks.request(1, Uuid::from_u128(42)), Some(known));
    }

    #[test]
    fn a_busy_sender_does_not_evict_the_keys_of_others() {
        let first = part(1, 0, 9, (0, 1));
        let busy = (0..70_000).map(|id| part(2, id, 9, (0, 1)));
        let marks = marked([first.clone()].into_iter().chain(busy));
        assert_eq!(marks.check(&first), DedupResult::Duplicate);
        assert_eq!(marks.check(&part(2, 69_999, 9, (0, 1))), DedupResult::Duplicate);
        assert_eq!(marks.check(&part(2, 0, 9, (0, 1))), DedupResult::New, "its own go");
    }

    #[test]
    fn an_entity_that_starts_again_and_again_takes_bounded_room_and_its_last_runs_are_known() {
        let mut marks = marked((1..10_000).map(|epoch| run(epoch, 1, 0)));
        assert!(bytes(&marks.all()) < 8 << 10, "{}", bytes(&marks.all()));
        assert_eq!(marks.check(&run(9_999, 1, 0)), DedupResult::Duplicate);
        assert_eq!(marks.check(&run(1, 1, 0)), DedupResult::New, "forgotten");
        let by_position = BatchOrigin {
            bus: bus(1).bus,
            ..run(1, 1, 0)
        };
        marks.record(&bus(1), 10_000);
        assert_eq!(
            marks.check(&by_position),
            DedupResult::Duplicate,
            "the bus position says it"
        );
    }

    #[test]
    fn a_stream_of_which_every_second_message_is_archived_takes_bounded_room() {
        let mut marks = marked((1..100_000).map(|n| bus(2 * n)));
        assert!(bytes(&marks.all()) < 3 * RANGES, "{}", bytes(&marks.all()));
        assert_eq!(marks.check(&bus(199_998)), DedupResult::Duplicate);
        assert_eq!(
            marks.check(&bus(2)),
            DedupResult::New,
            "it may be stored again, and is not called stored for ever"
        );
        marks.raise_stream(&("flux-telemetry".to_owned(), 7), 199_990);
        assert!(bytes(&marks.all()) < 100, "{}", bytes(&marks.all()));
        assert_eq!(marks.check(&bus(2)), DedupResult::Duplicate);
        assert_eq!(marks.check(&bus(199_999)), DedupResult::New);
    }

    #[test]
    fn a_stream_that_is_made_anew_again_and_again_is_few_incarnations() {
        let marks = marked((1..1_000).map(|incarnation| at(incarnation * 1_000_000, 1)));
        assert_eq!(marks.all().streams.len(), 4);
        assert_eq!(marks.check(&at(999_000_000, 1)), DedupResult::Duplicate);
    }

    #[test]
    fn marks_of_another_history_are_added() {
        let (mut one, other) = (
            marked([bus(1), producer(1, 0)]),
            marked([bus(2), bus(2), producer(2, 0)]),
        );
        one.merge_other(&other.all());
        for origin in [bus(1), bus(2), producer(1, 0), producer(2, 0)] {
            assert_eq!(one.check(&origin), DedupResult::Duplicate, "{origin:?}");
        }
    }
}
