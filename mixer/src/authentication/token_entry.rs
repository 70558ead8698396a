//! A token in force: who has it, what its quotas are, when it was used; and how it is shown.
//!
//! Not here: which tokens there are (`token_store`).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use model::{Entropy, Timestamp, Token};
use schemars::JsonSchema;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::token_file::ProvidedToken;
use crate::access::{AccessRole, AccessScope, ApiCaller, CallerIdentity, ScramVerifier, TokenDigest};
use crate::quotas::{CallerUsage, QuotaOverrides, QuotaPolicy};
use crate::registry::TokenRow;

/// Never used.
pub(super) const NEVER: i64 = i64::MIN;

/// A token as it is shown: everything but its secret.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct TokenView {
    /// The beginning of its SHA-256, as the audit log names it.
    pub(crate) id: String,
    pub(crate) name: Token,
    pub(crate) roles: Vec<AccessRole>,
    pub(crate) scope: AccessScope,
    /// What it has in the place of the Mixer's quotas.
    pub(crate) quotas: QuotaOverrides,
    pub(crate) created: Option<Timestamp>,
    /// Who made it; `api.tokens_file` for those of the file.
    pub(crate) created_by: String,
    pub(crate) expires: Option<Timestamp>,
    /// When it was last used, to about a minute.
    pub(crate) last_used: Option<Timestamp>,
}

/// A token in force.
#[derive(Debug)]
pub(super) struct TokenEntry {
    pub(super) caller: Arc<ApiCaller>,
    pub(super) usage: Arc<CallerUsage>,
    pub(super) name: Token,
    pub(super) quotas: QuotaOverrides,
    pub(super) created: Option<Timestamp>,
    pub(super) created_by: String,
    pub(super) expires: Option<Timestamp>,
    pub(super) scram: ScramVerifier,
    pub(super) last_used: AtomicI64,
    pub(super) is_provided: bool,
}

impl TokenEntry {
    pub(super) fn new(digest: TokenDigest, row: TokenRow, used: Option<Timestamp>, policy: &Arc<QuotaPolicy>) -> Self {
        let usage = policy.of_token(row.name.as_str(), &row.quotas);
        Self {
            caller: caller((digest, row.name.clone()), row.roles, row.scope, &usage),
            usage,
            name: row.name,
            quotas: row.quotas,
            created: Some(row.created),
            created_by: row.created_by,
            expires: row.expires,
            scram: row.scram,
            last_used: AtomicI64::new(used.map_or(NEVER, Timestamp::micros)),
            is_provided: false,
        }
    }

    pub(super) fn provided(provided: ProvidedToken, entropy: &Entropy, policy: &Arc<QuotaPolicy>) -> Self {
        let token = &provided.token;
        let usage = policy.of_token(provided.name.as_str(), &provided.quotas);
        let named = (token.digest(), provided.name.clone());
        Self {
            scram: ScramVerifier::new(token, entropy),
            caller: caller(named, provided.roles, provided.scope, &usage),
            usage,
            name: provided.name,
            quotas: provided.quotas,
            created: None,
            created_by: "api.tokens_file".to_owned(),
            expires: provided.expires,
            last_used: AtomicI64::new(NEVER),
            is_provided: true,
        }
    }

    /// Whether it gives the same to the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let facts = |entry: &Self| {
            (
                entry.name.clone(),
                entry.caller.roles.clone(),
                entry.caller.scope.clone(),
                entry.quotas.clone(),
                entry.expires,
            )
        };
        facts(self) == facts(other)
    }

    pub(super) fn view(&self, digest: TokenDigest) -> TokenView {
        let used = self.last_used.load(Ordering::Relaxed);
        TokenView {
            id: digest.id(),
            name: self.name.clone(),
            roles: self.caller.roles.clone(),
            scope: self.caller.scope.clone(),
            quotas: self.quotas.clone(),
            created: self.created,
            created_by: self.created_by.clone(),
            expires: self.expires,
            last_used: (used != NEVER).then(|| Timestamp::from_micros(used)),
        }
    }
}

fn caller(
    (digest, name): (TokenDigest, Token),
    roles: Vec<AccessRole>,
    scope: AccessScope,
    usage: &Arc<CallerUsage>,
) -> Arc<ApiCaller> {
    Arc::new(ApiCaller {
        identity: CallerIdentity::Token { digest, name },
        roles,
        scope,
        revoked: CancellationToken::new(),
        usage: Some(Arc::clone(usage)),
    })
}
