//! A whole Mixer on real parts, and Racks that speak to it over the real bus.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "tests")]

mod away;
mod clocks;
mod credentials;
mod labels;
mod letters;
mod real;

use std::path::Path;
use std::time::Duration;

use async_nats::{Client, Subscriber};
use chassis::Exit;
use chassis::config::{Sources, load};
use ed25519_dalek::SigningKey;
use futures::StreamExt;
use model::control::{
    Applied, Challenge, Claim, DurableFloor, EnrollReply, Heartbeat, HeartbeatReply, Hello, HelloReply, PROTOCOL,
    RackState, RefusalCode, ScenarioPush, StateChange, Transcript,
};
use model::passport::{Passport, public_key};
use model::{Attributes, Context, EntityId, Signed, Timestamp, signed, subject};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Mixer, StartError};
use crate::config::{MixerConfig, SCHEMA};
use crate::control::{Control, ControlError, RackView};
use crate::registry::Actor;
use crate::testing::{entropy, eventually, nats_server};

const SCENARIO: &str = "
meta: { name: demo, version: '1' }
racks: [ { name: rack-a }, { name: rack-b } ]
gears:
  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 10 } }
  - { name: sink, type: log_sink, deploy: rack-a }
  - { name: other, type: log_sink, deploy: rack-b }
wires:
  - { from: numbers.out, to: sink.in }
";

fn config(folder: &Path, flags: &[(&str, &str)]) -> MixerConfig {
    let text = |text: &str| text.to_owned();
    let mut all = vec![
        (text("store.dir"), folder.join("data").display().to_string()),
        (text("snake.port"), text("0")),
        (text("snake.server_binary"), nats_server().display().to_string()),
        (text("snake.max_store_mb"), text("256")),
        (text("api.port"), text("0")),
        (text("enrollment.push_delay"), text("10ms")),
    ];
    all.extend(flags.iter().map(|(key, value)| (text(key), text(value))));
    let sources = Sources {
        flags: all,
        ..Sources::default()
    };
    MixerConfig::of(&load(&SCHEMA, &sources).unwrap()).unwrap()
}

async fn start(folder: &Path, flags: &[(&str, &str)]) -> Mixer {
    Mixer::start(config(folder, flags), chassis::system_clock(), chassis::os_entropy())
        .await
        .unwrap()
}

async fn refused(folder: &Path, flags: &[(&str, &str)]) -> StartError {
    let started = Mixer::start(config(folder, flags), chassis::system_clock(), entropy()).await;
    started.map(|_| ()).unwrap_err()
}

/// A Rack as the protocol sees it.
struct FakeRack {
    key: SigningKey,
    client: Client,
    counter: u64,
    bus_key: Option<String>,
    run: Option<u64>,
}

impl FakeRack {
    async fn connect(mixer: &Mixer, seed: u8) -> Self {
        let url = mixer.control().bus_status().url;
        Self {
            key: SigningKey::from_bytes(&[seed; 32]),
            client: async_nats::connect(url).await.unwrap(),
            counter: 0,
            bus_key: None,
            run: None,
        }
    }

    async fn ask<R: DeserializeOwned + Serialize>(&self, subject: &'static str, body: Vec<u8>) -> R {
        let reply = self.client.request(subject, body.into()).await.unwrap();
        signed::decode_strict(&reply.payload).unwrap()
    }

    async fn enroll(&mut self, name: &str) -> EnrollReply {
        let rack_key = self.key.verifying_key().as_bytes().to_vec();
        let hello = Hello {
            protocol: PROTOCOL,
            rack_key: rack_key.clone(),
            nonce: vec![1; 32],
        };
        let HelloReply::Challenge(challenge) = self.ask(subject::HELLO, signed::encode(&hello).unwrap()).await else {
            panic!("no challenge");
        };
        let transcript = Transcript {
            protocol: PROTOCOL,
            challenge: challenge.peek::<Challenge>().unwrap(),
            rack_key,
            claim: Claim::Name(name.parse().unwrap()),
            counter: self.counter,
            software: "1.0".to_owned(),
            host: "host-of-a".to_owned(),
            ip: "10.0.0.1".to_owned(),
            bus_key: self.bus_key.clone(),
            boot_epoch: self.run,
        };
        let signed = Signed::new(&transcript, Context::Enroll, &self.key).unwrap();
        let reply = self.ask(subject::ENROLL, signed.to_bytes().unwrap()).await;
        if let EnrollReply::Adopted { passport, .. } = &reply {
            self.counter = Passport::open(passport).unwrap().counter;
        }
        reply
    }

