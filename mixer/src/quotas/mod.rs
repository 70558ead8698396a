//! Quotas of callers: what one token, or one user of this machine, may take of what all share.
//!
//! ```text
//!  [quotas] ─▶ QuotaPolicy ─┬─ a token's own ─▶ CallerQuotas ─▶ CallerUsage, one for each caller
//!                           └─ a local user  ─▶ places alone
//! ```
//!
//! | quota | counts | refused when |
//! |---|---|---|
//! | `requests` | requests, and statements of PostgreSQL clients | no token is left of the bucket |
//! | `queries` | queries that run | they do not end in time (`query::QueryCaller`) |
//! | `scanned_mb` | bytes that queries read of data files, when they have | the caller is in debt |
//! | `ingest_mb` | bytes of bodies, uncompressed, when they have come | the caller is in debt |
//! | `stored_mb` | bytes of bodies, or of their rows, that were stored since midnight, UTC | there are as many |
//!
//! # Invariants
//!
//! - A caller's usage is one over all its connections, and goes on where its token is read again from a file.
//! - Of tails, taps, sessions of PostgreSQL clients and connections to the API one caller has at most half, and of the memory for bodies that come three eighths and one body more.
//! - Where nobody is asked who calls (`api.auth = "off"`) callers cannot be told apart, and there are no quotas.
//! - Wall clocks may be set: a bucket sees time only go forward.
//!
//! # Not here
//!
//! Who calls ([`crate::authentication`]); what refusals look like (`api::problem`, `postgres`); limits of Racks (`ingest`).

mod caller_quotas;
mod caller_usage;
#[cfg(test)]
mod tests;

pub use caller_quotas::QuotaOverrides;
pub(crate) use caller_quotas::{CallerPlaces, CallerQuotas, QuotaPolicy};
pub(crate) use caller_usage::{CallerUsage, DayTotal, QuotaExceeded, QuotaPlaces};
