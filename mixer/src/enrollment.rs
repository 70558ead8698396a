//! Enrolment: a Rack proves its key and receives its identity. The conversation is [`model::control`]'s.
//!
//! ```text
//!             hello                enroll (transcript signed)
//!  unknown ──────────▶ challenge ──────────────┬─ auto_adopt ─▶ active: passport
//!                                              ├─ an invite  ─▶ active: passport, and the invite is used (`invitation`)
//!                                              └─ otherwise ──▶ pending ── approve ─▶ active: passport on the next handshake
//! ```
//!
//! # Invariants
//!
//! - Nothing is written before the signature over the whole transcript was checked with the key it names.
//! - A challenge is good once, for a minute, for the key that asked.
//! - An adoption is durable before the passport leaves.
//!
//! # Not here
//!
//! What is written of a Rack ([`admission`]), approval by people ([`crate::control`]), the subjects ([`crate::agent_rpc`]).

mod admission;
mod challenge;
mod group_commit;
mod invitation;
mod name_claims;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use chassis::bus::sealed_reply::seal;
use model::control::{
    EnrollChallenge, EnrollReply, EnrollTranscript, HelloReply, HelloRequest, PROTOCOL, RackRefusal, RefusalCode,
    reply_key,
};
use model::passport;
use model::{BadSignature, Clock, Entropy, SignedPayload, SigningContext, signed};

use crate::cluster::Cluster;
use crate::registry::{AuditEntry, ClusterRegistry, RackRow, RegistryError};
use challenge::ChallengeStore;
use group_commit::GroupCommit;
pub(crate) use name_claims::{is_id, reserve_number};

/// The longest text a Rack may give for its host, address and version.
const MAX_TEXT: usize = 256;

/// Where Racks enrol.
#[derive(Debug)]
pub(crate) struct EnrollmentService {
    auto_adopt: bool,
    cluster: Arc<Cluster>,
    registry: Arc<ClusterRegistry>,
    challenges: Mutex<ChallengeStore>,
    admissions: GroupCommit<EnrollTranscript, Result<AdmissionOutcome, AdmissionError>>,
    ambient: (Clock, Entropy),
}

/// An answer, and what became known with it.
#[derive(Debug)]
pub(crate) struct AdmissionOutcome {
    /// For the Rack.
    pub(crate) reply: EnrollReply,
    /// The Rack as it is now, unless refused.
    pub(crate) rack: Option<RackRow>,
    /// What is new, as it is in the audit log.
    pub(crate) news: Vec<AuditEntry>,
    /// Whether the list of the bus's users is another by it.
    pub(crate) is_listed_anew: bool,
    /// Whether wires are for the name that an admitted Rack has left.
    pub(crate) left_wires: bool,
}

impl AdmissionOutcome {
    fn refused(refusal: RackRefusal) -> Self {
        Self {
            reply: EnrollReply::Refused(refusal),
            rack: None,
            news: Vec::new(),
            is_listed_anew: false,
            left_wires: false,
        }
    }
}

/// Why not: for the Rack, or a failure of ours.
#[derive(Debug)]
enum AdmissionError {
    Refused(RackRefusal),
    Registry(RegistryError),
    Form(BadSignature),
}

impl From<RegistryError> for AdmissionError {
    fn from(error: RegistryError) -> Self {
        Self::Registry(error)
    }
}

impl From<BadSignature> for AdmissionError {
    fn from(error: BadSignature) -> Self {
        Self::Form(error)
    }
}

fn no(code: RefusalCode, reason: impl Into<String>) -> AdmissionError {
    AdmissionError::Refused(refusal(code, reason))
}

pub(crate) fn refusal(code: RefusalCode, reason: impl Into<String>) -> RackRefusal {
    RackRefusal {
        code,
        reason: reason.into(),
    }
}

impl EnrollmentService {
    pub(crate) fn new(
        auto_adopt: bool,
        cluster: Arc<Cluster>,
        registry: Arc<ClusterRegistry>,
        clock: Clock,
        entropy: Entropy,
    ) -> Self {
        Self {
            auto_adopt,
            cluster,
            registry,
            challenges: Mutex::default(),
            admissions: GroupCommit::default(),
            ambient: (clock, entropy),
        }
    }

    /// Answers a hello with a challenge.
    pub(crate) fn hello(&self, body: &[u8]) -> HelloReply {
        match self.challenge(body) {
            Ok(challenge) => HelloReply::Challenge(challenge),
            Err(no) => HelloReply::Refused(no.into_refusal()),
        }
    }

    fn challenge(&self, body: &[u8]) -> Result<EnrollChallenge, AdmissionError> {
        let hello: HelloRequest = signed::decode_strict(body).map_err(malformed)?;
        check_protocol(hello.protocol)?;
        if passport::public_key(&hello.rack_key).is_err() || hello.nonce.len() != 32 {
            return Err(no(
                RefusalCode::Malformed,
                "a hello needs an Ed25519 public key and a nonce of 32 bytes",
            ));
        }
        let challenge = EnrollChallenge {
            nonce: self.ambient.1.bytes::<32>().to_vec(),
            rack_nonce: hello.nonce,
            cluster_id: self.cluster.id(),
            cluster_key: self.cluster.public_key(),
        };
        self.challenges()
            .issue(challenge.clone(), hello.rack_key, self.ambient.0.now());
        Ok(challenge)
    }

