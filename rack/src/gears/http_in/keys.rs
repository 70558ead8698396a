//! `Idempotency-Key`: a request that is repeated gets the answer that it got before, and makes no second message.
//!
//! # Invariants
//!
//! - A key belongs to a body: with another body it is another request.
//! - A repeated request waits for the first one. What was begun goes on when its caller leaves, so that the repeated request finds it.
//! - A request that failed is forgotten: it is tried anew.
//! - The last [`MOST_KEYS`] of this life of the gear are remembered, not those before it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;
use tokio_util::task::TaskTracker;

use crate::gears::Refused;

/// The header.
pub(super) const HEADER: &str = "idempotency-key";
/// The longest key, in bytes.
pub(super) const MAX_KEY: usize = 255;
/// So many requests are remembered.
const MOST_KEYS: usize = 16_384;

/// SHA-256 of a key and a body.
type RequestDigest = [u8; 32];

/// What an answer names: the business signal and the trace.
#[derive(Debug, Clone)]
pub(super) struct SignalIds {
    pub(super) flux_id: String,
    pub(super) trace_id: String,
}

/// See the module.
#[derive(Default)]
pub(super) struct IdempotencyKeys {
    known: Mutex<KnownRequests>,
    tasks: TaskTracker,
}

#[derive(Default)]
struct KnownRequests {
    answers: HashMap<RequestDigest, Arc<OnceCell<SignalIds>>>,
    /// The oldest first.
    order: VecDeque<RequestDigest>,
}

pub(super) fn digest(key: &str, body: &[u8]) -> RequestDigest {
    let hasher = Sha256::new_with_prefix((key.len() as u64).to_be_bytes());
    hasher.chain_update(key).chain_update(body).finalize().into()
}

impl IdempotencyKeys {
    /// Does the work of a request unless it was done, and gives what came of it.
    pub(super) async fn once(
        &self,
        request: RequestDigest,
        work: impl Future<Output = Result<SignalIds, Refused>> + Send + 'static,
    ) -> Result<SignalIds, Refused> {
        let answer = self.known.lock().answer(request);
        let done = self
            .tasks
            .spawn(async move { answer.get_or_try_init(|| work).await.cloned() });
        done.await.unwrap_or(Err(Refused::NotKept))
    }

    /// Waits for what was begun.
    pub(super) async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }
}

impl KnownRequests {
    fn answer(&mut self, request: RequestDigest) -> Arc<OnceCell<SignalIds>> {
        if let Some(answer) = self.answers.get(&request) {
            return Arc::clone(answer);
        }
        if self.order.len() >= MOST_KEYS
            && let Some(oldest) = self.order.pop_front()
        {
            self.answers.remove(&oldest);
        }
        self.order.push_back(request);
        Arc::clone(self.answers.entry(request).or_default())
    }
}
