//! Services, their operations and calls are those that a reading of all spans makes them; a search gives whole traces.

use std::collections::BTreeMap;

use model::filter::{HistogramFilter, LogFilter, MetricFilter, SeriesFilter, TimePoint, TopFilter, TraceFilter};
use model::{Attributes, EntityId, Level, LogRecord, MetricPoint, MetricType, Span, SpanId, SpanStatus};
use serde_json::{Map, Value, json};

use super::random_world::{self, Random, trace};
use super::rows::{lets_span, scattered};
use super::*;
use crate::{ListQuery, TraceSearch};

fn every() -> TraceFilter {
    TraceFilter {
        since: Some(TimePoint::EVER),
        ..TraceFilter::default()
    }
}

fn span_id(number: u64) -> SpanId {
    SpanId::from_entropy(number.to_be_bytes())
}

/// A span so many seconds before now, under a parent if it has one, of the entity `rack-a`.
fn span(second: i64, (of, number): (u8, u64), parent: Option<u64>, attributes: Attributes) -> Span {
    Span {
        ts: Timestamp::from_micros(now().micros() - second * SECOND),
        trace_id: trace(of),
        span_id: span_id(number),
        parent_span_id: parent.map(span_id),
        flux_id: None,
        entity_id: EntityId::for_name("rack-a"),
        entity_name: "rack-a".to_owned(),
        span_name: format!("op-{number}"),
        duration_ms: 1.5,
        status: SpanStatus::Ok,
        attributes,
    }
}

fn of_service(name: &str) -> Attributes {
    Attributes::new().with(Span::SERVICE_NAME, name)
}

/// What of so few values is exact.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]
fn percentile(spans: &[&Span], part: f64) -> f64 {
    let mut values: Vec<f64> = spans.iter().map(|span| f64::from(span.duration_ms)).collect();
    assert!(values.len() <= 256, "a sketch is exact of 256 values");
    values.sort_by(f64::total_cmp);
    let rank = part * (values.len() - 1) as f64;
    let (low, high) = (values[rank.floor() as usize], values[rank.ceil() as usize]);
    low + (high - low) * rank.fract()
}

