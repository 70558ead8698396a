//! What happens to Racks, scenarios and dead letters, told: on `platform.event.<kind>` as JSON for whoever listens, and in the counters of
//! `/metrics`.
//!
//! ```json
//! {"id": 7, "ts": "…", "kind": "rack_offline", "by": "mixer", "entity_id": "…", "rack": "press-7", "from": "active", "to": "offline", …}
//! {"id": 8, "ts": "…", "kind": "scenario_activated", "by": "api 127.0.0.1", "reference": "demo:1", "hash": "…", "from": "demo:0", …}
//! ```
//!
//! # Invariants
//!
//! - Only what is in the audit log is told, after it is durable there; the event's body is the entry.
//!
//! # Not here
//!
//! Delivery guarantees: the truth is in the registry, an event that is lost is only late news.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::Client;
use model::{Token, subject};

use crate::registry::AuditEntry;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum LifecycleEvent {
    RackPending,
    RackApproved,
    RackAdopted,
    RackSuspended,
    RackResumed,
    RackRemoved,
    RackRenamed,
    RackOffline,
    RackOnline,
    RackLogLevel,
    RackLabels,
    ScenarioImported,
    ScenarioActivated,
    ScenarioRolledBack,
    ScenarioDeleted,
    LettersReplayed,
    LettersDropped,
}

impl LifecycleEvent {
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
            Self::RackRenamed => "rack_renamed",
            Self::RackOffline => "rack_offline",
            Self::RackOnline => "rack_online",
            Self::RackLogLevel => "rack_log_level",
            Self::RackLabels => "rack_labels",
            Self::ScenarioImported => "scenario_imported",
            Self::ScenarioActivated => "scenario_activated",
            Self::ScenarioRolledBack => "scenario_rolled_back",
            Self::ScenarioDeleted => "scenario_deleted",
            Self::LettersReplayed => "letters_replayed",
            Self::LettersDropped => "letters_dropped",
        }
    }

    /// Whether nobody decided it: a Rack was not heard, or is heard again.
    pub(crate) fn is_sighting(kind: &str) -> bool {
        [Self::RackOffline, Self::RackOnline]
            .iter()
            .any(|event| event.as_str() == kind)
    }

    /// Whether a Rack's state is another one since then.
    fn is_transition(kind: &str) -> bool {
        let keeps_state = [Self::RackRenamed, Self::RackLogLevel, Self::RackLabels];
        kind.starts_with("rack_") && !keeps_state.iter().any(|event| event.as_str() == kind)
    }
}

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
        let Ok(kind) = entry.kind.parse::<Token>() else { return };
        let body = match serde_json::to_vec(entry) {
            Ok(body) => body,
            Err(error) => {
                tracing::error!(event = %kind, %error, "a lifecycle event cannot be encoded");
                return;
            }
        };
        if let Err(error) = self.client.publish(subject::event(&kind), body.into()).await {
            tracing::warn!(event = %kind, %error, "a lifecycle event was not published");
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
