//! A scope is as a store that has nothing else: typed queries, tags, cursors and tails of some entities and some tables.

use std::collections::BTreeSet;

use model::filter::{
    DeadLetterFilter, FluxFilter, HistogramFilter, HistogramGrouping, LetterFilter, LogFilter, MessageFilter,
    MetricFilter, RowFilter, SeriesFilter, TimePoint, TopFilter, TraceFilter,
};
use model::{LogRecord, Table};

use super::random_world::{self, ENTITIES, Random, flux, trace};
use super::scoped_world::{OUTSIDE, SECRET, entities, row_set, scoped_worlds, scopes, tables, worlds};
use super::{HOUR, now};
use crate::{Error, JsonPage, ListAnswer, ListQuery, LiveTail, QueryEngine, QueryErrorKind};

fn ever() -> Option<TimePoint> {
    Some(TimePoint::Ago("240h".parse().unwrap()))
}

/// The rows of an answer, or its error; nothing of them is of the entity outside.
fn told(answer: Result<impl Into<JsonPage>, Error>) -> String {
    let text = match answer.map(Into::into) {
        Ok(JsonPage { rows, next_cursor, .. }) => format!("{rows:?} {next_cursor:?}"),
        Err(error) => error.to_string(),
    };
    assert!(!text.contains(SECRET) && !text.contains(OUTSIDE), "{text}");
    text
}

/// As [`told`], with what an answer has beside its rows.
fn told_whole(answer: Result<ListAnswer, Error>) -> String {
    let (about, beside) = match &answer {
        Ok(answer) => (answer.about.clone(), answer.beside.clone()),
        Err(_) => (None, None),
    };
    let beside = beside.map(|(_, rows)| told(Ok(*rows)));
    format!("{} {about:?} {beside:?}", told(answer))
}

async fn agree_on_lists(scoped: &QueryEngine, only: &QueryEngine, random: &mut Random) {
    let mut queries = Vec::new();
    for n in 0..8 {
        queries.push(ListQuery::Logs(random_world::log_filter(random)));
        queries.push(ListQuery::Traces(random_world::trace_filter(random)));
        queries.push(ListQuery::Messages(random_world::message_filter(random)));
        queries.push(ListQuery::Metrics(random_world::summary_filter(random)));
        let filter = FluxFilter {
            limit: Some(7),
            ..FluxFilter::default()
        };
        queries.push(ListQuery::Flux(flux(n % 4), filter));
    }
    let points = MetricFilter {
        since: ever(),
        limit: Some(9),
        ..MetricFilter::default()
    };
    queries.push(ListQuery::Metrics(points));
    for query in queries {
        assert_eq!(
            told_whole(scoped.list(&query).await),
            told_whole(only.list(&query).await),
            "{query:?}"
        );
    }
}

