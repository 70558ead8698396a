//! Which stored batches are not in the object store yet, by partition and log position.
//!
//! A batch that a lost machine had stored may come again, to a machine that knows the object store only. Its rows that were
//! uploaded are duplicates, the others are new; a batch whose rows went into two partitions can be both. So a batch is
//! marked as stored *remotely* when the files that have its rows are uploaded, all of them; until then the object store
//! knows it in part, partition by partition.
//!
//! ```text
//! append ─> fresh (in memory, its frame is in the log) ─ record ─> journal (in the catalogue) ─ upload ─> marks, parts known
//! ```
//!
//! # Invariants
//!
//! - A batch is in the journal, or its frame is still to be replayed, until every file with rows of it is uploaded or gone.
//! - Files of one partition cover disjoint ranges of log positions, each of them completely.
//!
//! # Not here
//!
//! The object store ([`crate::remote`]). A store without one keeps no journal.

use std::collections::{BTreeMap, BTreeSet};

use model::wire::BatchId;
use model::{EntityId, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::hot::Place;
use crate::{BusPosition, Origin, RequestPart};

/// What a batch is known by when it comes again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Key {
    /// Entity, boot epoch, sequence.
    #[serde(rename = "p")]
    Producer(EntityId, u64, u64),
    /// Stream, incarnation, sequence, store time.
    #[serde(rename = "b")]
    Bus(String, i64, u64, i64),
    /// Id, digest, part.
    #[serde(rename = "r")]
    Request(Uuid, u64, u32),
}

impl Key {
    /// The key that decides whether a batch is a duplicate; a batch without one never is.
    pub(crate) fn of(origin: &Origin) -> Option<Self> {
        if let Some(part) = origin.request {
            return Some(Self::Request(part.id, part.digest, part.part));
        }
        if let Some(id) = origin.producer_key() {
            return Some(Self::Producer(id.entity, id.boot_epoch, id.seq));
        }
        let at = origin.bus_key()?;
        Some(Self::Bus(at.stream.clone(), at.incarnation, at.seq, at.stored.micros()))
    }

    /// An origin with this key and nothing else.
    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Producer(entity, boot_epoch, seq) => Origin {
                producer: Some(BatchId {
                    entity: *entity,
                    boot_epoch: *boot_epoch,
                    seq: *seq,
                }),
                ..Origin::default()
            },
            Self::Bus(stream, incarnation, seq, stored) => Origin {
                bus: Some(BusPosition {
                    stream: stream.clone(),
                    incarnation: *incarnation,
                    seq: *seq,
                    stored: Timestamp::from_micros(*stored),
                }),
                ..Origin::default()
            },
            Self::Request(id, digest, part) => Origin {
                request: Some(RequestPart {
                    id: *id,
                    digest: *digest,
                    part: *part,
                }),
                ..Origin::default()
            },
        }
    }
}

/// A batch: its log position, its key, the partitions with rows of it.
pub(crate) type Entry = (u64, Key, Vec<Place>);

/// A range of log positions of one partition, first and last.
pub(crate) type Range = (Place, u64, u64);

/// Batches with rows that are not uploaded.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    places: BTreeMap<Place, BTreeMap<u64, Key>>,
    /// How many partitions are left of a batch that began with more than one.
    shared: BTreeMap<u64, u32>,
}

/// What files that were uploaded together say of batches.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Covered {
    /// All of their rows are uploaded, with what they have in these partitions.
    pub(crate) whole: Vec<(Key, Vec<Place>)>,
    /// Their rows in this partition are uploaded, others are not.
    pub(crate) part: Vec<(Key, Place)>,
}

impl Journal {
    pub(crate) fn insert(&mut self, (lsn, key, places): Entry) {
        if places.len() > 1 {
            let left = u32::try_from(places.len()).unwrap_or(u32::MAX);
            self.shared.insert(lsn, left);
        }
        for place in places {
            self.places.entry(place).or_default().insert(lsn, key.clone());
        }
    }

    /// What an upload of these ranges would say; nothing changes.
    pub(crate) fn look(&self, ranges: &[Range]) -> Covered {
        let mut left: BTreeMap<u64, u32> = BTreeMap::new();
        let mut touched: BTreeMap<u64, (&Key, Vec<Place>)> = BTreeMap::new();
        for (place, first, last) in ranges {
            let batches = self.places.get(place).into_iter();
            for (lsn, key) in batches.flat_map(|batches| batches.range(*first..=*last.max(first))) {
                let now = left
                    .entry(*lsn)
                    .or_insert_with(|| self.shared.get(lsn).copied().unwrap_or(1));
                *now = now.saturating_sub(1);
                touched.entry(*lsn).or_insert((key, Vec::new())).1.push(*place);
            }
        }
        let mut covered = Covered::default();
        for (lsn, (key, places)) in touched {
            if left.get(&lsn) == Some(&0) {
                covered.whole.push((key.clone(), places));
            } else {
                covered
                    .part
                    .extend(places.into_iter().map(|place| (key.clone(), place)));
            }
        }
        covered
    }

    /// Forgets what is in these ranges.
    pub(crate) fn cover(&mut self, (place, first, last): Range) {
        let Some(batches) = self.places.get_mut(&place) else {
            return;
        };
        let mut inside = batches.split_off(&first);
        let mut behind = inside.split_off(&last.saturating_add(1));
        batches.append(&mut behind);
        if batches.is_empty() {
            self.places.remove(&place);
        }
        for lsn in inside.into_keys() {
            if let Some(left) = self.shared.get_mut(&lsn) {
                *left -= 1;
                if *left == 0 {
                    self.shared.remove(&lsn);
                }
            }
        }
    }

