//! Where a gear's output ports lead: to inboxes of this Rack, and to the outbox.
//!
//! # Invariants
//!
//! - Lane hot: a message is delivered at most once, and its sender waits while an inbox is full.
//! - Lane guaranteed: a port that leaves by the outbox leaves once for all its wires.

use std::collections::{BTreeMap, BTreeSet};

use model::Token;
use model::message::Message;
use tokio::sync::mpsc;

use super::WiredGear;
use crate::inbox::{GearInbox, InboxMessage};

/// A gear's output ports with the inboxes behind them.
#[derive(Debug, Default)]
pub(crate) struct OutputWires {
    wires: BTreeMap<&'static str, Vec<WireSender>>,
    /// The ports that leave by the outbox.
    published: BTreeSet<&'static str>,
}

#[derive(Debug)]
struct WireSender {
    port: &'static str,
    sender: mpsc::Sender<InboxMessage>,
}

impl OutputWires {
    /// The wires of a gear, given every inbox of the Rack.
    pub(crate) fn connect(spec: &WiredGear, inboxes: &BTreeMap<Token, GearInbox>) -> Self {
        let mut ports: BTreeMap<&'static str, Vec<WireSender>> = BTreeMap::new();
        for target in &spec.targets {
            if let Some(inbox) = inboxes.get(&target.gear) {
                ports.entry(target.from).or_default().push(WireSender {
                    port: target.to,
                    sender: inbox.sender().clone(),
                });
            }
        }
        Self {
            wires: ports,
            published: spec.published.clone(),
        }
    }

    /// Whether anything listens to a port.
    pub(crate) fn is_wired(&self, port: &str) -> bool {
        self.wires.contains_key(port) || self.is_published(port)
    }

    /// Whether a port has hot wires.
    pub(crate) fn is_hot(&self, port: &str) -> bool {
        self.wires.contains_key(port)
    }

    /// Whether a port leaves by the outbox.
    pub(crate) fn is_published(&self, port: &str) -> bool {
        self.published.contains(port)
    }

    /// Gives a message to every wire of a port, waiting where an inbox is full.
    pub(crate) async fn send(&self, port: &str, message: Message) {
        let Some((last, others)) = self.wires.get(port).and_then(|outlets| outlets.split_last()) else {
            return;
        };
        for outlet in others {
            outlet.deliver(message.clone()).await;
        }
        last.deliver(message).await;
    }
}

impl WireSender {
    async fn deliver(&self, message: Message) {
        let arrival = InboxMessage {
            port: self.port,
            message: Ok(message),
            receipt: None,
        };
        // An inbox outlives the wires to it.
        self.sender.send(arrival).await.ok();
    }
}
