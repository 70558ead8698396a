//! The wires of lane guaranteed: their start or resume positions on the stream of business messages.
//!
//! # Invariants
//!
//! - A wire has an entry before its consumer is made, so that a consumer which was lost is made anew from where its wire began: what its
//!   Rack has is told apart by its numbers, what it has not is there.
//! - A wire that is not in force is paused: it has no consumer, and its entry has the first message that it has not taken.
//! - An entry says whose wire it is: who may pull from it and that it is wanted is known also where its scenario cannot be read.

use std::collections::BTreeMap;
use std::time::Duration;

use model::scenario::{GearPort, OverflowPolicy};
use model::{HumanDuration, Timestamp, Token};
use redb::{ReadableDatabase, ReadableTable, TableDefinition, TableError};
use serde::{Deserialize, Serialize};

use super::{ClusterRegistry, RegistryError, RegistryTransaction, db, from_cbor, to_cbor};

const WIRES: TableDefinition<&str, &[u8]> = TableDefinition::new("wires");

/// A wire of lane guaranteed, as its receiving end has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireRow {
    /// When the stream was created, in µs ([`Self::life`]): another one of the same name has other sequences.
    pub(crate) stream: i64,
    /// The first sequence that is the wire's.
    pub(crate) sequence: u64,
    /// The name of the Rack that the wire ends at; none until a scenario in force has it.
    pub(crate) rack: Option<Token>,
    /// The subject of its messages.
    pub(crate) filter: String,
    /// For people.
    pub(crate) description: String,
    /// Whether it is not in force: `sequence` is where it goes on.
    pub(crate) is_paused: bool,
    /// Whether another wire took over from it, and it ends as soon as no Rack that is there runs it.
    pub(crate) ends: bool,
    /// Its consumer, where that has not the wire's own name: a wire that took over from another one of its Rack goes on with that
    /// one's, and a name that is in use is not used again.
    pub(crate) consumer: Option<String>,
    /// The gear that it ends at; none until a scenario in force has it.
    pub(crate) to: Option<GearPort>,
    /// What may wait for it.
    pub(crate) bounds: WireBounds,
    /// When a Rack left the name that the wire is for, if its consumer was not made anew since.
    #[serde(default)]
    pub(crate) left: Option<Timestamp>,
}

/// What may wait for the receiver of a wire, as its scenario says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireBounds {
    pub(crate) max_bytes: Option<u64>,
    pub(crate) max_age: Option<HumanDuration>,
    pub(crate) overflow: OverflowPolicy,
}

impl WireRow {
    /// The consumer of the wire of this name.
    pub(crate) fn consumer<'a>(&'a self, wire: &'a str) -> &'a str {
        self.consumer.as_deref().unwrap_or(wire)
    }

    /// What tells a stream from another one of the same name, by when it was created, in ns.
    pub(crate) fn life(created: i128) -> i64 {
        i64::try_from(created / 1_000).unwrap_or(i64::MAX)
    }
}

impl ClusterRegistry {
    /// Every wire, by its name.
    pub(crate) fn wires(&self) -> Result<BTreeMap<String, WireRow>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let wires = match read.open_table(WIRES) {
            Ok(wires) => wires,
            // No wire was ever made.
            Err(TableError::TableDoesNotExist(_)) => return Ok(BTreeMap::new()),
            Err(error) => return Err(db(error)),
        };
        let mut all = BTreeMap::new();
        for entry in wires.iter().map_err(db)? {
            let (name, row) = entry.map_err(db)?;
            all.insert(name.value().to_owned(), from_cbor("wire", row.value())?);
        }
        Ok(all)
    }
}

impl ClusterRegistry {
    /// The wire of this name.
    pub(crate) fn wire(&self, name: &str) -> Result<Option<WireRow>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let wires = match read.open_table(WIRES) {
            Ok(wires) => wires,
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(db(error)),
        };
        let row = wires.get(name).map_err(db)?;
        row.map(|row| from_cbor("wire", row.value())).transpose()
    }
}

