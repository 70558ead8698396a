//! An insertion-ordered map with FIFO eviction: the entry that was set longest ago makes room.
//!
//! # Invariants
//!
//! - Setting a key makes it the youngest; reading or changing its value does not.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(super) struct RecentKeys<V> {
    by_key: HashMap<Arc<str>, (u64, V)>,
    order: BTreeMap<u64, Arc<str>>,
    /// The number of the youngest.
    last: u64,
}

impl<V> Default for RecentKeys<V> {
    fn default() -> Self {
        Self {
            by_key: HashMap::new(),
            order: BTreeMap::new(),
            last: 0,
        }
    }
}

impl<V> RecentKeys<V> {
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn get(&self, key: &str) -> Option<&V> {
        self.by_key.get(key).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        self.by_key.get_mut(key).map(|(_, value)| value)
    }

    /// Sets the value of a key; gives back the one before.
    pub(super) fn set(&mut self, key: &str, value: V) -> Option<V> {
        let before = self.remove(key);
        let key: Arc<str> = key.into();
        self.last += 1;
        self.order.insert(self.last, Arc::clone(&key));
        self.by_key.insert(key, (self.last, value));
        before
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<V> {
        let (number, value) = self.by_key.remove(key)?;
        self.order.remove(&number);
        Some(value)
    }

    /// Values, the oldest first.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.order.values().filter_map(|key| self.get(key))
    }

    /// Takes out the oldest.
    pub(super) fn pop_oldest(&mut self) -> Option<V> {
        let (_, key) = self.order.pop_first()?;
        self.by_key.remove(&key).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_key_that_was_set_longest_ago_is_the_oldest() {
        let mut keys = RecentKeys::default();
        for key in ["a", "b", "c"] {
            assert_eq!(keys.set(key, key), None);
        }
        assert_eq!(keys.set("a", "again"), Some("a"));
        *keys.get_mut("b").unwrap() = "changed";
        assert_eq!(keys.values().copied().collect::<Vec<_>>(), ["changed", "c", "again"]);
        assert_eq!(keys.remove("c"), Some("c"));
        assert_eq!((keys.pop_oldest(), keys.len()), (Some("changed"), 1));
        assert_eq!((keys.pop_oldest(), keys.pop_oldest()), (Some("again"), None));
    }
}
