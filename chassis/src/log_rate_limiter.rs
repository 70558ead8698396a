//! Rate limiter of log lines: a [`TokenBucket`] per gear; suppressed lines are counted and reported.
//!
//! # Invariants
//!
//! - Every line is either admitted or counted as suppressed; every suppressed line is reported once, by
//!   [`AdmissionDecision::YesAfter`] when the gear may speak again or by [`LogRateLimiter::take_suppressed`] when it went silent.
//! - Time is an argument.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::config::LogThrottleConfig;
use crate::token_bucket::{TokenBucket, TokenRate};

/// Whether a line may be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionDecision {
    /// Log it.
    Yes,
    /// Log that lines were suppressed, then log it.
    YesAfter {
        /// How many.
        suppressed: u64,
    },
    /// Do not log it.
    No,
}

/// The throttle of a process.
#[derive(Debug)]
pub struct LogRateLimiter {
    inner: Mutex<GearBuckets>,
}

#[derive(Debug)]
struct GearBuckets {
    rules: LogThrottleConfig,
    gears: HashMap<String, GearLines>,
    suppressed: u64,
}

/// The lines of one gear.
#[derive(Debug)]
struct GearLines {
    bucket: TokenBucket,
    suppressed: u64,
}

fn rate(rules: LogThrottleConfig) -> TokenRate {
    TokenRate {
        per_second: rules.rate,
        burst: f64::from(rules.burst),
    }
}

impl LogRateLimiter {
    /// A throttle that follows `rules`.
    #[must_use]
    pub fn new(rules: LogThrottleConfig) -> Self {
        let inner = GearBuckets {
            rules,
            gears: HashMap::new(),
            suppressed: 0,
        };
        Self {
            inner: Mutex::new(inner),
        }
    }

    /// Follows other rules from now on. Buckets keep their tokens, up to the new burst.
    pub fn apply(&self, rules: LogThrottleConfig) {
        self.lock().rules = rules;
    }

    /// Whether a line of `gear` may be logged at `now`.
    pub fn admit(&self, gear: &str, now: Instant) -> AdmissionDecision {
        let mut inner = self.lock();
        let rules = inner.rules;
        if !inner.gears.contains_key(gear) {
            let lines = GearLines {
                bucket: TokenBucket::new(rate(rules), now),
                suppressed: 0,
            };
            inner.gears.insert(gear.to_owned(), lines);
        }
        let Some(lines) = inner.gears.get_mut(gear) else {
            return AdmissionDecision::Yes;
        };
        if rules.enabled && lines.bucket.take(rate(rules), now).is_err() {
            lines.suppressed += 1;
            inner.suppressed += 1;
            return AdmissionDecision::No;
        }
        match std::mem::take(&mut lines.suppressed) {
            0 => AdmissionDecision::Yes,
            suppressed => AdmissionDecision::YesAfter { suppressed },
        }
    }

    /// Takes what was suppressed and not reported yet, of gears that may speak again at `now` but did not. Call it on
    /// a slow tick and log one line each.
    #[must_use]
    pub fn take_suppressed(&self, now: Instant) -> Vec<(String, u64)> {
        let mut inner = self.lock();
        let rules = inner.rules;
        let recovered = |(gear, lines): (&String, &mut GearLines)| {
            let may_speak = lines.bucket.wait_for(1.0, rate(rules), now).is_ok();
            (lines.suppressed > 0 && may_speak).then(|| (gear.clone(), std::mem::take(&mut lines.suppressed)))
        };
        inner.gears.iter_mut().filter_map(recovered).collect()
    }

    /// Forgets a gear that stopped; gives what was suppressed and not reported yet.
    pub fn forget(&self, gear: &str) -> u64 {
        self.lock().gears.remove(gear).map_or(0, |lines| lines.suppressed)
    }

    /// Lines suppressed since the start, of all gears.
    #[must_use]
    pub fn suppressed_total(&self) -> u64 {
        self.lock().suppressed
    }

    fn lock(&self) -> MutexGuard<'_, GearBuckets> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn rules(rate: f64, burst: u32) -> LogThrottleConfig {
        LogThrottleConfig {
            enabled: true,
            rate,
            burst,
        }
    }

    fn admitted(throttle: &LogRateLimiter, gear: &str, lines: u32, now: Instant) -> u32 {
        (0..lines)
            .map(|_| u32::from(throttle.admit(gear, now) != AdmissionDecision::No))
            .sum()
    }

    #[test]
    fn a_gear_may_burst_and_then_gets_its_rate() {
        let (throttle, start) = (LogRateLimiter::new(rules(10.0, 5)), Instant::now());
        assert_eq!(admitted(&throttle, "a", 100, start), 5);
        assert_eq!(admitted(&throttle, "a", 100, start + Duration::from_millis(300)), 3);
        assert_eq!(admitted(&throttle, "a", 100, start + Duration::from_secs(60)), 5);
        assert_eq!(throttle.suppressed_total(), 300 - 13);
    }

    #[test]
    fn gears_do_not_take_each_others_tokens() {
        let (throttle, now) = (LogRateLimiter::new(rules(1.0, 3)), Instant::now());
        assert_eq!(admitted(&throttle, "a", 10, now), 3);
        assert_eq!(admitted(&throttle, "b", 10, now), 3);
    }

    #[test]
    fn every_suppressed_line_is_reported_once() {
        let (throttle, start) = (LogRateLimiter::new(rules(1.0, 1)), Instant::now());
        assert_eq!(throttle.admit("a", start), AdmissionDecision::Yes);
        assert_eq!(admitted(&throttle, "a", 7, start), 0);
        assert!(throttle.take_suppressed(start).is_empty(), "it may not speak yet");
        let later = start + Duration::from_secs(2);
        assert_eq!(
            throttle.admit("a", later),
            AdmissionDecision::YesAfter { suppressed: 7 }
        );
        assert_eq!(throttle.admit("a", later), AdmissionDecision::No);
        let silent = later + Duration::from_secs(2);
        assert_eq!(throttle.take_suppressed(silent), vec![("a".to_owned(), 1)]);
        assert_eq!(throttle.admit("a", silent), AdmissionDecision::Yes);
    }

    #[test]
    fn new_rules_apply_to_gears_already_known() {
        let (throttle, now) = (LogRateLimiter::new(rules(1.0, 1)), Instant::now());
        assert_eq!(admitted(&throttle, "a", 10, now), 1);
        throttle.apply(LogThrottleConfig {
            enabled: false,
            ..rules(1.0, 1)
        });
        assert_eq!(admitted(&throttle, "a", 10, now), 10);
        throttle.apply(rules(1_000.0, 100));
        assert_eq!(admitted(&throttle, "a", 100, now + Duration::from_millis(50)), 50);
    }

    #[test]
    fn a_clock_that_steps_back_gives_no_tokens() {
        let (throttle, start) = (
            LogRateLimiter::new(rules(10.0, 2)),
            Instant::now() + Duration::from_secs(10),
        );
        assert_eq!(admitted(&throttle, "a", 10, start), 2);
        assert_eq!(admitted(&throttle, "a", 10, start - Duration::from_secs(5)), 0);
        assert_eq!(admitted(&throttle, "a", 10, start), 0);
    }
}
