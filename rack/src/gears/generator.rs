//! `generator`: makes messages at a steady rate from a seed.
//!
//! # Invariants
//!
//! - The body of message *n* depends on the seed, *n* and the size alone, on every machine and in every version.
//! - On average the rate is kept exactly. Who falls behind (full inboxes) catches up at most [`CATCH_UP`]; what is older
//!   is not made later.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use gear_spec::generator::GeneratorConfig;
use model::{Attributes, gear_manifest};
use tokio::time::Instant;

use super::{ActiveGear, Gear, GearContext, GearFuture, RawConfig};

/// How often at most messages are made; faster rates are made in batches.
const STEP: Duration = Duration::from_millis(1);
/// The most messages of one write.
const AT_ONCE: u64 = 256;
/// How much of a delay is made good.
const CATCH_UP: Duration = Duration::from_secs(1);

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    Ok(Gear::Active(Box::new(MessageGenerator {
        config: gear_manifest::config(config)?,
    })))
}

struct MessageGenerator {
    config: GeneratorConfig,
}

impl ActiveGear for MessageGenerator {
    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let mut pace = RateSchedule::new(self.config.rate, Instant::now());
            let mut last = Instant::now() - STEP;
            let mut made = 0;
            let end = self.config.count.unwrap_or(u64::MAX);
            while made < end {
                tokio::select! {
                    biased;
                    () = cx.stopping() => return Ok(()),
                    () = tokio::time::sleep_until(pace.next().max(last + STEP)) => {}
                }
                last = Instant::now();
                let first = made;
                let due = pace.due(last).min(end - made);
                while made < first + due {
                    if cx.is_stopping() {
                        return Ok(());
                    }
                    made = self.make_some(cx, made, (first + due).min(made + AT_ONCE)).await;
                }
            }
            Ok(())
        }
        .boxed()
    }
}

impl MessageGenerator {
    /// Makes the messages up to a number; what leaves the Rack of them is one write.
    async fn make_some(&self, cx: &GearContext, from: u64, to: u64) -> u64 {
        let making = async {
            for number in from..to {
                self.make(cx, number).await;
            }
        };
        cx.commit_together(None, making).await;
        to
    }

    async fn make(&self, cx: &GearContext, number: u64) {
        let began = std::time::Instant::now();
        let meta = Attributes::new().with("generator.number", number);
        let message = cx.make(None, meta, body(self.config.seed, number, self.config.size));
        // A refusal has been counted and reported; the next message may pass.
        cx.emit("out", message, None, began).await.ok();
    }
}

/// How many messages are due.
struct RateSchedule {
    rate: f64,
    /// When message `done` of this count was due.
    since: Instant,
    done: u64,
}

impl RateSchedule {
    fn new(rate: f64, now: Instant) -> Self {
        Self {
            rate,
            since: now,
            done: 0,
        }
    }

    /// When the next message is due.
    #[allow(clippy::cast_precision_loss, reason = "the count restarts long before 2^53")]
    fn next(&self) -> Instant {
        self.since + Duration::from_secs_f64(self.done as f64 / self.rate)
    }

    /// The number of messages that are due by `now` and were not given out. The first is due at once.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the rate is checked to be positive and at most 10^6"
    )]
    fn due(&mut self, now: Instant) -> u64 {
        let behind = now.saturating_duration_since(self.since).as_secs_f64() - self.done as f64 / self.rate;
        if behind > CATCH_UP.as_secs_f64() + 1.0 / self.rate {
            self.since = now - CATCH_UP.min(now.saturating_duration_since(self.since));
            self.done = 0;
        }
        let total = (now.saturating_duration_since(self.since).as_secs_f64() * self.rate) as u64 + 1;
        let due = total.saturating_sub(self.done);
        self.done = self.done.max(total);
        due
    }
}

/// The body of a message: letters and digits, derived by SplitMix64 from seed and number.
fn body(seed: u64, number: u64, size: u32) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    let mut state = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
    let size = size as usize;
    let mut body = Vec::with_capacity(size + 8);
    while body.len() < size {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        body.extend(word.to_le_bytes().map(|byte| LETTERS[usize::from(byte & 63)]));
    }
    body.truncate(size);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_depend_on_seed_and_number_and_stay_the_same_in_every_version() {
        assert_eq!(body(7, 3, 100), body(7, 3, 100));
        assert_ne!(body(7, 3, 100), body(7, 4, 100));
        assert_ne!(body(7, 3, 100), body(8, 3, 100));
        assert_eq!(body(7, 3, 0), b"");
        assert_eq!(body(7, 3, 100)[..13], body(7, 3, 13)[..]);
        assert_eq!(String::from_utf8_lossy(&body(1, 0, 16)), "bCcjSTkrNSoLHnR-");
    }

    #[test]
    fn the_rate_is_kept_on_average_and_only_a_second_is_made_good() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut pace = RateSchedule::new(1000.0, start);
        assert_eq!(pace.due(at(0)), 1);
        assert_eq!((1..=500).map(|ms| pace.due(at(ms))).sum::<u64>(), 500);
        assert_eq!(pace.due(at(900)), 400);
        assert_eq!(pace.due(at(60_000)), 1001);
        assert_eq!(pace.due(at(60_100)), 100);
        let mut slow = RateSchedule::new(0.1, start);
        assert_eq!(slow.due(at(0)), 1);
        assert_eq!((1..=100).map(|s| slow.due(at(s * 1000))).sum::<u64>(), 10);
    }
}
