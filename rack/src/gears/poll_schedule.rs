//! Fixed-rate polling: when a gear that does something at an interval is due next, without a burst after a delay.
//!
//! # Invariants
//!
//! - The rhythm is that of the monotonic clock: a wall clock that is set does not move it.
//! - Who comes late does what is due once; the ticks missed meanwhile are skipped, and the rhythm is kept.

use std::time::Duration;

use tokio::time::Instant;

/// When the next tick is due.
#[derive(Debug, Clone, Copy)]
pub(super) struct PollSchedule {
    every: Duration,
    due: Instant,
}

impl PollSchedule {
    pub(super) const fn new(every: Duration, first: Instant) -> Self {
        Self { every, due: first }
    }

    /// When the next tick is due.
    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    /// Leaves out what is due before.
    pub(super) fn postpone(&mut self, until: Instant) {
        self.due = self.due.max(until);
    }

    /// Takes the tick that is due: the next one is the first of the rhythm that lies ahead.
    pub(super) fn advance(&mut self, now: Instant) {
        let late = now.saturating_duration_since(self.due);
        let ahead = self.every.as_nanos() - late.as_nanos() % self.every.as_nanos().max(1);
        self.due = now.max(self.due) + Duration::from_nanos(u64::try_from(ahead).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_tick_is_taken_once_and_the_rhythm_is_kept() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut schedule = PollSchedule::new(Duration::from_millis(100), at(100));
        for (now, next) in [(100, 200), (201, 300), (777, 800), (800, 900), (1_000_000, 1_000_100)] {
            schedule.advance(at(now));
            assert_eq!(schedule.due(), at(next), "taken at {now}");
        }
    }
}
