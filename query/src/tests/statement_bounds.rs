//! Statements stay within their bounds of memory and time, whatever they ask: functions, literals, plans, and thousands of
//! hostile statements.

use std::sync::Arc;
use std::time::Duration;

use datafusion::error::DataFusionError;
use futures::StreamExt as _;
use model::{ByteSize, LogRecord, Table, Timestamp};
use serde_json::json;

use super::hostile_generator::hostile_statement;
use super::random_world::{self, Random};
use super::sql::rows;
use super::{Bench, HOUR, now, until};
use crate::{Error, QueryErrorKind, QueryLimits, SqlDialect, SqlStatement};

const MIB: u64 = 1 << 20;
/// What a statement may need of 64 MiB, and as much again: code that is run for the first time, and pages of it, are counted too.
const MOST: u64 = 128 * MIB;

/// The memory of this process, where it runs this test alone.
struct ProcessMemory(Option<u64>);

impl ProcessMemory {
    /// What it is now; what was needed before is forgotten.
    fn now() -> Self {
        let alone = std::env::var("NEXTEST_EXECUTION_MODE").is_ok_and(|mode| mode == "process-per-test");
        let forgotten = alone && std::fs::write("/proc/self/clear_refs", "5").is_ok();
        Self(forgotten.then(|| Self::read("VmRSS:")))
    }

    fn read(key: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    }

    /// How much more the process has had since.
    fn growth(&self) -> u64 {
        self.0.map_or(0, |before| Self::read("VmHWM:").saturating_sub(before))
    }
}

/// A store of a few thousand rows, and 64 MiB for statements.
async fn bench(timeout: Duration) -> Bench {
    let bench = Bench::with(QueryLimits::new(ByteSize::mib(64), timeout, 4)).await;
    let mut random = Random::seeded(20_261_122);
    let logs: Vec<LogRecord> = (0..3_000).map(|_| random_world::log(&mut random)).collect();
    let spans: Vec<_> = (0..500).map(|_| random_world::span(&mut random)).collect();
    let points: Vec<_> = (0..500).map(|_| random_world::point(&mut random)).collect();
    bench.append(&logs).await;
    bench.append(&spans).await;
    bench.append(&points).await;
    bench.publish().await;
    bench
}

async fn ended(bench: &Bench, statement: &SqlStatement) -> Result<(), Error> {
    let mut answer = bench.querier.sql(statement).await?;
    while answer.next().await?.is_some() {}
    Ok(())
}

