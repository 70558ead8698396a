//! A statement in a scope answers as over a store that has nothing else, and nothing that it says is evaluated on other rows.

use model::Table;
use serde_json::json;

use super::random_world::ENTITIES;
use super::scoped_world::{SECRET, entities, scoped_worlds, scopes, tables, worlds};
use super::sql::asked_of;
use crate::{Error, QueryEngine, QueryErrorKind, SqlDialect, SqlStatement};

/// What fails on a row outside the scope, or counts one. Rows of scopes have numbers as texts, and no 0.
const STATEMENTS: &[&str] = &[
    // Casts and divisions, wherever a plan may move them to.
    "SELECT CAST(message AS INT) AS n FROM logs ORDER BY n",
    "SELECT count(*) FROM logs WHERE CAST(message AS INT) >= 0",
    "SELECT count(*) FROM logs WHERE message::int > 5 AND level = 'error' AND ts > now() - INTERVAL '3 hours'",
    "SELECT sum(1 / value::bigint), count(*) FROM metrics",
    "SELECT count(*) FROM metrics WHERE 1 / value::bigint >= 0",
    "SELECT count(*) FROM metrics WHERE name <> 'geheim' AND 1 / value::bigint >= 0",
    "SELECT message::int AS n, ts FROM logs ORDER BY message::int DESC, ts LIMIT 3",
    "SELECT max(message::int), min(message::int), sum(message::int) FROM logs",
    "SELECT level, sum(message::bigint) AS n FROM logs GROUP BY level HAVING sum(message::bigint) > 0 ORDER BY level",
    "SELECT message::int % 3 AS k, count(*) FROM logs GROUP BY message::int % 3 ORDER BY k",
    "SELECT count(*) FROM logs WHERE CASE WHEN entity_name = 'rack-a' THEN true ELSE message::int > 0 END",
    "SELECT count(*) FROM logs a JOIN logs b ON a.message::int = b.message::int",
    "SELECT count(*) FROM logs a JOIN (SELECT message::int AS n FROM logs WHERE level = 'error' LIMIT 100) b ON a.message::int = b.n",
    "SELECT count(*) FROM logs a LEFT JOIN metrics m ON a.entity_id = m.entity_id AND 1 / m.value::bigint >= 0",
    "SELECT count(*) FROM logs WHERE message::int IN (SELECT value::int FROM metrics WHERE 1 / value::bigint >= 0)",
    "SELECT count(*) FROM logs l WHERE EXISTS (SELECT 1 FROM metrics m WHERE m.entity_id = l.entity_id AND 1 / m.value::bigint >= 0)",
    "SELECT (SELECT max(message::int) FROM logs) AS most, (SELECT count(*) FROM logs) AS n",
    "SELECT n, row_number() OVER (ORDER BY n, ts) FROM (SELECT message::int AS n, ts FROM logs) x ORDER BY 1, 2",
    "WITH x AS (SELECT message::int AS n FROM logs) SELECT count(*) FROM x WHERE n > (SELECT avg(n) FROM x)",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT r.n + 1 FROM r WHERE r.n < (SELECT count(*) FROM logs WHERE message::int < 4)) SELECT count(*) FROM r",
    "SELECT message::int AS n FROM logs UNION ALL SELECT value::int FROM metrics ORDER BY n",
    "SELECT DISTINCT ON (level) level, message::int FROM logs ORDER BY level, message::int, ts",
    "SELECT (promoted->>'amount')::int AS n FROM messages ORDER BY n",
    "SELECT uuid(city) FROM messages_order WHERE amount < 0",
    "SELECT sum(10 / amount), count(*), sum(city::int) FROM messages_order",
    "SELECT count(*) FROM messages_order WHERE 10 / amount >= 0 AND city::int >= 0",
    "SELECT amount, city FROM messages_order ORDER BY amount, city, ts LIMIT 7",
    "SELECT city::int AS n, count(*) FROM messages_order GROUP BY 1 ORDER BY 1",
    // What roll-ups, statistics, indexes and our own scan would answer.
    "SELECT count(*) FROM logs",
    "SELECT count(*), min(ts), max(ts) FROM logs",
    "SELECT level, count(*) FROM logs GROUP BY level ORDER BY level",
    "SELECT entity_name, level, count(*) FROM logs GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT date_trunc('hour', ts) AS at, count(*) FROM logs GROUP BY 1 ORDER BY 1",
    "SELECT date_trunc('minute', ts) AS at, entity_name, avg(value), sum(value), min(value), max(value), count(*) FROM metrics GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT name, count(*) FROM metrics GROUP BY name ORDER BY name",
    "SELECT count(DISTINCT flux_id), count(DISTINCT entity_id) FROM logs",
    "SELECT count(DISTINCT flux_id) FROM messages",
    "SELECT count(*) FROM logs WHERE entity_name = 'rack-b'",
    "SELECT count(*) FROM logs WHERE entity_name <> 'rack-a' OR true",
    "SELECT count(*) FROM logs WHERE message LIKE '%geheim%' OR attributes->>'geheim' IS NOT NULL",
    "SELECT * FROM logs WHERE contains_fold(message, 'geheim') ORDER BY ts DESC LIMIT 5",
    "SELECT ts, entity_name FROM logs ORDER BY ts DESC LIMIT 1",
    "SELECT ts FROM logs ORDER BY ts DESC LIMIT 30",
    "SELECT ts FROM logs ORDER BY ts LIMIT 30 OFFSET 3",
    "SELECT ts FROM logs WHERE level = 'error' ORDER BY ts DESC LIMIT 20",
    "SELECT count(*) FROM (SELECT 1 FROM logs LIMIT 100000) x",
    "SELECT count(*) FROM (SELECT 1 FROM logs LIMIT 10) x",
    "SELECT count(*) FROM traces WHERE trace_id = (SELECT min(trace_id) FROM traces)",
    "SELECT count(*), count(flux_id) FROM traces WHERE trace_id IN (SELECT trace_id FROM messages)",
    "SELECT span_name, count(*), sum(duration_ms) FROM traces GROUP BY span_name ORDER BY span_name",
    "SELECT msg_type, count(*) FROM messages GROUP BY msg_type ORDER BY msg_type",
    "SELECT count(*) FROM logs WHERE ts < now() - INTERVAL '2 hours' AND ts >= now() - INTERVAL '5 hours'",
    "SELECT count(*) FROM logs WHERE ts <= (SELECT max(ts) FROM traces)",
    "SELECT a.entity_name, count(*) FROM logs a, traces b WHERE a.flux_id = b.flux_id GROUP BY 1 ORDER BY 1",
    "SELECT approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY value) FROM metrics",
    "SELECT count(*) FROM logs WHERE entity_id NOT IN (SELECT entity_id FROM metrics)",
    "SELECT level FROM logs EXCEPT SELECT status FROM traces ORDER BY 1",
    "SELECT array_agg(DISTINCT entity_name ORDER BY entity_name) FROM logs",
    "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1",
    // What is wrong is wrong in the same way.
    "SELECT levl FROM logs",
    "SELECT 1 / (count(*) - count(*)) FROM logs",
    "SELECT count(*) FROM nothing",
];

