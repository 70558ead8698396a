//! Taps at real gears in a real runtime, and at points alone.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use model::tap::{MOST_BATCH, MOST_BODY, MOST_FACTS, TapAnswer};
use model::{Attributes, Timestamp};
use serde_json::{Value, json};

use super::registry::{ByteTokenBucket, TapReceiver};
use super::*;
use crate::gears::testing::{Bench, message, push};

const NUMBERS: &str = "\n  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 100000, count: 2000, seed: 5, size: 12 } }";
const SINK: &str = "\n  - { name: sink, type: log_sink, deploy: rack-a }";
const WIRE: &str = "{ from: numbers.out, to: sink.in }";

fn attach(registry: &TapRegistry, gear: &str, port: &str) -> Result<TapReceiver, TapAnswer> {
    registry.attach(&gear.parse().unwrap(), &port.parse().unwrap())
}

/// The numbers of the samples until so many messages have passed, and how many were not shown.
async fn watch(intake: &mut TapReceiver, passed: u64) -> (Vec<u64>, u64) {
    let mut numbers = Vec::new();
    loop {
        let batch = match intake.rest() {
            Some(rest) => rest,
            None => intake.batch().await,
        };
        numbers.extend(batch.samples.iter().map(|sample| sample.number));
        if batch.passed >= passed {
            let missed = batch.passed - u64::try_from(numbers.len()).unwrap();
            return (numbers, missed);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_who_takes_nothing_slows_no_gear_and_what_he_missed_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    let idle = "\n  - { name: numbers, type: throttle, deploy: rack-a, config: { rate: 1 } }";
    assert_eq!(
        runtime.apply(&push("h1", &format!("{idle}{SINK}"), WIRE)).await.error,
        None
    );
    let (mut slow, mut other) = (
        attach(&bench.taps, "numbers", "out").unwrap(),
        attach(&bench.taps, "numbers", "out").unwrap(),
    );
    // The gear is replaced by one of its name: who watches stays.
    assert_eq!(
        runtime
            .apply(&push("h2", &format!("{NUMBERS}{SINK}"), WIRE))
            .await
            .error,
        None
    );
    let records = bench.records("sink", 2000).await;
    assert_eq!(records.len(), 2000, "every message arrives");
    let (numbers, missed) = watch(&mut slow, 2000).await;
    assert_eq!(numbers, (1..=u64::try_from(QUEUED).unwrap()).collect::<Vec<_>>());
    assert_eq!(missed, 2000 - u64::try_from(QUEUED).unwrap());
    let first = other.batch().await;
    let sample = &first.samples[0];
    let flux_id = &records[0]["flux_id"];
    assert_eq!((sample.number, &json!(sample.flux_id)), (1, flux_id));
    assert_eq!((sample.body.len(), sample.size, sample.is_cut), (12, Some(12), false));
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gear_or_a_port_that_is_not_there_is_answered_with_those_that_are() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    let gears = format!("{NUMBERS}{SINK}");
    assert_eq!(runtime.apply(&push("h1", &gears, WIRE)).await.error, None);
    let refused = |gear: &str, port: &str| attach(&bench.taps, gear, port).unwrap_err();
    assert_eq!(refused("other", "out"), TapAnswer::NoGear(vec!["numbers".to_owned()]));
    assert_eq!(refused("numbers", "oops"), TapAnswer::NoPort(vec!["out".to_owned()]));
    assert_eq!(refused("sink", "in"), TapAnswer::NoPort(Vec::new()));
    // A scenario that cannot start brings no ports.
    let broken = format!(
        "{gears}\n  - {{ name: more, type: generator, deploy: rack-a }}\n  - {{ name: no, type: test_refuses, deploy: rack-a }}"
    );
    assert!(runtime.apply(&push("h2", &broken, WIRE)).await.error.is_some());
    assert_eq!(refused("more", "out"), TapAnswer::NoGear(vec!["numbers".to_owned()]));
    assert_eq!(runtime.apply(&push("h3", SINK, "")).await.error, None);
    assert_eq!(refused("numbers", "out"), TapAnswer::NoGear(Vec::new()));
    runtime.close().await;
    bench.close().await;
}

#[test]
fn a_large_message_is_shown_as_far_as_it_fits() {
    let now = Timestamp::from_micros(7);
    let of = |data: Value, raw: &[u8], meta: Attributes| {
        let mut message = message(1, data, raw);
        message.meta = meta;
        sample::of(&message, 1, now).sample
    };
    let bytes = of(Value::Null, &[7; 100_000], Attributes::new());
    assert_eq!((bytes.body.len(), bytes.size), (MOST_BODY, Some(100_000)));
    assert!(bytes.is_cut && !bytes.is_value && bytes.ts == now);
    let value = of(json!({ "a": "x".repeat(100_000) }), b"raw", Attributes::new());
    assert_eq!((value.body.len(), value.size), (MOST_BODY, None));
    assert!(value.is_cut && value.is_value && value.body.starts_with(b"{\"a\":\"xxx"));
    let whole = of(json!({ "a": 1 }), b"raw", Attributes::new().with("b", 2));
    assert_eq!((&whole.body[..], whole.size), (&b"{\"a\":1}"[..], Some(7)));
    assert!(!whole.is_cut && !whole.is_meta_cut);
    assert_eq!(whole.meta, Attributes::new().with("b", 2));
    let facts = Attributes::new()
        .with("a", 1)
        .with("b", "x".repeat(MOST_FACTS))
        .with("c", 3);
    let some = of(Value::Null, b"", facts);
    assert_eq!(
        (some.meta, some.is_meta_cut, some.is_cut),
        (Attributes::new().with("a", 1), true, false)
    );
}

#[test]
fn a_tap_shows_its_bytes_a_second_its_burst_and_one_sample_more_at_most() {
    const STEPS: u64 = 10_000;
    // More than a step fills.
    const SAMPLE: u64 = 9_000;
    let began = Instant::now();
    let mut budget = ByteTokenBucket::full(began);
    let mut shown = 0;
    for millis in 0..=STEPS {
        while budget.refill(began + Duration::from_millis(millis)) {
            budget.spend(SAMPLE);
            shown += SAMPLE;
        }
    }
    let a_second = u64::try_from(BYTES_A_SECOND).unwrap();
    let most = a_second * STEPS / 1000 + a_second;
    assert!((most * 99 / 100..=most + SAMPLE).contains(&shown), "{shown} of {most}");
}

#[tokio::test]
async fn a_batch_fits_its_bound_on_the_bus_and_its_bytes_are_charged() {
    let registry = TapRegistry::default();
    let spec = crate::gears::testing::held::spec("filter", &json!({ "where": "true" }), &[]);
    let point = registry.point(&spec.name, spec.kind.outputs());
    let mut intake = attach(&registry, "it", "out").unwrap();
    // A number takes more bytes in CBOR than in JSON.
    let facts = Attributes::new().with("a", vec![0.1; MOST_FACTS / 4 - 10]);
    let mut large = message(1, Value::Null, &[7; MOST_BODY]);
    large.meta = facts;
    for _ in 0..QUEUED {
        point.show("out", &large, || Timestamp::from_micros(7));
    }
    let batch = intake.batch().await;
    let bytes = model::signed::encode(&batch).unwrap().len();
    assert!(
        (50_000..=MOST_BATCH).contains(&bytes) && !batch.samples[0].is_meta_cut,
        "{bytes}"
    );
    let shown = u64::try_from(QUEUED).unwrap();
    watch(&mut intake, shown).await;
    intake.charge(usize::MAX >> 2);
    point.show("out", &large, || unreachable!("nothing is left"));
    assert_eq!(intake.rest().map(|rest| rest.passed), Some(shown + 1));
}

#[tokio::test]
async fn a_port_that_nobody_watches_any_more_shows_nothing() {
    let registry = TapRegistry::default();
    let spec = crate::gears::testing::held::spec("filter", &json!({ "where": "true" }), &[]);
    let point = registry.point(&spec.name, spec.kind.outputs());
    let now = || Timestamp::from_micros(7);
    let mut intake = attach(&registry, "it", "out").unwrap();
    point.show("out", &message(1, Value::Null, b"1"), now);
    point.show("other", &message(2, Value::Null, b"2"), now);
    assert_eq!((intake.batch().await.passed, intake.rest()), (1, None));
    drop(intake);
    point.show("out", &message(3, Value::Null, b"3"), || unreachable!("nobody watches"));
}
