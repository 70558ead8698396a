//! Resource limits of the accounts of Racks and of strangers on the managed bus.
//!
//! Connections are counted for the account, subscriptions for each connection; a payload is bytes with headers. A connection or
//! subscription too many is refused, a payload that is too large ends its connection; no other account notices.
//!
//! # Not here
//!
//! How often and how much a Rack publishes, under how many subjects: no nats-server bounds that.

use serde_json::{Value, json};

/// The limits of one account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AccountLimits {
    pub(super) connections: u32,
    pub(super) subscriptions: u32,
    pub(super) payload: Option<u64>,
}

/// A Rack has one connection. The server may keep those that a broken network left behind for six minutes, until its pings fail, and
/// the Rack must not be locked out meanwhile; `platform doctor` has one, too. A Rack subscribes to its commands, its inbox, and once for each
/// wire that it pulls. What it publishes is bounded by `max_payload` of the server.
pub(super) const RACK_LIMITS: AccountLimits = AccountLimits {
    connections: 32,
    subscriptions: 4_096,
    payload: None,
};

/// Strangers share an account: each has a connection for the length of a handshake, and as many handshakes are worked on or wait at the
/// Mixer ([`crate::agent_rpc`]). More are turned away, and try again. A handshake takes one subscription and a few KiB.
pub(super) const STRANGER_LIMITS: AccountLimits = AccountLimits {
    connections: 4_096,
    subscriptions: 16,
    payload: Some(64 << 10),
};

impl AccountLimits {
    /// As the configuration of an account has them.
    pub(super) fn render(&self) -> Value {
        let mut limits = json!({ "max_connections": self.connections, "max_subscriptions": self.subscriptions });
        if let Some(payload) = self.payload {
            limits["max_payload"] = payload.into();
        }
        limits
    }
}
