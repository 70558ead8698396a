//! Exemplars are listed newest first, each once, with the ids of their traces.

use model::filter::SeriesFilter;
use model::{Attributes, EntityId, MetricPoint, MetricType};
use serde_json::{Value, json};

use super::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(now().micros() - HOUR + second * SECOND)
}

fn point(second: i64, name: &str, exemplars: Value) -> MetricPoint {
    MetricPoint {
        ts: at(second),
        name: name.to_owned(),
        entity_id: EntityId::for_name("rack-a"),
        entity_name: "rack-a".to_owned(),
        metric_type: MetricType::Histogram,
        value: 1.0,
        labels: Attributes::new()
            .with("route", "/cart")
            .with("otel.count", 3)
            .with("otel.bounds", vec![1.0])
            .with("otel.buckets", vec![1, 2])
            .with("otel.exemplars", exemplars),
    }
}

fn exemplar(second: i64, value: f64) -> Value {
    json!({ "time": at(second).to_string(), "value": value, "trace_id": TRACE, "span_id": SPAN, "attributes": { "user": "u1" } })
}

async fn values(bench: &Bench, filter: &SeriesFilter) -> Vec<Value> {
    let page = bench.querier.metric_exemplars("latency", filter).await.unwrap();
    assert_eq!((page.stats.rows, page.next_cursor), (page.rows.len() as u64, None));
    page.rows
        .into_iter()
        .map(|mut row| row.remove("value").unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn exemplars_come_newest_first_each_once_with_the_labels_of_their_series() {
    let mut bench = Bench::new().await;
    bench
        .append(&[
            point(10, "latency", json!([exemplar(2, 2.0), exemplar(5, 5.0)])),
            // Says the second one again.
            point(20, "latency", json!([exemplar(5, 5.0), exemplar(12, 12.0)])),
            point(20, "other", json!([exemplar(13, 13.0)])),
        ])
        .await;
    bench.seal().await;
    let mut elsewhere = point(30, "latency", json!([exemplar(25, 25.0)]));
    elsewhere.labels.set("route", "/pay");
    let mut bare = point(40, "latency", Value::Null);
    bare.labels = Attributes::new().with("route", "/cart");
    bench.append(&[elsewhere, bare]).await;
    let every = SeriesFilter::default();
    assert_eq!(values(&bench, &every).await, [25.0, 12.0, 5.0, 2.0]);
    let of = |change: fn(&mut SeriesFilter)| {
        let mut filter = SeriesFilter::default();
        change(&mut filter);
        filter
    };
    let cart = of(|filter| filter.labels = [("route".to_owned(), "/cart".to_owned())].into());
    assert_eq!(values(&bench, &cart).await, [12.0, 5.0, 2.0]);
    // Of the newest point that has some.
    assert_eq!(values(&bench, &of(|filter| filter.limit = Some(1))).await, [25.0]);
    let nobody = of(|filter| filter.entity = Some("nobody".to_owned()));
    let refused = bench.querier.metric_exemplars("latency", &nobody).await;
    assert!(
        matches!(refused, Err(Error::NotFound { what: "metric", .. })),
        "{refused:?}"
    );
    let refused = bench.querier.metric_exemplars("laten", &every).await;
    assert!(
        matches!(refused, Err(Error::NotFound { what: "metric", .. })),
        "{refused:?}"
    );
    let page = bench.querier.metric_exemplars("latency", &every).await.unwrap();
    assert_eq!(
        Value::Object(page.rows[0].clone()),
        json!({
            "ts": at(25).to_string(), "value": 25.0, "trace_id": TRACE, "span_id": SPAN, "entity_name": "rack-a",
            "labels": { "route": "/pay" }, "attributes": { "user": "u1" },
        })
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_exemplar_is_passed_over_and_what_it_lacks_is_null_or_of_its_point() {
    let bench = Bench::new().await;
    let many: Vec<_> = (0..1_000).map(|n| exemplar(1, f64::from(n))).collect();
    bench
        .append(&[
            point(1, "latency", json!("none")),
            point(2, "latency", json!([7, "x", null, []])),
            point(3, "latency", json!([{ "time": "yesterday", "value": "x", "trace_id": "0".repeat(32), "span_id": 5, "attributes": [] }])),
            point(4, "latency", json!([{ "time": "1970-01-01T00:00:00.000000000Z", "value": 4 }])),
            point(5, "latency", json!(many)),
        ])
        .await;
    let page = bench
        .querier
        .metric_exemplars("latency", &SeriesFilter::default())
        .await
        .unwrap();
    assert_eq!(page.rows.len(), 2 + 64);
    let of = |second: i64, value: Value| {
        json!({
            "ts": at(second).to_string(), "value": value, "trace_id": null, "span_id": null, "entity_name": "rack-a",
            "labels": { "route": "/cart" }, "attributes": {},
        })
    };
    assert_eq!(Value::Object(page.rows[0].clone()), of(4, json!(4)));
    assert_eq!(Value::Object(page.rows[1].clone()), of(3, Value::Null));
    let refused = SeriesFilter {
        limit: Some(10_001),
        ..SeriesFilter::default()
    };
    assert!(bench.querier.metric_exemplars("latency", &refused).await.is_err());
    bench.close().await;
}
