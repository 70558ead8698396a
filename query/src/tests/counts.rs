//! Histograms, top lists and the lists of metrics are what counting all rows would give.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::filter::{
    HistogramFilter, HistogramGrouping, LogFilter, MetricFilter, SeriesFilter, SortOrder, TopFilter, TraceFilter,
};
use model::{Attributes, Clock, LogRecord, MetricPoint, Span, Timestamp};
use serde_json::{Map, Value, json};

use super::random_world::{self, Random};
use super::rows::{lets_log, lets_span, scattered};
use super::{Bench, HOUR, append, now, open_at};
use crate::{Error, ListQuery, QueryEngine, QueryErrorKind, QueryLimits, QueryStats};

fn unpaged(random: &mut Random) -> LogFilter {
    LogFilter {
        limit: None,
        offset: None,
        order: None,
        ..random_world::log_filter(random)
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_histogram_counts_every_row_that_the_filter_lets_through_in_its_bucket() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let all = scattered(&mut bench, &mut random, random_world::log).await;
    for turn in 0..40 {
        let filter = unpaged(&mut random);
        let shape = HistogramFilter {
            interval: Some(random.pick(&["1s", "7m", "1h", "24h"]).parse().unwrap()),
            by: Some(*random.pick(&[
                HistogramGrouping::None,
                HistogramGrouping::Level,
                HistogramGrouping::EntityName,
            ])),
            fill: (turn % 2 == 0).then_some(false),
        };
        histogram_agrees(&bench, &all, &filter, &shape).await;
    }
    bench.close().await;
}

/// What a histogram with a given interval counts, against a reading of all rows; what that cost.
pub(super) async fn histogram_agrees(
    bench: &Bench,
    all: &[LogRecord],
    filter: &LogFilter,
    shape: &HistogramFilter,
) -> QueryStats {
    let width = i64::try_from(shape.interval.unwrap().get().as_micros()).unwrap();
    let mut counts: BTreeMap<(String, String), i64> = BTreeMap::new();
    for log in all.iter().filter(|log| lets_log(filter, log)) {
        let bucket = Timestamp::from_micros(log.ts.micros().div_euclid(width) * width).to_string();
        let group = match shape.by {
            Some(HistogramGrouping::Level) => log.level.to_string(),
            Some(HistogramGrouping::EntityName) => log.entity_name.clone(),
            _ => String::new(),
        };
        *counts.entry((bucket, group)).or_default() += 1;
    }
    let found = bench.querier.logs_histogram(filter, shape).await.unwrap();
    assert_eq!(found.interval, shape.interval.unwrap());
    let rows = &found.page.rows;
    assert!(rows.is_sorted_by(|a, b| a["ts"].as_str() >= b["ts"].as_str()));
    let group = |row: &Map<String, Value>| {
        row.get("level")
            .or(row.get("entity_name"))
            .map(text)
            .unwrap_or_default()
    };
    let given: BTreeMap<_, _> = rows
        .iter()
        .map(|row| ((text(&row["ts"]), group(row)), row["count"].as_i64().unwrap()))
        .collect();
    assert_eq!((given.len(), &given), (rows.len(), &counts), "{filter:?} {shape:?}");
    found.page.stats
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filled_histogram_has_all_buckets_of_its_window_also_where_nothing_is() {
    let mut random = Random::new();
    let bench = Bench::new().await;
    let row = LogRecord {
        ts: Timestamp::from_micros(now().micros() - 3 * HOUR),
        ..random_world::log(&mut random)
    };
    bench.append(&[row]).await;
    let fill = HistogramFilter {
        fill: Some(true),
        ..HistogramFilter::default()
    };
    let since = |age: &str| LogFilter {
        since: Some(age.parse().unwrap()),
        ..LogFilter::default()
    };
    for (age, counted) in [("6h", 1), ("1h", 0)] {
        let found = bench.querier.logs_histogram(&since(age), &fill).await.unwrap();
        let rows = found.page.rows;
        assert!((30..=61).contains(&rows.len()), "{}", rows.len());
        assert_eq!(
            rows.iter().map(|row| row["count"].as_i64().unwrap()).sum::<i64>(),
            counted
        );
    }
    let narrow = HistogramFilter {
        interval: Some("1ms".parse().unwrap()),
        ..fill
    };
    let refused = bench.querier.logs_histogram(&since("1h"), &narrow).await;
    assert!(matches!(refused, Err(Error::TooManyGroups(_))), "{refused:?}");
    let paged = LogFilter {
        limit: Some(5),
        ..LogFilter::default()
    };
    let refused = bench.querier.logs_histogram(&paged, &fill).await.unwrap_err();
    assert_eq!(refused.kind(), QueryErrorKind::Parameter);
    bench.close().await;
}

/// What a top list says of a field, against a reading of all rows; what that cost.
pub(super) async fn top_agrees(bench: &Bench, logs: &[LogRecord], filter: &LogFilter, field: &str) -> QueryStats {
    let value = |log: &LogRecord| match field.strip_prefix("attr.") {
        Some(key) => log.attributes.get(key).cloned(),
        None => serde_json::to_value(log).unwrap().get(field).cloned(),
    };
    let kept = logs.iter().filter(|log| lets_log(filter, log));
    let expected = ranked(kept.map(value), usize::try_from(filter.limit.unwrap()).unwrap());
    let top = TopFilter {
        field: Some(field.to_owned()),
    };
    let page = bench.querier.logs_top(filter, &top).await.unwrap();
    assert_eq!(given(&page.rows, "value"), expected, "{field} {filter:?}");
    page.stats
}

/// The most frequent first, of equal ones in order.
fn ranked(values: impl Iterator<Item = Option<Value>>, limit: usize) -> Vec<(String, u64)> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for value in values.flatten().filter(|value| !value.is_null()) {
        *counts.entry(text(&value)).or_default() += 1;
    }
    let mut ranked: Vec<_> = counts.into_iter().collect();
    ranked.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    ranked.truncate(limit);
    ranked
}

fn given(rows: &[Map<String, Value>], value: &str) -> Vec<(String, u64)> {
    let given = rows
        .iter()
        .map(|row| (text(&row[value]), row["count"].as_u64().unwrap()));
    given.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_top_list_has_the_most_frequent_values_of_a_column_or_an_attribute() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let logs: Vec<LogRecord> = scattered(&mut bench, &mut random, random_world::log).await;
    let spans: Vec<Span> = scattered(&mut bench, &mut random, random_world::span).await;
    let fields = [
        "entity_name",
        "entity_id",
        "level",
        "message",
        "flux_id",
        "attr.http.status",
        "attr.ö\"k",
        "attr.gone",
    ];
    for turn in 0..32 {
        let field = fields[turn % fields.len()];
        let limit = 1 + random.below(6);
        let filter = LogFilter {
            limit: Some(u32::try_from(limit).unwrap()),
            ..unpaged(&mut random)
        };
        top_agrees(&bench, &logs, &filter, field).await;
    }
    let filter = TraceFilter {
        min_duration_ms: Some(3),
        ..TraceFilter::default()
    };
    let top = TopFilter {
        field: Some("span_name".to_owned()),
    };
    let names = spans.iter().filter(|span| lets_span(&filter, span));
    let page = bench.querier.traces_top(&filter, &top).await.unwrap();
    assert_eq!(
        given(&page.rows, "value"),
        ranked(names.map(|span| Some(json!(span.span_name))), 10)
    );
    for field in [
        None,
        Some("ts"),
        Some("attributes"),
        Some("gone"),
        Some("attr."),
        Some("labels.cpu"),
    ] {
        let top = TopFilter {
            field: field.map(str::to_owned),
        };
        let refused = bench.querier.logs_top(&LogFilter::default(), &top).await.unwrap_err();
        assert!(
            matches!(refused, Error::Parameter { parameter: "field", .. }),
            "{refused}"
        );
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_fields_says_how_many_rows_have_each() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let logs: Vec<LogRecord> = scattered(&mut bench, &mut random, random_world::log).await;
    let spans: Vec<Span> = scattered(&mut bench, &mut random, random_world::span).await;
    let keys = |all: &[&Attributes]| {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for attributes in all {
            let Value::Object(members) = serde_json::to_value(attributes).unwrap() else {
                panic!("attributes are no object");
            };
            for key in members.keys() {
                *counts.entry(format!("attr.{key}")).or_default() += 1;
            }
        }
        counts
    };
    for _ in 0..10 {
        let filter = unpaged(&mut random);
        let kept: Vec<_> = logs.iter().filter(|log| lets_log(&filter, log)).collect();
        let page = bench.querier.log_fields(&filter).await.unwrap();
        let fields = given(&page.rows, "field");
        let columns = ["entity_id", "entity_name", "flux_id", "level", "message"];
        let with_flux = kept.iter().filter(|log| log.flux_id.is_some()).count() as u64;
        let all = kept.len() as u64;
        let counts = [all, all, with_flux, all, all];
        let wanted: Vec<_> = columns.map(str::to_owned).into_iter().zip(counts).collect();
        assert_eq!(fields[..5], wanted, "{filter:?}");
        let attributes: BTreeMap<_, _> = fields[5..].iter().cloned().collect();
        let wanted = keys(&kept.iter().map(|log| &log.attributes).collect::<Vec<_>>());
        assert_eq!((attributes.len(), attributes), (fields.len() - 5, wanted), "{filter:?}");
        assert!(fields[5..].is_sorted_by(|a, b| a.1 >= b.1));
    }
    let first = TraceFilter {
        limit: Some(3),
        ..TraceFilter::default()
    };
    let page = bench.querier.trace_fields(&first).await.unwrap();
    assert_eq!((page.rows.len(), page.stats.partial.is_some()), (3, true));
    let page = bench.querier.trace_fields(&TraceFilter::default()).await.unwrap();
    let attributes: BTreeMap<_, _> = given(&page.rows, "field")
        .into_iter()
        .filter(|(name, _)| name.starts_with("attr."))
        .collect();
    let all: Vec<_> = spans
        .iter()
        .filter(|span| lets_span(&TraceFilter::default(), span))
        .collect();
    assert_eq!(
        attributes,
        keys(&all.iter().map(|span| &span.attributes).collect::<Vec<_>>())
    );
    assert_eq!(page.stats.partial, None);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_metrics_label_keys_and_label_values_that_are_cut_say_so() {
    let bench = Bench::new().await;
    let model = MetricPoint {
        ts: Timestamp::from_micros(now().micros() - HOUR),
        ..random_world::point(&mut Random::new())
    };
    let point = |name: &str, labels| MetricPoint {
        name: name.to_owned(),
        labels,
        ..model.clone()
    };
    let labels = |cpu: i64| Attributes::new().with("cpu", cpu).with("zone", "a");
    let points = [
        point("load", labels(0)),
        point("load", labels(1)),
        point("heat", labels(0)),
    ];
    bench.append(&points).await;
    for (limit, is_cut) in [(1, true), (2, false)] {
        let filter = SeriesFilter {
            limit: Some(limit),
            ..SeriesFilter::default()
        };
        for page in [
            bench.querier.metric_names(&filter).await,
            bench.querier.metric_labels("load", &filter).await,
            bench.querier.metric_label_values("load", "cpu", &filter).await,
        ] {
            let page = page.unwrap();
            assert_eq!(
                (page.rows.len(), page.stats.rows),
                (limit as usize, u64::from(limit)),
                "{page:?}"
            );
            assert_eq!(page.stats.partial.is_some(), is_cut, "{page:?}");
        }
    }
    for (key_sets, is_cut) in [(1_000, false), (1_001, true)] {
        let name = format!("sets.{key_sets}");
        let of_set = |number: i64| point(&name, Attributes::new().with(&format!("key{number}"), number));
        bench.append(&(0..key_sets).map(of_set).collect::<Vec<_>>()).await;
        let found = bench.querier.metric(&name, &MetricFilter::default()).await.unwrap();
        let partial = found.list.stats.partial;
        assert_eq!(
            partial.is_some_and(|reason| reason.contains("label_keys")),
            is_cut,
            "{key_sets} key sets"
        );
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_their_label_keys_and_label_values_are_listed_with_their_numbers_of_points() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let all: Vec<MetricPoint> = scattered(&mut bench, &mut random, random_world::point).await;
    let every = SeriesFilter::default();
    let page = bench.querier.metric_names(&every).await.unwrap();
    let mut names: BTreeMap<String, u64> = BTreeMap::new();
    all.iter()
        .for_each(|point| *names.entry(point.name.clone()).or_default() += 1);
    assert_eq!(given(&page.rows, "name"), names.into_iter().collect::<Vec<_>>());
    assert!(
        page.rows
            .iter()
            .all(|row| text(&row["name"]).starts_with(&text(&row["type"])))
    );
    for entity in [None, Some("rack-a")] {
        let filter = SeriesFilter {
            entity: entity.map(str::to_owned),
            ..SeriesFilter::default()
        };
        let own =
            |point: &&MetricPoint| point.name == "histogram.0" && entity.is_none_or(|name| point.entity_name == name);
        let points: Vec<_> = all.iter().filter(own).collect();
        let cpus = || points.iter().filter_map(|point| point.labels.get("cpu").map(text));
        let page = bench.querier.metric_labels("histogram.0", &filter).await.unwrap();
        assert_eq!(
            page.rows.into_iter().map(Value::Object).collect::<Vec<_>>(),
            [
                json!({ "key": "cpu", "values": cpus().collect::<BTreeSet<_>>().len(), "count": cpus().count() }),
                json!({ "key": "otel.unit", "values": 1, "count": points.len() }),
            ]
        );
        let page = bench
            .querier
            .metric_label_values("histogram.0", "cpu", &filter)
            .await
            .unwrap();
        assert_eq!(
            given(&page.rows, "value"),
            ranked(cpus().map(|cpu| Some(json!(cpu))), 10)
        );
    }
    assert!(
        bench
            .querier
            .metric_label_values("histogram.0", "gone", &every)
            .await
            .unwrap()
            .rows
            .is_empty()
    );
    for refused in [
        bench.querier.metric_labels("gone", &every).await,
        bench.querier.metric_label_values("gone", "cpu", &every).await,
    ] {
        assert!(
            matches!(refused, Err(Error::NotFound { what: "metric", .. })),
            "{refused:?}"
        );
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_a_label_are_counted_by_the_texts_that_they_are_listed_by() {
    let bench = Bench::new().await;
    let point = random_world::point(&mut Random::new());
    let points = [json!(0), json!("0")].map(|cpu| MetricPoint {
        name: "cpu.load".to_owned(),
        labels: model::Attributes::new().with("cpu", cpu),
        ..point.clone()
    });
    bench.append(&points).await;
    let every = SeriesFilter::default();
    let keys = bench.querier.metric_labels("cpu.load", &every).await.unwrap();
    let keys: Vec<_> = keys.rows.into_iter().map(Value::Object).collect();
    assert_eq!(keys, [json!({ "key": "cpu", "values": 1, "count": 2 })]);
    let values = bench.querier.metric_label_values("cpu.load", "cpu", &every).await;
    assert_eq!(given(&values.unwrap().rows, "value"), [("0".to_owned(), 2)]);
    bench.close().await;
}

/// A window, and which of the moments lie in it.
type InWindow = (&'static str, &'static str, &'static [usize]);

/// The day after, moments of it and around, and windows.
const DAYS: [(&str, [&str; 4], [InWindow; 3]); 3] = [
    (
        "2024-03-02T00:00:00Z",
        [
            "2024-02-28T23:59:59.999999Z",
            "2024-02-29T00:00:00.000000Z",
            "2024-02-29T23:59:59.999999Z",
            "2024-03-01T00:00:00.000000Z",
        ],
        [
            ("2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z", &[1, 2]),
            ("2024-02-28T23:59:59.999999Z", "2024-02-29T00:00:00Z", &[0]),
            ("2024-03-01T00:00:00Z", "2024-03-01T00:00:00Z", &[]),
        ],
    ),
    // Clocks in Europe skip an hour.
    (
        "2026-03-30T00:00:00Z",
        [
            "2026-03-29T00:59:58.000000Z",
            "2026-03-29T00:59:59.000000Z",
            "2026-03-29T01:00:00.000000Z",
            "2026-03-29T01:00:01.000000Z",
        ],
        [
            ("2026-03-29T01:59:59+01:00", "2026-03-29T03:00:00+02:00", &[1]),
            ("2026-03-29T03:00:00+02:00", "2026-03-29T03:00:00.000001+02:00", &[2]),
            ("2026-03-29T00:00:00+01:00", "2026-03-29T03:00:01+02:00", &[0, 1, 2]),
        ],
    ),
    // They repeat one.
    (
        "2026-10-26T00:00:00Z",
        [
            "2026-10-25T00:30:00.000000Z",
            "2026-10-25T00:59:59.000000Z",
            "2026-10-25T01:30:00.000000Z",
            "2026-10-25T01:30:00.000001Z",
        ],
        [
            ("2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", &[0, 1]),
            ("2026-10-25T02:30:00+01:00", "2026-10-25T03:00:00+01:00", &[2, 3]),
            ("2026-10-25T02:30:00+01:00", "2026-10-25T02:30:00+01:00", &[]),
        ],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn leap_days_and_hours_that_clocks_skip_or_repeat_are_stretches_like_any_other() {
    let mut random = Random::new();
    for (today, moments, windows) in DAYS {
        let today: Timestamp = today.parse().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::new(move || today);
        let engine = open_at(&dir, Duration::from_secs(3_600), clock.clone()).await;
        let querier = QueryEngine::new(Arc::clone(&engine), QueryLimits::default(), clock).unwrap();
        let rows = moments.map(|ts| LogRecord {
            ts: ts.parse().unwrap(),
            ..random_world::log(&mut random)
        });
        append(&engine, &rows[..2]).await;
        engine.flush().await.unwrap();
        append(&engine, &rows[2..]).await;
        for (since, until, within) in windows {
            let within: Vec<String> = within.iter().map(|row| moments[*row].to_owned()).collect();
            let mut filter = LogFilter {
                since: Some(since.parse().unwrap()),
                until: Some(until.parse().unwrap()),
                ..LogFilter::default()
            };
            let days = HistogramFilter {
                interval: Some("24h".parse().unwrap()),
                ..HistogramFilter::default()
            };
            let counts = querier.logs_histogram(&filter, &days).await.unwrap().page.rows;
            let mut expected: BTreeMap<String, u64> = BTreeMap::new();
            for ts in &within {
                *expected.entry(format!("{}T00:00:00.000000Z", &ts[..10])).or_default() += 1;
            }
            assert_eq!(given(&counts, "ts"), expected.into_iter().rev().collect::<Vec<_>>());
            filter.order = Some(SortOrder::Asc);
            let page = querier.page(ListQuery::Logs(filter.clone())).await.unwrap();
            let times: Vec<String> = page.rows.iter().map(|row| text(&row["ts"])).collect();
            assert_eq!(times, within, "{since} {until}");
        }
        querier.close().await;
        engine.close().await.unwrap();
    }
}
