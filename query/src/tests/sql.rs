//! SQL over rows in sealed files, open files and memory.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::ipc::reader::StreamReader;
use model::{ByteSize, FluxId, LogRecord, Timestamp};
use serde_json::{Value, json};

use super::world::{self, Random};
use super::{Bench, HOUR, now};
use crate::gate::Class;
use crate::{Error, Kind, Limits, ListQuery, Parameters, Querier, RowFormat, Statement};

fn statement(query: &str, parameters: &Value) -> Statement {
    Statement {
        query: query.to_owned(),
        parameters: serde_json::from_value::<Parameters>(parameters.clone()).unwrap(),
        ..Statement::default()
    }
}

/// The answer in a format, whole.
async fn written(querier: &Querier, format: RowFormat, statement: &Statement) -> Result<Vec<u8>, Error> {
    let mut answer = querier.sql(statement).await?;
    let mut writer = answer.writer(format)?;
    while let Some(batch) = answer.next().await? {
        writer.write(&batch, 0, usize::MAX)?;
    }
    writer.end(&json!({ "stats": answer.stats().unwrap() }))?;
    Ok(writer.take())
}

pub(super) async fn asked(bench: &Bench, query: &str, parameters: Value) -> Result<Value, Error> {
    asked_of(&bench.querier, query, parameters).await
}

pub(super) async fn asked_of(querier: &Querier, query: &str, parameters: Value) -> Result<Value, Error> {
    let json = written(querier, RowFormat::Json, &statement(query, &parameters)).await?;
    Ok(serde_json::from_slice(&json)
        .unwrap_or_else(|error| panic!("{query}: {error}: {}", String::from_utf8_lossy(&json))))
}

