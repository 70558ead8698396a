//! Authentication: who calls the API or comes as a PostgreSQL client, by API token or as a user of this machine.
//!
//! ```text
//!  Authorization: Bearer plt_… ──────────────▶ TokenStore ─┐
//!  SCRAM with the token's name ──────────────▶ TokenStore ─┤
//!  connection over loopback ── socket owner ─▶ local user ─┴▶ ApiCaller { roles, scope }
//! ```
//!
//! | `api.auth` | the Mixer's own user and root, over loopback | everybody else |
//! |---|---|---|
//! | `auto` | every right | what their token gives |
//! | `own` | its own user: every right; root: what a token gives | what their token gives |
//! | `tokens` | what their token gives | what their token gives |
//! | `off` (loopback only) | every right | every right |
//!
//! # Invariants
//!
//! - A token that is revoked or has expired opens nothing from that moment on, on connections that stand too: each request asks anew.
//! - A local user is believed only while its end of the connection is open.
//!
//! # Not here
//!
//! What a caller may do ([`crate::access`]); requests that a proxy speaks for (`api::authorization`).

mod socket_owner;
#[cfg(test)]
mod tests;
mod token_entry;
mod token_file;
mod token_store;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) use token_file::fuzz_token_file;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::access::{ApiCaller, ApiToken, AuthMode};
use crate::audit_keeper::RefusalReporter;
use crate::quotas::{CallerUsage, QuotaPolicy};

pub(crate) use token_entry::TokenView;
pub use token_file::TokenFileError;
pub use token_store::TokenStoreError;
pub(crate) use token_store::{NewToken, TokenError, TokenStore};

/// Why a caller is not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthenticationError {
    /// There is no credential.
    #[error(
        "a token is needed: send `Authorization: Bearer plt_…`; whoever runs the Mixer makes one with `platform token create`"
    )]
    Missing,
    /// The credential is no token.
    #[error("the Authorization header has no token: it is `Bearer plt_` and 64 hexadecimal digits")]
    Malformed,
    /// The token opens nothing: it was never made, or was revoked.
    #[error("the token is unknown or revoked")]
    Unknown,
    /// The token's time is over.
    #[error("the token {name} expired at {at}")]
    Expired {
        /// Its name.
        name: model::Token,
        /// When.
        at: model::Timestamp,
    },
}

/// Decides who calls.
#[derive(Debug)]
pub(crate) struct ApiAuthenticator {
    mode: AuthMode,
    tokens: Arc<TokenStore>,
    refusals: RefusalReporter,
    /// What local users have taken: the Mixer's own and root.
    local: Mutex<HashMap<u32, Arc<CallerUsage>>>,
}

impl ApiAuthenticator {
    pub(crate) fn new(mode: AuthMode, tokens: Arc<TokenStore>, refusals: RefusalReporter) -> Self {
        Self {
            mode,
            tokens,
            refusals,
            local: Mutex::default(),
        }
    }

    /// Where it is told that somebody was refused.
    pub(crate) const fn refusals(&self) -> &RefusalReporter {
        &self.refusals
    }

    /// What callers may take.
    pub(crate) fn quotas(&self) -> &Arc<QuotaPolicy> {
        self.tokens.quotas()
    }

    /// Whose word is taken.
    pub(crate) const fn mode(&self) -> AuthMode {
        self.mode
    }

    /// Where tokens are kept.
    pub(crate) const fn tokens(&self) -> &Arc<TokenStore> {
        &self.tokens
    }

    /// Who calls with this token.
    pub(crate) fn by_token(&self, secret: &str) -> Result<Arc<ApiCaller>, AuthenticationError> {
        let token: ApiToken = secret.parse().map_err(|_| AuthenticationError::Malformed)?;
        self.tokens.authenticate(token.digest())
    }

    /// Who calls without a credential: a user that the mode trusts over loopback, or anybody if nobody is asked.
    pub(crate) fn by_connection(
        &self,
        connection: Option<ConnectionEnds>,
    ) -> Result<Arc<ApiCaller>, AuthenticationError> {
        match self.mode {
            AuthMode::Off => Ok(ApiCaller::everybody()),
            AuthMode::Tokens => Err(AuthenticationError::Missing),
            AuthMode::Auto | AuthMode::Own => {
                let own = nix::unistd::geteuid().as_raw();
                let user = connection.and_then(ConnectionEnds::local_user);
                let user = user.filter(|uid| self.mode.trusts_user(*uid, own));
                let caller = user.map(|uid| ApiCaller::local(uid, self.local_usage(uid)));
                caller.ok_or(AuthenticationError::Missing)
            }
        }
    }

    fn local_usage(&self, uid: u32) -> Arc<CallerUsage> {
        let mut local = self.local.lock();
        Arc::clone(local.entry(uid).or_insert_with(|| self.quotas().of_local_user()))
    }
}

/// What the kernel calls every user that a user namespace does not have, and `nobody`.
const UNMAPPED: u32 = 65_534;

/// Both ends of a connection, as the Mixer sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionEnds {
    /// The client's.
    pub(crate) peer: SocketAddr,
    /// The Mixer's.
    pub(crate) local: SocketAddr,
}

impl ConnectionEnds {
    /// Those of an accepted connection.
    pub(crate) fn of(stream: &tokio::net::TcpStream) -> std::io::Result<Self> {
        Ok(Self {
            peer: stream.peer_addr()?,
            local: stream.local_addr()?,
        })
    }

    /// The user at the other end, if it is on this machine.
    fn local_user(self) -> Option<u32> {
        if !self.peer.ip().to_canonical().is_loopback() {
            return None;
        }
        let owner = socket_owner::socket_owner(self);
        let owner = owner
            .inspect_err(|error| tracing::debug!(%error, "cannot tell whose connection it is"))
            .ok()??;
        (owner != UNMAPPED).then_some(owner)
    }
}
