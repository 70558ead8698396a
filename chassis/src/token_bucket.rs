//! Token bucket: a rate limiter whose tokens come with time, up to a burst.
//!
//! # Invariants
//!
//! - In any stretch of time *t* at most `burst + rate × t` tokens are taken, what is charged afterwards ([`TokenBucket::charge`]) apart: that is a
//!   debt, which the time to come pays.
//! - Time is an argument. A clock that steps back gives no tokens.
//! - The rate is an argument too: another one holds from the next call on.
//!
//! Not here: who waits and who is refused.

use std::time::{Duration, Instant};

/// How fast tokens come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenRate {
    /// Tokens per second; more than 0.
    pub per_second: f64,
    /// The most that are kept.
    pub burst: f64,
}

/// The tokens of one who is limited.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    tokens: f64,
    /// When `tokens` was true.
    filled: Instant,
}

impl TokenBucket {
    /// A full one.
    #[must_use]
    pub const fn new(rate: TokenRate, now: Instant) -> Self {
        Self {
            tokens: rate.burst,
            filled: now,
        }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// If there is none: how long until there is one.
    pub fn take(&mut self, rate: TokenRate, now: Instant) -> Result<(), Duration> {
        self.wait_for(1.0, rate, now)?;
        self.tokens -= 1.0;
        Ok(())
    }

    /// Whether there are so many tokens; none is taken.
    ///
    /// # Errors
    /// If there are not: how long until there are.
    pub fn wait_for(&mut self, tokens: f64, rate: TokenRate, now: Instant) -> Result<(), Duration> {
        let elapsed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + elapsed * rate.per_second).min(rate.burst);
        self.filled = self.filled.max(now);
        if self.tokens >= tokens {
            return Ok(());
        }
        let wait = Duration::try_from_secs_f64((tokens - self.tokens) / rate.per_second).unwrap_or(Duration::MAX);
        // Rounded up: a timer that fires early would find no token.
        Err(wait.saturating_add(Duration::from_nanos(1)))
    }

    /// Takes tokens for what has been done already, whether there are so many or not.
    pub fn charge(&mut self, tokens: f64) {
        self.tokens -= tokens;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: TokenRate = TokenRate {
        per_second: 100.0,
        burst: 5.0,
    };

    #[test]
    fn a_burst_is_taken_at_once_and_then_the_rate_is_kept() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(RATE, start);
        let (mut now, mut taken) = (start, 0);
        while now <= start + Duration::from_secs(10) {
            match bucket.take(RATE, now) {
                Ok(()) => taken += 1,
                Err(wait) => now += wait,
            }
        }
        assert!((5 + 999..=5 + 1000).contains(&taken), "{taken}");
        // An hour without messages is worth one burst.
        let later = now + Duration::from_secs(3600);
        let taken = (0..100).filter(|_| bucket.take(RATE, later).is_ok()).count();
        assert_eq!(taken, 5);
    }

    #[test]
    fn a_debt_is_paid_by_the_time_to_come() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(RATE, now);
        assert!(bucket.wait_for(0.0, RATE, now).is_ok());
        bucket.charge(205.0);
        let wait = bucket.wait_for(0.0, RATE, now).err().unwrap_or_default();
        assert_eq!(wait.as_secs(), 2);
        assert!(bucket.wait_for(0.0, RATE, now + wait).is_ok());
        assert!(bucket.take(RATE, now + wait).is_err());
    }

    #[test]
    fn a_clock_that_steps_back_gives_no_tokens() {
        let now = Instant::now() + Duration::from_secs(10);
        let mut bucket = TokenBucket::new(RATE, now);
        bucket.charge(5.0);
        assert!(bucket.take(RATE, now - Duration::from_secs(5)).is_err());
        assert!(bucket.take(RATE, now).is_err());
    }
}
