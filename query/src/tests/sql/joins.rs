//! Joins: columns of the same name on both sides, which a filter that is pushed below the join must not confuse.

use std::time::Duration;

use model::{ByteSize, LogRecord};
use serde_json::json;

use super::super::random_world::{self, Random};
use super::{Bench, asked, bench, one, rows};
use crate::{QueryErrorKind, QueryLimits};

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_on_one_side_of_a_join_is_not_applied_to_the_other() {
    let bench = bench().await;
    let never_equal = "FROM logs a RIGHT JOIN logs b ON a.attributes->>'none' = b.level";
    for (condition, expected) in [
        ("bit_length(a.level) IS NOT NULL", 0),
        ("(b.message > a.message) IS DISTINCT FROM (b.level ILIKE '%\\%%')", 180),
        ("coalesce(a.level, 'x') = 'x'", 180),
        ("(a.ts - b.ts) < INTERVAL '24 hours'", 0),
    ] {
        let query = format!("SELECT count(*) {never_equal} WHERE {condition}");
        assert_eq!(one(&bench, &query).await, expected, "{query}");
        let query = format!("SELECT a.level, b.level {never_equal} WHERE {condition}");
        assert_eq!(rows(&bench, &query).await.len(), expected, "{query}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_rows_of_joins_are_those_of_the_column_that_is_sorted_by() {
    let bench = bench().await;
    let joined = "FROM logs a JOIN logs b ON a.level = b.level AND a.flux_id = b.flux_id JOIN logs c ON b.ts = c.ts";
    for column in ["a.message", "b.message", "c.message", "b.ts", "c.level"] {
        for direction in ["ASC", "DESC"] {
            let query = format!(
                "SELECT a.message, b.message, c.message, {column} AS key {joined} ORDER BY key {direction} LIMIT 3"
            );
            let found: Vec<_> = rows(&bench, &query)
                .await
                .into_iter()
                .map(|row| row[3].clone())
                .collect();
            let all = rows(&bench, &format!("SELECT {column} AS key {joined}")).await;
            let mut expected: Vec<_> = all.into_iter().map(|row| row[0].as_str().unwrap().to_owned()).collect();
            expected.sort_unstable();
            if direction == "DESC" {
                expected.reverse();
            }
            expected.truncate(3);
            assert_eq!(found, expected, "{query}");
        }
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_loses_no_rows_of_semi_joins_whose_keys_have_other_names() {
    let bench = bench().await;
    // Rows in memory are not filtered on their way, and one of them would be a partner for all.
    bench.publish().await;
    // Both sides of the semi join have a column `level`, and that of the one is not its key.
    let renamed = "(SELECT level AS severity, message AS level FROM logs)";
    let semi = format!("EXISTS (SELECT 1 FROM {renamed} r WHERE r.severity = l.level AND r.level <> l.message)");
    let few = "(SELECT level AS key, count(*) AS n FROM logs WHERE length(message) < 12 GROUP BY level ORDER BY level LIMIT 2)";
    let sum = |of: &str| format!("SELECT sum(k.n) FROM {few} k JOIN {of} x ON x.level = k.key");
    let expected = one(&bench, &sum("logs")).await;
    let found = one(&bench, &sum(&format!("(SELECT level FROM logs l WHERE {semi})"))).await;
    assert!(expected.as_i64() > Some(0), "{expected}");
    assert_eq!(found, expected);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_by_pairs_that_has_no_room_for_one_side_is_refused_or_right() {
    const ROWS: u64 = 300;
    let bench = Bench::with(QueryLimits::new(ByteSize::mib(24), Duration::from_secs(60), 2)).await;
    let mut random = Random::new();
    let logs: Vec<_> = (0..ROWS)
        .map(|n| LogRecord {
            message: format!("{n} {}", "x".repeat(100 << 10)),
            ..random_world::log(&mut random)
        })
        .collect();
    for some in logs.chunks(20) {
        bench.append(some).await;
    }
    bench.publish().await;
    for (join, condition, expected) in [
        ("LEFT", "a.level || b.message < '0'", ROWS),
        ("RIGHT", "a.level || b.message < '0'", ROWS),
        ("FULL", "a.level || b.message < '0'", 2 * ROWS),
        ("LEFT", "a.level || b.message > '0'", ROWS * ROWS),
    ] {
        let query = format!(
            "SELECT count(*), max(length(a.message)), max(length(b.message)) FROM logs a {join} JOIN logs b ON {condition}"
        );
        match asked(&bench, &query, json!([])).await {
            Ok(answer) => assert_eq!(answer["data"][0]["count(*)"], expected, "{query}: {answer}"),
            Err(error) => assert!(
                matches!(error.kind(), QueryErrorKind::TooMuch | QueryErrorKind::Busy),
                "{query}: {error}"
            ),
        }
    }
    let ids = "(SELECT entity_id, level FROM logs)";
    let query = format!("SELECT count(*) FROM {ids} a LEFT JOIN {ids} b ON a.level || b.level < '0'");
    assert_eq!(one(&bench, &query).await, ROWS, "what there is memory for is answered");
    bench.close().await;
}
