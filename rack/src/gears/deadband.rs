//! `deadband`: change detection, lets a value through only when it differs enough from the last one that passed.
//!
//! | the value | passes |
//! |---|---|
//! | the first one of its key | always |
//! | a number, the last one as well | when they differ by more than `absolute`, or by more than `percent` of the last one; without both, at all |
//! | anything else, or of another kind than the last one | when it is not the same |
//! | any, `max_interval` or longer after the last one | always |
//!
//! # Invariants
//!
//! - A value is compared with the one that passed, not with the one before it: a slow drift passes, too.
//! - A value counts as passed when its message was sent; one that was refused further on changes nothing.
//! - `max_interval` is looked at when a message comes: a silent source stays silent.
//! - At most `max_keys` values are in memory, and [`MAX_BYTES`] of them with their keys. Where there are more keys, the one that passed longest ago is forgotten, and its next
//!   value passes; so does every first one after the gear began anew.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use gear_spec::deadband::DeadbandConfig;
use gear_spec::expression::{CelExpression, MessageVariables, key_or_one};
use model::message::Message;
use model::{HumanDuration, gear_manifest};
use serde_json::{Number, Value};
use tokio::time::Instant;

use super::recent_keys::RecentKeys;
use super::{Gear, GearContext, GearError, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;

/// The largest value that is kept, in bytes of JSON.
const MAX_VALUE: usize = 4096;

/// The most bytes of all values that are kept, with their keys.
const MAX_BYTES: usize = 64 << 20;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: DeadbandConfig = gear_manifest::config(config)?;
    let (value, key) = config.compile()?;
    Ok(Gear::Passive(Box::new(ChangeDetector {
        value,
        key,
        band: ChangeThreshold {
            absolute: config.absolute,
            percent: config.percent,
        },
        max_interval: config.max_interval.map(HumanDuration::get),
        most: config.max_keys as usize,
        passed: RecentKeys::default(),
        bytes: 0,
    })))
}

struct ChangeDetector {
    value: CelExpression,
    key: Option<CelExpression>,
    band: ChangeThreshold,
    max_interval: Option<Duration>,
    most: usize,
    passed: RecentKeys<PassedValue>,
    /// Of all of these, with their keys.
    bytes: usize,
}

/// The last value of a key that passed, and when.
struct PassedValue {
    value: Value,
    at: Instant,
    /// With its key.
    size: usize,
}

impl PassiveGear for ChangeDetector {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let (message, now) = (delivery.message, Instant::now());
            let key = key_or_one(self.key.as_ref(), &message)?;
            let value = self.value_of(&message)?;
            if !self.passes(&key, &value, now) {
                cx.count_dropped();
            } else if cx.send("out", message).await.is_ok() {
                self.keep(&key, value, now);
            }
            Ok(())
        }
        .boxed()
    }
}

impl ChangeDetector {
    fn value_of(&self, message: &Message) -> Result<Value, GearError> {
        let value = self.value.value(&MessageVariables::of(message))?;
        let size = size_of(&value);
        if size > MAX_VALUE {
            return Err(GearError::Rejected(format!(
                "value: the result has {size} bytes; a value that is compared has at most {MAX_VALUE}"
            )));
        }
        Ok(value)
    }

    fn passes(&self, key: &str, value: &Value, now: Instant) -> bool {
        let Some(last) = self.passed.get(key) else { return true };
        let is_due = |max_interval| now.saturating_duration_since(last.at) >= max_interval;
        self.max_interval.is_some_and(is_due) || self.band.is_exceeded(&last.value, value)
    }

    fn keep(&mut self, key: &str, value: Value, at: Instant) {
        let size = size_of(&value) + 2 * key.len();
        self.bytes += size;
        if let Some(before) = self.passed.set(key, PassedValue { value, at, size }) {
            self.bytes -= before.size;
        }
        while (self.passed.len() > self.most || self.bytes > MAX_BYTES)
            && let Some(oldest) = self.passed.pop_oldest()
        {
            self.bytes -= oldest.size;
        }
    }
}

/// The bytes of a value, about.
fn size_of(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        list => list.to_string().len(),
    }
}

/// The range around a value within which another one is no change.
struct ChangeThreshold {
    absolute: Option<f64>,
    percent: Option<f64>,
}

impl ChangeThreshold {
    fn is_exceeded(&self, last: &Value, value: &Value) -> bool {
        let (Value::Number(last), Value::Number(value)) = (last, value) else {
            return last != value;
        };
        let difference = difference(last, value);
        let of_last = |percent: f64| last.as_f64().unwrap_or_default().abs() * percent / 100.0;
        let mut bounds = self.absolute.into_iter().chain(self.percent.map(of_last)).peekable();
        if bounds.peek().is_none() {
            return difference > 0.0;
        }
        bounds.any(|bound| difference > bound)
    }
}

