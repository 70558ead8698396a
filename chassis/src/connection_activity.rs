//! Idle detection of a connection: pings of HTTP/2 ask whether a peer lives, and not whether it asks for anything; they begin after its
//! preface.
//!
//! # Invariants
//!
//! - A request is open until all clones of its [`OpenRequest`] are dropped.
//! - A connection is idle when it had no request for the whole of the time between two looks, however short ago the look before was.
//!
//! # Not here
//!
//! Closing the connection: who serves it does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The requests of a connection.
#[derive(Debug, Default)]
pub struct ConnectionActivity {
    /// Counts beginnings and ends.
    changes: AtomicU64,
    open: AtomicU64,
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
        self.changes.fetch_add(1, Relaxed);
        OpenRequest {
            _count: Arc::new(RequestCount(Arc::clone(self))),
        }
    }

    /// Whether there has been a request.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.changes.load(Relaxed) > 0
    }

    /// Returns when the first request did not begin within `first`, or there was none for `idle`, at most twice that.
    pub async fn wait_idle(&self, first: Duration, idle: Duration) {
        let (mut seen, mut wait) = (0, first);
        loop {
            tokio::time::sleep(wait).await;
            // Read in the order in which a request ends the other way round: none ends unseen between the two.
            let (open, changes) = (self.open.load(Relaxed), self.changes.load(Relaxed));
            if changes == seen && open == 0 {
                return;
            }
            (seen, wait) = (changes, idle);
        }
    }
}

impl Drop for RequestCount {
    fn drop(&mut self) {
        self.0.changes.fetch_add(1, Relaxed);
        self.0.open.fetch_sub(1, Relaxed);
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
        drop(clone);
        let answered = tokio::time::Instant::now();
        idle.await;
        assert!(answered.elapsed() >= IDLE && answered.elapsed() <= IDLE * 2 && activity.has_begun());
    }
}
