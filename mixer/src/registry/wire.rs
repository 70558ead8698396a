//! Where each wire of lane guaranteed begins on the stream of business messages.
//!
//! # Invariants
//!
//! - A wire has an entry before its consumer is made, so that a consumer which was lost is made anew from where its wire began: what its
//!   Rack has is told apart by its numbers, what it has not is there.
//! - An entry says whose wire it is: who may pull from it and that it is wanted is known also where its scenario cannot be read.

use std::collections::BTreeMap;

use model::Token;
use redb::{ReadableDatabase, ReadableTable, TableDefinition, TableError};
use serde::{Deserialize, Serialize};

use super::{Change, Registry, RegistryError, db, from_cbor, to_cbor};

const WIRES: TableDefinition<&str, &[u8]> = TableDefinition::new("wires");

/// A place on a stream, and the Rack that pulls from there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireStart {
    /// When the stream was created, in µs ([`Self::life`]): another one of the same name has other sequences.
    pub(crate) stream: i64,
    /// The first sequence that is the wire's.
    pub(crate) sequence: u64,
    /// The name of the Rack that the wire ends at; none in what older programs wrote.
    #[serde(default)]
    pub(crate) rack: Option<Token>,
}

impl WireStart {
    /// What tells a stream from another one of the same name, by when it was created, in ns.
    pub(crate) fn life(created: i128) -> i64 {
        i64::try_from(created / 1_000).unwrap_or(i64::MAX)
    }
}

impl Registry {
    /// Every wire's beginning, by its consumer's name.
    pub(crate) fn wires(&self) -> Result<BTreeMap<String, WireStart>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let wires = match read.open_table(WIRES) {
            Ok(wires) => wires,
            // No wire was ever made.
            Err(TableError::TableDoesNotExist(_)) => return Ok(BTreeMap::new()),
            Err(error) => return Err(db(error)),
        };
        let mut all = BTreeMap::new();
        for entry in wires.iter().map_err(db)? {
            let (name, start) = entry.map_err(db)?;
            all.insert(name.value().to_owned(), from_cbor("wire", start.value())?);
        }
        Ok(all)
    }
}

impl Change<'_> {
    /// Says where a wire begins.
    pub(crate) fn put_wire(&self, consumer: &str, start: &WireStart) -> Result<(), RegistryError> {
        let mut wires = self.transaction.open_table(WIRES).map_err(db)?;
        wires.insert(consumer, to_cbor("wire", start)?.as_slice()).map_err(db)?;
        Ok(())
    }

    /// A wire that is gone.
    pub(crate) fn forget_wire(&self, consumer: &str) -> Result<(), RegistryError> {
        let mut wires = self.transaction.open_table(WIRES).map_err(db)?;
        wires.remove(consumer).map_err(db)?;
        Ok(())
    }
}
