//! Statements that ask for ids: an index changes which files they open, never what they answer.

use model::batch::messages;
use model::{LogRecord, Table};
use serde_json::{Value, json};

use super::indexed::{Hours, damage, flux, sidecars, trace};
use super::random_world::{self, Random};
use super::sql::asked;
use super::*;

/// What a statement writes for the id of a trace.
fn trace_of(table: Table, random: &mut Random) -> &'static str {
    match table {
        Table::Logs => random.pick::<&'static str>(&["attributes->>'trace_id'", "attr(attributes, 'trace_id')"]),
        _ => "trace_id",
    }
}

/// A place among the hours, or beside them: then no row has the ids.
fn place(random: &mut Random) -> (i64, i64) {
    let number = |random: &mut Random, below: i64| i64::try_from(random.below(below.unsigned_abs())).unwrap();
    (number(random, Hours::COUNT + 1), number(random, Hours::ROWS + 2))
}

/// A condition that asks for ids in one of the ways to write it.
fn ids(table: Table, random: &mut Random) -> String {
    let is_flux = random.below(2) == 0;
    let column = if is_flux { "flux_id" } else { trace_of(table, random) };
    let mut id = || {
        let (hour, n) = place(random);
        if is_flux {
            format!("'{}'", flux(hour, n))
        } else {
            format!("'{}'", trace(hour, n))
        }
    };
    let (a, b) = (id(), id());
    let many: Vec<_> = (0..8).map(|_| id()).collect();
    let beyond_the_cap: Vec<_> = (0..120).map(|_| id()).collect();
    match random.below(9) {
        0 | 1 => format!("{column} = {a}"),
        2 => format!("{a} = {column}"),
        3 => format!("({column} = {a} OR {column} = {b})"),
        4 => format!("{column} IN ({a}, {b})"),
        5 => format!("{column} IN ({})", many.join(", ")),
        6 => format!("{column} IN ({})", beyond_the_cap.join(", ")),
        7 => format!("NOT ({column} = {a})"),
        _ => format!("{column} NOT IN ({})", many.join(", ")),
    }
}

fn condition(table: Table, random: &mut Random) -> String {
    let (one, other) = (ids(table, random), ids(table, random));
    let ts = random.moment();
    match random.below(6) {
        0 | 1 => one,
        2 => format!("{one} AND {other}"),
        3 => format!("{one} OR {other}"),
        4 => format!("{one} AND ts > '{ts}'"),
        _ => format!("({one} OR ts > '{ts}') AND {other}"),
    }
}

fn statement(random: &mut Random) -> String {
    let table = *random.pick(&[Table::Logs, Table::Traces, Table::Messages]);
    let condition = condition(table, random);
    match random.below(6) {
        0 | 1 => format!("SELECT * FROM {table} WHERE {condition}"),
        2 => format!("SELECT count(*) AS n, min(ts) AS oldest, max(ts) AS newest FROM {table} WHERE {condition}"),
        3 => format!("SELECT ts FROM {table} WHERE {condition} ORDER BY ts DESC LIMIT 7"),
        4 => format!("SELECT entity_name, count(*) AS n FROM {table} WHERE {condition} GROUP BY entity_name"),
        _ => format!(
            "SELECT count(*) AS n FROM traces t JOIN logs l ON l.flux_id = t.flux_id WHERE t.ts IN (SELECT ts FROM {table} WHERE {condition})"
        ),
    }
}

/// The rows of an answer, in no order.
async fn answer(bench: &Bench, query: &str) -> Vec<String> {
    let answer = asked(bench, query, json!([]))
        .await
        .unwrap_or_else(|error| panic!("{query}: {error}"));
    let mut rows: Vec<_> = answer["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(Value::to_string)
        .collect();
    rows.sort_unstable();
    rows
}

async fn answers(bench: &Bench, statements: &[String]) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for statement in statements {
        all.push(answer(bench, statement).await);
    }
    all
}

