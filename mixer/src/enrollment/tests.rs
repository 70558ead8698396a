//! Enrolment, good and bad.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod group_commit;
mod invites;

use std::sync::Arc;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use model::control::{
    EnrollChallenge, EnrollReply, EnrollTranscript, HelloReply, HelloRequest, NameClaim, PROTOCOL, RackState,
    RefusalCode,
};
use model::lifecycle_event::LifecycleEvent;
use model::passport::Passport;
use model::{EntityId, SignedPayload, SigningContext, Token, signed};

use super::admission::{HEARD_OF, MAX_PENDING};
use super::{AdmissionOutcome, EnrollmentService, reserve_number};
use crate::cluster::Cluster;
use crate::registry::{AuditQuery, ClusterRegistry};
use crate::testing::{Hand, entropy};

struct Bench {
    enrollment: EnrollmentService,
    registry: Arc<ClusterRegistry>,
    hand: Hand,
    _folder: tempfile::TempDir,
}

fn bench(auto_adopt: bool) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let hand = Hand::new();
    let registry = Arc::new(ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap());
    let (clock, entropy) = (hand.clock(), entropy());
    let cluster = Cluster::open(&registry, &folder.path().join("cluster.key"), &clock, &entropy).unwrap();
    let enrollment = EnrollmentService::new(auto_adopt, Arc::new(cluster), Arc::clone(&registry), clock, entropy);
    Bench {
        enrollment,
        registry,
        hand,
        _folder: folder,
    }
}

