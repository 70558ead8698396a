//! The access-control list: the Racks that the bus is to know.
//!
//! # Not here
//!
//! Who is on it ([`crate::scenario::BusAcl`]), what they may do (`account_plan`).

use std::collections::{BTreeMap, BTreeSet};

use model::{EntityId, Token};

/// A Rack as the bus knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AclEntry {
    /// Its public key for the bus.
    pub(crate) key: String,
    pub(crate) entity_id: EntityId,
    pub(crate) name: Token,
    /// Whether it may do more than ask for admission.
    pub(crate) adopted: bool,
    /// Its consumers on the stream of business messages.
    pub(crate) consumers: Vec<String>,
}

/// The list of everybody, and how often it changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AclSnapshot {
    pub(crate) version: u64,
    pub(crate) entries: Vec<AclEntry>,
    /// Whose names are whose.
    pub(crate) owners: BTreeMap<Token, EntityId>,
    /// The Racks that are removed.
    pub(crate) removed: BTreeSet<EntityId>,
}

impl AclSnapshot {
    /// The keys of the Racks on the list.
    pub(super) fn keys(&self) -> BTreeSet<String> {
        self.entries.iter().map(|entry| entry.key.clone()).collect()
    }
}
