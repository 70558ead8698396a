//! A gear behind a guaranteed wire, on a real outbox and without a bus: the test is the inlet before it and the Mixer behind it.

use std::path::Path;
use std::sync::Arc;

use ed25519_dalek::SigningKey;
use model::control::DurableFloor;
use model::letter::PortSide;
use model::message::Message;
use model::{Clock, EntityId, Entropy};
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Bench, message};
use crate::Identity;
use crate::gears::{Context, ContextParts, Ending};
use crate::lane::{Leaving, Letter, Outbox, Past, Place, Taken, Whole};
use crate::limits::Limits;
use crate::spool::{AdmissionClass, Cursor, Outgoing, SpoolThread};
use crate::telemetry::NotRecorded;
use crate::wires::{Arrival, Inbox, Outlets, Receipt, Spec, Unreadable};

/// An outbox in a folder.
pub(crate) fn outbox(dir: &Path, max_bytes: u64) -> (Arc<Outbox>, SpoolThread) {
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

/// A gear of a type, some of whose ports leave the Rack.
pub(crate) fn spec(kind: &str, config: &Value, published: &[&'static str]) -> Spec {
    Spec {
        name: "it".parse().unwrap(),
        kind: crate::gears::find(kind).unwrap(),
        config: config.as_object().unwrap().clone(),
        targets: Vec::new(),
        published: published.iter().copied().collect(),
    }
}

/// The gear's context, and what stops it.
pub(crate) fn surroundings(spec: &Spec, bench: &Bench, outbox: &Arc<Outbox>) -> (Arc<Context>, CancellationToken) {
    surroundings_with(spec, bench, outbox, Limits::new(64, 2 << 20))
}

/// The same, where messages have other limits.
pub(crate) fn surroundings_with(
    spec: &Spec,
    bench: &Bench,
    outbox: &Arc<Outbox>,
    limits: Limits,
) -> (Arc<Context>, CancellationToken) {
    let stop = CancellationToken::new();
    let parts = ContextParts {
        recorder: bench.recorder.clone(),
        entropy: entropy(),
        limits,
        programs: bench.programs.clone(),
        outlets: Outlets::connect(spec, &std::collections::BTreeMap::new()),
        outbox: Some(Arc::clone(outbox)),
        ending: Ending {
            stop: stop.clone(),
            unfed: stop.clone(),
            ..Ending::default()
        },
        tap: Arc::default(),
    };
    (Arc::new(Context::new(spec, parts)), stop)
}

/// Delivers a message as an inlet does; hears when it was taken.
pub(crate) fn deliver(inbox: &Inbox, number: u8, body: &[u8]) -> oneshot::Receiver<Result<(), NotRecorded>> {
    deliver_to(inbox, "in", number, message(number, Value::Null, body))
}

/// The same, of a message to a port.
pub(crate) fn deliver_to(
    inbox: &Inbox,
    port: &'static str,
    number: impl Into<u64>,
    message: Message,
) -> oneshot::Receiver<Result<(), NotRecorded>> {
    deliver_what_came(inbox, port, number, Ok(message))
}

/// The same, of what need not be a message.
pub(crate) fn deliver_what_came(
    inbox: &Inbox,
    port: &'static str,
    number: impl Into<u64>,
    message: Result<Message, Unreadable>,
) -> oneshot::Receiver<Result<(), NotRecorded>> {
    let (done, taken) = oneshot::channel();
    let place = Place {
        outbox: Uuid::from_bytes([9; 16]),
        run: 0,
        number: number.into(),
    };
    let arrival = Arrival {
        port,
        message,
        receipt: Some(Receipt {
            taken: Taken {
                key: "taken wire".into(),
                place,
            },
            done,
            way: PortSide::In,
            past: Past::default(),
        }),
    };
    inbox.sender().try_send(arrival).unwrap();
    taken
}

/// Fills an outbox of 8,000 bytes: nothing else with a message is admitted.
pub(crate) async fn fill(outbox: &Outbox) {
    let filler = Leaving {
        gear: "other".parse().unwrap(),
        port: "out",
        body: vec![0; 7_900],
    };
    let whole = Whole {
        leaving: vec![filler],
        ..Whole::default()
    };
    outbox.commit(whole, AdmissionClass::Producer, None).await.unwrap();
    outbox.settled().await.unwrap();
}

/// Takes letters from an outbox as the Mixer does, so that it empties, until it has so many.
pub(crate) async fn taken_from(outbox: &Outbox, count: usize) -> Vec<Letter> {
    taken_behind(outbox, &mut Cursor::default(), count).await
}

/// The same, from where it was read to before.
pub(crate) async fn taken_behind(outbox: &Outbox, cursor: &mut Cursor, count: usize) -> Vec<Letter> {
    let reader = outbox.spool().reader();
    let mut changed = outbox.spool().changed();
    let mut letters = Vec::new();
    while letters.len() < count {
        changed.mark_unchanged();
        let batches = reader.read(cursor, 1 << 20).unwrap();
        if batches.is_empty() {
            changed.changed().await.unwrap();
        }
        for outgoing in batches {
            let Outgoing::Batch(kept) = outgoing else {
                panic!("a batch is lost")
            };
            letters.extend(Letter::decode(&kept.payload).unwrap().split());
            outbox.spool().settle([DurableFloor {
                entity_id: kept.run.entity,
                boot_epoch: kept.run.epoch,
                seq: kept.seq,
                on_disk: 0,
            }]);
        }
    }
    letters
}
