//! A set of sequence numbers that fills up from 1: a contiguous floor and the few ranges above it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A set of sequence numbers. 0 is always in it.
///
/// # Invariants
///
/// - It only grows.
/// - Ranges are disjoint, not adjacent, and begin above `floor + 1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub(crate) struct Seqs {
    floor: u64,
    /// First to last, both in the set.
    above: BTreeMap<u64, u64>,
}

/// As it is stored: the floor, then the ranges.
#[derive(Serialize, Deserialize)]
struct Stored(u64, Vec<(u64, u64)>);

impl Seqs {
    /// Every sequence up to and with it is in the set.
    pub(crate) const fn floor(&self) -> u64 {
        self.floor
    }

    /// The lowest one above 0.
    pub(crate) fn first(&self) -> Option<u64> {
        let above = || self.above.first_key_value().map(|(first, _)| *first);
        if self.floor > 0 { Some(1) } else { above() }
    }

    /// The highest one above 0.
    pub(crate) fn last(&self) -> Option<u64> {
        let floor = Some(self.floor).filter(|floor| *floor > 0);
        self.above.last_key_value().map(|(_, last)| *last).or(floor)
    }

    pub(crate) fn contains(&self, seq: u64) -> bool {
        seq <= self.floor
            || self
                .above
                .range(..=seq)
                .next_back()
                .is_some_and(|(_, last)| seq <= *last)
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
        }
    }
}

impl From<Stored> for Seqs {
    fn from(Stored(floor, ranges): Stored) -> Self {
        let mut seqs = Self::default();
        seqs.raise(floor);
        for (first, last) in ranges {
            seqs.insert_range(first, last);
        }
        seqs
    }
}

impl From<Seqs> for Stored {
    fn from(seqs: Seqs) -> Self {
        Self(seqs.floor, seqs.above.into_iter().collect())
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
            let (mut seqs, mut other, mut model) = (Seqs::default(), Seqs::default(), BTreeSet::from([0]));
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
            prop_assert_eq!(seqs.first(), model.range(1..).next().copied());
            prop_assert_eq!(seqs.last(), model.range(1..).next_back().copied());
            for seq in 0..45 {
                prop_assert_eq!(seqs.contains(seq), model.contains(&seq), "{} in {:?}", seq, seqs);
            }
            let mut bytes = Vec::new();
            ciborium::into_writer(&seqs, &mut bytes).map_err(|error| TestCaseError::fail(error.to_string()))?;
            let back: Seqs = ciborium::from_reader(bytes.as_slice()).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(back, seqs);
        }
    }

    #[test]
    fn the_largest_number_is_a_number_like_any() {
        let mut seqs = Seqs::default();
        assert!(seqs.insert(u64::MAX));
        assert!(!seqs.insert(u64::MAX));
        seqs.raise(u64::MAX - 1);
        assert_eq!(seqs.floor(), u64::MAX);
        assert!(!seqs.insert(7));
    }
}
