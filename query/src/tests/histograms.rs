//! Quantiles of histograms over time are those of the samples that their points were made of.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]

use std::collections::BTreeMap;

use model::filter::MetricFilter;
use model::{Attributes, EntityId, MetricPoint, MetricType};
use serde_json::{Value, json};

use super::random_world::Random;
use super::sql::{asked, rows};
use super::*;
use crate::ListQuery;

const SERVICE: &str = "resource.service.name";
const MINUTE: i64 = 60 * SECOND;

/// Where the buckets of a histogram end.
#[derive(Debug, Clone, Copy)]
enum BucketBounds {
    /// At powers of the base that a scale gives.
    Scale(i32),
    Explicit(&'static [f64]),
}

const BOUNDS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];

impl BucketBounds {
    /// Where the bucket of a sample begins and ends.
    fn bucket(self, sample: f64) -> (f64, f64) {
        match self {
            Self::Scale(scale) => {
                let bound = |index: i64| (index as f64 * f64::from(-scale).exp2()).exp2();
                (bound(index_of(scale, sample)), bound(index_of(scale, sample) + 1))
            }
            Self::Explicit(bounds) => {
                let at = bounds.partition_point(|bound| *bound < sample);
                let lower = at.checked_sub(1).map_or(0.0, |before| bounds[before]);
                (lower, bounds.get(at).copied().unwrap_or(lower))
            }
        }
    }

    fn labels(self, samples: &[f64]) -> Attributes {
        let labels = Attributes::new()
            .with("otel.unit", "ms")
            .with("otel.count", samples.len());
        match self {
            Self::Scale(scale) => {
                let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
                samples
                    .iter()
                    .for_each(|sample| *counts.entry(index_of(scale, *sample)).or_default() += 1);
                let first = counts.first_key_value().map_or(0, |(index, _)| *index);
                let last = counts.last_key_value().map_or(-1, |(index, _)| *index);
                let counts: Vec<u64> = (first..=last)
                    .map(|index| counts.get(&index).copied().unwrap_or(0))
                    .collect();
                labels
                    .with("otel.scale", scale)
                    .with("otel.zero_count", 0)
                    .with("otel.positive.offset", first)
                    .with("otel.positive.counts", counts)
            }
            Self::Explicit(bounds) => {
                let mut counts = vec![0; bounds.len() + 1];
                for sample in samples {
                    counts[bounds.partition_point(|bound| bound < sample)] += 1;
                }
                labels.with("otel.bounds", bounds.to_vec()).with("otel.buckets", counts)
            }
        }
    }
}

fn index_of(scale: i32, sample: f64) -> i64 {
    (sample.log2() * f64::from(scale).exp2()).ceil() as i64 - 1
}

/// Two hours before now.
fn base() -> i64 {
    now().micros() - 2 * HOUR
}

fn point(micros: i64, samples: &[f64], labels: Attributes) -> MetricPoint {
    MetricPoint {
        ts: Timestamp::from_micros(micros),
        name: "latency".to_owned(),
        entity_id: EntityId::for_name("rack-a"),
        entity_name: "rack-a".to_owned(),
        metric_type: MetricType::Histogram,
        value: samples.iter().sum(),
        labels,
    }
}

/// Points of a service every twenty seconds, with what each observed since the one before. Cumulative ones begin anew in the middle,
/// with more observations than there were, so that only their start tells.
fn service(random: &mut Random, name: &str, bounds: BucketBounds, is_delta: bool) -> Vec<(MetricPoint, Vec<f64>)> {
    let (mut all, mut start, mut points) = (Vec::new(), base(), Vec::new());
    for number in 1..=18 {
        let micros = base() + number * 20 * SECOND;
        if number == 10 {
            (all, start) = (Vec::new(), micros - SECOND);
        }
        let count = if number == 10 { 400 } else { 5 + random.below(30) };
        // From 0.5 to 128.
        let sample = |random: &mut Random| (random.below(8_000) as f64 / 1_000.0 - 1.0).exp2() + 1e-7;
        let fresh: Vec<f64> = (0..count).map(|_| sample(random)).collect();
        all.extend(&fresh);
        let told = if is_delta { &fresh } else { &all };
        let mut labels = bounds.labels(told).with(SERVICE, name);
        labels.set("otel.start_time", Timestamp::from_micros(start).to_string());
        // An exemplar now and then does not make another series.
        if random.below(3) == 0 {
            labels.set("otel.exemplars", json!([{ "value": fresh[0], "trace_id": "0a" }]));
        }
        if is_delta {
            labels.set("otel.temporality", "delta");
            start = micros;
        }
        points.push((point(micros, told, labels), fresh));
    }
    points
}

fn ranked(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((share * samples.len() as f64).ceil() as usize).max(1) - 1]
}

fn asks(agg: &str, interval: Option<&str>, group_by: Option<&str>) -> ListQuery {
    ListQuery::Metrics(MetricFilter {
        name: Some("latency".to_owned()),
        agg: Some(agg.parse().unwrap()),
        interval: interval.map(|interval| interval.parse().unwrap()),
        group_by: group_by.map(str::to_owned),
        ..MetricFilter::default()
    })
}

