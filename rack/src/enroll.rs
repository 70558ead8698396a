//! One enrolment handshake: hello, challenge, transcript, answer (`model::control`).
//!
//! # Invariants
//!
//! - Nothing is signed for a challenge that does not give our nonce back, that another cluster vouches for than it names, or than the one
//!   that issued our passport, or that our invite names. A refusal is believed on the same terms.
//! - A handshake takes at most the time it is given, whatever the other side does.
//!
//! # Not here
//!
//! When to enrol and what to do with the answer ([`crate::mixer_session`]); keeping the passport ([`crate::state_file`]).

use std::time::Duration;

use chassis::bus::BusConnection;
use chassis::bus::sealed_reply::ReplyKey;
use ed25519_dalek::SigningKey;
use model::control::{
    EnrollChallenge, EnrollReply, EnrollTranscript, HelloReply, HelloRequest, NameClaim, PROTOCOL, RackRefusal,
};
use model::passport::Passport;
use model::signed_reply::ClusterKey;
use model::{BadSignature, ClusterId, Entropy, RackInvite, SignedPayload, SigningContext, signed, subject};
use tokio::time::Instant;

use crate::signed_rpc::{RpcClient, RpcError};

/// Why a handshake led to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    /// No bus, nobody there, or no answer in time.
    #[error(transparent)]
    Bus(#[from] chassis::Error),
    /// The question cannot be encoded.
    #[error("cannot reach the Mixer: {0}")]
    Question(#[from] BadSignature),
    /// The challenge is not for our hello.
    #[error("the challenge is not for this Rack's hello: another Mixer, or an impostor, answers on this bus")]
    Challenge,
    /// Another cluster.
    #[error(
        "the Mixer on this bus is of cluster {found}, and this Rack belongs to cluster {ours}; connect it to its own bus, or, \
         to move it, stop it, move its state file away and start it again"
    )]
    OtherCluster {
        /// Whose Mixer answered.
        found: ClusterId,
        /// Whose Rack this is.
        ours: ClusterId,
    },
    /// Another key than the cluster's.
    #[error(
        "the Mixer signs for cluster {0}, this Rack's own, with a key that does not follow the one that the Rack knows: its registry was \
         restored from before a rotation of the key, or an impostor answers"
    )]
    OtherKey(ClusterId),
    /// Another cluster than the invite's.
    #[error(
        "the Mixer on this bus is of cluster {0}, which is not the one of the invite: an impostor may answer; check snake.url, or ask \
         for a new invite"
    )]
    NotInvited(ClusterId),
    /// The passport that came is not taken.
    #[error("the passport that the Mixer sent is not accepted: {0}")]
    Passport(String),
    /// No.
    #[error(transparent)]
    Refused(RackRefusal),
}

impl HandshakeError {
    /// Why the Mixer does not answer a Rack that knows this cluster, or none.
    pub(crate) fn of(unanswered: RpcError, ours: Option<&ClusterKey>) -> Self {
        match (unanswered.other, ours) {
            (Some(found), Some(ours)) if found == ours.id => Self::OtherKey(found),
            (Some(found), Some(ours)) => Self::OtherCluster { found, ours: ours.id },
            (Some(found), None) => Self::NotInvited(found),
            (None, _) => Self::Bus(unanswered.error),
        }
    }
}

/// What a Rack says of itself.
pub(crate) struct EnrollmentApplicant<'a> {
    pub(crate) key: &'a SigningKey,
    pub(crate) passport: Option<&'a Passport>,
    pub(crate) invite: Option<&'a RackInvite>,
    pub(crate) claim: NameClaim,
    pub(crate) host: String,
    pub(crate) ip: String,
    /// Its public key for the bus.
    pub(crate) bus_key: Option<String>,
    /// The present run.
    pub(crate) boot_epoch: u64,
}

/// The Mixer's reply, and the cluster that signed it.
pub(crate) struct VerifiedEnrollReply {
    pub(crate) cluster: ClusterKey,
    pub(crate) reply: EnrollReply,
}

