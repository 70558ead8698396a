//! A Rack's credential for a bus in operator mode: a JWT that says which account its key is a user of, and until when.
//!
//! # Invariants
//!
//! - It is no secret: of use only with the Rack's own key for the bus.
//!
//! # Not here
//!
//! Who issues it (`mixer`), the key that goes with it (`rack`).

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// A user's JWT for the bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusCredential {
    /// As it is shown to the server.
    pub jwt: String,
    /// From when on the server refuses it.
    pub expires: Timestamp,
}