/// How far two numbers are apart; of integers exactly, however large they are.
fn difference(one: &Number, other: &Number) -> f64 {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => one.abs_diff(other) as f64,
        _ => (one.as_f64().unwrap_or_default() - other.as_f64().unwrap_or_default()).abs(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use serde_json::json;

    use super::super::testing::Flow;
    use super::*;

    fn passing(absolute: Option<f64>, percent: Option<f64>, values: Value) -> Vec<Value> {
        let band = ChangeThreshold { absolute, percent };
        let mut passed: Vec<Value> = Vec::new();
        let Value::Array(values) = values else {
            panic!("a list of values")
        };
        for value in values {
            if passed.last().is_none_or(|last| band.is_exceeded(last, &value)) {
                passed.push(value);
            }
        }
        passed
    }

    #[test]
    fn a_number_passes_when_it_leaves_the_band_around_the_last_one_that_passed() {
        assert_eq!(
            passing(Some(2.0), None, json!([0, 1, 2, 3, 4, 5.5, 1])),
            [json!(0), json!(3), json!(5.5), json!(1)]
        );
        assert_eq!(
            passing(None, Some(10.0), json!([100, 110, 111, 100, 99.5])),
            [json!(100), json!(111), json!(99.5)]
        );
        // One bound of two is enough, and ten percent of nothing is nothing.
        assert_eq!(
            passing(Some(50.0), Some(10.0), json!([0, 1, 1, 2, 1000, 1060])),
            [0, 1, 2, 1000, 1060].map(Value::from)
        );
        assert_eq!(passing(None, None, json!([1, 1, 1.0, 2, 2])), [json!(1), json!(2)]);
        let large = [i64::MAX - 1, i64::MAX].map(Value::from);
        assert_eq!(passing(None, None, json!(large)), large);
    }

    #[test]
    fn what_is_no_number_passes_when_it_is_not_the_same() {
        let values = json!(["on", "on", "off", null, null, 1, "1", {"a": 1}, {"a": 1}, {"a": 2}]);
        let passed = [
            json!("on"),
            json!("off"),
            json!(null),
            json!(1),
            json!("1"),
            json!({"a": 1}),
            json!({"a": 2}),
        ];
        assert_eq!(passing(Some(100.0), None, values), passed);
    }

    fn detector(config: &Value) -> ChangeDetector {
        let config: DeadbandConfig = gear_manifest::config(config.as_object().unwrap()).unwrap();
        let (value, key) = config.compile().unwrap();
        ChangeDetector {
            value,
            key,
            band: ChangeThreshold {
                absolute: config.absolute,
                percent: config.percent,
            },
            max_interval: config.max_interval.map(HumanDuration::get),
            most: config.max_keys as usize,
            passed: RecentKeys::default(),
            bytes: 0,
        }
    }

    #[test]
    fn an_unchanged_value_passes_again_after_the_longest_interval_and_without_one_never() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (config, again) in [(json!({"max_interval": "10s"}), true), (json!({}), false)] {
            let mut detector = detector(&config);
            detector.keep("", json!(1), at(0));
            assert!(!detector.passes("", &json!(1), at(9)));
            assert_eq!(detector.passes("", &json!(1), at(10)), again);
        }
    }

    #[test]
    fn no_more_keys_are_kept_than_configured_and_a_forgotten_one_passes() {
        let (mut detector, now) = (detector(&json!({"max_keys": 2})), Instant::now());
        for key in ["a", "b", "c"] {
            detector.keep(key, json!(1), now);
            assert!(detector.passed.len() <= 2);
        }
        assert!(detector.passes("a", &json!(1), now) && !detector.passes("b", &json!(1), now));
    }

    #[test]
    fn no_more_bytes_are_kept_than_the_bound_however_many_keys_are_allowed() {
        let (mut detector, now) = (detector(&json!({"max_keys": 1_000_000})), Instant::now());
        let value = json!("x".repeat(MAX_VALUE));
        let most = MAX_BYTES / MAX_VALUE;
        for number in 0..=most {
            detector.keep(&number.to_string(), value.clone(), now);
        }
        assert!(detector.bytes <= MAX_BYTES && detector.passed.len() < most);
        for _ in 0..2 {
            detector.keep("last", json!(1), now);
        }
        let sizes: usize = detector.passed.values().map(|passed| passed.size).sum();
        assert_eq!(detector.bytes, sizes);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_key_has_its_own_last_value_and_what_does_not_pass_is_counted() {
        let large = "x".repeat(MAX_VALUE + 1);
        let gears = format!(
            "
  - {{ name: feed, type: test_feed, deploy: rack-a, config: {{ messages: [
      {{ data: {{ s: a, v: 1 }} }}, {{ data: {{ s: b, v: 1 }} }}, {{ data: {{ s: a, v: 2 }} }}, {{ data: {{ s: a, v: 4 }} }},
      {{ data: {{ s: b, v: 1.5 }} }}, {{ data: {{ v: 9 }} }}, {{ data: {{ s: a, v: {large} }} }} ] }} }}
  - {{ name: band, type: deadband, deploy: rack-a, config: {{ value: data.v, key: data.s, absolute: 2 }} }}
  - {{ name: sink, type: log_sink, deploy: rack-a }}"
        );
        let flow = Flow::run(
            &gears,
            "{ from: feed.out, to: band.in }, { from: band.out, to: sink.in }",
        )
        .await;
        assert_eq!(
            flow.texts("sink"),
            [r#"{"s":"a","v":1}"#, r#"{"s":"a","v":4}"#, r#"{"s":"b","v":1}"#]
        );
        // Two within the band, one without a key, one that is too large.
        assert_eq!(flow.counter("band", "gear.messages.dropped"), 4.0);
        assert!(flow.says("band", "a message was refused: key: No such key: s"));
    }
}
