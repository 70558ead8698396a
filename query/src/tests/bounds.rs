//! Queries are bounded in time, memory and number, and end when nobody waits for them.

use std::time::Duration;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit};
use model::filter::{LogFilter, MetricFilter};
use model::{ByteSize, LogRecord};

use engine::{CompressionCodec, StorageFormat};
use serde_json::json;

use super::random_world::{self, Random};
use super::sql::asked;
use super::{Bench, until};
use crate::{Error, ListQuery, QueryErrorKind, QueryLimits};

async fn bench(limits: QueryLimits) -> Bench {
    let bench = Bench::with(limits).await;
    let mut random = Random::new();
    let rows: Vec<LogRecord> = (0..2_000).map(|_| random_world::log(&mut random)).collect();
    bench.append(&rows).await;
    bench.publish().await;
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_runs_too_long_is_ended() {
    let bench = bench(QueryLimits::new(ByteSize::mib(64), Duration::from_nanos(1), 1)).await;
    let answer = bench.querier.page(ListQuery::Logs(LogFilter::default())).await;
    assert!(matches!(answer, Err(Error::Timeout(_))), "{answer:?}");
    until("its place to be free", || bench.querier.gate.free() == 1).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_queries_than_may_run_are_refused_and_run_again_later() {
    let bench = bench(QueryLimits::new(ByteSize::mib(64), Duration::from_secs(30), 1)).await;
    let place = bench.querier.gate.enter_tail().await.unwrap();
    let refused = bench.querier.page(ListQuery::Logs(LogFilter::default())).await;
    assert!(matches!(refused, Err(Error::Busy { running: 1 })), "{refused:?}");
    drop(place);
    assert_eq!(
        bench
            .querier
            .page(ListQuery::Logs(LogFilter::default()))
            .await
            .unwrap()
            .rows
            .len(),
        100
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_nobody_waits_for_gives_its_place_back() {
    let bench = bench(QueryLimits::new(ByteSize::mib(64), Duration::from_secs(30), 1)).await;
    let filter = LogFilter::default();
    let query = bench.querier.page(ListQuery::Logs(filter.clone()));
    let left = tokio::time::timeout(Duration::from_micros(1), query).await;
    drop(left);
    until("its place to be free", || bench.querier.gate.free() == 1).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_needs_too_much_memory_is_refused_and_a_smaller_one_answered() {
    let bench = Bench::with(QueryLimits::new(ByteSize::mib(1), Duration::from_secs(30), 1)).await;
    let mut random = Random::new();
    let mut rows: Vec<LogRecord> = (0..1_000).map(|_| random_world::log(&mut random)).collect();
    for row in &mut rows {
        row.message = "x".repeat(4_000);
    }
    rows[0].ts = super::now().plus(Duration::from_secs(1));
    bench.append(&rows).await;
    bench.publish().await;
    let all = LogFilter {
        limit: Some(1_000),
        ..LogFilter::default()
    };
    let refused = bench.querier.page(ListQuery::Logs(all.clone())).await;
    assert!(matches!(refused, Err(Error::Memory(_))), "{refused:?}");
    assert_eq!(refused.unwrap_err().kind(), QueryErrorKind::TooMuch);
    let one = LogFilter {
        since: Some(model::filter::TimePoint::At(rows[0].ts)),
        until: Some(model::filter::TimePoint::At(rows[0].ts.plus(Duration::from_micros(1)))),
        limit: Some(1),
        ..LogFilter::default()
    };
    assert_eq!(
        bench
            .querier
            .page(ListQuery::Logs(one.clone()))
            .await
            .unwrap()
            .rows
            .len(),
        1
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_short_of_memory_is_told_to_retry_unless_it_could_never_fit() {
    let bench = Bench::with(QueryLimits::new(ByteSize::mib(4), Duration::from_secs(30), 2)).await;
    let mut random = Random::new();
    let mut rows: Vec<LogRecord> = (0..1_000).map(|_| random_world::log(&mut random)).collect();
    for row in &mut rows {
        row.message = "x".repeat(4_000);
    }
    bench.append(&rows).await;
    bench.publish().await;
    let ask = |limit: u32| LogFilter {
        limit: Some(limit),
        ..LogFilter::default()
    };
    // Without the messages: how many batches of them are held at once depends on which scan is ahead.
    let newest = "SELECT ts, level FROM logs ORDER BY ts DESC LIMIT 20";
    // What another query has, as it would take it.
    let other = bench.querier.pools.typed.acquire_session();
    let pool = &other.runtime_env().memory_pool;
    let taken = MemoryConsumer::new("another query").register(pool);
    let MemoryLimit::Finite(all) = pool.memory_limit() else {
        panic!("no limit");
    };
    taken.try_grow(all - (8 << 10)).unwrap();
    for error in [
        bench.querier.page(ListQuery::Logs(ask(20))).await.unwrap_err(),
        asked(&bench, newest, json!([])).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Crowded(_)), "{error:?}");
        assert_eq!(error.kind(), QueryErrorKind::Busy);
    }
    // This one would not have enough if it were alone.
    taken.shrink(all / 2);
    let greedy = bench.querier.page(ListQuery::Logs(ask(1_000))).await.unwrap_err();
    assert!(matches!(greedy, Error::Memory(_) | Error::Crowded(_)), "{greedy:?}");
    taken.free();
    let greedy = bench.querier.page(ListQuery::Logs(ask(1_000))).await.unwrap_err();
    assert_eq!(
        (matches!(greedy, Error::Memory(_)), greedy.kind()),
        (true, QueryErrorKind::TooMuch),
        "{greedy:?}"
    );
    assert_eq!(
        bench.querier.page(ListQuery::Logs(ask(20))).await.unwrap().rows.len(),
        20
    );
    asked(&bench, newest, json!([])).await.unwrap();
    // What a slow reader still holds of a session is no next query's fault.
    let one = bench.querier.pools.typed.acquire_session();
    let left = MemoryConsumer::new("a slow reader").register(&one.runtime_env().memory_pool);
    left.try_grow(all - (8 << 10)).unwrap();
    drop(one);
    let error = bench.querier.page(ListQuery::Logs(ask(20))).await.unwrap_err();
    assert!(matches!(error, Error::Crowded(_)), "{error:?}");
    drop(left);
    // Every session is as it was, whatever its queries came to.
    let pool = &bench.querier.pools.typed.template().runtime_env().memory_pool;
    until("all memory to be free", || pool.reserved() == 0).await;
    drop((taken, other));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_a_list_count_as_memory_of_queries_until_the_last_of_its_clones_is_dropped() {
    let bench = bench(QueryLimits::new(ByteSize::mib(64), Duration::from_secs(30), 2)).await;
    let mut random = Random::new();
    let points: Vec<_> = (0..200).map(|_| random_world::point(&mut random)).collect();
    bench.append(&points).await;
    let pool = &bench.querier.pools.typed.template().runtime_env().memory_pool;
    for query in [
        ListQuery::Logs(LogFilter {
            limit: Some(1_000),
            ..LogFilter::default()
        }),
        ListQuery::Metrics(MetricFilter::default()),
        ListQuery::Metrics(MetricFilter {
            interval: Some("1m".parse().unwrap()),
            ..MetricFilter::default()
        }),
    ] {
        let list = bench.querier.list(&query).await.unwrap();
        let bytes = list.rows().get_array_memory_size();
        assert!(pool.reserved() >= bytes, "{} of {bytes}: {query:?}", pool.reserved());
        let another = list.clone();
        drop(list);
        assert!(pool.reserved() >= bytes, "{} of {bytes}: {query:?}", pool.reserved());
        drop(another);
        until("all memory to be free", || pool.reserved() == 0).await;
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_are_being_sent_leave_half_of_the_memory_to_queries() {
    let bench = Bench::with(QueryLimits::new(ByteSize::mib(16), Duration::from_secs(30), 4)).await;
    let mut random = Random::new();
    let mut rows: Vec<LogRecord> = (0..2_000).map(|_| random_world::log(&mut random)).collect();
    for row in &mut rows {
        row.message = "x".repeat(2_000);
    }
    bench.append(&rows).await;
    bench.publish().await;
    let list = async |limit| {
        let filter = LogFilter {
            limit: Some(limit),
            ..LogFilter::default()
        };
        bench.querier.list(&ListQuery::Logs(filter)).await
    };
    let pool = &bench.querier.pools.typed.template().runtime_env().memory_pool;
    let MemoryLimit::Finite(all) = pool.memory_limit() else {
        panic!("no limit");
    };
    let mut held = Vec::new();
    let refused = loop {
        match list(250).await {
            Ok(list) => held.push(list),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Crowded(_)), "{refused:?}");
    until("what the last query took to be free", || pool.reserved() <= all / 2).await;
    assert!(held.len() > 5, "{}", held.len());
    asked(
        &bench,
        "SELECT ts, message FROM logs ORDER BY ts DESC LIMIT 100",
        json!([]),
    )
    .await
    .unwrap();
    held.pop();
    assert_eq!(list(250).await.unwrap().rows().num_rows(), 250);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_spans_and_logs_of_a_trace_count_as_memory_of_queries_until_they_are_dropped() {
    let bench = Bench::with(QueryLimits::new(ByteSize::mib(64), Duration::from_secs(30), 2)).await;
    let mut random = Random::new();
    let id = random_world::trace(1);
    let spans = (0..100).map(|_| model::Span {
        trace_id: id,
        span_name: "x".repeat(1_000),
        ..random_world::span(&mut random)
    });
    bench.append(&spans.collect::<Vec<_>>()).await;
    let logs: Vec<_> = (0..100)
        .map(|_| LogRecord {
            message: "x".repeat(1_000),
            attributes: model::Attributes::new().with("trace_id", id.to_string()),
            ..random_world::log(&mut random)
        })
        .collect();
    bench.append(&logs).await;
    let pool = &bench.querier.pools.typed.template().runtime_env().memory_pool;
    let tree = bench.querier.trace(id).await.unwrap();
    assert!(pool.reserved() >= 200_000, "{}", pool.reserved());
    drop(tree);
    until("all memory to be free", || pool.reserved() == 0).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_reads_no_more_of_files_than_it_may_and_pages_that_are_kept_do_not_count() {
    for forms in [
        [(StorageFormat::Parquet, CompressionCodec::Zstd)],
        [(StorageFormat::Json, CompressionCodec::Zstd)],
    ] {
        let limits = QueryLimits {
            max_scan: ByteSize::bytes(1_000),
            ..QueryLimits::default()
        };
        let bench = Bench::made_of(limits, forms.to_vec().leak()).await;
        let mut random = Random::new();
        let rows: Vec<LogRecord> = (0..2_000).map(|_| random_world::log(&mut random)).collect();
        bench.append(&rows).await;
        let absent = LogFilter {
            q: Some("nowhere at all".to_owned()),
            ..LogFilter::default()
        };
        let hot = bench.querier.page(ListQuery::Logs(absent.clone())).await.unwrap();
        assert_eq!(
            (hot.rows.len(), hot.stats.bytes_read),
            (0, 0),
            "rows in memory are not read"
        );
        bench.publish().await;
        let refused = bench.querier.page(ListQuery::Logs(absent.clone())).await.unwrap_err();
        assert!(matches!(refused, Error::Bytes(_)), "{refused}");
        assert_eq!(refused.kind(), QueryErrorKind::TooMuch);
        assert!(refused.to_string().contains("query.max_scan_mb"), "{refused}");
        for text in ["SELECT count(DISTINCT message) FROM logs", "SELECT message FROM logs"] {
            let refused = asked(&bench, text, json!([])).await.unwrap_err();
            assert!(matches!(refused, Error::Bytes(_)), "{text}: {refused}");
        }
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_closing_queries_are_refused() {
    let bench = bench(QueryLimits::default()).await;
    bench.querier.close().await;
    bench.querier.close().await;
    let refused = bench.querier.page(ListQuery::Metrics(MetricFilter::default())).await;
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    assert!(bench.folder().exists());
    bench.close().await;
}
