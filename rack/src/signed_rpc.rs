//! Signed RPC to the Mixer: sends requests, and accepts only replies signed for them.
//!
//! # Invariants
//!
//! - What is not signed by the cluster for this very question is passed over, counted and told of; the question goes on waiting.
//! - A heartbeat is asked over a connection that stands or not at all: a late one looks like a copy. A handshake may come late.
//! - It is told of at most once in [`SAY_EVERY`]: whoever is on the bus can answer as often as he likes.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use chassis::bus::BusConnection;
use chassis::bus::sealed_reply::ReplyKey;
use model::signed_reply::{ClusterKey, SignedReply, SignedReplyError};
use model::subject::HEARTBEAT;
use model::{ClusterId, KeyFingerprint};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::telemetry::TelemetryCounters;

/// How often it is said at most that answers are passed over.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// Asks, and counts what is no answer.
pub(crate) struct RpcClient {
    counters: Arc<TelemetryCounters>,
    said: Mutex<Option<Instant>>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct RpcError {
    pub(crate) error: chassis::Error,
    /// Another cluster that answered.
    pub(crate) other: Option<ClusterId>,
}

impl RpcClient {
    pub(crate) fn new(counters: Arc<TelemetryCounters>) -> Self {
        Self {
            counters,
            said: Mutex::default(),
        }
    }

    /// The reply to a request with these bytes, and which cluster signed it: the one with this key, if one is known.
    pub(crate) async fn call<T: Serialize + DeserializeOwned>(
        &self,
        bus: &BusConnection,
        (subject, question): (&'static str, Vec<u8>),
        cluster: Option<KeyFingerprint>,
        reply_key: Option<&ReplyKey>,
        within: Duration,
    ) -> Result<(T, ClusterKey), RpcError> {
        let mut other = None;
        let sent = question.clone();
        let accept = |body: &[u8]| {
            let unsealed = reply_key.and_then(|key| key.open(body));
            let why = match SignedReply::open(unsealed.as_deref().unwrap_or(body), &sent, cluster) {
                Ok(opened) => return Some(opened),
                Err(why) => why,
            };
            if let SignedReplyError::Cluster(found) = why {
                other = Some(found);
            }
            self.reject_reply(subject, &why);
            None
        };
        let answer = if subject == HEARTBEAT {
            bus.ask(subject, question, within, accept).await
        } else {
            // A handshake may come late: its numbers are good for once. The bus breaks connections when it gives rights.
            bus.ask_over_outages(subject, question, within, accept).await
        };
        answer.map_err(|error| RpcError { error, other })
    }

    fn reject_reply(&self, subject: &str, why: &SignedReplyError) {
        let rejected = self.counters.passed_over.fetch_add(1, Relaxed) + 1;
        let (mut said, now) = (self.said.lock(), Instant::now());
        if said.is_none_or(|said| now >= said + SAY_EVERY) {
            *said = Some(now);
            tracing::warn!(
                subject,
                reason = %why,
                rejected,
                "ignoring a reply that this cluster's Mixer did not sign for the request"
            );
        }
    }
}