/// The columns and rows of an answer, or its error.
async fn told(engine: &QueryEngine, query: &str) -> String {
    match asked_of(engine, query, json!([])).await {
        Ok(answer) => format!("{} {}", answer["columns"], answer["data"]),
        Err(error) => error.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_in_a_scope_answer_as_over_a_store_that_has_nothing_else() {
    let (all, only) = scoped_worlds(21).await;
    for (scope, of) in scopes() {
        let scoped = all.querier.with_scope(scope);
        for query in STATEMENTS {
            let told_in_scope = told(&scoped, query).await;
            assert!(!told_in_scope.contains(SECRET), "{query}: {told_in_scope}");
            assert_eq!(told_in_scope, told(&only[of].querier, query).await, "{query}");
        }
    }
    // Without a scope they do say it, or the test would show nothing.
    let error = told(&all.querier, "SELECT CAST(message AS INT) FROM logs").await;
    assert!(error.contains(SECRET), "{error}");
    assert!(
        told(&all.querier, "SELECT sum(1 / value::bigint) FROM metrics")
            .await
            .contains("ivide by zero")
    );
    all.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_says_nothing_of_what_is_behind_the_barrier() {
    let [all] = worlds(22, [&ENTITIES]).await;
    let scoped = all.querier.with_scope(entities(&[ENTITIES[0]]));
    for query in [
        "EXPLAIN SELECT message::int FROM logs WHERE message::int > 3 ORDER BY ts DESC LIMIT 5",
        "EXPLAIN VERBOSE SELECT level, count(*) FROM logs GROUP BY level",
        "EXPLAIN ANALYZE SELECT count(*) FROM logs WHERE message::int > 3",
        "EXPLAIN ANALYZE SELECT * FROM messages_order ORDER BY amount LIMIT 3",
    ] {
        let plan = told(&scoped, query).await;
        assert!(plan.contains("ScopedRowsExec"), "{plan}");
        for word in ["segment_", "DataSourceExec", "StreamingTableExec", SECRET, "150"] {
            assert!(!plan.contains(word), "{query}: {word}: {plan}");
        }
        let plan = told(&all.querier, query).await;
        assert!(!plan.contains("ScopedRowsExec"), "{plan}");
    }
    all.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_names_a_table_outside_the_scope_is_told_so() {
    let [all] = worlds(23, [&ENTITIES]).await;
    let some = all.querier.with_scope(tables(&[Table::Logs, Table::Traces]));
    for (query, table) in [
        ("SELECT count(*) FROM metrics", "metrics"),
        ("SELECT * FROM public.metrics", "metrics"),
        (
            "SELECT * FROM logs JOIN platform.public.messages USING (flux_id)",
            "messages",
        ),
        ("SELECT * FROM messages_order", "messages_order"),
        ("SELECT * FROM messages_nothing", "messages_nothing"),
        ("SELECT 1 FROM logs WHERE EXISTS (SELECT 1 FROM metrics)", "metrics"),
        ("WITH x AS (SELECT * FROM metrics) SELECT * FROM x", "metrics"),
        ("EXPLAIN SELECT * FROM metrics", "metrics"),
        ("DESCRIBE metrics", "metrics"),
    ] {
        for dialect in [SqlDialect::Plain, SqlDialect::Postgres] {
            let statement = SqlStatement {
                query: query.to_owned(),
                dialect,
                ..SqlStatement::default()
            };
            for error in [
                some.sql(&statement).await.unwrap_err(),
                some.describe(&statement).await.unwrap_err(),
            ] {
                assert!(
                    matches!(&error, Error::Forbidden { table: named, .. } if named == table),
                    "{query}: {error:?}"
                );
                assert_eq!(error.kind(), QueryErrorKind::Forbidden);
            }
        }
    }
    let count = "WITH metrics AS (SELECT 1 AS n) SELECT n FROM metrics";
    assert_eq!(
        asked_of(&some, count, json!([])).await.unwrap()["data"],
        json!([{ "n": 1 }])
    );
    assert!(
        asked_of(
            &some,
            "SELECT count(*) FROM logs JOIN traces USING (flux_id)",
            json!([])
        )
        .await
        .is_ok()
    );
    assert_eq!(
        asked_of(&some, "SHOW TABLES", json!([]))
            .await
            .unwrap()
            .to_string()
            .matches("messages")
            .count(),
        0
    );
    all.close().await;
}

async fn first_column(engine: &QueryEngine, query: &str) -> Vec<String> {
    let statement = SqlStatement {
        query: query.to_owned(),
        dialect: SqlDialect::Postgres,
        ..SqlStatement::default()
    };
    let mut answer = engine.sql(&statement).await.unwrap();
    let mut names = Vec::new();
    while let Some(batch) = answer.next().await.unwrap() {
        names.extend((0..batch.num_rows()).map(|row| crate::json_of(batch.column(0), row).unwrap().replace('"', "")));
    }
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn catalogues_show_the_tables_of_the_scope() {
    let [all] = worlds(24, [&ENTITIES]).await;
    for query in [
        "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1",
        "SELECT relname AS name FROM pg_catalog.pg_class WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'public') ORDER BY 1",
    ] {
        let mut seen = Vec::new();
        for scope in [
            tables(&Table::ALL),
            tables(&[Table::Traces]),
            tables(&[Table::Messages]),
            tables(&[]),
        ] {
            let names = first_column(&all.querier.with_scope(scope), query).await;
            seen.push(names);
        }
        let is_there = |at: usize, name: &str| seen[at].iter().any(|seen| seen == name);
        assert!(
            ["logs", "traces", "metrics", "messages", "messages_order"]
                .iter()
                .all(|name| is_there(0, name)),
            "{seen:?}"
        );
        assert!(
            is_there(1, "traces") && !is_there(1, "logs") && !is_there(1, "messages_order"),
            "{seen:?}"
        );
        assert!(is_there(2, "messages_order") && !is_there(2, "traces"), "{seen:?}");
        assert!(!is_there(3, "logs") && !is_there(3, "messages"), "{seen:?}");
    }
    all.close().await;
}