/// The rows as lists of values.
pub(super) async fn rows(bench: &Bench, query: &str) -> Vec<Vec<Value>> {
    let answer = asked(bench, query, json!([]))
        .await
        .unwrap_or_else(|error| panic!("{query}: {error}"));
    let columns: Vec<_> = answer["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    let row = |row: &Value| columns.iter().map(|column| row[*column].clone()).collect();
    answer["data"].as_array().unwrap().iter().map(row).collect()
}

async fn one(bench: &Bench, query: &str) -> Value {
    rows(bench, query).await[0][0].clone()
}

/// Rows of all ages: sealed, published, in memory.
async fn bench() -> Bench {
    let mut bench = Bench::new().await;
    let mut random = Random::new();
    for round in 0..3 {
        let logs: Vec<_> = (0..60).map(|_| world::log(&mut random)).collect();
        let spans: Vec<_> = (0..30).map(|_| world::span(&mut random)).collect();
        let points: Vec<_> = (0..30).map(|_| world::point(&mut random)).collect();
        bench.append(&logs).await;
        bench.append(&spans).await;
        bench.append(&points).await;
        match round {
            0 => bench.seal().await,
            1 => bench.publish().await,
            _ => {}
        }
    }
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_described_in_a_place_of_statements() {
    let bench = Bench::with(Limits::new(ByteSize::mib(256), Duration::from_secs(60), 2)).await;
    let asked = statement("SELECT 1", &json!([]));
    let place = bench.querier.enter(Class::Statement).await.unwrap();
    let refused = bench.querier.describe(&asked).await;
    assert!(
        matches!(refused, Err(Error::BusyWithStatements { running: 1 })),
        "{refused:?}"
    );
    drop(place);
    assert_eq!(bench.querier.describe(&asked).await.unwrap().columns.len(), 1);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_sees_every_row_once_and_says_what_it_cost() {
    let bench = bench().await;
    let answer = asked(&bench, "SELECT count(*) AS n, max(ts) AS newest FROM logs", json!([]))
        .await
        .unwrap();
    assert_eq!(answer["data"][0]["n"], 180, "{answer}");
    let columns = json!([{ "name": "n", "type": "bigint" }, { "name": "newest", "type": "timestamptz" }]);
    assert_eq!(answer["columns"], columns);
    assert_eq!(answer["stats"]["rows"], 1);
    assert_eq!(answer["stats"]["truncated"], false);
    for (table, count) in [("traces", 90), ("metrics", 90), ("messages", 0)] {
        assert_eq!(
            one(&bench, &format!("SELECT count(*) FROM {table}")).await,
            count,
            "{table}"
        );
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bounds_of_ts_keep_files_closed() {
    let bench = bench().await;
    let old = Timestamp::from_micros(now().micros() - 4 * HOUR);
    let since = Timestamp::from_micros(now().micros() - HOUR / 2);
    for (condition, all) in [
        (format!("ts >= '{since}'"), false),
        (format!("ts > TIMESTAMP '{since}'"), false),
        ("ts >= now() - INTERVAL '30 minutes'".to_owned(), false),
        (format!("ts BETWEEN '{since}' AND '{}' AND level <> 'x'", now()), false),
        (format!("(ts < '{old}' OR ts > '{since}') AND ts > '{since}'"), false),
        (format!("level = 'error' OR ts >= '{since}'"), true),
    ] {
        let query = format!("SELECT count(nullif(message, '')) AS n FROM logs WHERE {condition}");
        let answer = asked(&bench, &query, json!([])).await.unwrap();
        let (considered, pruned) = (&answer["stats"]["files_considered"], &answer["stats"]["files_pruned"]);
        assert!(considered.as_u64() > Some(4), "{answer}");
        assert_eq!(pruned.as_u64() == Some(0), all, "{query}: {answer}");
        let unpruned = format!("SELECT count(*) AS n FROM logs WHERE NOT (NOT ({condition}) OR random() > 2)");
        assert_eq!(answer["data"][0]["n"], one(&bench, &unpruned).await, "{query}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_compares_with_its_text_in_every_form() {
    let bench = bench().await;
    let flux = |n: u8| FluxId::at(Timestamp::from_micros(now().micros() - 3 * HOUR), [n; 10]);
    let (a, b) = (flux(0), flux(1));
    let upper = a.to_string().to_uppercase();
    let of_a = one(
        &bench,
        &format!("SELECT count(*) FROM logs WHERE uuid_text(flux_id) LIKE '{a}'"),
    )
    .await;
    assert!(of_a.as_u64() > Some(0));
    for condition in [
        format!("flux_id = '{a}'"),
        format!("'{upper}' = flux_id"),
        format!("flux_id = uuid('{a}')"),
        format!("flux_id = '{a}'::uuid"),
        format!("flux_id::text = '{a}'"),
        format!("CAST(flux_id AS VARCHAR) = '{a}'"),
        format!("flux_id IN ('{a}')"),
        format!("flux_id IN ('{a}', '{upper}', NULL)"),
        format!("flux_id BETWEEN '{a}' AND '{a}'"),
        format!("flux_id >= '{a}' AND flux_id <= '{a}'"),
        format!("flux_id IS NOT DISTINCT FROM '{a}'"),
        format!("flux_id = concat('{a}', '')"),
        format!("flux_id IN (SELECT uuid('{a}'))"),
        format!("flux_id = (SELECT '{a}')"),
    ] {
        assert_eq!(
            one(&bench, &format!("SELECT count(*) FROM logs WHERE {condition}")).await,
            of_a,
            "{condition}"
        );
        if condition.contains("(SELECT") {
            continue;
        }
        let sum = format!("SELECT sum(CASE WHEN {condition} THEN 1 ELSE 0 END) FROM logs");
        assert_eq!(one(&bench, &sum).await, of_a, "{sum}");
    }
    for (query, parameters) in [
        ("SELECT count(*) AS n FROM logs WHERE flux_id = $1", json!([a])),
        (
            "SELECT count(*) AS n FROM logs WHERE flux_id IN ($x)",
            json!({ "x": a }),
        ),
        (
            "SELECT count(*) AS n FROM logs WHERE flux_id BETWEEN $1 AND $2",
            json!([a, a]),
        ),
    ] {
        assert_eq!(
            asked(&bench, query, parameters).await.unwrap()["data"][0]["n"],
            of_a,
            "{query}"
        );
    }
    let both = one(
        &bench,
        &format!("SELECT count(*) FROM logs WHERE flux_id NOT IN ('{a}', '{b}')"),
    )
    .await;
    let others = one(
        &bench,
        &format!("SELECT count(*) FROM logs WHERE flux_id <> '{a}' AND flux_id <> '{b}'"),
    )
    .await;
    assert_eq!(both, others);
    let distinct = one(
        &bench,
        "SELECT count(*) FROM (SELECT DISTINCT flux_id FROM logs WHERE flux_id IS NOT NULL)",
    )
    .await;
    for query in [
        "SELECT count(DISTINCT flux_id) FROM logs",
        "SELECT count(DISTINCT flux_id), count(DISTINCT level), count(*) FROM logs",
        "SELECT n FROM (SELECT count(DISTINCT flux_id) AS n FROM logs HAVING count(DISTINCT flux_id) > 0)",
        "SELECT count(DISTINCT flux_id) FILTER (WHERE level <> 'no level') FROM logs",
    ] {
        assert_eq!(one(&bench, query).await, distinct, "{query}");
    }
    let made = one(
        &bench,
        &format!("SELECT DISTINCT uuid_time(flux_id) FROM logs WHERE flux_id = '{a}'"),
    )
    .await;
    assert_eq!(made, "2026-11-21T09:30:00.000000Z");
    for bad in ["'018f'", "''", "$1", "uuid('x')"] {
        let error = asked(
            &bench,
            &format!("SELECT * FROM logs WHERE flux_id = {bad}"),
            json!(["nothing"]),
        )
        .await;
        assert!(error.is_err(), "{bad}");
    }
    assert_eq!(
        one(&bench, "SELECT count(*) FROM logs WHERE flux_id = message").await,
        0
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_buckets_and_letter_case() {
    let bench = bench().await;
    for (a, b) in [
        (
            "SELECT attributes->>'gear.id' k, count(*) FROM logs GROUP BY k ORDER BY k",
            "SELECT attr(attributes, 'gear.id') k, count(*) FROM logs GROUP BY k ORDER BY k",
        ),
        (
            "SELECT date_bin(INTERVAL '5 minutes', ts) t, count(*) FROM metrics GROUP BY t ORDER BY t",
            "SELECT time_bucket(INTERVAL '5 minutes', ts) t, count(*) FROM metrics GROUP BY t ORDER BY t",
        ),
        (
            "SELECT count(*) FROM logs WHERE message ILIKE '%ÄRGER%'",
            "SELECT count(*) FROM logs WHERE contains_fold(message, 'ärgeR')",
        ),
    ] {
        assert_eq!(rows(&bench, a).await, rows(&bench, b).await, "{a}");
    }
    let numbers = "SELECT count(*) FROM logs WHERE (attributes->>'gear.id')::text IN ('0', '1')";
    let json = "SELECT count(*) FROM logs WHERE attributes->'gear.id' IN ('0', '1')";
    assert_eq!(one(&bench, numbers).await, one(&bench, json).await);
    assert_eq!(
        one(&bench, "SELECT json_keys('{\"b\":1,\"a\":2}')").await,
        "[\"a\",\"b\"]"
    );
    assert_eq!(one(&bench, "SELECT '{\"a\":{\"b\":[1,2]}}'->'a'->>'b'").await, "[1,2]");
    assert_eq!(
        one(&bench, "SELECT time_bucket('1 hour', TIMESTAMP '2026-11-21 10:59:59')").await,
        "2026-11-21T10:00:00"
    );
    bench.close().await;
}

/// Rows with these messages, in memory.
async fn of_messages(messages: &[&str]) -> Bench {
    let bench = Bench::new().await;
    let mut random = Random::new();
    let logs: Vec<_> = messages
        .iter()
        .map(|message| LogRecord {
            message: (*message).to_owned(),
            ..world::log(&mut random)
        })
        .collect();
    bench.append(&logs).await;
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backslash_in_a_pattern_escapes_as_the_pattern_says_in_every_operator() {
    let bench = of_messages(&[r"c:\temp", r"C:\TEMP", r"a\cd", r"a\\cd", "plain", "100%"]).await;
    let from = r"(SELECT message, 'c:\\temp' AS p FROM logs)";
    for (condition, count) in [
        (r"message ~ 'c:\\temp'", 1),
        (r"message ~* 'c:\\temp'", 2),
        (r"message !~ 'c:\\temp'", 5),
        (r"message !~* 'c:\\temp'", 4),
        (r"message ~* '\\'", 4),
        (r"message !~* '\\'", 2),
        (r"message ~* '\\\\'", 1),
        (r"message ~* '^a\\cd$'", 1),
        (r"message ~* '^A\\CD|PLAIN$'", 2),
        (r"message !~ '\\|%'", 1),
        (r"regexp_like(message, '\\')", 4),
        (r"regexp_like(message, 'C:\\t', 'i')", 2),
        (r"regexp_like(message, 'c:\\t', '')", 1),
        (r"message ~* ('c:' || '\\temp')", 2),
        (r"message ~* p", 2),
        (r"message !~ p", 5),
        (r"NULL::text ~* '\\'", 0),
        (r"message !~ NULL::text", 0),
    ] {
        for query in [
            format!("SELECT count(*) FROM {from} WHERE {condition}"),
            format!("SELECT count(CASE WHEN {condition} THEN 1 END) FROM {from}"),
        ] {
            assert_eq!(one(&bench, &query).await, count, "{query}");
        }
    }
    let by_parameter = "SELECT count(*) AS n FROM logs WHERE message ~* $1";
    let answer = asked(&bench, by_parameter, json!([r"c:\\temp"])).await.unwrap();
    assert_eq!(answer["data"][0]["n"], 2);
    let patterns_of_rows = r"SELECT count(*) FROM logs, (VALUES ('C:\\'), ('plain'), (NULL)) v(p) WHERE message ~* p";
    assert_eq!(one(&bench, patterns_of_rows).await, 3);
    for bad in [
        "message ~* '('",
        "message !~ 'a{2'",
        "regexp_like(message, '[', 'i')",
        "message ~ lower('(')",
    ] {
        let error = asked(&bench, &format!("SELECT 1 FROM logs WHERE {bad}"), json!([]))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Statement, "{bad}: {error:?}");
        assert!(
            error.to_string().contains("is not a regular expression"),
            "{bad}: {error}"
        );
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn similar_to_matches_the_whole_text_with_the_wildcards_of_sql() {
    let bench = of_messages(&["abc", "b", "a.c", "100%"]).await;
    for (condition, count) in [
        ("message SIMILAR TO '%b%'", 2),
        ("message SIMILAR TO 'b'", 1),
        ("message NOT SIMILAR TO 'b'", 3),
        ("message SIMILAR TO '(a|b)(bc|.c)?'", 3),
        ("message SIMILAR TO 'a_c'", 2),
        ("message SIMILAR TO '100#%' ESCAPE '#'", 1),
        ("message SIMILAR TO NULL", 0),
    ] {
        let query = format!("SELECT count(*) FROM logs WHERE {condition}");
        assert_eq!(one(&bench, &query).await, count, "{condition}");
    }
    let computed = "SELECT 1 FROM logs WHERE message SIMILAR TO level";
    let error = asked(&bench, computed, json!([])).await.unwrap_err();
    assert!(error.to_string().contains("match a computed one with ~"), "{error}");
    bench.close().await;
}

/// What a statement without a table gives, as a row of texts.
async fn said(bench: &Bench, expressions: &str) -> Vec<String> {
    let row = rows(bench, &format!("SELECT {expressions}")).await.remove(0);
    row.iter()
        .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_of_distinctness_is_one_condition_among_others() {
    let bench = of_messages(&["a", "b", "b"]).await;
    assert_eq!(
        said(
            &bench,
            "true IS DISTINCT FROM true AND false, false OR 1 IS NOT DISTINCT FROM 1 AND true"
        )
        .await,
        ["false", "true"]
    );
    let query = "SELECT count(*) FROM logs WHERE (message = 'b') IS NOT DISTINCT FROM true AND message IS DISTINCT FROM 'a' \
                 AND level IS NOT NULL";
    assert_eq!(one(&bench, query).await, 2);
    bench.close().await;
}

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
async fn a_time_between_two_microseconds_is_the_nearer_wherever_it_is_compared() {
    let bench = Bench::new().await;
    let midnight: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
    let mut random = Random::new();
    let logs: Vec<_> = [-1, 0, 1]
        .map(|micros| LogRecord {
            ts: Timestamp::from_micros(midnight.micros() + micros),
            ..world::log(&mut random)
        })
        .into();
    bench.append(&logs).await;
    bench.publish().await;
    let (before, after) = ("2026-11-20 23:59:59.9999994", "2026-11-20 23:59:59.9999995");
    for (condition, count) in [
        (format!("ts = TIMESTAMP '{before}'"), 1),
        (format!("ts < TIMESTAMP '{before}'"), 0),
        (format!("ts >= TIMESTAMP '{after}' AND ts < '2026-11-21T00:00:00Z'"), 0),
        (format!("ts >= '{after}' AND ts < '2026-11-21T00:00:00Z'"), 0),
        (format!("ts <= '{after}'"), 2),
        (format!("ts = to_timestamp_nanos('{after}')"), 1),
        (format!("ts BETWEEN '{after}' AND '{after}'"), 1),
        (format!("ts NOT IN ('{after}', TIMESTAMPTZ '{before}')"), 1),
        (format!("ts IS DISTINCT FROM '{after}'"), 2),
        (format!("CASE WHEN ts > '{before}' THEN true ELSE false END"), 2),
        (format!("'{after}' = ts"), 1),
    ] {
        let query = format!("SELECT count(*) FROM logs WHERE {condition}");
        assert_eq!(one(&bench, &query).await, count, "{condition}");
    }
    let asks = asked(&bench, "SELECT count(*) AS n FROM logs WHERE ts >= $1", json!([after]))
        .await
        .unwrap();
    assert_eq!(asks["data"][0]["n"], 2);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_times_and_of_differences_keep_their_fractions() {
    let bench = of_messages(&["one"]).await;
    let difference = "(TIMESTAMP '2026-07-02 05:03:56.851275' - TIMESTAMP '2026-07-01 00:00:00')";
    let interval = "INTERVAL '1 day 5 hours 3 minutes 56.851275 seconds'";
    let at = "TIMESTAMP '2026-07-02 05:03:56.851275'";
    for (part, of_difference, of_interval, of_time) in [
        ("epoch", "104636.851275", "104636.851275", "1782968636.851275"),
        ("day", "1", "1", "2"),
        ("hour", "5", "5", "5"),
        ("minute", "3", "3", "3"),
        ("second", "56.851275", "56.851275", "56.851275"),
        ("milliseconds", "56851.275", "56851.275", "56851.275"),
        ("microseconds", "56851275", "56851275", "56851275"),
    ] {
        for (of, expected) in [(difference, of_difference), (interval, of_interval), (at, of_time)] {
            let both = format!("extract({part} FROM {of}), date_part('{part}', {of})");
            assert_eq!(said(&bench, &both).await, [expected, expected], "{part} of {of}");
        }
    }
    let of_rows = "SELECT extract(epoch FROM max(ts) + INTERVAL '2.25 seconds' - max(ts)) FROM logs";
    assert_eq!(one(&bench, of_rows).await, 2.25);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn to_char_writes_times_by_the_patterns_of_postgresql() {
    let bench = of_messages(&["one"]).await;
    let at = "TIMESTAMPTZ '2026-07-02 15:03:06.851275Z'";
    for (pattern, expected) in [
        ("YYYY-MM-DD HH24:MI:SS", "2026-07-02 15:03:06"),
        ("yyyy-mm-dd", "2026-07-02"),
        ("HH12:MI AM", "03:03 PM"),
        ("FMHH:MI pm", "3:03 pm"),
        ("SS.MS US", "06.851 851275"),
        ("YYYY-MM-DD\"T\"HH24:MI TZ", "2026-07-02T15:03 UTC"),
        ("HH24OF", "15+00"),
        ("Dy, DD Mon YY", "Thu, 02 Jul 26"),
        ("DAY|Month|FMmonth|DDD", "THURSDAY |July     |july|183"),
        ("IYYY-IW-ID", "2026-27-4"),
        ("%Y/%m", "2026/07"),
    ] {
        assert_eq!(
            said(&bench, &format!("to_char({at}, '{pattern}')")).await,
            [expected],
            "{pattern}"
        );
    }
    assert_eq!(
        said(
            &bench,
            "to_char(DATE '2026-07-02', 'DD.MM.YYYY HH24'), to_char(TIMESTAMP '2026-07-02 15:03:06', 'HH24 TZ'), \
             to_char(NULL::timestamp, 'Month')"
        )
        .await,
        ["02.07.2026 00", "15 ", "null"]
    );
    for (bad, way) in [
        ("to_char(now(), 'YYYY-MM-DDTHH24')", "'THH24'"),
        ("to_char(now(), message)", "written as a text"),
        ("to_char(now() - ts, 'HH24:MI')", "extract("),
    ] {
        let error = asked(&bench, &format!("SELECT {bad} FROM logs"), json!([]))
            .await
            .unwrap_err();
        assert!(error.to_string().contains(way), "{bad}: {error}");
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
    ] {
        let error = asked(&bench, &format!("SELECT {expression} FROM logs"), json!([]))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Statement, "{expression}: {error:?}");
        assert!(error.to_string().contains("verflow"), "{expression}: {error}");
    }
    assert_eq!(
        said(&bench, "9223372036854775806 + 1, 2147483647::int + 1, 3 - 5, 6 * -7, NULL::int + 1, 1 + 0.5, 2::smallint * 3::smallint").await,
        ["9223372036854775807", "2147483648", "-2", "-42", "null", "1.5", "6"]
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
        format!("SELECT sum({most}) OVER (ORDER BY message ROWS 1 PRECEDING) FROM logs"),
    ] {
        let error = asked(&bench, &query, json!([])).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Statement, "{query}: {error:?}");
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
    assert_eq!(names["columns"][0]["name"], "sum(character_length(logs.message))");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_two_tables_are_aggregated_together() {
    let bench = bench().await;
    let both =
        "SELECT ts, entity_name, message AS what FROM logs UNION ALL SELECT ts, entity_name, span_name FROM traces";
    let query = format!(
        "WITH e AS ({both}) SELECT sum(n) FROM (SELECT entity_name, count(*) AS n FROM e GROUP BY entity_name)"
    );
    assert_eq!(one(&bench, &query).await, 270);
    let narrow = "SELECT level, ts FROM logs UNION ALL SELECT status, ts FROM traces";
    let query = format!("SELECT count(*), count(DISTINCT level), max(ts) FROM ({narrow}) x WHERE level <> 'no level'");
    assert_eq!(rows(&bench, &query).await[0][0], 270);
    let ids = "SELECT flux_id, level FROM logs UNION ALL SELECT flux_id, status FROM traces";
    let query =
        format!("SELECT count(*) FROM (SELECT level FROM ({ids}) x GROUP BY flux_id, level HAVING count(*) > 0) y");
    assert!(one(&bench, &query).await.as_u64() > Some(0));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_a_moment_has_the_type_of_moments() {
    let bench = of_messages(&["one"]).await;
    let query = "SELECT now() AS a, current_timestamp AS b, TIMESTAMPTZ '2026-07-01 12:00:00+02' AS c, to_timestamp(0) AS d, \
                 '2026-07-01'::timestamp with time zone AS e, TIMESTAMP '2026-07-01 12:00:00' AS f FROM logs \
                 WHERE ts < now() AND ts < current_timestamp + INTERVAL '1 day' AND ts <> TIMESTAMPTZ '2026-07-01 12:00:00+02'";
    let answer = asked(&bench, query, json!([])).await.unwrap();
    let types: Vec<_> = answer["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| &column["type"])
        .collect();
    assert_eq!(
        types,
        [
            "timestamptz",
            "timestamptz",
            "timestamptz",
            "timestamptz",
            "timestamptz",
            "timestamp"
        ]
    );
    let row = &answer["data"][0];
    assert_eq!(row["a"], now().to_string());
    assert_eq!(row["c"], "2026-07-01T10:00:00.000000Z");
    assert_eq!(row["d"], "1970-01-01T00:00:00.000000Z");
    assert_eq!(row["e"], "2026-07-01T00:00:00.000000Z");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_time_zone_moves_between_moments_and_what_clocks_show() {
    let bench = of_messages(&["one"]).await;
    for (expression, expected) in [
        (
            "TIMESTAMPTZ '2026-07-01 10:00:00Z' AT TIME ZONE 'Europe/Berlin'",
            "2026-07-01T12:00:00",
        ),
        (
            "'2026-01-01T10:00:00Z' AT TIME ZONE 'Europe/Berlin'",
            "2026-01-01T11:00:00",
        ),
        (
            "TIMESTAMP '2026-07-01 12:00:00' AT TIME ZONE 'Europe/Berlin'",
            "2026-07-01T10:00:00.000000Z",
        ),
        (
            "TIMESTAMP '2026-07-01 12:00:00' AT TIME ZONE 'Europe/Berlin' AT TIME ZONE 'America/New_York'",
            "2026-07-01T06:00:00",
        ),
        (
            "extract(hour FROM TIMESTAMPTZ '2026-07-01 10:00:00Z' AT TIME ZONE 'Europe/Berlin')",
            "12",
        ),
        (
            "date_trunc('day', TIMESTAMPTZ '2026-07-01 23:00:00Z' AT TIME ZONE 'Europe/Berlin') AT TIME ZONE 'Europe/Berlin'",
            "2026-07-01T22:00:00.000000Z",
        ),
        ("timezone('UTC', NULL::timestamp)", "null"),
    ] {
        assert_eq!(said(&bench, expression).await, [expected], "{expression}");
    }
    let of_rows = "SELECT count(*) FROM logs WHERE ts AT TIME ZONE 'UTC' AT TIME ZONE 'UTC' = ts";
    assert_eq!(one(&bench, of_rows).await, 1);
    for bad in [
        "now() AT TIME ZONE '+02'",
        "now() AT TIME ZONE 'Nowhere'",
        "5 AT TIME ZONE 'UTC'",
    ] {
        let error = asked(&bench, &format!("SELECT {bad}"), json!([])).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Statement, "{bad}: {error:?}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_at_fault_in_a_statement_is_named_with_its_place() {
    let bench = bench().await;
    for (query, part, place) in [
        ("SELECT *\nFROM logs WHERE", "Expected", false),
        ("SELECT *\nFROM logs WHERE )", "Expected", true),
        ("SELECT 'open", "string", true),
        ("SELECT levl FROM logs", "levl", true),
        ("SELECT\n  l.nothing\nFROM logs l", "nothing", true),
        ("SELECT * FROM logz", "logs, traces, metrics, messages", true),
        ("SELECT foo(1)", "foo", true),
        ("SELECT repeat('x', 2000000000)", "repeat", true),
        ("SELECT 1/0", "zero", false),
        (
            "SELECT time_bucket(INTERVAL '1 month', ts) FROM logs",
            "date_trunc",
            false,
        ),
        ("SELECT * FROM logs WHERE flux_id = 5", "uuid", false),
        ("SELECT * FROM '/etc/passwd'", "", false),
        ("SELECT * FROM platform.public.dead_letters", "logs, traces", false),
        ("SELECT CAST(message AS INT) FROM logs", "Cast", false),
        ("SELECT message FROM logs GROUP BY level", "GROUP BY", false),
        ("", "SELECT", false),
    ] {
        let error = asked(&bench, query, json!([])).await.unwrap_err();
        let Error::Statement { reason, at } = &error else {
            panic!("{query}: {error:?}");
        };
        println!("{query:?} -> {error}");
        assert!(reason.contains(part), "{query}: {error}");
        assert!(!place || at.is_some(), "{query}: {error:?}");
    }
    let error = asked(&bench, "DROP TABLE logs", json!([])).await.unwrap_err();
    assert_eq!(error.kind(), Kind::ReadOnly);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_formats_have_the_same_rows() {
    let bench = bench().await;
    let query = "SELECT l.ts, flux_id, level, attributes, attributes a, NULL AS nothing, '' AS empty, '\"a\",\n' AS odd, \
                 1.5::real AS r, 'NaN'::double AS nan, X'00ff' AS b, true AS t, [1, NULL] AS list, x.ts, count(*) OVER () n \
                 FROM logs l CROSS JOIN (SELECT TIMESTAMP '2026-11-21 10:00:00' AS ts) x ORDER BY l.ts DESC, level, message, uuid_text(flux_id), attributes LIMIT 50";
    let asked = statement(query, &json!([]));
    let json: Value = serde_json::from_slice(&written(&bench.querier, RowFormat::Json, &asked).await.unwrap()).unwrap();
    let names: Vec<_> = json["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(names[names.len() - 2], "ts_1", "{names:?}");
    let row = &json["data"][0];
    assert!(row["attributes"].is_object() && row["a"].is_string(), "{row}");
    assert_eq!(row["nan"], "NaN");
    assert_eq!(row["b"], "00ff");
    assert_eq!(row["list"], json!([1, null]));
    let lines = String::from_utf8(written(&bench.querier, RowFormat::Ndjson, &asked).await.unwrap()).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(json["data"], json!(lines));
    let csv = String::from_utf8(written(&bench.querier, RowFormat::Csv, &asked).await.unwrap()).unwrap();
    assert!(
        csv.starts_with("ts,flux_id,level,attributes,a,nothing,empty,odd,r,nan,b,t,list,ts_1,n\n2026-"),
        "{csv}"
    );
    assert!(
        csv.contains(",,\"\",\"\"\"a\"\",\n\",1.5,NaN,00ff,true,\"[1,null]\",2026-11-21T10:00:00,"),
        "{csv}"
    );
    let arrow = written(&bench.querier, RowFormat::Arrow, &asked).await.unwrap();
    let batches = StreamReader::try_new(arrow.as_slice(), None).unwrap();
    let count: usize = batches.map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(count, 50);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_cuts_and_says_so() {
    let bench = bench().await;
    for (limit, given, truncated) in [(Some(7), 7, true), (Some(180), 180, false), (None, 180, false)] {
        for query in ["SELECT * FROM logs", "SELECT * FROM logs ORDER BY ts DESC"] {
            let asked = Statement {
                limit,
                ..statement(query, &json!([]))
            };
            let json: Value =
                serde_json::from_slice(&written(&bench.querier, RowFormat::Json, &asked).await.unwrap()).unwrap();
            assert_eq!(json["data"].as_array().map(Vec::len), Some(given));
            assert_eq!(json["stats"]["truncated"], truncated);
        }
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_whose_reader_leaves_gives_its_place_back() {
    let bench = bench().await;
    let crossed = "SELECT a.message, b.message FROM logs a, logs b, logs c";
    for _ in 0..12 {
        let mut answer = bench.querier.sql(&statement(crossed, &json!([]))).await.unwrap();
        assert!(answer.next().await.unwrap().is_some());
    }
    let gate = Arc::clone(&bench.querier.gate);
    super::until("all places", || gate.free() == 4).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_answered_beside_as_many_heavy_statements_as_may_run() {
    let bench = bench().await;
    let crossed =
        "SELECT count(*) FROM logs a, logs b, logs c, logs d WHERE a.message || b.message < c.message || d.message";
    let crossed = statement(crossed, &json!([]));
    {
        let heavy = futures::future::join_all((0..3).map(|_| bench.querier.sql(&crossed)));
        let other = async {
            super::until("three statements to run", || bench.querier.gate.free() == 1).await;
            let refused = bench.querier.sql(&statement("SELECT 1", &json!([]))).await.err();
            let listed = bench
                .querier
                .page(ListQuery::Logs(model::filter::LogFilter::default()))
                .await;
            (refused, listed)
        };
        tokio::pin!(heavy, other);
        let ended = futures::future::select(heavy, other).await;
        let futures::future::Either::Right(((refused, listed), _)) = ended else {
            panic!("a statement came to its end: this test is too small");
        };
        assert!(
            matches!(refused, Some(Error::BusyWithStatements { running: 3 })),
            "{refused:?}"
        );
        assert_eq!(listed.unwrap().rows.len(), 100);
    }
    let gate = Arc::clone(&bench.querier.gate);
    super::until("all places", || gate.free() == 4).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_show_and_describe_answer() {
    let bench = bench().await;
    for query in [
        "EXPLAIN SELECT * FROM logs WHERE flux_id = '018f2c1e-0000-7000-8000-000000000000'",
        "EXPLAIN ANALYZE SELECT count(*) FROM logs",
        "EXPLAIN VERBOSE SELECT count(*) FROM logs",
        "SHOW TABLES",
        "SHOW COLUMNS FROM logs",
        "DESCRIBE traces",
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 20) SELECT sum(n) FROM t",
    ] {
        assert!(!rows(&bench, query).await.is_empty(), "{query}");
    }
    bench.close().await;
}
