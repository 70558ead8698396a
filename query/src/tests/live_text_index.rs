//! Indexes of rows that are not sealed yet change what is read, never what is answered.

use model::LogRecord;
use model::filter::LogFilter;
use serde_json::json;

use super::random_world::{self, Random};
use super::rows::logs_agree;
use super::sql::{asked, rows as rows_of};
use super::text_index::{asks, condition, message, name};
use super::*;
use crate::ListQuery;

fn log(random: &mut Random) -> LogRecord {
    LogRecord {
        message: message(random),
        ..random_world::log(random)
    }
}

/// Statements that ask for texts, against the same in words that no index understands.
async fn statements_agree(bench: &Bench, logs: &[LogRecord], random: &mut Random) {
    for _ in 0..20 {
        let condition = condition(logs, random);
        let rows = |condition: &str| {
            format!("SELECT ts, message FROM logs WHERE {condition} ORDER BY ts DESC, message LIMIT 50")
        };
        let read = condition.replace("message", "(CASE WHEN length(message) >= 0 THEN message END)");
        assert_eq!(
            rows_of(bench, &rows(&condition)).await,
            rows_of(bench, &rows(&read)).await,
            "{condition}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_the_same_while_rows_are_published_indexed_sealed_and_found_damaged() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.set_indexing(Indexing::InMemory).await;
    let mut logs = Vec::new();
    for step in 0..12 {
        let rows: Vec<_> = (0..100).map(|_| log(&mut random)).collect();
        bench.append(&rows).await;
        logs.extend(rows);
        match step % 6 {
            0 | 2 | 3 => bench.publish().await,
            4 => bench.seal().await,
            5 => bench.set_indexing(Indexing::InMemory).await,
            _ => {}
        }
        // Else they are made meanwhile.
        if step % 2 == 0 {
            bench.engine.index_all().await.unwrap();
        }
        logs_agree(&bench, &logs, &mut random).await;
        statements_agree(&bench, &logs, &mut random).await;
    }
    bench.publish().await;
    let view = bench.engine.view();
    let open = view
        .files(model::Table::Logs)
        .iter()
        .find(|file| !file.sealed)
        .unwrap()
        .path
        .clone();
    drop(view);
    let mut bytes = std::fs::read(&open).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&open, bytes).unwrap();
    bench.set_indexing(Indexing::InMemory).await;
    bench.engine.index_all().await.unwrap();
    for _ in 0..3 {
        statements_agree(&bench, &logs, &mut random).await;
    }
    until("the damage is found", || bench.engine.stats().quarantined_files > 0).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_an_open_file_only_the_row_groups_that_can_have_the_text_are_looked_at() {
    const GROUPS: usize = 8;
    const ROWS: i64 = 300;
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.set_indexing(Indexing::InMemory).await;
    let mut traces = Vec::new();
    for group in 0..GROUPS {
        let mut rows: Vec<LogRecord> = (0..ROWS)
            .map(|n| LogRecord {
                ts: Timestamp::from_micros(now().micros() - n * SECOND),
                ..log(&mut random)
            })
            .collect();
        rows[7].message += &format!(" once {}", name(group));
        let trace = super::indexed::trace(i64::try_from(group).unwrap(), 1).to_string();
        rows[7].attributes.set("trace_id", trace.clone());
        traces.push(trace);
        bench.append(&rows).await;
        bench.publish().await;
    }
    for is_restarted in [false, true] {
        if is_restarted {
            bench.set_indexing(Indexing::InMemory).await;
        }
        bench.engine.index_all().await.unwrap();
        let mut looked_at = 0;
        for (group, trace) in traces.iter().enumerate() {
            let text = format!("ONCE {}", name(group));
            let by_id = LogFilter {
                since: Some("48h".parse().unwrap()),
                trace_id: Some(trace.parse().unwrap()),
                ..LogFilter::default()
            };
            for filter in [asks(&text, None), by_id] {
                let page = bench.querier.page(ListQuery::Logs(filter)).await.unwrap();
                assert_eq!((page.rows.len(), page.stats.files_read), (1, 1), "{text}");
                looked_at += page.stats.rows_scanned;
            }
            let statement = format!("SELECT ts FROM logs WHERE message ILIKE '%{text}%'");
            assert_eq!(rows_of(&bench, &statement).await.len(), 1, "{text}");
        }
        let each = u64::try_from(ROWS).unwrap();
        let groups = GROUPS as u64;
        assert!(looked_at <= 2 * each * (groups + 2), "{looked_at} rows");
        let absent = bench.querier.page(ListQuery::Logs(asks("segmentation fault", None)));
        let stats = absent.await.unwrap().stats;
        assert_eq!((stats.rows_scanned, stats.files_read, stats.bytes_read), (0, 0, 0));
        let statement = "SELECT * FROM logs WHERE message LIKE '%segmentation fault%'";
        let answer = asked(&bench, statement, json!([])).await.unwrap();
        assert_eq!(
            (&answer["stats"]["files_read"], &answer["stats"]["files_pruned"]),
            (&json!(0), &json!(1))
        );
    }
    bench.close().await;
}
