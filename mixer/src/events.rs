//! Lifecycle events of Racks, scenarios and dead letters: published on `platform.event.<kind>` as JSON, and counted for
//! `/metrics`.
//!
//! ```json
//! {"id": 7, "ts": "…", "kind": "rack_offline", "by": "mixer", "entity_id": "…", "rack": "press-7", "from": "active", "to": "offline", …}
//! {"id": 8, "ts": "…", "kind": "scenario_activated", "by": "api 127.0.0.1", "reference": "demo:1", "hash": "…", "from": "demo:0", …}
//! ```
//!
//! # Invariants
//!
//! - Only what is in the audit log is told, after it is durable there; the event's body is the entry, or the signed checkpoint.
//!
//! # Not here
//!
//! Delivery guarantees: the truth is in the registry, an event that is lost is only late news.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::Client;
use model::lifecycle_event::LifecycleEvent;
use model::{Token, subject};
use serde::Serialize;

use crate::registry::{AuditEntry, SignedCheckpoint};

/// How often Racks went from one state into another since the Mixer started.
pub type TransitionCounts = BTreeMap<(String, String), u64>;

/// Every transition that there is; `new` is a Rack that was not known. What is decided about a Rack that is offline goes from
/// the state that was decided before: it is offline still.
const TRANSITIONS: [(&str, &str); 12] = [
    ("new", "pending"),
    ("new", "active"),
    ("pending", "active"),
    ("pending", "removed"),
    ("active", "suspended"),
    ("active", "offline"),
    ("active", "removed"),
    ("suspended", "active"),
    ("suspended", "offline"),
    ("suspended", "removed"),
    ("offline", "active"),
    ("offline", "suspended"),
];

/// Tells of what happened.
#[derive(Debug, Clone)]
pub(crate) struct EventPublisher {
    client: Client,
    transitions: Arc<Mutex<TransitionCounts>>,
}

impl EventPublisher {
    pub(crate) fn new(client: Client) -> Self {
        let none = TRANSITIONS.map(|(from, to)| ((from.to_owned(), to.to_owned()), 0));
        Self {
            client,
            transitions: Arc::new(Mutex::new(none.into())),
        }
    }

    /// How often Racks changed their state, every pair present.
    pub(crate) fn transitions(&self) -> TransitionCounts {
        self.transitions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts and publishes an entry of the audit log.
    pub(crate) async fn publish(&self, entry: &AuditEntry) {
        self.count(entry);
        self.tell(&entry.kind, entry).await;
    }

    /// Publishes a checkpoint of the audit log.
    pub(crate) async fn checkpoint(&self, checkpoint: &SignedCheckpoint) {
        self.tell("audit_checkpoint", checkpoint).await;
    }

    async fn tell(&self, kind: &str, body: &impl Serialize) {
        let Ok(kind) = kind.parse::<Token>() else { return };
        let body = match serde_json::to_vec(body) {
            Ok(body) => body,
            Err(error) => {
                tracing::error!(event = %kind, %error, "cannot encode a lifecycle event");
                return;
            }
        };
        if let Err(error) = self.client.publish(subject::event(&kind), body.into()).await {
            tracing::warn!(event = %kind, %error, "could not publish a lifecycle event");
        }
    }

    fn count(&self, entry: &AuditEntry) {
        let Some(to) = entry.to.as_ref().filter(|_| LifecycleEvent::is_transition(&entry.kind)) else {
            return;
        };
        let from = entry.from.clone().unwrap_or_else(|| "new".to_owned());
        let mut transitions = self.transitions.lock().unwrap_or_else(PoisonError::into_inner);
        *transitions.entry((from, to.clone())).or_insert(0) += 1;
    }
}
