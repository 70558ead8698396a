//! A grouped LRU map: limits the entries, and the weight of their values, in each group and in all groups together. Time is measured
//! in the log: an entry is as old as the LSN of its last change.
//!
//! # Invariants
//!
//! - Which entries are evicted for their number depends on keys and LSNs alone, so a map that is read back from records evicts
//!   the same ones. Which are evicted for weight depends on the order of insertion too, and may differ.
//! - To make room for the weight of an entry, others of its group are evicted first, and never entries without weight.
//! - The newest entry is never evicted in favour of an older one.

use std::collections::{BTreeMap, BTreeSet};

/// How many entries are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LruBounds {
    pub(crate) group: usize,
    pub(crate) all: usize,
    /// The sum of weights in a group; one entry is kept however heavy it is.
    pub(crate) group_weight: usize,
    /// The sum of all weights.
    pub(crate) weight: usize,
}

/// What a value takes beside its entry, in whatever unit the bounds are.
pub(crate) trait EntryWeight {
    fn weight(&self) -> usize;
}

/// See the module.
#[derive(Debug)]
pub(crate) struct GroupedLru<G, K, V> {
    bounds: LruBounds,
    entries: BTreeMap<(G, K), (u64, V)>,
    groups: BTreeMap<G, BTreeSet<(u64, K)>>,
    /// Least recently changed first.
    order: BTreeSet<(u64, G, K)>,
    weight: usize,
}

/// Group, key, LSN of the last change, value.
pub(crate) type LruEntry<G, K, V> = (G, K, u64, V);

impl<G: Ord + Clone, K: Ord + Clone, V: Clone + Default + EntryWeight> GroupedLru<G, K, V> {
    pub(crate) const fn new(bounds: LruBounds) -> Self {
        Self {
            bounds,
            entries: BTreeMap::new(),
            groups: BTreeMap::new(),
            order: BTreeSet::new(),
            weight: 0,
        }
    }

    pub(crate) fn get(&self, id: &(G, K)) -> Option<&V> {
        self.entries.get(id).map(|(_, value)| value)
    }

    /// Changes a value, if there is one, without making it any newer or heavier.
    pub(crate) fn shrink(&mut self, id: &(G, K), change: impl FnOnce(&mut V)) {
        if let Some((_, value)) = self.entries.get_mut(id) {
            self.weight -= value.weight();
            change(value);
            self.weight += value.weight();
        }
    }

    /// The keys of a group.
    pub(crate) fn keys(&self, group: &G) -> impl Iterator<Item = &K> {
        self.groups.get(group).into_iter().flatten().map(|(_, key)| key)
    }

    /// The LSN of the last change of all.
    pub(crate) fn latest(&self) -> u64 {
        self.order.last().map_or(0, |(lsn, ..)| *lsn)
    }

    /// Changes an entry, from the default if there is none, at an LSN.
    pub(crate) fn update(&mut self, id: &(G, K), lsn: u64, change: impl FnOnce(&mut V)) {
        let (group, key) = id;
        let (at, value) = self.entries.entry(id.clone()).or_default();
        self.weight -= value.weight();
        change(value);
        self.weight += value.weight();
        let weighs = value.weight() > 0;
        let now = lsn.max(*at);
        let before = std::mem::replace(at, now);
        self.order.remove(&(before, group.clone(), key.clone()));
        self.order.insert((now, group.clone(), key.clone()));
        let in_group = self.groups.entry(group.clone()).or_default();
        in_group.remove(&(before, key.clone()));
        in_group.insert((now, key.clone()));
        if in_group.len() > self.bounds.group
            && let Some((lsn, key)) = in_group.first().cloned()
        {
            self.forget((lsn, group.clone(), key));
        }
        if self.order.len() > self.bounds.all
            && let Some(oldest) = self.order.first().cloned()
        {
            self.forget(oldest);
        }
        if weighs {
            self.make_room_for(id);
        }
    }

    /// Forgets others until the weights are within their bounds.
    fn make_room_for(&mut self, (group, key): &(G, K)) {
        let weight = |map: &Self, group: &G, key: &K| map.get(&(group.clone(), key.clone())).map_or(0, V::weight);
        let of_group = |map: &Self| map.keys(group).map(|key| weight(map, group, key)).sum::<usize>();
        while of_group(self) > self.bounds.group_weight {
            let mut others = self.groups.get(group).into_iter().flatten();
            let other = others.find(|(_, other)| other != key && weight(self, group, other) > 0);
            let Some((lsn, other)) = other.cloned() else { break };
            self.forget((lsn, group.clone(), other));
        }
        while self.weight > self.bounds.weight {
            let is_other = |at: &&(u64, G, K)| (&at.1, &at.2) != (group, key) && weight(self, &at.1, &at.2) > 0;
            let Some(other) = self.order.iter().find(is_other).cloned() else {
                break;
            };
            self.forget(other);
        }
    }

