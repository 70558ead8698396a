//! The inbox of a gear: messages that wait for it, and those that it has begun and not committed.
//!
//! # Invariants
//!
//! - It is bounded ([`INBOX_CAPACITY`]): a full inbox slows the sender.
//! - It belongs to a gear's name, not to its task: gears that feed it keep their wire while it is replaced.
//! - Lane guaranteed: what a gear has begun stays in it until it is durable that it was taken.
//!
//! # Not here
//!
//! Who puts messages in: other gears ([`crate::gears`]), the bus ([`crate::wire_consumer`]), replays ([`crate::replay`]).

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use model::dead_letter::PortSide;
use model::message::Message;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use crate::outbox::{ConsumerOffset, DeliveredOffsets, DeliveryHistory, OutboxTransaction};
use crate::spool::DurabilityNotifier;

/// How many messages wait in front of a gear before its senders wait.
pub(crate) const INBOX_CAPACITY: usize = 1024;

/// A message at an input port.
#[derive(Debug, Clone)]
pub(crate) struct InputMessage {
    /// The input.
    pub(crate) port: &'static str,
    /// What came.
    pub(crate) message: Message,
}

/// What waits in front of a gear.
#[derive(Debug)]
pub(crate) struct InboxMessage {
    pub(crate) port: &'static str,
    pub(crate) message: Result<Message, UndecodableMessage>,
    /// Lane guaranteed: what says that it was taken.
    pub(crate) receipt: Option<DeliveryReceipt>,
}

/// What came and is no message.
#[derive(Debug)]
pub(crate) struct UndecodableMessage {
    pub(crate) reason: String,
    pub(crate) body: Bytes,
}

/// Who waits for a message to be taken.
#[derive(Debug)]
pub(crate) struct DeliveryReceipt {
    pub(crate) taken: ConsumerOffset,
    pub(crate) done: DurabilityNotifier,
    /// Out for a message that the gear is to send by the port: it was refused there before.
    pub(crate) way: PortSide,
    pub(crate) past: DeliveryHistory,
}

/// The queue in front of a gear.
#[derive(Debug, Clone)]
pub(crate) struct GearInbox {
    sender: mpsc::Sender<InboxMessage>,
    /// Locked by the gear's task for as long as it runs.
    pub(crate) receiver: Arc<Mutex<mpsc::Receiver<InboxMessage>>>,
    /// What the gear has begun, in order; when it begins anew, these are first.
    pub(crate) held: Arc<Mutex<VecDeque<UncommittedMessage>>>,
    delivered: Arc<DeliveredOffsets>,
}

/// A message of lane guaranteed that a gear has begun, until it is kept that it was taken.
#[derive(Debug)]
pub(crate) struct UncommittedMessage {
    pub(crate) arrival: InboxMessage,
    /// Since when.
    pub(crate) since: Instant,
    /// What it made, once the gear is done with it.
    pub(crate) transaction: Option<OutboxTransaction>,
    /// Whether the gear holds nothing of it back any more.
    pub(crate) is_flushed: bool,
    /// Its bytes: the message as it travels, or what came and is none.
    pub(crate) bytes: usize,
    /// Whether it and the next one are committed as one group.
    pub(crate) commits_with_next: bool,
    /// How often the gear failed at it.
    pub(crate) attempts: u32,
    /// How often it panicked.
    pub(crate) panics: u32,
    /// Why, the last time.
    pub(crate) reason: String,
}

impl GearInbox {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(INBOX_CAPACITY);
        Self {
            sender,
            receiver: Arc::new(Mutex::new(receiver)),
            held: Arc::default(),
            delivered: Arc::default(),
        }
    }

    pub(crate) const fn sender(&self) -> &mpsc::Sender<InboxMessage> {
        &self.sender
    }

    /// What inlets have put in.
    pub(crate) fn delivered(&self) -> &DeliveredOffsets {
        &self.delivered
    }
}
