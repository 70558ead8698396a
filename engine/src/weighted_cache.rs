//! A weighted CLOCK cache for pages, footers and file handles, bounded by the sum of their weights.
//!
//! # Invariants
//!
//! - A value that was used since the hand last passed it gets another turn, and a new value is not evicted to make room for itself.
//!   Making room takes constant time for each evicted value.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use parking_lot::Mutex;

/// Values and what they weigh, up to a sum of weights; one is kept however heavy it is.
#[derive(Debug)]
pub struct WeightedCache<K, V> {
    most: usize,
    inner: Mutex<CacheContents<K, V>>,
}

#[derive(Debug)]
struct CacheContents<K, V> {
    values: HashMap<K, WeightedEntry<V>>,
    /// In the order of their turns, each with the number of the entry it means: one that was forgotten leaves its turn behind.
    turns: VecDeque<(K, u64)>,
    weight: usize,
    entered: u64,
}

#[derive(Debug)]
struct WeightedEntry<V> {
    value: V,
    weight: usize,
    number: u64,
    used: bool,
}

impl<K: Copy + Eq + Hash, V: Clone> WeightedCache<K, V> {
    /// Nothing yet; `most` is the sum of weights that may be kept.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most,
            inner: Mutex::new(CacheContents {
                values: HashMap::new(),
                turns: VecDeque::new(),
                weight: 0,
                entered: 0,
            }),
        }
    }

    /// The value of a key, if it is still kept.
    #[must_use]
    pub fn get(&self, key: K) -> Option<V> {
        let mut inner = self.inner.lock();
        let entry = inner.values.get_mut(&key)?;
        entry.used = true;
        Some(entry.value.clone())
    }

    /// The value of a key, made by `load` with its weight if it is not kept. Two callers may make it at once.
    pub(crate) fn get_or<E>(&self, key: K, load: impl FnOnce() -> Result<(V, usize), E>) -> Result<V, E> {
        if let Some(value) = self.get(key) {
            return Ok(value);
        }
        let (value, weight) = load()?;
        self.put(key, value.clone(), weight);
        Ok(value)
    }

    /// Keeps a value in place of the one that the key had.
    pub fn put(&self, key: K, value: V, weight: usize) {
        // What goes is dropped without the lock: closing a file may take a while.
        let gone = self.inner.lock().put(key, value, weight, self.most);
        drop(gone);
    }

    /// Whether a value of such a weight can be kept without another one going.
    #[must_use]
    pub fn has_room(&self, weight: usize) -> bool {
        let inner = self.inner.lock();
        inner.weight.saturating_add(weight) <= self.most
    }

    /// Nobody asks for the key any more.
    pub fn forget(&self, key: K) {
        let gone = self.inner.lock().remove(key);
        drop(gone);
    }
}

impl<K: Copy + Eq + Hash, V> CacheContents<K, V> {
    fn put(&mut self, key: K, value: V, weight: usize, most: usize) -> Vec<V> {
        let mut gone: Vec<V> = self.remove(key).into_iter().collect();
        self.entered += 1;
        let entry = WeightedEntry {
            value,
            weight,
            number: self.entered,
            used: false,
        };
        self.values.insert(key, entry);
        self.turns.push_back((key, self.entered));
        self.weight += weight;
        while self.weight > most && self.values.len() > 1 {
            let Some((next, number)) = self.turns.pop_front() else {
                break;
            };
            match self.values.get_mut(&next) {
                Some(entry) if entry.number == number && (entry.used || next == key) => {
                    entry.used = false;
                    self.turns.push_back((next, number));
                }
                Some(entry) if entry.number == number => gone.extend(self.remove(next)),
                _ => {}
            }
        }
        gone
    }

    fn remove(&mut self, key: K) -> Option<V> {
        let entry = self.values.remove(&key)?;
        self.weight -= entry.weight;
        if self.turns.len() > 2 * self.values.len() + 64 {
            let values = &self.values;
            self.turns
                .retain(|(key, number)| values.get(key).is_some_and(|entry| entry.number == *number));
        }
        Some(entry.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_stays_and_what_was_not_goes_first() {
        let kept = WeightedCache::new(3);
        for id in 1..=3 {
            kept.put((id, 1), id, 1);
        }
        kept.put((4, 1), 4, 1);
        assert_eq!(kept.get((1, 1)), None);
        assert_eq!(kept.get((2, 1)), Some(2));
        kept.put((5, 1), 5, 1);
        assert_eq!((kept.get((2, 1)), kept.get((3, 1))), (Some(2), None));
    }

    #[test]
    fn a_value_is_loaded_when_it_is_not_kept_and_the_least_recently_used_goes_first() {
        let kept = WeightedCache::new(20);
        let loads = std::cell::Cell::new(0);
        let get = |key| {
            let load = || {
                loads.set(loads.get() + 1);
                Ok::<_, ()>(("footer", 10))
            };
            assert_eq!(kept.get_or(key, load), Ok("footer"));
            loads.get()
        };
        assert_eq!((get((1, 1)), get((1, 2)), get((1, 1))), (1, 2, 2));
        assert_eq!(get((2, 1)), 3);
        assert_eq!(get((1, 1)), 3, "used after (1, 2)");
        assert_eq!(get((1, 2)), 4, "it had to go");
    }

    #[test]
    fn versions_are_apart_a_forgotten_one_is_gone_and_one_is_kept_however_heavy() {
        let kept = WeightedCache::new(2);
        kept.put((1, 1), "a", 1);
        kept.put((1, 2), "b", 1);
        assert_eq!((kept.get((1, 1)), kept.get((1, 2))), (Some("a"), Some("b")));
        kept.forget((1, 1));
        assert_eq!((kept.get((1, 1)), kept.get((1, 2))), (None, Some("b")));
        kept.put((2, 1), "heavy", 100);
        assert_eq!((kept.get((2, 1)), kept.get((1, 2))), (Some("heavy"), None));
    }

    #[test]
    fn what_is_forgotten_again_and_again_leaves_nothing_behind() {
        let kept = WeightedCache::new(10);
        kept.put((0, 1), 0, 1);
        for version in 1..10_000 {
            kept.put((1, version), 0, 1);
            kept.forget((1, version));
        }
        let inner = kept.inner.lock();
        assert!(inner.turns.len() < 200, "{}", inner.turns.len());
        assert_eq!((inner.values.len(), inner.weight), (1, 1));
    }
}
