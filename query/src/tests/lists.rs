//! Lists asked for as statements, in the order of time: over files of several sorted runs, open files and memory.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use engine::Engine;
use model::{Attributes, ByteSize, Clock, LogRecord, Span, SpanStatus, Table, Timestamp, TraceId};
use serde_json::{Value, json};

use super::random_world::{self, Random};
use super::{Bench, HOUR, append, now, open_at, until};
use crate::scan::ScanShortcut;
use crate::{QueryEngine, QueryLimits};

/// Rows that are published at once, so long that they are a row group in its final form.
const OF_A_RUN: i64 = 4_400;

/// Spans of three past hours; those of an hour are published in two parts that overlap in time.
fn hours_of_two_runs() -> Vec<Vec<Span>> {
    let mut random = Random::new();
    let begin = now().micros().div_euclid(HOUR) * HOUR - 3 * HOUR;
    let mut span = |hour: i64, n: i64| Span {
        // Every tenth row comes ten minutes late.
        ts: Timestamp::from_micros(begin + hour * HOUR + (n % 10).min(1) * HOUR / 6 + n * 300_000),
        status: if n % 97 == 0 { SpanStatus::Error } else { SpanStatus::Ok },
        duration_ms: f32::from(u8::try_from(n % 89).unwrap()),
        attributes: Attributes::new().with("text", "x".repeat(8 << 10)),
        ..random_world::span(&mut random)
    };
    let part = |part: i64| (part % 2 * OF_A_RUN..(part % 2 + 1) * OF_A_RUN).map(move |n| (part / 2, n));
    (0..6)
        .map(|number| part(number).map(|(hour, n)| span(hour, n)).collect())
        .collect()
}