/// Enrols once, within this time for both questions.
pub(crate) async fn enroll(
    bus: &BusConnection,
    asker: &RpcClient,
    applicant: &EnrollmentApplicant<'_>,
    entropy: &Entropy,
    within: Duration,
) -> Result<VerifiedEnrollReply, HandshakeError> {
    let began = Instant::now();
    let rack_key = applicant.key.verifying_key().as_bytes().to_vec();
    let reply_key = ReplyKey::new(entropy);
    let hello = HelloRequest {
        protocol: PROTOCOL,
        rack_key: rack_key.clone(),
        nonce: entropy.bytes::<32>().to_vec(),
        reply_key: Some(reply_key.public()),
    };
    let question = (subject::HELLO, signed::encode(&hello)?);
    let ours = applicant.passport.and_then(ClusterKey::of);
    let invited = applicant.invite.map(|invite| invite.cluster);
    let expected = ours.as_ref().map(ClusterKey::fingerprint).or(invited);
    let answered = asker.call(bus, question, expected, Some(&reply_key), within).await;
    let (reply, cluster) = answered.map_err(|unanswered| HandshakeError::of(unanswered, ours.as_ref()))?;
    let challenge = match reply {
        HelloReply::Challenge(challenge) if is_for(&challenge, &hello.nonce, &cluster) => challenge,
        HelloReply::Challenge(_) => return Err(HandshakeError::Challenge),
        HelloReply::Refused(refusal) => return Err(HandshakeError::Refused(refusal)),
    };
    // Once it is admitted it is known by its key.
    let invite = applicant.invite.filter(|_| applicant.passport.is_none());
    let invite = invite.map(|invite| invite.prove(&challenge.nonce, &rack_key));
    let reply_key = ReplyKey::new(entropy);
    let transcript = EnrollTranscript {
        protocol: PROTOCOL,
        challenge,
        rack_key,
        claim: applicant.claim.clone(),
        counter: applicant.passport.map_or(0, |passport| passport.counter),
        software: env!("CARGO_PKG_VERSION").to_owned(),
        host: applicant.host.clone(),
        ip: applicant.ip.clone(),
        bus_key: applicant.bus_key.clone(),
        boot_epoch: Some(applicant.boot_epoch),
        reply_key: Some(reply_key.public()),
        invite: invite.transpose()?,
    };
    let transcript = SignedPayload::new(&transcript, SigningContext::Enroll, applicant.key)?.to_bytes()?;
    let left = within.saturating_sub(began.elapsed());
    let question = (subject::ENROLL, transcript);
    let answered = asker
        .call(bus, question, Some(cluster.fingerprint()), Some(&reply_key), left)
        .await;
    match answered.map_err(|unanswered| unanswered.error)? {
        (EnrollReply::Refused(refusal), _) => Err(HandshakeError::Refused(refusal)),
        (reply, cluster) => Ok(VerifiedEnrollReply { cluster, reply }),
    }
}

/// Whether a challenge is for our hello, and from who vouches for it.
fn is_for(challenge: &EnrollChallenge, nonce: &[u8], cluster: &ClusterKey) -> bool {
    challenge.rack_nonce == nonce
        && challenge.cluster_key == cluster.key.as_bytes()
        && challenge.cluster_id == cluster.id
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::{ClusterId, Timestamp};

    use super::*;

    #[test]
    fn a_challenge_for_another_hello_or_of_another_cluster_is_not_answered() {
        let id = |number| ClusterId::at(Timestamp::from_micros(number), [0; 10]);
        let (key, other) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let challenge = EnrollChallenge {
            nonce: vec![1; 32],
            rack_nonce: vec![7; 32],
            cluster_id: id(0),
            cluster_key: key.verifying_key().as_bytes().to_vec(),
        };
        let cluster = |id, key: &SigningKey| ClusterKey {
            id,
            key: key.verifying_key(),
        };
        assert!(is_for(&challenge, &[7; 32], &cluster(id(0), &key)));
        assert!(!is_for(&challenge, &[8; 32], &cluster(id(0), &key)));
        assert!(!is_for(&challenge, &[7; 32], &cluster(id(0), &other)));
        assert!(!is_for(&challenge, &[7; 32], &cluster(id(9_000_000), &key)));
    }
}
