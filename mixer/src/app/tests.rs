//! A whole Mixer on real parts, and Racks that speak to it over the real bus.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "tests")]

mod attacks;
mod away;
mod bus_modes;
mod clocks;
mod credentials;
mod dual_control;
mod handshakes;
mod invites;
mod labels;
mod letters;
mod racks;
mod real;
mod rejected_credentials;
mod scenarios;
mod start;
mod taps;

use std::path::Path;
use std::time::Duration;

use async_nats::{Client, Subscriber};
use chassis::ExitReason;
use chassis::config::{ConfigSources, load};
use ed25519_dalek::SigningKey;
use futures::StreamExt;
use model::control::{
    DurableFloor, EnrollReply, EnrollTranscript, Heartbeat, HeartbeatReply, HelloReply, HelloRequest, NameClaim,
    PROTOCOL, RackState, RefusalCode, ScenarioPush, ScenarioPushAnswer, StateChange,
};
use model::passport::{Passport, public_key};
use model::signed_reply::SignedReply;
use model::{Attributes, EntityId, SignedPayload, SigningContext, Timestamp, signed, subject};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Mixer, StartError};
use crate::config::{MixerConfig, SCHEMA};
use crate::control::{ControlError, ControlPlane, RackApproval, RackView};
use crate::registry::AuditActor;
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
        // What a test counts is what it sent.
        (text("observability.self_tracing"), text("false")),
    ];
    all.extend(flags.iter().map(|(key, value)| (text(key), text(value))));
    let sources = ConfigSources {
        flags: all,
        ..ConfigSources::default()
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

/// A Rack as the protocol sees it. Where it tells no key of its own for the bus, it speaks as one of the Mixer's account.
struct FakeRack {
    key: SigningKey,
    client: Client,
    counter: u64,
    bus_key: Option<String>,
    /// With what the bus knows it beside that key.
    bus_jwt: Option<String>,
    run: Option<u64>,
}

impl FakeRack {
    async fn connect(mixer: &Mixer, seed: u8) -> Self {
        Self {
            key: SigningKey::from_bytes(&[seed; 32]),
            client: mixer.control().bus.another_connection().await,
            counter: 0,
            bus_key: None,
            bus_jwt: None,
            run: None,
        }
    }

    async fn ask<R: DeserializeOwned + Serialize>(&self, subject: &'static str, body: Vec<u8>) -> R {
        let reply = self.client.request(subject, body.clone().into()).await.unwrap();
        // Every answer of the Mixer is signed, and for this question.
        SignedReply::open(&reply.payload, &body, None).unwrap().0
    }

    async fn enroll(&mut self, name: &str) -> EnrollReply {
        let rack_key = self.key.verifying_key().as_bytes().to_vec();
        let hello = HelloRequest {
            protocol: PROTOCOL,
            rack_key: rack_key.clone(),
            nonce: vec![1; 32],
            reply_key: None,
        };
        let HelloReply::Challenge(challenge) = self.ask(subject::HELLO, signed::encode(&hello).unwrap()).await else {
            panic!("no challenge");
        };
        let transcript = EnrollTranscript {
            protocol: PROTOCOL,
            challenge,
            rack_key,
            claim: NameClaim::Name(name.parse().unwrap()),
            counter: self.counter,
            software: "1.0".to_owned(),
            host: "host-of-a".to_owned(),
            ip: "10.0.0.1".to_owned(),
            bus_key: self.bus_key.clone(),
            boot_epoch: self.run,
            invite: None,
            reply_key: None,
        };
        let signed = SignedPayload::new(&transcript, SigningContext::Enroll, &self.key).unwrap();
        let reply: EnrollReply = self.ask(subject::ENROLL, signed.to_bytes().unwrap()).await;
        if let Some(credential) = reply.bus_credential() {
            self.bus_jwt = Some(credential.jwt.clone());
        }
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
        // A flush only writes; an answer means that the server has read the subscription.
        let nobody = self.client.request("flux.nobody", "".into()).await.unwrap_err();
        assert_eq!(nobody.kind(), async_nats::RequestErrorKind::NoResponders);
        commands
    }

    fn beat(id: EntityId, scenario: Option<&str>) -> Heartbeat {
        Heartbeat {
            entity_id: id,
            ts: Timestamp::from_micros(5),
            boot_epoch: 7,
            interval_ms: 2_000,
            scenario: scenario.map(str::to_owned),
            scenario_error: None,
            spool_bytes: 42,
            waiting: vec![DurableFloor {
                entity_id: id,
                boot_epoch: 7,
                seq: 3,
                on_disk: 0,
            }],
            facts: Attributes::new().with("cpu", 0.5),
            seq: None,
            stopped: false,
            credential_expires: None,
        }
    }

    async fn heartbeat(&self, beat: &Heartbeat, cluster: &[u8]) -> HeartbeatReply {
        let signed = SignedPayload::new(beat, SigningContext::Heartbeat, &self.key).unwrap();
        let question = signed.to_bytes().unwrap();
        let reply = self
            .client
            .request(subject::HEARTBEAT, question.clone().into())
            .await
            .unwrap();
        let (reply, by) = SignedReply::open(&reply.payload, &question, None).unwrap();
        assert_eq!(by.key.as_bytes(), cluster);
        reply
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
        let named = message
            .headers
            .as_ref()
            .and_then(|headers| headers.get(model::telemetry_codec::ANSWER_TO));
        if let Some(to) = named.map(|to| to.as_str().into()).or(message.reply) {
            client
                .publish(to, signed::encode(answer).unwrap().into())
                .await
                .unwrap();
        }
        return SignedPayload::from_bytes(&message.payload)
            .unwrap()
            .open(SigningContext::Command, &key)
            .unwrap();
    }
}

fn view(control: &ControlPlane, rack: &str) -> RackView {
    control.rack(rack).unwrap()
}

fn write_scenario(folder: &Path, text: &str) -> String {
    let path = folder.join("demo.yaml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}