    async fn adopted(&mut self, name: &str) -> Passport {
        match self.enroll(name).await {
            EnrollReply::Adopted { passport, .. } => Passport::open(&passport).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    async fn commands(&self, id: &EntityId) -> Subscriber {
        let commands = self.client.subscribe(subject::rack_all(id)).await.unwrap();
        self.client.flush().await.unwrap();
        commands
    }

    fn beat(id: EntityId, scenario: Option<&str>) -> Heartbeat {
        Heartbeat {
            entity_id: id,
            ts: Timestamp::from_micros(5),
            boot_epoch: 7,
            interval_ms: 100,
            scenario: scenario.map(str::to_owned),
            scenario_error: None,
            spool_bytes: 42,
            waiting: vec![DurableFloor {
                entity_id: id,
                boot_epoch: 7,
                seq: 3,
            }],
            facts: Attributes::new().with("cpu", 0.5),
            seq: None,
        }
    }

    async fn heartbeat(&self, beat: &Heartbeat, cluster: &[u8]) -> HeartbeatReply {
        let signed = Signed::new(beat, Context::Heartbeat, &self.key).unwrap();
        let reply: Signed = self.ask(subject::HEARTBEAT, signed.to_bytes().unwrap()).await;
        reply.open(Context::Command, &public_key(cluster).unwrap()).unwrap()
    }
}

/// The next command of one kind, opened with the cluster's key, and answered.
async fn next<T: DeserializeOwned + Serialize>(
    commands: &mut Subscriber,
    client: &Client,
    kind: &str,
    passport: &Passport,
    answer: &impl Serialize,
) -> T {
    let key = public_key(&passport.cluster_key).unwrap();
    loop {
        let waited = tokio::time::timeout(Duration::from_secs(20), commands.next()).await;
        let message = waited.unwrap_or_else(|_| panic!("no {kind} command")).unwrap();
        if !message.subject.as_str().ends_with(kind) {
            continue;
        }
        if let Some(to) = message.reply {
            client
                .publish(to, signed::encode(answer).unwrap().into())
                .await
                .unwrap();
        }
        return Signed::from_bytes(&message.payload)
            .unwrap()
            .open(Context::Command, &key)
            .unwrap();
    }
}

fn view(control: &Control, rack: &str) -> RackView {
    control.rack(rack).unwrap()
}

fn write_scenario(folder: &Path, text: &str) -> String {
    let path = folder.join("demo.yaml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_rack_is_approved_and_gets_its_part_of_the_scenario_until_it_runs_it() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), SCENARIO);
    let flags = [
        ("mixer.startup_scenario", scenario.as_str()),
        ("mixer.max_hops", "7"),
        ("mixer.max_payload_size", "65536"),
        ("observability.sampling_rate", "0.5"),
    ];
    let mixer = start(folder.path(), &flags).await;
    let control = mixer.control();
    let hash = model::scenario::content_hash(SCENARIO);
    assert_eq!(control.active_scenario().unwrap().unwrap().hash, hash);

    let mut rack = FakeRack::connect(&mixer, 1).await;
    let EnrollReply::Pending { entity_id } = rack.enroll("rack-a").await else {
        panic!("not pending");
    };
    assert_eq!(view(control, "rack-a").state, RackState::Pending);
    assert!(matches!(
        control.suspend("rack-a", &Actor::Mixer).await,
        Err(ControlError::State { .. })
    ));
    assert!(matches!(
        control.approve("nobody", None, &Actor::Mixer).await,
        Err(ControlError::UnknownRack(_))
    ));

    let mut commands = rack.commands(&entity_id).await;
    let approved = control
        .approve(&entity_id.to_string(), None, &Actor::Mixer)
        .await
        .unwrap();
    assert_eq!(
        (approved.state, approved.host.as_str()),
        (RackState::Active, "host-of-a")
    );
    assert_eq!(
        control.approve("rack-a", None, &Actor::Mixer).await.unwrap().state,
        RackState::Active,
        "again"
    );
    let renamed = control
        .approve("rack-a", Some("x".parse().unwrap()), &Actor::Mixer)
        .await;
    assert!(matches!(renamed, Err(ControlError::State { .. })));
    let passport = rack.adopted("rack-a").await;
    assert_eq!(passport.entity_id, entity_id);

    let told: StateChange = next(&mut commands, &rack.client, "state", &passport, &()).await;
    assert_eq!((told.entity_id, told.state), (entity_id, RackState::Active));
    let applied = Applied {
        running: Some(hash.clone()),
        error: None,
    };
    let push: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &applied).await;
    assert_eq!((push.reference.as_str(), &push.hash), ("demo:1", &hash));
    let gears: Vec<&str> = push.gears.iter().map(|gear| gear.name.as_str()).collect();
    assert_eq!(
        (gears.as_slice(), push.wires.len()),
        (&["numbers", "sink"][..], 1),
        "its own part only"
    );

    let reply = rack
        .heartbeat(&FakeRack::beat(entity_id, Some(&hash)), &passport.cluster_key)
        .await;
    let HeartbeatReply::Ok {
        state,
        scenario,
        floors,
        limits,
    } = reply
    else {
        panic!("{reply:?}");
    };
    assert_eq!((state, scenario.as_ref()), (RackState::Active, Some(&hash)));
    let wanted = model::control::Limits {
        max_hops: 7,
        max_payload_size: 65_536,
        sampling_rate: 0.5,
    };
    assert_eq!(limits, Some(wanted), "what every Rack is allowed");
    assert_eq!(
        (floors.len(), floors[0].boot_epoch, floors[0].seq),
        (1, 7, 0),
        "nothing of it is durable here"
    );
    let seen = view(control, "rack-a");
    assert_eq!(seen.scenario.wanted, seen.scenario.running);
    assert_eq!((seen.spool_bytes, seen.facts.get("cpu").is_some()), (42, true));

    rack.heartbeat(&FakeRack::beat(entity_id, Some("other")), &passport.cluster_key)
        .await;
    let again: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &applied).await;
    assert_eq!(again.hash, hash, "a Rack that runs something else is sent it again");

    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_rack_has_nothing_to_run_until_it_is_resumed_and_a_removed_one_is_refused_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), SCENARIO);
    let flags = [
        ("mixer.startup_scenario", scenario.as_str()),
        ("enrollment.auto_adopt", "true"),
    ];
    let mixer = start(folder.path(), &flags).await;
    let (control, hash) = (mixer.control(), model::scenario::content_hash(SCENARIO));
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    let entity_id = passport.entity_id;
    let mut commands = rack.commands(&entity_id).await;

    control.suspend("rack-a", &Actor::Mixer).await.unwrap();
    let told: StateChange = next(&mut commands, &rack.client, "state", &passport, &()).await;
    assert_eq!(told.state, RackState::Suspended);
    let reply = rack
        .heartbeat(&FakeRack::beat(entity_id, Some(&hash)), &passport.cluster_key)
        .await;
    assert!(
        matches!(
            reply,
            HeartbeatReply::Ok {
                state: RackState::Suspended,
                scenario: None,
                ..
            }
        ),
        "{reply:?}"
    );
    control.resume("rack-a", &Actor::Mixer).await.unwrap();
    let told: StateChange = next(&mut commands, &rack.client, "state", &passport, &()).await;
    assert_eq!(told.state, RackState::Active);

    assert_eq!(
        control.remove("rack-a", &Actor::Mixer).await.unwrap().state,
        RackState::Removed
    );
    let reply = rack
        .heartbeat(&FakeRack::beat(entity_id, None), &passport.cluster_key)
        .await;
    assert!(matches!(reply, HeartbeatReply::Refused(refusal) if refusal.code == RefusalCode::Removed));
    assert!(matches!(
        control.resume(&entity_id.to_string(), &Actor::Mixer).await,
        Err(ControlError::State { .. })
    ));
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_is_approved_under_a_name_that_is_free_and_only_under_such_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = start(folder.path(), &[]).await;
    let (mut first, mut second) = (FakeRack::connect(&mixer, 1).await, FakeRack::connect(&mixer, 2).await);
    first.enroll("node-01").await;
    second.enroll("node-02").await;
    let control = mixer.control();
    let name = |text: &str| Some(text.parse().unwrap());
    control
        .approve("node-01", name("press-7"), &Actor::Mixer)
        .await
        .unwrap();
    assert_eq!(first.adopted("node-01").await.name.as_str(), "press-7");
    let taken = control
        .approve("node-02", name("press-7"), &Actor::Mixer)
        .await
        .unwrap_err();
    assert!(matches!(taken, ControlError::NameTaken { .. }), "{taken}");
    assert_eq!(view(control, "node-02").state, RackState::Pending);
    assert!(matches!(control.rack("node-01"), Err(ControlError::UnknownRack(_))));
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_comes_before_the_racks_subscription_is_sent_again_without_a_heartbeat() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), SCENARIO);
    let flags = [
        ("mixer.startup_scenario", scenario.as_str()),
        ("enrollment.auto_adopt", "true"),
    ];
    let mixer = start(folder.path(), &flags).await;
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    // Longer than the push delay: the first push has found nobody. Nothing is awaited by it.
    tokio::time::sleep(Duration::from_millis(40)).await;
    let mut commands = rack.commands(&passport.entity_id).await;
    let hash = model::scenario::content_hash(SCENARIO);
    let applied = Applied {
        running: Some(hash.clone()),
        error: None,
    };
    let push: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &applied).await;
    assert_eq!(push.hash, hash);
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_that_cannot_apply_a_scenario_says_why_and_is_not_sent_it_again_at_every_heartbeat() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), SCENARIO);
    let flags = [
        ("mixer.startup_scenario", scenario.as_str()),
        ("enrollment.auto_adopt", "true"),
    ];
    let mixer = start(folder.path(), &flags).await;
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    let mut beat = FakeRack::beat(passport.entity_id, None);
    beat.scenario_error = Some("port 80 is taken".to_owned());
    rack.heartbeat(&beat, &passport.cluster_key).await;
    let mut commands = rack.commands(&passport.entity_id).await;
    let applied = Applied {
        running: None,
        error: Some("numbers: port 80 is taken".to_owned()),
    };
    rack.heartbeat(&beat, &passport.cluster_key).await;
    let _: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &applied).await;
    let seen = eventually("the refusal is noted", || async {
        Some(view(mixer.control(), "rack-a")).filter(|seen| seen.error == applied.error)
    })
    .await;
    assert_ne!(seen.scenario.wanted, seen.scenario.running);

    for _ in 0..5 {
        rack.heartbeat(&beat, &passport.cluster_key).await;
    }
    beat.boot_epoch += 1;
    rack.heartbeat(&beat, &passport.cluster_key).await;
    let again: ScenarioPush = next(&mut commands, &rack.client, "scenario", &passport, &applied).await;
    assert_eq!(
        again.hash,
        model::scenario::content_hash(SCENARIO),
        "its next run may fare better"
    );
    mixer.control().suspend("rack-a", &Actor::Mixer).await.unwrap();
    let mut more = 0;
    while let Some(message) = commands.next().await {
        more += usize::from(message.subject.ends_with(".scenario"));
        if message.subject.ends_with(".state") {
            break;
        }
    }
    assert_eq!(more, 0, "one push per run of the Rack");
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_that_misses_three_heartbeats_is_offline_until_the_next_one_and_events_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = start(folder.path(), &[("enrollment.auto_adopt", "true")]).await;
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let mut events = rack.client.subscribe("platform.event.>").await.unwrap();
    rack.client.flush().await.unwrap();
    let passport = rack.adopted("rack-a").await;
    let beat = FakeRack::beat(passport.entity_id, None);
    rack.heartbeat(&beat, &passport.cluster_key).await;
    assert_eq!(view(mixer.control(), "rack-a").state, RackState::Active);
    let control = mixer.control();
    eventually("offline", || async {
        (view(control, "rack-a").state == RackState::Offline).then_some(())
    })
    .await;
    let mut kinds = Vec::new();
    while !kinds.iter().any(|kind| kind == "platform.event.rack_offline") {
        let event = tokio::time::timeout(Duration::from_secs(20), events.next())
            .await
            .unwrap()
            .unwrap();
        let body: serde_json::Value = serde_json::from_slice(&event.payload).unwrap();
        assert_eq!(body["rack"], "rack-a");
        kinds.push(event.subject.to_string());
    }
    assert_eq!(kinds, ["platform.event.rack_adopted", "platform.event.rack_offline"]);
    rack.heartbeat(&beat, &passport.cluster_key).await;
    assert_eq!(view(control, "rack-a").state, RackState::Active);
    let event = tokio::time::timeout(Duration::from_secs(20), events.next())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(event.subject.as_str(), "platform.event.rack_online");
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_scenarios_is_an_event_and_what_changes_nothing_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = start(folder.path(), &[]).await;
    let client = async_nats::connect(mixer.control().bus_status().url).await.unwrap();
    let mut events = client.subscribe("platform.event.>").await.unwrap();
    client.flush().await.unwrap();
    let control = mixer.control();
    let second = SCENARIO.replace("version: '1'", "version: '2'");
    for text in [SCENARIO, SCENARIO, second.as_str()] {
        control.import(text.to_owned(), false, &Actor::Mixer).await.unwrap();
    }
    control.rehearse("demo:1").await.unwrap();
    control.activate("demo:1", &Actor::Mixer).await.unwrap();
    control.activate("demo:2", &Actor::Mixer).await.unwrap();
    control.roll_back(&Actor::Mixer).await.unwrap();
    for (kind, reference) in [
        ("scenario_imported", "demo:1"),
        ("scenario_imported", "demo:2"),
        ("scenario_activated", "demo:1"),
        ("scenario_activated", "demo:2"),
        ("scenario_rolled_back", "demo:1"),
    ] {
        let event = tokio::time::timeout(Duration::from_secs(20), events.next())
            .await
            .unwrap()
            .unwrap();
        let body: serde_json::Value = serde_json::from_slice(&event.payload).unwrap();
        assert_eq!(event.subject.as_str(), format!("platform.event.{kind}"));
        assert_eq!((&body["kind"], &body["reference"]), (&kind.into(), &reference.into()));
    }
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_signed_by_another_key_copied_or_of_a_stranger_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = start(folder.path(), &[("enrollment.auto_adopt", "true")]).await;
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    let thief = FakeRack::connect(&mixer, 2).await;
    let forged = thief
        .heartbeat(&FakeRack::beat(passport.entity_id, Some("x")), &passport.cluster_key)
        .await;
    assert!(matches!(forged, HeartbeatReply::Refused(refusal) if refusal.code == RefusalCode::Signature));
    assert_eq!(view(mixer.control(), "rack-a").scenario.running, None);
    let stranger = FakeRack::beat(EntityId::for_name("stranger"), None);
    let unknown = thief.heartbeat(&stranger, &passport.cluster_key).await;
    assert!(matches!(unknown, HeartbeatReply::Refused(refusal) if refusal.code == RefusalCode::Unknown));

    let nonsense: HelloReply = thief.ask(subject::HELLO, b"x".to_vec()).await;
    assert!(matches!(nonsense, HelloReply::Refused(_)));
    let nonsense: EnrollReply = thief.ask(subject::ENROLL, b"x".to_vec()).await;
    assert!(matches!(nonsense, EnrollReply::Refused(_)));
    for (subject, times) in [(subject::HELLO, 2), (subject::ENROLL, 1), (subject::HEARTBEAT, 1)] {
        for _ in 0..times {
            let request = thief.client.publish_with_reply(subject, "flux.msg.a.b.c", "x".into());
            request.await.unwrap();
        }
    }
    let stats = eventually("all of them are counted", || async {
        let stats = mixer.control().stats().unwrap();
        let elsewhere = |of: &crate::refusals::ByReason| of["answer_elsewhere"];
        let all = (
            elsewhere(&stats.handshakes_refused),
            elsewhere(&stats.heartbeats_refused),
        );
        (all == (3, 1)).then_some(stats)
    })
    .await;
    let of = |all: &crate::refusals::ByReason| {
        let counted = all.iter().filter(|(_, count)| **count > 0);
        counted.map(|(code, count)| (*code, *count)).collect::<Vec<_>>()
    };
    assert_eq!(
        of(&stats.handshakes_refused),
        [("answer_elsewhere", 3), ("malformed", 2)]
    );
    assert_eq!(
        of(&stats.heartbeats_refused),
        [("answer_elsewhere", 1), ("signature", 1), ("unknown", 1)]
    );
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_heartbeats_keep_nobody_alive_neither_after_a_handshake_nor_after_a_restart_of_the_mixer() {
    let folder = tempfile::tempdir().unwrap();
    let mut mixer = start(folder.path(), &[("enrollment.auto_adopt", "true")]).await;
    let mut rack = FakeRack::connect(&mixer, 1).await;
    // Handshakes for a run, and heartbeats: run, number, whether it counts.
    let begins = |run| (Some(run), Vec::new());
    let hears = |beats: &[(u64, u64, bool)]| (None, beats.to_vec());
    let restarts = (None, Vec::new());
    for (handshake, beats) in [
        begins(7),
        hears(&[
            (7, 1, true),
            (7, 1, false),
            (7, 2, true),
            (7, 1, false),
            (6, 9, false),
            (8, 1, false),
        ]),
        begins(8),
        hears(&[(7, 3, false), (8, 1, true), (8, 5, true)]),
        // The bus was away.
        begins(8),
        hears(&[(8, 1, false), (8, 5, false), (7, 9, false), (8, 6, true)]),
        restarts.clone(),
        hears(&[(7, 1, false), (8, 5, false), (8, 6, false), (9, 1, false), (8, 7, true)]),
        begins(9),
        restarts,
        hears(&[(8, 8, false), (9, 1, true)]),
        // It lost its spool while its clock was behind.
        begins(5),
        hears(&[(9, 2, false), (8, 9, false), (5, 1, true), (5, 1, false)]),
    ] {
        if handshake.is_none() && beats.is_empty() {
            mixer.close().await;
            mixer = start(folder.path(), &[("enrollment.auto_adopt", "true")]).await;
            rack.client = FakeRack::connect(&mixer, 1).await.client;
        }
        if handshake.is_some() {
            rack.run = handshake;
            rack.adopted("rack-a").await;
        }
        let known = view(mixer.control(), "rack-a").id;
        let cluster = mixer.control().cluster.public_key();
        for (run, number, counts) in beats {
            let mut beat = FakeRack::beat(known, None);
            (beat.boot_epoch, beat.seq) = (run, Some(number));
            let reply = rack.heartbeat(&beat, &cluster).await;
            let copied = matches!(&reply, HeartbeatReply::Refused(refusal) if refusal.code == RefusalCode::Nonce);
            assert_eq!(copied, !counts, "run {run}, number {number}: {reply:?}");
        }
    }
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn racks_and_the_active_scenario_are_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), SCENARIO);
    let adopt = ("enrollment.auto_adopt", "true");
    let mixer = start(folder.path(), &[adopt, ("mixer.startup_scenario", &scenario)]).await;
    let cluster = mixer.control().cluster_id();
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    rack.heartbeat(&FakeRack::beat(passport.entity_id, Some("abc")), &passport.cluster_key)
        .await;
    let before = view(mixer.control(), "rack-a");
    mixer.close().await;

    for reference in ["", "demo:1", "demo:latest"] {
        let mixer = start(folder.path(), &[adopt, ("mixer.startup_scenario", reference)]).await;
        let control = mixer.control();
        assert_eq!(control.cluster_id(), cluster);
        assert_eq!(
            control.active_scenario().unwrap().unwrap().reference,
            "demo:1",
            "{reference:?}"
        );
        let after = view(control, "rack-a");
        assert_eq!(
            (after.id, after.last_seen),
            (before.id, before.last_seen),
            "the last sighting was written"
        );
        assert_eq!(
            after.scenario.running.map(|running| running.hash).as_deref(),
            Some("abc")
        );
        mixer.close().await;
    }
    let unknown = refused(folder.path(), &[("mixer.startup_scenario", "demo:9")]).await;
    assert_eq!(unknown.exit_code(), Exit::Config);
    assert!(unknown.to_string().contains("demo:1"), "{unknown}");

    std::fs::remove_file(folder.path().join("data/cluster.key")).unwrap();
    let keyless = refused(folder.path(), &[]).await;
    assert_eq!(keyless.exit_code(), Exit::Config);
    assert!(keyless.to_string().contains("cluster.key"), "{keyless}");
}

