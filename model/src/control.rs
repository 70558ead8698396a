//! Control messages between Racks and the Mixer over request/reply: enrolment, heartbeats, commands. All bodies are CBOR.
//!
//! # Enrolment
//!
//! ```text
//! Rack                                             Mixer
//!   Hello{key, nonce, claim}     ── flux.agent.hello ──▶
//!                                ◀── HelloReply: Challenge{nonce, cluster} | Refused{code, reason}
//!   Transcript signed by the     ── flux.agent.enroll ──▶
//!   Rack key (context enroll)    ◀── EnrollReply: Adopted{passport} | Pending{entity_id} | Refused{code, reason}
//! ```
//!
//! A challenge's nonce is good once and for a minute. A pending Rack repeats the handshake at every heartbeat interval,
//! and at once when it receives a [`StateChange`] on its command subject. A Rack that proves an [invite](crate::RackInvite) is adopted at once.
//!
//! # Invariants
//!
//! - Heartbeats and transcripts are signed by the Rack, commands and every answer by the cluster.
//! - An answer names its question ([`crate::signed_reply`]).
//! - `cluster` and `rack` keys are 32-byte Ed25519 public keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::dead_letter::PortSide;
use crate::signed::{self, bytes_form};
use crate::{
    Attributes, BusCredential, ClusterId, EntityId, InviteProof, KeyFingerprint, LetterId, SignedPayload, Timestamp,
    Token,
};

/// The version of this conversation.
pub const PROTOCOL: u16 = 2;

/// A Rack asks for a challenge.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HelloRequest {
    /// [`PROTOCOL`].
    pub protocol: u16,
    /// The Rack's public key.
    #[serde(with = "bytes_form")]
    pub rack_key: Vec<u8>,
    /// 32 random bytes.
    #[serde(with = "bytes_form")]
    pub nonce: Vec<u8>,
    /// The public key that the answer is sealed for: other strangers share the inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_key: Option<String>,
}

/// The Mixer's [answer](crate::signed_reply) to [`HelloRequest`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum HelloReply {
    /// Prove who you are.
    Challenge(EnrollChallenge),
    /// No.
    Refused(RackRefusal),
}

/// What the Rack must sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrollChallenge {
    /// 32 random bytes of the Mixer, good once.
    #[serde(with = "bytes_form")]
    pub nonce: Vec<u8>,
    /// The Rack's nonce, given back.
    #[serde(with = "bytes_form")]
    pub rack_nonce: Vec<u8>,
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The cluster's public key.
    #[serde(with = "bytes_form")]
    pub cluster_key: Vec<u8>,
}

/// What the Rack signs (context `enroll`) to prove its key and claim its name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EnrollTranscript {
    /// [`PROTOCOL`].
    pub protocol: u16,
    /// The challenge, whole.
    pub challenge: EnrollChallenge,
    /// The Rack's public key.
    #[serde(with = "bytes_form")]
    pub rack_key: Vec<u8>,
    /// The name it claims.
    pub claim: NameClaim,
    /// The passport counter it holds; 0 without a passport.
    pub counter: u64,
    /// The program's version.
    pub software: String,
    /// The machine's host name.
    pub host: String,
    /// The primary local IP address, as text.
    pub ip: String,
    /// The Rack's public key for the bus (an nkey of a user), with which the bus knows it where it asks who somebody is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_key: Option<String>,
    /// The Rack's run, of which its heartbeats are from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_epoch: Option<u64>,
    /// The public key that the answer is sealed for, as in [`HelloRequest`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_key: Option<String>,
    /// That it was invited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invite: Option<InviteProof>,
}

/// The key that the answer to a question of a handshake is sealed for, if the question names one.
#[must_use]
pub fn reply_key(question: &[u8]) -> Option<String> {
    if let Ok(hello) = signed::decode_strict::<HelloRequest>(question) {
        return hello.reply_key;
    }
    let transcript: EnrollTranscript = SignedPayload::from_bytes(question).ok()?.peek().ok()?;
    transcript.reply_key
}

/// How a Rack wants to be called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameClaim {
    /// Exactly this name (`base.name`).
    Name(Token),
    /// Any free name with this prefix (`rack.name_prefix`, when the name is empty).
    Prefix(Token),
}