async fn refusal(bench: &Bench, query: &str) -> Error {
    let statement = SqlStatement {
        query: query.to_owned(),
        ..SqlStatement::default()
    };
    let refused = ended(bench, &statement).await;
    refused.expect_err(&format!("{query:.300} was answered"))
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_that_make_large_values_of_small_ones_are_refused_before_they_do() {
    let bench = bench(Duration::from_secs(60)).await;
    let memory = ProcessMemory::now();
    let (a, b) = ("a".repeat(20_000), "b".repeat(20_000));
    let doubled: String = (1..15)
        .map(|n| format!(", t{n} AS (SELECT v || v AS v FROM t{})", n - 1))
        .collect();
    for query in [
        format!("SELECT length(replace('{a}', 'a', '{b}'))"),
        format!("SELECT length(replace(replace('{a}', 'a', '{b}'), 'b', '{b}'))"),
        format!("SELECT length(regexp_replace('{a}', 'a', '{b}', 'g'))"),
        format!("SELECT length(array_to_string(string_to_array('{a}', NULL), '{b}'))"),
        format!("WITH t0 AS (SELECT '{a}' AS v){doubled} SELECT length(v) FROM t14"),
        format!(
            "WITH t0 AS (SELECT message AS v FROM logs){doubled}, t15 AS (SELECT replace(v, ' ', v) AS v FROM t14) SELECT max(length(v)) FROM t15"
        ),
        "SELECT length(repeat('x', 2147483647))".to_owned(),
        "SELECT length(repeat(message, 2147483647)) FROM logs".to_owned(),
        "SELECT length(lpad(message, 2147483647)), length(rpad(message, 2147483647)) FROM logs".to_owned(),
        format!("SELECT length(replace(repeat(' ', 400) || message, ' ', '{b}{b}')) FROM logs"),
        format!("SELECT length(regexp_replace(message, '.', '{b}{b}', 'g')) FROM logs"),
        format!(
            "SELECT length(concat_ws('{b}', {})) FROM logs",
            vec!["message"; 4_000].join(",")
        ),
        format!(
            "SELECT length(encode({}::bytea{}, 'hex')) FROM logs",
            "encode(".repeat(9) + "repeat(message, 100)",
            ", 'hex')::bytea".repeat(9)
        ),
        format!(
            "SELECT length(concat({})) FROM logs",
            (0..900)
                .map(|n| format!("repeat(message, {})", 9_000 + n))
                .collect::<Vec<_>>()
                .join(", ")
        ),
    ] {
        let error = refusal(&bench, &query).await;
        assert!(
            matches!(error.kind(), QueryErrorKind::Statement | QueryErrorKind::TooMuch),
            "{query:.300}: {error:?}"
        );
    }
    let growth = memory.growth();
    assert!(growth < MOST, "{} MiB", growth / MIB);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_are_read_at_once_have_the_memory_of_one_statement() {
    let mut bench = Bench::with(QueryLimits::new(ByteSize::mib(8), Duration::from_secs(60), 4)).await;
    let mut random = Random::seeded(20_261_122);
    let text = |random: &mut Random| (0..16).map(|_| format!("{:016x}", random.next())).collect();
    let logs: Vec<_> = (0..4_000)
        .map(|n| LogRecord {
            ts: Timestamp::from_micros(HOUR + n),
            message: text(&mut random),
            ..random_world::log(&mut random)
        })
        .collect();
    bench.append(&logs).await;
    bench.seal().await;
    assert_eq!(read_at_once(&bench, 2).await.unwrap(), 8_000);
    let error = read_at_once(&bench, 30).await.expect_err("30 tables were read at once");
    assert!(
        matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)),
        "{error}"
    );
    bench.close().await;
}

