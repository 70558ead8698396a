//! Statements that sum up metric points have them walked by the own scan, and come to what a plan comes to.

use model::{MetricPoint, Table};
use serde_json::{Value, json};

use super::random_world::{self, Random};
use super::rows::scattered;
use super::sql::{asked_of, rows as rows_of};
use super::*;
use crate::scan::ScanShortcut;

/// A statement that sums up metric points, in one of its wordings.
pub(super) fn summing(random: &mut Random) -> String {
    const GROUPS: [&str; 11] = [
        "name",
        "type",
        "entity_name",
        "entity_name",
        "date_bin(INTERVAL '1 minute', ts)",
        "time_bucket(INTERVAL '7 minutes', ts)",
        "date_trunc('minute', ts)",
        "date_bin(INTERVAL '7 seconds', ts)",
        "extract(hour FROM ts)",
        "upper(type) || entity_name",
        "CASE WHEN ts < '2030-01-01T00:00:00Z' THEN name END",
    ];
    const AGGREGATES: [&str; 12] = [
        "avg(value)",
        "sum(value)",
        "min(value)",
        "max(value)",
        "count(value)",
        "count(*)",
        "avg(value) FILTER (WHERE type = 'gauge')",
        "count(*) FILTER (WHERE entity_name = 'nobody')",
        "sum(value) FILTER (WHERE entity_name = 'nobody')",
        "max(value) - min(value)",
        "min(entity_name)",
        "count(DISTINCT name)",
    ];
    const CONDITIONS: [&str; 7] = [
        "name = 'gauge.0'",
        "type IN ('gauge', 'counter')",
        "entity_name LIKE 'r%'",
        "value > 7",
        "labels->>'cpu' = '1'",
        "value < 20 OR entity_name = 'rack-a'",
        "name = 'nothing'",
    ];
    let mut conditions = vec!["true".to_owned()];
    conditions.extend(random.maybe(2, |random| format!("ts >= '{}'", random.moment())));
    conditions.extend(random.maybe(2, |random| format!("ts < '{}'", random.moment())));
    conditions.extend(random.maybe(2, |random| (*random.pick(&CONDITIONS)).to_owned()));
    conditions.extend(random.maybe(4, |random| (*random.pick(&CONDITIONS)).to_owned()));
    let groups: Vec<_> = (0..random.below(3)).map(|_| *random.pick(&GROUPS)).collect();
    let aggregates = (0..1 + random.below(3)).map(|_| *random.pick(&AGGREGATES));
    let all = groups.iter().copied().chain(aggregates).enumerate();
    let list: Vec<_> = all.map(|(at, expr)| format!("{expr} AS c{at}")).collect();
    let ordinals: Vec<_> = (1..=groups.len()).map(|at| at.to_string()).collect();
    let by = ordinals.join(", ");
    let rest = match (groups.len(), random.below(4)) {
        (0, _) => String::new(),
        (_, 0) => format!("GROUP BY {by} HAVING avg(value) > 9 ORDER BY {by}"),
        (last, 1) => format!("GROUP BY {by} ORDER BY {} DESC NULLS LAST, {by} LIMIT 3", last + 1),
        _ => format!("GROUP BY {by} ORDER BY {by}"),
    };
    let from = *random.pick(&["metrics", "(SELECT * FROM metrics) AS m", "metrics AS m"]);
    format!(
        "SELECT {} FROM {from} WHERE {} {rest}",
        list.join(", "),
        conditions.join(" AND ")
    )
}

async fn bench_of_points(random: &mut Random) -> (Bench, Vec<MetricPoint>) {
    let mut bench = Bench::new().await;
    let points = scattered(&mut bench, random, random_world::point).await;
    (bench, points)
}

