//! A gear behind a guaranteed wire, on a real outbox and without a bus: the test is the inlet before it and the Mixer behind it.

use std::path::Path;
use std::sync::Arc;

use ed25519_dalek::SigningKey;
use model::control::DurableFloor;
use model::dead_letter::PortSide;
use model::message::Message;
use model::{Clock, EntityId, Entropy};
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Bench, message};
use crate::RackIdentity;
use crate::gears::{ContextParts, GearContext, GearShutdown, OutputWires, WiredGear};
use crate::inbox::{DeliveryReceipt, GearInbox, InboxMessage, UndecodableMessage};
use crate::message_limits::MessageLimits;
use crate::outbox::{
    ConsumerOffset, DeliveryHistory, MessageOutbox, OutboxRecord, OutboxTransaction, OutgoingMessage,
    PortSequenceNumber,
};
use crate::spool::{AdmissionClass, RecordingError, SpoolCursor, SpoolItem, SpoolThread};

/// An outbox in a folder.
pub(crate) fn outbox(dir: &Path, max_bytes: u64) -> (Arc<MessageOutbox>, SpoolThread) {
    let identity = RackIdentity {
        entity_id: EntityId::for_name("rack-a"),
        name: "rack-a".parse().unwrap(),
        cluster_key: SigningKey::from_bytes(&[7; 32]).verifying_key(),
        former_cluster_keys: Vec::new(),
    };
    let clock = Clock::new(|| chrono::Utc::now().into());
    let (_, identity) = watch::channel(Some(identity));
    let (outbox, thread, _) = MessageOutbox::open(dir, max_bytes, (clock, &entropy()), identity).unwrap();
    (outbox, thread)
}

fn entropy() -> Entropy {
    Entropy::new(|buffer| getrandom::fill(buffer).unwrap())
}

/// A gear of a type, some of whose ports leave the Rack.
pub(crate) fn spec(kind: &str, config: &Value, published: &[&'static str]) -> WiredGear {
    WiredGear {
        name: "it".parse().unwrap(),
        kind: crate::gears::find(kind).unwrap(),
        config: config.as_object().unwrap().clone(),
        targets: Vec::new(),
        published: published.iter().copied().collect(),
    }
}

/// The gear's context, and what stops it.
pub(crate) fn surroundings(
    spec: &WiredGear,
    bench: &Bench,
    outbox: &Arc<MessageOutbox>,
) -> (Arc<GearContext>, CancellationToken) {
    surroundings_with(spec, bench, outbox, MessageLimits::new(64, 2 << 20))
}

/// The same, where messages have other limits.
pub(crate) fn surroundings_with(
    spec: &WiredGear,
    bench: &Bench,
    outbox: &Arc<MessageOutbox>,
    limits: MessageLimits,
) -> (Arc<GearContext>, CancellationToken) {
    let stop = CancellationToken::new();
    let parts = ContextParts {
        recorder: bench.recorder.clone(),
        entropy: entropy(),
        limits,
        programs: bench.programs.clone(),
        policy: bench.policy.clone(),
        outlets: OutputWires::connect(spec, &std::collections::BTreeMap::new()),
        outbox: Some(Arc::clone(outbox)),
        shutdown: GearShutdown {
            stop: stop.clone(),
            unfed: stop.clone(),
            ..GearShutdown::default()
        },
        tap: Arc::default(),
    };
    (Arc::new(GearContext::new(spec, parts)), stop)
}

/// Delivers a message as an inlet does; hears when it was taken.
pub(crate) fn deliver(inbox: &GearInbox, number: u8, body: &[u8]) -> oneshot::Receiver<Result<(), RecordingError>> {
    deliver_to(inbox, "in", number, message(number, Value::Null, body))
}

/// The same, of a message to a port.
pub(crate) fn deliver_to(
    inbox: &GearInbox,
    port: &'static str,
    number: impl Into<u64>,
    message: Message,
) -> oneshot::Receiver<Result<(), RecordingError>> {
    deliver_what_came(inbox, port, number, Ok(message))
}

/// The same, of what need not be a message.
pub(crate) fn deliver_what_came(
    inbox: &GearInbox,
    port: &'static str,
    number: impl Into<u64>,
    message: Result<Message, UndecodableMessage>,
) -> oneshot::Receiver<Result<(), RecordingError>> {
    let (done, taken) = oneshot::channel();
    let place = PortSequenceNumber {
        outbox: Uuid::from_bytes([9; 16]),
        run: 0,
        number: number.into(),
    };
    let arrival = InboxMessage {
        port,
        message,
        receipt: Some(DeliveryReceipt {
            taken: ConsumerOffset {
                key: "taken wire".into(),
                place,
            },
            done,
            way: PortSide::In,
            past: DeliveryHistory::default(),
        }),
    };
    inbox.sender().try_send(arrival).unwrap();
    taken
}

/// Fills an outbox of 8,000 bytes: nothing else with a message is admitted.
pub(crate) async fn fill(outbox: &MessageOutbox) {
    let filler = OutgoingMessage {
        gear: "other".parse().unwrap(),
        port: "out",
        body: vec![0; 7_900],
    };
    let whole = OutboxTransaction {
        leaving: vec![filler],
        ..OutboxTransaction::default()
    };
    outbox.commit(whole, AdmissionClass::Producer, None).await.unwrap();
    outbox.flush().await.unwrap();
}

/// Takes letters from an outbox as the Mixer does, so that it empties, until it has so many.
pub(crate) async fn taken_from(outbox: &MessageOutbox, count: usize) -> Vec<OutboxRecord> {
    taken_behind(outbox, &mut SpoolCursor::default(), count).await
}

/// The same, from where it was read to before.
pub(crate) async fn taken_behind(outbox: &MessageOutbox, cursor: &mut SpoolCursor, count: usize) -> Vec<OutboxRecord> {
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
            let SpoolItem::Batch(kept) = outgoing else {
                panic!("a batch is lost")
            };
            letters.extend(OutboxRecord::decode(&kept.payload).unwrap().split());
            outbox.spool().apply_floors([DurableFloor {
                entity_id: kept.run.entity,
                boot_epoch: kept.run.epoch,
                seq: kept.seq,
                on_disk: 0,
            }]);
        }
    }
    letters
}
