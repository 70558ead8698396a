//! The parties of the samples of the wire: a cluster, a Rack, and what they say to each other.

use ed25519_dalek::SigningKey;
use serde_json::json;

use crate::control::{EnrollChallenge, EnrollTranscript, Heartbeat, HelloRequest, NameClaim, PROTOCOL, ScenarioPush};
use crate::passport::{Passport, VERSION};
use crate::{Attributes, BusCredential, ClusterId, EntityId, KeyFingerprint, RackInvite, Timestamp, Token};

/// Who talks to whom in the samples.
pub(super) struct WireParties {
    pub(super) cluster: SigningKey,
    pub(super) rack: SigningKey,
    pub(super) cluster_id: ClusterId,
    pub(super) entity_id: EntityId,
    pub(super) ts: Timestamp,
}

impl WireParties {
    pub(super) fn new() -> Self {
        let ts = Timestamp::from_micros(1_763_728_200_000_000);
        Self {
            cluster: SigningKey::from_bytes(&[1; 32]),
            rack: SigningKey::from_bytes(&[2; 32]),
            cluster_id: ClusterId::at(ts, [7; 10]),
            entity_id: EntityId::for_name("press-1"),
            ts,
        }
    }

    pub(super) fn cluster_key(&self) -> Vec<u8> {
        self.cluster.verifying_key().as_bytes().to_vec()
    }

    pub(super) fn rack_key(&self) -> Vec<u8> {
        self.rack.verifying_key().as_bytes().to_vec()
    }

    pub(super) fn passport(&self) -> Passport {
        Passport {
            version: VERSION,
            cluster_id: self.cluster_id,
            cluster_key: self.cluster_key(),
            entity_id: self.entity_id,
            name: name("press-1"),
            rack_key: self.rack_key(),
            issued: self.ts,
            counter: 3,
        }
    }

    pub(super) fn invite(&self) -> RackInvite {
        let cluster = KeyFingerprint::of(&self.cluster_key());
        RackInvite::new(
            name("press-1"),
            "nats://mixer:4222".to_owned(),
            Some(cluster),
            cluster,
            [9; 32],
        )
    }

    pub(super) fn hello(&self) -> HelloRequest {
        HelloRequest {
            protocol: PROTOCOL,
            rack_key: self.rack_key(),
            nonce: vec![3; 32],
            reply_key: Some("XAB".to_owned()),
        }
    }

    pub(super) fn transcript(&self) -> EnrollTranscript {
        EnrollTranscript {
            protocol: PROTOCOL,
            challenge: self.challenge(),
            rack_key: self.rack_key(),
            claim: NameClaim::Prefix(name("press")),
            counter: 2,
            software: "0.1.0".to_owned(),
            host: "press.example".to_owned(),
            ip: "192.0.2.1".to_owned(),
            bus_key: Some("UAB".to_owned()),
            boot_epoch: Some(7),
            reply_key: Some("XAB".to_owned()),
            invite: self.invite().prove(&[4; 32], &self.rack_key()).ok(),
        }
    }

    pub(super) fn challenge(&self) -> EnrollChallenge {
        EnrollChallenge {
            nonce: vec![4; 32],
            rack_nonce: vec![3; 32],
            cluster_id: self.cluster_id,
            cluster_key: self.cluster_key(),
        }
    }

    pub(super) fn heartbeat(&self) -> Heartbeat {
        Heartbeat {
            entity_id: self.entity_id,
            ts: self.ts,
            boot_epoch: 7,
            interval_ms: 10_000,
            scenario: Some("5f".repeat(32)),
            scenario_error: None,
            spool_bytes: 1 << 40,
            waiting: Vec::new(),
            facts: Attributes::new().with("cpu.usage", 0.5).with("host", "press"),
            seq: Some(70_000),
            stopped: true,
            credential_expires: Some(self.ts),
        }
    }

    pub(super) fn bus_credential(&self) -> BusCredential {
        BusCredential {
            jwt: "eyJhbGciOiJlZDI1NTE5LW5rZXkifQ.e30.c2ln".to_owned(),
            expires: self.ts,
        }
    }

    pub(super) fn push(&self) -> Option<ScenarioPush> {
        let gear = json!({ "name": "read", "type": "timer", "deploy": "press-1", "config": { "every": "1s", "deep": [{ "a": [1.5, null] }] } });
        let wire = json!({ "from": "read.out", "to": "press-1.sink.in", "lane": "guaranteed", "max_bytes": 1024, "max_age": "1h" });
        let inlet = json!({ "from": "read.out", "to": "sink.in", "consumer": "w_1" });
        let push = json!({
            "entity_id": self.entity_id, "issued": self.ts, "reference": "demo:1", "hash": "ab", "gears": [gear], "wires": [wire],
            "inlets": [inlet], "credits": [{ "gear": "read", "port": "out", "bytes": 9 }],
        });
        serde_json::from_value(push).ok()
    }
}

/// A name.
pub(super) fn name(text: &str) -> Token {
    Token::nearest(text)
}
