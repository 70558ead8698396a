//! A compact set of sequence numbers that fills up from 1: the floor, up to which no number is missing, and the few ranges above it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Ranges above the floor at most: 4,096 gaps are more than batches in flight leave. Of a set with more the lowest ranges
/// are forgotten, which are the oldest: what is forgotten may be stored again, what never came is not called stored.
pub(crate) const RANGES: usize = 1 << 12;

/// A set of sequence numbers. 0 is always in it.
///
/// # Invariants
///
/// - It only grows, up to [`RANGES`].
/// - Ranges are disjoint, not adjacent, and begin above `floor + 1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredSequenceSet", into = "StoredSequenceSet")]
pub(crate) struct SequenceSet {
    floor: u64,
    /// First to last, both in the set.
    above: BTreeMap<u64, u64>,
}

/// As it is stored: the floor, then of each range how far it begins behind what is before it, and how long it is beyond one.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct StoredSequenceSet(Vec<u64>);

impl SequenceSet {
    /// Every sequence up to and with it is in the set.
    pub(crate) const fn floor(&self) -> u64 {
        self.floor
    }

    /// The highest one above 0.
    pub(crate) fn last(&self) -> Option<u64> {
        let floor = Some(self.floor).filter(|floor| *floor > 0);
        self.above.last_key_value().map(|(_, last)| *last).or(floor)
    }

    /// How many ranges are above the floor.
    pub(crate) fn ranges(&self) -> usize {
        self.above.len()
    }

    pub(crate) fn contains(&self, seq: u64) -> bool {
        seq <= self.floor
            || self
                .above
                .range(..=seq)
                .next_back()
                .is_some_and(|(_, last)| seq <= *last)
    }

    /// The first one not below `from` that never was in the set: where ranges may have been forgotten, of a set with more than
    /// half of [`RANGES`], it had all below the first.
    pub(crate) fn first_missing(&self, from: u64) -> u64 {
        let lowest = self.above.first_key_value().filter(|_| self.above.len() > RANGES / 2);
        let from = from.max(lowest.map_or(self.floor.saturating_add(1), |(first, _)| *first));
        let range = self.above.range(..=from).next_back();
        range.map_or(from, |(_, last)| from.max(last.saturating_add(1)))
    }

    /// Adds one; whether it was not in the set before.
    pub(crate) fn insert(&mut self, seq: u64) -> bool {
        let new = !self.contains(seq);
        if new {
            self.insert_range(seq, seq);
        }
        new
    }

    /// Adds every sequence up to and with `floor`.
    pub(crate) fn raise(&mut self, floor: u64) {
        if floor > self.floor {
            self.insert_range(1, floor);
        }
    }

    /// Adds all of another set.
    pub(crate) fn join(&mut self, other: &Self) {
        self.raise(other.floor);
        for (first, last) in &other.above {
            self.insert_range(*first, *last);
        }
    }

    fn insert_range(&mut self, first: u64, last: u64) {
        let (mut first, mut last) = (first.max(self.floor.saturating_add(1)), last);
        if last < first {
            return;
        }
        // The neighbours that touch or overlap become part of the new range.
        while let Some((start, end)) = self
            .above
            .range(..=last.saturating_add(1))
            .next_back()
            .map(|(s, e)| (*s, *e))
        {
            if end.saturating_add(1) < first {
                break;
            }
            self.above.remove(&start);
            first = first.min(start);
            last = last.max(end);
        }
        if first <= self.floor.saturating_add(1) {
            self.floor = last;
        } else {
            self.above.insert(first, last);
            if self.above.len() > RANGES {
                self.above.pop_first();
            }
        }
    }
}

impl From<StoredSequenceSet> for SequenceSet {
    fn from(StoredSequenceSet(numbers): StoredSequenceSet) -> Self {
        let (floor, ranges) = numbers.split_first().unwrap_or((&0, &[][..]));
        let mut seqs = Self::default();
        seqs.raise(*floor);
        let mut end = *floor;
        for [gap, length] in ranges.as_chunks().0 {
            let first = end.saturating_add(*gap);
            end = first.saturating_add(*length);
            seqs.insert_range(first, end);
        }
        seqs
    }
}

impl From<SequenceSet> for StoredSequenceSet {
    fn from(seqs: SequenceSet) -> Self {
        let mut numbers = vec![seqs.floor];
        let mut end = seqs.floor;
        for (first, last) in seqs.above {
            numbers.extend([first - end, last - first]);
            end = last;
        }
        Self(numbers)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_set_of_what_was_put_in(steps in prop::collection::vec((0u64..40, prop::bool::weighted(0.1)), 0..80), split in 0usize..80) {
            let (mut seqs, mut other, mut model) = (SequenceSet::default(), SequenceSet::default(), BTreeSet::from([0]));
            for (n, (seq, raise)) in steps.iter().enumerate() {
                let target = if n < split { &mut seqs } else { &mut other };
                if *raise {
                    target.raise(*seq);
                    model.extend(0..=*seq);
                } else {
                    target.insert(*seq);
                    model.insert(*seq);
                }
            }
            seqs.join(&other);
            let floor = (0u64..).take_while(|seq| model.contains(seq)).last().unwrap_or(0);
            prop_assert_eq!(seqs.floor(), floor);
            prop_assert_eq!(seqs.last(), model.range(1..).next_back().copied());
            for seq in 0..45 {
                prop_assert_eq!(seqs.contains(seq), model.contains(&seq), "{} in {:?}", seq, seqs);
                prop_assert_eq!(Some(seqs.first_missing(seq)), (seq.max(1)..).find(|next| !model.contains(next)));
            }
            let mut bytes = Vec::new();
            ciborium::into_writer(&seqs, &mut bytes).map_err(|error| TestCaseError::fail(error.to_string()))?;
            let back: SequenceSet = ciborium::from_reader(bytes.as_slice()).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(back, seqs);
        }
    }

    #[test]
    fn of_too_many_ranges_the_lowest_are_forgotten_and_nothing_is_taken_for_stored() {
        let mut seqs = SequenceSet::default();
        let all = RANGES as u64 + 10;
        (1..=all).for_each(|n| assert!(seqs.insert(3 * n)));
        assert_eq!(seqs.above.len(), RANGES);
        for n in 1..=all {
            assert_eq!(seqs.contains(3 * n), n > 10, "{n}");
            assert!(!seqs.contains(3 * n - 1), "{n}");
        }
        assert_eq!(seqs.first_missing(1), 3 * 11 + 1, "what was forgotten is not missing");
        seqs.raise(3 * all);
        assert!(seqs.above.is_empty() && seqs.contains(3));
    }

    #[test]
    fn the_largest_number_is_a_number_like_any() {
        let mut seqs = SequenceSet::default();
        assert!(seqs.insert(u64::MAX));
        assert!(!seqs.insert(u64::MAX));
        seqs.raise(u64::MAX - 1);
        assert_eq!(seqs.floor(), u64::MAX);
        assert!(!seqs.insert(7));
    }
}
