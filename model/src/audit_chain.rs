//! The hash chain over the audit log, and the signed checkpoints of its head.
//!
//! ```text
//!  chain(0) = 64 zeros
//!  chain(n) = SHA-256 of: chain(n-1), a line feed, entry n as compact JSON with sorted keys and without "chain"; in hexadecimal digits
//! ```
//!
//! # Invariants
//!
//! - Who changes, drops or inserts an entry changes every later link; whoever keeps a checkpoint elsewhere can tell.
//!
//! # Not here
//!
//! What is recorded and for how long (the Mixer's registry). Who holds the cluster's key can write and sign another chain: checkpoints that
//! left the machine before are what tells.

use std::collections::BTreeMap;

use ed25519_dalek::{SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::{BadSignature, ClusterId, SignedPayload, SigningContext, Timestamp};

/// The link before the first entry.
pub const AUDIT_CHAIN_START: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The link of an entry after `previous`; its own field `chain` has no part in it.
#[must_use]
pub fn audit_link(previous: &str, entry: &Map<String, Value>) -> String {
    let sorted: BTreeMap<_, _> = entry.iter().filter(|(name, _)| *name != "chain").collect();
    // Maps with text keys always encode.
    let text = serde_json::to_string(&sorted).unwrap_or_default();
    format!("{:x}", Sha256::digest(format!("{previous}\n{text}")))
}

/// That the chain had this head at this time, as the cluster signs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditCheckpoint {
    /// Whose log.
    pub cluster_id: ClusterId,
    /// When, by the Mixer's clock.
    pub ts: Timestamp,
    /// The number of the last entry of the chain.
    pub id: u64,
    /// Its link.
    pub chain: String,
}

impl AuditCheckpoint {
    /// Its wire form, signed with the cluster's key.
    ///
    /// # Errors
    /// Never in practice: it always encodes.
    pub fn sign(&self, key: &SigningKey) -> Result<Vec<u8>, BadSignature> {
        SignedPayload::new(self, SigningContext::AuditCheckpoint, key)?.to_bytes()
    }

    /// What this key signed.
    ///
    /// # Errors
    /// [`BadSignature`] if it did not, or if it is no key.
    pub fn open(signed: &[u8], key: &[u8]) -> Result<Self, BadSignature> {
        let key = key.try_into().ok().and_then(|key| VerifyingKey::from_bytes(key).ok());
        SignedPayload::from_bytes(signed)?.open(SigningContext::AuditCheckpoint, &key.ok_or(BadSignature::Signature)?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    fn link(previous: &str, entry: &Value) -> String {
        audit_link(previous, entry.as_object().unwrap())
    }

    #[test]
    fn a_link_is_what_sha256sum_says_of_sorted_json_and_knows_everything_before_it() {
        let entry = json!({"why": "ä", "id": 1, "chain": "what it says of itself", "rack": null});
        let first = link(AUDIT_CHAIN_START, &entry);
        // printf '%s\n%s' "$(printf '0%.0s' {1..64})" '{"id":1,"rack":null,"why":"ä"}' | sha256sum
        assert_eq!(
            first,
            "937f9862f50e50894b0ca1435f02728b4e22eb15e37337afdf16b79866589bc2"
        );
        assert_ne!(link(&first, &entry), first);
        assert_ne!(
            link(AUDIT_CHAIN_START, &json!({"why": "ä", "id": 2, "rack": null})),
            first
        );
    }

    #[test]
    fn a_checkpoint_opens_with_the_key_that_signed_it_alone() {
        let (key, other) = (SigningKey::from_bytes(&[7; 32]), SigningKey::from_bytes(&[8; 32]));
        let checkpoint = AuditCheckpoint {
            cluster_id: ClusterId::at(Timestamp::from_micros(1), [3; 10]),
            ts: Timestamp::from_micros(2),
            id: 3,
            chain: AUDIT_CHAIN_START.to_owned(),
        };
        let mut signed = checkpoint.sign(&key).unwrap();
        let opened = AuditCheckpoint::open(&signed, key.verifying_key().as_bytes());
        assert_eq!(opened.unwrap(), checkpoint);
        assert!(AuditCheckpoint::open(&signed, other.verifying_key().as_bytes()).is_err());
        assert!(AuditCheckpoint::open(&signed, b"no key").is_err());
        let last = signed.len() - 1;
        signed[last] ^= 1;
        assert!(AuditCheckpoint::open(&signed, key.verifying_key().as_bytes()).is_err());
    }
}
