//! When a connection tries to reach the bus: at once, then after growing pauses; not while it is held, and at once when it is let go.
//!
//! # Invariants
//!
//! - An attempt goes through all servers, and each one that comes to nothing is followed by a longer pause, whatever it failed of.
//! - Racks that lost the bus together do not come back together.
//! - A connection that stands is not touched by a hold.
//!
//! Not here: what an attempt does (async-nats), what is told of it (`connection_log`).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::watch;

/// Attempts wait at most this many times `reconnect_wait`.
const BACK_OFF: u32 = 10;
/// And never longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The attempts of one connection. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct ConnectAttempts {
    wait: Duration,
    /// How many there were since the bus last let us in.
    made: Arc<AtomicU32>,
    held: Arc<watch::Sender<bool>>,
}

/// A connection makes no attempt until this is dropped, and one at once then. One hold at a time.
#[derive(Debug)]
#[must_use = "the hold ends when it is dropped"]
pub struct AttemptHold(Arc<watch::Sender<bool>>);

impl Drop for AttemptHold {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

impl ConnectAttempts {
    pub(super) fn new(wait: Duration) -> Self {
        Self {
            wait,
            made: Arc::default(),
            held: Arc::new(watch::channel(false).0),
        }
    }

    pub(super) fn hold(&self) -> AttemptHold {
        self.held.send_replace(true);
        AttemptHold(Arc::clone(&self.held))
    }

    /// The bus let us in.
    pub(super) fn succeeded(&self) {
        self.made.store(0, Ordering::Relaxed);
    }

    /// Waits until the next attempt is due.
    pub(super) async fn due(self) {
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        let (mut held, mut let_go) = (self.held.subscribe(), self.held.subscribe());
        let released = async {
            // The sender is ours, so no wait fails.
            let _ = let_go.wait_for(|held| *held).await;
            let _ = let_go.wait_for(|held| !*held).await;
        };
        tokio::select! {
            () = released => {}
            () = tokio::time::sleep(delay(self.wait, made)) => {
                let _ = held.wait_for(|held| !*held).await;
            }
        }
    }
}

/// The wait before an attempt, after so many: none before the first, then growing, between a half and the whole of the step.
fn delay(wait: Duration, made: u32) -> Duration {
    let step = wait.saturating_mul(made.min(BACK_OFF)).min(LONGEST_WAIT.max(wait));
    // Jitter needs no good randomness: the hasher's per-process keys are enough.
    let jitter = RandomState::new().build_hasher().finish() % 1_000;
    step / 2 + (step / 2).mul_f64(f64::from(u32::try_from(jitter).unwrap_or(0)) / 1_000.0)
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    #[test]
    fn reconnects_start_at_once_then_wait_longer_with_jitter_up_to_a_cap() {
        let wait = Duration::from_secs(1);
        assert_eq!(delay(wait, 0), Duration::ZERO);
        for made in 1..200 {
            let step = wait * made.min(BACK_OFF);
            let waited = delay(wait, made);
            assert!(waited >= step / 2 && waited <= step, "after {made} it waits {waited:?}");
        }
        assert!(delay(Duration::from_secs(20), 100) <= LONGEST_WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn no_attempt_is_made_while_held_and_one_at_once_when_let_go() {
        let (hour, ages) = (Duration::from_secs(3_600), Duration::from_secs(100_000));
        let attempts = ConnectAttempts::new(hour);
        let began = Instant::now();
        attempts.clone().due().await;
        assert_eq!(began.elapsed(), Duration::ZERO, "the first one");
        let mut second = Box::pin(attempts.clone().due());
        let hold = attempts.hold();
        assert!(timeout(ages, &mut second).await.is_err(), "it is held");
        drop(hold);
        second.await;
        assert_eq!(began.elapsed(), ages, "it waited for nothing else");
        attempts.clone().due().await;
        assert!(
            began.elapsed() >= ages + hour / 2,
            "nobody holds it any more, and there were two"
        );
        attempts.succeeded();
        let began = Instant::now();
        attempts.clone().due().await;
        assert_eq!(began.elapsed(), Duration::ZERO, "the first one again");
    }
}
