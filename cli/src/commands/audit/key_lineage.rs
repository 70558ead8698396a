//! The keys of a cluster that may sign checkpoints of its audit log, and the entry from which on each may not any more.
//!
//! ```text
//!  key 1 ── cluster_key_rotated: entry 40 ──▶ key 2 ── cluster_key_rotated: entry 90 ──▶ key 3
//!  checkpoints below 40                       below 90                                   all others
//! ```
//!
//! # Invariants
//!
//! - Every key is linked with the known one ([`model::key_succession`]), and the last one is the Mixer's.
//! - Whoever has a key that was replaced can sign nothing that was recorded later.
//!
//! Not here: whether the entries are as they were recorded ([`super::verification`]). Keys before the known one have only signed that it
//! follows them.

use std::collections::BTreeMap;

use model::key_succession::KeySuccession;
use model::{KeyFingerprint, SignedPayload};
use serde::Deserialize;
use serde_json::Value;

use super::verification::id;
use crate::client::Row;
use crate::error::Error;

/// What the API shows beside checkpoints.
#[derive(Debug, Deserialize)]
struct ShownKeys {
    cluster_key: KeyFingerprint,
    successions: Vec<String>,
}

/// The keys of a cluster, the oldest first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeyLineage(Vec<KeyFingerprint>);

impl KeyLineage {
    /// Links the known key with the Mixer's; without one, the Mixer's is the known one.
    pub(super) fn open(answer: Value, known: Option<KeyFingerprint>) -> Result<Self, Error> {
        let shown: ShownKeys = serde_json::from_value(answer).map_err(|error| Error::Answer(error.to_string()))?;
        let present = shown.cluster_key;
        let known = known.unwrap_or(present);
        // What cannot be read links nothing.
        let link = |hex: &String| SignedPayload::from_bytes(&model::hex::decode(hex)?).ok();
        let links: Vec<_> = shown.successions.iter().filter_map(link).collect();
        let keys = KeySuccession::lineage(&links, known);
        if keys.last() == Some(&present) {
            return Ok(Self(keys));
        }
        Err(Error::NoSuccession { known, present })
    }

    /// The number of the entry from which on each key may sign nothing. Where the entry of its rotation has gone because of its age, that is the
    /// oldest one.
    pub(super) fn ends(&self, entries: &[&Row]) -> BTreeMap<KeyFingerprint, u64> {
        let oldest = entries.first().and_then(|entry| id(entry)).unwrap_or(0);
        let rotations = entries.iter().filter_map(|entry| {
            let text = |name: &str| entry.get(name).and_then(Value::as_str);
            let rotated = text("from").filter(|_| text("kind") == Some("cluster_key_rotated"))?;
            Some((rotated.parse::<KeyFingerprint>().ok()?, id(entry)?))
        });
        // Of several the oldest counts.
        let rotations: BTreeMap<_, _> = rotations.rev().collect();
        let end = |key: &KeyFingerprint| (*key, rotations.get(key).copied().unwrap_or(oldest));
        let mut ends: BTreeMap<_, _> = self.0.iter().map(end).collect();
        if let Some(present) = self.0.last() {
            ends.insert(*present, u64::MAX);
        }
        ends
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use ed25519_dalek::SigningKey;
    use model::{ClusterId, Timestamp};
    use serde_json::json;

    use super::*;

    pub(in super::super) fn print(key: &SigningKey) -> KeyFingerprint {
        KeyFingerprint::of(key.verifying_key().as_bytes())
    }

    /// What the API answers when a cluster had these keys, and has the last one.
    pub(in super::super) fn answer(keys: &[SigningKey]) -> Value {
        let cluster = ClusterId::at(Timestamp::from_micros(1), [3; 10]);
        let links = keys.windows(2).map(|pair| {
            let link = KeySuccession::sign(cluster, &pair[0], &pair[1].verifying_key(), Timestamp::from_micros(5));
            model::hex::encode(&link.unwrap().to_bytes().unwrap())
        });
        let links: Vec<_> = links.collect();
        json!({ "data": [], "cluster_key": print(keys.last().unwrap()), "successions": links })
    }

    #[test]
    fn any_key_of_the_cluster_is_linked_with_its_present_one_and_no_other_is() {
        let keys = [1, 2, 3].map(|byte| SigningKey::from_bytes(&[byte; 32]));
        let whole = KeyLineage(keys.iter().map(print).collect());
        for known in [None, Some(&keys[0]), Some(&keys[1]), Some(&keys[2])] {
            assert_eq!(KeyLineage::open(answer(&keys), known.map(print)).unwrap(), whole);
        }
        let foreign = KeyFingerprint::of(b"another");
        let refused = |answer: Value, known| KeyLineage::open(answer, Some(known)).unwrap_err().to_string();
        let told = refused(answer(&keys), foreign);
        let (from, to) = (foreign, print(&keys[2]));
        assert!(
            told.contains(&format!("no chain of successions leads from {from} to {to}")),
            "{told}"
        );
        // A link that cannot be read, or leads past the key that the Mixer says it has.
        let mut broken = answer(&keys);
        broken["successions"][1] = "00".into();
        assert!(refused(broken, print(&keys[0])).contains("no chain"));
        let mut back = answer(&keys);
        back["cluster_key"] = json!(print(&keys[1]));
        assert!(refused(back, print(&keys[0])).contains("no chain"));
        assert!(matches!(
            KeyLineage::open(json!({ "data": [] }), None),
            Err(Error::Answer(_))
        ));
    }
}