    /// The answer to a question as it is sent: sealed, where the question names a key.
    pub(crate) fn seal(&self, question: &[u8], answer: Vec<u8>) -> Vec<u8> {
        let key = reply_key(question);
        key.and_then(|key| seal(&answer, &key, &self.ambient.1))
            .unwrap_or(answer)
    }

    fn challenges(&self) -> std::sync::MutexGuard<'_, ChallengeStore> {
        self.challenges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a signed transcript. Writes to disk: not for a thread that must not block.
    pub(crate) fn enroll(&self, body: &[u8]) -> AdmissionOutcome {
        let decided = self.verify(body).and_then(|transcript| {
            let interrupted = || RegistryError::Interrupted("another handshake of its group failed".to_owned());
            let decided = self
                .admissions
                .commit_with(transcript, |group| self.admit_together(group));
            decided.unwrap_or_else(|| Err(interrupted().into()))
        });
        decided.unwrap_or_else(|no| AdmissionOutcome::refused(no.into_refusal()))
    }

    /// The transcript, once its signature, its challenge and its texts were checked.
    fn verify(&self, body: &[u8]) -> Result<EnrollTranscript, AdmissionError> {
        let signed = SignedPayload::from_bytes(body).map_err(malformed)?;
        let claimed: EnrollTranscript = signed.peek().map_err(malformed)?;
        check_protocol(claimed.protocol)?;
        let key =
            passport::public_key(&claimed.rack_key).map_err(|error| no(RefusalCode::Malformed, error.to_string()))?;
        let transcript: EnrollTranscript = signed.open(SigningContext::Enroll, &key).map_err(|_| {
            no(
                RefusalCode::Signature,
                "the transcript is not signed by the key it names, or it was changed on the way",
            )
        })?;
        for text in [&transcript.software, &transcript.host, &transcript.ip] {
            if text.len() > MAX_TEXT || text.chars().any(char::is_control) {
                let reason = format!("software, host and ip are plain texts of at most {MAX_TEXT} bytes");
                return Err(no(RefusalCode::Malformed, reason));
            }
        }
        if transcript.bus_key.as_deref().is_some_and(|key| !is_user_key(key)) {
            return Err(no(
                RefusalCode::Malformed,
                "the key for the bus is not an nkey of a user",
            ));
        }
        let now = self.ambient.0.now();
        if self
            .challenges()
            .redeem(&transcript.challenge, &transcript.rack_key, now)
        {
            Ok(transcript)
        } else {
            let reason = "the challenge was not issued to this key, was answered before, or is older than a minute: say hello again";
            Err(no(RefusalCode::Nonce, reason))
        }
    }

    /// Admits what waits in one transaction: hundreds of Racks that start together wait for a few syncs and not for hundreds. What fails undoes
    /// the transaction, and each has its own one then.
    fn admit_together(&self, group: &[EnrollTranscript]) -> Vec<Result<AdmissionOutcome, AdmissionError>> {
        let admit = |group: &[EnrollTranscript]| {
            self.registry.change_if(|change| {
                let decided: Result<Vec<_>, AdmissionError> = group.iter().map(|one| self.admit(change, one)).collect();
                let (outcomes, kept): (Vec<_>, Vec<_>) = decided?.into_iter().unzip();
                Ok((outcomes, kept.contains(&true)))
            })
        };
        match admit(group) {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            Err(error) if group.len() == 1 => vec![Err(error)],
            Err(_) => group
                .iter()
                .flat_map(|one| self.admit_together(std::slice::from_ref(one)))
                .collect(),
        }
    }
}

fn is_user_key(key: &str) -> bool {
    key.starts_with('U') && nkeys::KeyPair::from_public_key(key).is_ok()
}

fn check_protocol(found: u16) -> Result<(), AdmissionError> {
    if found == PROTOCOL {
        return Ok(());
    }
    let older = if found < PROTOCOL { "the Rack" } else { "the Mixer" };
    let reason = format!("the Rack speaks protocol {found}, the Mixer {PROTOCOL}: update {older}");
    Err(no(RefusalCode::Protocol, reason))
}

fn malformed(error: BadSignature) -> AdmissionError {
    no(RefusalCode::Malformed, error.to_string())
}

impl AdmissionError {
    fn into_refusal(self) -> RackRefusal {
        match self {
            Self::Refused(refusal) => {
                tracing::warn!(code = ?refusal.code, reason = %refusal.reason, "refused a Rack");
                refusal
            }
            Self::Registry(error) => {
                tracing::error!(%error, "enrolment failed");
                refusal(
                    RefusalCode::Internal,
                    "the Mixer cannot write its registry; its log says why",
                )
            }
            Self::Form(error) => {
                tracing::error!(%error, "enrolment failed");
                refusal(
                    RefusalCode::Internal,
                    "the Mixer cannot encode its answer; its log says why",
                )
            }
        }
    }
}
