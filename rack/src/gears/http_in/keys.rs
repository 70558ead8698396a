//! `Idempotency-Key`: a request that is repeated gets the answer that it got before, and makes no second message.
//!
//! # Invariants
//!
//! - A key belongs to a sender's address and a body: with another one it is another request.
//! - What a request began goes on when its caller leaves, so that the repeated request finds it; it ends with the gear. No more of them
//!   are under way than connections may be.
//! - A request that failed is forgotten: it is tried anew.
//! - The last [`MOST_KEYS`] of this life of the gear are remembered, not those before it.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::gears::Refused;

/// The header.
pub(super) const HEADER: &str = "idempotency-key";
/// The longest key, in bytes.
pub(super) const MAX_KEY: usize = 255;
/// So many requests are remembered.
const MOST_KEYS: usize = 16_384;

/// SHA-256 of a sender, a key and a body.
type RequestDigest = [u8; 32];
/// What comes of a request.
type Outcome = Result<SignalIds, Refused>;

/// What an answer names: the business signal and the trace.
#[derive(Debug, Clone)]
pub(super) struct SignalIds {
    pub(super) flux_id: String,
    pub(super) trace_id: String,
}

/// See the module.
pub(super) struct IdempotencyCache {
    known: Mutex<KnownRequests>,
    under_way: Arc<Semaphore>,
    tasks: TaskTracker,
    ended: CancellationToken,
}

#[derive(Default)]
struct KnownRequests {
    outcomes: HashMap<RequestDigest, Shared<BoxFuture<'static, Outcome>>>,
    /// The oldest first.
    order: VecDeque<RequestDigest>,
}

pub(super) fn digest(from: IpAddr, key: &str, body: &[u8]) -> RequestDigest {
    let hasher = Sha256::new_with_prefix(format!("{from} {} {key} ", key.len()));
    hasher.chain_update(body).finalize().into()
}

impl IdempotencyCache {
    /// Nothing is known; so many may be under way.
    pub(super) fn new(most: usize) -> Self {
        Self {
            known: Mutex::default(),
            under_way: Arc::new(Semaphore::new(most)),
            tasks: TaskTracker::new(),
            ended: CancellationToken::new(),
        }
    }

    /// Does the work of a request unless it was done, and gives what came of it.
    pub(super) async fn once(&self, request: RequestDigest, work: impl Future<Output = Outcome> + Send + 'static) -> Outcome {
        let known = self.known.lock().outcomes.get(&request).cloned();
        let outcome = match known {
            Some(outcome) => outcome,
            None => self.begin(request, work).await,
        };
        let outcome = outcome.await;
        if outcome.is_err() {
            self.known.lock().outcomes.remove(&request);
        }
        outcome
    }

    async fn begin(
        &self,
        request: RequestDigest,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) -> Shared<BoxFuture<'static, Outcome>> {
        let Ok(permit) = Arc::clone(&self.under_way).acquire_owned().await else {
            return std::future::ready(Err(Refused::NotKept)).boxed().shared();
        };
        let mut known = self.known.lock();
        // The same request may have come twice at once.
        if let Some(outcome) = known.outcomes.get(&request) {
            return outcome.clone();
        }
        let ended = self.ended.clone();
        let task = self.tasks.spawn(async move {
            let _permit = permit;
            ended.run_until_cancelled_owned(work).await.unwrap_or(Err(Refused::NotKept))
        });
        let outcome = async { task.await.unwrap_or(Err(Refused::NotKept)) }.boxed().shared();
        known.remember(request, outcome.clone());
        outcome
    }

    /// Ends what is under way when it is dropped.
    pub(super) fn end_with(&self) -> DropGuard {
        self.ended.clone().drop_guard()
    }

    /// Ends what is under way.
    pub(super) async fn close(&self) {
        self.ended.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl KnownRequests {
    fn remember(&mut self, request: RequestDigest, outcome: Shared<BoxFuture<'static, Outcome>>) {
        if self.order.len() >= MOST_KEYS
            && let Some(oldest) = self.order.pop_front()
        {
            self.outcomes.remove(&oldest);
        }
        self.order.push_back(request);
        self.outcomes.insert(request, outcome);
    }
}
