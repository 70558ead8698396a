//! Callers: who asks, with the roles and the scope that say what is allowed.

use std::sync::Arc;

use model::Token;
use query::QueryEngine;
use tokio_util::sync::CancellationToken;

use super::{AccessRight, AccessRole, AccessScope, TokenDigest};
use crate::quotas::{CallerUsage, QuotaExceeded};

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallerIdentity {
    /// Nobody was asked.
    Everybody,
    /// A user of this machine, by number.
    LocalUser(u32),
    /// Who has a token.
    Token {
        /// Its digest.
        digest: TokenDigest,
        /// Its name.
        name: Token,
    },
}

impl std::fmt::Display for CallerIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Everybody => f.write_str("anybody"),
            Self::LocalUser(uid) => match nix::unistd::User::from_uid((*uid).into()) {
                Ok(Some(user)) => write!(f, "user {}", user.name),
                _ => write!(f, "user {uid}"),
            },
            Self::Token { digest, name } => write!(f, "token {name} {}", digest.id()),
        }
    }
}

/// Who asks, and what it may do.
#[derive(Debug, Clone)]
pub(crate) struct ApiCaller {
    pub(crate) identity: CallerIdentity,
    pub(crate) roles: Vec<AccessRole>,
    pub(crate) scope: AccessScope,
    /// Cancelled when it may do nothing any more: streams that have no end of their own end then.
    pub(crate) revoked: CancellationToken,
    /// What it has taken of its quotas; none where callers cannot be told apart.
    pub(crate) usage: Option<Arc<CallerUsage>>,
}

impl ApiCaller {
    /// Whoever reaches a port where nobody is asked.
    pub(crate) fn everybody() -> Arc<Self> {
        Self::all_powerful(CallerIdentity::Everybody, None)
    }

    /// The Mixer's own user, or root.
    pub(crate) fn local(uid: u32, usage: Arc<CallerUsage>) -> Arc<Self> {
        Self::all_powerful(CallerIdentity::LocalUser(uid), Some(usage))
    }

    fn all_powerful(identity: CallerIdentity, usage: Option<Arc<CallerUsage>>) -> Arc<Self> {
        Arc::new(Self {
            identity,
            roles: vec![AccessRole::Admin],
            scope: AccessScope::default(),
            revoked: CancellationToken::new(),
            usage,
        })
    }

    /// Whether it has a right.
    pub(crate) fn has(&self, right: AccessRight) -> bool {
        self.scope.allows(right) && self.roles.iter().any(|role| role.has(right))
    }

    /// The queries that see the rows of its scope only, in its places.
    pub(crate) fn queries(&self, all: &Arc<QueryEngine>) -> Arc<QueryEngine> {
        let scoped = self.scope.queries(all);
        match &self.usage {
            Some(usage) => Arc::new(scoped.with_caller(Arc::clone(usage.queries()))),
            None => scoped,
        }
    }

    /// Takes a request of its quota.
    pub(crate) fn admit_request(&self) -> Result<(), QuotaExceeded> {
        self.usage.as_ref().map_or(Ok(()), |usage| usage.admit_request())
    }

    /// Whether its quota lets a query begin.
    pub(crate) fn admit_query(&self) -> Result<(), QuotaExceeded> {
        self.usage.as_ref().map_or(Ok(()), |usage| usage.admit_query())
    }
}
