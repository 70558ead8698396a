//! `tcp_out` against real listeners in a real runtime.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use crate::gears::supervisor::supervise;
use crate::gears::testing::held::{deliver, outbox, spec, surroundings_with};
use crate::gears::testing::{Bench, STOP_BOUND, held_port, push};
use crate::inbox::GearInbox;
use crate::message_limits::MessageLimits;
use crate::runtime::GearRuntime;

async fn start(bench: &Bench, gears: &str, wires: &str) -> GearRuntime {
    let mut runtime = bench.runtime();
    assert_eq!(runtime.apply(&push("h", gears, wires)).await.error, None);
    runtime
}

fn out(config: &str) -> String {
    format!("\n  - {{ name: out, type: tcp_out, deploy: rack-a, config: {{ {config} }} }}")
}

fn numbers(count: usize) -> String {
    format!("\n  - {{ name: numbers, type: generator, deploy: rack-a, config: {{ rate: 100000, count: {count} }} }}")
}

const SINK: &str = "\n  - { name: sink, type: log_sink, deploy: rack-a }";
const TO_OUT: &str = "{ from: numbers.out, to: out.in }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_leave_as_frames_and_frames_that_come_back_are_messages() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let framing = format!("address: 'localhost:{port}', framing: {{ length: {{ bytes: 2, order: little }} }}");
    let wires = format!("{TO_OUT}, {{ from: out.reply, to: sink.in }}");
    let runtime = start(&bench, &format!("{}{}{SINK}", numbers(3), out(&framing)), &wires).await;
    let (mut stream, _) = listener.accept().await.unwrap();
    for number in 0..3 {
        let size = usize::from(stream.read_u16_le().await.unwrap());
        let mut body = vec![0; size];
        stream.read_exact(&mut body).await.unwrap();
        assert!(size > 0 && std::str::from_utf8(&body).is_ok(), "{number}");
        stream.write_all(&[2, 0, b'o', b'0' + number]).await.unwrap();
    }
    let records = bench.records("sink", 3).await;
    let texts: Vec<_> = records.iter().map(|row| row["message"].as_str().unwrap()).collect();
    assert_eq!(texts, ["o0", "o1", "o2"]);
    assert_eq!(records[0]["attributes"]["network.peer.address"], "127.0.0.1");
    assert_eq!(records[0]["attributes"]["network.peer.port"], port);
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_came_back_before_the_gear_stops_are_all_messages() {
    const COUNT: usize = 3_000;
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = format!("address: '{}'", listener.local_addr().unwrap());
    // More than its inbox holds wait for it.
    let slow = "\n  - { name: slow, type: throttle, deploy: rack-a, config: { rate: 2000, burst: 1 } }";
    let wires = format!("{TO_OUT}, {{ from: out.reply, to: slow.in }}, {{ from: slow.out, to: sink.in }}");
    let gears = format!("{}{}{slow}{SINK}", numbers(1), out(&config));
    let runtime = start(&bench, &gears, &wires).await;
    let (mut stream, _) = listener.accept().await.unwrap();
    let frames: String = (0..COUNT).map(|number| format!("{number}\n")).collect();
    stream.write_all(frames.as_bytes()).await.unwrap();
    bench.records("sink", 1).await;
    runtime.close().await;
    assert_eq!(bench.records("sink", COUNT).await.len(), COUNT);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_wait_for_a_connection_and_for_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (socket, at) = held_port();
    let config = format!("address: '{at}', reconnect_min: 20ms, reconnect_max: 40ms");
    let door = "\n  - { name: door, type: tcp_in, deploy: rack-a, config: { listen: '127.0.0.1:0' } }";
    let runtime = start(
        &bench,
        &format!("{}{door}", out(&config)),
        "{ from: door.out, to: out.in }",
    )
    .await;
    let mut sender = tokio::net::TcpStream::connect(bench.address("door", "tcp").await)
        .await
        .unwrap();
    sender.write_all(b"one\ntwo\n").await.unwrap();
    bench.says("out", "trying again in 20ms").await;
    bench.says("out", "trying again in 40ms").await;
    let listener = socket.listen(8).unwrap();
    for words in [["one", "two"], ["three", "four"]] {
        let (stream, _) = listener.accept().await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        for word in words {
            assert_eq!(lines.next_line().await.unwrap().as_deref(), Some(word));
        }
        drop(lines);
        bench.says("out", "has ended: the other side closed it").await;
        if words[0] == "one" {
            sender.write_all(b"three\nfour\n").await.unwrap();
        }
    }
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_cannot_be_a_frame_is_rejected_and_the_next_one_goes() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let door = "\n  - { name: door, type: tcp_in, deploy: rack-a, config: { listen: '127.0.0.1:0' } }";
    let config = format!(
        "address: '{}', framing: {{ delimiter: ';' }}",
        listener.local_addr().unwrap()
    );
    let runtime = start(
        &bench,
        &format!("{door}{}", out(&config)),
        "{ from: door.out, to: out.in }",
    )
    .await;
    let mut sender = tokio::net::TcpStream::connect(bench.address("door", "tcp").await)
        .await
        .unwrap();
    sender.write_all(b"a;b\ngood\n").await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut got = [0; 5];
    stream.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"good;");
    bench.says("out", "the body has the delimiter in it").await;
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_connection_it_stops_in_time_and_says_what_was_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (_socket, closed) = held_port();
    let gears = format!("{}{}", numbers(100), out(&format!("address: '{closed}'")));
    // Fewer than its inbox holds: a sender that waits for room holds up the stop until its bound.
    let runtime = start(&bench, &gears, TO_OUT).await;
    bench.says("out", "cannot connect to 127.0.0.1").await;
    let began = Instant::now();
    runtime.close().await;
    assert!(began.elapsed() < STOP_BOUND);
    bench.says("out", "the gear failed: cannot write to 127.0.0.1").await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_were_written_are_not_written_again_where_the_gear_is_replaced_at_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = json!({ "address": listener.local_addr().unwrap().to_string() });
    let (spec, inbox) = (spec("tcp_out", &config, &[]), GearInbox::new());
    // The third one is larger than what sockets hold.
    let large = vec![b'x'; 24 << 20];
    let taken: Vec<_> = (1..)
        .zip([&b"one"[..], b"two", &large])
        .map(|(number, body)| deliver(&inbox, number, body))
        .collect();
    let limits = MessageLimits::new(64, 64 << 20);
    let (cx, _stop) = surroundings_with(&spec, &bench, &outbox, limits.clone());
    let life = tokio::spawn(supervise(None, spec.clone(), cx, Some(inbox.clone())));
    let mut first = BufReader::new(listener.accept().await.unwrap().0);
    let mut line = String::new();
    for word in ["one\n", "two\n"] {
        line.clear();
        first.read_line(&mut line).await.unwrap();
        assert_eq!(line, word);
    }
    assert_eq!(first.read_u8().await.unwrap(), b'x');
    life.abort();
    life.await.unwrap_err();
    drop(first);
    let (cx, stop) = surroundings_with(&spec, &bench, &outbox, limits);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox)));
    let mut second = BufReader::new(listener.accept().await.unwrap().0);
    let mut frame = Vec::new();
    second.read_until(b'\n', &mut frame).await.unwrap();
    assert_eq!(frame.len(), large.len() + 1, "it begins with {:?}", frame.first());
    for taken in taken {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_reads_slowly_gets_a_large_frame_once() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = json!({ "address": listener.local_addr().unwrap().to_string(), "write_timeout": "3s" });
    let (spec, inbox) = (spec("tcp_out", &config, &[]), GearInbox::new());
    let large = vec![b'x'; 32 << 20];
    let taken = deliver(&inbox, 1, &large);
    let (cx, stop) = surroundings_with(&spec, &bench, &outbox, MessageLimits::new(64, 64 << 20));
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox)));
    let (mut peer, _) = listener.accept().await.unwrap();
    let (mut piece, mut got) = (vec![0; 1 << 20], 0);
    while got <= large.len() {
        // The pace of a slow link: the frame takes several times the timeout.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let read = peer.read(&mut piece).await.unwrap();
        assert!(read > 0, "the connection was given up after {got} bytes");
        got += read;
    }
    assert_eq!((got, taken.await.unwrap()), (large.len() + 1, Ok(())));
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}
