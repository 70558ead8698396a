//! What queries retain of rows that went from memory to files is memory of queries.

use std::time::Duration;

use model::filter::{LogFilter, TimePoint};
use model::{ByteSize, LogRecord};

use super::random_world::{self, Random};
use super::{Bench, now, until};
use crate::{Error, LiveTail, QueryLimits, SqlStatement};

const MIB: usize = 1 << 20;

/// Takes neither rows nor memory, and does not end.
const ENDLESS: &str =
    "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t WHERE n < 0";

/// Retained rows may take 6 MiB.
async fn bench() -> Bench {
    Bench::with(QueryLimits::new(ByteSize::mib(16), Duration::from_secs(600), 4)).await
}

/// So many MiB of rows come and are in memory.
async fn append(bench: &Bench, mib: usize) {
    let mut random = Random::new();
    let row = |random: &mut Random| LogRecord {
        ts: now(),
        message: format!("{:016x}", random.next()).repeat(MIB / 32 / 16),
        ..random_world::log(random)
    };
    let logs: Vec<LogRecord> = (0..mib * 32).map(|_| row(&mut random)).collect();
    bench.append(&logs).await;
}

fn endless() -> SqlStatement {
    SqlStatement {
        query: ENDLESS.to_owned(),
        ..SqlStatement::default()
    }
}

fn tail(bench: &Bench) -> LiveTail {
    let filter = LogFilter {
        since: Some(TimePoint::At(now())),
        ..LogFilter::default()
    };
    bench.querier.tail(&filter, None).unwrap()
}

fn reserved(bench: &Bench) -> usize {
    bench
        .querier
        .pools
        .typed
        .template()
        .runtime_env()
        .memory_pool
        .reserved()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_statement_that_retains_too_many_rows_ends_and_those_go_on_that_retain_none() {
    let bench = bench().await;
    let (before, during, after) = (endless(), endless(), endless());
    let running = || bench.querier.snapshots.running();
    let reads = tokio::select! {
        ended = bench.querier.sql(&before) => Err(ended),
        () = async {
            until("the first one", || running() == 1).await;
            append(&bench, 8).await;
            let publish = async {
                until("the second one", || running() == 2).await;
                bench.publish().await;
            };
            let (ended, ()) = tokio::join!(bench.querier.sql(&during), publish);
            assert!(matches!(ended, Err(Error::SnapshotTooOld(_))), "{ended:?}");
            until("its end", || running() == 1).await;
            let ended = tokio::time::timeout(Duration::from_secs(1), bench.querier.sql(&after)).await;
            assert!(ended.is_err(), "it began after the publish: {ended:?}");
        } => Ok(()),
    };
    assert!(reads.is_ok(), "it began before the rows came: {reads:?}");
    until("the memory of all", || reserved(&bench) == 0).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_a_backlog_retains_are_memory_of_queries_for_as_long() {
    let bench = bench().await;
    append(&bench, 4).await;
    let tail = tail(&bench);
    bench.publish().await;
    until("the rows", || reserved(&bench) >= 4 * MIB).await;
    drop(tail);
    until("their end", || reserved(&bench) == 0).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_that_retains_too_many_rows_ends_with_a_gap() {
    let bench = bench().await;
    append(&bench, 8).await;
    let mut tail = tail(&bench);
    assert_eq!(bench.querier.snapshots.running(), 1);
    bench.publish().await;
    // Its reader takes nothing so far.
    until("the end of the backlog", || bench.querier.snapshots.running() == 0).await;
    let mut all = String::new();
    while !all.contains("event: gap") {
        let text = tokio::time::timeout(Duration::from_secs(30), tail.next()).await;
        all.push_str(std::str::from_utf8(&text.unwrap().unwrap()).unwrap());
    }
    assert!(all.contains("rows that the backlog keeps in memory are in files by now"));
    drop(tail);
    bench.close().await;
}
