//! One enrolment handshake: hello, challenge, transcript, answer (`model::control`).
//!
//! # Invariants
//!
//! - Nothing is signed for a challenge that does not give our nonce back, signed by the key it names, or that comes from
//!   another cluster than the one that issued our passport.
//! - A handshake takes at most the time it is given, whatever the other side does.
//!
//! # Not here
//!
//! When to enrol and what to do with the answer ([`crate::presence`]); keeping the passport ([`crate::state`]).

use std::time::Duration;

use chassis::bus::Bus;
use ed25519_dalek::{SigningKey, VerifyingKey};
use model::control::{Challenge, Claim, EnrollReply, Hello, HelloReply, PROTOCOL, Refusal, Transcript};
use model::passport::{Passport, public_key};
use model::{BadSignature, ClusterId, Context, Entropy, Signed, subject};

/// Why a handshake led to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotEnrolled {
    /// No bus, nobody there, or no answer in time.
    #[error(transparent)]
    Bus(#[from] chassis::Error),
    /// The answer is not one.
    #[error("the Mixer's answer cannot be read: {0}")]
    Answer(#[from] BadSignature),
    /// The challenge is not for our hello.
    #[error("the challenge is not for this Rack's hello: another Mixer, or someone who plays one, answers on this bus")]
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
    /// The passport that came is not taken.
    #[error("the passport that the Mixer sent is not accepted: {0}")]
    Passport(String),
    /// No.
    #[error(transparent)]
    Refused(Refusal),
}

/// What a Rack says of itself.
pub(crate) struct Applicant<'a> {
    pub(crate) key: &'a SigningKey,
    pub(crate) passport: Option<&'a Passport>,
    pub(crate) claim: Claim,
    pub(crate) host: String,
    pub(crate) ip: String,
    /// Its public key for the bus.
    pub(crate) bus_key: Option<String>,
    /// The present run.
    pub(crate) boot_epoch: u64,
}

/// The Mixer's answer, and the cluster's key that vouches for it.
pub(crate) struct Answer {
    pub(crate) cluster_key: VerifyingKey,
    pub(crate) reply: EnrollReply,
}

/// Enrols once.
pub(crate) async fn enroll(
    bus: &Bus,
    applicant: &Applicant<'_>,
    entropy: &Entropy,
    within: Duration,
) -> Result<Answer, NotEnrolled> {
    match tokio::time::timeout(within, handshake(bus, applicant, entropy, within)).await {
        Ok(answer) => answer,
        Err(_) => Err(chassis::Error::NoReply {
            subject: subject::ENROLL.to_owned(),
            within: within.into(),
        }
        .into()),
    }
}

async fn handshake(
    bus: &Bus,
    applicant: &Applicant<'_>,
    entropy: &Entropy,
    within: Duration,
) -> Result<Answer, NotEnrolled> {
    let rack_key = applicant.key.verifying_key().as_bytes().to_vec();
    let hello = Hello {
        protocol: PROTOCOL,
        rack_key: rack_key.clone(),
        nonce: entropy.bytes::<32>().to_vec(),
    };
    let signed = match bus.request(subject::HELLO, &hello, within).await? {
        HelloReply::Challenge(signed) => signed,
        HelloReply::Refused(refusal) => return Err(NotEnrolled::Refused(refusal)),
    };
    let (challenge, cluster_key) = open_challenge(&signed, &hello.nonce, applicant.passport)?;
    let transcript = Transcript {
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
    };
    let transcript = Signed::new(&transcript, Context::Enroll, applicant.key)?;
    match bus.request(subject::ENROLL, &transcript, within).await? {
        EnrollReply::Refused(refusal) => Err(NotEnrolled::Refused(refusal)),
        reply => Ok(Answer { cluster_key, reply }),
    }
}

/// The challenge, if it is for our hello and from our cluster.
fn open_challenge(
    signed: &Signed,
    nonce: &[u8],
    passport: Option<&Passport>,
) -> Result<(Challenge, VerifyingKey), NotEnrolled> {
    let claimed: Challenge = signed.peek()?;
    let key = public_key(&claimed.cluster_key).map_err(|_| NotEnrolled::Challenge)?;
    let challenge: Challenge = signed.open(Context::Challenge, &key)?;
    if challenge.rack_nonce != nonce {
        return Err(NotEnrolled::Challenge);
    }
    match passport {
        Some(passport) if passport.cluster_key != challenge.cluster_key => Err(NotEnrolled::OtherCluster {
            found: challenge.cluster_id,
            ours: passport.cluster_id,
        }),
        _ => Ok((challenge, key)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::Timestamp;

    use super::*;

    fn challenge(key: &SigningKey, rack_nonce: &[u8]) -> Signed {
        let challenge = Challenge {
            nonce: vec![1; 32],
            rack_nonce: rack_nonce.to_vec(),
            cluster_id: ClusterId::at(Timestamp::from_micros(0), [0; 10]),
            cluster_key: key.verifying_key().as_bytes().to_vec(),
        };
        Signed::new(&challenge, Context::Challenge, key).unwrap()
    }

    #[test]
    fn a_challenge_for_another_hello_is_not_answered() {
        let key = SigningKey::from_bytes(&[1; 32]);
        assert!(open_challenge(&challenge(&key, &[7; 32]), &[7; 32], None).is_ok());
        let other = open_challenge(&challenge(&key, &[8; 32]), &[7; 32], None);
        assert!(matches!(other, Err(NotEnrolled::Challenge)));
    }

    #[test]
    fn a_challenge_that_the_key_in_it_did_not_sign_is_not_answered() {
        let (key, thief) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let mut forged: Challenge = challenge(&key, &[7; 32]).peek().unwrap();
        forged.cluster_key = key.verifying_key().as_bytes().to_vec();
        let forged = Signed::new(&forged, Context::Challenge, &thief).unwrap();
        assert!(matches!(
            open_challenge(&forged, &[7; 32], None),
            Err(NotEnrolled::Answer(_))
        ));
    }

    #[test]
    fn a_rack_with_a_passport_does_not_answer_another_cluster() {
        let (ours, theirs) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let passport = Passport {
            version: model::passport::VERSION,
            cluster_id: ClusterId::at(Timestamp::from_micros(9), [0; 10]),
            cluster_key: ours.verifying_key().as_bytes().to_vec(),
            entity_id: model::EntityId::for_name("r"),
            name: "r".parse().unwrap(),
            rack_key: vec![0; 32],
            issued: Timestamp::from_micros(0),
            counter: 1,
        };
        assert!(open_challenge(&challenge(&ours, &[7; 32]), &[7; 32], Some(&passport)).is_ok());
        let error = open_challenge(&challenge(&theirs, &[7; 32]), &[7; 32], Some(&passport)).unwrap_err();
        assert!(matches!(error, NotEnrolled::OtherCluster { .. }), "{error}");
    }
}
