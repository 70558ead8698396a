//! Numbers: casts, sums and products that do not fit.

use serde_json::json;

use super::{asked, of_messages, one, rows, said};
use crate::QueryErrorKind;

#[tokio::test(flavor = "multi_thread")]
async fn casts_cut_texts_and_round_numbers() {
    let bench = of_messages(&["äbc"]).await;
    for (expression, expected) in [
        ("2.7::int", "3"),
        ("2.5::int", "3"),
        ("-2.5::int", "-3"),
        ("CAST(1.5::float8 + 1 AS bigint)", "2"),
        ("(3.5::real + 0)::smallint", "4"),
        ("2.5::decimal(3, 1)::int", "3"),
        ("(-99.96::decimal(5, 2))::int", "-100"),
        ("TRY_CAST(7.6 AS int)", "8"),
        ("16777217::float", "16777217.0"),
        ("16777217::float(53)", "16777217.0"),
        ("16777217::float(24)", "16777216.0"),
        ("'äbc'::varchar(2)", "äb"),
        ("'ab'::character varying(5)", "ab"),
        ("'abc'::char", "a"),
        ("CAST('abc' AS char(2))", "ab"),
        ("12345::varchar(3)", "123"),
        ("'abc'::varchar", "abc"),
        ("NULL::varchar(2)", "null"),
    ] {
        assert_eq!(said(&bench, expression).await, [expected], "{expression}");
    }
    let of_rows = "SELECT count(*) FROM logs WHERE message::varchar(1) = 'ä' AND length(entity_id::varchar(8)) = 8";
    assert_eq!(one(&bench, of_rows).await, 1);
    let named = asked(&bench, "SELECT message::varchar(2) FROM logs", json!([]))
        .await
        .unwrap();
    assert_eq!(named["data"][0]["logs.message"], "äb", "{named}");
    for bad in ["'a'::varchar(0)", "1::float(54)", "1::float(0)"] {
        assert!(
            asked(&bench, &format!("SELECT {bad}"), json!([])).await.is_err(),
            "{bad}"
        );
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_numbers_that_do_not_fit_are_an_error() {
    let bench = of_messages(&["one", "two"]).await;
    let most = "length(message) + 9223372036854775804";
    for expression in [
        "9223372036854775807 + 1".to_owned(),
        "-9223372036854775807 - 2".to_owned(),
        "9223372036854775807 * 2".to_owned(),
        "2147483647::int + 1::int".to_owned(),
        format!("{most} + 1"),
        format!("({most}) * length(message)"),
        format!("-(-({most}) - 1)"),
    ] {
        let error = asked(&bench, &format!("SELECT {expression} FROM logs"), json!([]))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), QueryErrorKind::Statement, "{expression}: {error:?}");
        assert!(error.to_string().contains("verflow"), "{expression}: {error}");
    }
    assert_eq!(
        said(&bench, "9223372036854775806 + 1, 2147483647::int + 1, 3 - 5, 6 * -7, NULL::int + 1, 1 + 0.5, 2::smallint * 3::smallint, -(3 - 5), -NULL::int, -count(*)").await,
        ["9223372036854775807", "2147483648", "-2", "-42", "null", "1.5", "6", "2", "null", "-1"]
    );
    assert_eq!(one(&bench, &format!("SELECT max({most}) FROM logs")).await, i64::MAX);
    let grouped = "SELECT length(message) + 1, count(*) FROM logs GROUP BY length(message) + 1 ORDER BY length(message) + 1 LIMIT 1 + 1";
    assert_eq!(rows(&bench, grouped).await, [[json!(4), json!(2)]]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_of_whole_numbers_that_do_not_fit_are_an_error() {
    let bench = of_messages(&["one", "two"]).await;
    let most = "length(message) + 9223372036854775804";
    for query in [
        format!("SELECT sum({most}) FROM logs"),
        format!("SELECT length(message), sum({most}) FROM logs GROUP BY 1"),
        format!("SELECT sum({most}) OVER () FROM logs"),
        "SELECT sum(a.ts - TIMESTAMPTZ '1800-01-01 00:00:00.000000001Z') FROM logs a, logs b".to_owned(),
        format!("SELECT sum({most}) OVER (ORDER BY message ROWS 1 PRECEDING) FROM logs"),
    ] {
        let error = asked(&bench, &query, json!([])).await.unwrap_err();
        assert_eq!(error.kind(), QueryErrorKind::Statement, "{query}: {error:?}");
        assert!(error.to_string().contains("is out of range"), "{query}: {error}");
    }
    let query = format!(
        "SELECT sum(length(message)) AS a, sum(DISTINCT length(message)) AS b, sum({most}) FILTER (WHERE message = 'one') AS c, \
         sum(1) AS d, sum(0.5) AS e, sum(length(message)) + 1 AS f FROM logs HAVING sum(length(message)) > 5"
    );
    let answer = asked(&bench, &query, json!([])).await.unwrap();
    assert_eq!(
        answer["data"],
        json!([{"a": 6, "b": 3, "c": i64::MAX, "d": 2, "e": 1.0, "f": 7}])
    );
    assert_eq!(answer["columns"][0]["type"], "bigint");
    let grouped = "SELECT message, sum(n) AS s, sum(sum(n)) OVER (ORDER BY message) AS w \
                   FROM (SELECT message, length(message)::smallint AS n FROM logs) x GROUP BY ROLLUP (message) ORDER BY message";
    let rows = rows(&bench, grouped).await;
    assert_eq!(
        rows,
        [
            [json!("one"), json!(3), json!(3)],
            [json!("two"), json!(3), json!(6)],
            [json!(null), json!(6), json!(12)],
        ]
    );
    let names = asked(&bench, "SELECT sum(length(message)), max(level) FROM logs", json!([]))
        .await
        .unwrap();
    assert_eq!(names["columns"][0]["name"], "sum(length(logs.message))");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn averages_of_differences_and_quotients_of_big_sums_are_not_cut() {
    let bench = of_messages(&["one", "three"]).await;
    let query = "SELECT sum(length(message)::bigint) / 3 AS a, sum(length(message)::bigint) / count(*) AS b, \
                 avg(CASE WHEN message = 'one' THEN ts - ts ELSE TIMESTAMPTZ '2026-11-21 10:00:00.000003Z' \
                 - TIMESTAMPTZ '2026-11-21 10:00:00Z' END) AS d FROM logs";
    assert_eq!(
        rows(&bench, query).await,
        [[json!(8.0 / 3.0), json!(4.0), json!("PT0.000002S")]]
    );
    let long = "SELECT avg(TIMESTAMPTZ '2026-11-26 10:00:00.000003Z' - TIMESTAMPTZ '2000-01-31 10:00:00Z') FROM logs a, logs b";
    assert_eq!(one(&bench, long).await, "PT846374400.000003S");
    assert_eq!(one(&bench, "SELECT sum(length(message)) / 3 FROM logs").await, 2);
    assert_eq!(
        one(
            &bench,
            "SELECT log(length(message) + 997) FROM logs WHERE message = 'one'"
        )
        .await,
        3.0
    );
    assert_eq!(one(&bench, "SELECT log(1000)").await, 3.0);
    let named = "SELECT s / 3 FROM (SELECT sum(length(message)::bigint) AS s FROM logs) x";
    assert_eq!(one(&bench, named).await, json!(8.0 / 3.0));
    let cast = "SELECT s / 3 FROM (SELECT sum(length(message)::bigint)::bigint AS s FROM logs) x";
    assert_eq!(one(&bench, cast).await, 2);
    assert_eq!(
        one(&bench, "SELECT round(-0.0001 * length(message), 2) FROM logs LIMIT 1")
            .await
            .to_string(),
        "0.0"
    );
    bench.close().await;
}