async fn is_walked(bench: &Bench, statement: &str) -> bool {
    let plan = rows_of(bench, &format!("EXPLAIN {statement}")).await;
    json!(plan).to_string().contains("StreamingTableExec")
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_sum_up_metric_points_as_a_plan_does() {
    let mut random = Random::new();
    let (bench, _) = bench_of_points(&mut random).await;
    let limits = QueryLimits {
        without: &[ScanShortcut::OwnScan],
        ..bench.limits.clone()
    };
    let planned = QueryEngine::new(Arc::clone(&bench.engine), limits, Clock::new(now)).unwrap();
    for _ in 0..120 {
        let statement = summing(&mut random);
        let walked = asked_of(&bench.querier, &statement, json!([])).await.unwrap();
        let by_plan = asked_of(&planned, &statement, json!([])).await.unwrap();
        assert_eq!(walked["columns"], by_plan["columns"], "{statement}");
        assert_eq!(walked["data"], by_plan["data"], "{statement}");
    }
    planned.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_of_metric_points_are_walked_however_they_are_worded() {
    let (bench, points) = bench_of_points(&mut Random::new()).await;
    let start = now().minus(std::time::Duration::from_secs(7_201));
    let since = format!("ts >= '{start}' AND ts < '2200-01-01T00:00:00Z'");
    for statement in [
        "SELECT avg(value) FROM metrics".to_owned(),
        "SELECT entity_name, date_bin(INTERVAL '1 minute', ts) AS bucket, avg(value) AS v FROM metrics WHERE name = 'gauge.0' GROUP BY 1, 2 ORDER BY 1, 2".to_owned(),
        format!("SELECT date_trunc('minute', ts) AS t, min(value), max(value) FROM metrics WHERE {since} GROUP BY t ORDER BY t DESC LIMIT 3"),
        format!("WITH m AS (SELECT ts AS t, value AS v, name AS n FROM metrics WHERE {since}) SELECT n, time_bucket(INTERVAL '90 seconds', t), sum(v), count(*) FROM m GROUP BY 1, 2 HAVING count(*) > 1"),
        "SELECT sum(value) FILTER (WHERE type = 'counter'), count(*) FROM metrics WHERE labels->>'cpu' = '0' AND value > 3".to_owned(),
    ] {
        assert!(is_walked(&bench, &statement).await, "{statement}");
    }
    for statement in [
        "SELECT avg(value) FROM metrics WHERE random() < 2",
        "SELECT sum(value + 1) FROM metrics",
        "SELECT sum(DISTINCT value) FROM metrics",
        "SELECT labels->>'cpu', avg(value) FROM metrics GROUP BY 1",
        "SELECT date_bin(INTERVAL '1 millisecond', ts), avg(value) FROM metrics GROUP BY 1",
        "SELECT avg(value) FILTER (WHERE value > 3) FROM metrics",
        "SELECT max(ts), max(value) FROM metrics",
        "SELECT date_trunc('day', ts AT TIME ZONE 'Asia/Kolkata'), max(value) FROM metrics GROUP BY 1",
        "SELECT avg(value) FROM metrics WHERE length(repeat('x', 10000000) || name) > 3",
    ] {
        assert!(!is_walked(&bench, statement).await, "{statement}");
    }
    let all = "SELECT count(value) AS n, sum(value) AS sum FROM metrics";
    let answer = asked_of(&bench.querier, all, json!([])).await.unwrap();
    let sum: f64 = points.iter().map(|point| point.value).sum();
    assert_eq!(answer["data"], json!([{ "n": points.len(), "sum": sum }]));
    let files = bench.engine.view().files(Table::Metrics).len();
    let cost = &answer["stats"];
    assert_eq!(
        (&cost["files_considered"], &cost["files_pruned"]),
        (&json!(files), &json!(0)),
        "{cost}"
    );
    assert_eq!(cost["rows_scanned"], json!(points.len()), "{cost}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_that_are_no_numbers_and_groups_of_no_points_are_a_plans() {
    let (bench, points) = bench_of_points(&mut Random::new()).await;
    let huge = |value: f64| MetricPoint {
        name: "huge".to_owned(),
        value,
        ..points[0].clone()
    };
    bench.append(&[f64::MAX, f64::MAX].map(huge)).await;
    bench.publish().await;
    bench.append(&[-f64::MAX, -f64::MAX].map(huge)).await;
    let of = |name: &str| {
        format!("SELECT min(value), max(value), count(*), avg(value), sum(value) FROM metrics WHERE name = '{name}'")
    };
    let rows = rows_of(&bench, &of("huge")).await;
    assert_eq!(rows[0][..3], [json!(-f64::MAX), json!(f64::MAX), json!(4)]);
    let none = [Value::Null, Value::Null, json!(0), Value::Null, Value::Null];
    assert_eq!(rows_of(&bench, &of("nothing")).await, [none]);
    let grouped = format!("{} GROUP BY name", of("nothing"));
    assert!(rows_of(&bench, &grouped).await.is_empty());
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_groups_than_the_api_answers_with_are_walked_once() {
    const GROUPS: usize = crate::aggregation::metric_aggregation::MAX_GROUPS + 1;
    let mut random = Random::new();
    let bench = Bench::new().await;
    let one = random_world::point(&mut random);
    let points: Vec<_> = (0..GROUPS)
        .map(|n| MetricPoint {
            name: n.to_string(),
            value: 2.0,
            ..one.clone()
        })
        .collect();
    bench.append(&points).await;
    let statement =
        "SELECT count(*) AS groups, sum(s) AS sum FROM (SELECT name, sum(value) AS s FROM metrics GROUP BY name) AS g";
    let answer = asked_of(&bench.querier, statement, json!([])).await.unwrap();
    assert_eq!(answer["data"], json!([{ "groups": GROUPS, "sum": 200_002.0 }]));
    assert_eq!(answer["stats"]["rows_scanned"], json!(GROUPS), "{answer}");
    bench.close().await;
}