impl RegistryTransaction<'_> {
    /// Writes a wire down that was known as `was`: where it was moved since ([`Self::move_wire`]), it does not go back, and that its
    /// Rack has left it stays known ([`Self::leave_wires`]).
    pub(crate) fn put_wire(&self, name: &str, row: &WireRow, was: Option<&WireRow>) -> Result<(), RegistryError> {
        let mut wires = self.transaction.open_table(WIRES).map_err(db)?;
        let before = wires.get(name).map_err(db)?;
        let before = before
            .map(|row| from_cbor::<WireRow>("wire", row.value()))
            .transpose()?;
        let has_moved = |before: &WireRow| {
            let is_same = (before.stream, before.consumer(name)) == (row.stream, row.consumer(name));
            is_same && was.is_some_and(|was| was.sequence < before.sequence)
        };
        let mut row = row.clone();
        row.left = row.left.max(before.as_ref().and_then(|before| before.left));
        if let Some(before) = before.filter(has_moved) {
            row.sequence = row.sequence.max(before.sequence);
        }
        wires.insert(name, to_cbor("wire", &row)?.as_slice()).map_err(db)?;
        Ok(())
    }

    /// A wire in force, on this stream and with this consumer, has nothing more to take before this sequence. False if there is no such
    /// wire.
    pub(crate) fn move_wire(
        &self,
        name: &str,
        (stream, consumer): &(i64, String),
        sequence: u64,
    ) -> Result<bool, RegistryError> {
        let mut wires = self.transaction.open_table(WIRES).map_err(db)?;
        let row = wires.get(name).map_err(db)?;
        let row = row.map(|row| from_cbor::<WireRow>("wire", row.value())).transpose()?;
        let is_it =
            |row: &WireRow| !row.is_paused && !row.ends && row.stream == *stream && row.consumer(name) == consumer;
        let Some(mut row) = row.filter(is_it) else {
            return Ok(false);
        };
        row.sequence = row.sequence.max(sequence);
        wires.insert(name, to_cbor("wire", &row)?.as_slice()).map_err(db)?;
        Ok(true)
    }

    /// A Rack has left this name: the consumers of the wires that are for it are to be made anew. False if there are none.
    pub(crate) fn leave_wires(&self, rack: &Token, now: Timestamp) -> Result<bool, RegistryError> {
        let mut wires = self.transaction.open_table(WIRES).map_err(db)?;
        let mut left = Vec::new();
        for entry in wires.iter().map_err(db)? {
            let (name, row) = entry.map_err(db)?;
            let row: WireRow = from_cbor("wire", row.value())?;
            if row.rack.as_ref() == Some(rack) && !row.is_paused {
                // Later than the time before, whatever the clock says: what is done by then is not done for this one.
                let after = row.left.map(|before| before.plus(Duration::from_micros(1)));
                let at = after.map_or(now, |after| after.max(now));
                left.push((name.value().to_owned(), WireRow { left: Some(at), ..row }));
            }
        }
        for (name, row) in &left {
            wires
                .insert(name.as_str(), to_cbor("wire", row)?.as_slice())
                .map_err(db)?;
        }
        Ok(!left.is_empty())
    }

    /// A wire has the consumer of one that was left then.
    pub(crate) fn leave_wire(&self, name: &str, left: Timestamp) -> Result<(), RegistryError> {
        self.change_left(name, |before| before.max(Some(left)))
    }

    /// The consumer of a wire was made anew since its Rack left it then.
    pub(crate) fn consumer_renewed(&self, name: &str, left: Timestamp) -> Result<(), RegistryError> {
        self.change_left(name, |before| before.filter(|before| *before != left))
    }

    fn change_left(
        &self,
        name: &str,
        change: impl FnOnce(Option<Timestamp>) -> Option<Timestamp>,
    ) -> Result<(), RegistryError> {
        let mut wires = self.transaction.open_table(WIRES).map_err(db)?;
        let row = wires.get(name).map_err(db)?;
        let row = row.map(|row| from_cbor::<WireRow>("wire", row.value())).transpose()?;
        if let Some(mut row) = row {
            row.left = change(row.left);
            wires.insert(name, to_cbor("wire", &row)?.as_slice()).map_err(db)?;
        }
        Ok(())
    }

    /// These wires begin anew if they are paused.
    pub(crate) fn forget_paused(&self, names: &[String]) -> Result<(), RegistryError> {
        if names.is_empty() {
            return Ok(());
        }
        let mut wires = self.transaction.open_table(WIRES).map_err(db)?;
        for name in names {
            let row = wires.get(name.as_str()).map_err(db)?;
            let row = row.map(|row| from_cbor::<WireRow>("wire", row.value())).transpose()?;
            if row.is_some_and(|row| row.is_paused) {
                wires.remove(name.as_str()).map_err(db)?;
            }
        }
        Ok(())
    }

    /// A wire that is gone, as it was.
    pub(crate) fn forget_wire(&self, name: &str) -> Result<Option<WireRow>, RegistryError> {
        let mut wires = self.transaction.open_table(WIRES).map_err(db)?;
        let gone = wires.remove(name).map_err(db)?;
        gone.map(|row| from_cbor("wire", row.value())).transpose()
    }
}

/// Where a stream stood.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StreamMarks {
    /// Which stream ([`WireRow::life`]).
    pub(crate) stream: i64,
    /// Times in µs, and the last sequences then, the oldest first.
    pub(crate) marks: Vec<(i64, u64)>,
    /// The time of a look, in µs, which the marks belong to.
    pub(crate) looked: Option<i64>,
}