/// The Mixer's [answer](crate::signed_reply) to a signed [`EnrollTranscript`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum EnrollReply {
    /// The signed [`crate::passport::Passport`]; the Rack is active or suspended.
    Adopted {
        /// Context `passport`.
        passport: SignedPayload,
        /// What the Rack is now.
        state: RackState,
        /// With what the bus knows it; none where its key is enough.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bus_credential: Option<BusCredential>,
    },
    /// Known, waiting for approval.
    Pending {
        /// The identity it will have.
        entity_id: EntityId,
        /// As of an adopted Rack.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bus_credential: Option<BusCredential>,
    },
    /// No.
    Refused(RackRefusal),
}

impl EnrollReply {
    /// With what the bus knows the Rack from now on.
    #[must_use]
    pub const fn bus_credential(&self) -> Option<&BusCredential> {
        match self {
            Self::Adopted { bus_credential, .. } | Self::Pending { bus_credential, .. } => bus_credential.as_ref(),
            Self::Refused(_) => None,
        }
    }

    /// The same answer with this credential, unless it is a refusal.
    #[must_use]
    pub fn with_bus_credential(mut self, credential: Option<BusCredential>) -> Self {
        if let Self::Adopted { bus_credential, .. } | Self::Pending { bus_credential, .. } = &mut self {
            *bus_credential = credential;
        }
        self
    }
}

/// A refusal with a stable code and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct RackRefusal {
    /// Stable, for programs.
    pub code: RefusalCode,
    /// For people: what is wrong and what to do.
    pub reason: String,
}

/// Why the Mixer refuses a Rack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum RefusalCode {
    Protocol,
    Malformed,
    Nonce,
    Signature,
    NameTaken,
    Removed,
    StalePassport,
    Invite,
    Unknown,
    Internal,
}

/// A Rack's admission state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RackState {
    /// Known, not adopted.
    Pending,
    /// Runs gears.
    Active,
    /// Adopted, its gears stopped.
    Suspended,
    /// Missed three heartbeats; back to its state on the next one.
    Offline,
    /// Its identity is revoked.
    Removed,
}

impl RackState {
    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Offline => "offline",
            Self::Removed => "removed",
        }
    }
}

impl std::fmt::Display for RackState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// A sign of life, signed by the Rack (context `heartbeat`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Who.
    pub entity_id: EntityId,
    /// When, by the Rack's clock.
    pub ts: Timestamp,
    /// The Rack's run.
    pub boot_epoch: u64,
    /// How often a heartbeat is due, in milliseconds.
    pub interval_ms: u64,
    /// The content hash of the scenario in force.
    pub scenario: Option<String>,
    /// Why the last scenario could not be applied.
    pub scenario_error: Option<String>,
    /// Bytes in the spool that are not known to be durable at the Mixer.
    pub spool_bytes: u64,
    /// The run and sequence of each producer run in the spool that still waits for its floor.
    pub waiting: Vec<DurableFloor>,
    /// Host facts: `cpu.usage`, `memory.used`, `disk.free`, …
    pub facts: Attributes,
    /// Counts the heartbeats of this run: one that is not after the last one is a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Whether no gear runs, whatever scenario is in force.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// When its credential for the bus expires, if it has one: the answer has another in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_expires: Option<Timestamp>,
}

/// The Mixer's [answer](crate::signed_reply) to a heartbeat.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum HeartbeatReply {
    /// Known.
    Ok {
        /// What the Rack is.
        state: RackState,
        /// The content hash of the scenario it should run, none for no scenario.
        scenario: Option<String>,
        /// Durable floors for the runs that it waits for.
        floors: Vec<DurableFloor>,
        /// What the Mixer allows every Rack; none changes nothing.
        #[serde(default)]
        limits: Option<RackLimits>,
        /// What its ports may have on their way; none changes nothing.
        #[serde(default)]
        credits: Option<PortCredits>,
        /// The certificate of the authority of the bus's server, where it has one: what an invited Rack trusts from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        authority: Option<KeyFingerprint>,
        /// With what the bus knows the Rack from now on; none where what it has is good for longer, or its key is enough.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bus_credential: Option<BusCredential>,
    },
    /// Unknown or revoked: enrol again, or stop.
    Refused(RackRefusal),
}

/// What the Mixer allows every Rack. A Rack obeys these and its own configuration, whichever is narrower.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RackLimits {
    /// The most gears a message may leave.
    pub max_hops: u32,
    /// The most bytes of a message.
    pub max_payload_size: u64,
    /// The share of traces that is kept, 0 to 1.
    pub sampling_rate: f64,
}

/// What the ports of a Rack may have on their way, beyond what waits on the stream of business messages; a port that is not named is
/// not bound. Signed by the cluster when sent alone (context `command`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCredits {
    /// The Rack.
    pub entity_id: EntityId,
    /// When the stream was looked at, a time that only grows: what is not newer than the last is not taken.
    pub at: Timestamp,
    /// Each port once.
    pub ports: Vec<PortCredit>,
}

