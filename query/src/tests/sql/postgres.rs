//! Where the planner means something else than PostgreSQL: each found by comparing answers with one.

use serde_json::json;

use super::{asked, bench, of_messages, one, rows, said};
use crate::QueryErrorKind;
use crate::tests::Bench;

/// That each expression gives its text.
async fn give(cases: &[(&str, &str)]) {
    let bench = of_messages(&["one"]).await;
    for (expression, expected) in cases {
        assert_eq!(said(&bench, expression).await, [*expected], "{expression}");
    }
    bench.close().await;
}

async fn refused(bench: &Bench, query: &str) -> String {
    let error = asked(bench, query, json!([])).await.unwrap_err();
    assert_eq!(error.kind(), QueryErrorKind::Statement, "{query}: {error:?}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_values_are_written_as_postgresql_writes_them() {
    give(&[
        ("1.0::float8::text", "1"),
        ("1e20::float8 || 'x'", "1e+20x"),
        ("1e6::real::text", "1e+06"),
        ("concat('a', 2.0::float8, true, NULL)", "a2t"),
        ("concat_ws('-', false, INTERVAL '90 minutes')", "f-01:30:00"),
        (
            "TIMESTAMPTZ '2026-01-31 10:00:00.5+00'::text",
            "2026-01-31 10:00:00.5+00",
        ),
        ("'at ' || TIMESTAMP '2026-01-31 10:00:00'", "at 2026-01-31 10:00:00"),
        (
            "(TIMESTAMP '2026-01-03 05:00:00' - TIMESTAMP '2026-01-01 06:00:00')::text",
            "1 day 23:00:00",
        ),
        ("1.50::numeric::text", "1.5"),
        ("1.50::numeric(5,2)::text", "1.50"),
        ("1.5::float8::varchar(2)", "1."),
        ("length(NULL::float8::text)", "null"),
    ])
    .await;
    let bench = of_messages(&["one"]).await;
    let error = refused(&bench, "SELECT ARRAY[1, 2]::text").await;
    assert!(error.contains("array_to_string"), "{error}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_has_24_hours_and_a_month_30_days_where_intervals_are_compared() {
    give(&[
        ("INTERVAL '1 day' = INTERVAL '24 hours'", "true"),
        ("INTERVAL '25 hours' > INTERVAL '1 day'", "true"),
        ("INTERVAL '1 month' <> INTERVAL '30 days'", "false"),
        ("TIMESTAMP '2026-01-03 00:00:00' - TIMESTAMP '2026-01-01 00:00:00' > INTERVAL '1 day'", "true"),
        ("TIMESTAMP '2026-01-03 00:00:00' - TIMESTAMP '2026-01-01 00:00:00' BETWEEN INTERVAL '47 hours' AND '2 days'", "true"),
        ("- INTERVAL '1 hour 5 minutes' = INTERVAL '-65 minutes'", "true"),
        ("INTERVAL '2 days' IN (INTERVAL '48 hours', NULL)", "true"),
    ])
    .await;
    let bench = of_messages(&["one"]).await;
    let from = "(VALUES (INTERVAL '1 day'), (INTERVAL '30 hours'), (INTERVAL '1 month'), (INTERVAL '1 hour')) v(x)";
    let ordered = format!("SELECT extract(epoch FROM x)::int FROM {from} ORDER BY x");
    let ordered = rows(&bench, &ordered).await.concat();
    assert_eq!(ordered, [json!(3_600), json!(86_400), json!(108_000), json!(2_592_000)]);
    for query in [
        format!("SELECT max(x) FROM {from}"),
        format!("SELECT x, count(*) FROM {from} GROUP BY x"),
        format!("SELECT DISTINCT x FROM {from}"),
    ] {
        let error = refused(&bench, &query).await;
        assert!(error.contains("extract(epoch"), "{query}: {error}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_date_and_an_interval_are_a_time() {
    give(&[
        ("DATE '2026-01-03' + INTERVAL '1 hour'", "2026-01-03T01:00:00"),
        ("DATE '2026-01-03' - INTERVAL '1 hour'", "2026-01-02T23:00:00"),
        ("INTERVAL '1 month' + DATE '2026-01-31'", "2026-02-28T00:00:00"),
        ("DATE '2026-01-03' + 5", "2026-01-08"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_values_and_lists_with_nulls_are_unknown_not_unequal() {
    give(&[
        ("(1, NULL) = (1, 2)", "null"),
        ("(1, NULL) = (2, 2)", "false"),
        ("(1, NULL) <> (2, 2)", "true"),
        ("(1, 2) < (1, 3)", "true"),
        ("(1, NULL) < (2, 1)", "true"),
        ("(2, 1) >= (2, NULL)", "null"),
        ("NOT (1, NULL) IN ((1, 2), (2, 2))", "null"),
        ("(1, 2) NOT IN ((1, 3), (2, 2))", "true"),
        ("(NULL, NULL) IS NULL", "true"),
        ("(1, NULL) IS NULL OR (1, NULL) IS NOT NULL", "false"),
        ("1 = ANY(ARRAY[NULL, 2])", "null"),
        ("1 <> ALL(ARRAY[NULL, 2])", "null"),
        ("3 > ANY(ARRAY[NULL, 2])", "true"),
        ("3 > ALL(ARRAY[1, 2])", "true"),
        ("true AND 1 = ANY(ARRAY[1, 2]) AND false", "false"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_in_a_list_have_the_type_of_what_is_looked_for() {
    let bench = of_messages(&["one", "three"]).await;
    for (condition, count) in [
        ("length(message)::int IN ('03', '7')", 1),
        ("length(message)::float8 NOT IN ('3.0')", 1),
        ("ts::date IN ('1999-12-31')", 0),
        ("message IN ('one')", 1),
    ] {
        let query = format!("SELECT count(*) FROM logs WHERE {condition}");
        assert_eq!(one(&bench, &query).await, count, "{condition}");
    }
    refused(&bench, "SELECT 1 FROM logs WHERE length(message)::int IN ('x')").await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_rounded_as_postgresql_rounds_them() {
    give(&[
        ("round(2.5::float8)", "2.0"),
        ("round(-3.5::float8)", "-4.0"),
        ("round(2.5)", "3.0"),
        ("round(2.675, 2)", "2.68"),
        ("(0.5 + 2)::int", "3"),
        ("(SELECT round(avg(x)) FROM (VALUES (2), (3)) v(x))", "3.0"),
        ("(SELECT avg(x)::int FROM (VALUES (2), (3)) v(x))", "3"),
        ("(SELECT avg(x)::int FROM (VALUES (2::float8), (3)) v(x))", "2"),
        ("(10::numeric(5,2) / 3)::text", "3.3333333333333335"),
        (
            "(SELECT round(avg(x), 6) FROM (VALUES (1::numeric(5,2)), (1), (2)) v(x))::text",
            "1.333333",
        ),
        ("(SELECT sum(x) / count(*) FROM (VALUES (2::bigint), (3)) v(x))", "2.5"),
        ("(SELECT sum(x::int) / count(*) FROM (VALUES (2), (3)) v(x))", "2"),
        (
            "(SELECT sum(CASE WHEN x > 2 THEN 1 ELSE 0 END) / count(*) FROM (VALUES (2), (3)) v(x))",
            "0",
        ),
        (
            "(SELECT percentile_cont(0.9) WITHIN GROUP (ORDER BY x) FROM (VALUES (1), (2), (4)) v(x))",
            "3.6",
        ),
        (
            "(SELECT count(*) FROM (SELECT DISTINCT trunc(x) FROM (VALUES (-0.5::float8), (0.5)) v(x)) y)",
            "1",
        ),
        ("-2 ^ 2", "4.0"),
        ("- 2 ^ 2 ^ 2", "16.0"),
        ("7 - (-2) ^ 2", "3.0"),
        ("(SELECT row_number() OVER () / 2)", "0"),
        ("mod(-5, 3)", "-2"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_of_a_pattern_has_the_signs_of_postgresql() {
    give(&[
        ("regexp_replace('abc', 'b', '$1')", "a$1c"),
        (r"regexp_replace('abc', 'b', '\&\&')", "abbc"),
        (r"regexp_replace('abcb', '(b)(c)?', '<\2\1>', 'g')", "a<cb><b>"),
        (r"regexp_replace('abc', 'b', '\\')", r"a\c"),
    ])
    .await;
    let bench = of_messages(&["one"]).await;
    let error = refused(&bench, "SELECT regexp_replace(message, '(', 'x') FROM logs").await;
    assert!(error.contains("regex"), "{error}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_by_an_expression_is_of_columns_not_of_aliases() {
    let bench = of_messages(&["a", "bb", "ccc"]).await;
    let query = "SELECT -length(message) AS n, upper(message) AS message FROM logs ORDER BY upper(message) DESC";
    assert_eq!(one(&bench, query).await, -3);
    let query = "SELECT message, -length(message) AS n FROM logs ORDER BY n";
    assert_eq!(one(&bench, query).await, "ccc");
    let query = "SELECT reverse(message) AS message FROM logs ORDER BY length(message) + 1";
    let error = refused(&bench, query).await;
    assert!(error.contains("give the alias another name"), "{error}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outer_joins_by_common_columns_do_not_lose_the_keys_of_the_right_side() {
    let bench = of_messages(&["a"]).await;
    let from = "WITH t(a, b) AS (VALUES (1, 'x')), u(a, c) AS (VALUES (2, 'y'))";
    for join in [
        "t RIGHT JOIN u USING (a)",
        "t FULL JOIN u USING (a)",
        "t NATURAL FULL JOIN u",
    ] {
        let error = refused(&bench, &format!("{from} SELECT a FROM {join}")).await;
        assert!(error.contains("coalesce(a.key, b.key)"), "{error}");
    }
    let query = format!("{from} SELECT coalesce(t.a, u.a) FROM t FULL JOIN u ON t.a = u.a ORDER BY 1");
    assert_eq!(rows(&bench, &query).await.concat(), [json!(1), json!(2)]);
    assert_eq!(
        rows(&bench, &format!("{from} SELECT a FROM t LEFT JOIN u USING (a)")).await,
        [[json!(1)]]
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everyday_forms_of_postgresql_are_understood() {
    let bench = of_messages(&["a", "50%", "c"]).await;
    for (query, expected) in [
        (
            "SELECT message FROM logs ORDER BY message FETCH FIRST 2 ROWS ONLY",
            json!([["50%"], ["a"]]),
        ),
        (
            "SELECT message FROM logs ORDER BY message OFFSET 1 ROW FETCH NEXT ROW ONLY",
            json!([["a"]]),
        ),
        (
            "SELECT message FROM logs WHERE message LIKE '50#%' ESCAPE '#'",
            json!([["50%"]]),
        ),
        (
            r"SELECT 'a\c' LIKE 'a\c' ESCAPE '', 'a_' NOT ILIKE 'A!_' ESCAPE '!'",
            json!([[true, false]]),
        ),
        (
            "SELECT message FROM logs WHERE message LIKE lower('50#%') || '%' ESCAPE '#'",
            json!([["50%"]]),
        ),
        (
            r"SELECT 'a#' LIKE lower('A##') ESCAPE '#', 'ab' LIKE lower('A#_') ESCAPE '#', 'a' LIKE lower('A') ESCAPE '#'",
            json!([[true, false, true]]),
        ),
        (
            "SELECT message FROM logs ORDER BY message COLLATE \"C\" DESC LIMIT 1",
            json!([["c"]]),
        ),
        (
            "SELECT count(*), count(*), message IS NULL, message IS NULL FROM logs GROUP BY 3 LIMIT 1",
            json!([[3, 3, false, false]]),
        ),
        ("SELECT 1, 1, 1::text, 2", json!([[1, 1, "1", 2]])),
        ("SELECT (SELECT 1), (SELECT 2), (SELECT 1)", json!([[1, 2, 1]])),
        (
            "SELECT every(length(message) > 0), variance(length(message)) FROM logs",
            json!([[true, 4.0 / 3.0]]),
        ),
        (r"SELECT U&'\0041'", json!([["A"]])),
    ] {
        assert_eq!(json!(rows(&bench, query).await), expected, "{query}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_one_day_are_ordered_by_their_times() {
    let bench = bench().await;
    for day in [
        "ts::date = DATE '2026-11-21'",
        "ts::timestamp::date = '2026-11-21'",
        "ts::date BETWEEN '2026-11-21' AND '2026-11-21'",
        "ts::date IN ('2026-11-21')",
        "DATE '2026-11-21' = ts::date",
    ] {
        let all = rows(&bench, &format!("SELECT ts FROM logs WHERE {day} ORDER BY ts")).await;
        let mut sorted = all.clone();
        sorted.sort_by_key(|row| row[0].to_string());
        assert!(all.len() > 10 && all == sorted, "{day}: {all:?}");
        let all = all.len();
        let texts = format!("SELECT count(*) FROM logs WHERE to_char(ts, 'YYYY-MM-DD') = '2026-11-21' AND {all} > 0");
        assert_eq!(one(&bench, &texts).await, all, "{day}");
    }
    let query = "SELECT count(message) AS n FROM logs WHERE ts::date = DATE '2020-01-01'";
    let answer = asked(&bench, query, json!([])).await.unwrap();
    let stats = &answer["stats"];
    assert_eq!(stats["files_pruned"], stats["files_considered"], "{answer}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decimal_is_compared_after_it_was_rounded() {
    let bench = of_messages(&["one"]).await;
    let from = "(VALUES (1.5::numeric(12,3)), (2.4::numeric(12,3)), (2.6::numeric(12,3))) v(d)";
    let query = format!("SELECT count(*) FROM {from} WHERE d::numeric(12,0) = 2");
    assert_eq!(one(&bench, &query).await, 2);
    assert_eq!(one(&bench, &query.replace("numeric(12,0) =", "int =")).await, 2);
    bench.close().await;
}
