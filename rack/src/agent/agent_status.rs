//! The status of an agent: its parts, each published by the task that knows it.

use std::sync::Arc;

use model::control::RackState;
use model::{EntityId, Token};
use tokio::sync::{Notify, watch};

use crate::RackIdentity;
use crate::command_listener::CommandAddress;
use crate::controller::ControllerStatus;

/// What a Rack is at the moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentStatus {
    /// Who it is, once adopted.
    pub identity: Option<(Token, EntityId)>,
    /// The identity it waits for, while it is not adopted.
    pub pending: Option<EntityId>,
    /// Its admission state.
    pub state: Option<RackState>,
    /// The content hash of the scenario in force.
    pub scenario: Option<String>,
}

/// Where the parts of the status are published.
#[derive(Debug, Clone)]
pub(super) struct StatusWatch {
    identity: watch::Receiver<Option<RackIdentity>>,
    pending: watch::Receiver<Option<EntityId>>,
    report: watch::Receiver<ControllerStatus>,
}

/// The channels between the tasks.
pub(super) struct AgentChannels {
    pub(super) identity: watch::Sender<Option<RackIdentity>>,
    pub(super) address: watch::Sender<Option<CommandAddress>>,
    pub(super) pending: watch::Sender<Option<EntityId>>,
    pub(super) subscribed: watch::Sender<bool>,
    pub(super) report: watch::Sender<ControllerStatus>,
    pub(super) changed: Arc<Notify>,
}

impl AgentChannels {
    pub(super) fn new(identity: Option<RackIdentity>) -> Self {
        let address = identity.as_ref().map(|identity| CommandAddress {
            entity_id: identity.entity_id,
            cluster_key: identity.cluster_key,
        });
        Self {
            identity: watch::Sender::new(identity),
            address: watch::Sender::new(address),
            pending: watch::Sender::new(None),
            subscribed: watch::Sender::new(false),
            report: watch::Sender::new(ControllerStatus::default()),
            changed: Arc::new(Notify::new()),
        }
    }

    pub(super) fn watched(&self) -> StatusWatch {
        StatusWatch {
            identity: self.identity.subscribe(),
            pending: self.pending.subscribe(),
            report: self.report.subscribe(),
        }
    }
}

impl StatusWatch {
    pub(super) fn now(&self) -> AgentStatus {
        let report = self.report.borrow();
        let identity = self.identity.borrow();
        AgentStatus {
            identity: identity
                .as_ref()
                .map(|identity| (identity.name.clone(), identity.entity_id)),
            pending: *self.pending.borrow(),
            state: report.state,
            scenario: report.scenario.clone(),
        }
    }

    pub(super) async fn wait_for(&mut self, wanted: impl Fn(&AgentStatus) -> bool) -> AgentStatus {
        loop {
            let now = self.now();
            if wanted(&now) {
                return now;
            }
            let changed = tokio::select! {
                changed = self.identity.changed() => changed,
                changed = self.pending.changed() => changed,
                changed = self.report.changed() => changed,
            };
            if changed.is_err() {
                // The agent is being closed: nothing changes any more.
                std::future::pending::<()>().await;
            }
        }
    }
}
