//! Gears stop: what is on its way reaches who waits for it.

use serde_json::json;

use super::*;

/// A door that takes requests, and a throttle that answers them.
fn answering(kind: &str, config: &str, rate: f64) -> String {
    format!(
        "
  - {{ name: door, type: {kind}, deploy: rack-a, config: {{ listen: '127.0.0.1:0'{config} }} }}
  - {{ name: slow, type: throttle, deploy: rack-a, config: {{ rate: {rate} }} }}
  - {{ name: queued, type: log_sink, deploy: rack-a }}"
    )
}

const ANSWERED: &str =
    "{ from: door.out, to: slow.in }, { from: slow.out, to: door.reply }, { from: door.out, to: queued.in }";

/// A request that waits for its reply behind one that has it.
async fn waiting(bench: &Bench, to: SocketAddr) -> JoinHandle<String> {
    assert_eq!(status(&post(to, "", b"first").await), 200);
    let waits = tokio::spawn(async move { post(to, "", b"second").await });
    bench.records("queued", 2).await;
    waits
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_gets_its_reply_although_its_gear_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    let gears = answering("http_in", ", reply_within: 20s", 5.0);
    assert_eq!(runtime.apply(&push("h1", &gears, ANSWERED)).await.error, None);
    let waits = waiting(&bench, address(&bench, "door").await).await;
    let one_more = format!("{ANSWERED}, {DOOR_TO_SINK}");
    let applied = runtime.apply(&push("h2", &format!("{gears}{SINK}"), &one_more)).await;
    assert_eq!(applied.error, None);
    let answer = waits.await.unwrap();
    assert_eq!((status(&answer), answer.ends_with("second")), (200, true), "{answer}");
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_gets_its_reply_although_the_rack_stops() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    let gears = answering("http_in", ", reply_within: 20s", 0.001);
    assert_eq!(runtime.apply(&push("h", &gears, ANSWERED)).await.error, None);
    let waits = waiting(&bench, address(&bench, "door").await).await;
    let began = Instant::now();
    runtime.close().await;
    assert!(began.elapsed() < STOP_BOUND, "{:?}", began.elapsed());
    let answer = waits.await.unwrap();
    assert_eq!((status(&answer), answer.ends_with("second")), (200, true), "{answer}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reply_that_waits_is_written_when_the_rack_stops() {
    const LINES: usize = 500;
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    let applied = runtime
        .apply(&push("h", &answering("tcp_in", "", 0.001), ANSWERED))
        .await;
    assert_eq!(applied.error, None);
    let mut peer = TcpStream::connect(bench.address("door", "tcp").await).await.unwrap();
    let lines: String = (0..LINES).map(|number| format!("{number}\n")).collect();
    peer.write_all(lines.as_bytes()).await.unwrap();
    bench.records("queued", LINES).await;
    runtime.close().await;
    let mut replies = String::new();
    peer.read_to_string(&mut replies).await.unwrap();
    assert_eq!(replies, lines);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_stopping_cycle_are_handled_downstream() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime_with(MessageLimits::new(2, 2 << 20));
    let messages: Vec<_> = (0..500).map(|number| json!({ "raw": number.to_string() })).collect();
    let gears = format!(
        "
  - {{ name: feed, type: test_feed, deploy: rack-a, config: {{ messages: {} }} }}
  - {{ name: slow, type: throttle, deploy: rack-a, config: {{ rate: 0.001 }} }}{SINK}",
        json!(messages)
    );
    let wires = "{ from: feed.out, to: slow.in }, { from: slow.out, to: slow.in }, { from: slow.out, to: sink.in }";
    assert_eq!(runtime.apply(&push("h", &gears, wires)).await.error, None);
    bench.says("feed", "the gear has finished").await;
    bench.records("sink", 1).await;
    runtime.close().await;
    assert_eq!(bench.records("sink", 1).await.len(), 500);
    bench.close().await;
}