/// What an older program had active: a scenario that this one refuses, then another one.
fn activate_unread(folder: &Path, last: &str) {
    let registry = crate::registry::Registry::open(&folder.join("data/registry.redb")).unwrap();
    let row = |version: &str, text: String| crate::registry::ScenarioRow {
        hash: model::scenario::content_hash(&text),
        name: "demo".parse().unwrap(),
        version: version.parse().unwrap(),
        stored: Timestamp::from_micros(1),
        text,
    };
    let refused = row("0", SCENARIO.replace("generator", "genrator").replace("'1'", "'0'"));
    let good = row("1", SCENARIO.to_owned());
    let all = if last == "demo:0" {
        [good, refused]
    } else {
        [refused, good]
    };
    let activate = |change: &crate::registry::Change<'_>| {
        for row in &all {
            change.put_scenario(row)?;
            change.activate(&crate::registry::ActiveScenario {
                reference: row.reference(),
                hash: row.hash.clone(),
                activated: Timestamp::from_micros(2),
            })?;
        }
        Ok::<_, crate::registry::RegistryError>(())
    };
    registry.change(activate).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_to_a_scenario_that_this_program_refuses_says_its_faults_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    start(folder.path(), &[]).await.close().await;
    activate_unread(folder.path(), "demo:1");
    let mixer = start(folder.path(), &[]).await;
    let control = mixer.control();
    let before = (
        control.active_scenario().unwrap(),
        control.scenario_report().await.unwrap(),
    );
    let all = || crate::registry::AuditQuery {
        limit: 100,
        ..Default::default()
    };
    let entries = control.audit(all()).await.unwrap();
    let error = control.roll_back(&Actor::Mixer).await.unwrap_err();
    assert!(
        matches!(&error, ControlError::BadFormer { reference, .. } if reference == "demo:0"),
        "{error}"
    );
    assert!(error.to_string().contains("genrator"), "{error}");
    let after = (
        control.active_scenario().unwrap(),
        control.scenario_report().await.unwrap(),
    );
    assert_eq!(before, after, "the history too");
    assert_eq!(after.0.unwrap().reference, "demo:1");
    assert_eq!(control.audit(all()).await.unwrap(), entries);
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mixer_whose_active_scenario_it_refuses_starts_and_another_one_can_be_activated() {
    let folder = tempfile::tempdir().unwrap();
    start(folder.path(), &[]).await.close().await;
    activate_unread(folder.path(), "demo:0");
    let mixer = start(folder.path(), &[("enrollment.auto_adopt", "true")]).await;
    let control = mixer.control();
    assert_eq!(control.active_scenario().unwrap().unwrap().reference, "demo:0");
    let error = control.scenario_report().await.unwrap_err();
    assert!(error.to_string().contains("genrator"), "{error}");
    let mut rack = FakeRack::connect(&mixer, 1).await;
    rack.adopted("rack-a").await;
    let back = control.roll_back(&Actor::Mixer).await.unwrap();
    assert_eq!(back.reference, "demo:1");
    mixer.close().await;
    let named = refused(folder.path(), &[("mixer.startup_scenario", "demo:0")]).await;
    assert_eq!(
        named.exit_code(),
        Exit::Data,
        "what the configuration names must be right"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_startup_scenario_stops_the_start_with_the_file_and_the_fault_and_leaves_nothing_running() {
    let folder = tempfile::tempdir().unwrap();
    for (from, to, says) in [
        ("generator", "genrator", "genrator"),
        ("sink.in", "sink.inn", "no input inn"),
        ("wires:", "wirez:", "wirez"),
    ] {
        let scenario = write_scenario(folder.path(), &SCENARIO.replace(from, to));
        let error = refused(folder.path(), &[("mixer.startup_scenario", &scenario)]).await;
        assert_eq!(error.exit_code(), Exit::Data);
        let text = error.to_string();
        assert!(text.contains("demo.yaml") && text.contains(says), "{text}");
    }
    let missing = refused(folder.path(), &[("mixer.startup_scenario", "./nowhere.yaml")]).await;
    assert_eq!(missing.exit_code(), Exit::Config);
    assert!(missing.to_string().contains("nowhere.yaml"), "{missing}");
    // Nothing of the refused starts holds the store.
    start(folder.path(), &[]).await.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_mixer_on_one_store_and_a_taken_api_port_are_refused_with_the_fix() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = start(folder.path(), &[]).await;
    let second = refused(folder.path(), &[]).await;
    assert_eq!(second.exit_code(), Exit::Unavailable);
    assert!(second.to_string().contains("data"), "{second}");

    let other = tempfile::tempdir().unwrap();
    let port = mixer.api_addr().port().to_string();
    let taken = refused(other.path(), &[("api.port", &port)]).await;
    assert_eq!(taken.exit_code(), Exit::Config);
    let text = taken.to_string();
    assert!(text.contains("api.port") && text.contains(&port), "{text}");
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_this_version_does_not_have_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let error = refused(folder.path(), &[("observability.tier", "otlp")]).await;
    assert_eq!(error.exit_code(), Exit::Config);
    assert!(error.to_string().contains("observability.tier"), "{error}");
    assert!(!folder.path().join("data").exists());
}