    /// The lowest log position in it.
    pub(crate) fn first(&self) -> Option<u64> {
        let first = |batches: &BTreeMap<u64, Key>| batches.first_key_value().map(|(lsn, _)| *lsn);
        self.places.values().filter_map(first).min()
    }

    /// All of it. Of a batch that was covered in part only what is left is said.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut all: BTreeMap<u64, (Key, Vec<Place>)> = BTreeMap::new();
        for (place, batches) in &self.places {
            for (lsn, key) in batches {
                all.entry(*lsn)
                    .or_insert_with(|| (key.clone(), Vec::new()))
                    .1
                    .push(*place);
            }
        }
        all.into_iter().map(|(lsn, (key, places))| (lsn, key, places)).collect()
    }
}

/// Batches that are stored and in no catalogue record yet, in the order of their log positions.
#[derive(Debug, Default)]
pub(crate) struct Fresh(BTreeMap<u64, (Key, Vec<Place>)>);

impl Fresh {
    pub(crate) fn insert(&mut self, lsn: u64, origin: &Origin, places: Vec<Place>) {
        if let Some(key) = Key::of(origin).filter(|_| !places.is_empty()) {
            self.0.insert(lsn, (key, places));
        }
    }

    /// Takes those before `low_water`.
    pub(crate) fn take_below(&mut self, low_water: u64) -> Vec<Entry> {
        let rest = self.0.split_off(&low_water);
        let taken = std::mem::replace(&mut self.0, rest);
        taken
            .into_iter()
            .map(|(lsn, (key, places))| (lsn, key, places))
            .collect()
    }

    /// Gives back what could not be recorded.
    pub(crate) fn give_back(&mut self, entries: Vec<Entry>) {
        self.0
            .extend(entries.into_iter().map(|(lsn, key, places)| (lsn, (key, places))));
    }
}

/// Batches of which a lost machine had uploaded some partitions and not others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(Key, Vec<Place>)>", into = "Vec<(Key, Vec<Place>)>")]
pub(crate) struct Parts(BTreeMap<Key, BTreeSet<Place>>);

impl Parts {
    pub(crate) fn insert(&mut self, key: Key, place: Place) {
        self.0.entry(key).or_default().insert(place);
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        self.0.remove(key);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the rows that this batch has in this partition are uploaded.
    pub(crate) fn has(&self, key: Option<&Key>, place: Place) -> bool {
        key.and_then(|key| self.0.get(key))
            .is_some_and(|places| places.contains(&place))
    }
}

impl From<Vec<(Key, Vec<Place>)>> for Parts {
    fn from(all: Vec<(Key, Vec<Place>)>) -> Self {
        let all = all.into_iter();
        Self(all.map(|(key, places)| (key, places.into_iter().collect())).collect())
    }
}

impl From<Parts> for Vec<(Key, Vec<Place>)> {
    fn from(parts: Parts) -> Self {
        let all = parts.0.into_iter();
        all.map(|(key, places)| (key, places.into_iter().collect())).collect()
    }
}

#[cfg(test)]
mod tests {
    use model::Table;

    use super::*;
    use crate::PartitionBy;
    use crate::layout::Partition;

    fn place(hour: i64) -> Place {
        let at = Timestamp::from_micros(hour * 3_600_000_000);
        (Table::Logs, Partition::of(at, PartitionBy::Hour))
    }

    fn key(seq: u64) -> Key {
        Key::Producer(EntityId::for_name("rack-a"), 1, seq)
    }

    fn keys(covered: &Covered) -> Vec<Key> {
        covered.whole.iter().map(|(key, _)| key.clone()).collect()
    }

    fn journal() -> Journal {
        let mut journal = Journal::default();
        journal.insert((1, key(1), vec![place(0)]));
        journal.insert((2, key(2), vec![place(0), place(1)]));
        journal.insert((3, key(3), vec![place(1)]));
        journal
    }

    #[test]
    fn a_batch_is_whole_when_the_last_partition_with_rows_of_it_is_uploaded() {
        let mut journal = journal();
        let covered = journal.look(&[(place(0), 1, 2)]);
        assert_eq!(covered.whole, [(key(1), vec![place(0)])]);
        assert_eq!(covered.part, [(key(2), place(0))]);
        journal.cover((place(0), 1, 2));
        assert_eq!(journal.first(), Some(2));
        let covered = journal.look(&[(place(1), 2, 3)]);
        assert_eq!((keys(&covered), covered.part), (vec![key(2), key(3)], vec![]));
        journal.cover((place(1), 2, 3));
        assert_eq!((journal.first(), journal.entries()), (None, vec![]));
    }

    #[test]
    fn partitions_that_are_uploaded_together_make_a_batch_whole_at_once() {
        let covered = journal().look(&[(place(0), 1, 9), (place(1), 1, 2)]);
        assert_eq!((keys(&covered), covered.part), (vec![key(1), key(2)], vec![]));
    }

    #[test]
    fn a_journal_that_is_stored_says_what_is_left() {
        let mut journal = journal();
        journal.cover((place(0), 0, 5));
        let mut again = Journal::default();
        journal.entries().into_iter().for_each(|entry| again.insert(entry));
        assert_eq!(keys(&again.look(&[(place(1), 0, 9)])), [key(2), key(3)]);
    }

    #[test]
    fn fresh_batches_are_recorded_up_to_the_low_water() {
        let mut fresh = Fresh::default();
        for lsn in 1..=3 {
            fresh.insert(lsn, &key(lsn).origin(), vec![place(0)]);
        }
        let taken = fresh.take_below(3);
        assert_eq!(taken.len(), 2);
        fresh.give_back(taken);
        assert_eq!(fresh.take_below(9).len(), 3);
    }
}
