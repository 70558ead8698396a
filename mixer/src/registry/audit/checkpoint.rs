//! Checkpoints of the audit log's hash chain in the registry: what the cluster signed, and of which entry.
//!
//! Invariant: there is one for an entry at the most, and none is changed.
//!
//! Not here: when one is made and whom it is told ([`crate::audit_keeper`]).

use ed25519_dalek::SigningKey;
use model::audit_chain::AuditCheckpoint;
use model::{ClusterId, KeyFingerprint, Timestamp};
use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CHAIN_HEAD, ChainHead};
use crate::registry::{ClusterRegistry, RegistryError, RegistryTransaction, db, from_cbor, to_cbor};

const CHECKPOINTS: TableDefinition<u64, &[u8]> = TableDefinition::new("checkpoints");

/// So many are kept: those of more than a year.
pub(super) const MAX_CHECKPOINTS: u64 = 10_000;

/// A checkpoint: in the registry, in the log, in its event, and in the API's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SignedCheckpoint {
    /// The number of the last entry of the chain then.
    pub(crate) id: u64,
    /// When it was signed, by the Mixer's clock.
    pub(crate) ts: Timestamp,
    /// The link of that entry.
    pub(crate) chain: String,
    /// The same, signed (hexadecimal digits).
    pub(crate) signed: String,
    /// The cluster's public key of then (hexadecimal digits).
    pub(crate) signed_by: String,
}

/// The keys that may have signed checkpoints, as the API shows them beside those.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct KeyHistory {
    /// The fingerprint of the cluster's key.
    pub(crate) cluster_key: KeyFingerprint,
    /// The links from the keys of before, the oldest first: [`model::key_succession::KeySuccession`], signed (hexadecimal digits).
    pub(crate) successions: Vec<String>,
}

impl ClusterRegistry {
    /// The cluster's key and those before it.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub(crate) fn key_history(&self) -> Result<KeyHistory, RegistryError> {
        let damaged = |reason| RegistryError::Damaged {
            what: "cluster",
            reason,
        };
        let identity = self.cluster_identity()?;
        let identity = identity.ok_or_else(|| damaged("it is not there".to_owned()))?;
        let links = identity.successions.iter().map(|link| {
            let bytes = link.to_bytes().map_err(|error| damaged(error.to_string()));
            bytes.map(|bytes| model::hex::encode(&bytes))
        });
        Ok(KeyHistory {
            cluster_key: KeyFingerprint::of(&identity.public_key),
            successions: links.collect::<Result<_, _>>()?,
        })
    }

    /// The checkpoints below a number, the newest first.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub(crate) fn audit_checkpoints(&self, below: u64, limit: usize) -> Result<Vec<SignedCheckpoint>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let table = read.open_table(CHECKPOINTS).map_err(db)?;
        let newest = table.range(..below).map_err(db)?.rev().take(limit);
        newest
            .map(|row| from_cbor("audit checkpoint", row.map_err(db)?.1.value()))
            .collect()
    }
}

impl RegistryTransaction<'_> {
    pub(super) fn create_checkpoints(&self) -> Result<(), RegistryError> {
        self.transaction.open_table(CHECKPOINTS).map_err(db)?;
        Ok(())
    }

    /// Signs the head of the chain, unless that was done.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub(crate) fn checkpoint(
        &self,
        (cluster_id, ts): (ClusterId, Timestamp),
        key: &SigningKey,
    ) -> Result<Option<SignedCheckpoint>, RegistryError> {
        let Some(ChainHead { id, chain }) = self.meta(CHAIN_HEAD)? else {
            return Ok(None);
        };
        let mut table = self.transaction.open_table(CHECKPOINTS).map_err(db)?;
        if table.get(id).map_err(db)?.is_some() {
            return Ok(None);
        }
        let head = AuditCheckpoint {
            cluster_id,
            ts,
            id,
            chain: chain.clone(),
        };
        let signed = head.sign(key).map_err(|error| RegistryError::Damaged {
            what: "audit checkpoint",
            reason: error.to_string(),
        })?;
        let signed = model::hex::encode(&signed);
        let row = SignedCheckpoint {
            id,
            ts,
            chain,
            signed,
            signed_by: model::hex::encode(key.verifying_key().as_bytes()),
        };
        let bytes = to_cbor("audit checkpoint", &row)?;
        table.insert(id, bytes.as_slice()).map_err(db)?;
        while table.len().map_err(db)? > MAX_CHECKPOINTS {
            table.pop_first().map_err(db)?;
        }
        Ok(Some(row))
    }
}