fn compare(statements: &[String], expected: &[Vec<String>], found: &[Vec<String>], when: &str) {
    for ((statement, expected), found) in statements.iter().zip(expected).zip(found) {
        assert_eq!(found, expected, "{when}: {statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_answer_the_same_without_indexes_with_all_and_with_damaged_ones() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let hours = Hours::new(&mut random);
    let places = (0..Hours::COUNT).flat_map(|hour| (0..Hours::ROWS).map(move |n| (hour, n)));
    let sent: Vec<_> = hours
        .logs
        .iter()
        .zip(places)
        .map(|(log, (hour, n))| model::batch::MessageRow {
            ts: log.ts,
            flux_id: flux(hour, n),
            trace_id: trace(hour, n),
            ..random_world::message(&mut random)
        })
        .collect();
    // A third each in sealed files, open files and memory.
    for third in 0..3 {
        let part = |n: &usize| n % 3 == third;
        let of = |rows: usize| (0..rows).filter(part);
        let logs: Vec<_> = of(hours.logs.len()).map(|n| hours.logs[n].clone()).collect();
        let spans: Vec<_> = of(hours.spans.len()).map(|n| hours.spans[n].clone()).collect();
        let sent: Vec<_> = of(sent.len()).map(|n| sent[n].clone()).collect();
        bench.append(&logs).await;
        bench.append(&spans).await;
        append_batch(&bench.engine, Table::Messages, messages(&sent).unwrap()).await;
        match third {
            0 => bench.seal().await,
            1 => bench.publish().await,
            _ => {}
        }
    }
    let statements: Vec<_> = (0..60).map(|_| statement(&mut random)).collect();
    bench.engine.index_all().await.unwrap();
    let indexed = answers(&bench, &statements).await;
    sidecars(&bench).iter().for_each(|path| damage(path, &mut random));
    let damaged = answers(&bench, &statements).await;
    bench.set_indexing(Indexing::InMemory).await;
    bench.engine.index_all().await.unwrap();
    let first = answers(&bench, &statements).await;
    let kept = answers(&bench, &statements).await;
    bench.set_index(false).await;
    let expected = answers(&bench, &statements).await;
    assert!(expected.iter().filter(|rows| !rows.is_empty()).count() > 10);
    for (found, when) in [
        (indexed, "indexed"),
        (damaged, "damaged"),
        (first, "made anew"),
        (kept, "in memory"),
    ] {
        compare(&statements, &expected, &found, when);
    }
    bench.close().await;
}

fn stat(answer: &Value, name: &str) -> u64 {
    answer["stats"][name].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_opens_only_the_files_that_can_have_its_ids() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let hours = Hours::new(&mut random);
    bench.append(&hours.logs).await;
    bench.append(&hours.spans).await;
    bench.seal().await;
    bench.engine.index_all().await.unwrap();
    let files = Hours::COUNT.unsigned_abs();
    let (mut opened, mut wanted) = (0, 0);
    for hour in 0..Hours::COUNT {
        // Of `count` hours, from this one on, a row each.
        let list = |count: i64, id: fn(i64, i64) -> String| {
            let hours = (hour..hour + count).map(|hour| id(hour % Hours::COUNT, 7));
            hours.map(|id| format!("'{id}'")).collect::<Vec<_>>().join(", ")
        };
        let fluxes = |count| list(count, |hour, n| flux(hour, n).to_string());
        let traces = |count| list(count, |hour, n| trace(hour, n).to_string());
        for (condition, count) in [
            (format!("logs WHERE flux_id = {}", fluxes(1)), 1),
            (format!("logs WHERE flux_id IN ({}) AND level <> 'x'", fluxes(3)), 3),
            (format!("logs WHERE attributes->>'trace_id' = {}", traces(1)), 1),
            (format!("logs WHERE attributes->>'trace_id' IN ({})", traces(5)), 5),
            (format!("traces WHERE trace_id = {}", traces(1)), 1),
            (
                format!(
                    "traces WHERE trace_id IN ({}) AND flux_id IN ({})",
                    traces(6),
                    fluxes(5)
                ),
                5,
            ),
            (format!("logs WHERE flux_id = uuid('{}')", flux(900, hour)), 0),
            (format!("traces WHERE trace_id = '{}'", trace(900, hour)), 0),
        ] {
            let answer = asked(&bench, &format!("SELECT * FROM {condition}"), json!([]))
                .await
                .unwrap();
            assert_eq!(answer["data"].as_array().unwrap().len() as u64, count, "{condition}");
            assert_eq!(stat(&answer, "files_considered"), files, "{answer}");
            assert_eq!(
                stat(&answer, "files_read") + stat(&answer, "files_pruned"),
                files,
                "{condition}"
            );
            assert!(stat(&answer, "files_read") >= count, "{condition}");
            (opened, wanted) = (opened + stat(&answer, "files_read"), wanted + count);
        }
        let given = asked(&bench, "SELECT ts FROM logs WHERE flux_id = $1", json!([flux(hour, 3)]))
            .await
            .unwrap();
        assert_eq!(given["data"].as_array().unwrap().len(), 1);
        (opened, wanted) = (opened + stat(&given, "files_read"), wanted + 1);
    }
    // A file looks as if it had an id once in some thousand times.
    assert!(opened <= wanted + 3, "{opened} for {wanted}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_more_ids_than_an_index_is_asked_for_all_files_are_read() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.append(&Hours::new(&mut random).logs).await;
    bench.seal().await;
    bench.engine.index_all().await.unwrap();
    for (count, is_asked) in [(100, true), (101, false)] {
        let ids: Vec<_> = (0..count).map(|n| format!("'{}'", flux(n / 30, n % 30))).collect();
        let query = format!("SELECT ts FROM logs WHERE flux_id IN ({})", ids.join(", "));
        let answer = asked(&bench, &query, json!([])).await.unwrap();
        assert_eq!(answer["data"].as_array().unwrap().len(), ids.len());
        assert_eq!(stat(&answer, "files_pruned") > 0, is_asked, "{count}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_large_file_a_statement_reads_the_blocks_with_the_id() {
    const ROWS: i64 = 60_000;
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let start = now().micros().div_euclid(HOUR) * HOUR - 2 * HOUR;
    let rows: Vec<LogRecord> = (0..ROWS)
        .map(|n| LogRecord {
            ts: Timestamp::from_micros(start + n * 20_000),
            flux_id: Some(flux(n / 2, 0)),
            ..random_world::log(&mut random)
        })
        .collect();
    bench.append(&rows).await;
    bench.seal().await;
    bench.engine.index_all().await.unwrap();
    let query = format!(
        "SELECT * FROM logs WHERE flux_id = '{}' ORDER BY ts DESC",
        flux(4_711, 0)
    );
    let indexed = asked(&bench, &query, json!([])).await.unwrap();
    assert_eq!(indexed["data"].as_array().unwrap().len(), 2);
    bench.set_index(false).await;
    let scanned = asked(&bench, &query, json!([])).await.unwrap();
    assert_eq!(indexed["data"], scanned["data"]);
    let (indexed, scanned) = (stat(&indexed, "bytes_read"), stat(&scanned, "bytes_read"));
    assert!(indexed * 2 < scanned, "{indexed} of {scanned}");
    bench.close().await;
}
