//! Which parts of which requests were stored: the last [`REQUESTS_KNOWN`] requests, oldest forgotten first.
//!
//! # Invariants
//!
//! - Bounded: what a sender may repeat is repeated soon, what it never repeats must not stay for ever.
//! - A request is forgotten in the order in which its first part was stored, over restarts and replays too.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::append::REQUESTS_KNOWN;
use crate::{RequestPart, StoredRequest};

/// One request as the catalogue stores it: id, digest, parts stored, when it came among all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stored(Uuid, u64, u32, u64);

#[derive(Debug, Clone, Copy)]
struct Known {
    digest: u64,
    parts: u32,
    /// Its place in the order of coming.
    at: u64,
}

/// The known requests.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    known: HashMap<Uuid, Known>,
    /// Oldest first.
    order: BTreeMap<u64, Uuid>,
    changed: BTreeSet<Uuid>,
}

impl Requests {
    pub(crate) fn contains(&self, part: &RequestPart) -> bool {
        self.known.get(&part.id).is_some_and(|known| part.part < known.parts)
    }

    pub(crate) fn get(&self, id: Uuid) -> Option<StoredRequest> {
        let known = self.known.get(&id)?;
        Some(StoredRequest {
            digest: known.digest,
            parts: known.parts,
        })
    }

    /// Marks a part as stored.
    pub(crate) fn insert(&mut self, part: &RequestPart) {
        let at = self
            .order
            .last_key_value()
            .map_or(0, |(last, _)| last.saturating_add(1));
        self.put(Stored(part.id, part.digest, part.part.saturating_add(1), at));
        self.changed.insert(part.id);
    }

    /// Joins what was stored, without counting it as changed.
    pub(crate) fn join(&mut self, stored: &[Stored]) {
        stored.iter().for_each(|request| self.put(*request));
    }

    fn put(&mut self, Stored(id, digest, parts, at): Stored) {
        if let Some(known) = self.known.get_mut(&id) {
            known.parts = known.parts.max(parts);
            return;
        }
        if self.order.contains_key(&at) {
            // Two requests of one place cannot be: the later one takes the next.
            let next = self
                .order
                .last_key_value()
                .map_or(0, |(last, _)| last.saturating_add(1));
            return self.put(Stored(id, digest, parts, next));
        }
        self.known.insert(id, Known { digest, parts, at });
        self.order.insert(at, id);
        while self.known.len() > REQUESTS_KNOWN {
            let Some((_, oldest)) = self.order.pop_first() else {
                break;
            };
            self.known.remove(&oldest);
            self.changed.remove(&oldest);
        }
    }

    fn stored(&self, id: Uuid) -> Option<Stored> {
        let known = self.known.get(&id)?;
        Some(Stored(id, known.digest, known.parts, known.at))
    }

    /// What changed since it was last taken.
    pub(crate) fn take_changes(&mut self) -> Vec<Stored> {
        let changed = std::mem::take(&mut self.changed);
        let mut changed: Vec<_> = changed.into_iter().filter_map(|id| self.stored(id)).collect();
        changed.sort_by_key(|stored| stored.3);
        changed
    }

    /// Counts requests as changed again.
    pub(crate) fn return_changes(&mut self, changes: &[Stored]) {
        self.changed.extend(changes.iter().map(|stored| stored.0));
    }

    /// All, oldest first.
    pub(crate) fn all(&self) -> Vec<Stored> {
        self.order.values().filter_map(|id| self.stored(*id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(id: u128, part: u32) -> RequestPart {
        RequestPart {
            id: Uuid::from_u128(id),
            digest: 7,
            part,
        }
    }

    #[test]
    fn a_stored_part_is_known_and_the_next_one_is_not() {
        let mut requests = Requests::default();
        assert!(!requests.contains(&part(1, 0)));
        requests.insert(&part(1, 0));
        requests.insert(&part(1, 1));
        assert!(requests.contains(&part(1, 0)) && requests.contains(&part(1, 1)));
        assert!(!requests.contains(&part(1, 2)) && !requests.contains(&part(2, 0)));
        let known = StoredRequest { digest: 7, parts: 2 };
        assert_eq!(requests.get(Uuid::from_u128(1)), Some(known));
    }

    #[test]
    fn the_oldest_are_forgotten_beyond_the_bound_also_by_what_was_stored() {
        let mut requests = Requests::default();
        let mut records = Vec::new();
        let all = REQUESTS_KNOWN as u128 + 10;
        for id in 0..all {
            requests.insert(&part(id, 0));
            if id % 1_000 == 0 {
                records.push(requests.take_changes());
            }
        }
        records.push(requests.take_changes());
        let mut back = Requests::default();
        records.iter().for_each(|changes| back.join(changes));
        for requests in [&requests, &back] {
            assert_eq!(requests.known.len(), REQUESTS_KNOWN);
            assert_eq!(requests.order.len(), REQUESTS_KNOWN);
            assert!(!requests.contains(&part(9, 0)) && requests.contains(&part(10, 0)));
            assert!(requests.contains(&part(all - 1, 0)));
        }
        assert_eq!(requests.all(), back.all());
        assert!(requests.take_changes().is_empty() && back.take_changes().is_empty());
    }
}
