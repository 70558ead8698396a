//! What queries keep of rows that went from memory to files is memory of queries.

use std::time::Duration;

use model::filter::{LogFilter, When};
use model::{ByteSize, LogRecord};

use super::world::{self, Random};
use super::{Bench, now, until};
use crate::{Error, Limits, Statement};

/// More than half of the memory of queries.
const ROWS: usize = 200;
const BYTES: usize = 40 << 10;

/// Takes neither rows nor memory, and does not end.
const ENDLESS: &str =
    "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t WHERE n < 0";

/// A store whose rows are in memory.
async fn bench() -> Bench {
    let bench = Bench::with(Limits::new(ByteSize::mib(16), Duration::from_secs(600), 4)).await;
    let mut random = Random::new();
    let row = |random: &mut Random| LogRecord {
        ts: now(),
        message: format!("{:016x}", random.next()).repeat(BYTES / 16),
        ..world::log(random)
    };
    let logs: Vec<LogRecord> = (0..ROWS).map(|_| row(&mut random)).collect();
    bench.append(&logs).await;
    bench
}

fn endless() -> Statement {
    Statement {
        query: ENDLESS.to_owned(),
        ..Statement::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statement_that_keeps_too_many_rows_of_the_past_ends_and_a_later_one_goes_on() {
    let bench = bench().await;
    let (first, second) = (endless(), endless());
    let later = async {
        until("the first one", || bench.querier.snapshots.running() == 1).await;
        bench.publish().await;
        let later = tokio::time::timeout(Duration::from_secs(1), bench.querier.sql(&second)).await;
        assert!(later.is_err(), "the later one has nothing of the past: {later:?}");
    };
    let (ended, ()) = tokio::join!(bench.querier.sql(&first), later);
    assert!(matches!(ended, Err(Error::SnapshotTooOld(_))), "{ended:?}");
    let pool = &bench.querier.sessions.like().runtime_env().memory_pool;
    until("the memory of both", || pool.reserved() == 0).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_that_keeps_too_many_rows_of_the_past_ends_with_a_gap() {
    let bench = bench().await;
    let filter = LogFilter {
        since: Some(When::At(now())),
        ..LogFilter::default()
    };
    let mut tail = bench.querier.tail(&filter, None).unwrap();
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
