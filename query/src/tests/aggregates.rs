//! Bounds of `ts` and aggregates over what is within them, wherever the rows are.

use std::collections::HashSet;
use std::time::Duration;

use model::{ByteSize, FluxId, LogRecord, Timestamp};
use serde_json::Value;

use super::Bench;
use super::random_world::{self, Random};
use super::sql::rows;
use crate::limits::QueryLimits;

/// Rows in sealed files, open ones and memory, many of them in the same hours.
async fn filled(mut bench: Bench, random: &mut Random) -> Bench {
    for round in 0..4 {
        let logs: Vec<_> = (0..80).map(|_| random_world::log(random)).collect();
        let spans: Vec<_> = (0..40).map(|_| random_world::span(random)).collect();
        bench.append(&logs).await;
        bench.append(&spans).await;
        match round {
            0 => bench.seal().await,
            1 | 2 => bench.publish().await,
            _ => {}
        }
    }
    bench
}

/// The answer, and that of the same conditions in a form that no rule takes apart.
async fn both(bench: &Bench, select: &str, condition: &str, rest: &str) -> [Vec<Vec<Value>>; 2] {
    let plain = format!("SELECT {select} FROM logs WHERE {condition} {rest}");
    let hidden = format!("SELECT {select} FROM logs WHERE NOT (NOT ({condition}) OR random() > 2) {rest}");
    [rows(bench, &plain).await, rows(bench, &hidden).await]
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_bounds_of_ts_cut_off_are_in_no_aggregate() {
    let mut random = Random::new();
    for bench in [Bench::new().await, Bench::of_lines().await] {
        let bench = filled(bench, &mut random).await;
        let times = rows(&bench, "SELECT ts FROM logs").await;
        for _ in 0..25 {
            let (a, b) = (&random.pick(&times)[0], &random.pick(&times)[0]);
            let (a, b) = (a.as_str().unwrap(), b.as_str().unwrap());
            let (since, until) = (a.min(b), a.max(b));
            let condition = match random.below(6) {
                0 => format!("ts >= '{since}' AND ts < '{until}'"),
                1 => format!("'{since}' < ts AND ts <= '{until}'"),
                2 => format!("ts BETWEEN '{since}' AND '{until}'"),
                3 => format!("ts = '{since}'"),
                4 => format!("ts > '{since}' AND level <> 'debug'"),
                _ => format!("ts < '{until}' AND (ts < '{since}' OR level = 'error')"),
            };
            for (select, rest) in [
                ("count(*), count(DISTINCT flux_id), min(ts), max(ts)", ""),
                ("count(DISTINCT flux_id)", ""),
                ("count(flux_id), count(DISTINCT level)", ""),
                ("level, count(*), max(message)", "GROUP BY level ORDER BY level"),
                ("entity_name", "ORDER BY entity_name LIMIT 7"),
            ] {
                let [plain, hidden] = both(&bench, select, &condition, rest).await;
                assert_eq!(plain, hidden, "SELECT {select} WHERE {condition} {rest}");
            }
            let [few, _] = both(&bench, "level", &condition, "LIMIT 5").await;
            let [all, _] = both(&bench, "level", &condition, "").await;
            assert_eq!(few.len(), all.len().min(5), "{condition}");
        }
        bench.close().await;
    }
}

fn numbers(rows: &[Vec<Value>]) -> Vec<(f64, f64)> {
    rows.iter()
        .map(|row| {
            let [.., found, wanted] = row.as_slice() else {
                panic!("{row:?}")
            };
            (found.as_f64().unwrap(), wanted.as_f64().unwrap())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn percentiles_are_those_of_the_values_of_each_group() {
    let bench = filled(Bench::new().await, &mut Random::new()).await;
    let pair = |of: &str, order: &str, more: &str| {
        format!(
            "approx_percentile_cont(0.9) WITHIN GROUP (ORDER BY {of} {order}) {more} AS found, \
             percentile_cont(0.9) WITHIN GROUP (ORDER BY {of} {order}) {more} AS wanted"
        )
    };
    for (query, error) in [
        // Few values: as they are.
        (
            format!(
                "SELECT span_name, {} FROM traces GROUP BY 1 ORDER BY 1",
                pair("duration_ms", "", "")
            ),
            1e-5,
        ),
        (
            format!(
                "SELECT span_name, {} FROM traces GROUP BY 1 ORDER BY 1",
                pair("duration_ms", "DESC", "")
            ),
            1e-5,
        ),
        (
            format!(
                "SELECT {} FROM traces",
                pair("duration_ms", "", "FILTER (WHERE status <> 'error')")
            ),
            1e-5,
        ),
        (
            format!(
                "SELECT span_name, {} FROM traces GROUP BY 1 HAVING count(*) FILTER (WHERE status <> 'ok') > 0 ORDER BY 1",
                pair("nullif(duration_ms, 0.0)", "", "FILTER (WHERE status <> 'ok')")
            ),
            1e-5,
        ),
        // Many: in cells.
        (
            format!(
                "SELECT a.span_name, {} FROM traces a CROSS JOIN traces b GROUP BY 1 ORDER BY 1",
                pair("a.duration_ms + b.duration_ms / 7", "", "")
            ),
            0.01,
        ),
    ] {
        let found = numbers(&rows(&bench, &query).await);
        assert!(!found.is_empty(), "{query}");
        for (found, wanted) in found {
            assert!(
                (found - wanted).abs() <= wanted.abs() * error,
                "{query}: {found} and not {wanted}"
            );
        }
    }
    let none = rows(
        &bench,
        "SELECT approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_ms) FROM traces WHERE ts < '1970-01-02'",
    )
    .await;
    assert_eq!(none, [[Value::Null]]);
    let with_centroids = "SELECT approx_percentile_cont(0.5, 200) WITHIN GROUP (ORDER BY duration_ms) FROM traces";
    assert!(rows(&bench, with_centroids).await[0][0].is_number());
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn percentiles_do_not_sort_rows() {
    let bench = filled(Bench::new().await, &mut Random::new()).await;
    let query =
        "EXPLAIN SELECT approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_ms) FROM traces GROUP BY span_name";
    let plan = format!("{:?}", rows(&bench, query).await);
    assert!(
        plan.contains("approx_percentile_cont") && !plan.contains("Sort"),
        "{plan}"
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distinct_ids_are_counted_once_with_much_memory_and_with_little() {
    let mut random = Random::new();
    let ids = |n: u64, times: u64, random: &mut Random| -> Vec<LogRecord> {
        let of = |k: u64| {
            FluxId::at(
                Timestamp::from_micros(1_767_607_200_000_000),
                std::array::from_fn(|at| (k >> (8 * (at % 8))) as u8),
            )
        };
        (0..n)
            .map(|k| LogRecord {
                flux_id: (k % 4 > 0).then(|| of(k / times)),
                ..random_world::log(random)
            })
            .collect()
    };
    let spilled = tempfile::tempdir().unwrap();
    // Sixteen megabytes for all queries: there is no room for as many ids.
    for (count, times, memory) in [(4_000, 8, 512), (220_000, 2, 16)] {
        let mut limits = QueryLimits::new(ByteSize::mib(memory), Duration::from_secs(60), 4);
        limits.spill_dir = Some(spilled.path().to_owned());
        let mut bench = Bench::with(limits).await;
        let logs = ids(count, times, &mut random);
        for part in logs.chunks(20_000) {
            bench.append(part).await;
        }
        bench.seal().await;
        bench.append(&logs[..1_000]).await;
        let distinct = count / times;
        for (query, counted) in [
            ("SELECT count(DISTINCT flux_id) FROM logs", distinct),
            (
                "SELECT count(DISTINCT flux_id) + 0 AS n FROM logs ORDER BY n LIMIT 3",
                distinct,
            ),
            (
                "SELECT count(DISTINCT flux_id) FILTER (WHERE ts < '1970-01-02'), count(*) FROM logs",
                0,
            ),
            ("SELECT count(DISTINCT flux_id) FROM logs WHERE ts < '1970-01-02'", 0),
            (
                "SELECT sum(n) FROM (SELECT count(DISTINCT flux_id) AS n FROM logs UNION ALL SELECT 1)",
                distinct + 1,
            ),
        ] {
            assert_eq!(rows(&bench, query).await[0][0], counted, "{query}");
        }
        // As one list for each group they would not be on disk.
        for query in [
            "EXPLAIN SELECT sum(n) FROM (SELECT count(DISTINCT flux_id) AS n FROM logs UNION ALL SELECT 1)",
            "EXPLAIN SELECT level, count(DISTINCT flux_id) AS n FROM logs GROUP BY level",
            "EXPLAIN SELECT level, sum(length(message)), count(DISTINCT flux_id) FROM logs GROUP BY level",
        ] {
            let plan = format!("{:?}", rows(&bench, query).await);
            assert!(
                plan.contains("id_number") && !plan.contains("DISTINCT id_number"),
                "{plan}"
            );
        }
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregates_that_get_their_names_above_go_with_what_else_a_grouping_has() {
    let bench = filled(Bench::new().await, &mut Random::new()).await;
    let [ids, levels] = ["flux_id", "level"].map(|column| format!("SELECT count(DISTINCT {column}) FROM logs"));
    let (ids, levels) = (&rows(&bench, &ids).await[0][0], &rows(&bench, &levels).await[0][0]);
    for grouped in ["ROLLUP(level)", "CUBE(level)", "GROUPING SETS ((level), ())"] {
        for (called, all) in [
            ("count(DISTINCT flux_id)", ids),
            ("count(DISTINCT level)", levels),
            ("count(DISTINCT flux_id) + sum(length(level)) - sum(length(level))", ids),
        ] {
            let query =
                format!("SELECT grouping(level), {called} FROM logs GROUP BY {grouped} ORDER BY 1 DESC LIMIT 1");
            assert_eq!(rows(&bench, &query).await[0], [Value::from(1), all.clone()], "{query}");
        }
    }
    for query in [
        "SELECT sum(n) FROM (SELECT alias1, count(DISTINCT flux_id) AS n FROM (SELECT 'x' AS alias1, flux_id FROM logs) x GROUP BY alias1)",
        "SELECT sum(n) FROM (SELECT count(DISTINCT flux_id) AS n, corr(DISTINCT round(length(message)::real), round(length(level)::real)) AS c FROM logs GROUP BY true)",
        "SELECT sum(n) FROM (SELECT count(DISTINCT flux_id) AS n, max(log(length(message))), max(log10(length(message)::float8)) FROM logs GROUP BY true)",
        r#"SELECT n FROM (SELECT "__grouping_id" + 0 * sum(1) OVER () AS n FROM (SELECT count(DISTINCT flux_id) AS "__grouping_id" FROM logs) x) y"#,
        "SELECT count(DISTINCT flux_id) FROM logs HAVING count(DISTINCT flux_id) > 0 ORDER BY count(DISTINCT flux_id)",
    ] {
        assert_eq!(rows(&bench, query).await[0][0], *ids, "{query}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_that_are_counted_by_many_threads_fit_in_little_memory() {
    let mut limits = QueryLimits::new(ByteSize::mib(16), Duration::from_secs(60), 4);
    // Each has a megabyte of ids, most of them more than once.
    limits.threads = 16;
    let mut random = Random::new();
    let mut bench = Bench::with(limits).await;
    let ids: Vec<_> = (0..4_000).map(|_| random_world::log(&mut random)).collect();
    bench.append(&ids).await;
    bench.seal().await;
    let distinct = ids.iter().filter_map(|log| log.flux_id).collect::<HashSet<_>>().len();
    let query = "SELECT count(DISTINCT a.flux_id) FROM logs a CROSS JOIN logs b";
    assert_eq!(rows(&bench, query).await[0][0], distinct, "{query}");
    bench.close().await;
}
