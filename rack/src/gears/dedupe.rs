//! `dedupe`: deduplication, lets the first message of each key through and drops those that repeat it.
//!
//! # Invariants
//!
//! - A key counts as seen from when its message was sent until `ttl` is over or `max_keys` younger ones were seen, whichever comes
//!   first. A duplicate does not prolong that.
//! - A message that was refused further on has not been seen: the next one of its key passes.
//! - Of a key longer than [`LONG_KEY`] its SHA-256 is kept: what is kept of a key is bounded.
//! - Keys are in memory. A gear that begins anew has forgotten them: duplicates pass then, and no message is lost. That is why a
//!   life leaves them to none after it: a message of a guaranteed wire that comes again would be taken for its own duplicate.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use gear_spec::dedupe::DedupeConfig;
use gear_spec::expression::CelExpression;
use model::gear_manifest;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::recent_keys::RecentKeys;
use super::{Gear, GearContext, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;

/// A key of more bytes is not kept itself.
const LONG_KEY: usize = 64;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: DedupeConfig = gear_manifest::config(config)?;
    Ok(Gear::Passive(Box::new(MessageDeduplicator {
        key: CelExpression::compile("key", &config.key)?,
        seen: SeenKeys::new(&config),
    })))
}

struct MessageDeduplicator {
    key: CelExpression,
    seen: SeenKeys,
}

impl PassiveGear for MessageDeduplicator {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let (message, now) = (delivery.message, Instant::now());
            let key = bounded_key(self.key.key_of(&message)?);
            if self.seen.check_seen(&key, now) {
                cx.send_if_wired("duplicate", message).await;
            } else if cx.send("out", message).await.is_ok() {
                self.seen.add(&key, now);
            }
            Ok(())
        }
        .boxed()
    }
}

/// What is kept of a key.
fn bounded_key(key: String) -> String {
    if key.len() <= LONG_KEY {
        return key;
    }
    // Longer than a short key that looks like it.
    format!("sha256:{:x}", Sha256::digest(key))
}

/// When each key was seen first, the oldest first.
struct SeenKeys {
    ttl: Duration,
    most: usize,
    keys: RecentKeys<Instant>,
}

impl SeenKeys {
    fn new(config: &DedupeConfig) -> Self {
        Self {
            ttl: config.ttl.get(),
            most: config.max_keys as usize,
            keys: RecentKeys::default(),
        }
    }

    fn check_seen(&mut self, key: &str, now: Instant) -> bool {
        while self.keys.values().next().is_some_and(|seen| *seen + self.ttl <= now) {
            self.keys.pop_oldest();
        }
        self.keys.get(key).is_some()
    }

    fn add(&mut self, key: &str, now: Instant) {
        self.keys.set(key, now);
        while self.keys.len() > self.most {
            self.keys.pop_oldest();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use serde_json::{Value, json};

    use super::super::output_transaction::{DeliveryGuarantee, collect_output};
    use super::super::testing::held::{outbox, spec, surroundings};
    use super::super::testing::{Bench, Flow, message};
    use super::*;

    fn seen(ttl: &str, max_keys: u32) -> SeenKeys {
        let config = json!({"key": "text", "ttl": ttl, "max_keys": max_keys});
        SeenKeys::new(&serde_json::from_value(config).unwrap())
    }

    #[test]
    fn a_key_is_forgotten_when_its_time_is_over_however_often_it_came() {
        let (mut keys, start) = (seen("10s", 100), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!keys.check_seen("a", at(0)));
        keys.add("a", at(0));
        keys.add("b", at(5));
        assert!(keys.check_seen("a", at(5)) && keys.check_seen("a", at(9)));
        assert!(!keys.check_seen("a", at(10)) && keys.check_seen("b", at(14)) && !keys.check_seen("b", at(15)));
        assert_eq!(keys.keys.len(), 0);
    }

    #[test]
    fn no_more_keys_are_kept_than_configured_and_the_oldest_goes_first() {
        let (mut keys, now) = (seen("10s", 2), Instant::now());
        for key in ["a", "b", "c"] {
            keys.add(key, now);
            assert!(keys.keys.len() <= 2);
        }
        assert!(!keys.check_seen("a", now) && keys.check_seen("b", now) && keys.check_seen("c", now));
    }

    #[test]
    fn long_keys_are_told_apart_by_what_is_kept_of_them() {
        let long = |end: &str| bounded_key(format!("{}{end}", "x".repeat(1_000)));
        assert!(long("a") == long("a") && long("a") != long("b"));
        assert!(long("a").len() > LONG_KEY && long("a").len() < 80);
        assert_eq!(bounded_key("short".to_owned()), "short");
    }

    #[tokio::test]
    async fn a_redelivery_after_a_gear_restart_is_not_a_duplicate() {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::open(folder.path());
        let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
        let spec = spec("dedupe", &json!({"key": "text"}), &["out"]);
        let (cx, _stop) = surroundings(&spec, &bench, &outbox);
        let lives = [(); 2].map(|()| match build(&spec.config) {
            Ok(Gear::Passive(gear)) => gear,
            _ => panic!("dedupe is passive"),
        });
        let mut left = Vec::new();
        for mut gear in lives {
            for number in [1, 2] {
                let delivery = InputMessage {
                    port: "in",
                    message: message(number, Value::Null, b"same"),
                };
                let (done, made) = collect_output(DeliveryGuarantee::Again, gear.process(&cx, delivery)).await;
                done.unwrap();
                left.push(made.transaction.leaving.len());
            }
        }
        assert_eq!(left, [1, 0, 1, 0]);
        drop(cx);
        bench.close().await;
        assert!(thread.close(Duration::from_secs(10)).await);
    }

    const FEED: &str = "
  - { name: feed, type: test_feed, deploy: rack-a, config: { messages: [
      { data: { id: 1, n: 1 } }, { data: { id: 1, n: 2 } }, { data: { id: 2, n: 3 } }, { data: { no: 4 } }, { data: { id: '1', n: 5 } } ] } }
  - { name: once, type: dedupe, deploy: rack-a, config: { key: data.id, ttl: 168h } }
  - { name: first, type: log_sink, deploy: rack-a }
  - { name: others, type: log_sink, deploy: rack-a }";
    const WIRES: &str = "{ from: feed.out, to: once.in }, { from: once.out, to: first.in }";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_first_message_of_a_key_passes_and_duplicates_are_counted_or_leave_by_their_port() {
        let flow = Flow::run(FEED, WIRES).await;
        let first = [r#"{"id":1,"n":1}"#, r#"{"id":2,"n":3}"#];
        assert_eq!(flow.texts("first"), first);
        // Two duplicates, and one that has no key.
        assert_eq!(flow.counter("once", "gear.messages.dropped"), 3.0);
        assert!(flow.says("once", "a message was refused: key: No such key: id"));
        let wired = format!("{WIRES}, {{ from: once.duplicate, to: others.in }}");
        let flow = Flow::run(FEED, &wired).await;
        assert_eq!(flow.texts("first"), first);
        assert_eq!(flow.texts("others"), [r#"{"id":"1","n":5}"#, r#"{"id":1,"n":2}"#]);
        assert_eq!(flow.counter("once", "gear.messages.dropped"), 1.0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_message_that_could_not_be_sent_has_not_been_seen() {
        let flow = Flow::run(
            FEED,
            "{ from: feed.out, to: once.in }, { from: once.duplicate, to: others.in }",
        )
        .await;
        assert_eq!(flow.texts("others"), Vec::<String>::new());
        assert!(flow.says("once", "no wire leads from port out"));
    }
}
