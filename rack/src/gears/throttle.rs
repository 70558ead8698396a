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

use chassis::token_bucket::{TokenBucket, TokenRate};
use futures::FutureExt;
use gear_spec::throttle::{ThrottleAction, ThrottleConfig};
use model::gear_manifest;
use tokio::time::Instant;

use super::{Gear, GearContext, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: ThrottleConfig = gear_manifest::config(config)?;
    let rate = TokenRate {
        per_second: config.rate,
        burst: f64::from(config.burst),
    };
    Ok(Gear::Passive(Box::new(MessageThrottle {
        rate,
        bucket: TokenBucket::new(rate, Instant::now().into_std()),
        when_full: config.when_full,
    })))
}

struct MessageThrottle {
    rate: TokenRate,
    bucket: TokenBucket,
    when_full: ThrottleAction,
}

impl PassiveGear for MessageThrottle {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            if let Err(wait) = self.take() {
                if self.when_full == ThrottleAction::Drop {
                    cx.count_dropped();
                    return Ok(());
                }
                tokio::select! {
                    // Nobody else takes of the bucket: there is a token then.
                    () = tokio::time::sleep(wait) => {
                        let _ = self.take();
                    }
                    () = cx.stopping() => {}
                }
            }
            // A refusal has been counted and reported.
            cx.send("out", delivery.message).await.ok();
            Ok(())
        }
        .boxed()
    }
}

impl MessageThrottle {
    /// Takes a token, or says how long it takes until there is one.
    fn take(&mut self) -> Result<(), Duration> {
        self.bucket.take(self.rate, Instant::now().into_std())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::testing::Flow;
    use super::*;

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
