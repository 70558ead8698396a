//! Scrapes of real servers in a real runtime.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use model::Table;
use serde_json::{Map, Value, json};

use super::*;
use crate::gears::testing::http_server::{Server, answer, answers};
use crate::gears::testing::{Bench, held_port, push};
use crate::runtime::GearRuntime;

async fn start(bench: &Bench, config: &str) -> GearRuntime {
    let gears = format!("\n  - {{ name: scrape, type: prometheus_scrape, deploy: rack-a, config: {{ {config} }} }}");
    let mut runtime = bench.runtime();
    assert_eq!(runtime.apply(&push("h", &gears, "")).await.error, None);
    runtime
}

/// The points of a metric that the gear recorded, in order.
fn points(bench: &Bench, name: &str) -> Vec<Map<String, Value>> {
    let rows = bench.rows(Table::Metrics).into_iter();
    rows.filter(|row| row["labels"]["gear.id"] == "scrape" && row["name"] == name)
        .collect()
}

async fn wait_for(bench: &Bench, name: &str, count: usize) -> Vec<Map<String, Value>> {
    let found = |bench: &Bench| {
        let points = points(bench, name);
        (points.len() >= count).then_some(points)
    };
    bench.wait(&format!("{count} points of {name}"), found).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_become_points_with_the_labels_of_their_target_and_each_scrape_says_how_it_went() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let text = "# TYPE jobs counter\njobs_total{job=\"own\",exported_job=\"older\",kind=\"a\"} 7\n# TYPE t histogram\nt_bucket{le=\"1\"} 2\nt_bucket{le=\"+Inf\"} 3\n\
                t_sum 4.5\nt_count 3\n# EOF\n";
    let open_metrics = ("content-type", "application/openmetrics-text; version=1.0.0");
    let mut server = Server::start(answers(vec![
        answer(200, &[open_metrics], text),
        answer(500, &[], ""),
        answer(200, &[open_metrics], "# TYPE cut counter\ncut_total 1\n"),
        answer(
            200,
            &[("content-type", "text/plain; version=0.0.4")],
            "late 1 1700000000000\n",
        ),
    ]))
    .await;
    let config = format!(
        "interval: 1s, timeout: 1s, labels: {{ site: north }}, headers: {{ authorization: 'Bearer ${{CARGO_PKG_NAME}}' }}, \
         targets: [ {{ url: 'http://{}/metrics', labels: {{ job: mine }} }} ]",
        server.at
    );
    let runtime = start(&bench, &config).await;
    let asked = server.next().await;
    assert_eq!(asked.uri, "/metrics");
    assert_eq!(asked.headers["authorization"], "Bearer platform-rack");
    assert_eq!(asked.headers["x-prometheus-scrape-timeout-seconds"], "1");
    assert!(
        asked.headers["accept"]
            .to_str()
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
    let late = wait_for(&bench, "late", 1).await;
    let at: Timestamp = late[0]["ts"].as_str().unwrap().parse().unwrap();
    assert_eq!(at, Timestamp::from_micros(1_700_000_000_000_000));
    let instance = server.at.to_string();
    let jobs = points(&bench, "jobs_total");
    assert_eq!(
        (jobs.len(), &jobs[0]["type"], &jobs[0]["value"]),
        (1, &json!("counter"), &json!(7.0))
    );
    let labels = jobs[0]["labels"].as_object().unwrap();
    for (name, value) in [
        ("kind", "a"),
        ("job", "mine"),
        ("exported_job", "older"),
        ("exported_exported_job", "own"),
        ("site", "north"),
        ("instance", instance.as_str()),
    ] {
        assert_eq!(labels[name], value, "{name}");
    }
    let histogram = &points(&bench, "t")[0];
    assert_eq!(
        (&histogram["type"], &histogram["value"]),
        (&json!("histogram"), &json!(4.5))
    );
    assert_eq!(
        (
            &histogram["labels"]["otel.bounds"],
            &histogram["labels"]["otel.buckets"]
        ),
        (&json!([1.0]), &json!([2, 1]))
    );
    let up: Vec<_> = wait_for(&bench, "up", 4)
        .await
        .iter()
        .take(4)
        .map(|row| row["value"].clone())
        .collect();
    assert_eq!(up, [json!(1.0), json!(0.0), json!(0.0), json!(1.0)]);
    assert!(wait_for(&bench, "scrape_duration_seconds", 4).await.len() >= 4);
    // What was cut off is no scrape, and is said once with what failed before.
    assert_eq!(points(&bench, "cut_total"), Vec::<Map<String, Value>>::new());
    bench.says("scrape", "it answered 500").await;
    bench.says("scrape", "can be scraped again").await;
    assert!(!bench.logs("scrape").iter().any(|log| log.contains("# EOF")));
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rack_that_records_nothing_scrapes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open_with(folder.path(), false);
    let mut runtime = bench.runtime();
    let gear = "\n  - { name: scrape, type: prometheus_scrape, deploy: rack-a, config: { targets: [ { url: 'http://127.0.0.1:9/' } ] } }";
    let error = runtime.apply(&push("h", gear, "")).await.error.unwrap();
    assert!(error.contains("observability.enabled"), "{error}");
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sample_with_a_time_of_its_own_is_stored_once_however_often_it_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let shown = [
        "late 1 1700000000000",
        "late 1 1700000000000",
        "late 2 1700000000001",
        "late 2 1700000000001",
    ];
    let texts = shown.map(|late| answer(200, &[], &format!("{late}\nplain 1\n")));
    let server = Server::start(answers(texts.into())).await;
    let config = format!(
        "interval: 1s, timeout: 1s, targets: [ {{ url: 'http://{}/' }} ]",
        server.at
    );
    let runtime = start(&bench, &config).await;
    assert_eq!(wait_for(&bench, "plain", 4).await.len(), 4);
    let values: Vec<_> = points(&bench, "late").iter().map(|row| row["value"].clone()).collect();
    assert_eq!(values, [json!(1.0), json!(2.0)]);
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_away_holds_no_other_up() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (_socket, closed) = held_port();
    let server = Server::start(answers(Vec::new())).await;
    let config = format!(
        "interval: 500ms, timeout: 500ms, targets: [ {{ url: 'http://{closed}/' }}, {{ url: 'http://{}/' }} ]",
        server.at
    );
    let runtime = start(&bench, &config).await;
    let of = |at: std::net::SocketAddr, rows: &[Map<String, Value>]| -> Vec<Value> {
        let of_target = rows.iter().filter(|row| row["labels"]["instance"] == at.to_string());
        of_target.map(|row| row["value"].clone()).collect()
    };
    let up = bench.wait("both targets", |bench| {
        let rows = points(bench, "up");
        let (away, there) = (of(closed, &rows), of(server.at, &rows));
        (away.len() >= 2 && there.len() >= 2).then_some((away, there))
    });
    let (away, there) = up.await;
    assert!(away.iter().all(|value| *value == 0.0), "{away:?}");
    assert!(there.contains(&json!(1.0)), "{there:?}");
    runtime.close().await;
    bench.close().await;
}
