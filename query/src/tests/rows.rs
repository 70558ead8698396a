//! Typed queries answer what a reading of all rows would.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use model::batch::row_json;
use model::filter::{LogFilter, RowFilter, SortOrder, TimePoint, TraceFilter};
use model::{ByteSize, Clock, EntityId, FluxId, LogRecord, Span, TelemetryRecord, Timestamp, TraceId};
use serde_json::{Map, Value};

use super::random_world::{self, Random};
use super::{Bench, HOUR, now, open_at, spans_and_logs};
use crate::scalar_functions::hash_rows;
use crate::{Error, ListQuery, QueryEngine, QueryLimits};

/// The stretch of time of a query, told without the code under test.
pub(super) fn in_window(
    ts: Timestamp,
    since: Option<TimePoint>,
    until: Option<TimePoint>,
    flux: Option<FluxId>,
) -> bool {
    let end = until.map_or(now(), |until| until.resolve(now()));
    let day_before = end.micros() - 24 * HOUR;
    let made = flux
        .and_then(|id| id.created())
        .map_or(i64::MAX, |made| made.micros() - HOUR);
    let since = since.map_or(day_before.min(made), |since| since.resolve(now()).micros());
    ts.micros() >= since && until.is_none_or(|until| ts < until.resolve(now()))
}

pub(super) fn is_entity(name: &str, id: EntityId, wanted: Option<&String>) -> bool {
    wanted.is_none_or(|wanted| wanted == name || *wanted == id.to_string())
}

