//! `Idempotency-Key`: a request that is repeated gets the answer that it got before, and makes no second message.
//!
//! # Invariants
//!
//! - A key belongs to a sender's address and a body: with another one it is another request.
//! - What a request began goes on when its caller leaves, so that the repeated request finds it; it ends with the gear. No more of them
//!   are under way than connections may be: so many bodies are held beside those of the connections.
//! - A request that failed is forgotten, whether somebody waits for it or not: it is tried anew.
//! - The last [`MOST_KEYS`] of this life of the gear are remembered, not those before it.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::gears::GearSendError;
use crate::gears::recent_keys::RecentKeys;

/// The header.
pub(super) const HEADER: &str = "idempotency-key";
/// The longest key, in bytes.
pub(super) const MAX_KEY: usize = 255;
/// So many requests are remembered.
const MOST_KEYS: usize = 16_384;

/// What comes of a request.
type SendOutcome = Result<SignalIds, GearSendError>;
/// The same, for everybody who waits for it.
type SharedOutcome = Shared<BoxFuture<'static, SendOutcome>>;

/// What an answer names: the business signal and the trace.
#[derive(Debug, Clone)]
pub(super) struct SignalIds {
    pub(super) flux_id: String,
    pub(super) trace_id: String,
}

/// See the module.
pub(super) struct IdempotencyCache {
    /// By digest.
    known: Arc<Mutex<RecentKeys<SharedOutcome>>>,
    under_way: Arc<Semaphore>,
    tasks: TaskTracker,
    ended: CancellationToken,
}

/// SHA-256 of a sender, a key and a body, in hexadecimal digits.
pub(super) fn digest(from: IpAddr, key: &[u8], body: &[u8]) -> String {
    let hasher = Sha256::new_with_prefix(format!("{from} {} ", key.len()));
    format!("{:x}", hasher.chain_update(key).chain_update(body).finalize())
}

impl IdempotencyCache {
    /// Nothing is known; so many may be under way.
    pub(super) fn new(most: usize) -> Self {
        Self {
            known: Arc::default(),
            under_way: Arc::new(Semaphore::new(most)),
            tasks: TaskTracker::new(),
            ended: CancellationToken::new(),
        }
    }

    /// Does the work of a request unless it was done, and gives what came of it.
    pub(super) async fn run_once(
        &self,
        request: String,
        work: impl Future<Output = SendOutcome> + Send + 'static,
    ) -> SendOutcome {
        let known = self.known.lock().get(&request).cloned();
        let outcome = match known {
            Some(outcome) => outcome,
            None => self.begin(request, work).await,
        };
        outcome.await
    }

    async fn begin(&self, request: String, work: impl Future<Output = SendOutcome> + Send + 'static) -> SharedOutcome {
        let Ok(permit) = Arc::clone(&self.under_way).acquire_owned().await else {
            return std::future::ready(Err(GearSendError::NotKept)).boxed().shared();
        };
        let mut known = self.known.lock();
        // The same request may have come twice at once.
        if let Some(outcome) = known.get(&request) {
            return outcome.clone();
        }
        let (ended, own, all) = (self.ended.clone(), request.clone(), Arc::clone(&self.known));
        let task = self.tasks.spawn(async move {
            let _permit = permit;
            let work = AssertUnwindSafe(ended.run_until_cancelled_owned(work)).catch_unwind();
            let outcome = work.await.ok().flatten().unwrap_or(Err(GearSendError::NotKept));
            if outcome.is_err() {
                all.lock().remove(&own);
            }
            outcome
        });
        let outcome = async { task.await.unwrap_or(Err(GearSendError::NotKept)) }
            .boxed()
            .shared();
        if known.len() >= MOST_KEYS {
            known.pop_oldest();
        }
        known.set(&request, outcome.clone());
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