    /// Takes an entry over if it is newer than what is here.
    pub(crate) fn join(&mut self, (group, key, lsn, value): LruEntry<G, K, V>) {
        let id = (group, key);
        if self.entries.get(&id).is_none_or(|(known, _)| *known < lsn) {
            self.update(&id, lsn, |known| *known = value);
        }
    }

    fn forget(&mut self, (lsn, group, key): (u64, G, K)) {
        self.order.remove(&(lsn, group.clone(), key.clone()));
        if let Some(in_group) = self.groups.get_mut(&group) {
            in_group.remove(&(lsn, key.clone()));
            if in_group.is_empty() {
                self.groups.remove(&group);
            }
        }
        if let Some((_, value)) = self.entries.remove(&(group, key)) {
            self.weight -= value.weight();
        }
    }

    /// What changed behind an LSN, least recently changed first.
    pub(crate) fn since(&self, lsn: u64) -> Vec<LruEntry<G, K, V>> {
        let newer = self.order.iter().rev().take_while(|(at, ..)| *at > lsn);
        let mut newer: Vec<_> = newer.filter_map(|at| self.entry(at)).collect();
        newer.reverse();
        newer
    }

    /// All of it, least recently changed first.
    pub(crate) fn all(&self) -> Vec<LruEntry<G, K, V>> {
        self.order.iter().filter_map(|at| self.entry(at)).collect()
    }

    fn entry(&self, (lsn, group, key): &(u64, G, K)) -> Option<LruEntry<G, K, V>> {
        let id = (group.clone(), key.clone());
        let value = self.get(&id)?.clone();
        Some((id.0, id.1, *lsn, value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Map = GroupedLru<u8, u8, u64>;

    const BOUNDS: LruBounds = LruBounds {
        group: 3,
        all: 7,
        group_weight: usize::MAX,
        weight: usize::MAX,
    };

    impl EntryWeight for u64 {
        fn weight(&self) -> usize {
            *self as usize
        }
    }

    proptest! {
        #[test]
        fn records_of_what_changed_forget_what_the_map_forgot(
            steps in prop::collection::vec((0u8..4, 0u8..6, prop::bool::weighted(0.2)), 0..120),
        ) {
            let (mut map, mut back, mut recorded) = (Map::new(BOUNDS), Map::new(BOUNDS), 0);
            for (lsn, (group, key, is_recorded)) in (1..).zip(steps) {
                map.update(&(group, key), lsn, |value| *value = value.wrapping_add(lsn));
                prop_assert!(map.order.len() <= BOUNDS.all && map.keys(&group).count() <= BOUNDS.group);
                prop_assert_eq!(map.get(&(group, key)).is_some(), true, "the newest stays");
                if is_recorded {
                    map.since(recorded).into_iter().for_each(|entry| back.join(entry));
                    recorded = map.latest();
                    prop_assert_eq!(map.all(), back.all());
                }
            }
            map.all().into_iter().for_each(|entry| back.join(entry));
            prop_assert_eq!(map.all(), back.all());
            prop_assert_eq!(map.entries.len(), map.order.len());
            prop_assert_eq!(map.groups.values().map(BTreeSet::len).sum::<usize>(), map.order.len());
        }
    }

    #[test]
    fn a_busy_group_evicts_nothing_of_others_while_there_is_room() {
        let mut map = Map::new(BOUNDS);
        map.update(&(0, 0), 1, |value| *value = 9);
        (2..50).for_each(|lsn| map.update(&(1, lsn as u8), lsn, |_| {}));
        assert_eq!(map.get(&(0, 0)), Some(&9));
        assert_eq!(map.keys(&1).count(), 3);
    }

    #[test]
    fn for_weight_others_of_the_group_go_first_and_none_that_weigh_nothing() {
        let mut map = Map::new(LruBounds {
            group_weight: 8,
            weight: 10,
            ..BOUNDS
        });
        let keys = |map: &Map| map.all().iter().map(|entry| (entry.0, entry.1)).collect::<Vec<_>>();
        map.update(&(9, 0), 1, |_| {});
        for lsn in 2..5 {
            map.update(&(1, lsn as u8), lsn, |value| *value = 3);
        }
        assert_eq!((keys(&map), map.weight), (vec![(9, 0), (1, 3), (1, 4)], 6));
        map.update(&(2, 0), 5, |value| *value = 5);
        assert_eq!((keys(&map), map.weight), (vec![(9, 0), (1, 4), (2, 0)], 8));
        map.shrink(&(1, 4), |value| *value = 0);
        map.update(&(3, 0), 6, |value| *value = 100);
        assert_eq!((keys(&map), map.weight), (vec![(9, 0), (1, 4), (3, 0)], 100));
    }
}
