//! What scenarios do to the gears of a Rack: on real sockets, files and a real spool.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod hang;
mod http;
mod policy;
mod reload;
mod stop;
mod tail;

use std::net::SocketAddr;

use chassis::config::schema_check::load_from;
use model::Table;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::config::{RackConfig, SCHEMA};
use crate::gears::testing::{Bench, STOP_BOUND, push};

/// Waits for a listening gear and gives its address.
async fn address(bench: &Bench, gear: &str) -> SocketAddr {
    let text = bench.says(gear, "listening on http://").await;
    let rest = text.strip_prefix("listening on http://").unwrap();
    rest.split('/').next().unwrap().parse().unwrap()
}

/// Sends bytes and reads the answer to its end.
async fn raw(to: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

async fn post(to: SocketAddr, headers: &str, body: &[u8]) -> String {
    let mut request = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    request.push_str(std::str::from_utf8(body).unwrap());
    raw(to, request.as_bytes()).await
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).unwrap_or_default().parse().unwrap_or(0)
}

fn body(answer: &str) -> Value {
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

fn counter(bench: &Bench, gear: &str, name: &str) -> f64 {
    let rows = bench.rows(Table::Metrics);
    let of_gear = |row: &&serde_json::Map<String, Value>| row["name"] == name && row["labels"]["gear.id"] == gear;
    rows.iter()
        .rfind(of_gear)
        .map_or(-1.0, |row| row["value"].as_f64().unwrap())
}

const HTTP: &str = "\n  - { name: door, type: http_in, deploy: rack-a, config: { listen: '127.0.0.1:0' } }";
const SINK: &str = "\n  - { name: sink, type: log_sink, deploy: rack-a }";
const DOOR_TO_SINK: &str = "{ from: door.out, to: sink.in }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generated_flow_arrives_once_with_a_span_at_every_gear_and_counters() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    let numbers = "\n  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 100000, count: 3000, seed: 5, size: 12 } }";
    let applied = runtime
        .apply(&push(
            "h1",
            &format!("{numbers}{SINK}"),
            "{ from: numbers.out, to: sink.in }",
        ))
        .await;
    assert_eq!((applied.running.as_deref(), applied.error), (Some("h1"), None));
    bench.says("numbers", "the gear has finished").await;
    runtime.close().await;
    bench
        .wait("the last counters", |bench| {
            (counter(bench, "sink", "gear.messages.in") >= 0.0).then_some(())
        })
        .await;
    let logs = bench.rows(Table::Logs);
    let mut seen: Vec<u64> = logs
        .iter()
        .filter_map(|row| row["attributes"]["generator.number"].as_u64())
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..3000).collect::<Vec<u64>>());
    let spans = bench.rows(Table::Traces);
    let (roots, others): (Vec<_>, Vec<_>) = spans.iter().partition(|span| span["parent_span_id"].is_null());
    assert_eq!((roots.len(), others.len()), (3000, 3000));
    let child = others
        .iter()
        .find(|span| span["trace_id"] == roots[7]["trace_id"])
        .unwrap();
    assert_eq!(child["parent_span_id"], roots[7]["span_id"]);
    assert_eq!(child["flux_id"], roots[7]["flux_id"]);
    assert_eq!(
        (&roots[7]["span_name"], &child["span_name"]),
        (&"generator numbers".into(), &"log_sink sink".into())
    );
    assert_eq!(
        (&child["status"], &child["attributes"]["gear.type"]),
        (&"ok".into(), &"log_sink".into())
    );
    let record = logs.iter().find(|row| row["flux_id"] == child["flux_id"]).unwrap();
    assert_eq!(record["attributes"]["span_id"], child["span_id"]);
    assert_eq!(record["message"].as_str().unwrap().len(), 12);
    assert_eq!(counter(&bench, "numbers", "gear.messages.out"), 3000.0);
    assert_eq!(counter(&bench, "sink", "gear.messages.in"), 3000.0);
    assert_eq!(counter(&bench, "sink", "gear.errors"), 0.0);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panicking_gear_is_reported_and_restarted_while_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    let panics = "\n  - { name: weak, type: test_panics, deploy: rack-a }";
    let wires = format!("{DOOR_TO_SINK}, {{ from: door.out, to: weak.in }}");
    runtime
        .apply(&push("h", &format!("{HTTP}{SINK}{panics}"), &wires))
        .await;
    let to = address(&bench, "door").await;
    for body in ["bad one", "zebra", "another bad one", "yak"] {
        assert_eq!(status(&post(to, "", body.as_bytes()).await), 202);
    }
    bench
        .says(
            "weak",
            "the gear panicked: a message it cannot bear; it starts again in 100 ms",
        )
        .await;
    bench.says("weak", "it starts again in 200 ms").await;
    bench.says("weak", "survived zebra").await;
    bench.says("weak", "survived yak").await;
    bench.says("sink", "another bad one").await;
    runtime.close().await;
    bench
        .wait("the span of the panic", |bench| {
            let spans = bench.rows(Table::Traces);
            spans
                .iter()
                .find(|span| span["span_name"] == "test_panics weak" && span["status"] == "error")
                .map(drop)
        })
        .await;
    bench
        .wait("counters", |bench| {
            (counter(bench, "weak", "gear.errors") >= 2.0).then_some(())
        })
        .await;
    assert_eq!(counter(&bench, "sink", "gear.errors"), 0.0);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_halves_of_a_duplex_gear_restart_together_and_kept_state_survives() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    let both = "\n  - { name: both, type: test_duplex, deploy: rack-a }";
    let applied = runtime
        .apply(&push("h", &format!("{HTTP}{both}"), "{ from: door.out, to: both.in }"))
        .await;
    assert_eq!(applied.error, None);
    let to = address(&bench, "door").await;
    assert_eq!(status(&post(to, "", b"one").await), 202);
    bench.says("both", "heard 1").await;
    assert_eq!(status(&post(to, "", b"fail").await), 202);
    bench
        .says("both", "its active half has heard enough; it starts again in 100 ms")
        .await;
    assert_eq!(status(&post(to, "", b"three").await), 202);
    bench.says("both", "heard 3").await;
    let began = Instant::now();
    runtime.close().await;
    assert!(began.elapsed() < STOP_BOUND);
    bench.says("both", "the gear stopped").await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_rack_holds_no_socket_and_resumes_what_ran() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    runtime.apply(&push("h", &format!("{HTTP}{SINK}"), DOOR_TO_SINK)).await;
    let to = address(&bench, "door").await;
    // One peer says nothing, one never finishes its request: neither holds up the stop.
    let _silent = TcpStream::connect(to).await.unwrap();
    let mut slow = TcpStream::connect(to).await.unwrap();
    slow.write_all(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nne")
        .await
        .unwrap();
    let began = Instant::now();
    runtime.set_running(false).await;
    assert!(began.elapsed() < STOP_BOUND);
    runtime.set_running(false).await;
    assert_eq!(runtime.running_gears(), 0);
    assert!(TcpStream::connect(to).await.is_err());
    let applied = runtime.apply(&push("h2", &format!("{HTTP}{SINK}"), DOOR_TO_SINK)).await;
    assert_eq!(
        (applied.running.as_deref(), applied.error, runtime.running_gears()),
        (Some("h2"), None, 0)
    );
    runtime.set_running(true).await;
    assert_eq!(runtime.running_gears(), 2);
    let again = bench
        .wait("a new address", |bench| {
            let lines = bench.logs("door");
            let mut lines = lines
                .iter()
                .filter_map(|line| line.strip_prefix("listening on http://"));
            lines.nth(1)?.split('/').next()?.parse().ok()
        })
        .await;
    assert_eq!(status(&post(again, "", b"back again").await), 202);
    bench.says("sink", "back again").await;
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_ends_at_max_hops_and_a_large_message_at_max_payload_size() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let file = "[rack]\nmax_hops = 5\nmax_payload_size = 1024\n";
    let config = RackConfig::of(&load_from(&SCHEMA, file, &[]).unwrap()).unwrap();
    let mut runtime = bench.runtime_with(MessageLimits::of(&config.rack));
    let gears = "
  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 1000, count: 1 } }
  - { name: large, type: generator, deploy: rack-a, config: { rate: 1000, count: 3, size: 1024 } }
  - { name: a, type: test_loop, deploy: rack-a }
  - { name: b, type: test_loop, deploy: rack-a }";
    let wires = "{ from: numbers.out, to: a.in }, { from: large.out, to: a.in }, { from: a.out, to: b.in }, { from: b.out, to: a.in }";
    let applied = runtime.apply(&push("h", gears, wires)).await;
    assert_eq!(applied.error, None);
    // numbers 1, a 2, b 3, a 4, b 5: the sixth hop, from a, is one too many.
    bench
        .says("a", "a message was refused: the message has passed 5 gears")
        .await;
    bench.says("large", "max_payload_size allows 1024").await;
    runtime.close().await;
    bench.says("large", "2 more messages were refused").await;
    bench
        .wait("counters", |bench| {
            (counter(bench, "a", "gear.messages.dropped") >= 1.0).then_some(())
        })
        .await;
    assert_eq!(counter(&bench, "a", "gear.messages.in"), 3.0);
    assert_eq!(counter(&bench, "b", "gear.messages.in"), 2.0);
    assert_eq!(counter(&bench, "large", "gear.messages.dropped"), 3.0);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gear_that_does_not_stop_is_cut_off_within_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    runtime.parts.drain = DRAIN_BOUND;
    runtime
        .apply(&push(
            "h",
            &format!("{SINK}\n  - {{ name: deaf, type: test_deaf, deploy: rack-a }}"),
            "",
        ))
        .await;
    let began = Instant::now();
    runtime.close().await;
    let took = began.elapsed();
    assert!((DRAIN_BOUND..DRAIN_BOUND * 6).contains(&took), "{took:?}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_metrics_are_recorded_with_units() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    runtime
        .apply(&push(
            "h",
            "\n  - { name: host, type: host_metrics, deploy: rack-a, config: { interval: 50ms } }",
            "",
        ))
        .await;
    bench
        .wait("a CPU utilization", |bench| {
            let rows = bench.rows(Table::Metrics);
            rows.into_iter()
                .find(|row| row["name"] == "system.cpu.utilization" && row["labels"]["otel.unit"] == "1")
        })
        .await;
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wire_over_the_bus_is_refused_where_there_is_no_bus() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    let numbers = "\n  - { name: numbers, type: generator, deploy: rack-a }";
    let wire = "{ from: numbers.out, to: elsewhere.in, lane: guaranteed }";
    let applied = runtime.apply(&push("h", numbers, wire)).await;
    assert_eq!(applied.running, None);
    let reason = applied.error.unwrap();
    assert!(reason.contains("need the bus"), "{reason}");
    runtime.close().await;
    bench.close().await;
}
