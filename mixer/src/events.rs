//! Lifecycle events on `platform.event.<kind>`, as JSON, for whoever listens.
//!
//! ```json
//! {"ts": "…", "kind": "rack_offline", "entity_id": "…", "rack": "press-7"}
//! {"ts": "…", "kind": "scenario_activated", "reference": "demo:1", "hash": "…"}
//! ```
//!
//! # Not here
//!
//! Delivery guarantees: the truth is in the registry, an event that is lost is only late news.

use async_nats::Client;
use model::{Clock, Token, subject};
use serde_json::{Map, Value};

use crate::registry::RackRow;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Event {
    RackPending,
    RackApproved,
    RackAdopted,
    RackSuspended,
    RackResumed,
    RackRemoved,
    RackOffline,
    RackOnline,
    ScenarioImported,
    ScenarioActivated,
    ScenarioRolledBack,
}

impl Event {
    /// The last token of the subject.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RackPending => "rack_pending",
            Self::RackApproved => "rack_approved",
            Self::RackAdopted => "rack_adopted",
            Self::RackSuspended => "rack_suspended",
            Self::RackResumed => "rack_resumed",
            Self::RackRemoved => "rack_removed",
            Self::RackOffline => "rack_offline",
            Self::RackOnline => "rack_online",
            Self::ScenarioImported => "scenario_imported",
            Self::ScenarioActivated => "scenario_activated",
            Self::ScenarioRolledBack => "scenario_rolled_back",
        }
    }
}

/// Publishes events.
#[derive(Debug, Clone)]
pub(crate) struct Events {
    client: Client,
    clock: Clock,
}

impl Events {
    pub(crate) const fn new(client: Client, clock: Clock) -> Self {
        Self { client, clock }
    }

    /// Something happened to a Rack.
    pub(crate) async fn rack(&self, event: Event, rack: &RackRow) {
        let id = ("entity_id", rack.entity_id.to_string());
        self.publish(event, [id, ("rack", rack.name.to_string())]).await;
    }

    /// Something happened to a scenario.
    pub(crate) async fn scenario(&self, event: Event, reference: &str, hash: &str) {
        let reference = ("reference", reference.to_owned());
        self.publish(event, [reference, ("hash", hash.to_owned())]).await;
    }

    async fn publish(&self, event: Event, fields: [(&str, String); 2]) {
        let mut body = Map::new();
        body.insert("ts".to_owned(), self.clock.now().to_string().into());
        body.insert("kind".to_owned(), event.as_str().into());
        body.extend(fields.map(|(key, value)| (key.to_owned(), Value::from(value))));
        let body = Value::Object(body).to_string();
        let Ok(kind) = event.as_str().parse::<Token>() else {
            return;
        };
        if let Err(error) = self.client.publish(subject::event(&kind), body.into()).await {
            tracing::warn!(event = event.as_str(), %error, "a lifecycle event was not published");
        }
    }
}
