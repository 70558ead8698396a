//! The durable consumers of a scenario's wires.
//!
//! # Invariants
//!
//! - A consumer is there before any Rack is told of its wire, so no message is sent before somebody is known to wait for it.
//! - A consumer that exists is left as it is: it knows what its Rack has. One that nobody uses goes away by itself after as long
//!   as the stream keeps messages.
//! - After every reconnect they are looked for again: the bus may have lost its store.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::courier::CourierParts;
use super::part::Flow;
use crate::bus_server::{Bus, Reconnects};

/// Messages of a wire that may be with its Rack at once.
const AT_ONCE: i64 = 512;
/// How long the bus waits for a Rack that does not say that it works on a message: what a Rack that was killed makes its
/// messages wait.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// See the module.
#[derive(Debug)]
pub(crate) struct Consumers {
    stream: String,
    max_age: Duration,
    /// The ones that were seen.
    made: Mutex<HashSet<String>>,
}

impl Consumers {
    /// Those on the stream of business messages, which keeps messages so long.
    pub(crate) fn new(stream: String, max_age: Duration) -> Self {
        Self {
            stream,
            max_age,
            made: Mutex::default(),
        }
    }

    /// Makes those that are not there.
    pub(super) async fn ensure(&self, bus: &Bus, flows: Vec<Flow>) -> Result<(), String> {
        let mut made = self.made.lock().await;
        let missing: Vec<Flow> = flows
            .into_iter()
            .filter(|flow| !made.contains(&flow.consumer))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let stream = bus.jetstream().get_stream(&self.stream).await;
        let stream = stream.map_err(|error| format!("stream {}: {error}", self.stream))?;
        for flow in missing {
            let name = flow.consumer.clone();
            let config = self.config(flow);
            stream
                .get_or_create_consumer(&name, config)
                .await
                .map_err(|error| format!("consumer {name}: {error}"))?;
            made.insert(name);
        }
        Ok(())
    }

    /// Looks for every one again.
    async fn forget(&self) {
        self.made.lock().await.clear();
    }

    fn config(&self, flow: Flow) -> pull::Config {
        pull::Config {
            durable_name: Some(flow.consumer),
            description: Some(flow.description),
            filter_subject: flow.filter,
            deliver_policy: DeliverPolicy::New,
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            max_deliver: -1,
            max_ack_pending: AT_ONCE,
            inactive_threshold: self.max_age,
            ..Default::default()
        }
    }
}

/// Makes what the active scenario needs anew after every reconnect, until stopped.
pub(crate) async fn keep(parts: Arc<CourierParts>, stop: CancellationToken) {
    let mut reconnects = Reconnects::of(&parts.bus);
    while reconnects.next(&stop).await {
        parts.consumers.forget().await;
        match parts.ensure_consumers().await {
            Ok(()) => reconnects.settle(),
            Err(reason) => tracing::warn!(%reason, "the wires of the scenario have no consumers yet; trying again"),
        }
    }
}
