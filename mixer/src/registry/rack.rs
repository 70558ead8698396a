//! Racks in the registry: the row and its two indexes, by key and by name.

use std::collections::BTreeMap;

use model::control::RackState;
use model::{EntityId, Timestamp, Token};
use redb::{ReadableDatabase, ReadableTable};
use serde::{Deserialize, Serialize};

use super::{
    ClusterRegistry, KEYS, NAMES, PREFIXES, RACKS, RegistryError, RegistryTransaction, db, from_cbor, to_cbor,
};

/// What the registry keeps of a Rack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RackRow {
    /// Its identity.
    pub entity_id: EntityId,
    /// Its name, unique among the Racks that are not removed.
    pub name: Token,
    /// The name or prefix it asked for last; when it asks for another, it is renamed.
    pub claimed: String,
    /// Its Ed25519 public key (32 bytes).
    pub rack_key: Vec<u8>,
    /// Pending, active, suspended or removed; offline is never stored.
    pub state: RackState,
    /// The counter of the last passport issued; 0 before the first.
    pub counter: u64,
    /// The highest counter the Rack has shown; a lower one is stale.
    pub confirmed: u64,
    /// The first handshake.
    pub first_seen: Timestamp,
    /// The last sign of life that was written down.
    pub last_seen: Timestamp,
    /// How often its heartbeat is due, in milliseconds.
    pub interval_ms: u64,
    /// Its host name.
    pub host: String,
    /// Its primary address, as text.
    pub ip: String,
    /// Its program's version.
    pub software: String,
    /// Labels given by operators.
    pub labels: BTreeMap<String, String>,
    /// That it is owed its part of the active scenario by the name and the labels that it has now, until it runs it: the labels by
    /// which it works meanwhile.
    pub relabelled: Option<BTreeMap<String, String>>,
    /// The content hash of the scenario it ran last.
    pub scenario: Option<String>,
    /// Whether it missed three heartbeats and was not heard since: what the last sighting in the audit log says.
    pub offline: bool,
    /// Its public key for the bus (an nkey of a user), if it has told one.
    pub bus_key: Option<String>,
    /// Its run, as of its last handshake, and the number of the last heartbeat of it that was written down.
    pub heard: Option<(u64, u64)>,
}

/// What is known of a Rack's heartbeats when it says in a handshake that it is in this run: nothing of other runs counts.
pub(crate) fn begun(heard: Option<(u64, u64)>, run: Option<u64>) -> Option<(u64, u64)> {
    let run = run?;
    Some(heard.filter(|(known, _)| *known == run).unwrap_or((run, 0)))
}

impl RackRow {
    /// Whether it was admitted: active or suspended.
    #[must_use]
    pub const fn is_adopted(&self) -> bool {
        matches!(self.state, RackState::Active | RackState::Suspended)
    }
}

fn row(bytes: &[u8]) -> Result<RackRow, RegistryError> {
    from_cbor("rack", bytes)
}

fn entity(bytes: &[u8]) -> Result<EntityId, RegistryError> {
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| RegistryError::Damaged {
        what: "rack index",
        reason: "not 16 bytes".to_owned(),
    })?;
    Ok(EntityId::from_bytes(bytes))
}

impl ClusterRegistry {
    /// A Rack by identity.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn rack(&self, id: &EntityId) -> Result<Option<RackRow>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let racks = read.open_table(RACKS).map_err(db)?;
        let found = racks.get(id.as_bytes().as_slice()).map_err(db)?;
        found.map(|bytes| row(bytes.value())).transpose()
    }

    /// A Rack by name; removed ones have none.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn rack_named(&self, name: &Token) -> Result<Option<RackRow>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let names = read.open_table(NAMES).map_err(db)?;
        let Some(id) = names.get(name.as_str()).map_err(db)? else {
            return Ok(None);
        };
        self.rack(&entity(id.value())?)
    }

    /// Every Rack, by identity (the order of first handshakes).
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn racks(&self) -> Result<Vec<RackRow>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let racks = read.open_table(RACKS).map_err(db)?;
        racks
            .iter()
            .map_err(db)?
            .map(|entry| row(entry.map_err(db)?.1.value()))
            .collect()
    }
}

