//! Buckets, groups and rates are what a reading of all points would make them.

use std::collections::BTreeMap;

use model::filter::{MetricAggregate, MetricFilter};
use model::{MetricPoint, MetricType, Span, Timestamp};
use serde_json::{Value, json};

use super::random_world::{self, Random};
use super::{Bench, HOUR, SECOND, now};
use crate::ListQuery;

/// A group told as text: its bucket's start, name, type and the value it was grouped by.
type Group = (String, String, String, Value);

fn group(filter: &MetricFilter, point: &MetricPoint, since: Timestamp) -> Group {
    let start = match filter.interval {
        Some(width) => {
            let width = i64::try_from(width.get().as_micros()).unwrap();
            Timestamp::from_micros(point.ts.micros() - point.ts.micros().rem_euclid(width))
        }
        None => since,
    };
    let by = match filter.group_by.as_deref() {
        None | Some("name" | "type") => Value::Null,
        Some("entity_name") => point.entity_name.clone().into(),
        Some("entity_id") => point.entity_id.to_string().into(),
        Some(label) => json!({ label: point.labels.get(label) }),
    };
    (start.to_string(), point.name.clone(), point.metric_type.to_string(), by)
}

/// The points of one series with their neighbours before them, by brute force.
fn steps<'a>(points: &'a [&'a MetricPoint]) -> Vec<(&'a MetricPoint, &'a MetricPoint)> {
    let own = |point: &MetricPoint| {
        let labels = point.labels.as_map().iter();
        let labels: BTreeMap<_, _> = labels
            .filter(|(key, _)| !["otel.count", "otel.bounds", "otel.buckets"].contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.to_string()))
            .collect();
        (point.name.clone(), point.entity_id, labels)
    };
    let mut series: BTreeMap<_, Vec<&MetricPoint>> = BTreeMap::new();
    for point in points {
        series.entry(own(point)).or_default().push(point);
    }
    let mut steps = Vec::new();
    for points in series.values_mut() {
        points.sort_by(|a, b| a.ts.cmp(&b.ts).then(a.value.total_cmp(&b.value)));
        steps.extend(points.windows(2).map(|pair| (pair[0], pair[1])));
    }
    steps
}

