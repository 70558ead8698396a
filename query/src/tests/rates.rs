//! Rates by a label, of counters that begin anew, and whose points carry more than their series does.

use model::filter::MetricFilter;
use model::{Attributes, EntityId, MetricPoint, MetricType};
use serde_json::json;

use super::*;
use crate::ListQuery;

/// Two hours before now; a whole minute.
fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(now().micros() - 2 * HOUR + second * SECOND)
}

/// A counter's points, twenty seconds apart.
fn counter(entity: &str, route: &str, values: &[f64], more: impl Fn(usize, &mut Attributes)) -> Vec<MetricPoint> {
    let point = |(number, value): (usize, &f64)| {
        let mut labels = Attributes::new().with("route", route);
        more(number, &mut labels);
        MetricPoint {
            ts: at(20 * i64::try_from(number).unwrap()),
            name: "requests".to_owned(),
            entity_id: EntityId::for_name(entity),
            entity_name: entity.to_owned(),
            metric_type: MetricType::Counter,
            value: *value,
            labels,
        }
    };
    values.iter().enumerate().map(point).collect()
}

/// The rates by start of the bucket, in seconds after the first point's minute, and by the label.
async fn rates(bench: &Bench, interval: Option<&str>) -> Vec<(i64, String, f64)> {
    let filter = MetricFilter {
        name: Some("requests".to_owned()),
        agg: Some("rate".parse().unwrap()),
        interval: interval.map(|interval| interval.parse().unwrap()),
        group_by: Some("route".to_owned()),
        ..MetricFilter::default()
    };
    let page = bench.querier.page(ListQuery::Metrics(filter)).await.unwrap();
    let rate = |row: &serde_json::Map<String, serde_json::Value>| {
        let ts: Timestamp = row["ts"].as_str().unwrap().parse().unwrap();
        let route = row["labels"]["route"].as_str().unwrap().to_owned();
        let bucket = (ts.micros() - at(0).micros()) / SECOND;
        (bucket, route, row["value"].as_f64().unwrap())
    };
    page.rows.iter().map(rate).collect()
}

fn assert_close(found: &[(i64, String, f64)], expected: &[(i64, &str, f64)]) {
    let close = |((bucket, route, rate), (at, of, wanted)): (&(i64, String, f64), &(i64, &str, f64))| {
        bucket == at && route == of && (rate - wanted).abs() < 1e-9
    };
    let all = found.len() == expected.len() && found.iter().zip(expected).all(close);
    assert!(all, "{found:?} is not {expected:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_by_a_label_count_what_came_after_a_restart_however_that_shows() {
    let mut bench = Bench::new().await;
    let falls = counter(
        "rack-a",
        "/cart",
        &[100.0, 120.0, 140.0, 160.0, 10.0, 30.0],
        |number, labels| {
            // What a point says beside its value makes no other series.
            match number {
                2 => labels.set("otel.exemplars", json!([{ "value": 1, "trace_id": "0a" }])),
                3 => labels.set("otel.int", 160),
                _ => {}
            }
        },
    );
    let began_before = at(-48 * 3_600).to_string();
    let anew = at(50).to_string();
    let begins_anew = counter(
        "rack-b",
        "/cart",
        &[0.0, 40.0, 80.0, 200.0, 240.0, 280.0],
        |number, labels| {
            let start = if number < 3 { &began_before } else { &anew };
            labels.set("otel.start_time", start.as_str());
        },
    );
    let delta = counter("rack-a", "/pay", &[7.0; 6], |_, labels| {
        labels.set("otel.temporality", "delta")
    });
    let began = at(-10).to_string();
    let new = counter("rack-a", "/new", &[30.0, 50.0], |_, labels| {
        labels.set("otel.start_time", began.as_str())
    });
    let all = [falls, begins_anew, delta, new].concat();
    let (early, late): (Vec<_>, Vec<_>) = all.into_iter().partition(|point| point.ts < at(50));
    bench.append(&early).await;
    bench.seal().await;
    bench.append(&late).await;
    let whole = rates(&bench, None).await;
    let whole: Vec<_> = whole.into_iter().map(|(_, route, rate)| (0, route, rate)).collect();
    // Of each series the sum of its increases over the sum of its times; those of a route together.
    let cart = (20.0 + 20.0 + 20.0 + 10.0 + 20.0) / 100.0 + (40.0 + 40.0 + 200.0 + 40.0 + 40.0) / 100.0;
    assert_close(
        &whole,
        &[(0, "/cart", cart), (0, "/new", 50.0 / 30.0), (0, "/pay", 0.35)],
    );
    assert_close(
        &rates(&bench, Some("1m")).await,
        &[
            (60, "/cart", (20.0 + 10.0 + 20.0) / 60.0 + (200.0 + 40.0 + 40.0) / 60.0),
            (60, "/pay", 0.35),
            (0, "/cart", 40.0 / 40.0 + 80.0 / 40.0),
            (0, "/new", 50.0 / 30.0),
            (0, "/pay", 0.35),
        ],
    );
    bench.close().await;
}
