//! Succession of cluster keys: the old key signs the new one, so that who knows the old key trusts the new one.
//!
//! ```text
//!  key 1 ── signs ──▶ key 2 ── signs ──▶ key 3
//! ```
//!
//! # Invariants
//!
//! - Every link is of the same cluster and is signed by the key that it follows.
//! - Following takes at most as many verifications as there are links, and of no more than [`MOST_LINKS`].
//!
//! Not here: when a cluster gets a new key (`mixer`). A key that somebody stole can name a successor too: Racks that have heard of the right one
//! do not listen to it any more, and others do.

use std::collections::VecDeque;

use ed25519_dalek::{SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

use crate::passport::public_key;
use crate::signed::bytes_form;
use crate::{BadSignature, ClusterId, KeyFingerprint, SignedPayload, SigningContext, Timestamp};

/// So many links are followed.
pub const MOST_LINKS: usize = 64;

/// That a cluster signs with another key from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySuccession {
    /// Whose keys.
    pub cluster_id: ClusterId,
    /// The key of before (32 bytes).
    #[serde(with = "bytes_form")]
    pub old_key: Vec<u8>,
    /// The key from now on (32 bytes).
    #[serde(with = "bytes_form")]
    pub new_key: Vec<u8>,
    /// Since when.
    pub ts: Timestamp,
}

impl KeySuccession {
    /// The link from one key to the next.
    ///
    /// # Errors
    /// Never in practice: it always encodes.
    pub fn sign(
        cluster_id: ClusterId,
        old: &SigningKey,
        new: &VerifyingKey,
        ts: Timestamp,
    ) -> Result<SignedPayload, BadSignature> {
        let link = Self {
            cluster_id,
            old_key: old.verifying_key().as_bytes().to_vec(),
            new_key: new.as_bytes().to_vec(),
            ts,
        };
        SignedPayload::new(&link, SigningContext::KeySuccession, old)
    }

    /// The link, if the key that it follows signed it.
    ///
    /// # Errors
    /// [`BadSignature`] otherwise.
    pub fn open(signed: &SignedPayload) -> Result<Self, BadSignature> {
        let claimed: Self = signed.peek()?;
        let old = public_key(&claimed.old_key).map_err(|_| BadSignature::Signature)?;
        signed.open(SigningContext::KeySuccession, &old)
    }

    /// The keys of one cluster that these links, oldest first, connect with `known`: the oldest first.
    ///
    /// Those after `known` have its signature, or that of one that has. Those before it have only signed that it follows them.
    #[must_use]
    pub fn lineage(links: &[SignedPayload], known: KeyFingerprint) -> Vec<KeyFingerprint> {
        let signed = links.iter().take(MOST_LINKS);
        let links: Vec<_> = signed.filter_map(|signed| Self::open(signed).ok()).collect();
        let cluster = links.first().map(|link| link.cluster_id);
        let of_one = links.iter().filter(|link| Some(link.cluster_id) == cluster);
        let steps: Vec<_> = of_one
            .map(|link| [&link.old_key, &link.new_key].map(|key| KeyFingerprint::of(key)))
            .collect();
        let mut keys = VecDeque::from([known]);
        for [old, new] in steps.iter().rev() {
            if keys.front() == Some(new) {
                keys.push_front(*old);
            }
        }
        for [old, new] in &steps {
            if keys.back() == Some(old) {
                keys.push_back(*new);
            }
        }
        keys.into()
    }
}