/// Of some services' points: each quantile of each minute lies in the bucket of the sample of its rank.
async fn quantiles_agree(
    bench: &Bench,
    points: &[(MetricPoint, Vec<f64>)],
    group_by: Option<&str>,
    bounds: &[(&str, BucketBounds)],
) {
    let mut samples: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    for (point, fresh) in points {
        let minute = Timestamp::from_micros(point.ts.micros() - point.ts.micros().rem_euclid(MINUTE));
        let service = point.labels.get(SERVICE).and_then(Value::as_str).unwrap_or_default();
        let group = if group_by.is_some() { service } else { "" };
        samples
            .entry((minute.to_string(), group.to_owned()))
            .or_default()
            .extend(fresh);
    }
    for (agg, share) in [
        ("p50", 0.5),
        ("p90", 0.9),
        ("p95", 0.95),
        ("p99", 0.99),
        ("p999", 0.999),
    ] {
        let page = bench.querier.page(asks(agg, Some("1m"), group_by)).await.unwrap();
        assert_eq!(page.rows.len(), samples.len());
        for row in &page.rows {
            let group = row.get("labels").map_or("", |labels| labels[SERVICE].as_str().unwrap());
            let key = (row["ts"].as_str().unwrap().to_owned(), group.to_owned());
            let sample = ranked(&samples[&key], share);
            let bounds = bounds.iter().find(|(name, _)| *name == group).unwrap().1;
            let ((lower, upper), found) = (bounds.bucket(sample), row["value"].as_f64().unwrap());
            assert!(
                lower - 1e-6 <= found && found <= upper + 1e-6,
                "{agg} of {key:?}: {found} for {sample} in {lower}..{upper}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn quantiles_over_time_lie_in_the_bucket_of_the_sample_of_their_rank() {
    let mut random = Random::new();
    for (bounds, coarsest) in [
        (
            [
                ("a", BucketBounds::Scale(3)),
                ("b", BucketBounds::Scale(1)),
                ("c", BucketBounds::Scale(5)),
            ],
            BucketBounds::Scale(1),
        ),
        (
            [
                ("a", BucketBounds::Explicit(BOUNDS)),
                ("b", BucketBounds::Explicit(BOUNDS)),
                ("c", BucketBounds::Explicit(BOUNDS)),
            ],
            BucketBounds::Explicit(BOUNDS),
        ),
    ] {
        let mut bench = Bench::new().await;
        let mut points: Vec<_> = bounds
            .iter()
            .flat_map(|(name, bounds)| service(&mut random, name, *bounds, *name == "b"))
            .collect();
        points.sort_by_key(|(point, _)| point.ts);
        let rows: Vec<MetricPoint> = points.iter().map(|(point, _)| point.clone()).collect();
        bench.append(&rows[..20]).await;
        bench.seal().await;
        bench.append(&rows[20..40]).await;
        bench.publish().await;
        bench.append(&rows[40..]).await;
        quantiles_agree(&bench, &points, Some(SERVICE), &bounds).await;
        quantiles_agree(&bench, &points, None, &[("", coarsest)]).await;
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_point_tells_what_it_observed_if_it_says_since_when() {
    let samples = [3.0, 4.0, 7.0, 70.0];
    let labels = || BucketBounds::Explicit(BOUNDS).labels(&samples);
    let start = |seconds: i64| Timestamp::from_micros(base() - seconds * SECOND).to_string();
    let day = 24 * 3_600;
    for (labels, expected) in [
        (labels(), Value::Null),
        (labels().with("otel.start_time", start(1)), json!(5.0)),
        // Before the window: others may have been before it.
        (labels().with("otel.start_time", start(day)), Value::Null),
        // It does not know.
        (labels().with("otel.start_time", start(0)), Value::Null),
        (labels().with("otel.temporality", "delta"), json!(5.0)),
    ] {
        let bench = Bench::new().await;
        let made = labels.to_json();
        bench.append(&[point(base(), &samples, labels)]).await;
        let page = bench.querier.page(asks("p50", None, None)).await.unwrap();
        assert_eq!(page.rows[0]["value"], expected, "{made}");
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_has_the_quantile_of_each_points_histogram() {
    let bench = Bench::new().await;
    let points = [
        point(
            base(),
            &[3.0, 4.0, 7.0, 70.0],
            BucketBounds::Explicit(BOUNDS).labels(&[3.0, 4.0, 7.0, 70.0]),
        ),
        point(base() + SECOND, &[1.5, 1.5], BucketBounds::Scale(0).labels(&[1.5, 1.5])),
        MetricPoint {
            metric_type: MetricType::Gauge,
            ..point(base() + 2 * SECOND, &[], Attributes::new().with("cpu", "0"))
        },
    ];
    bench.append(&points).await;
    let found = rows(
        &bench,
        "SELECT histogram_quantile(0.5, labels) AS p50, histogram_quantile(1, labels) AS p100 FROM metrics ORDER BY ts",
    )
    .await;
    let root = 0.5f64.exp2();
    assert_eq!(
        found,
        [
            [json!(5.0), json!(100.0)],
            [json!(root), json!(2.0)],
            [Value::Null, Value::Null],
        ]
    );
    let greatest = "SELECT max(histogram_quantile(0.5, labels)) AS a, histogram_quantile(NULL, '{}') AS b FROM metrics";
    assert_eq!(rows(&bench, greatest).await, [[json!(5.0), Value::Null]]);
    for wrong in ["1.5", "-0.1"] {
        let refused = asked(
            &bench,
            &format!("SELECT histogram_quantile({wrong}, labels) FROM metrics"),
            json!([]),
        )
        .await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("give a number from 0 to 1"), "{refused}");
    }
    bench.close().await;
}
