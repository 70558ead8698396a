//! Invites in the registry.
//!
//! | table | key | value |
//! |---|---|---|
//! | `invites` | the invite's public key (32 bytes) | CBOR [`InviteRow`] |
//!
//! # Invariants
//!
//! - The secret of an invite is nowhere: a copy of the registry lets nobody in.
//! - A name has one invite that is open at most. A revoked one has no row; the audit log tells of it.
//!
//! Not here: who may use one (`enrollment`).

use model::{KeyFingerprint, Timestamp, Token};
use redb::{ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};

use super::{ClusterRegistry, RegistryError, RegistryTransaction, db, from_cbor, to_cbor};

const INVITES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("invites");

/// What is kept of an invite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InviteRow {
    /// The public key of its secret (32 bytes).
    pub(crate) key: Vec<u8>,
    /// For whom it is.
    pub(crate) name: Token,
    pub(crate) created: Timestamp,
    /// Who made it.
    pub(crate) created_by: String,
    /// From then on it admits nobody.
    pub(crate) expires: Timestamp,
    /// When a Rack was admitted with it, and that Rack's key.
    pub(crate) used: Option<(Timestamp, KeyFingerprint)>,
    /// How often the audit log tells that somebody was refused with it.
    pub(crate) refused: u8,
}

impl InviteRow {
    /// By what lists and the audit log name it: the beginning of its key's hash.
    pub(crate) fn id(&self) -> String {
        let hash = KeyFingerprint::of(&self.key);
        let (beginning, _) = hash.as_bytes().split_at(6);
        model::hex::encode(beginning)
    }

    /// Whether it still admits somebody.
    pub(crate) fn is_open(&self, now: Timestamp) -> bool {
        self.used.is_none() && now < self.expires
    }
}

impl ClusterRegistry {
    /// Every invite.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub(crate) fn invites(&self) -> Result<Vec<InviteRow>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        all(&read.open_table(INVITES).map_err(db)?)
    }
}

fn all(table: &impl ReadableTable<&'static [u8], &'static [u8]>) -> Result<Vec<InviteRow>, RegistryError> {
    let rows = table.iter().map_err(db)?;
    rows.map(|row| from_cbor("invite", row.map_err(db)?.1.value()))
        .collect()
}

impl RegistryTransaction<'_> {
    pub(super) fn create_invites(&self) -> Result<(), RegistryError> {
        self.transaction.open_table(INVITES).map_err(db)?;
        Ok(())
    }

    /// Every invite, as of this change.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub(crate) fn invites(&self) -> Result<Vec<InviteRow>, RegistryError> {
        all(&self.transaction.open_table(INVITES).map_err(db)?)
    }

    /// The invite with a public key.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub(crate) fn invite(&self, key: &[u8]) -> Result<Option<InviteRow>, RegistryError> {
        let table = self.transaction.open_table(INVITES).map_err(db)?;
        let found = table.get(key).map_err(db)?;
        found.map(|bytes| from_cbor("invite", bytes.value())).transpose()
    }

    /// Keeps an invite.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub(crate) fn put_invite(&self, row: &InviteRow) -> Result<(), RegistryError> {
        let mut table = self.transaction.open_table(INVITES).map_err(db)?;
        let value = to_cbor("invite", row)?;
        table.insert(row.key.as_slice(), value.as_slice()).map_err(db)?;
        Ok(())
    }

    /// Forgets an invite.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub(crate) fn remove_invite(&self, row: &InviteRow) -> Result<(), RegistryError> {
        let mut table = self.transaction.open_table(INVITES).map_err(db)?;
        table.remove(row.key.as_slice()).map_err(db)?;
        Ok(())
    }
}
