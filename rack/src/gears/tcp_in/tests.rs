//! `tcp_in` on real sockets in a real runtime.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use model::message::Message;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::gears::supervisor::supervise;
use crate::gears::testing::held::{deliver_to, outbox, spec, surroundings, taken_from};
use crate::gears::testing::{Bench, STOP_BOUND, message, push};
use crate::inbox::GearInbox;
use crate::outbox::OutboxRecord;
use crate::runtime::GearRuntime;
use crate::spool::{SpoolCursor, SpoolItem};

use crate::gears::tcp_listener::WRITE_TIMEOUT;

const SINK: &str = "\n  - { name: sink, type: log_sink, deploy: rack-a }";

/// A gear `door` with this configuration beside its address.
fn door(config: &str) -> String {
    format!("\n  - {{ name: door, type: tcp_in, deploy: rack-a, config: {{ listen: '127.0.0.1:0'{config} }} }}")
}

/// A peer that took nothing for so long takes nothing any more.
const STUCK: Duration = Duration::from_secs(3);
/// What others need less than, where they do not wait until a peer that is stuck is given up.
const SOON: Duration = WRITE_TIMEOUT.checked_sub(STUCK).unwrap();

async fn start(bench: &Bench, gears: &str, wires: &str) -> (GearRuntime, SocketAddr) {
    let mut runtime = bench.runtime();
    assert_eq!(runtime.apply(&push("h", gears, wires)).await.error, None);
    let at = bench.address("door", "tcp").await;
    (runtime, at)
}

const ECHO: &str = "{ from: door.out, to: door.reply }, { from: door.out, to: sink.in }";

struct Client(BufReader<TcpStream>);

