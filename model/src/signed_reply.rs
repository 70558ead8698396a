//! A signed reply of the Mixer: signed by the cluster, for one request of a Rack and no other.
//!
//! | field | what |
//! |---|---|
//! | `question` | SHA-256 of the question's bytes as they were sent: which entity asked, its nonce, the number and time of its heartbeat |
//! | `cluster_id`, `cluster_key` | who signed it |
//! | `successions` | the cluster's keys of before, each signing the next ([`crate::key_succession`]); absent while it has its first |
//! | `reply` | [`HelloReply`](crate::control::HelloReply), [`EnrollReply`](crate::control::EnrollReply) or [`HeartbeatReply`](crate::control::HeartbeatReply) |
//!
//! # Invariants
//!
//! - No two questions of Racks are equal, so an answer that was heard before, or was for another Rack, answers nothing.
//! - A refusal is an answer like any other: nobody else can tell a Rack that it was removed.
//! - Who knows no cluster so far believes whoever answers; from then on, only that one: its key, or one that follows it.

use ed25519_dalek::{SigningKey, VerifyingKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::key_succession::succeeds;
use crate::passport::{Passport, public_key};
use crate::signed::bytes_form;
use crate::{BadSignature, ClusterId, KeyFingerprint, SignedPayload, SigningContext};

/// A cluster and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterKey {
    /// Which.
    pub id: ClusterId,
    /// What it signs with.
    pub key: VerifyingKey,
}

impl ClusterKey {
    /// That of a passport; none if its key is no key.
    #[must_use]
    pub fn of(passport: &Passport) -> Option<Self> {
        let key = public_key(&passport.cluster_key).ok()?;
        Some(Self {
            id: passport.cluster_id,
            key,
        })
    }

    /// The fingerprint of its key.
    #[must_use]
    pub fn fingerprint(&self) -> KeyFingerprint {
        KeyFingerprint::of(self.key.as_bytes())
    }
}

/// An answer as it is signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedReply<T> {
    #[serde(with = "bytes_form")]
    question: Vec<u8>,
    cluster_id: ClusterId,
    #[serde(with = "bytes_form")]
    cluster_key: Vec<u8>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    successions: Vec<SignedPayload>,
    reply: T,
}

/// Why something is not the answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignedReplyError {
    /// It cannot be read, or is not signed by the key that it names.
    #[error("{0}; a Mixer of another version may answer so: update the older of the two")]
    Bad(#[from] BadSignature),
    /// It answers another question.
    #[error("it answers another request")]
    Other,
    /// Another cluster signed it.
    #[error("it is signed by cluster {0}")]
    Cluster(ClusterId),
}

impl<T: Serialize + DeserializeOwned> SignedReply<T> {
    /// Signs an answer to the question with these bytes: its wire form. `successions` lead to the key from those before it.
    ///
    /// # Errors
    /// Never in practice: our messages encode.
    pub fn sign(
        question: &[u8],
        reply: T,
        (cluster_id, key): (ClusterId, &SigningKey),
        successions: &[SignedPayload],
    ) -> Result<Vec<u8>, BadSignature> {
        let answer = Self {
            question: digest(question),
            cluster_id,
            cluster_key: key.verifying_key().as_bytes().to_vec(),
            successions: successions.to_vec(),
            reply,
        };
        SignedPayload::new(&answer, SigningContext::Answer, key)?.to_bytes()
    }

    /// What the reply says and which cluster signed it, if it is one to the question with these bytes and by the cluster with this
    /// key or one that follows it, where one is known.
    ///
    /// # Errors
    /// [`SignedReplyError`] otherwise.
    pub fn open(
        bytes: &[u8],
        question: &[u8],
        cluster: Option<KeyFingerprint>,
    ) -> Result<(T, ClusterKey), SignedReplyError> {
        let signed = SignedPayload::from_bytes(bytes)?;
        let claimed: Self = signed.peek()?;
        if claimed.question != digest(question) {
            return Err(SignedReplyError::Other);
        }
        let key = public_key(&claimed.cluster_key).map_err(|_| BadSignature::Signature)?;
        let answer: Self = signed.open(SigningContext::Answer, &key)?;
        let id = answer.cluster_id;
        let signer = ClusterKey { id, key };
        match cluster.is_none_or(|known| succeeds(&answer.successions, id, known, &signer.key)) {
            true => Ok((answer.reply, signer)),
            false => Err(SignedReplyError::Cluster(id)),
        }
    }
}