fn has(log: &LogRecord, key: &str, wanted: Option<&String>) -> bool {
    let text = log.attributes.get(key).map(|value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    wanted.is_none_or(|wanted| text.as_ref() == Some(wanted))
}

fn lower(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

pub(super) fn lets_log(filter: &LogFilter, log: &LogRecord) -> bool {
    in_window(log.ts, filter.since, filter.until, filter.flux_id)
        && filter.level.is_none_or(|level| log.level == level)
        && filter.min_level.is_none_or(|level| log.level >= level)
        && is_entity(&log.entity_name, log.entity_id, filter.rack_id.as_ref())
        && is_entity(&log.entity_name, log.entity_id, filter.entity.as_ref())
        && filter
            .service
            .as_ref()
            .is_none_or(|name| random_world::service_of(&log.attributes, &log.entity_name) == name)
        && filter.flux_id.is_none_or(|flux| log.flux_id == Some(flux))
        && has(log, "gear.id", filter.gear_id.as_ref())
        && has(log, "trace_id", filter.trace_id.map(|id| id.to_string()).as_ref())
        && filter
            .q
            .as_ref()
            .is_none_or(|q| lower(&log.message).contains(&lower(q)))
        && random_world::has_all(&log.attributes, &filter.attributes)
        && !filter.not_level.contains(&log.level)
        && !filter
            .not_entity
            .iter()
            .any(|entity| is_entity(&log.entity_name, log.entity_id, Some(entity)))
        && !filter
            .not_service
            .contains(random_world::service_of(&log.attributes, &log.entity_name))
        && !filter.not_q.iter().any(|q| lower(&log.message).contains(&lower(q)))
        && !random_world::has_any(&log.attributes, &filter.not_attributes)
}

pub(super) fn lets_span(filter: &TraceFilter, span: &Span) -> bool {
    in_window(span.ts, filter.since, filter.until, filter.flux_id)
        && filter.flux_id.is_none_or(|flux| span.flux_id == Some(flux))
        && filter.trace_id.is_none_or(|trace| span.trace_id == trace)
        && random_world::has_all(&span.attributes, &filter.attributes)
        && filter
            .min_duration_ms
            .is_none_or(|ms| f64::from(span.duration_ms) >= f64::from(ms))
        && filter.status.is_none_or(|status| span.status == status)
        && is_entity(&span.entity_name, span.entity_id, filter.entity.as_ref())
        && filter.service.as_ref().is_none_or(|name| span.service() == *name)
        && filter.span_name.as_ref().is_none_or(|name| span.span_name == *name)
        && !filter
            .not_entity
            .iter()
            .any(|entity| is_entity(&span.entity_name, span.entity_id, Some(entity)))
        && !filter.not_service.contains(&*span.service())
        && !filter.not_span_name.contains(&span.span_name)
        && !random_world::has_any(&span.attributes, &filter.not_attributes)
}

/// Rows in the order of answers, as they are shown.
fn expected<R: TelemetryRecord>(rows: Vec<R>, order: Option<SortOrder>) -> Vec<Map<String, Value>> {
    let times: Vec<_> = rows.iter().map(TelemetryRecord::ts).collect();
    in_order(&R::to_batch(&rows).unwrap(), &times, order)
}

/// The rows of a batch in the order of answers, as they are shown.
pub(super) fn in_order(batch: &RecordBatch, times: &[Timestamp], order: Option<SortOrder>) -> Vec<Map<String, Value>> {
    let hashes = hash_rows(batch.columns(), times.len()).unwrap();
    let mut rows: Vec<_> = (0..times.len()).collect();
    rows.sort_by_key(|row| {
        let ts = times[*row].micros();
        (if order == Some(SortOrder::Asc) { ts } else { -ts }, hashes[*row])
    });
    rows.into_iter().map(|row| row_json(batch, row)).collect()
}

pub(super) fn cut(
    rows: Vec<Map<String, Value>>,
    limit: Option<u32>,
    offset: Option<u32>,
) -> (Vec<Map<String, Value>>, bool) {
    let (limit, offset) = (limit.unwrap_or(100) as usize, offset.unwrap_or(0) as usize);
    let more = rows.len() > offset.saturating_add(limit);
    (rows.into_iter().skip(offset).take(limit).collect(), more)
}

/// Rows in sealed files that overlap, in open files, and in memory.
pub(super) async fn scattered<R: TelemetryRecord + Clone>(
    bench: &mut Bench,
    random: &mut Random,
    make: fn(&mut Random) -> R,
) -> Vec<R> {
    let mut all = Vec::new();
    for part in 0..4 {
        let mut rows: Vec<R> = (0..150).map(|_| make(random)).collect();
        let again: Vec<R> = rows.iter().take(20).cloned().collect();
        rows.extend(again);
        for chunk in rows.chunks(60) {
            bench.append(chunk).await;
        }
        match part {
            0 | 1 => bench.seal().await,
            2 => bench.publish().await,
            _ => {}
        }
        all.extend(rows);
    }
    let view = bench.engine.view();
    let files = view.files(R::TABLE);
    assert!(files.iter().any(|file| file.sealed) && files.iter().any(|file| !file.sealed));
    assert!(!view.hot(R::TABLE).is_empty());
    all
}

/// Random filters let through what a reading of all rows says.
pub(super) async fn logs_agree(bench: &Bench, all: &[LogRecord], random: &mut Random) {
    for _ in 0..60 {
        let filter = random_world::log_filter(random);
        let rows = all.iter().filter(|log| lets_log(&filter, log)).cloned().collect();
        let (rows, more) = cut(expected::<LogRecord>(rows, filter.order), filter.limit, filter.offset);
        let page = bench.querier.page(ListQuery::Logs(filter.clone())).await.unwrap();
        assert_eq!(page.rows, rows, "{filter:?}");
        assert_eq!(page.next_cursor.is_some(), more, "{filter:?}");
        assert_eq!(page.stats.rows, rows.len() as u64);
    }
}

/// As [`logs_agree`], of spans.
pub(super) async fn spans_agree(bench: &Bench, all: &[Span], random: &mut Random) {
    for _ in 0..60 {
        let filter = random_world::trace_filter(random);
        let rows = all.iter().filter(|span| lets_span(&filter, span)).cloned().collect();
        let (rows, more) = cut(expected::<Span>(rows, filter.order), filter.limit, filter.offset);
        let page = bench.querier.page(ListQuery::Traces(filter.clone())).await.unwrap();
        assert_eq!(page.rows, rows, "{filter:?}");
        assert_eq!(page.next_cursor.is_some(), more, "{filter:?}");
    }
}

/// A trace has all of its spans, and the logs under its id around them.
pub(super) async fn trace_agrees(bench: &Bench, spans: &[Span], logs: &[LogRecord], id: TraceId) {
    let of_trace = || spans.iter().filter(|span| span.trace_id == id);
    let times = || of_trace().map(|span| span.ts.micros());
    let (found, found_logs) = match spans_and_logs(&bench.querier, id).await {
        Ok(trace) => trace,
        Err(error) => {
            assert!(
                matches!(error, Error::NotFound { .. }) && of_trace().count() == 0,
                "{error}"
            );
            return;
        }
    };
    let mut found: Vec<_> = found
        .rows
        .iter()
        .map(|row| row["span_id"].as_str().unwrap().to_owned())
        .collect();
    let mut wanted: Vec<_> = of_trace().map(|span| span.span_id.to_string()).collect();
    found.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
    let around = times().min().unwrap() - HOUR..times().max().unwrap() + HOUR;
    let logs = logs.iter().filter(|log| around.contains(&log.ts.micros()));
    let logs = logs.filter(|log| has(log, "trace_id", Some(&id.to_string()))).cloned();
    let mut logs = expected::<LogRecord>(logs.collect(), None);
    logs.reverse();
    assert_eq!(found_logs.rows, logs);
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_exactly_those_that_the_filter_lets_through_in_order() {
    let mut random = Random::new();
    for mut bench in [Bench::new().await, Bench::of_lines().await] {
        let all = scattered(&mut bench, &mut random, random_world::log).await;
        logs_agree(&bench, &all, &mut random).await;
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_are_exactly_those_that_the_filter_lets_through_in_order() {
    let mut random = Random::new();
    for mut bench in [Bench::new().await, Bench::of_lines().await] {
        let all = scattered(&mut bench, &mut random, random_world::span).await;
        spans_agree(&bench, &all, &mut random).await;
        let id = all[0].trace_id;
        let spans = bench.querier.trace(id).await.unwrap();
        assert_eq!(
            spans.rows().num_rows(),
            all.iter().filter(|span| span.trace_id == id).count()
        );
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_one_after_the_other_are_the_whole_answer() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let all = scattered(&mut bench, &mut random, random_world::log).await;
    for turn in 0..6 {
        let mut filter = LogFilter {
            offset: None,
            order: [Some(SortOrder::Asc), None, Some(SortOrder::Desc)][turn % 3],
            ..random_world::log_filter(&mut random)
        };
        let rows = all.iter().filter(|log| lets_log(&filter, log)).cloned().collect();
        let mut given = Vec::new();
        loop {
            filter.limit = Some(u32::try_from(1 + random.below(70)).unwrap());
            let page = bench.querier.page(ListQuery::Logs(filter.clone())).await.unwrap();
            given.extend(page.rows);
            filter.cursor = page.next_cursor;
            if filter.cursor.is_none() {
                break;
            }
        }
        assert_eq!(given, expected::<LogRecord>(rows, filter.order), "{filter:?}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_outside_the_window_are_not_opened() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    scattered(&mut bench, &mut random, random_world::log).await;
    let last_hour = LogFilter {
        since: Some("30m".parse().unwrap()),
        ..LogFilter::default()
    };
    let stats = bench
        .querier
        .page(ListQuery::Logs(last_hour.clone()))
        .await
        .unwrap()
        .stats;
    assert!(
        stats.files_pruned > 0 && stats.files_read <= stats.files_considered - stats.files_pruned,
        "{stats:?}"
    );
    let long_ago = LogFilter {
        since: Some("48h".parse().unwrap()),
        until: Some("24h".parse().unwrap()),
        ..LogFilter::default()
    };
    let page = bench.querier.page(ListQuery::Logs(long_ago.clone())).await.unwrap();
    assert_eq!((page.rows.len(), page.next_cursor), (0, None));
    assert_eq!((page.stats.files_read, page.stats.bytes_read), (0, 0));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_rows_are_read_from_the_newest_files() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let hour = |log: &LogRecord| log.ts.micros().div_euclid(HOUR);
    let logs: Vec<_> = (0..900).map(|_| random_world::log(&mut random)).collect();
    let current = now().micros().div_euclid(HOUR);
    let past: Vec<_> = logs.into_iter().filter(|log| hour(log) < current).collect();
    bench.append(&past).await;
    bench.seal().await;
    let scan = bench
        .querier
        .scan(model::Table::Logs, crate::time_range::TimeRange::ALL, Vec::new())
        .unwrap();
    let frame = scan
        .frame(scan.window, crate::view_table::RowOrder::NewestFirst)
        .unwrap();
    let frame = frame
        .sort(crate::keyset_pagination::by_time(model::filter::SortOrder::Desc))
        .unwrap()
        .limit(0, Some(5))
        .unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    let plan = datafusion::physical_plan::displayable(plan.as_ref())
        .indent(true)
        .to_string();
    assert!(!plan.contains("SortExec"), "{plan}");
    let five = LogFilter {
        limit: Some(5),
        ..LogFilter::default()
    };
    let stats = bench.querier.page(ListQuery::Logs(five.clone())).await.unwrap().stats;
    assert!(stats.files_considered == 5 && stats.files_read < 5, "{stats:?} {plan}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_overlapping_runs_answers_in_order_without_a_row_twice_or_missing() {
    const LARGE: i64 = 140_000;
    let bench = Bench::new().await;
    bench.engine.close().await.unwrap();
    let start = now().micros() - 2 * HOUR;
    let time = Arc::new(AtomicI64::new(start + 600_000_000));
    let clock = {
        let time = Arc::clone(&time);
        Clock::new(move || Timestamp::from_micros(time.load(Ordering::Relaxed)))
    };
    let engine = super::open_at(&bench.dir, std::time::Duration::from_millis(20), clock).await;
    let mut random = Random::new();
    let mut row = |n: i64| LogRecord {
        // Every thousandth row comes a minute late, so the two publishes overlap in time.
        ts: Timestamp::from_micros(start + n * 1000 - if n % 1000 == 0 { 60_000_000 } else { 0 }),
        message: format!("row {n}"),
        ..random_world::log(&mut random)
    };
    let rows: Vec<LogRecord> = (0..2 * LARGE).map(&mut row).collect();
    for part in rows.chunks(usize::try_from(LARGE).unwrap()) {
        super::append(&engine, part).await;
        engine.flush().await.unwrap();
    }
    time.store(now().micros(), Ordering::Relaxed);
    let sealed = || engine.view().files(model::Table::Logs).iter().all(|file| file.sealed);
    super::until("the seal", sealed).await;
    let runs: usize = engine
        .view()
        .files(model::Table::Logs)
        .iter()
        .map(|file| file.runs.len())
        .sum();
    assert_eq!(runs, 2);
    let querier = QueryEngine::new(Arc::clone(&engine), bench.limits.clone(), Clock::new(now)).unwrap();
    let mut filter = LogFilter {
        since: Some(TimePoint::At(Timestamp::from_micros(start + 100_000_000))),
        ..LogFilter::default()
    };
    filter.limit = Some(10_000);
    let mut wanted: Vec<&LogRecord> = rows
        .iter()
        .filter(|row| row.ts.micros() >= start + 100_000_000)
        .collect();
    wanted.sort_by_key(|row| std::cmp::Reverse(row.ts));
    let page = querier.page(ListQuery::Logs(filter.clone())).await.unwrap();
    let times = |rows: &[Map<String, Value>]| -> Vec<String> {
        rows.iter().map(|row| row["ts"].as_str().unwrap().to_owned()).collect()
    };
    let expected: Vec<String> = wanted.iter().take(10_000).map(|row| row.ts.to_string()).collect();
    assert_eq!(times(&page.rows), expected);
    querier.close().await;
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_a_store_that_was_made_anew_has_another_tag() {
    let tag_of_a_store_made = async |after: i64| {
        let dir = tempfile::tempdir().unwrap();
        let made = Clock::new(move || Timestamp::from_micros(now().micros() + after));
        let engine = open_at(&dir, Duration::from_secs(3_600), made).await;
        let limits = QueryLimits::new(ByteSize::mib(64), Duration::from_secs(60), 4);
        let querier = QueryEngine::new(Arc::clone(&engine), limits, Clock::new(now)).unwrap();
        let until = LogFilter {
            until: Some(TimePoint::At(now())),
            ..LogFilter::default()
        };
        let tag = querier.tag(&ListQuery::Logs(until), &RowFilter::default()).unwrap();
        querier.close().await;
        engine.close().await.unwrap();
        tag
    };
    let tag = tag_of_a_store_made(0).await;
    assert_eq!(tag, tag_of_a_store_made(0).await);
    assert_ne!(tag, tag_of_a_store_made(HOUR).await);
}