impl Client {
    async fn connect(to: SocketAddr) -> Self {
        Self(BufReader::new(TcpStream::connect(to).await.unwrap()))
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).await.unwrap();
    }

    /// The next line, empty where the connection has ended.
    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = tokio::time::timeout(Duration::from_secs(20), self.0.read_line(&mut line)).await;
        // A reset is an end as well.
        read.unwrap().ok();
        line
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_frame_is_a_message_and_its_reply_goes_to_its_connection_only() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (runtime, at) = start(&bench, &format!("{}{SINK}", door("")), ECHO).await;
    let (mut one, mut two) = (Client::connect(at).await, Client::connect(at).await);
    one.send(b"first of one\nsecond ").await;
    two.send(b"first of two\n\n").await;
    one.send(b"of one\n").await;
    assert_eq!(
        (one.line().await, one.line().await),
        ("first of one\n".into(), "second of one\n".into())
    );
    assert_eq!(
        (two.line().await, two.line().await),
        ("first of two\n".into(), "\n".into())
    );
    let records = bench.records("sink", 4).await;
    let fact = |text: &str, key: &str| {
        let row = records.iter().find(|row| row["message"] == text).unwrap();
        row["attributes"][key].as_str().unwrap().to_owned()
    };
    assert_eq!(
        fact("first of one", "tcp.connection"),
        fact("second of one", "tcp.connection")
    );
    assert_ne!(
        fact("first of one", "tcp.connection"),
        fact("first of two", "tcp.connection")
    );
    let peer = two.0.get_ref().local_addr().unwrap();
    assert_eq!(fact("first of two", "network.peer.address"), peer.ip().to_string());
    let row = records.iter().find(|row| row["message"] == "first of two").unwrap();
    assert_eq!(row["attributes"]["network.peer.port"], peer.port());
    // Open and silent connections do not hold up the stop.
    let began = Instant::now();
    runtime.close().await;
    assert!(began.elapsed() < STOP_BOUND);
    assert_eq!(one.line().await, "");
    assert!(TcpStream::connect(at).await.is_err());
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_that_is_too_long_closes_its_connection_alone() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let framing = ", max_frame: 10, framing: { length: { bytes: 2 } }";
    let (runtime, at) = start(&bench, &format!("{}{SINK}", door(framing)), ECHO).await;
    let (mut good, mut bad) = (Client::connect(at).await, Client::connect(at).await);
    bad.send(&[0, 11]).await;
    assert_eq!(bad.line().await, "");
    bench.says("door", "is closed: a frame has more than 10 bytes").await;
    let mut cut = Client::connect(at).await;
    cut.send(&[0, 10, b'x']).await;
    drop(cut);
    bench.says("door", "is closed: it ended within a frame").await;
    good.send(b"\x00\x0a0123456789").await;
    let mut frame = [0; 12];
    good.0.read_exact(&mut frame).await.unwrap();
    assert_eq!(&frame, b"\x00\x0a0123456789");
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_closed_and_one_that_waits_for_a_place_is_served_then() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (runtime, at) = start(
        &bench,
        &format!("{}{SINK}", door(", max_connections: 1, idle_timeout: 6s")),
        ECHO,
    )
    .await;
    let mut one = Client::connect(at).await;
    one.send(b"one\n").await;
    assert_eq!(one.line().await, "one\n");
    let mut two = Client::connect(at).await;
    two.send(b"two\n").await;
    one.send(b"one again\n").await;
    assert_eq!(one.line().await, "one again\n");
    assert!(!bench.logs("sink").contains(&"two".to_owned()));
    // The first one says no more.
    assert_eq!(one.line().await, "");
    bench.says("door", "is closed: no frame went either way for 6s").await;
    assert_eq!(two.line().await, "two\n");
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_without_its_connection_is_rejected_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let gears = format!(
        "{}{SINK}
  - {{ name: other, type: tcp_in, deploy: rack-a, config: {{ listen: '127.0.0.1:0' }} }}
  - {{ name: numbers, type: generator, deploy: rack-a, config: {{ rate: 1000, count: 3 }} }}",
        door("")
    );
    let wires = format!("{ECHO}, {{ from: door.out, to: other.reply }}, {{ from: numbers.out, to: door.reply }}");
    let (runtime, at) = start(&bench, &gears, &wires).await;
    bench
        .says(
            "door",
            "a message was refused: a reply names no connection: tcp.connection must be in its meta",
        )
        .await;
    let mut client = Client::connect(at).await;
    client.send(b"hello\n").await;
    bench.says("other", "is closed or was never open").await;
    assert_eq!(client.line().await, "hello\n");
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_inbox_stops_the_reading_and_nothing_is_lost() {
    const LINES: usize = 40_000;
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let far = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let out = format!(
        "\n  - {{ name: out, type: tcp_out, deploy: rack-a, config: {{ address: '{}', write_timeout: 60s }} }}",
        far.local_addr().unwrap()
    );
    let (runtime, at) = start(&bench, &format!("{}{out}", door("")), "{ from: door.out, to: out.in }").await;
    let (far, _) = far.accept().await.unwrap();
    let mut near = TcpStream::connect(at).await.unwrap();
    let line = |number: usize| format!("{number:01023}\n");
    let mut write = tokio::spawn(async move {
        for number in 0..LINES {
            near.write_all(line(number).as_bytes()).await.unwrap();
        }
        near
    });
    // 40 MiB do not fit into an inbox and the buffers of four sockets.
    let stalls = tokio::time::timeout(Duration::from_secs(2), &mut write).await;
    assert!(stalls.is_err(), "the peer was not made to wait");
    let mut far = BufReader::new(far);
    let mut got = String::new();
    for number in 0..LINES {
        got.clear();
        far.read_line(&mut got).await.unwrap();
        assert_eq!(got, line(number));
    }
    write.await.unwrap();
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_does_not_read_its_replies_delays_no_other_and_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let framing = ", framing: { length: { bytes: 4 } }";
    let (runtime, at) = start(&bench, &door(framing), "{ from: door.out, to: door.reply }").await;
    let (mut deaf, mut good) = (Client::connect(at).await, Client::connect(at).await);
    // As much as the sockets hold, until nothing is read from it any more.
    let frame = [&1_000_u32.to_be_bytes()[..], &[b'x'; 1_000]].concat();
    while let Ok(sent) = tokio::time::timeout(STUCK, deaf.0.get_mut().write_all(&frame)).await {
        sent.unwrap();
    }
    let began = Instant::now();
    good.send(b"\0\0\0\x04good").await;
    let mut frame = [0; 8];
    good.0.read_exact(&mut frame).await.unwrap();
    assert_eq!(&frame, b"\0\0\0\x04good");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    bench.says("door", "took no reply and is closed").await;
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_of_a_guaranteed_wire_is_taken_when_it_is_written_and_a_dead_letter_when_it_cannot_be() {
    const REPLIES: u8 = 30;
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 64 << 20);
    let config = serde_json::json!({ "listen": "127.0.0.1:0", "framing": { "length": { "bytes": 4 } } });
    let (spec, inbox) = (spec("tcp_in", &config, &["out"]), GearInbox::new());
    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox.clone())));
    let mut peer = Client::connect(bench.address("it", "tcp").await).await;
    peer.send(b"\0\0\0\x01?").await;
    let asked = taken_from(&outbox, 1).await;
    let meta = Message::from_cbor(asked[0].body()).unwrap().meta;
    let reply = |number: u8, size: usize| {
        let mut reply = message(number, serde_json::Value::Null, &vec![number; size]);
        reply.meta = meta.clone();
        deliver_to(&inbox, "reply", number, reply)
    };
    assert_eq!(reply(1, 1).await.unwrap(), Ok(()));
    let mut frame = [0; 5];
    peer.0.read_exact(&mut frame).await.unwrap();
    // More than the sockets hold, and the peer does not read.
    let all: Vec<_> = (2..2 + REPLIES).map(|number| reply(number, 1_000_000)).collect();
    for taken in all {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    stop.cancel();
    life.await.unwrap();
    let mut written = Vec::new();
    peer.0.read_to_end(&mut written).await.unwrap();
    let whole = written.len() / 1_000_004;
    assert!(whole > 0 && whole < usize::from(REPLIES), "{whole}");
    let letters = taken_from(&outbox, usize::from(REPLIES) - whole).await;
    let numbers: Vec<_> = letters
        .iter()
        .map(|letter| usize::from(Message::from_cbor(letter.body()).unwrap().raw[0]))
        .collect();
    assert_eq!(numbers, (2 + whole..2 + usize::from(REPLIES)).collect::<Vec<_>>());
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

/// Behind a guaranteed wire a hundred replies to a peer that reads, after one to a peer that does not. The gear ends before that one is
/// given up, or after.
async fn beside_a_deaf_peer(ends_before: bool) {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 64 << 20);
    let config = serde_json::json!({ "listen": "127.0.0.1:0", "framing": { "length": { "bytes": 4 } } });
    let (spec, inbox) = (spec("tcp_in", &config, &["out"]), GearInbox::new());
    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox.clone())));
    let at = bench.address("it", "tcp").await;
    let (mut deaf, mut good) = (Client::connect(at).await, Client::connect(at).await);
    deaf.send(b"\0\0\0\x010").await;
    good.send(b"\0\0\0\x011").await;
    let asked = taken_from(&outbox, 2).await;
    let mut asked: Vec<_> = asked
        .iter()
        .map(|letter| Message::from_cbor(letter.body()).unwrap())
        .collect();
    asked.sort_by_key(|asked| asked.raw[0]);
    let mut number = 0;
    let mut reply = |to: usize, size: usize| {
        number += 1;
        let mut reply = message(number, serde_json::Value::Null, &vec![b'x'; size]);
        reply.meta = asked[to].meta.clone();
        deliver_to(&inbox, "reply", number, reply)
    };
    // As much as the sockets hold, until one is not written.
    let mut stuck = reply(0, 1_000_000);
    while let Ok(taken) = tokio::time::timeout(STUCK, &mut stuck).await {
        assert_eq!(taken.unwrap(), Ok(()));
        stuck = reply(0, 1_000_000);
    }
    let began = Instant::now();
    let behind: Vec<_> = (0..100).map(|_| reply(1, 1)).collect();
    for _ in 0..100 {
        let mut frame = [0; 5];
        let read = tokio::time::timeout(Duration::from_secs(20), good.0.read_exact(&mut frame));
        read.await.unwrap().unwrap();
        assert_eq!(&frame, b"\0\0\0\x01x");
    }
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let all_are_taken = async {
        for taken in std::iter::once(stuck).chain(behind) {
            assert_eq!(taken.await.unwrap(), Ok(()));
        }
        let letters = taken_from(&outbox, 1).await;
        assert_eq!(Message::from_cbor(letters[0].body()).unwrap().raw.len(), 1_000_000);
    };
    if ends_before {
        stop.cancel();
        let rest = SOON.saturating_sub(began.elapsed());
        tokio::time::timeout(rest, life).await.unwrap().unwrap();
        all_are_taken.await;
    } else {
        all_are_taken.await;
        stop.cancel();
        life.await.unwrap();
    }
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_guaranteed_wire_a_peer_that_does_not_read_delays_no_other_either() {
    beside_a_deaf_peer(false).await;
}

