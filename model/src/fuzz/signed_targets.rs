//! Targets of what is signed: handshakes, heartbeats, replies, commands, passports, keys, checkpoints, invites.
//!
//! # Invariants
//!
//! - What opens is byte for byte what was signed: a changed signature, key or payload is believed by nobody.

use std::fmt::Debug;

use ed25519_dalek::SigningKey;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::FuzzTarget;
use super::wire_parties::{WireParties, name};
use crate::audit_chain::{AUDIT_CHAIN_START, AuditCheckpoint};
use crate::control::{
    EnrollReply, EnrollTranscript, Heartbeat, HeartbeatReply, HelloReply, HelloRequest, LevelChange, PortCredits,
    RackRefusal, RackState, RefusalCode, ReplayAnswer, ReplayCommand, ScenarioPush, ScenarioPushAnswer, StateChange,
    reply_key,
};
use crate::key_succession::{KeySuccession, succeeds};
use crate::passport::{Passport, StateBundle, VERSION, public_key};
use crate::signed::{decode_strict, encode};
use crate::signed_reply::{ClusterKey, SignedReply};
use crate::tap::{TapAnswer, TapBatch, TapLease, TapRequest};
use crate::{KeyFingerprint, Level, RackInvite, SignedPayload, SigningContext};

const QUESTION: &[u8] = b"the request that is answered";

/// The targets.
pub(super) fn targets() -> Vec<FuzzTarget> {
    let parties = WireParties::new();
    let mut all = replies(&parties);
    all.extend([
        handshake(&parties),
        payloads(&parties),
        passport(&parties),
        succession(&parties),
        audit_checkpoint(&parties),
        invite(&parties),
    ]);
    let (rack, cluster) = (parties.rack.clone(), parties.cluster.clone());
    all.push(of_signed(
        "wire.heartbeat",
        vec![parties.heartbeat()],
        SigningContext::Heartbeat,
        &rack,
    ));
    let push = Vec::from_iter(parties.push());
    all.push(of_signed("wire.command", push, SigningContext::Command, &cluster));
    all
}

fn signed<T: Serialize>(value: &T, context: SigningContext, key: &SigningKey) -> Vec<u8> {
    let signed = SignedPayload::new(value, context, key);
    signed.and_then(|signed| signed.to_bytes()).unwrap_or_default()
}

/// Signed bytes whose key the reader knows.
fn of_signed<T>(target: &'static str, values: Vec<T>, context: SigningContext, key: &SigningKey) -> FuzzTarget
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let samples = values.iter().map(|value| signed(value, context, key)).collect();
    let genuine: Vec<_> = values.iter().map(encode).collect();
    let key = key.verifying_key();
    FuzzTarget::new(target, samples, move |bytes| {
        let opened = SignedPayload::from_bytes(bytes).and_then(|signed| signed.open::<T>(context, &key));
        opened.is_ok_and(|value| {
            assert!(genuine.contains(&encode(&value)), "it believes what nobody signed");
            true
        })
    })
}

fn replies(parties: &WireParties) -> Vec<FuzzTarget> {
    let refusal = || RackRefusal {
        code: RefusalCode::Removed,
        reason: "removed".to_owned(),
    };
    let limits = json!({ "max_hops": 9, "max_payload_size": 1 << 20, "sampling_rate": 0.25 });
    let passport = parties.passport().sign(&parties.cluster).ok();
    vec![
        of_reply(
            "wire.hello_reply",
            parties,
            vec![
                HelloReply::Challenge(parties.challenge()),
                HelloReply::Refused(refusal()),
            ],
        ),
        of_reply(
            "wire.enroll_reply",
            parties,
            Vec::from_iter(passport.map(|passport| EnrollReply::Adopted {
                passport,
                state: RackState::Active,
                bus_credential: Some(parties.bus_credential()),
            })),
        ),
        of_reply(
            "wire.heartbeat_reply",
            parties,
            vec![
                HeartbeatReply::Refused(refusal()),
                HeartbeatReply::Ok {
                    state: RackState::Suspended,
                    scenario: Some("ab".to_owned()),
                    floors: Vec::new(),
                    limits: serde_json::from_value(limits).ok(),
                    credits: Some(PortCredits {
                        entity_id: parties.entity_id,
                        at: parties.ts,
                        ports: Vec::new(),
                    }),
                    authority: Some(KeyFingerprint::of(b"authority")),
                    bus_credential: Some(parties.bus_credential()),
                },
            ],
        ),
    ]
}