fn gain(before: &MetricPoint, after: &MetricPoint) -> f64 {
    let delta = after.labels.get("otel.temporality").is_some();
    let restarted = after.metric_type != MetricType::Gauge && after.value < before.value;
    if delta || restarted {
        after.value
    } else {
        after.value - before.value
    }
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn seconds(before: &MetricPoint, after: &MetricPoint) -> f64 {
    (after.ts.micros() - before.ts.micros()) as f64 / 1e6
}

/// Rates by group: of each series the sum of gains over the sum of times.
fn rates(filter: &MetricFilter, points: &[&MetricPoint], since: Timestamp) -> BTreeMap<String, f64> {
    let mut by_series: BTreeMap<(String, String), (f64, f64)> = BTreeMap::new();
    for (before, after) in steps(points) {
        let mut labels = after.labels.as_map().clone();
        labels.retain(|key, _| !["otel.count", "otel.bounds", "otel.buckets"].contains(&key.as_str()));
        let series = format!("{} {labels:?}", after.entity_id);
        let share = by_series
            .entry((format!("{:?}", group(filter, after, since)), series))
            .or_default();
        share.0 += gain(before, after);
        share.1 += seconds(before, after);
    }
    let mut rates = BTreeMap::new();
    for ((group, _), (gain, seconds)) in by_series {
        if seconds > 0.0 {
            *rates.entry(group).or_default() += gain / seconds;
        }
    }
    rates
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn value(filter: &MetricFilter, points: &[&MetricPoint], rate: Option<f64>) -> Option<f64> {
    let values: Vec<f64> = points.iter().map(|point| point.value).collect();
    let (sum, count) = (values.iter().sum::<f64>(), values.len() as f64);
    let latest = points
        .iter()
        .max_by(|a, b| a.ts.cmp(&b.ts).then(a.value.total_cmp(&b.value)));
    match (filter.agg, points[0].metric_type) {
        (Some(MetricAggregate::Avg), _) | (None, MetricType::Gauge) => Some(sum / count),
        (Some(MetricAggregate::Sum), _) => Some(sum),
        (Some(MetricAggregate::Min), _) => values.iter().copied().reduce(f64::min),
        (Some(MetricAggregate::Max), _) => values.iter().copied().reduce(f64::max),
        (Some(MetricAggregate::Count), _) => Some(count),
        (Some(MetricAggregate::Last), _) => latest.map(|point| point.value),
        (Some(MetricAggregate::Rate), _) | (None, MetricType::Counter) => rate,
        // Tried against what a filter without an aggregate says.
        (Some(MetricAggregate::Percentile(_)), _) => None,
        // A histogram's observations are tried in a test of their own.
        (None, MetricType::Histogram) => None,
    }
}

async fn scattered(bench: &mut Bench, random: &mut Random) -> Vec<MetricPoint> {
    let with_service = |random: &mut Random| {
        let mut point = random_world::point(random);
        if random.below(4) == 0 {
            point.labels.set(Span::SERVICE_NAME, "shop");
        }
        point
    };
    let all: Vec<_> = (0..600).map(|_| with_service(random)).collect();
    bench.append(&all[..200]).await;
    bench.seal().await;
    bench.append(&all[200..400]).await;
    bench.publish().await;
    bench.append(&all[400..]).await;
    all
}

fn lets(filter: &MetricFilter, point: &MetricPoint, since: Timestamp) -> bool {
    let entity = |wanted: &String| *wanted == point.entity_name || *wanted == point.entity_id.to_string();
    point.ts >= since
        && filter.until.is_none_or(|until| point.ts < until.resolve(now()))
        && filter.name.as_ref().is_none_or(|name| point.name == *name)
        && filter.entity.as_ref().is_none_or(entity)
        && filter
            .service
            .as_ref()
            .is_none_or(|name| random_world::service_of(&point.labels, &point.entity_name) == name)
        && random_world::has_all(&point.labels, &filter.labels)
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_and_buckets_come_to_what_their_points_come_to() {
    let mut random = Random::new();
    for mut bench in [Bench::new().await, Bench::of_lines().await] {
        let all = scattered(&mut bench, &mut random).await;
        for _ in 0..80 {
            let filter = random_world::summary_filter(&mut random);
            let end = filter.until.map_or(now(), |until| until.resolve(now()));
            let since = filter
                .since
                .map_or(Timestamp::from_micros(end.micros() - 24 * HOUR), |since| {
                    since.resolve(now())
                });
            let points: Vec<_> = all.iter().filter(|point| lets(&filter, point, since)).collect();
            let rates = rates(&filter, &points, since);
            let mut groups: BTreeMap<String, Vec<&MetricPoint>> = BTreeMap::new();
            for point in points {
                groups
                    .entry(format!("{:?}", group(&filter, point, since)))
                    .or_default()
                    .push(point);
            }
            let page = bench.querier.page(ListQuery::Metrics(filter.clone())).await.unwrap();
            assert_eq!(page.rows.len(), groups.len(), "{filter:?}");
            assert!(page.rows.is_sorted_by(|a, b| a["ts"].as_str() >= b["ts"].as_str()));
            for row in &page.rows {
                let text = |key: &str| row[key].as_str().unwrap().to_owned();
                let by = match filter.group_by.as_deref() {
                    None | Some("name" | "type") => Value::Null,
                    Some(column @ ("entity_name" | "entity_id")) => row[column].clone(),
                    Some(_) => row["labels"].clone(),
                };
                let key = format!("{:?}", (text("ts"), text("name"), text("type"), by));
                let points = groups
                    .get(&key)
                    .unwrap_or_else(|| panic!("{key} is no group of {filter:?}"));
                assert_eq!(row["samples"], points.len(), "{filter:?} {key}");
                if filter.agg.is_none() && points[0].metric_type == MetricType::Histogram {
                    continue;
                }
                let expected = value(&filter, points, rates.get(&key).copied());
                let close = match (row["value"].as_f64(), expected) {
                    (Some(found), Some(expected)) => (found - expected).abs() <= 1e-9 * expected.abs().max(1.0),
                    (found, expected) => found == expected,
                };
                assert!(close, "{filter:?} {key}: {} is not {expected:?}", row["value"]);
            }
        }
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_percentile_that_is_asked_for_is_the_one_that_stands_beside_the_mean_and_of_histograms_only() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    scattered(&mut bench, &mut random).await;
    for (share, name) in [(5_000, "p50"), (9_000, "p90"), (9_900, "p99")] {
        let mut filter = MetricFilter {
            interval: Some("10m".parse().unwrap()),
            limit: Some(10_000),
            ..MetricFilter::default()
        };
        let beside = bench
            .querier
            .page(ListQuery::Metrics(filter.clone()))
            .await
            .unwrap()
            .rows;
        filter.agg = Some(MetricAggregate::Percentile(share));
        let rows = bench
            .querier
            .page(ListQuery::Metrics(filter.clone()))
            .await
            .unwrap()
            .rows;
        assert_eq!(rows.len(), beside.len());
        assert!(beside.iter().any(|row| row.get(name).is_some_and(Value::is_number)));
        for (row, beside) in rows.iter().zip(&beside) {
            assert_eq!(&row["value"], beside.get(name).unwrap_or(&Value::Null), "{row:?}");
        }
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filled_buckets_are_all_of_the_window_and_those_with_points_are_as_they_were() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    scattered(&mut bench, &mut random).await;
    for _ in 0..20 {
        let mut filter = MetricFilter {
            since: Some("6h".parse().unwrap()),
            interval: Some(random.pick(&["17m", "1h", "90m"]).parse().unwrap()),
            ..random_world::summary_filter(&mut random)
        };
        let some = bench
            .querier
            .page(ListQuery::Metrics(filter.clone()))
            .await
            .unwrap()
            .rows;
        filter.fill = Some(true);
        filter.limit = Some(97);
        let mut all = Vec::new();
        loop {
            let page = bench.querier.page(ListQuery::Metrics(filter.clone())).await.unwrap();
            all.extend(page.rows);
            filter.cursor = page.next_cursor;
            if filter.cursor.is_none() {
                break;
            }
        }
        let had: Vec<_> = all.iter().filter(|row| row["samples"] != 0).cloned().collect();
        assert_eq!(had, some, "{filter:?}");
        let width = i64::try_from(filter.interval.unwrap().get().as_micros()).unwrap();
        let end = filter.until.map_or(now(), |until| until.resolve(now())).micros() - 1;
        let start = now().micros() - 6 * HOUR;
        let buckets = usize::try_from(end.div_euclid(width) - start.div_euclid(width) + 1).unwrap_or(0);
        let series = |row: &serde_json::Map<String, Value>| {
            let mut row = row.clone();
            row.retain(|key, _| {
                !["ts", "value", "samples", "count", "sum", "p50", "p90", "p99"].contains(&key.as_str())
            });
            format!("{row:?}")
        };
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        all.iter().for_each(|row| *counts.entry(series(row)).or_default() += 1);
        // Points of clocks that run ahead are in buckets after now.
        assert!(
            counts.values().all(|count| *count == buckets),
            "{buckets} {counts:?} {filter:?}"
        );
        for row in all.iter().filter(|row| row["samples"] == 0) {
            let nothing = if filter.agg == Some(MetricAggregate::Count) {
                json!(0.0)
            } else {
                Value::Null
            };
            assert_eq!(row["value"], nothing, "{filter:?}");
        }
    }
    let unbounded = MetricFilter {
        interval: Some("1us".parse().unwrap()),
        fill: Some(true),
        ..MetricFilter::default()
    };
    let refused = bench.querier.page(ListQuery::Metrics(unbounded.clone())).await;
    assert!(matches!(refused, Err(crate::Error::TooManyGroups(_))), "{refused:?}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_groups_are_the_whole_answer() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    scattered(&mut bench, &mut random).await;
    let whole = MetricFilter {
        interval: Some("7s".parse().unwrap()),
        group_by: Some("cpu".to_owned()),
        limit: Some(10_000),
        ..MetricFilter::default()
    };
    let expected = bench
        .querier
        .page(ListQuery::Metrics(whole.clone()))
        .await
        .unwrap()
        .rows;
    let mut filter = MetricFilter {
        limit: Some(37),
        ..whole.clone()
    };
    let mut given = Vec::new();
    loop {
        let page = bench.querier.page(ListQuery::Metrics(filter.clone())).await.unwrap();
        given.extend(page.rows);
        filter.cursor = page.next_cursor;
        if filter.cursor.is_none() {
            break;
        }
    }
    assert_eq!(given, expected);
    let offset = MetricFilter {
        offset: Some(5),
        limit: Some(3),
        ..whole
    };
    assert_eq!(
        bench
            .querier
            .page(ListQuery::Metrics(offset.clone()))
            .await
            .unwrap()
            .rows,
        expected[5..8]
    );
    bench.close().await;
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(now().micros() - 60 * SECOND + second * SECOND)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_histogram_tells_how_many_it_observed_their_sum_and_percentiles() {
    let bench = Bench::new().await;
    let mut random = Random::new();
    let model = random_world::point(&mut random);
    let histogram = |second, sum, count: i64, buckets: [i64; 3]| MetricPoint {
        ts: at(second),
        name: "latency".to_owned(),
        metric_type: MetricType::Histogram,
        value: sum,
        labels: model::Attributes::new()
            .with("otel.unit", "ms")
            .with("otel.count", count)
            .with("otel.bounds", vec![10.0, 20.0])
            .with("otel.buckets", buckets.to_vec()),
        ..model.clone()
    };
    // Cumulative; restarts before the last one.
    let points = [
        histogram(0, 100.0, 10, [5, 5, 0]),
        histogram(1, 130.0, 12, [6, 6, 0]),
        histogram(2, 40.0, 4, [2, 2, 0]),
    ];
    bench.append(&points[..2]).await;
    bench.publish().await;
    bench.append(&points[2..]).await;
    let filter = MetricFilter {
        interval: Some("1h".parse().unwrap()),
        ..MetricFilter::default()
    };
    let answer = bench.querier.metric("latency", &filter).await.unwrap();
    let row = &crate::query_result::JsonPage::from(answer.list.clone()).rows[0];
    assert_eq!((&row["count"], &row["sum"]), (&json!(6.0), &json!(70.0)));
    assert_eq!((&row["p50"], &row["samples"]), (&json!(10.0), &json!(3)));
    assert_eq!(answer.metric_type, Some(MetricType::Histogram));
    assert_eq!(answer.unit.as_deref(), Some("ms"));
    assert_eq!(answer.label_keys, ["otel.unit"]);
    let unknown = bench.querier.metric("latenc", &filter).await;
    assert!(
        matches!(unknown, Err(crate::Error::NotFound { what: "metric", .. })),
        "{unknown:?}"
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_is_over_all_of_a_group_where_an_entity_has_two_names_in_turn() {
    let bench = Bench::new().await;
    let model = random_world::point(&mut Random::new());
    let point = |number: i32| MetricPoint {
        ts: at(i64::from(number) * 10),
        name: "requests".to_owned(),
        entity_name: ["old", "new"][usize::from(number % 2 != 0)].to_owned(),
        metric_type: MetricType::Counter,
        value: f64::from(number) * 10.0,
        labels: model::Attributes::new(),
        ..model.clone()
    };
    let points: Vec<_> = (0..6).map(point).collect();
    bench.append(&points).await;
    for (interval, rates) in [
        // The minute before now, and half minutes: the later one has the points of 30 s, 40 s and 50 s.
        ("1m", vec![("new", 1.0), ("old", 1.0)]),
        ("30s", vec![("new", 1.0), ("old", 1.0), ("new", 1.0), ("old", 1.0)]),
    ] {
        let filter = MetricFilter {
            name: Some("requests".to_owned()),
            interval: Some(interval.parse().unwrap()),
            group_by: Some("entity_name".to_owned()),
            ..MetricFilter::default()
        };
        let page = bench.querier.page(ListQuery::Metrics(filter)).await.unwrap();
        let given: Vec<_> = page
            .rows
            .iter()
            .map(|row| (row["entity_name"].as_str().unwrap(), row["value"].as_f64().unwrap()))
            .collect();
        assert_eq!(given, rates, "{interval}");
    }
    bench.close().await;
}
