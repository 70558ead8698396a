//! API tokens in the registry.
//!
//! | table | key | value |
//! |---|---|---|
//! | `tokens` | SHA-256 of the token (32 bytes) | CBOR [`TokenRow`] |
//! | `token_uses` | the same | when it was last used, in microseconds since 1970 |
//!
//! # Invariants
//!
//! - No secret is in either table.
//! - A revoked token has no row; the audit log tells of it.
//!
//! Not here: what a token opens (`access`).

use model::{Timestamp, Token};
use redb::{ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};

use super::{ClusterRegistry, RegistryError, RegistryTransaction, db, from_cbor, to_cbor};
use crate::access::{AccessRole, AccessScope, ScramVerifier, TokenDigest};

const TOKENS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("tokens");
const USES: TableDefinition<&[u8], i64> = TableDefinition::new("token_uses");

/// What is kept of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenRow {
    /// Unique among the tokens that there are.
    pub(crate) name: Token,
    pub(crate) roles: Vec<AccessRole>,
    pub(crate) scope: AccessScope,
    pub(crate) created: Timestamp,
    /// Who made it.
    pub(crate) created_by: String,
    /// From then on it opens nothing.
    pub(crate) expires: Option<Timestamp>,
    pub(crate) scram: ScramVerifier,
}

fn digest(key: &[u8]) -> Result<TokenDigest, RegistryError> {
    let bytes = key.try_into().map_err(|_| RegistryError::Damaged {
        what: "token",
        reason: format!("its key has {} bytes, not 32", key.len()),
    })?;
    Ok(TokenDigest(bytes))
}

impl ClusterRegistry {
    /// Every token, and when each was last used.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub(crate) fn tokens(&self) -> Result<Vec<(TokenDigest, TokenRow, Option<Timestamp>)>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let (tokens, uses) = (read.open_table(TOKENS).map_err(db)?, read.open_table(USES).map_err(db)?);
        let mut found = Vec::new();
        for row in tokens.iter().map_err(db)? {
            let (key, value) = row.map_err(db)?;
            let used = uses.get(key.value()).map_err(db)?;
            let used = used.map(|at| Timestamp::from_micros(at.value()));
            found.push((digest(key.value())?, from_cbor("token", value.value())?, used));
        }
        Ok(found)
    }
}

impl RegistryTransaction<'_> {
    pub(super) fn create_tokens(&self) -> Result<(), RegistryError> {
        self.transaction.open_table(TOKENS).map_err(db)?;
        self.transaction.open_table(USES).map_err(db)?;
        Ok(())
    }

    /// Keeps a token.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub(crate) fn put_token(&self, digest: TokenDigest, row: &TokenRow) -> Result<(), RegistryError> {
        let mut table = self.transaction.open_table(TOKENS).map_err(db)?;
        table
            .insert(digest.0.as_slice(), to_cbor("token", row)?.as_slice())
            .map_err(db)?;
        Ok(())
    }

    /// Forgets a token.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub(crate) fn remove_token(&self, digest: TokenDigest) -> Result<(), RegistryError> {
        let mut tokens = self.transaction.open_table(TOKENS).map_err(db)?;
        tokens.remove(digest.0.as_slice()).map_err(db)?;
        let mut uses = self.transaction.open_table(USES).map_err(db)?;
        uses.remove(digest.0.as_slice()).map_err(db)?;
        Ok(())
    }

    /// Remembers when a token was last used; one that was revoked since then is not known again by it.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub(crate) fn set_token_use(&self, digest: TokenDigest, at: Timestamp) -> Result<(), RegistryError> {
        let tokens = self.transaction.open_table(TOKENS).map_err(db)?;
        if tokens.get(digest.0.as_slice()).map_err(db)?.is_none() {
            return Ok(());
        }
        let mut uses = self.transaction.open_table(USES).map_err(db)?;
        uses.insert(digest.0.as_slice(), at.micros()).map_err(db)?;
        Ok(())
    }
}
