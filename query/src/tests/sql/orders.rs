//! The order of rows behind grouping sets, unions and `DISTINCT ON`, and groups that come once.

use model::LogRecord;
use serde_json::{Value, json};

use super::super::random_world::{self, Random};
use super::{Bench, asked, of_messages, one, rows};

const ROWS: usize = 40_000;

/// Rows in sealed files, each with a message of its own; every fourth one is `info`.
async fn of_distinct_messages() -> Bench {
    let mut bench = Bench::new().await;
    let mut random = Random::new();
    let logs: Vec<_> = (0..ROWS)
        .map(|n| LogRecord {
            level: if n % 4 == 0 { "info" } else { "warn" }.parse().unwrap(),
            message: format!("{n:06}"),
            ..random_world::log(&mut random)
        })
        .collect();
    bench.append(&logs).await;
    bench.seal().await;
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_of_a_constant_key_come_once_and_in_order() {
    let bench = of_distinct_messages().await;
    let infos = ROWS / 4;
    for (of_the_statement, groups) in [
        ("WHERE level = 'info' GROUP BY CUBE (level, message)", 2 * (infos + 1)),
        ("WHERE level = 'info' GROUP BY ROLLUP (level, message)", infos + 2),
        (
            "WHERE level = 'info' GROUP BY GROUPING SETS ((message), (level, message), (level))",
            2 * infos + 1,
        ),
    ] {
        let of_groups = format!("SELECT level, message, count(*) AS n FROM logs {of_the_statement}");
        let counts = format!("SELECT count(*) FROM ({of_groups}) g");
        assert_eq!(one(&bench, &counts).await, groups, "{counts}");
        let ordered = format!("{of_groups} ORDER BY message DESC NULLS LAST, level NULLS FIRST");
        let found = rows(&bench, &ordered).await;
        let key = |row: &Vec<Value>| (row[1].as_str().map(str::to_owned), row[0].is_null());
        let mut sorted = found.clone();
        sorted.sort_by_key(key);
        sorted.reverse();
        assert!(found == sorted, "{ordered}");
    }
    let constant = "SELECT message, level IS NOT NULL AS l FROM logs WHERE message < '000003' \
                    GROUP BY CUBE (message, level IS NOT NULL) ORDER BY 1, 2 NULLS FIRST LIMIT 4";
    assert_eq!(
        rows(&bench, constant).await,
        [
            [json!("000000"), json!(null)],
            [json!("000000"), json!(true)],
            [json!("000001"), json!(null)],
            [json!("000001"), json!(true)]
        ]
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_rows_of_a_union_of_different_constants_are_found() {
    let bench = of_distinct_messages().await;
    let union =
        "SELECT 2 AS part, message FROM logs UNION ALL SELECT 1 AS part, message FROM logs WHERE level = 'info'";
    let first = format!("{union} ORDER BY 1, 2 DESC LIMIT 2");
    assert_eq!(
        rows(&bench, &first).await,
        [[json!(1), json!("039996")], [json!(1), json!("039992")]]
    );
    let last = format!("{union} ORDER BY 1 DESC, 2 LIMIT 2");
    assert_eq!(
        rows(&bench, &last).await,
        [[json!(2), json!("000000")], [json!(2), json!("000001")]]
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_see_all_groups_whatever_the_limit() {
    let bench = of_distinct_messages().await;
    let total = "SELECT message, count(*) OVER () AS total FROM logs GROUP BY message ORDER BY message LIMIT 2";
    assert_eq!(
        rows(&bench, total).await,
        [[json!("000000"), json!(ROWS)], [json!("000001"), json!(ROWS)]]
    );
    let newest = "SELECT level, max(message) AS m, count(*) OVER () FROM logs GROUP BY 1 ORDER BY m DESC LIMIT 1";
    assert_eq!(rows(&bench, newest).await, [[json!("warn"), json!("039999"), json!(2)]]);
    let distinct = "SELECT DISTINCT level, count(*) OVER (PARTITION BY level) AS n FROM logs LIMIT 30";
    assert_eq!(rows(&bench, distinct).await.len(), 2);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_greatest_of_an_expression_beside_that_of_a_column_is_found() {
    let bench = of_distinct_messages().await;
    let greatest = "SELECT min(message) AS a, max(0 - message::bigint) AS b, max(substr(message, 5)) AS c FROM logs WHERE length(message) > 0";
    let last = "SELECT max(message) AS a, max(0 - message::bigint) AS b, max(substr(message, 5)) AS c FROM logs WHERE length(message) > 0";
    for (query, first) in [(greatest, "000000"), (last, "039999")] {
        assert_eq!(
            rows(&bench, query).await,
            [[json!(first), json!(0), json!("99")]],
            "{query}"
        );
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_ordered_by_what_a_condition_is_a_cast_of() {
    let bench = of_messages(&["a"]).await;
    let numbers = "(VALUES (3, 1), (0, 2), (1, 4), (-2, 3)) v(x, y)";
    let query = format!("SELECT x FROM {numbers} WHERE x::int::boolean ORDER BY x, y");
    assert_eq!(rows(&bench, &query).await, [[json!(-2)], [json!(1)], [json!(3)]]);
    let texts = "SELECT x FROM (VALUES ('yes'), ('t'), ('f'), ('1')) v(x) WHERE x::boolean ORDER BY x";
    assert_eq!(rows(&bench, texts).await, [[json!("1")], [json!("t")], [json!("yes")]]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alias_does_not_hide_a_column_in_an_order_by_expressions() {
    let bench = of_messages(&["bb", "a"]).await;
    let hidden = "SELECT level AS message FROM logs ORDER BY length(message)";
    let error = asked(&bench, hidden, json!([])).await.unwrap_err().to_string();
    assert!(error.contains("give the alias another name"), "{error}");
    let other = "SELECT length(message) AS letters FROM logs ORDER BY letters + 1";
    assert_eq!(rows(&bench, other).await, [[json!(1)], [json!(2)]]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_in_distinct_on_is_the_place_of_a_column() {
    let bench = of_messages(&["b", "c", "a", "b"]).await;
    for distinct in [
        "SELECT DISTINCT ON (1) message AS m FROM logs",
        "SELECT DISTINCT ON (2) length(message), message FROM logs ORDER BY 2",
    ] {
        let count = format!("SELECT count(*) FROM ({distinct}) d");
        assert_eq!(one(&bench, &count).await, 3, "{distinct}");
    }
    for refused in [
        "SELECT DISTINCT ON (2) message FROM logs",
        "SELECT DISTINCT ON (0) message FROM logs",
        "SELECT DISTINCT ON (2) *, message FROM logs",
    ] {
        let error = asked(&bench, refused, json!([])).await.unwrap_err().to_string();
        assert!(error.contains("has no column in that place"), "{error}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_twice_in_an_order_counts_once() {
    let bench = of_distinct_messages().await;
    for (query, expected) in [
        (
            "SELECT DISTINCT ON (level) level, message FROM logs ORDER BY level DESC, level, message",
            json!([["warn", "000001"], ["info", "000000"]]),
        ),
        (
            "SELECT level, first_value(message ORDER BY message DESC, message) AS last FROM logs GROUP BY level ORDER BY 1",
            json!([["info", "039996"], ["warn", "039999"]]),
        ),
        (
            "SELECT last_value(message ORDER BY 1 + 1, message, 2) FROM logs",
            json!([["039999"]]),
        ),
        (
            "SELECT count(*) FROM (SELECT DISTINCT ON (DATE '2026-01-31') DATE '2026-01-31' AS a, DATE '2026-01-31' AS b FROM logs \
             ORDER BY 1, 2 OFFSET 0) q",
            json!([[1]]),
        ),
    ] {
        assert_eq!(json!(rows(&bench, query).await), expected, "{query}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn differences_and_other_intervals_are_not_mixed_in_a_union() {
    let bench = of_distinct_messages().await;
    let union = "SELECT ts - ts AS x FROM logs UNION ALL SELECT INTERVAL '1 day'";
    for query in [
        format!("SELECT max(x) FROM ({union}) q"),
        format!("SELECT x FROM ({union}) q GROUP BY x"),
        format!("{union} ORDER BY 1"),
    ] {
        let error = asked(&bench, &query, json!({})).await.expect_err(&query);
        assert!(error.to_string().contains("extract(epoch FROM"), "{query}: {error}");
    }
    let seconds = "SELECT max(x) FROM (SELECT extract(epoch FROM ts - ts) AS x FROM logs UNION ALL \
                   SELECT extract(epoch FROM INTERVAL '1 year 2 months -1 days')) q";
    assert_eq!(json!(rows(&bench, seconds).await), json!([[36_655_200.0]]));
    bench.close().await;
}
