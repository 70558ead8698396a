//! Idle detection of a connection: pings of HTTP/2 ask whether a peer lives, and not whether it asks for anything; they begin after its
//! preface.
//!
//! # Invariants
//!
//! - A request is open until all clones of its [`OpenRequest`] are dropped.
//! - A connection is idle when it had no request for the whole of the time between two looks, however short ago the look before was.
//! - A request that was refused (4xx) is none, once it is answered: who may not come in could hold a connection with some of them for ever.
//!
//! # Not here
//!
//! Closing the connection: who serves it does.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

use http::StatusCode;

/// The requests of a connection.
#[derive(Debug, Default)]
pub struct ConnectionActivity {
    has_begun: AtomicBool,
    open: AtomicU64,
    /// Counts the answers to requests that were not refused.
    served: AtomicU64,
}

/// A request that is not answered, or not given up, yet.
#[derive(Debug, Clone)]
pub struct OpenRequest {
    _count: Arc<RequestCount>,
}

#[derive(Debug)]
struct RequestCount(Arc<ConnectionActivity>);

impl ConnectionActivity {
    /// A request begins; it is open until what this gives is dropped.
    pub fn begin(self: &Arc<Self>) -> OpenRequest {
        self.open.fetch_add(1, Relaxed);
        self.has_begun.store(true, Relaxed);
        OpenRequest {
            _count: Arc::new(RequestCount(Arc::clone(self))),
        }
    }

    /// Whether there has been a request, of whatever kind.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Relaxed)
    }

    /// An open request is answered.
    pub fn count_answer(&self, status: StatusCode) {
        self.served.fetch_add(u64::from(!status.is_client_error()), Release);
    }

    /// Returns when there was no request for `first`, and since there has been one, for `idle`, at most twice that.
    pub async fn wait_idle(&self, first: Duration, idle: Duration) {
        let mut seen = self.served.load(Relaxed);
        loop {
            tokio::time::sleep(if seen == 0 { first } else { idle }).await;
            // Read in the order in which a request ends the other way round: none ends unseen between the two. Who sees it gone sees its
            // answer.
            let (open, served) = (self.open.load(Acquire), self.served.load(Acquire));
            if served == seen && open == 0 {
                return;
            }
            seen = served;
        }
    }
}

impl Drop for RequestCount {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Release);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const FIRST: Duration = Duration::from_secs(60);
    const IDLE: Duration = Duration::from_secs(600);

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_without_a_first_request_or_long_after_its_last() {
        let activity = Arc::new(ConnectionActivity::default());
        activity.wait_idle(FIRST, IDLE).await;
        assert!(!activity.has_begun());
        let open = activity.begin();
        let idle = activity.wait_idle(FIRST, IDLE);
        tokio::pin!(idle);
        for _ in 0..20 {
            tokio::time::sleep(IDLE).await;
            assert!(idle.as_mut().now_or_never().is_none(), "a request is open");
        }
        let clone = open.clone();
        drop(open);
        tokio::time::sleep(IDLE).await;
        assert!(idle.as_mut().now_or_never().is_none(), "a part of it is open");
        activity.count_answer(StatusCode::SERVICE_UNAVAILABLE);
        drop(clone);
        let answered = tokio::time::Instant::now();
        idle.await;
        assert!(answered.elapsed() >= IDLE && answered.elapsed() <= IDLE * 2 && activity.has_begun());
    }

    #[tokio::test(start_paused = true)]
    async fn refused_requests_hold_no_connection() {
        let activity = Arc::new(ConnectionActivity::default());
        let idle = activity.wait_idle(FIRST, IDLE);
        tokio::pin!(idle);
        for status in [401, 403, 404, 415, 421, 429] {
            let open = activity.begin();
            tokio::time::sleep(FIRST / 10).await;
            assert!(idle.as_mut().now_or_never().is_none(), "{status}");
            activity.count_answer(StatusCode::from_u16(status).unwrap_or_default());
            drop(open);
        }
        tokio::time::sleep(FIRST).await;
        assert!(idle.now_or_never().is_some());
        // The control: one that was served.
        let idle = activity.wait_idle(FIRST, IDLE);
        tokio::pin!(idle);
        assert!(idle.as_mut().now_or_never().is_none());
        activity.count_answer(StatusCode::OK);
        tokio::time::sleep(FIRST * 2).await;
        assert!(idle.as_mut().now_or_never().is_none());
        activity.count_answer(StatusCode::UNAUTHORIZED);
        tokio::time::sleep(IDLE * 2).await;
        assert!(idle.now_or_never().is_some());
    }
}
