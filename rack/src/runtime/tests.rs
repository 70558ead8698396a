//! What scenarios do to the gears of a Rack: on real sockets, files and a real spool.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

use chassis::config::check::load_from;
use model::Table;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::config::{RackConfig, SCHEMA};
use crate::gears::testing::{Bench, push};

/// Waits for a listening gear and gives its address.
async fn address(bench: &Bench, gear: &str) -> SocketAddr {
    let text = bench.says(gear, "listening on http://").await;
    let rest = text.strip_prefix("listening on http://").unwrap();
    rest.split('/').next().unwrap().parse().unwrap()
}

/// Sends bytes and reads the answer to its end.
async fn raw(to: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    // A server that refuses a body may close before it has read it.
    stream.write_all(request).await.ok();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok();
    String::from_utf8_lossy(&answer).into_owned()
}

async fn post(to: SocketAddr, headers: &str, body: &[u8]) -> String {
    let mut request = format!(
        "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
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
async fn a_posted_body_becomes_a_message_in_the_callers_trace() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    runtime.apply(&push("h", &format!("{HTTP}{SINK}"), DOOR_TO_SINK)).await;
    let to = address(&bench, "door").await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let header = format!("traceparent: 00-{trace}-00f067aa0ba902b7-01\r\nContent-Type: text/plain\r\n");
    let answer = post(to, &header, b"hello there").await;
    assert_eq!(status(&answer), 202, "{answer}");
    assert_eq!(body(&answer)["trace_id"], trace);
    let unsampled = format!("traceparent: 00-{trace}-00f067aa0ba902b7-00\r\n");
    assert_eq!(status(&post(to, &unsampled, b"quiet one").await), 202);
    bench.says("sink", "quiet one").await;
    runtime.close().await;
    bench
        .wait("both spans", |bench| {
            (bench.rows(Table::Traces).len() >= 2).then_some(())
        })
        .await;
    let rows = bench.rows(Table::Logs);
    let record = rows.iter().find(|row| row["message"] == "hello there").unwrap();
    assert_eq!(record["flux_id"], body(&answer)["flux_id"]);
    assert_eq!(
        (&record["attributes"]["trace_id"], &record["attributes"]["content_type"]),
        (&trace.into(), &"text/plain".into())
    );
    let spans = bench.rows(Table::Traces);
    let door = spans.iter().find(|span| span["span_name"] == "http_in door").unwrap();
    assert_eq!((&door["parent_span_id"], spans.len()), (&"00f067aa0ba902b7".into(), 2));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_in_refuses_what_it_cannot_pass_on_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime_with(Limits::new(64, 4096));
    let alone = "\n  - { name: alone, type: http_in, deploy: rack-a, config: { listen: '127.0.0.1:0' } }";
    runtime
        .apply(&push("h", &format!("{HTTP}{alone}{SINK}"), DOOR_TO_SINK))
        .await;
    let to = address(&bench, "door").await;
    for (request, wanted, says) in [
        (
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            405,
            "use POST",
        ),
        (
            "POST /other HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            404,
            "taken at /",
        ),
        ("nonsense\r\n\r\n", 400, ""),
    ] {
        let answer = raw(to, request.as_bytes()).await;
        assert_eq!(status(&answer), wanted, "{answer}");
        assert!(answer.contains(says), "{answer}");
    }
    assert_eq!(status(&post(to, "", &vec![b'x'; 4097]).await), 413);
    let chunk = format!("1388\r\n{}\r\n0\r\n\r\n", "x".repeat(0x1388));
    let head = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = raw(to, format!("{head}{chunk}").as_bytes()).await;
    assert_eq!((status(&answer), &body(&answer)["code"]), (413, &"too_large".into()));
    let nearly = post(to, "", &vec![b'x'; 4090]).await;
    assert_eq!((status(&nearly), &body(&nearly)["code"]), (413, &"too_large".into()));
    // The envelope counts: ids, facts and keys are some 300 bytes.
    assert_eq!(status(&post(to, "", &vec![b'x'; 3700]).await), 202);
    let alone = address(&bench, "alone").await;
    let answer = post(alone, "", b"x").await;
    assert_eq!((status(&answer), &body(&answer)["code"]), (503, &"unwired".into()));
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unaffected_gears_keep_their_task_and_socket_across_an_apply() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    runtime.apply(&push("h1", &format!("{HTTP}{SINK}"), DOOR_TO_SINK)).await;
    let to = address(&bench, "door").await;
    let task = runtime.gears[&"door".parse().unwrap()].task.id();
    let mut open = TcpStream::connect(to).await.unwrap();
    open.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nbe")
        .await
        .unwrap();
    // The sink is replaced (other level), a gear is added: the door does not notice.
    let sink = "\n  - { name: sink, type: log_sink, deploy: rack-a, config: { level: warn } }";
    let more = "\n  - { name: more, type: host_metrics, deploy: rack-a }";
    let applied = runtime
        .apply(&push("h2", &format!("{HTTP}{sink}{more}"), DOOR_TO_SINK))
        .await;
    assert_eq!((applied.running.as_deref(), applied.error), (Some("h2"), None));
    assert_eq!(runtime.gears[&"door".parse().unwrap()].task.id(), task);
    open.write_all(b"gun").await.unwrap();
    let mut answer = [0; 12];
    open.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 202");
    bench.says("sink", "begun").await;
    let rows = bench.rows(Table::Logs);
    assert_eq!(
        rows.iter().find(|row| row["message"] == "begun").unwrap()["level"],
        "warn"
    );
    runtime.apply(&push("h3", "[]", "")).await;
    assert_eq!(runtime.running_gears(), 0);
    assert!(TcpStream::connect(to).await.is_err());
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scenario_that_cannot_start_leaves_the_last_good_one_running() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut runtime = bench.runtime();
    runtime
        .apply(&push("good", &format!("{HTTP}{SINK}"), DOOR_TO_SINK))
        .await;
    let to = address(&bench, "door").await;
    for (gears, wires, says) in [
        (
            format!("{SINK}\n  - {{ name: a, type: test_refuses, deploy: rack-a }}"),
            "",
            "it has no fuel",
        ),
        (
            format!(
                "\n  - {{ name: door, type: http_in, deploy: rack-a, config: {{ listen: '127.0.0.1:{port}' }} }}{SINK}"
            ),
            DOOR_TO_SINK,
            "another program or gear has this port",
        ),
        (
            "\n  - { name: t, type: file_tail, deploy: rack-a, config: { path: /x, multiline_start: '(' } }".to_owned(),
            "",
            "regular expression",
        ),
        (
            format!("{HTTP}{SINK}"),
            "{ from: door.out, to: sink.in, lane: guaranteed }",
            "did not say where its messages come from",
        ),
    ] {
        let applied = runtime.apply(&push("bad", &gears, wires)).await;
        assert_eq!(applied.running.as_deref(), Some("good"));
        assert!(applied.error.as_deref().unwrap().contains(says), "{applied:?}");
        assert_eq!(runtime.running_gears(), 2, "{says}");
    }
    // The door was stopped for two of them and has a new port now; the one before is closed.
    let now = bench
        .wait("a new address", |bench| {
            let lines = bench.logs("door");
            let last = lines.iter().rfind(|line| line.contains("listening"))?;
            let at: SocketAddr = last
                .strip_prefix("listening on http://")?
                .split('/')
                .next()?
                .parse()
                .ok()?;
            (at != to && at.port() != port).then_some(at)
        })
        .await;
    assert_eq!(status(&post(now, "", b"still here").await), 202);
    bench.says("sink", "still here").await;
    runtime.close().await;
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
async fn the_halves_of_a_duplex_gear_have_one_life_and_what_is_kept_outlives_it() {
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
    assert!(began.elapsed() < DRAIN_BOUND);
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
    slow.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nne")
        .await
        .unwrap();
    let began = Instant::now();
    runtime.set_running(false).await;
    assert!(began.elapsed() < DRAIN_BOUND);
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
    let mut runtime = bench.runtime_with(Limits::of(&config.rack));
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
    runtime
        .apply(&push(
            "h",
            &format!("{SINK}\n  - {{ name: deaf, type: test_deaf, deploy: rack-a }}"),
            "",
        ))
        .await;
    let began = Instant::now();
    runtime.close().await;
    assert!(began.elapsed() < DRAIN_BOUND + Duration::from_millis(500));
    bench.close().await;
}

fn tail(path: &Path, more: &str) -> String {
    format!(
        "\n  - {{ name: tail, type: file_tail, deploy: rack-a, config: {{ path: '{}', poll_interval: 2ms{more} }} }}",
        path.display()
    )
}

/// Cuts every gear off wherever it is, as a gear that does not stop in time is.
async fn kill(mut runtime: GearRuntime) {
    for slot in runtime.gears.values_mut() {
        slot.task.abort();
        (&mut slot.task).await.ok();
    }
}

fn lines_of(bench: &Bench, path: &Path) -> Vec<serde_json::Map<String, Value>> {
    let path = path.display().to_string();
    let rows = bench.rows(Table::Logs).into_iter();
    rows.filter(|row| row["attributes"]["file.path"] == path.as_str() && row["attributes"]["gear.id"] == "tail")
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tailed_lines_become_records_with_level_and_messages_where_wired() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.log");
    fs::write(&path, b"plain\n2026 ERROR broke\n\xffodd\n").unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    let gears = format!("{}{SINK}", tail(&path, ", level: debug"));
    let applied = runtime
        .apply(&push("h", &gears, "{ from: tail.out, to: sink.in }"))
        .await;
    assert_eq!(applied.error, None);
    bench.says("sink", "odd").await;
    runtime.close().await;
    let rows = lines_of(&bench, &path);
    let seen: Vec<_> = rows
        .iter()
        .map(|row| (row["message"].as_str().unwrap(), row["level"].as_str().unwrap()))
        .collect();
    assert_eq!(
        seen,
        [
            ("plain", "debug"),
            ("2026 ERROR broke", "error"),
            ("\u{fffd}odd", "debug")
        ]
    );
    assert_eq!(rows[1]["attributes"]["file.offset"], 6);
    let echo = bench.rows(Table::Logs);
    let echo = echo
        .iter()
        .find(|row| row["attributes"]["gear.id"] == "sink" && row["message"] == "plain")
        .unwrap();
    assert_eq!(echo["flux_id"], rows[0]["flux_id"]);
    assert_eq!(echo["attributes"]["trace_id"], rows[0]["attributes"]["trace_id"]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tailed_lines_are_stored_once_each_whatever_stops_the_gear() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.log");
    let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
    let mut written = 0;
    let mut write = |file: &mut fs::File, count: usize| {
        let mut text = String::new();
        for _ in 0..count {
            text.push_str(&format!("line {written}\n"));
            written += 1;
        }
        file.write_all(text.as_bytes()).unwrap();
        written
    };
    let scenario = push("h", &tail(&path, ""), "");
    for life in 0..4 {
        let bench = Bench::open(folder.path());
        for round in 0..5 {
            let total = write(&mut file, 700);
            if round == 3 {
                fs::rename(&path, folder.path().join(format!("app.log.{}", 100 - life))).unwrap();
                file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
            }
            let mut runtime = bench.runtime();
            assert_eq!(runtime.apply(&scenario).await.error, None);
            if round == 4 {
                bench
                    .wait("every line", |bench| {
                        (lines_of(bench, &path).len() >= total).then_some(())
                    })
                    .await;
                runtime.close().await;
            } else {
                bench
                    .wait("some lines", |bench| {
                        (lines_of(bench, &path).len() > total - 700).then_some(())
                    })
                    .await;
                kill(runtime).await;
            }
        }
        bench.close().await;
    }
    let bench = Bench::open(folder.path());
    let stored: Vec<String> = lines_of(&bench, &path)
        .iter()
        .map(|row| row["message"].as_str().unwrap().to_owned())
        .collect();
    let wanted: Vec<String> = (0..14_000).map(|number| format!("line {number}")).collect();
    assert_eq!(stored.len(), wanted.len());
    assert!(stored == wanted, "order");
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