/// What a port may have on its way: bytes handed over by its gear and not taken by the receivers of its wires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCredit {
    /// The gear.
    pub gear: Token,
    /// Its output.
    pub port: Token,
    /// Beyond what waits on the stream; 0 for none.
    pub bytes: u64,
}

/// Every batch of this producer run up to and with `seq` is durable at the Mixer. Signed by the cluster when sent alone
/// (context `command`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableFloor {
    /// The producer.
    pub entity_id: EntityId,
    /// Its run.
    pub boot_epoch: u64,
    /// The last sequence without a gap before it; 0 for none.
    pub seq: u64,
    /// How far the Mixer has them on its disk, where `seq` waits for its object store: nothing to trim on, but reason not to
    /// send them again. Not above `seq` otherwise.
    #[serde(default)]
    pub on_disk: u64,
}

/// The Mixer gives a Rack its part of a scenario, signed by the cluster (context `command`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScenarioPush {
    /// For whom.
    pub entity_id: EntityId,
    /// When it was sent; an older push than the last one is refused.
    pub issued: Timestamp,
    /// `name:version`, for people; empty to stop all gears.
    pub reference: String,
    /// SHA-256 of the scenario file, hex.
    pub hash: String,
    /// The Rack's gears.
    pub gears: Vec<crate::scenario::Gear>,
    /// The wires that begin or end at them, each with its lane.
    pub wires: Vec<crate::scenario::Wire>,
    /// Where the messages come from of the wires of lane guaranteed that end here.
    pub inlets: Vec<ConsumerBinding>,
    /// What ports that begin may have on their way until the Mixer says more.
    #[serde(default)]
    pub credits: Vec<PortCredit>,
}

/// The receiving end of a wire of lane guaranteed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsumerBinding {
    /// Where the wire begins.
    pub from: crate::scenario::GearPort,
    /// Where it ends.
    pub to: crate::scenario::GearPort,
    /// The durable consumer on the stream of business messages.
    pub consumer: String,
}

/// A Rack's answer to a push.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScenarioPushAnswer {
    /// The hash that runs now.
    pub running: Option<String>,
    /// Why the pushed one does not run.
    pub error: Option<String>,
}

/// The Mixer changes a Rack's state, signed by the cluster (context `command`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StateChange {
    /// For whom.
    pub entity_id: EntityId,
    /// When it was sent.
    pub issued: Timestamp,
    /// The new state.
    pub state: RackState,
}

/// The Mixer changes the level of a Rack's own log until its process ends or its file says another, signed by the cluster
/// (context `command`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LevelChange {
    /// For whom.
    pub entity_id: EntityId,
    /// When it was sent; an older change than the last one is refused.
    pub issued: Timestamp,
    /// The new level.
    pub level: crate::Level,
}

/// The Mixer gives letters of the dead-letter queue back to a gear of the Rack, signed by the cluster (context `command`).
///
/// The letters of one gear are numbered within a queue: a number that was taken is never taken again, so the same command may
/// be sent any number of times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayCommand {
    /// For whom.
    pub entity_id: EntityId,
    /// What numbers count within.
    pub queue: Uuid,
    /// The gear that could not handle them.
    pub gear: Token,
    /// In the order of their numbers.
    pub letters: Vec<ReplayLetter>,
}

/// One letter of a [`ReplayCommand`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayLetter {
    /// Its number among those of the gear, from 1.
    pub number: u64,
    /// The letter.
    pub letter: LetterId,
    /// The port at which it failed.
    pub port: Token,
    /// On which side.
    pub way: PortSide,
    /// The subject that it came by, if it did.
    pub from: Option<String>,
    /// How often it was tried before.
    pub attempts: u32,
    /// How often it was given back, this time included.
    pub replays: u32,
    /// The message as it travels.
    #[serde(with = "bytes_form")]
    pub message: Vec<u8>,
}

/// A Rack's answer to a [`ReplayCommand`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayAnswer {
    /// The last number that the gear has taken; 0 for none. It was handled, or is a letter again, and that is durable.
    pub taken: u64,
    /// Why a later one was not.
    pub not_taken: Option<ReplayRejection>,
}

/// Why a letter was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplayRejection {
    /// It may be sent again.
    Later(String),
    /// It was not given to the gear and will never be.
    Never {
        /// Its number.
        number: u64,
        /// Why.
        reason: String,
    },
}
