//! Idle detection of a connection of HTTP/2: hyper's pings ask whether a peer lives, and not whether it asks for anything; they begin after
//! its preface.
//!
//! # Invariants
//!
//! - A request is open until its answer is made, or nobody waits for that any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::HEADER_TIMEOUT;

/// How long a connection may be without a request after its first one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// The requests of a connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionActivity {
    begun: AtomicU64,
    open: AtomicU64,
}

impl ConnectionActivity {
    /// A request begins.
    pub(super) fn begin(self: &Arc<Self>) -> OpenRequest {
        self.begun.fetch_add(1, Relaxed);
        self.open.fetch_add(1, Relaxed);
        OpenRequest(Arc::clone(self))
    }

    /// Whether there has been a request.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Relaxed) > 0
    }

    /// Waits until there was no request for too long: the first must begin within [`HEADER_TIMEOUT`].
    pub(super) async fn wait_idle(&self) {
        let (mut known, mut idle) = (0, Duration::ZERO);
        loop {
            tokio::time::sleep(HEADER_TIMEOUT).await;
            let (begun, open) = (self.begun.load(Relaxed), self.open.load(Relaxed));
            if begun == 0 {
                return;
            }
            if open > 0 || begun != known {
                (known, idle) = (begun, Duration::ZERO);
                continue;
            }
            idle += HEADER_TIMEOUT;
            if idle >= IDLE_TIMEOUT {
                return;
            }
        }
    }
}

/// A request that is not answered yet.
#[derive(Debug)]
pub(super) struct OpenRequest(Arc<ConnectionActivity>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_without_a_first_request_or_long_after_its_last() {
        let activity = Arc::new(ConnectionActivity::default());
        activity.wait_idle().await;
        assert!(!activity.has_begun());
        let open = activity.begin();
        let idle = activity.wait_idle();
        tokio::pin!(idle);
        for _ in 0..20 {
            tokio::time::sleep(HEADER_TIMEOUT).await;
            assert!(idle.as_mut().now_or_never().is_none(), "a request is open");
        }
        drop(open);
        let answered = tokio::time::Instant::now();
        idle.await;
        assert!(answered.elapsed() >= IDLE_TIMEOUT - HEADER_TIMEOUT && activity.has_begun());
    }
}
