//! A scenario takes the place of another one.

use super::*;
use serde_json::json;

/// A feed of numbered messages, a throttle of this rate, and a sink.
fn scenario(hash: &str, rate: f64) -> ScenarioPush {
    let messages: Vec<_> = (0..300)
        .map(|number| json!({ "raw": format!("{number:03}") }))
        .collect();
    let gears = json!([
        { "name": "feed", "type": "test_feed", "deploy": "rack-a", "config": { "messages": messages } },
        { "name": "slow", "type": "throttle", "deploy": "rack-a", "config": { "rate": rate } },
        { "name": "sink", "type": "log_sink", "deploy": "rack-a" },
    ]);
    push(
        hash,
        &gears.to_string(),
        "{ from: feed.out, to: slow.in }, { from: slow.out, to: sink.in }",
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_gear_that_is_replaced_is_its_successors_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    assert_eq!(runtime.apply(&scenario("h1", 0.01)).await.error, None);
    bench.says("feed", "the gear has finished").await;
    bench.records("sink", 1).await;
    for hash in ["h2", "h3", "h4"] {
        let began = Instant::now();
        // Slow again, and another one.
        let rate = 0.01 + f64::from(hash.as_bytes()[1]) / 1e6;
        assert_eq!(runtime.apply(&scenario(hash, rate)).await.error, None);
        assert!(began.elapsed() < STOP_BOUND, "{hash}: nobody waits for a rate");
    }
    assert!(
        bench.records("sink", 1).await.len() < 10,
        "the rate is kept while gears are replaced"
    );
    assert_eq!(runtime.apply(&scenario("h5", 1e6)).await.error, None);
    let rows = bench.records("sink", 300).await;
    let texts: Vec<_> = rows
        .iter()
        .map(|row| row["message"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(texts, (0..300).map(|number| format!("{number:03}")).collect::<Vec<_>>());
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
    open.write_all(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nbe")
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
            "\n  - { name: t, type: file_tail, deploy: rack-a, config: { path: x, multiline_start: '(' } }".to_owned(),
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