/// What the others took is not buried with what one did not take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_it_stops_a_peer_that_does_not_read_costs_its_own_reply_only() {
    beside_a_deaf_peer(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_arrive_together_are_one_entry_of_the_outbox() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 64 << 20);
    let config = serde_json::json!({ "listen": "127.0.0.1:0", "framing": { "delimiter": "\n" } });
    let (spec, inbox) = (spec("tcp_in", &config, &["out"]), GearInbox::new());
    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox)));
    let mut peer = Client::connect(bench.address("it", "tcp").await).await;
    let lines: Vec<String> = (0..50).map(|number| format!("line {number}\n")).collect();
    peer.send(lines.concat().as_bytes()).await;
    let (reader, mut changed) = (outbox.spool().reader(), outbox.spool().changed());
    let (mut cursor, mut entries) = (SpoolCursor::default(), Vec::new());
    while entries.iter().map(OutboxRecord::count).sum::<u32>() < 50 {
        changed.mark_unchanged();
        let read = reader.read(&mut cursor, 1 << 20).unwrap();
        if read.is_empty() {
            changed.changed().await.unwrap();
        }
        entries.extend(read.into_iter().map(|outgoing| match outgoing {
            SpoolItem::Batch(kept) => OutboxRecord::decode(&kept.payload).unwrap(),
            SpoolItem::Lost { .. } => panic!("a batch is lost"),
        }));
    }
    assert_eq!(entries.len(), 1);
    let text = |letter: OutboxRecord| String::from_utf8(Message::from_cbor(letter.body()).unwrap().raw).unwrap() + "\n";
    let messages = entries.into_iter().flat_map(OutboxRecord::split);
    assert_eq!(messages.map(text).collect::<Vec<_>>(), lines);
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_begins_with_a_request_of_a_browser_is_closed_and_none_of_it_taken() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (runtime, at) = start(&bench, &format!("{}{SINK}", door("")), ECHO).await;
    let mut browser = Client::connect(at).await;
    browser
        .send(b"POST /x HTTP/1.1\r\nHost: a\r\n\r\n{\"order\":1}\n")
        .await;
    assert_eq!(browser.line().await, "");
    bench.says("door", "it begins with a request of HTTP").await;
    let mut counting = bench.runtime();
    let gear = door(", framing: { length: { bytes: 1 } }").replace("door", "counting");
    counting
        .apply(&push("h", &gear, "{ from: counting.out, to: counting.reply }"))
        .await;
    let mut browser = Client::connect(bench.address("counting", "tcp").await).await;
    let request = format!("POST /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(2_000));
    browser.send(request.as_bytes()).await;
    assert_eq!(browser.line().await, "");
    bench.says("counting", "it begins with a request of HTTP").await;
    counting.close().await;
    let mut device = Client::connect(at).await;
    device.send(b"a line\nGET / HTTP/1.1\n").await;
    assert_eq!(
        (device.line().await, device.line().await),
        ("a line\n".into(), "GET / HTTP/1.1\n".into())
    );
    let records = bench.records("sink", 2).await;
    assert_eq!(records.len(), 2);
    runtime.close().await;
    bench.close().await;
}