fn rack(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

fn name(text: &str) -> NameClaim {
    NameClaim::Name(text.parse().unwrap())
}

impl Bench {
    fn hello(&self, key: &SigningKey) -> EnrollChallenge {
        let hello = HelloRequest {
            protocol: PROTOCOL,
            rack_key: key.verifying_key().as_bytes().to_vec(),
            nonce: vec![5; 32],
            reply_key: None,
        };
        let HelloReply::Challenge(challenge) = self.enrollment.hello(&signed::encode(&hello).unwrap()) else {
            panic!("refused");
        };
        assert_eq!(challenge.rack_nonce, [5; 32]);
        challenge
    }

    fn transcript(&self, key: &SigningKey, claim: NameClaim, counter: u64) -> EnrollTranscript {
        EnrollTranscript {
            protocol: PROTOCOL,
            challenge: self.hello(key),
            rack_key: key.verifying_key().as_bytes().to_vec(),
            claim,
            counter,
            software: "1.0".to_owned(),
            host: "h".to_owned(),
            ip: "10.0.0.1".to_owned(),
            bus_key: None,
            boot_epoch: None,
            invite: None,
            reply_key: None,
        }
    }

    fn enroll(&self, key: &SigningKey, claim: NameClaim, counter: u64) -> AdmissionOutcome {
        self.send(&self.transcript(key, claim, counter), key)
    }

    fn send(&self, transcript: &EnrollTranscript, key: &SigningKey) -> AdmissionOutcome {
        let signed = SignedPayload::new(transcript, SigningContext::Enroll, key).unwrap();
        self.enrollment.enroll(&signed.to_bytes().unwrap())
    }

    fn set_state(&self, id: EntityId, state: RackState) {
        self.registry
            .change(|change| {
                let mut row = change.rack(&id)?.unwrap();
                row.state = state;
                change.put_rack(&row)
            })
            .unwrap();
    }
}

fn passport(enrolled: &AdmissionOutcome) -> Passport {
    let EnrollReply::Adopted { passport, .. } = &enrolled.reply else {
        panic!("{:?}", enrolled.reply);
    };
    Passport::open(passport).unwrap()
}

/// What is new, each as the log has it.
fn kinds(enrolled: &AdmissionOutcome) -> Vec<LifecycleEvent> {
    let all = [
        LifecycleEvent::RackPending,
        LifecycleEvent::RackAdopted,
        LifecycleEvent::RackRenamed,
        LifecycleEvent::RackRemoved,
    ];
    let known = |kind: &str| all.into_iter().find(|event| event.as_str() == kind);
    enrolled.news.iter().filter_map(|entry| known(&entry.kind)).collect()
}

fn refused(enrolled: &AdmissionOutcome) -> (RefusalCode, &str) {
    let EnrollReply::Refused(refusal) = &enrolled.reply else {
        panic!("{:?}", enrolled.reply);
    };
    (refusal.code, &refusal.reason)
}

#[test]
fn with_auto_adopt_a_rack_gets_a_passport_for_its_key_at_once_and_keeps_its_identity() {
    let bench = bench(true);
    let first = bench.enroll(&rack(1), name("press"), 0);
    assert_eq!(kinds(&first), [LifecycleEvent::RackAdopted]);
    let given = passport(&first);
    assert_eq!((given.name.as_str(), given.counter), ("press", 1));
    assert_eq!(given.rack_key, rack(1).verifying_key().as_bytes());
    assert_eq!(given.entity_id.uuid().get_version_num(), 7);

    let again = bench.enroll(&rack(1), name("press"), 1);
    assert_eq!(
        (passport(&again).entity_id, passport(&again).counter),
        (given.entity_id, 2)
    );
    assert_eq!(kinds(&again), []);
}

#[test]
fn without_auto_adopt_a_rack_waits_and_gets_its_passport_once_approved() {
    let bench = bench(false);
    let first = bench.enroll(&rack(1), name("press"), 0);
    let EnrollReply::Pending { entity_id, .. } = first.reply else {
        panic!("{:?}", first.reply);
    };
    assert_eq!(kinds(&first), [LifecycleEvent::RackPending]);
    let again = bench.enroll(&rack(1), name("press"), 0);
    assert!(matches!(again.reply, EnrollReply::Pending { entity_id: same, .. } if same == entity_id));
    assert_eq!(kinds(&again), [], "it is pending since before");

    bench.set_state(entity_id, RackState::Active);
    let adopted = bench.enroll(&rack(1), name("press"), 0);
    assert_eq!(passport(&adopted).entity_id, entity_id);
    assert_eq!(kinds(&adopted), [LifecycleEvent::RackAdopted]);
}

#[test]
fn a_transcript_signed_by_another_key_or_changed_in_any_bit_is_refused_and_nothing_is_written() {
    let bench = bench(true);
    let transcript = bench.transcript(&rack(1), name("press"), 0);
    assert_eq!(refused(&bench.send(&transcript, &rack(2))).0, RefusalCode::Signature);
    let good = SignedPayload::new(&transcript, SigningContext::Enroll, &rack(1))
        .unwrap()
        .to_bytes()
        .unwrap();
    for bit in (0..good.len() * 8).step_by(3) {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(
            matches!(bench.enrollment.enroll(&bad).reply, EnrollReply::Refused(_)),
            "bit {bit}"
        );
    }
    assert!(bench.registry.racks().unwrap().is_empty());
    assert!(
        matches!(bench.enrollment.enroll(&good).reply, EnrollReply::Adopted { .. }),
        "the challenge is not burnt"
    );
}

#[test]
fn a_heartbeat_cannot_pass_as_a_transcript() {
    let bench = bench(true);
    let transcript = bench.transcript(&rack(1), name("press"), 0);
    let signed = SignedPayload::new(&transcript, SigningContext::Heartbeat, &rack(1)).unwrap();
    let reply = bench.enrollment.enroll(&signed.to_bytes().unwrap());
    assert_eq!(refused(&reply).0, RefusalCode::Signature);
}

#[test]
fn a_challenge_is_good_once_for_a_minute_and_for_the_key_that_asked() {
    let bench = bench(true);
    let transcript = bench.transcript(&rack(1), name("press"), 0);
    assert!(matches!(
        bench.send(&transcript, &rack(1)).reply,
        EnrollReply::Adopted { .. }
    ));
    assert_eq!(
        refused(&bench.send(&transcript, &rack(1))).0,
        RefusalCode::Nonce,
        "replayed"
    );

    let mut stolen = bench.transcript(&rack(1), name("press"), 1);
    stolen.rack_key = rack(2).verifying_key().as_bytes().to_vec();
    assert_eq!(
        refused(&bench.send(&stolen, &rack(2))).0,
        RefusalCode::Nonce,
        "another key's challenge"
    );

    let late = bench.transcript(&rack(1), name("press"), 1);
    bench.hand.forward(Duration::from_secs(61));
    assert_eq!(refused(&bench.send(&late, &rack(1))).0, RefusalCode::Nonce, "too late");

    let mut altered = bench.transcript(&rack(1), name("press"), 1);
    altered.challenge.rack_nonce = vec![6; 32];
    assert_eq!(
        refused(&bench.send(&altered, &rack(1))).0,
        RefusalCode::Nonce,
        "not the one issued"
    );
}

#[test]
fn a_flood_of_hellos_pushes_out_only_the_oldest_challenges() {
    let bench = bench(true);
    let old = bench.transcript(&rack(1), name("old"), 0);
    for _ in 0..4096 {
        bench.hello(&rack(9));
    }
    assert_eq!(refused(&bench.send(&old, &rack(1))).0, RefusalCode::Nonce);
    assert!(matches!(
        bench.enroll(&rack(1), name("old"), 0).reply,
        EnrollReply::Adopted { .. }
    ));
}

#[test]
fn a_name_belongs_to_the_first_key_until_that_rack_is_removed() {
    let bench = bench(true);
    let first = passport(&bench.enroll(&rack(1), name("press"), 0));
    let thief = bench.enroll(&rack(2), name("press"), 0);
    let (code, reason) = refused(&thief);
    assert_eq!(code, RefusalCode::NameTaken);
    assert!(reason.contains("press") && reason.contains("base.name"), "{reason}");

    bench.set_state(first.entity_id, RackState::Removed);
    assert_eq!(
        refused(&bench.enroll(&rack(1), name("press"), 1)).0,
        RefusalCode::Removed
    );
    assert_eq!(
        refused(&bench.enroll(&rack(1), name("other"), 1)).0,
        RefusalCode::Removed,
        "under any name"
    );
    assert_eq!(
        passport(&bench.enroll(&rack(2), name("press"), 0)).name.as_str(),
        "press"
    );
}

#[test]
fn a_rack_that_claims_another_name_is_renamed_and_one_named_by_an_operator_stays_so() {
    let bench = bench(true);
    let id = passport(&bench.enroll(&rack(1), name("a"), 0)).entity_id;
    let renamed = passport(&bench.enroll(&rack(1), name("b"), 1));
    assert_eq!((renamed.entity_id, renamed.name.as_str()), (id, "b"));
    assert_eq!(
        passport(&bench.enroll(&rack(2), name("a"), 0)).name.as_str(),
        "a",
        "its old name is free"
    );

    bench
        .registry
        .change(|change| {
            let mut row = change.rack(&id)?.unwrap();
            row.name = "press-7".parse().unwrap();
            change.put_rack(&row)
        })
        .unwrap();
    assert_eq!(passport(&bench.enroll(&rack(1), name("b"), 2)).name.as_str(), "press-7");
}

#[test]
fn prefix_names_are_counted_up_never_reused_and_kept() {
    let bench = bench(true);
    let prefix = || NameClaim::Prefix("node-".parse().unwrap());
    let first = passport(&bench.enroll(&rack(1), prefix(), 0));
    let second = passport(&bench.enroll(&rack(2), prefix(), 0));
    assert_eq!((first.name.as_str(), second.name.as_str()), ("node-1", "node-2"));
    assert_eq!(passport(&bench.enroll(&rack(1), prefix(), 1)).name.as_str(), "node-1");
    bench.set_state(second.entity_id, RackState::Removed);
    passport(&bench.enroll(&rack(3), name("node-3"), 0));
    assert_eq!(
        passport(&bench.enroll(&rack(4), prefix(), 0)).name.as_str(),
        "node-4",
        "2 was used, 3 is taken"
    );
    let longest = NameClaim::Prefix("x".repeat(64).parse().unwrap());
    assert_eq!(passport(&bench.enroll(&rack(5), longest, 0)).name.as_str().len(), 64);
}

#[test]
fn a_copy_of_an_old_state_file_is_refused_but_a_lost_answer_is_not() {
    let bench = bench(true);
    assert_eq!(passport(&bench.enroll(&rack(1), name("a"), 0)).counter, 1);
    assert_eq!(
        passport(&bench.enroll(&rack(1), name("a"), 0)).counter,
        2,
        "the first answer was lost"
    );
    assert_eq!(passport(&bench.enroll(&rack(1), name("a"), 2)).counter, 3);
    let stale = bench.enroll(&rack(1), name("a"), 1);
    let (code, reason) = refused(&stale);
    assert_eq!(code, RefusalCode::StalePassport);
    assert!(reason.contains("old copy"), "{reason}");
    assert_eq!(
        passport(&bench.enroll(&rack(1), name("a"), 7)).counter,
        8,
        "the registry was restored from a backup"
    );
}

#[test]
fn other_protocols_foreign_keys_and_control_characters_are_refused() {
    let bench = bench(true);
    let mut other = bench.transcript(&rack(1), name("a"), 0);
    other.protocol = PROTOCOL + 1;
    assert_eq!(refused(&bench.send(&other, &rack(1))).0, RefusalCode::Protocol);
    let mut rude = bench.transcript(&rack(1), name("a"), 0);
    rude.host = "a\u{1b}[2J".to_owned();
    assert_eq!(refused(&bench.send(&rude, &rack(1))).0, RefusalCode::Malformed);
    for bad in [&b""[..], b"\x00", b"hello", &[0xff; 100]] {
        assert!(matches!(bench.enrollment.hello(bad), HelloReply::Refused(_)));
        assert!(matches!(bench.enrollment.enroll(bad).reply, EnrollReply::Refused(_)));
    }
}

#[test]
fn a_suspended_rack_still_gets_its_passport_and_is_told_its_state() {
    let bench = bench(true);
    let id = passport(&bench.enroll(&rack(1), name("a"), 0)).entity_id;
    bench.set_state(id, RackState::Suspended);
    let again = bench.enroll(&rack(1), name("a"), 1);
    assert!(matches!(
        again.reply,
        EnrollReply::Adopted {
            state: RackState::Suspended,
            ..
        }
    ));
}

/// A registry in which as many Racks wait for approval as may, all last heard of then.
fn full_of_pending(last_seen: model::Timestamp) -> Bench {
    let bench = bench(false);
    bench
        .registry
        .change(|change| {
            for n in 0..MAX_PENDING {
                change.put_rack(&crate::registry::RackRow {
                    entity_id: EntityId::for_name(&n.to_string()),
                    name: format!("r{n}").parse().unwrap(),
                    claimed: format!("r{n}"),
                    rack_key: n.to_be_bytes().to_vec(),
                    state: RackState::Pending,
                    counter: 0,
                    confirmed: 0,
                    first_seen: model::Timestamp::from_micros(0),
                    last_seen,
                    interval_ms: 1000,
                    host: String::new(),
                    ip: String::new(),
                    software: String::new(),
                    labels: std::collections::BTreeMap::new(),
                    relabelled: None,
                    scenario: None,
                    offline: false,
                    bus_key: None,
                    heard: None,
                })?;
            }
            Ok::<_, crate::registry::RegistryError>(())
        })
        .unwrap();
    bench
}

#[test]
fn only_so_many_racks_may_wait_and_one_that_was_long_not_heard_of_makes_room() {
    let now = bench(false).hand.clock().now();
    let bench = full_of_pending(now.minus(Duration::from_secs(60)));
    assert_eq!(
        refused(&bench.enroll(&rack(1), name("one-more"), 0)).0,
        RefusalCode::Internal
    );
    let bench = full_of_pending(now.minus(Duration::from_secs(2 * 3_600)));
    let enrolled = bench.enroll(&rack(1), name("one-more"), 0);
    assert!(matches!(enrolled.reply, EnrollReply::Pending { .. }));
    assert_eq!(
        kinds(&enrolled),
        [LifecycleEvent::RackRemoved, LifecycleEvent::RackPending]
    );
    assert_eq!(bench.registry.racks().unwrap().len(), MAX_PENDING);
}

/// The same value with another text in the place of `good`.
fn with_text(value: ciborium::Value, text: &str) -> ciborium::Value {
    use ciborium::Value;
    match value {
        Value::Text(found) if found == "good" => Value::Text(text.to_owned()),
        Value::Map(entries) => {
            let entries = entries.into_iter();
            Value::Map(entries.map(|(key, value)| (key, with_text(value, text))).collect())
        }
        other => other,
    }
}

#[test]
fn a_name_that_leads_out_of_its_folder_or_its_subject_is_refused_and_nothing_is_written() {
    let bench = bench(true);
    let long = "x".repeat(65);
    for bad in [
        "../evil", "..", "a/b", "a\\b", "a.b", "a*", ">", "a b", "a\0", "ä", "", &long,
    ] {
        for claim in [name("good"), NameClaim::Prefix("good".parse().unwrap())] {
            let transcript = bench.transcript(&rack(1), claim, 0);
            let value = ciborium::Value::serialized(&transcript).unwrap();
            let signed = SignedPayload::new(&with_text(value, bad), SigningContext::Enroll, &rack(1)).unwrap();
            let answer = bench.enrollment.enroll(&signed.to_bytes().unwrap());
            assert_eq!(refused(&answer).0, RefusalCode::Malformed, "{bad:?}");
        }
    }
    assert!(bench.registry.racks().unwrap().is_empty());
    let value = ciborium::Value::serialized(&bench.transcript(&rack(1), name("good"), 0)).unwrap();
    let signed = SignedPayload::new(&with_text(value, "fine"), SigningContext::Enroll, &rack(1)).unwrap();
    let answer = bench.enrollment.enroll(&signed.to_bytes().unwrap());
    assert_eq!(passport(&answer).name.as_str(), "fine", "the way of the test is good");
}

#[test]
fn a_rack_that_asks_for_another_name_is_renamed_and_the_audit_log_says_from_what_to_what() {
    let bench = bench(true);
    bench.enroll(&rack(1), name("old"), 0);
    let renamed = bench.enroll(&rack(1), name("new"), 1);
    assert_eq!(passport(&renamed).name.as_str(), "new");
    assert_eq!(kinds(&renamed), [LifecycleEvent::RackRenamed]);
    let entry = &renamed.news[0];
    assert_eq!(entry.kind, "rack_renamed");
    assert_eq!((entry.from.as_deref(), entry.to.as_deref()), (Some("old"), Some("new")));
    assert_eq!(entry.by, "rack new");
}

#[test]
fn a_handshake_without_changes_does_not_rewrite_the_users_of_the_bus() {
    let bench = bench(false);
    let key = rack(1);
    let listed = |bus_key: Option<&str>, claim: &str| {
        let mut transcript = bench.transcript(&key, name(claim), 0);
        transcript.bus_key = bus_key.map(str::to_owned);
        let enrolled = bench.send(&transcript, &key);
        (enrolled.rack.unwrap().entity_id, enrolled.is_listed_anew)
    };
    let bus_key = nkeys::KeyPair::new_user().public_key();
    let (id, first) = listed(None, "press");
    assert!(first, "it is new");
    assert!(listed(Some(&bus_key), "press").1, "it has a key");
    assert!(!listed(Some(&bus_key), "press").1);
    assert!(listed(Some(&bus_key), "lathe").1, "it has another name");
    bench.set_state(id, RackState::Active);
    for _ in 0..100 {
        assert!(!listed(Some(&bus_key), "lathe").1);
    }
}

#[test]
fn the_key_for_the_bus_stays_the_one_that_was_told_first() {
    let bench = bench(false);
    let key = rack(1);
    let told = |bus_key: Option<String>| {
        let mut transcript = bench.transcript(&key, name("press"), 0);
        transcript.bus_key = bus_key;
        bench.send(&transcript, &key)
    };
    let [first, other] = [(); 2].map(|()| nkeys::KeyPair::new_user().public_key());
    assert!(told(Some(first.clone())).is_listed_anew);
    for _ in 0..10 {
        let refused = told(Some(other.clone()));
        assert!(matches!(&refused.reply, EnrollReply::Refused(no) if no.reason.contains("another one than before")));
        assert!(!refused.is_listed_anew);
    }
    let silent = told(None);
    assert!(!silent.is_listed_anew);
    assert_eq!(silent.rack.unwrap().bus_key, Some(first));
}

#[test]
fn a_rack_that_waits_and_asks_again_costs_a_write_a_minute() {
    let bench = bench(false);
    let asked = || bench.enroll(&rack(1), name("press"), 0).rack.unwrap();
    let kept = || bench.registry.racks().unwrap()[0].last_seen;
    let first = asked();
    bench.hand.forward(HEARD_OF / 2);
    let second = asked();
    assert!(second.last_seen > first.last_seen, "it is heard of");
    assert_eq!(kept(), first.last_seen);
    bench.hand.forward(HEARD_OF / 2);
    let third = asked();
    assert_eq!(kept(), third.last_seen);
}

#[test]
fn a_pending_rack_cannot_fill_the_audit_log_or_the_registry_by_renames() {
    let bench = bench(false);
    let prefix = |text: &str| NameClaim::Prefix(text.parse().unwrap());
    bench.enroll(&rack(1), name("x"), 0);
    for round in 0..20 {
        for claim in [name("y"), prefix(&format!("p{round}-")), name("x")] {
            let enrolled = bench.enroll(&rack(1), claim, 0);
            assert_eq!(kinds(&enrolled), []);
        }
    }
    let all = AuditQuery {
        limit: 100,
        ..AuditQuery::default()
    };
    let kinds: Vec<_> = bench
        .registry
        .audit(&all)
        .unwrap()
        .into_iter()
        .map(|entry| entry.kind)
        .collect();
    assert_eq!(kinds, [LifecycleEvent::RackPending.as_str()]);
    let last = |text: &str| {
        let prefix: Token = text.parse().unwrap();
        bench.registry.change(|change| change.last_number(&prefix)).unwrap()
    };
    assert!((0..20).all(|round| last(&format!("p{round}-")) == 0));
    // The number of one that is adopted is its own for ever.
    let waits = bench.enroll(&rack(1), prefix("p"), 0).rack.unwrap();
    assert_eq!((waits.name.as_str(), last("p")), ("p1", 0));
    bench
        .registry
        .change(|change| {
            let mut row = change.rack(&waits.entity_id)?.unwrap();
            row.state = RackState::Active;
            reserve_number(change, &row)?;
            row.state = RackState::Removed;
            change.put_rack(&row)
        })
        .unwrap();
    assert_eq!(bench.enroll(&rack(2), prefix("p"), 0).rack.unwrap().name.as_str(), "p2");
}

#[test]
fn a_name_that_is_an_id_is_refused() {
    let bench = bench(true);
    let victim = passport(&bench.enroll(&rack(1), name("press"), 0)).entity_id;
    for text in [victim.to_string(), victim.to_string().replace('-', "")] {
        let enrolled = bench.enroll(&rack(2), name(&text), 0);
        let (code, reason) = refused(&enrolled);
        assert_eq!(code, RefusalCode::Malformed);
        assert!(reason.contains("set another base.name"), "{reason}");
    }
}

#[test]
fn a_rack_that_shows_the_highest_counter_there_is_gets_its_passport() {
    let bench = bench(true);
    bench.enroll(&rack(1), name("press"), 0);
    let last = passport(&bench.enroll(&rack(1), name("press"), u64::MAX));
    assert_eq!(last.counter, u64::MAX);
    assert_eq!(
        passport(&bench.enroll(&rack(1), name("press"), u64::MAX)).counter,
        u64::MAX
    );
}
