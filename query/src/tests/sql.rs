//! SQL over rows in sealed files, open files and memory.

mod answers;
mod joins;
mod numbers;
mod orders;
mod patterns;
mod postgres;
mod subqueries;
mod times;

use std::time::Duration;

use model::{ByteSize, FluxId, LogRecord, Timestamp};
use serde_json::{Value, json};

use super::random_world::{self, Random};
use super::{Bench, HOUR, now};
use crate::admission_gate::QueryClass;
use crate::{Error, QueryEngine, QueryErrorKind, QueryLimits, RowFormat, SqlParameters, SqlStatement};

fn statement(query: &str, parameters: &Value) -> SqlStatement {
    SqlStatement {
        query: query.to_owned(),
        parameters: serde_json::from_value::<SqlParameters>(parameters.clone()).unwrap(),
        ..SqlStatement::default()
    }
}

/// The answer in a format, whole.
async fn written(querier: &QueryEngine, format: RowFormat, statement: &SqlStatement) -> Result<Vec<u8>, Error> {
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

pub(super) async fn asked_of(querier: &QueryEngine, query: &str, parameters: Value) -> Result<Value, Error> {
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
        let logs: Vec<_> = (0..60).map(|_| random_world::log(&mut random)).collect();
        let spans: Vec<_> = (0..30).map(|_| random_world::span(&mut random)).collect();
        let points: Vec<_> = (0..30).map(|_| random_world::point(&mut random)).collect();
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
    let bench = Bench::with(QueryLimits::new(ByteSize::mib(256), Duration::from_secs(60), 2)).await;
    let asked = statement("SELECT 1", &json!([]));
    let place = bench.querier.enter(QueryClass::Statement).await.unwrap();
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
        ("SELECT repeat('x', 2000000000)", "repeat", false),
        ("SELECT array_repeat('x', 2000000000)", "array_repeat", true),
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
    assert_eq!(error.kind(), QueryErrorKind::ReadOnly);
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

/// Rows with these messages, in memory.
async fn of_messages(messages: &[&str]) -> Bench {
    let bench = Bench::new().await;
    let mut random = Random::new();
    let logs: Vec<_> = messages
        .iter()
        .map(|message| LogRecord {
            message: (*message).to_owned(),
            ..random_world::log(&mut random)
        })
        .collect();
    bench.append(&logs).await;
    bench
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
