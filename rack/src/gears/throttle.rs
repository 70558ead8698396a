//! `throttle`: lets messages through at a rate, by a token bucket.
//!
//! # Invariants
//!
//! - In any stretch of time *t* at most `burst + rate × t` messages leave.
//! - `wait` slows the senders: the inbox fills, and behind it theirs. Nothing is dropped. A gear that is asked to stop no longer
//!   waits: what is in its inbox leaves at once, beyond the rate, since it would be lost otherwise, or wait for a resume that may
//!   not come. Where another gear takes its place, only the message in hand does.
//! - `drop` holds nothing back; what is dropped is counted.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use gear_spec::throttle::{ThrottleAction, ThrottleConfig};
use model::gear_manifest;
use tokio::time::Instant;

use super::{Gear, GearContext, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: ThrottleConfig = gear_manifest::config(config)?;
    Ok(Gear::Passive(Box::new(MessageThrottle {
        bucket: MessageTokenBucket::new(&config, Instant::now()),
        when_full: config.when_full,
    })))
}

struct MessageThrottle {
    bucket: MessageTokenBucket,
    when_full: ThrottleAction,
}

impl PassiveGear for MessageThrottle {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let wait = self.bucket.wait(Instant::now());
            if !wait.is_zero() {
                if self.when_full == ThrottleAction::Drop {
                    cx.count_dropped();
                    return Ok(());
                }
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = cx.stopping() => {}
                }
            }
            self.bucket.take(Instant::now());
            // A refusal has been counted and reported.
            cx.send("out", delivery.message).await.ok();
            Ok(())
        }
        .boxed()
    }
}

/// Tokens come with time, up to the burst.
struct MessageTokenBucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    /// When `tokens` was true.
    at: Instant,
}

impl MessageTokenBucket {
    fn new(config: &ThrottleConfig, now: Instant) -> Self {
        Self {
            rate: config.rate,
            burst: f64::from(config.burst),
            tokens: f64::from(config.burst),
            at: now,
        }
    }

    fn fill(&mut self, now: Instant) {
        let came = now.saturating_duration_since(self.at).as_secs_f64() * self.rate;
        self.tokens = (self.tokens + came).min(self.burst);
        self.at = now;
    }

    /// How long until there is a token.
    fn wait(&mut self, now: Instant) -> Duration {
        self.fill(now);
        if self.tokens >= 1.0 {
            Duration::ZERO
        } else {
            // Rounded up: a timer that fires early would find no token.
            Duration::from_secs_f64((1.0 - self.tokens) / self.rate) + Duration::from_nanos(1)
        }
    }

    fn take(&mut self, now: Instant) {
        self.fill(now);
        self.tokens = (self.tokens - 1.0).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::testing::Flow;
    use super::*;

    #[test]
    fn a_burst_leaves_at_once_and_then_the_rate_is_kept() {
        let config = ThrottleConfig {
            rate: 100.0,
            burst: 5,
            when_full: ThrottleAction::Wait,
        };
        let start = Instant::now();
        let mut bucket = MessageTokenBucket::new(&config, start);
        let (mut now, mut left) = (start, 0);
        while now <= start + Duration::from_secs(10) {
            let wait = bucket.wait(now);
            if wait.is_zero() {
                bucket.take(now);
                left += 1;
            } else {
                now += wait;
            }
        }
        assert!((5 + 999..=5 + 1000).contains(&left), "{left}");
        // An hour without messages is worth one burst.
        let later = now + Duration::from_secs(3600);
        for _ in 0..5 {
            assert!(bucket.wait(later).is_zero());
            bucket.take(later);
        }
        assert!(!bucket.wait(later).is_zero());
    }

    fn gears(throttle: &str) -> String {
        format!(
            "
  - {{ name: numbers, type: generator, deploy: rack-a, config: {{ rate: 100000, count: 50 }} }}
  - {{ name: slow, type: throttle, deploy: rack-a, config: {{ {throttle} }} }}
  - {{ name: sink, type: log_sink, deploy: rack-a }}"
        )
    }

    const WIRES: &str = "{ from: numbers.out, to: slow.in }, { from: slow.out, to: sink.in }";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_too_much_is_dropped_and_counted() {
        let flow = Flow::run(&gears("rate: 0.001, burst: 20, when_full: drop"), WIRES).await;
        assert_eq!(flow.rows("sink").len(), 20);
        assert_eq!(flow.counter("slow", "gear.messages.dropped"), 30.0);
        assert_eq!(flow.counter("slow", "gear.errors"), 0.0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn waiting_loses_nothing_and_a_stop_does_not_wait() {
        let began = Instant::now();
        let mut flow = Flow::start(&gears("rate: 200, burst: 1"), WIRES).await;
        flow.reach("sink", 50).await;
        assert!(
            began.elapsed() >= Duration::from_millis(49 * 5),
            "{:?}",
            began.elapsed()
        );
        flow.stop().await;
        assert_eq!(
            (flow.rows("sink").len(), flow.counter("slow", "gear.messages.dropped")),
            (50, 0.0)
        );
        let flow = Flow::run(&gears("rate: 0.001"), WIRES).await;
        let counts =
            ["gear.messages.in", "gear.messages.out", "gear.messages.dropped"].map(|name| flow.counter("slow", name));
        assert_eq!((flow.rows("sink").len(), counts), (50, [50.0, 50.0, 0.0]));
    }
}