/// Replies that a Rack which knows the cluster hears to its question, by the cluster's key and by one that follows it.
fn of_reply<T>(target: &'static str, parties: &WireParties, replies: Vec<T>) -> FuzzTarget
where
    T: Serialize + DeserializeOwned + Debug + Clone + Send + Sync + 'static,
{
    let next = SigningKey::from_bytes(&[5; 32]);
    let links = KeySuccession::sign(parties.cluster_id, &parties.cluster, &next.verifying_key(), parties.ts);
    let links = Vec::from_iter(links);
    let mut samples = Vec::new();
    for reply in &replies {
        for (key, links) in [(&parties.cluster, &[][..]), (&next, &links[..])] {
            let sample = SignedReply::sign(QUESTION, reply.clone(), (parties.cluster_id, key), links);
            samples.push(sample.unwrap_or_default());
        }
    }
    let genuine: Vec<String> = replies.iter().map(|reply| format!("{reply:?}")).collect();
    let (id, known) = (parties.cluster_id, KeyFingerprint::of(&parties.cluster_key()));
    let signers = [parties.cluster.verifying_key(), next.verifying_key()];
    FuzzTarget::new(target, samples, move |bytes| {
        let opened = SignedReply::<T>::open(bytes, QUESTION, Some(known));
        opened.is_ok_and(|(reply, by)| {
            assert!(
                genuine.contains(&format!("{reply:?}")),
                "it believes a reply that nobody signed"
            );
            assert!(by.id == id && signers.contains(&by.key), "it believes another cluster");
            true
        })
    })
}

/// Questions of strangers, as the Mixer reads them.
fn handshake(parties: &WireParties) -> FuzzTarget {
    let (hello, transcript) = (parties.hello(), parties.transcript());
    let samples = vec![
        encode(&hello).unwrap_or_default(),
        signed(&transcript, SigningContext::Enroll, &parties.rack),
    ];
    let (genuine, key) = (encode(&transcript), parties.rack_key());
    FuzzTarget::new("wire.handshake", samples, move |bytes| {
        let named = reply_key(bytes);
        if let Ok(hello) = decode_strict::<HelloRequest>(bytes) {
            assert_eq!(hello.reply_key, named);
            return true;
        }
        let Ok(question) = SignedPayload::from_bytes(bytes) else {
            return false;
        };
        let claimed = question.peek::<EnrollTranscript>();
        let Some(claimed) = claimed.ok().and_then(|claimed| public_key(&claimed.rack_key).ok()) else {
            return false;
        };
        let opened = question.open::<EnrollTranscript>(SigningContext::Enroll, &claimed);
        opened.is_ok_and(|transcript| {
            assert!(
                transcript.rack_key == key && encode(&transcript) == genuine,
                "it believes what nobody signed"
            );
            let invite = transcript.invite.as_ref();
            assert!(
                invite.is_some_and(|proof| proof.is_for(&[4; 32], &key)),
                "the invite is proved"
            );
            true
        })
    })
}

/// What a Rack or a Mixer that has its key may put into a signature, and answers.
fn payloads(parties: &WireParties) -> FuzzTarget {
    let (id, ts) = (parties.entity_id, parties.ts);
    let replay = json!({
        "entity_id": id, "queue": uuid::Uuid::from_u128(5), "gear": "g",
        "letters": [{ "number": 1, "letter": "0".repeat(32), "port": "in", "way": "in", "from": "flux.msg.a.b.c", "attempts": 3, "replays": 1, "message": [] }],
    });
    let lease = TapLease {
        entity_id: id,
        issued: ts,
        session: name("s"),
        gear: name("g"),
        port: name("out"),
        request: TapRequest::Begin,
    };
    let samples = [
        encode(&parties.heartbeat()),
        encode(&parties.transcript()),
        encode(&StateChange {
            entity_id: id,
            issued: ts,
            state: RackState::Active,
        }),
        encode(&LevelChange {
            entity_id: id,
            issued: ts,
            level: Level::Warn,
        }),
        encode(&lease),
        encode(&TapAnswer::NoGear(vec!["a".to_owned()])),
        encode(&TapBatch {
            samples: Vec::new(),
            passed: 5,
        }),
        encode(&ScenarioPushAnswer {
            running: Some("ab".to_owned()),
            error: None,
        }),
        encode(&ReplayAnswer {
            taken: 5,
            not_taken: None,
        }),
    ];
    let mut samples: Vec<Vec<u8>> = samples.into_iter().map(Result::unwrap_or_default).collect();
    samples.extend(parties.push().iter().map(|push| encode(push).unwrap_or_default()));
    let replay: Option<ReplayCommand> = serde_json::from_value(replay).ok();
    samples.extend(replay.iter().map(|replay| encode(replay).unwrap_or_default()));
    FuzzTarget::new("wire.payload", samples, |bytes| {
        let read = [
            decode_strict::<Heartbeat>(bytes).is_ok(),
            decode_strict::<EnrollTranscript>(bytes).is_ok(),
            decode_strict::<ScenarioPush>(bytes).is_ok(),
            decode_strict::<StateChange>(bytes).is_ok(),
            decode_strict::<LevelChange>(bytes).is_ok(),
            decode_strict::<ReplayCommand>(bytes).is_ok(),
            decode_strict::<TapLease>(bytes).is_ok(),
            decode_strict::<TapAnswer>(bytes).is_ok(),
            decode_strict::<TapBatch>(bytes).is_ok(),
            decode_strict::<ScenarioPushAnswer>(bytes).is_ok(),
            decode_strict::<ReplayAnswer>(bytes).is_ok(),
        ];
        read.contains(&true)
    })
}

/// Passports, and the Rack's state file.
fn passport(parties: &WireParties) -> FuzzTarget {
    let bundle = StateBundle {
        version: VERSION,
        secret_key: parties.rack.to_bytes().to_vec(),
        passport: parties.passport().sign(&parties.cluster).ok(),
        joined: Some(parties.invite()),
        configured_invite: vec![1; 32],
        former_cluster_keys: vec![[3; 32]],
        bus_credential: Some(parties.bus_credential()),
    };
    let samples = vec![
        signed(&parties.passport(), SigningContext::Passport, &parties.cluster),
        bundle.to_bytes().unwrap_or_default(),
    ];
    let genuine = parties.passport();
    FuzzTarget::new("wire.passport", samples, move |bytes| {
        let alone = SignedPayload::from_bytes(bytes)
            .ok()
            .and_then(|signed| Passport::open(&signed).ok());
        let bundle = StateBundle::from_bytes(bytes)
            .ok()
            .and_then(|bundle| bundle.open().ok());
        let is_state = bundle.is_some();
        for opened in [alone.clone(), bundle.flatten()].into_iter().flatten() {
            assert!(ClusterKey::of(&opened).is_some(), "its key is a key");
            assert_eq!(opened, genuine, "it believes a passport that nobody signed");
        }
        alone.is_some() || is_state
    })
}

fn succession(parties: &WireParties) -> FuzzTarget {
    let [second, third] = [5, 6].map(|byte| SigningKey::from_bytes(&[byte; 32]));
    let link = |old: &SigningKey, new: &SigningKey| {
        KeySuccession::sign(parties.cluster_id, old, &new.verifying_key(), parties.ts)
    };
    let links: Vec<SignedPayload> = [link(&parties.cluster, &second), link(&second, &third)]
        .into_iter()
        .flatten()
        .collect();
    let samples = vec![encode(&links).unwrap_or_default()];
    let (id, first) = (parties.cluster_id, KeyFingerprint::of(&parties.cluster_key()));
    let thief = SigningKey::from_bytes(&[8; 32]).verifying_key();
    FuzzTarget::new("wire.key_succession", samples, move |bytes| {
        let Ok(read) = decode_strict::<Vec<SignedPayload>>(bytes) else {
            return false;
        };
        assert!(!succeeds(&read, id, first, &thief), "a key that nobody signed follows");
        let opened: Vec<_> = read.iter().filter(|link| KeySuccession::open(link).is_ok()).collect();
        assert!(
            opened.iter().all(|link| links.contains(link)),
            "it believes a link that nobody signed"
        );
        succeeds(&read, id, first, &third.verifying_key())
    })
}

fn audit_checkpoint(parties: &WireParties) -> FuzzTarget {
    let checkpoint = AuditCheckpoint {
        cluster_id: parties.cluster_id,
        ts: parties.ts,
        id: 3,
        chain: AUDIT_CHAIN_START.to_owned(),
    };
    let samples = vec![checkpoint.sign(&parties.cluster).unwrap_or_default()];
    let key = parties.cluster_key();
    FuzzTarget::new("wire.audit_checkpoint", samples, move |bytes| {
        AuditCheckpoint::open(bytes, &key).is_ok_and(|opened| {
            assert_eq!(opened, checkpoint, "it believes a checkpoint that nobody signed");
            true
        })
    })
}

/// Invites as somebody types them.
fn invite(parties: &WireParties) -> FuzzTarget {
    let genuine = parties.invite();
    let text = genuine.to_text().unwrap_or_default();
    FuzzTarget::of_text("tokens.invite", &[&text], move |text| {
        text.parse::<RackInvite>().is_ok_and(|read| {
            assert!(
                read == genuine && read.public_key() == genuine.public_key(),
                "it takes an invite that nobody made"
            );
            true
        })
    })
}