#[allow(clippy::too_many_lines, reason = "a comparison of each kind of question")]
async fn agree_on_aggregates(scoped: &QueryEngine, only: &QueryEngine, random: &mut Random) {
    let series = SeriesFilter {
        since: ever(),
        ..SeriesFilter::default()
    };
    let points = MetricFilter {
        since: ever(),
        ..MetricFilter::default()
    };
    for n in 0..5 {
        assert_eq!(
            told_whole(scoped.trace(trace(n)).await),
            told_whole(only.trace(trace(n)).await)
        );
    }
    for name in ["gauge.0", "counter.1", SECRET] {
        let metric = async |engine: &QueryEngine| {
            engine.metric(name, &points).await.map(|metric| {
                (
                    metric.metric_type,
                    metric.unit,
                    metric.label_keys,
                    JsonPage::from(metric.list).rows,
                )
            })
        };
        match (metric(scoped).await, metric(only).await) {
            (Ok(scoped), Ok(only)) => assert_eq!(scoped, only),
            (scoped, only) => assert_eq!(scoped.unwrap_err().to_string(), only.unwrap_err().to_string()),
        }
        if name == SECRET {
            continue;
        }
        assert_eq!(
            told(scoped.metric_labels(name, &series).await),
            told(only.metric_labels(name, &series).await)
        );
        assert_eq!(
            told(scoped.metric_exemplars(name, &series).await),
            told(only.metric_exemplars(name, &series).await)
        );
        assert_eq!(
            told(scoped.metric_label_values(name, "cpu", &series).await),
            told(only.metric_label_values(name, "cpu", &series).await)
        );
    }
    assert_eq!(
        told(scoped.metric_names(&series).await),
        told(only.metric_names(&series).await)
    );
    for field in ["level", "entity_name", "message", "attr.geheim"] {
        let top = TopFilter {
            field: Some(field.to_owned()),
        };
        let logs = LogFilter {
            since: ever(),
            ..LogFilter::default()
        };
        assert_eq!(
            told(scoped.logs_top(&logs, &top).await),
            told(only.logs_top(&logs, &top).await),
            "{field}"
        );
    }
    let top = TopFilter {
        field: Some("span_name".to_owned()),
    };
    let spans = TraceFilter {
        since: ever(),
        ..TraceFilter::default()
    };
    assert_eq!(
        told(scoped.traces_top(&spans, &top).await),
        told(only.traces_top(&spans, &top).await)
    );
    assert_eq!(told(scoped.services(&spans).await), told(only.services(&spans).await));
    assert_eq!(
        told(scoped.dependencies(&spans).await),
        told(only.dependencies(&spans).await)
    );
    for (interval, by) in [
        ("1h", HistogramGrouping::EntityName),
        ("1m", HistogramGrouping::Level),
        ("7s", HistogramGrouping::None),
    ] {
        let shape = HistogramFilter {
            interval: Some(interval.parse().unwrap()),
            by: Some(by),
            ..HistogramFilter::default()
        };
        let logs = LogFilter {
            entity: None,
            limit: None,
            offset: None,
            order: None,
            ..random_world::log_filter(random)
        };
        let histogram = async |engine: &QueryEngine| {
            told(
                engine
                    .logs_histogram(&logs, &shape)
                    .await
                    .map(|histogram| histogram.page),
            )
        };
        assert_eq!(histogram(scoped).await, histogram(only).await, "{logs:?} {shape:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn typed_queries_in_a_scope_answer_as_a_store_that_has_nothing_else() {
    let (all, only) = scoped_worlds(11).await;
    for (scope, of) in scopes() {
        let scoped = all.querier.with_scope(scope);
        let mut random = Random::seeded(12);
        agree_on_lists(&scoped, &only[of].querier, &mut random).await;
        agree_on_aggregates(&scoped, &only[of].querier, &mut random).await;
    }
    // What a clone is dropped for is not what the others are there for.
    assert!(
        !all.querier
            .page(ListQuery::Logs(LogFilter::default()))
            .await
            .unwrap()
            .rows
            .is_empty()
    );
    all.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_and_a_tag_of_another_scope_give_rows_of_this_one_only() {
    let [all] = worlds(13, [&ENTITIES]).await;
    all.publish().await;
    let filter = LogFilter {
        since: ever(),
        until: Some(TimePoint::At(model::Timestamp::from_micros(now().micros() - 2 * HOUR))),
        limit: Some(5),
        ..LogFilter::default()
    };
    let [scoped, same, other] =
        [ENTITIES[0], ENTITIES[0], ENTITIES[2]].map(|of| all.querier.with_scope(entities(&[of])));
    let query = ListQuery::Logs(filter.clone());
    let next = all.querier.page(query.clone()).await.unwrap().next_cursor;
    let next = ListQuery::Logs(LogFilter { cursor: next, ..filter });
    let rows = scoped.page(next).await.unwrap().rows;
    assert!(
        !rows.is_empty() && rows.iter().all(|row| row["entity_name"] == ENTITIES[0]),
        "{rows:?}"
    );
    let tag = |engine: &QueryEngine| engine.tag(&query, &RowFilter::default()).unwrap();
    assert_eq!(tag(&scoped), tag(&same));
    assert_eq!(Some(tag(&scoped)), scoped.list(&query).await.unwrap().tag);
    let tags = BTreeSet::from([tag(&all.querier), tag(&scoped), tag(&other)]);
    assert_eq!(tags.len(), 3);
    let outside = all.querier.with_scope(tables(&[Table::Traces]));
    assert_eq!(outside.tag(&query, &RowFilter::default()), None);
    all.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_outside_the_scope_or_without_entities_is_refused_by_name() {
    let [all] = worlds(14, [&ENTITIES]).await;
    let refused = |error: Error, table: &str| {
        assert_eq!(error.kind(), QueryErrorKind::Forbidden, "{error:?}");
        assert!(
            error
                .to_string()
                .starts_with(&format!("this token may not read {table}: ")),
            "{error}"
        );
    };
    let traces = all.querier.with_scope(tables(&[Table::Traces]));
    let (logs, series) = (LogFilter::default(), SeriesFilter::default());
    for (query, table) in [
        (ListQuery::Logs(logs.clone()), "logs"),
        (ListQuery::Metrics(MetricFilter::default()), "metrics"),
        (ListQuery::Messages(MessageFilter::default()), "messages"),
        (ListQuery::DeadLetters(DeadLetterFilter::default()), "dead_letters"),
        (ListQuery::Letters(LetterFilter::default()), "dead_letters"),
        (ListQuery::Flux(flux(0), FluxFilter::default()), "messages"),
    ] {
        refused(traces.list(&query).await.unwrap_err(), table);
    }
    assert!(traces.list(&ListQuery::Traces(TraceFilter::default())).await.is_ok());
    refused(traces.trace(trace(0)).await.unwrap_err(), "logs");
    refused(
        traces
            .logs_histogram(&logs, &HistogramFilter::default())
            .await
            .unwrap_err(),
        "logs",
    );
    let top = TopFilter {
        field: Some("level".to_owned()),
    };
    refused(traces.logs_top(&logs, &top).await.unwrap_err(), "logs");
    refused(traces.metric_names(&series).await.unwrap_err(), "metrics");
    refused(traces.metric_labels("gauge.0", &series).await.unwrap_err(), "metrics");
    refused(
        traces.metric_label_values("gauge.0", "cpu", &series).await.unwrap_err(),
        "metrics",
    );
    refused(
        traces.metric("gauge.0", &MetricFilter::default()).await.unwrap_err(),
        "metrics",
    );
    refused(traces.letter_counts(10).await.unwrap_err(), "dead_letters");
    refused(traces.tail(&logs, None).unwrap_err(), "logs");
    refused(
        traces.tail_messages(&MessageFilter::default(), None).unwrap_err(),
        "messages",
    );
    let some = all.querier.with_scope(entities(&[ENTITIES[0]]));
    for error in [
        some.list(&ListQuery::DeadLetters(DeadLetterFilter::default()))
            .await
            .unwrap_err(),
        some.letter_counts(10).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("belong to no entity"), "{error}");
        refused(error, "dead_letters");
    }
    all.close().await;
}

/// What a tail gives up to the last of so many rows.
async fn read(tail: &mut LiveTail, rows: usize) -> String {
    let mut text = String::new();
    while text.matches("\"entity_name\":").count() < rows {
        text.push_str(std::str::from_utf8(&tail.next().await.unwrap()).unwrap());
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_gives_earlier_and_live_rows_of_its_scope_wherever_it_goes_on() {
    let [all] = worlds(15, [&ENTITIES]).await;
    let everything = LogFilter {
        since: ever(),
        ..LogFilter::default()
    };
    let count = |rows: &[LogRecord]| rows.iter().filter(|row| row.entity_name == ENTITIES[0]).count();
    let scoped = all.querier.with_scope(entities(&[ENTITIES[0]]));
    let there = scoped.page(ListQuery::Logs(LogFilter {
        limit: Some(1_000),
        ..everything.clone()
    }));
    let there = there.await.unwrap().rows.len();
    // The place of a row that is outside, in the backlog of a tail that sees all.
    let outside = LogFilter {
        entity: Some(OUTSIDE.to_owned()),
        ..everything.clone()
    };
    let text = read(&mut all.querier.tail(&outside, None).unwrap(), 1).await;
    let first = text.split("\n\n").find(|event| event.contains(SECRET)).unwrap();
    let place = first.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let mut tail = scoped.tail(&everything, None).unwrap();
    let mut resumed = scoped
        .tail(&LogFilter::default(), Some(("Last-Event-ID", place)))
        .unwrap();
    let mut none = all.querier.with_scope(entities(&[])).tail(&everything, None).unwrap();
    let more = row_set(&mut Random::seeded(16), 40).logs;
    all.append(&more).await;
    let text = read(&mut tail, there + count(&more)).await;
    assert!(!text.contains(SECRET) && !text.contains(OUTSIDE), "{text}");
    let text = read(&mut resumed, count(&more) + 1).await;
    assert!(!text.contains(SECRET) && !text.contains(OUTSIDE), "{text}");
    let text = none.next().await.unwrap();
    assert!(!String::from_utf8_lossy(&text).contains("data: "), "{text:?}");
    drop((tail, resumed, none));
    all.close().await;
}