/// The rows of so many tables, each of which gives its rows while all the others have theirs in hand.
async fn read_at_once(bench: &Bench, tables: usize) -> Result<usize, DataFusionError> {
    let statement = SqlStatement {
        query: vec!["SELECT message FROM logs"; tables].join(" UNION ALL "),
        ..SqlStatement::default()
    };
    let mut tables_in_hand = bench.querier.partition_streams(&statement).await.unwrap();
    let mut rows = 0;
    for table in &mut tables_in_hand {
        rows += table.next().await.expect("no row")?.num_rows();
    }
    Ok(rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_rows_are_sorted_by_counts() {
    let bench = bench(Duration::from_secs(60)).await;
    let memory = ProcessMemory::now();
    for query in [
        "SELECT 1 FROM logs a, logs b ORDER BY random()",
        "SELECT count(*) FROM (SELECT row_number() OVER (ORDER BY random()) n FROM logs a, logs b) q WHERE n < 10",
        "SELECT string_agg('', '' ORDER BY random()) FROM logs a, logs b",
    ] {
        let statement = SqlStatement {
            query: query.to_owned(),
            ..SqlStatement::default()
        };
        if let Err(error) = ended(&bench, &statement).await {
            assert!(matches!(error.kind(), QueryErrorKind::TooMuch), "{query}: {error}");
        }
    }
    let growth = memory.growth();
    assert!(growth < MOST, "{} MiB", growth / MIB);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_sorted_once_with_their_keys_and_what_is_asked_for() {
    let bench = bench(Duration::from_secs(60)).await;
    for (query, keys) in [
        // A key that windows share is a column already.
        (
            "SELECT row_number() OVER (PARTITION BY lower(message) ORDER BY ts), count(*) OVER (PARTITION BY lower(message)) FROM logs",
            "SortExec: expr=[__common_expr_1@0 ASC NULLS LAST, ts@1 ASC NULLS LAST]",
        ),
        (
            "SELECT rank() OVER (ORDER BY random() < 0.5), dense_rank() OVER (ORDER BY random() < 0.5) FROM logs",
            "SortExec: expr=[__sort_key_0@0 ASC NULLS LAST]",
        ),
        // Not with the message.
        (
            "SELECT ts FROM logs ORDER BY lower(message), ts",
            "SortExec: expr=[__sort_key_0@1 ASC NULLS LAST, ts@0 ASC NULLS LAST]",
        ),
    ] {
        let plan = json!(rows(&bench, &format!("EXPLAIN {query}")).await).to_string();
        assert_eq!(plan.matches("SortExec").count(), 1, "{query}: {plan}");
        assert!(plan.contains(keys), "{query}: {plan}");
        assert_eq!(
            plan.contains("__sort_key"),
            keys.contains("__sort_key"),
            "{query}: {plan}"
        );
    }
    let query = "SELECT max(d) FROM (SELECT dense_rank() OVER (ORDER BY random() < 0.5) d, rank() OVER (ORDER BY random() < 0.5) FROM logs) q";
    assert_eq!(rows(&bench, query).await, [[json!(2)]]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subqueries_that_take_an_age_to_plan_are_refused() {
    let bench = bench(Duration::from_secs(60)).await;
    let nested = |depth: usize| format!("SELECT {}1{}", "EXISTS (SELECT ".repeat(depth), ")".repeat(depth));
    let error = refusal(&bench, &nested(23)).await;
    assert_eq!(error.kind(), QueryErrorKind::Statement, "{error}");
    let named = (1..20).map(|n| format!(", t{n} AS (SELECT EXISTS (SELECT * FROM t{}) v)", n - 1));
    let error = refusal(
        &bench,
        &format!("WITH t0 AS (SELECT 1 v){} SELECT * FROM t19", named.collect::<String>()),
    )
    .await;
    assert_eq!(error.kind(), QueryErrorKind::Statement, "{error}");
    let nested = format!("SELECT {}1{}", "coalesce((SELECT ".repeat(10), "), 0)".repeat(10));
    let error = refusal(&bench, &nested).await;
    assert_eq!(error.kind(), QueryErrorKind::Statement, "{error}");
    let nested = format!("SELECT {}1{}", "(SELECT ".repeat(8), ")".repeat(8));
    assert_eq!(rows(&bench, &nested).await, [[json!(1)]]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_within_their_bounds_give_what_they_always_gave() {
    let bench = bench(Duration::from_secs(60)).await;
    let made = "SELECT replace('abcabc', 'b', 'xx'), regexp_replace('a1b22', '[0-9]+', '<\\0>', 'g'), 'a' || 1 || NULL, 'a' || 1 || 'b', \
                concat('a', NULL, 2), concat_ws('-', 'a', NULL, 'b'), lpad('7', 3, '0'), rpad('7', 3), repeat('ab', 3), \
                translate('abc', 'ac', 'xy'), overlay('abcdef' PLACING 'X' FROM 2 FOR 3), \
                array_to_string(string_to_array('a,b,c', ','), ';'), array_to_string(array_concat(ARRAY[1, 2], ARRAY[3]), ''), \
                upper('ß'), initcap('ab cd'), reverse('abc'), encode('ab'::bytea, 'hex')";
    assert_eq!(
        rows(&bench, made).await,
        [[
            json!("axxcaxxc"),
            json!("a<1>b<22>"),
            json!(null),
            json!("a1b"),
            json!("a2"),
            json!("a-b"),
            json!("007"),
            json!("7  "),
            json!("ababab"),
            json!("xby"),
            json!("aXef"),
            json!("a;b;c"),
            json!("123"),
            json!("SS"),
            json!("Ab Cd"),
            json!("cba"),
            json!("6162"),
        ]]
    );
    // The same of columns, in pieces where the bound of a batch is far above what is made.
    let long = "y".repeat(2_000);
    let query = format!(
        "SELECT count(*), count(*) FILTER (WHERE replace(message, 'no such', '{long}') = message), \
         count(*) FILTER (WHERE regexp_replace(message, 'no such', '{long}', 'g') = message), \
         count(*) FILTER (WHERE message || level = concat(message, level)), \
         count(*) FILTER (WHERE lpad(message, 200) LIKE '% ' || message) FROM logs"
    );
    assert_eq!(rows(&bench, &query).await, [vec![json!(3_000); 5]]);
    let named = rows(
        &bench,
        "SELECT n FROM (SELECT level || 'x' AS n FROM logs) AS q ORDER BY n LIMIT 1",
    )
    .await;
    assert_eq!(named, [[json!("debugx")]]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_that_are_not_offered_are_refused_by_name() {
    let bench = bench(Duration::from_secs(60)).await;
    for (query, name) in [
        ("SELECT array_repeat(1, 1000000000000)", "array_repeat"),
        ("SELECT range(1, 1000000000000)", "range"),
        ("SELECT * FROM generate_series(1, 1000000000000)", "generate_series"),
        ("SELECT levenshtein(message, message) FROM logs", "levenshtein"),
        ("SELECT map(ARRAY['a'], ARRAY[message]) FROM logs", "map"),
    ] {
        let error = refusal(&bench, query).await;
        assert_eq!(error.kind(), QueryErrorKind::Statement, "{query}: {error:?}");
        let text = error.to_string();
        assert!(
            text.contains(&format!("'{name}'")) && text.contains("not supported"),
            "{query}: {text}"
        );
    }
    let columns: Vec<_> = (0..13).map(|at| format!("substr(message, {at})")).collect();
    for groups in [
        format!("CUBE ({})", columns.join(", ")),
        format!("CUBE ({}), CUBE ({})", columns[..6].join(", "), columns[6..].join(", ")),
    ] {
        let error = refusal(&bench, &format!("SELECT count(*) FROM logs GROUP BY {groups}")).await;
        assert_eq!(error.kind(), QueryErrorKind::Statement, "{groups}: {error:?}");
        assert!(error.to_string().contains("grouping"), "{error}");
    }
    let error = refusal(&bench, "SELECT array_agg(message) OVER (ORDER BY ts) FROM logs").await;
    assert!(error.to_string().contains("OVER"), "{error}");
    let frame = "ROWS BETWEEN 1 PRECEDING AND 18446744073709551615 FOLLOWING";
    let error = refusal(&bench, &format!("SELECT count(*) OVER (ORDER BY ts {frame}) FROM logs")).await;
    assert!(error.to_string().contains("UNBOUNDED"), "{error}");
    bench.close().await;
}

#[tokio::test]
async fn a_column_that_each_inner_query_has_written_twice_is_refused_before_it_is_a_million_terms() {
    let bench = bench(Duration::from_secs(600)).await;
    let query = |written: &str| {
        let queries: Vec<_> = (1..=20)
            .map(|n| format!("t{n} AS (SELECT {written} AS v FROM t{})", n - 1))
            .collect();
        let queries = queries.join(", ");
        format!("WITH t0 AS (SELECT level, message AS v FROM logs), {queries} SELECT count(*) FROM t20 WHERE v > 'b'")
    };
    for written in [
        "level, coalesce(nullif(v, 'y'), 'x')",
        "level, nvl(nullif(v, 'y'), 'x')",
        "level, CASE WHEN v BETWEEN 'a' AND 'm' THEN 'x' ELSE 'y' END",
        "level, CASE WHEN v IN ('a', 'b', 'c') THEN 'x' ELSE 'y' END",
        "level, CASE WHEN (CASE WHEN v = 'a' THEN true ELSE level = 'b' END) THEN 'x' ELSE 'y' END",
        "level, CASE WHEN v IS DISTINCT FROM 'a' THEN 'x' ELSE 'y' END",
        "level, CASE WHEN (CASE WHEN v = 'a' THEN starts_with(level, 'i') ELSE false END) THEN 'x' ELSE 'y' END",
        "level, CASE WHEN array_has(ARRAY['a', 'b', 'c'], v) THEN 'x' ELSE 'y' END",
        "level, CASE WHEN v::timestamp::date = DATE '2026-01-31' THEN 'x' ELSE 'y' END",
    ] {
        let refused = refusal(&bench, &query(written)).await;
        assert!(refused.to_string().contains("50000 terms"), "{written}: {refused}");
    }
    for written in [
        "level, nvl2(v, 'a', 'b')",
        "level, coalesce(level, v)",
        "level, CASE WHEN level = 'a' THEN v ELSE 'y' END",
    ] {
        let answered = bench
            .querier
            .sql(&SqlStatement {
                query: query(written),
                ..SqlStatement::default()
            })
            .await;
        assert!(answered.is_ok(), "{written}: {answered:?}");
    }
    bench.close().await;
}

/// A statement with 900 columns.
fn columns(made: &str) -> String {
    let columns: Vec<_> = (0..900).map(|n| made.replace("{}", &n.to_string())).collect();
    columns.join(", ")
}

async fn stay_within_memory(bench: &Bench, statements: impl IntoIterator<Item = String>) {
    for query in statements {
        let memory = ProcessMemory::now();
        let statement = SqlStatement {
            query: query.clone(),
            ..SqlStatement::default()
        };
        if let Err(error) = ended(bench, &statement).await {
            assert!(
                matches!(error.kind(), QueryErrorKind::Statement | QueryErrorKind::TooMuch),
                "{query:.300}: {error:?}"
            );
        }
        let growth = memory.growth();
        assert!(growth < MOST, "{query:.300}: {} MiB", growth / MIB);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_functions_make_of_large_values_stay_within_memory() {
    let bench = bench(Duration::from_secs(60)).await;
    let copies = [
        "substr(m, {})",
        "greatest(m, '{}')",
        "split_part(m, '{}#', 1)",
        "string_to_array(m, '{}')",
        "array_reverse(string_to_array(m, '{}'))",
        "m::bytea || '{}'::bytea",
        "ARRAY[m, '{}']",
    ];
    let of_columns = copies.map(|copy| {
        format!(
            "SELECT {} FROM (SELECT repeat(message, 300) AS m FROM logs) AS q",
            columns(copy)
        )
    });
    stay_within_memory(&bench, of_columns).await;
    let of_constants = [
        "SELECT length(max(greatest(message, repeat('z', 60000)))) FROM logs",
        "SELECT count(*) FROM (SELECT repeat('z', 60000) AS a, ts FROM logs ORDER BY ts OFFSET 1) AS q WHERE a LIKE '%y'",
    ];
    stay_within_memory(&bench, of_constants.map(str::to_owned)).await;
    for value in ["NULL", "'abc'::bytea", "message::bytea", "ARRAY[1]"] {
        for kind in [
            "FixedSizeBinary(1000000000)",
            "FixedSizeList(1000000000, Int64)",
            "FixedSizeList(90, FixedSizeList(90, Int64))",
        ] {
            let error = refusal(&bench, &format!("SELECT arrow_cast({value}, '{kind}') FROM logs")).await;
            assert!(error.to_string().contains("fixed size"), "{value} {kind}: {error}");
        }
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_of_many_scans_of_many_files_count_as_memory() {
    let bench = Bench::with(QueryLimits::new(ByteSize::mib(8), Duration::from_secs(60), 4)).await;
    let mut random = Random::seeded(20_261_126);
    let hours = 1..200_i64;
    let logs: Vec<_> = hours
        .map(|hours| LogRecord {
            ts: Timestamp::from_micros(now().micros() - hours * HOUR),
            ..random_world::log(&mut random)
        })
        .collect();
    bench.append(&logs).await;
    bench.publish().await;
    assert!(bench.engine.view().files(Table::Logs).len() > 150);
    let scans = |count: usize| {
        let scans = vec!["SELECT level FROM logs WHERE message <> ''"; count];
        format!("SELECT count(level) FROM ({}) AS q", scans.join(" UNION ALL "))
    };
    assert_eq!(rows(&bench, &scans(2)).await, [[json!(2 * logs.len())]]);
    let error = refusal(&bench, &scans(24)).await;
    assert_eq!(error.kind(), QueryErrorKind::TooMuch, "{error}");
    let pool = Arc::clone(&bench.querier.pools.typed.template().runtime_env().memory_pool);
    until("the end of the statement", || pool.reserved() == 0).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn literals_and_columns_that_each_row_has_again_stay_within_memory() {
    let bench = bench(Duration::from_secs(60)).await;
    let long = "z".repeat(60_000);
    let statements = [
        format!("SELECT max(length(coalesce(NULLIF(level, level), '{long}'))) FROM logs"),
        format!(
            "SELECT count(*) FROM (SELECT '{long}' AS a, ts FROM logs ORDER BY ts OFFSET 1) AS q WHERE a LIKE '%y'"
        ),
        format!("SELECT length(max(greatest(message, '{long}'))) FROM logs"),
        format!(
            "SELECT ts FROM logs WHERE coalesce(NULLIF(level, level), '{long}') LIKE '%y' ORDER BY ts DESC LIMIT 5"
        ),
        format!("SELECT length(concat({})) FROM logs", columns("message || '{}'")),
        format!("SELECT {} FROM logs", columns("upper(concat(message, {}))")),
        format!("SELECT {} FROM logs", columns("ts + INTERVAL '{} s'")),
        format!("SELECT string_agg(level, '{long}') FROM logs"),
        "SELECT message, attributes, unnest(string_to_array(repeat(message, 1000), NULL)) FROM logs".to_owned(),
    ];
    stay_within_memory(&bench, statements).await;
    bench.close().await;
}

/// How many statements, not more than take a moment unless `PLATFORM_HOSTILE_STATEMENTS` says it.
fn count() -> usize {
    let given = std::env::var("PLATFORM_HOSTILE_STATEMENTS").ok();
    given.and_then(|count| count.parse().ok()).unwrap_or(150)
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_statements_are_answered_or_refused_within_memory_and_leave_nothing_behind() {
    let bench = bench(Duration::from_millis(200)).await;
    let places = bench.querier.gate.free();
    let pool = Arc::clone(&bench.querier.pools.typed.template().runtime_env().memory_pool);
    let mut random = Random::seeded(20_261_122);
    let mut most = 0;
    for number in 0..count() {
        let query = hostile_statement(&mut |bound| random.below(bound));
        let memory = ProcessMemory::now();
        let statement = SqlStatement {
            query: query.clone(),
            dialect: if number % 4 == 0 {
                SqlDialect::Postgres
            } else {
                SqlDialect::Plain
            },
            ..SqlStatement::default()
        };
        let ended = if number % 7 == 0 {
            bench.querier.describe(&statement).await.map(drop)
        } else {
            ended(&bench, &statement).await
        };
        if let Err(error) = ended {
            let fair = [
                QueryErrorKind::Statement,
                QueryErrorKind::ReadOnly,
                QueryErrorKind::TooMuch,
                QueryErrorKind::Timeout,
            ];
            assert!(fair.contains(&error.kind()), "{query:.2000}: {error:?}");
        }
        // Not only told that it ended: its work is gone, and its memory.
        until(&format!("the end of {query:.2000}"), || {
            bench.querier.gate.free() == places && pool.reserved() == 0
        })
        .await;
        let growth = memory.growth();
        if growth > 48 * MIB {
            println!("{} MiB for {query:.300}", growth / MIB);
        }
        most = most.max(growth);
    }
    assert!(most < MOST, "{} MiB", most / MIB);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_without_columns_that_joins_keep_stay_within_memory() {
    let bench = bench(Duration::from_secs(60)).await;
    let letters = |count| format!("unnest(string_to_array('{}', NULL))", "a".repeat(count));
    // Each row of the first two is a batch for the third.
    let query = format!(
        "SELECT count(*) FROM logs, {} AS a, {} AS b, (SELECT level FROM logs WHERE level = 'no level') AS c",
        letters(700),
        letters(3)
    );
    let outer = format!(
        "SELECT count(*) FROM (SELECT 1 AS one FROM logs, {} AS a, {} AS b) AS x \
         LEFT JOIN (SELECT level FROM logs WHERE level = 'no level') AS c ON true",
        letters(700),
        letters(3)
    );
    stay_within_memory(&bench, [query, outer]).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_many_groups_gather_is_refused_and_not_merged_from_disk() {
    let bench = bench(Duration::from_secs(60)).await;
    for gathered in ["array_agg(message)", "array_agg(string_to_array(message, NULL))"] {
        let query = format!(
            "SELECT array_agg(g) FROM (SELECT {gathered} AS g FROM (SELECT a.* FROM logs a, logs b) AS logs GROUP BY ts) AS q"
        );
        let memory = ProcessMemory::now();
        let error = refusal(&bench, &query).await;
        assert_eq!(error.kind(), QueryErrorKind::TooMuch, "{error}");
        let growth = memory.growth();
        assert!(growth < MOST, "{gathered}: {} MiB", growth / MIB);
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distinct_values_of_two_columns_in_many_groups_are_refused_and_not_merged_from_disk() {
    let bench = bench(Duration::from_secs(60)).await;
    let query = "SELECT max(c + d) FROM (SELECT count(DISTINCT concat(a.message, b.ts)) AS c, \
                 count(DISTINCT concat(b.ts, '/', a.message)) AS d FROM logs a, logs b GROUP BY a.ts) AS q";
    let memory = ProcessMemory::now();
    let error = refusal(&bench, query).await;
    assert_eq!(error.kind(), QueryErrorKind::TooMuch, "{error}");
    let growth = memory.growth();
    assert!(growth < MOST, "{} MiB", growth / MIB);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distinct_texts_of_several_columns_in_many_small_groups_are_counted() {
    let bench = bench(Duration::from_secs(60)).await;
    let logs =
        "(SELECT row_number() OVER () AS n, message, entity_name, nullif(level, 'info') AS level FROM logs) AS l";
    let grouped = format!(
        "SELECT count(*), sum(c), sum(d), sum(e) FROM (SELECT count(DISTINCT message) AS c, count(DISTINCT level) AS d, \
         count(DISTINCT arrow_cast(entity_name, 'Dictionary(Int32, Utf8)')) FILTER (WHERE level = 'error') AS e FROM {logs} GROUP BY n) AS q"
    );
    let each =
        format!("SELECT count(*), count(message), count(level), count(*) FILTER (WHERE level = 'error') FROM {logs}");
    let expected = rows(&bench, &each).await;
    assert_eq!(expected[0][0], 3_000);
    assert_ne!(expected[0][2], 3_000, "some are null");
    assert_eq!(rows(&bench, &grouped).await, expected);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_few_groups_gather_is_within_the_memory_of_statements() {
    let bench = bench(Duration::from_secs(6)).await;
    let many = vec!["SELECT ts FROM logs"; 16].join(" UNION ALL ");
    for gathered in [
        "array_agg(1)",
        "string_agg(level, '')",
        "median(extract(epoch FROM b.ts))",
    ] {
        let query = format!(
            "SELECT count(g) FROM (SELECT {gathered} AS g FROM (SELECT ts, level FROM logs) AS a, ({many}) AS b GROUP BY a.ts) AS q"
        );
        let memory = ProcessMemory::now();
        let error = refusal(&bench, &query).await;
        assert!(
            matches!(error.kind(), QueryErrorKind::TooMuch | QueryErrorKind::Timeout),
            "{error}"
        );
        let growth = memory.growth();
        assert!(growth < MOST, "{gathered}: {} MiB", growth / MIB);
    }
    bench.close().await;
}