impl RegistryTransaction<'_> {
    /// A Rack by identity, as of this change.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn rack(&self, id: &EntityId) -> Result<Option<RackRow>, RegistryError> {
        let racks = self.transaction.open_table(RACKS).map_err(db)?;
        let found = racks.get(id.as_bytes().as_slice()).map_err(db)?;
        found.map(|bytes| row(bytes.value())).transpose()
    }

    /// A Rack by public key.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn rack_with_key(&self, key: &[u8]) -> Result<Option<RackRow>, RegistryError> {
        let id = {
            let keys = self.transaction.open_table(KEYS).map_err(db)?;
            let found = keys.get(key).map_err(db)?;
            found.map(|id| entity(id.value())).transpose()?
        };
        id.map_or(Ok(None), |id| self.rack(&id))
    }

    /// Who has a name.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn holder(&self, name: &Token) -> Result<Option<EntityId>, RegistryError> {
        let names = self.transaction.open_table(NAMES).map_err(db)?;
        let found = names.get(name.as_str()).map_err(db)?;
        found.map(|id| entity(id.value())).transpose()
    }

    /// Which Rack that is not removed has a key for the bus.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn bus_key_holder(&self, key: &str) -> Result<Option<EntityId>, RegistryError> {
        let racks = self.transaction.open_table(RACKS).map_err(db)?;
        for entry in racks.iter().map_err(db)? {
            let row = row(entry.map_err(db)?.1.value())?;
            if row.state != RackState::Removed && row.bus_key.as_deref() == Some(key) {
                return Ok(Some(row.entity_id));
            }
        }
        Ok(None)
    }

    /// How many Racks wait for approval, and which of them was not heard of for the longest time.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn pending(&self) -> Result<(usize, Option<RackRow>), RegistryError> {
        let racks = self.transaction.open_table(RACKS).map_err(db)?;
        let (mut count, mut stalest) = (0, None::<RackRow>);
        for entry in racks.iter().map_err(db)? {
            let row = row(entry.map_err(db)?.1.value())?;
            if row.state == RackState::Pending {
                count += 1;
                stalest = Some(
                    stalest
                        .filter(|stalest| stalest.last_seen <= row.last_seen)
                        .unwrap_or(row),
                );
            }
        }
        Ok((count, stalest))
    }

    /// Forgets a Rack that was never adopted.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn forget_rack(&self, rack: &RackRow) -> Result<(), RegistryError> {
        let mut racks = self.transaction.open_table(RACKS).map_err(db)?;
        racks.remove(rack.entity_id.as_bytes().as_slice()).map_err(db)?;
        let mut keys = self.transaction.open_table(KEYS).map_err(db)?;
        keys.remove(rack.rack_key.as_slice()).map_err(db)?;
        let mut names = self.transaction.open_table(NAMES).map_err(db)?;
        names.remove(rack.name.as_str()).map_err(db)?;
        Ok(())
    }

    /// The last number of a name prefix that an adopted Rack has, or had.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn last_number(&self, prefix: &Token) -> Result<u64, RegistryError> {
        let prefixes = self.transaction.open_table(PREFIXES).map_err(db)?;
        let last = prefixes.get(prefix.as_str()).map_err(db)?;
        Ok(last.map_or(0, |number| number.value()))
    }

    /// A number of a name prefix is an adopted Rack's: it and those before it are not given out again.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn keep_number(&self, prefix: &str, number: u64) -> Result<(), RegistryError> {
        let mut prefixes = self.transaction.open_table(PREFIXES).map_err(db)?;
        let last = prefixes.get(prefix).map_err(db)?.map_or(0, |last| last.value());
        if number > last {
            prefixes.insert(prefix, number).map_err(db)?;
        }
        Ok(())
    }

    /// Writes a Rack and its indexes. The caller has made sure that the name is free.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn put_rack(&self, rack: &RackRow) -> Result<(), RegistryError> {
        let id = rack.entity_id.as_bytes().as_slice();
        let before = self.rack(&rack.entity_id)?;
        let mut names = self.transaction.open_table(NAMES).map_err(db)?;
        if let Some(before) = before.filter(|before| before.state != RackState::Removed) {
            names.remove(before.name.as_str()).map_err(db)?;
        }
        if rack.state != RackState::Removed {
            names.insert(rack.name.as_str(), id).map_err(db)?;
        }
        let mut keys = self.transaction.open_table(KEYS).map_err(db)?;
        keys.insert(rack.rack_key.as_slice(), id).map_err(db)?;
        let mut racks = self.transaction.open_table(RACKS).map_err(db)?;
        racks.insert(id, to_cbor("rack", rack)?.as_slice()).map_err(db)?;
        Ok(())
    }
}