/// A store of sealed files that each have two runs, and the rows in them.
async fn sealed_runs(bench: &Bench) -> (Arc<Engine>, Vec<Span>) {
    bench.engine.close().await.unwrap();
    let begin = now().micros().div_euclid(HOUR) * HOUR - 3 * HOUR;
    let time = Arc::new(AtomicI64::new(begin));
    let clock = {
        let time = Arc::clone(&time);
        Clock::new(move || Timestamp::from_micros(time.load(Ordering::Relaxed)))
    };
    let engine = open_at(&bench.dir, Duration::from_millis(20), clock).await;
    let mut all = Vec::new();
    for (part, hour) in hours_of_two_runs().into_iter().zip([0, 0, 1, 1, 2, 2]) {
        time.store(begin + hour * HOUR + HOUR / 60 * 59, Ordering::Relaxed);
        append(&engine, &part).await;
        engine.flush().await.unwrap();
        all.extend(part);
    }
    time.store(now().micros(), Ordering::Relaxed);
    let are_sealed = || engine.view().files(Table::Traces).iter().all(|file| file.sealed);
    until("the seal", are_sealed).await;
    let runs: Vec<_> = engine
        .view()
        .files(Table::Traces)
        .iter()
        .map(|file| file.runs.len())
        .collect();
    assert_eq!(runs, [2, 2, 2]);
    (engine, all)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_rows_that_meet_a_rare_condition_are_found_in_files_of_several_runs() {
    let mut bench = Bench::new().await;
    let (engine, mut spans) = sealed_runs(&bench).await;
    let by_plans = QueryLimits {
        without: &[ScanShortcut::OwnScan],
        ..bench.limits.clone()
    };
    bench.querier = QueryEngine::new(Arc::clone(&engine), bench.limits.clone(), Clock::new(now)).unwrap();
    let by_plans = QueryEngine::new(Arc::clone(&engine), by_plans, Clock::new(now)).unwrap();
    bench.engine = engine;
    spans.sort_by_key(|span| std::cmp::Reverse(span.ts));
    let slow = |span: &&Span| span.status == SpanStatus::Error && span.duration_ms >= 40.0;
    let wanted: Vec<_> = spans.iter().filter(slow).map(|span| span.ts.to_string()).collect();
    for limit in [1, 30, 50, 90, 1_000] {
        for (order, wanted) in [
            ("DESC", wanted.iter().take(limit).collect::<Vec<_>>()),
            ("ASC", wanted.iter().rev().take(limit).collect()),
        ] {
            let since = spans.last().unwrap().ts;
            let statement = format!(
                "SELECT * FROM traces WHERE ts >= '{since}' AND status = 'error' AND duration_ms >= 40 \
                 ORDER BY ts {order} LIMIT {limit}"
            );
            for querier in [&bench.querier, &by_plans] {
                let answer = super::sql::asked_of(querier, &statement, json!([])).await.unwrap();
                let rows = answer["data"].as_array().unwrap().iter();
                let found: Vec<_> = rows.map(|row| row["ts"].as_str().unwrap()).collect();
                assert_eq!(found, wanted, "{statement}");
            }
        }
    }
    by_plans.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_in_the_order_of_time_opens_the_first_files_alone() {
    let mut random = Random::new();
    // A second thread would open the next file while the first one is still being opened.
    let limits = QueryLimits {
        threads: 1,
        ..QueryLimits::new(ByteSize::mib(256), Duration::from_secs(60), 4)
    };
    let mut bench = Bench::with(limits).await;
    let past = |log: &LogRecord| log.ts.micros() < now().micros().div_euclid(HOUR) * HOUR;
    let logs: Vec<_> = (0..900).map(|_| random_world::log(&mut random)).filter(past).collect();
    bench.append(&logs).await;
    bench.seal().await;
    for statement in [
        "SELECT * FROM logs ORDER BY ts DESC LIMIT 5",
        "SELECT * FROM logs ORDER BY ts LIMIT 5",
        "SELECT message FROM logs l WHERE level <> 'x' ORDER BY l.ts DESC NULLS LAST LIMIT 5",
        "WITH l AS (SELECT ts AS at, message FROM logs) SELECT message FROM l ORDER BY at DESC LIMIT 5",
        "SELECT max(ts) FROM (SELECT ts FROM logs ORDER BY ts DESC LIMIT 3 OFFSET 2) AS t",
    ] {
        let stats = &super::sql::asked(&bench, statement, json!([])).await.unwrap()["stats"];
        assert_eq!(
            (stats["files_considered"].as_u64(), stats["files_read"].as_u64()),
            (Some(5), Some(1)),
            "{statement}: {stats}"
        );
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_rows_come_in_the_order_of_time_however_many_share_a_moment() {
    const MANY: usize = 70_000;
    let mut random = Random::new();
    let bench = Bench::new().await;
    let ts = |n: usize| {
        now().micros()
            - HOUR
            - if n.is_multiple_of(7_000) {
                i64::try_from(n).unwrap()
            } else {
                0
            }
    };
    let rows: Vec<LogRecord> = (0..MANY)
        .map(|n| LogRecord {
            ts: Timestamp::from_micros(ts(n)),
            message: n.to_string(),
            ..random_world::log(&mut random)
        })
        .collect();
    bench.append(&rows).await;
    for order in ["DESC", "ASC"] {
        let statement = format!("SELECT ts, message FROM logs ORDER BY ts {order}");
        let found = super::sql::rows(&bench, &statement).await;
        let times = found
            .iter()
            .map(|row| row[0].as_str().unwrap().parse::<Timestamp>().unwrap());
        let is_sorted = if order == "ASC" {
            times.is_sorted()
        } else {
            times.rev().is_sorted()
        };
        let messages: HashSet<_> = found.iter().map(|row| row[1].as_str().unwrap()).collect();
        assert_eq!((is_sorted, found.len(), messages.len()), (true, MANY, MANY));
        let few = super::sql::rows(&bench, &format!("{statement} LIMIT 3 OFFSET 8")).await;
        let times = |rows: &[Vec<Value>]| rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>();
        assert_eq!(times(&few), times(&found[8..11]));
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_of_an_id_finds_all_rows_however_many_there_are() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let mut spans = Vec::new();
    for (id, count) in (100_u8..).zip([1, 999, 1_000, 1_001, 3_000]) {
        let trace_id = TraceId::from_entropy([id; 16]);
        spans.extend((0..count).map(|n| Span {
            trace_id,
            duration_ms: f32::from(u16::try_from(n).unwrap()),
            ..random_world::span(&mut random)
        }));
        let half = spans.len() - count / 2;
        bench.append(&spans[spans.len() - count..half]).await;
        bench.seal().await;
        bench.append(&spans[half..]).await;
        for select in ["trace_id, duration_ms", "count(*), sum(duration_ms)", "max(t.ts)"] {
            let statement = format!("SELECT {select} FROM traces t WHERE trace_id = '{trace_id}'");
            let grouped = if select.starts_with("trace_id") {
                format!("SELECT count(*), sum(duration_ms) FROM ({statement}) AS t")
            } else {
                statement
            };
            let found = super::sql::rows(&bench, &grouped).await;
            let sum = f64::from(u32::try_from(count * (count - 1) / 2).unwrap());
            let latest = spans[spans.len() - count..].iter().map(|span| span.ts).max().unwrap();
            let wanted = match select {
                "max(t.ts)" => json!([latest]),
                _ => json!([count, sum]),
            };
            assert_eq!(json!(found), json!([wanted]), "{grouped}");
        }
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_cannot_be_evaluated_is_the_statements_fault() {
    let bench = Bench::new().await;
    let mut random = Random::new();
    bench.append(&[random_world::log(&mut random)]).await;
    let statement = "SELECT * FROM logs WHERE CAST(message || 'x' AS int) > 5 ORDER BY ts DESC LIMIT 5";
    let error = super::sql::asked(&bench, statement, json!([])).await.unwrap_err();
    assert_eq!(error.kind(), crate::QueryErrorKind::Statement, "{error}");
    bench.close().await;
}
