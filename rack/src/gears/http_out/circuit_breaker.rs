//! The circuit breaker: leaves a target alone for a time after it failed several times in a row.
//!
//! ```text
//! closed ── `failures` in a row ──▶ open ── `open_for` ──▶ half open: one attempt ──┬─ succeeds ──▶ closed
//!                                    ▲                                              │
//!                                    └────────────────── fails ─────────────────────┘
//! ```
//!
//! # Invariants
//!
//! - While it is half open, one attempt is let through in each `open_for`; one whose end is never told blocks no other.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// It outlives the gear's lives: a target does not recover because a gear began anew.
#[derive(Debug, Default)]
pub(super) struct CircuitBreaker {
    state: Mutex<BreakerState>,
    closes: Notify,
}

#[derive(Debug, Default)]
struct BreakerState {
    /// Failures in a row.
    failures: u32,
    /// Until when no attempt may begin; none while it is closed.
    open_until: Option<Instant>,
}

/// When it opens, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct BreakerPolicy {
    pub(super) failures: u32,
    pub(super) open_for: Duration,
}

impl CircuitBreaker {
    /// Whether an attempt may begin; else how long it would have to wait.
    pub(super) fn admit(&self, rules: BreakerPolicy, now: Instant) -> Result<(), Duration> {
        let mut state = self.state.lock();
        match state.open_until {
            Some(until) if now < until => Err(until - now),
            Some(_) => {
                state.open_until = Some(now + rules.open_for);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Waits until an attempt may begin.
    pub(super) async fn wait(&self, rules: BreakerPolicy) {
        loop {
            let closes = self.closes.notified();
            let Err(left) = self.admit(rules, Instant::now()) else {
                return;
            };
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = closes => {}
            }
        }
    }

    /// An attempt succeeded. True if this closed it.
    pub(super) fn succeeded(&self) -> bool {
        let mut state = self.state.lock();
        state.failures = 0;
        let closes = state.open_until.take().is_some();
        if closes {
            self.closes.notify_waiters();
        }
        closes
    }

    /// An attempt failed. True if this opened it.
    pub(super) fn failed(&self, rules: BreakerPolicy, now: Instant) -> bool {
        let mut state = self.state.lock();
        state.failures = state.failures.saturating_add(1);
        if state.failures < rules.failures {
            return false;
        }
        state.open_until.replace(now + rules.open_for).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_and_closes_when_the_one_attempt_it_lets_through_succeeds() {
        let (breaker, start) = (CircuitBreaker::default(), Instant::now());
        let rules = BreakerPolicy {
            failures: 3,
            open_for: Duration::from_secs(10),
        };
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!breaker.failed(rules, at(0)) && !breaker.failed(rules, at(0)));
        assert!(!breaker.succeeded());
        assert!(!breaker.failed(rules, at(0)) && !breaker.failed(rules, at(0)));
        assert_eq!(breaker.admit(rules, at(0)), Ok(()));
        assert!(breaker.failed(rules, at(0)));
        assert_eq!(breaker.admit(rules, at(4)), Err(Duration::from_secs(6)));
        assert_eq!(breaker.admit(rules, at(10)), Ok(()));
        assert_eq!(breaker.admit(rules, at(10)), Err(Duration::from_secs(10)));
        // The attempt failed: it stays open, and this is no news.
        assert!(!breaker.failed(rules, at(11)));
        assert_eq!(breaker.admit(rules, at(20)), Err(Duration::from_secs(1)));
        // What the next one came to is never told.
        assert_eq!(breaker.admit(rules, at(21)), Ok(()));
        assert_eq!(breaker.admit(rules, at(31)), Ok(()));
        assert!(breaker.succeeded());
        assert_eq!(breaker.admit(rules, at(31)), Ok(()));
        assert!(!breaker.failed(rules, at(31)));
    }

    #[tokio::test]
    async fn who_waits_goes_as_soon_as_it_closes() {
        let breaker = CircuitBreaker::default();
        let rules = BreakerPolicy {
            failures: 1,
            open_for: Duration::from_secs(3600),
        };
        assert!(breaker.failed(rules, Instant::now()));
        let mut waits = Box::pin(breaker.wait(rules));
        assert!(futures::poll!(waits.as_mut()).is_pending());
        breaker.succeeded();
        waits.await;
    }
}