/// Whether these links, oldest first, lead from the key with this fingerprint to `to`, within one cluster.
#[must_use]
pub fn succeeds(links: &[SignedPayload], cluster_id: ClusterId, from: KeyFingerprint, to: &VerifyingKey) -> bool {
    let (mut known, to) = (from, KeyFingerprint::of(to.as_bytes()));
    if known == to {
        return true;
    }
    for signed in links.iter().take(MOST_LINKS) {
        match KeySuccession::open(signed) {
            Ok(link) if link.cluster_id == cluster_id && KeyFingerprint::of(&link.old_key) == known => {
                known = KeyFingerprint::of(&link.new_key);
            }
            Ok(_) | Err(_) => {}
        }
    }
    known == to
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_lineage_has_the_keys_before_and_after_one_of_them_and_no_others() {
        let [first, second, third, thief] = [1, 2, 3, 4].map(|byte| SigningKey::from_bytes(&[byte; 32]));
        let [ours, theirs] = [1, 2].map(|millis| ClusterId::at(Timestamp::from_micros(millis * 1_000), [0; 10]));
        let link = |cluster, old: &SigningKey, new: &SigningKey| {
            KeySuccession::sign(cluster, old, &new.verifying_key(), Timestamp::from_micros(5)).unwrap()
        };
        let print = |key: &SigningKey| KeyFingerprint::of(key.verifying_key().as_bytes());
        let links = [link(ours, &first, &second), link(ours, &second, &third)];
        let whole = [&first, &second, &third].map(print);
        for known in [&first, &second, &third] {
            assert_eq!(KeySuccession::lineage(&links, print(known)), whole);
        }
        assert_eq!(KeySuccession::lineage(&links, print(&thief)), [print(&thief)]);
        assert_eq!(KeySuccession::lineage(&[], print(&first)), [print(&first)]);
        let foreign = [links[0].clone(), link(theirs, &second, &third)];
        assert_eq!(KeySuccession::lineage(&foreign, print(&first)), whole[..2]);
        // A link that names our key and is signed by another one.
        let forged = KeySuccession {
            cluster_id: ours,
            old_key: first.verifying_key().as_bytes().to_vec(),
            new_key: thief.verifying_key().as_bytes().to_vec(),
            ts: Timestamp::from_micros(5),
        };
        let forged = SignedPayload::new(&forged, SigningContext::KeySuccession, &thief).unwrap();
        assert_eq!(KeySuccession::lineage(&[forged], print(&first)), whole[..1]);
    }

    #[test]
    fn only_links_that_each_predecessor_signed_for_the_same_cluster_lead_to_a_new_key() {
        let [first, second, third, thief] = [1, 2, 3, 4].map(|byte| SigningKey::from_bytes(&[byte; 32]));
        let [ours, theirs] = [1, 2].map(|millis| ClusterId::at(Timestamp::from_micros(millis * 1_000), [0; 10]));
        let link = |cluster, old: &SigningKey, new: &SigningKey| {
            KeySuccession::sign(cluster, old, &new.verifying_key(), Timestamp::from_micros(5)).unwrap()
        };
        let print = |key: &SigningKey| KeyFingerprint::of(key.verifying_key().as_bytes());
        let chain = [link(ours, &first, &second), link(ours, &second, &third)];
        let leads = |links: &[SignedPayload], from: &SigningKey, to: &SigningKey| {
            succeeds(links, ours, print(from), &to.verifying_key())
        };
        assert!(leads(&chain, &first, &third));
        assert!(
            leads(&chain, &second, &third),
            "who has heard of the second needs the rest"
        );
        assert!(leads(&[], &third, &third));
        assert!(!leads(&chain, &third, &first), "nothing leads back");
        assert!(!leads(&chain[..1], &first, &third));
        assert!(!leads(&[link(theirs, &first, &second)], &first, &second));
        assert!(!leads(&[link(ours, &thief, &second)], &first, &second));
        // A link that names our key and is signed by another one.
        let forged = KeySuccession {
            cluster_id: ours,
            old_key: first.verifying_key().as_bytes().to_vec(),
            new_key: thief.verifying_key().as_bytes().to_vec(),
            ts: Timestamp::from_micros(5),
        };
        let forged = SignedPayload::new(&forged, SigningContext::KeySuccession, &thief).unwrap();
        assert!(!leads(&[forged], &first, &thief));
    }
}