fn texts<'a>(rows: &'a [Map<String, Value>], name: &str) -> Vec<&'a str> {
    rows.iter().map(|row| row[name].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn services_have_the_numbers_of_their_spans() {
    let mut random = Random::new();
    for mut bench in [Bench::new().await, Bench::of_lines().await] {
        let all = scattered(&mut bench, &mut random, random_world::span).await;
        for filter in [
            every(),
            TraceFilter {
                status: Some(SpanStatus::Error),
                ..every()
            },
            TraceFilter {
                service: Some("shop".to_owned()),
                ..every()
            },
        ] {
            let mut expected: BTreeMap<String, Vec<&Span>> = BTreeMap::new();
            for span in all.iter().filter(|span| lets_span(&filter, span)) {
                expected.entry(span.service()).or_default().push(span);
            }
            assert!(!expected.is_empty(), "{filter:?}");
            let page = bench.querier.services(&filter).await.unwrap();
            assert_eq!(texts(&page.rows, "service"), expected.keys().collect::<Vec<_>>());
            for (row, spans) in page.rows.iter().zip(expected.values()) {
                let errors = spans.iter().filter(|span| span.status == SpanStatus::Error);
                assert_eq!(
                    (&row["spans"], &row["errors"]),
                    (&json!(spans.len()), &json!(errors.count()))
                );
                let last = spans.iter().map(|span| span.ts).max().unwrap();
                assert_eq!(row["last_seen"], json!(last.to_string()));
                for (name, part) in [("p50_ms", 0.5), ("p99_ms", 0.99)] {
                    let (found, expected) = (row[name].as_f64().unwrap(), percentile(spans, part));
                    assert!((found - expected).abs() < 1e-4, "{name} is {found}, not {expected}");
                }
            }
        }
        let first = TraceFilter {
            limit: Some(1),
            ..every()
        };
        let page = bench.querier.services(&first).await.unwrap();
        assert_eq!(page.rows.len(), 1);
        assert!(page.stats.partial.is_some(), "there are more");
        let paged = TraceFilter {
            offset: Some(1),
            ..every()
        };
        let refused = bench.querier.services(&paged).await;
        assert!(
            matches!(
                refused,
                Err(Error::Parameter {
                    parameter: "offset",
                    ..
                })
            ),
            "{refused:?}"
        );
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_a_span_whose_parent_is_of_another_service() {
    let bench = Bench::new().await;
    let failed = |span: Span| Span {
        status: SpanStatus::Error,
        ..span
    };
    bench
        .append(&[
            span(50, (0, 1), None, of_service("shop")),
            span(49, (0, 2), Some(1), of_service("shop")),
            // The same again calls no more often.
            span(49, (0, 2), Some(1), of_service("shop")),
            span(48, (0, 3), Some(2), of_service("pay")),
            failed(span(47, (0, 4), Some(2), of_service("pay"))),
            // Without a service it is its entity's.
            span(46, (0, 5), Some(4), Attributes::new()),
        ])
        .await;
    bench.publish().await;
    bench
        .append(&[
            // The id of a span of another trace is nobody's.
            span(45, (1, 6), Some(1), of_service("stock")),
            // Its parent is before the window of the second question.
            span(7_200, (2, 7), None, of_service("shop")),
            span(30, (2, 8), Some(7), of_service("stock")),
        ])
        .await;
    let call = |caller: &str, callee: &str, calls: u64, errors: u64| {
        let row = json!({ "caller": caller, "callee": callee, "calls": calls, "errors": errors });
        row.as_object().unwrap().clone()
    };
    let to_pay = call("shop", "pay", 2, 1);
    let page = bench.querier.dependencies(&every()).await.unwrap();
    let all = [to_pay.clone(), call("pay", "rack-a", 1, 0), call("shop", "stock", 1, 0)];
    assert_eq!(page.rows, all);
    let last_hour = TraceFilter {
        since: Some("1h".parse().unwrap()),
        ..every()
    };
    let page = bench.querier.dependencies(&last_hour).await.unwrap();
    assert_eq!(page.rows, all[..2]);
    let of_pay = TraceFilter {
        service: Some("pay".to_owned()),
        ..every()
    };
    assert_eq!(bench.querier.dependencies(&of_pay).await.unwrap().rows, [to_pay]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_are_told_by_their_names_and_kinds() {
    let bench = Bench::new().await;
    let named = |number: u64, name: &str, kind: Option<&str>| Span {
        span_name: name.to_owned(),
        ..span(
            9,
            (0, number),
            None,
            kind.map_or_else(|| of_service("shop"), |kind| of_service("shop").with(Span::KIND, kind)),
        )
    };
    bench
        .append(&[
            named(1, "buy", Some("server")),
            named(2, "buy", Some("server")),
            named(3, "buy", None),
            named(4, "ask", Some("client")),
            span(9, (0, 5), None, of_service("pay")),
        ])
        .await;
    let filter = TraceFilter {
        service: Some("shop".to_owned()),
        ..every()
    };
    let page = bench.querier.operations(&filter).await.unwrap();
    let rows: Vec<_> = page.rows.into_iter().map(Value::Object).collect();
    assert_eq!(
        rows,
        [
            json!({ "span_name": "ask", "span_kind": "client", "spans": 1 }),
            json!({ "span_name": "buy", "span_kind": null, "spans": 1 }),
            json!({ "span_name": "buy", "span_kind": "server", "spans": 2 }),
        ]
    );
    bench.close().await;
}

/// The traces of a search by the numbers of their spans, the first trace first.
async fn found(bench: &Bench, search: &TraceSearch) -> Vec<(String, usize)> {
    let page = bench.querier.whole_traces(search).await.unwrap();
    let mut traces: Vec<(String, usize)> = Vec::new();
    for id in texts(&page.rows, "trace_id") {
        match traces.iter_mut().find(|(known, _)| known == id) {
            Some((_, spans)) => *spans += 1,
            None => traces.push((id.to_owned(), 1)),
        }
    }
    traces
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_gives_the_newest_traces_with_all_of_their_spans() {
    let mut bench = Bench::new().await;
    let slow = |span: Span| Span {
        duration_ms: 0.1,
        ..span
    };
    bench
        .append(&[
            // Of each trace one span is of the shop; the other one is outside of the last hour.
            span(9_000, (0, 1), None, of_service("door").with("resource.host.name", "a")),
            slow(span(600, (0, 2), Some(1), of_service("shop").with("n", 7))),
        ])
        .await;
    bench.seal().await;
    bench
        .append(&[
            span(8_000, (1, 3), None, of_service("door")),
            span(500, (1, 4), Some(3), of_service("shop").with("n", 8)),
        ])
        .await;
    let (older, newer) = ((trace(0).to_string(), 2), (trace(1).to_string(), 2));
    let shop = TraceSearch {
        filter: TraceFilter {
            service: Some("shop".to_owned()),
            since: Some("1h".parse().unwrap()),
            ..TraceFilter::default()
        },
        ..TraceSearch::default()
    };
    assert_eq!(found(&bench, &shop).await, [newer.clone(), older.clone()]);
    let first = TraceSearch {
        filter: TraceFilter {
            limit: Some(1),
            ..shop.filter.clone()
        },
        ..shop.clone()
    };
    assert_eq!(found(&bench, &first).await, std::slice::from_ref(&newer));
    let tagged = |key: &str, value: &str| TraceSearch {
        filter: every(),
        tags: [(key.to_owned(), value.to_owned())].into(),
        ..TraceSearch::default()
    };
    assert_eq!(found(&bench, &tagged("n", "7")).await, std::slice::from_ref(&older));
    assert_eq!(
        found(&bench, &tagged("host.name", "a")).await,
        std::slice::from_ref(&older)
    );
    assert!(found(&bench, &tagged("host.name", "b")).await.is_empty());
    let micros = |least: Option<u64>, most: Option<u64>| TraceSearch {
        min_duration: least.map(Duration::from_micros),
        max_duration: most.map(Duration::from_micros),
        ..shop.clone()
    };
    // 100 µs are no more and no less than the 0.1 ms that are stored.
    assert_eq!(
        found(&bench, &micros(Some(100), Some(100))).await,
        std::slice::from_ref(&older)
    );
    assert_eq!(
        found(&bench, &micros(Some(101), None)).await,
        std::slice::from_ref(&newer)
    );
    assert!(found(&bench, &micros(None, Some(99))).await.is_empty());
    let spans = bench.querier.spans_of_traces(&[trace(0), trace(4)]).await.unwrap();
    assert_eq!(texts(&spans.rows, "trace_id"), [&older.0, &older.0]);
    let unknown = bench.querier.spans_of_traces(&[trace(4)]).await;
    assert!(
        matches!(unknown, Err(Error::NotFound { what: "trace", .. })),
        "{unknown:?}"
    );
    // Named twice, with many between: it is one trace all the same.
    let others = |count: u128| (1..=count).map(|number| TraceId::from_entropy(((0xee << 64) | number).to_be_bytes()));
    let named: Vec<_> = [trace(0)].into_iter().chain(others(150)).chain([trace(0)]).collect();
    let spans = bench.querier.spans_of_traces(&named).await.unwrap();
    assert_eq!(texts(&spans.rows, "trace_id"), [&older.0, &older.0]);
    let most: Vec<_> = others(1_499).chain(named).collect();
    assert_eq!(bench.querier.spans_of_traces(&most).await.unwrap().rows.len(), 2);
    let too_many: Vec<_> = others(1_500).chain(most).collect();
    let refused = bench.querier.spans_of_traces(&too_many).await;
    assert!(
        matches!(
            refused,
            Err(Error::Parameter {
                parameter: "traceID",
                ..
            })
        ),
        "{refused:?}"
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_whose_traces_have_too_many_spans_says_so() {
    let bench = Bench::new().await;
    let many: Vec<_> = (1..=10_001)
        .map(|number| span(9, (0, number), None, Attributes::new()))
        .collect();
    bench.append(&many).await;
    let search = TraceSearch::default();
    let page = bench.querier.whole_traces(&search).await.unwrap();
    assert_eq!(page.rows.len(), 10_000);
    // What is written of them is counted until its memory is let go.
    let pool = &bench.querier.pools.typed.template().runtime_env().memory_pool;
    let written: usize = page.rows.iter().map(|row| json!(row).to_string().len()).sum();
    assert!(pool.reserved() >= written, "{} of {written}", pool.reserved());
    drop(page.memory);
    until("all memory to be free", || pool.reserved() == 0).await;
    assert!(page.stats.partial.is_some_and(|reason| reason.contains("10000")));
    let ids = [trace(0)];
    assert!(
        bench
            .querier
            .spans_of_traces(&ids)
            .await
            .unwrap()
            .stats
            .partial
            .is_some()
    );
    let too_many = TraceSearch {
        filter: TraceFilter {
            limit: Some(1_501),
            ..TraceFilter::default()
        },
        ..TraceSearch::default()
    };
    let refused = bench.querier.whole_traces(&too_many).await;
    assert!(
        matches!(refused, Err(Error::Parameter { parameter: "limit", .. })),
        "{refused:?}"
    );
    bench.close().await;
}

/// A log record and a point of a service with an environment, or of none.
fn of_resource(second: i64, service: Option<&str>, environment: &str) -> (LogRecord, MetricPoint) {
    let mut attributes = Attributes::new().with("resource.deployment.environment", environment);
    if let Some(service) = service {
        attributes.set(Span::SERVICE_NAME, service);
    }
    let ts = Timestamp::from_micros(now().micros() - second * SECOND);
    let (entity_id, entity_name) = (EntityId::for_name("rack-a"), "rack-a".to_owned());
    let log = LogRecord {
        ts,
        entity_id,
        entity_name: entity_name.clone(),
        flux_id: None,
        level: Level::Info,
        message: format!("{second}"),
        attributes: attributes.clone(),
    };
    let point = MetricPoint {
        ts,
        name: format!("load.{}", service.unwrap_or("rack-a")),
        entity_id,
        entity_name,
        metric_type: MetricType::Gauge,
        value: 1.0,
        labels: attributes,
    };
    (log, point)
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_and_points_are_filtered_by_service_and_by_any_attribute_of_the_resource() {
    let bench = Bench::new().await;
    let (logs, points): (Vec<_>, Vec<_>) = [
        of_resource(40, Some("shop"), "live"),
        of_resource(30, Some("shop"), "test"),
        of_resource(20, Some("pay"), "live"),
        of_resource(10, None, "live"),
    ]
    .into_iter()
    .unzip();
    bench.append(&logs[..2]).await;
    bench.append(&points[..2]).await;
    bench.publish().await;
    bench.append(&logs[2..]).await;
    bench.append(&points[2..]).await;
    let by_key = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let pairs = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        pairs.collect()
    };
    let environment = "resource.deployment.environment";
    for (service, attributes, expected) in [
        (Some("shop"), by_key(&[]), vec!["30", "40"]),
        (Some("rack-a"), by_key(&[]), vec!["10"]),
        (Some("gone"), by_key(&[]), vec![]),
        (None, by_key(&[(Span::SERVICE_NAME, "shop")]), vec!["30", "40"]),
        (None, by_key(&[(environment, "live")]), vec!["10", "20", "40"]),
        (Some("shop"), by_key(&[(environment, "live")]), vec!["40"]),
    ] {
        let service = service.map(str::to_owned);
        let of_logs = LogFilter {
            service: service.clone(),
            attributes: attributes.clone(),
            ..LogFilter::default()
        };
        let page = bench.querier.page(ListQuery::Logs(of_logs.clone())).await.unwrap();
        let messages: Vec<_> = page.rows.iter().map(|row| row["message"].as_str().unwrap()).collect();
        assert_eq!(messages, expected, "{of_logs:?}");
        let shape = HistogramFilter::default();
        let histogram = bench.querier.logs_histogram(&of_logs, &shape).await.unwrap();
        let counted: u64 = histogram
            .page
            .rows
            .iter()
            .map(|row| row["count"].as_u64().unwrap())
            .sum();
        assert_eq!(counted, expected.len() as u64, "{of_logs:?}");
        let level = TopFilter {
            field: Some("level".to_owned()),
        };
        let top = bench.querier.logs_top(&of_logs, &level).await.unwrap();
        let most = top.rows.first().map_or(0, |row| row["count"].as_u64().unwrap());
        assert_eq!(most, expected.len() as u64, "{of_logs:?}");
        let of_points = MetricFilter {
            service: service.clone(),
            labels: attributes.clone(),
            ..MetricFilter::default()
        };
        let page = bench.querier.page(ListQuery::Metrics(of_points.clone())).await.unwrap();
        assert_eq!(page.rows.len(), expected.len(), "{of_points:?}");
        let of_series = SeriesFilter {
            service,
            labels: attributes,
            ..SeriesFilter::default()
        };
        let names = bench.querier.metric_names(&of_series).await.unwrap();
        let counted: u64 = names.rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
        assert_eq!(counted, expected.len() as u64, "{of_series:?}");
    }
    bench.close().await;
}