fn digest(question: &[u8]) -> Vec<u8> {
    Sha256::digest(question).to_vec()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::Timestamp;
    use crate::control::{EnrollReply, HeartbeatReply, RackRefusal, RackState, RefusalCode};
    use crate::key_succession::KeySuccession;

    const QUESTION: &[u8] = b"who am I? 7";

    fn id(number: i64) -> ClusterId {
        ClusterId::at(Timestamp::from_micros(number), [0; 10])
    }

    fn removed() -> HeartbeatReply {
        HeartbeatReply::Refused(RackRefusal {
            code: RefusalCode::Removed,
            reason: "removed".to_owned(),
        })
    }

    fn active() -> HeartbeatReply {
        HeartbeatReply::Ok {
            state: RackState::Active,
            scenario: None,
            floors: Vec::new(),
            limits: None,
            credits: None,
            authority: None,
            bus_credential: None,
        }
    }

    fn open(bytes: &[u8], question: &[u8], cluster: Option<&ClusterKey>) -> Result<HeartbeatReply, SignedReplyError> {
        SignedReply::open(bytes, question, cluster.map(ClusterKey::fingerprint)).map(|(reply, _)| reply)
    }

    #[test]
    fn a_reply_is_valid_only_for_its_request_cluster_and_signature() {
        let (key, thief) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let ours = ClusterKey {
            id: id(1_000_000),
            key: key.verifying_key(),
        };
        for reply in [removed(), active()] {
            let bytes = SignedReply::sign(QUESTION, reply.clone(), (ours.id, &key), &[]).unwrap();
            let (opened, by) = SignedReply::<HeartbeatReply>::open(&bytes, QUESTION, Some(ours.fingerprint())).unwrap();
            assert_eq!((format!("{opened:?}"), by), (format!("{reply:?}"), ours.clone()));
            assert!(
                open(&bytes, QUESTION, None).is_ok(),
                "who knows no cluster believes the first one"
            );
            // Heard before.
            assert_eq!(
                open(&bytes, b"who am I? 8", Some(&ours)).unwrap_err(),
                SignedReplyError::Other
            );
            // By somebody else, who may call himself what he likes.
            let forged = SignedReply::sign(QUESTION, reply, (ours.id, &thief), &[]).unwrap();
            assert_eq!(
                open(&forged, QUESTION, Some(&ours)).unwrap_err(),
                SignedReplyError::Cluster(ours.id)
            );
            for bit in 0..bytes.len() * 8 {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(open(&bad, QUESTION, Some(&ours)).is_err(), "bit {bit}");
            }
        }
        // With our key's name and his signature.
        let named = SignedReply {
            question: digest(QUESTION),
            cluster_id: ours.id,
            cluster_key: key.verifying_key().as_bytes().to_vec(),
            successions: Vec::new(),
            reply: removed(),
        };
        let named = SignedPayload::new(&named, SigningContext::Answer, &thief)
            .unwrap()
            .to_bytes()
            .unwrap();
        assert_eq!(
            open(&named, QUESTION, None).unwrap_err(),
            SignedReplyError::Bad(BadSignature::Signature)
        );
    }

    #[test]
    fn a_new_key_is_believed_by_who_knows_the_one_that_it_follows() {
        let [old, new, thief] = [1, 2, 3].map(|byte| SigningKey::from_bytes(&[byte; 32]));
        let [ours, theirs] = [1_000_000, 2_000_000].map(id);
        let link =
            |key: &SigningKey| KeySuccession::sign(ours, key, &new.verifying_key(), Timestamp::from_micros(5)).unwrap();
        let known = ClusterKey {
            id: ours,
            key: old.verifying_key(),
        };
        let reply =
            |cluster, links: &[SignedPayload]| SignedReply::sign(QUESTION, active(), (cluster, &new), links).unwrap();
        assert!(open(&reply(ours, &[link(&old)]), QUESTION, Some(&known)).is_ok());
        for (cluster, links) in [(ours, vec![]), (ours, vec![link(&thief)]), (theirs, vec![link(&old)])] {
            assert_eq!(
                open(&reply(cluster, &links), QUESTION, Some(&known)).unwrap_err(),
                SignedReplyError::Cluster(cluster)
            );
        }
    }

    #[test]
    fn unsigned_and_mismatched_replies_are_rejected() {
        let key = SigningKey::from_bytes(&[1; 32]);
        let refused = EnrollReply::Refused(RackRefusal {
            code: RefusalCode::Removed,
            reason: String::new(),
        });
        let plain = crate::signed::encode(&refused).unwrap();
        let command = SignedPayload::new(&removed(), SigningContext::Command, &key)
            .unwrap()
            .to_bytes()
            .unwrap();
        for bad in [&plain[..], &command, b"", b"\xff"] {
            assert!(
                matches!(open(bad, QUESTION, None), Err(SignedReplyError::Bad(_))),
                "{bad:?}"
            );
        }
        let pending = EnrollReply::Pending {
            entity_id: crate::EntityId::for_name("r"),
            bus_credential: None,
        };
        let enrolled = SignedReply::sign(QUESTION, pending, (id(1), &key), &[]).unwrap();
        assert!(open(&enrolled, QUESTION, None).is_err());
    }
}
