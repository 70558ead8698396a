//! Access control: callers, and what they may do. AccessRole-based rights, scopes, and the credentials that the registry keeps verifiers of.
//!
//! # Invariants
//!
//! - A secret is shown once, when it is made. What is kept are its SHA-256 and its SCRAM verifier: neither opens anything.
//! - What no role gives is refused, and a scope only narrows what roles give.
//!
//! # Not here
//!
//! Who calls ([`crate::authentication`]); which right a route needs (`api::openapi::route_table`); how rows are kept from a scope (`query`); how a
//! Rack proves who it is (`enrollment`).

mod api_token;
mod auth_mode;
mod caller;
mod dual_control;
mod role;
mod scope;
mod scram;

pub use api_token::{ApiToken, TokenDigest};
pub use auth_mode::AuthMode;
pub(crate) use caller::ApiCaller;
pub use caller::CallerIdentity;
pub use dual_control::DualControlAction;
pub(crate) use role::role_list;
pub use role::{AccessRight, AccessRole};
pub use scope::AccessScope;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use scram::fuzz_exchange;
pub(crate) use scram::{BadExchange, ScramExchange, ScramVerifier};
