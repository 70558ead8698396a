//! Statements that would never end are ended, whatever they are doing.

use std::time::Duration;

use model::{ByteSize, LogRecord};
use serde_json::json;

use super::random_world::{self, Random};
use super::sql::rows;
use super::{Bench, until};
use crate::admission_gate::QueryClass;
use crate::{Error, QueryLimits, SqlStatement};

/// Long enough for a statement to be planned and to be in the midst of its work.
const A_WHILE: Duration = Duration::from_millis(800);

/// Each keeps an operator at work for minutes that does not end a poll by itself.
const ENDLESS: [(&str, &str); 6] = [
    (
        "a join that finds no pair",
        "SELECT count(*) FROM logs a, logs b, logs c WHERE a.message || b.message || c.message = 'no such'",
    ),
    (
        "a join whose condition none of the equal pairs meets",
        "SELECT count(*) FROM (SELECT substr(a.message, 1, 0) k, a.message m FROM logs a, logs b) x JOIN (SELECT substr(message, 1, 0) \
         k, message m FROM logs) y ON x.k = y.k AND x.m || y.m LIKE 'no such%'",
    ),
    (
        "all pairs of all",
        "SELECT count(DISTINCT a.level || b.level || c.level) FROM logs a, logs b, logs c",
    ),
    (
        "many of the same on both sides of IN",
        "SELECT count(*) FROM (SELECT substr(a.message, 1, 0) k FROM logs a, logs b) WHERE k IN (SELECT substr(c.message, 1, 0) FROM \
         logs c, logs d)",
    ),
    (
        "many of the same on both sides of NOT EXISTS",
        "SELECT count(*) FROM (SELECT substr(a.message, 1, 0) k FROM logs a, logs b) x WHERE NOT EXISTS (SELECT 1 FROM (SELECT \
         substr(c.message, 1, 0) k FROM logs c, logs d) y WHERE y.k = x.k)",
    ),
    (
        "a recursion without an end",
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t WHERE n < 0",
    ),
];

async fn bench(timeout: Duration) -> Bench {
    let bench = Bench::with(QueryLimits::new(ByteSize::mib(1024), timeout, 1)).await;
    let mut random = Random::new();
    let logs: Vec<LogRecord> = (0..1_500).map(|_| random_world::log(&mut random)).collect();
    bench.append(&logs).await;
    bench.publish().await;
    bench
}

fn statement(query: &str) -> SqlStatement {
    SqlStatement {
        query: query.to_owned(),
        ..SqlStatement::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_nobody_waits_for_ends_in_the_midst_of_its_work() {
    let bench = bench(Duration::from_secs(600)).await;
    for (what, query) in ENDLESS {
        let left = tokio::time::timeout(A_WHILE, bench.querier.sql(&statement(query))).await;
        assert!(left.is_err(), "{what} ended by itself: {left:?}");
        until(&format!("the place of {what}"), || bench.querier.gate.free() == 1).await;
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_whose_time_is_over_ends_in_the_midst_of_its_work() {
    let bench = bench(A_WHILE).await;
    for (what, query) in ENDLESS {
        let ended = bench.querier.sql(&statement(query)).await;
        assert!(matches!(ended, Err(Error::Timeout(_))), "{what}: {ended:?}");
        until(&format!("the place of {what}"), || bench.querier.gate.free() == 1).await;
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn joins_that_can_be_ended_answer_as_they_did() {
    let bench = bench(Duration::from_secs(60)).await;
    let t = "(VALUES (1, 'a'), (1, 'b'), (2, 'c'), (NULL, 'd')) t (k, x)";
    let u = "(VALUES (1, 'a'), (1, 'z'), (3, 'c'), (1, 'b')) u (k, x)";
    let letters = |texts: &[&str]| texts.iter().map(|text| vec![json!(text)]).collect::<Vec<_>>();
    for (condition, expected) in [
        ("k IN (SELECT u.k FROM {u})", letters(&["a", "b"])),
        ("k NOT IN (SELECT u.k FROM {u})", letters(&["c"])),
        (
            "EXISTS (SELECT 1 FROM {u} WHERE u.k = t.k AND u.x > t.x)",
            letters(&["a", "b"]),
        ),
        ("NOT EXISTS (SELECT 1 FROM {u} WHERE u.k = t.k)", letters(&["c", "d"])),
        (
            "NOT EXISTS (SELECT 1 FROM {u} WHERE u.k < t.k)",
            letters(&["a", "b", "d"]),
        ),
        ("k IN (SELECT u.k FROM {u}) OR x = 'd'", letters(&["a", "b", "d"])),
    ] {
        let condition = condition.replace("{u}", u);
        let found = rows(&bench, &format!("SELECT x FROM {t} WHERE {condition} ORDER BY x")).await;
        assert_eq!(found, expected, "{condition}");
    }
    for (join, expected) in [
        ("t JOIN u ON t.k = u.k AND t.x <> u.x", 4),
        ("t LEFT JOIN u ON t.k = u.k AND t.x < u.x", 5),
        ("t FULL JOIN u ON t.k < u.k", 7),
        ("t CROSS JOIN u", 16),
    ] {
        let query = format!("WITH t AS (SELECT * FROM {t}), u AS (SELECT * FROM {u}) SELECT count(*) FROM {join}");
        assert_eq!(rows(&bench, &query).await, [[json!(expected)]], "{join}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_keeps_its_thread_does_not_keep_the_querier_from_closing() {
    let bench = bench(Duration::from_secs(600)).await;
    let kept = bench.querier.enter(QueryClass::Statement).await.unwrap();
    bench.querier.close().await;
    drop(kept);
    bench.close().await;
}
