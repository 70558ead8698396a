//! API tokens in the registry.
//!
//! | table | key | value |
//! |---|---|---|
//! | `tokens` | SHA-256 of the token (32 bytes) | CBOR [`TokenRow`] |
//! | `token_uses` | the same | when it was last used, in microseconds since 1970 |
//! | `token_stored` | the same | a day since 1970, and how many bytes of bodies were stored with it on that day |
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
use crate::quotas::{DayTotal, QuotaOverrides};

const TOKENS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("tokens");
const USES: TableDefinition<&[u8], i64> = TableDefinition::new("token_uses");
const STORED: TableDefinition<&[u8], (i64, u64)> = TableDefinition::new("token_stored");

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
    /// What it has in the place of the Mixer's quotas.
    #[serde(default)]
    pub(crate) quotas: QuotaOverrides,
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

impl ClusterRegistry {
    /// What was stored with each token on the last day that anything was.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub(crate) fn stored_by_tokens(&self) -> Result<Vec<(TokenDigest, DayTotal)>, RegistryError> {
        let read = self.database.begin_read().map_err(db)?;
        let stored = read.open_table(STORED).map_err(db)?;
        let rows = stored.iter().map_err(db)?.map(|row| {
            let (key, value) = row.map_err(db)?;
            let (day, bytes) = value.value();
            Ok((digest(key.value())?, DayTotal { day, bytes }))
        });
        rows.collect()
    }
}

impl RegistryTransaction<'_> {
    pub(super) fn create_tokens(&self) -> Result<(), RegistryError> {
        self.transaction.open_table(TOKENS).map_err(db)?;
        self.transaction.open_table(USES).map_err(db)?;
        self.transaction.open_table(STORED).map_err(db)?;
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
        let mut stored = self.transaction.open_table(STORED).map_err(db)?;
        stored.remove(digest.0.as_slice()).map_err(db)?;
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

    /// Remembers what was stored with tokens on their last day, and forgets what was stored before `today`.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub(crate) fn set_stored_by_tokens(
        &self,
        totals: &[(TokenDigest, DayTotal)],
        today: i64,
    ) -> Result<(), RegistryError> {
        let mut stored = self.transaction.open_table(STORED).map_err(db)?;
        stored.retain(|_, (day, _)| day == today).map_err(db)?;
        for (digest, total) in totals.iter().filter(|(_, total)| total.day >= today) {
            stored
                .insert(digest.0.as_slice(), (total.day, total.bytes))
                .map_err(db)?;
        }
        Ok(())
    }
}
