//! What a gear that is cut off leaves to its next life, on a real outbox.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::Path;

use ed25519_dalek::SigningKey;
use model::control::DurableFloor;
use model::{Clock, EntityId, Entropy};
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::Identity;
use crate::gears::ContextParts;
use crate::gears::testing::{Bench, message};
use crate::lane::{Letter, Outbox, Place, Taken};
use crate::limits::Limits;
use crate::spool::{Cursor, Outgoing, SpoolThread};
use crate::telemetry::NotRecorded;
use crate::wires::{Outlets, Receipt};

/// Messages that are delivered: several times what is settled at once, or waits for the outbox's writer.
const MESSAGES: u8 = 200;

fn outbox(dir: &Path, max_bytes: u64) -> (Arc<Outbox>, SpoolThread) {
    let identity = Identity {
        entity_id: EntityId::for_name("rack-a"),
        name: "rack-a".parse().unwrap(),
        cluster_key: SigningKey::from_bytes(&[7; 32]).verifying_key(),
    };
    let clock = Clock::new(|| chrono::Utc::now().into());
    let (_, identity) = watch::channel(Some(identity));
    let (outbox, thread, _) = Outbox::open(dir, max_bytes, (clock, &entropy()), identity).unwrap();
    (outbox, thread)
}

fn entropy() -> Entropy {
    Entropy::new(|buffer| getrandom::fill(buffer).unwrap())
}

/// A gear that sends on what it gets, by a port that leaves the Rack.
fn passes_on() -> Spec {
    Spec {
        name: "pass".parse().unwrap(),
        kind: super::super::find("test_loop").unwrap(),
        config: serde_json::Map::new(),
        targets: Vec::new(),
        published: ["out"].into(),
    }
}

/// The gear's context, and what stops it.
fn surroundings(spec: &Spec, bench: &Bench, outbox: &Arc<Outbox>) -> (Arc<Context>, CancellationToken) {
    let stop = CancellationToken::new();
    let parts = ContextParts {
        recorder: bench.recorder.clone(),
        entropy: entropy(),
        limits: Limits::new(64, 2 << 20),
        outlets: Outlets::connect(spec, &std::collections::BTreeMap::new()),
        outbox: Some(Arc::clone(outbox)),
        stop: stop.clone(),
        successor: CancellationToken::new(),
    };
    (Arc::new(Context::new(spec, parts)), stop)
}

/// Delivers a message as an inlet does; hears when it was taken.
fn deliver(inbox: &Inbox, number: u8) -> oneshot::Receiver<Result<(), NotRecorded>> {
    let (done, taken) = oneshot::channel();
    let place = Place {
        outbox: Uuid::from_bytes([9; 16]),
        number: number.into(),
    };
    let arrival = Arrival {
        port: "in",
        message: Ok(message(number, Value::Null, &[number; 400])),
        receipt: Some(Receipt {
            taken: Taken {
                key: "taken wire".to_owned(),
                place,
            },
            done,
            way: Way::In,
            past: Past::default(),
        }),
    };
    inbox.sender().try_send(arrival).unwrap();
    taken
}

/// Takes everything from an outbox as the Mixer does, so that it empties; the bodies in their order, as their first bytes.
async fn drain(outbox: &Outbox, count: usize) -> Vec<u8> {
    let (reader, mut cursor) = (outbox.spool().reader(), Cursor::default());
    let mut changed = outbox.spool().changed();
    let mut bodies = Vec::new();
    while bodies.len() < count {
        changed.mark_unchanged();
        let batches = reader.read(&mut cursor, 1 << 20).unwrap();
        if batches.is_empty() {
            changed.changed().await.unwrap();
        }
        for outgoing in batches {
            let Outgoing::Batch(kept) = outgoing else {
                panic!("a batch is lost")
            };
            bodies.push(
                Message::from_cbor(Letter::decode(&kept.payload).unwrap().body())
                    .unwrap()
                    .raw[0],
            );
            outbox.spool().settle([DurableFloor {
                entity_id: kept.run.entity,
                boot_epoch: kept.run.epoch,
                seq: kept.seq,
            }]);
        }
    }
    bodies
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gear_cut_off_while_the_outbox_is_full_leaves_what_it_holds_to_its_next_life() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 8_000);
    let (spec, inbox) = (passes_on(), Inbox::new());
    let taken: Vec<_> = (1..=MESSAGES).map(|number| deliver(&inbox, number)).collect();
    let (cx, _stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec.clone(), cx, Some(inbox.clone())));
    // Nobody takes anything from the outbox: once there is no room, there is none.
    while tokio::time::timeout(Duration::from_millis(100), outbox.room())
        .await
        .is_ok()
    {}
    life.abort();
    assert!(life.await.unwrap_err().is_cancelled());

    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox)));
    let bodies = tokio::time::timeout(Duration::from_secs(30), drain(&outbox, MESSAGES.into())).await;
    let bodies = bodies.map_err(|_| "something never left the outbox").unwrap();
    assert_eq!(bodies, (1..=MESSAGES).collect::<Vec<_>>(), "each once, in order");
    for taken in taken {
        assert_eq!(taken.await.map_err(|_| "it was forgotten"), Ok(Ok(())));
    }
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}
