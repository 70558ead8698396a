//! The lane on a real bus: what is given out when a bus or a Rack was away, and in which order a Rack's messages land.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod anew;
mod bounds;
mod destinations;
mod half_open;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{self, PullConsumer};
use async_nats::jetstream::stream::{self, DiscardPolicy};
use chassis::bus::{Bus, BusOptions};
use ed25519_dalek::SigningKey;
use futures::StreamExt as _;
use model::{Clock, EntityId, Entropy, wire};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::limits::Limits;
use crate::spool::SpoolThread;
use crate::telemetry::{Counters, Sender, SenderParts};
use crate::wires::{Arrival, Inbox, Receipt};

const STREAM: &str = "flux-msg";
const CONSUMER: &str = "wire-1";
const SUBJECT: &str = "flux.msg.rack-a.tail.out";
const BOX: Uuid = Uuid::from_bytes([7; 16]);
/// How long the bus waits for a Rack that is gone; nothing here waits for that.
const ACK_WAIT: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(30);

struct BusServer {
    dir: tempfile::TempDir,
    child: Child,
    port: u16,
}

impl BusServer {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (child, port) = Self::spawn(dir.path(), -1, "").await;
        Self { dir, child, port }
    }

    /// Kills it; it comes back with more lines in its configuration.
    async fn restart_with(&mut self, more: &str) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.child, _) = Self::spawn(self.dir.path(), i32::from(self.port), more).await;
    }

    /// Kills it; it comes back without what it had.
    async fn lose_store(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::fs::remove_dir_all(self.dir.path().join("jetstream")).unwrap();
        (self.child, _) = Self::spawn(self.dir.path(), i32::from(self.port), "").await;
    }

    async fn spawn(dir: &Path, port: i32, more: &str) -> (Child, u16) {
        let conf = dir.join("nats.conf");
        let text = format!(
            "listen: \"127.0.0.1:{port}\"\nports_file_dir: {dir:?}\njetstream {{ store_dir: {dir:?}, domain: flux }}\n{more}\n"
        );
        std::fs::write(&conf, text).unwrap();
        let binary = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.tools/bin/nats-server");
        let mut command = Command::new(binary);
        let command = command.arg("-c").arg(&conf).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let ports = dir.join(format!("nats-server_{}.ports", child.id()));
        let port = until("the bus server listens", async || {
            let value: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&ports).ok()?).ok()?;
            value["nats"][0].as_str()?.rsplit(':').next()?.parse().ok()
        });
        (child, port.await)
    }

    async fn connect(&self) -> Bus {
        let options = BusOptions {
            reconnect_wait: Duration::from_millis(20),
            ..BusOptions::new(format!("nats://127.0.0.1:{}", self.port), "flux", "a test")
        };
        let bus = Bus::connect_forever(options).await.unwrap();
        bus.connected().await;
        bus
    }
}

impl Drop for BusServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn until<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let start = tokio::time::Instant::now();
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The place of a message in the first run of our outbox.
const fn place(number: u64) -> Place {
    Place {
        outbox: BOX,
        run: 1,
        number,
    }
}

/// The stream, and a wire's consumer.
async fn make(bus: &Bus, max_bytes: i64) -> PullConsumer {
    let config = stream::Config {
        name: STREAM.to_owned(),
        subjects: vec!["flux.msg.>".to_owned()],
        max_bytes,
        discard: DiscardPolicy::New,
        allow_direct: true,
        allow_batch_publish: true,
        ..stream::Config::default()
    };
    let stream = bus.js.get_or_create_stream(config).await.unwrap();
    let config = consumer::pull::Config {
        durable_name: Some(CONSUMER.to_owned()),
        filter_subject: "flux.msg.*.tail.out".to_owned(),
        ack_policy: consumer::AckPolicy::All,
        ack_wait: ACK_WAIT,
        ..consumer::pull::Config::default()
    };
    stream.get_or_create_consumer(CONSUMER, config).await.unwrap()
}

/// Publishes a message, with a number of our outbox or as a foreign one.
async fn publish(bus: &Bus, number: Option<u64>, body: &'static str) {
    let mut headers = HeaderMap::new();
    if let Some(number) = number {
        headers.insert(wire::PLACE, place(number).to_string());
    }
    let sent = bus.js.publish_with_headers(SUBJECT, headers, body.into());
    sent.await.unwrap().await.unwrap();
}

fn outbox(dir: &Path) -> (Arc<Outbox>, SpoolThread) {
    outbox_of(dir, 64 << 20)
}

fn outbox_of(dir: &Path, max_bytes: u64) -> (Arc<Outbox>, SpoolThread) {
    let identity = Identity {
        entity_id: EntityId::for_name("rack-a"),
        name: "rack-a".parse().unwrap(),
        cluster_key: SigningKey::from_bytes(&[7; 32]).verifying_key(),
    };
    let clock = Clock::new(|| chrono::Utc::now().into());
    let entropy = Entropy::new(|buffer| getrandom::fill(buffer).unwrap());
    let (_, identity) = watch::channel(Some(identity));
    let (outbox, thread, _) = Outbox::open(dir, max_bytes, (clock, &entropy), identity).unwrap();
    (outbox, thread)
}

/// A receiving Rack.
struct Receiver {
    inbox: Inbox,
    outbox: Arc<Outbox>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    _thread: SpoolThread,
}

impl Receiver {
    fn start(dir: &Path, bus: &Bus) -> Self {
        Self::of(outbox(dir), bus)
    }

    /// One with an outbox.
    fn of((outbox, thread): (Arc<Outbox>, SpoolThread), bus: &Bus) -> Self {
        let (inbox, stop) = (Inbox::new(), CancellationToken::new());
        let lane = Lane {
            outbox: Arc::clone(&outbox),
            bus: bus.clone(),
            stream: STREAM.to_owned(),
        };
        let spec = InletSpec {
            consumer: CONSUMER.to_owned(),
            gear: "sink".parse().unwrap(),
            port: "in",
        };
        let inlet = Inlet::new(spec, lane, inbox.clone(), stop.clone());
        Self {
            inbox,
            outbox,
            stop,
            task: tokio::spawn(inlet.run()),
            _thread: thread,
        }
    }

    /// The next message and its text: they are not messages of ours, which is no matter here.
    async fn next(&self) -> (String, Receipt) {
        let mut receiver = self.inbox.receiver.lock().await;
        let next = tokio::time::timeout(PATIENCE, receiver.recv()).await;
        let Arrival { message, receipt, .. } = next.unwrap().unwrap();
        let text = String::from_utf8(message.unwrap_err().body.to_vec()).unwrap();
        (text, receipt.unwrap())
    }

    /// Notes that a message was taken, as its gear does.
    async fn take(&self, receipt: Receipt) {
        let whole = Whole {
            notes: vec![receipt.taken.note()],
            ..Whole::default()
        };
        self.outbox
            .commit(whole, Admission::Consumer, Some(receipt.done))
            .await
            .unwrap();
    }

    async fn take_next(&self) -> String {
        let (text, receipt) = self.next().await;
        self.take(receipt).await;
        text
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

async fn what_a_killed_rack_had_comes_first(numbers: [Option<u64>; 5]) {
    let (server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    let consumer = make(&bus, -1).await;
    for (number, body) in numbers.iter().zip(["one", "two", "three"]) {
        publish(&bus, *number, body).await;
    }
    // A Rack that takes them and is never heard of again.
    let mut killed = consumer.fetch().max_messages(3).messages().await.unwrap();
    for _ in 0..3 {
        killed.next().await.unwrap().unwrap();
    }
    let receiver = Receiver::start(dir.path(), &bus);
    publish(&bus, numbers[3], "four").await;
    publish(&bus, numbers[4], "five").await;
    for text in ["one", "two", "three", "four", "five"] {
        assert_eq!(receiver.take_next().await, text);
    }
    until("nothing is outstanding", async || {
        let info = consumer.get_info().await.unwrap();
        (info.num_ack_pending == 0 && info.num_pending == 0).then_some(())
    })
    .await;
    receiver.end().await;
}

#[tokio::test]
async fn what_a_killed_rack_had_and_not_taken_comes_before_what_is_new() {
    what_a_killed_rack_had_comes_first([1, 2, 3, 4, 5].map(Some)).await;
}

#[tokio::test]
async fn the_first_of_a_wire_waits_for_earlier_ones_that_a_killed_rack_had() {
    what_a_killed_rack_had_comes_first([11, 12, 13, 14, 15].map(Some)).await;
}

#[tokio::test]
async fn foreign_messages_that_a_killed_rack_had_come_before_what_is_new() {
    what_a_killed_rack_had_comes_first([None; 5]).await;
}

#[tokio::test]
async fn a_number_that_the_stream_lost_is_given_up_at_once() {
    let (server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    make(&bus, -1).await;
    let receiver = Receiver::start(dir.path(), &bus);
    publish(&bus, Some(1), "one").await;
    assert_eq!(receiver.take_next().await, "one");
    publish(&bus, Some(5), "five").await;
    assert_eq!(receiver.take_next().await, "five");
    receiver.end().await;
}

#[tokio::test]
async fn a_message_of_a_stream_that_was_made_anew_is_another_one_than_that_in_its_place_before() {
    let (mut server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    make(&bus, -1).await;
    let receiver = Receiver::start(dir.path(), &bus);
    publish(&bus, None, "old").await;
    let (text, old) = receiver.next().await;
    assert_eq!(text, "old");
    server.lose_store().await;
    until("the bus is back", async || bus.js.query_account().await.ok()).await;
    let consumer = make(&bus, -1).await;
    publish(&bus, None, "new").await;
    let (text, new) = receiver.next().await;
    assert_eq!(text, "new");
    receiver.take(old).await;
    publish(&bus, None, "next").await;
    assert_eq!(receiver.take_next().await, "next");
    receiver.outbox.settled().await.unwrap();
    let floor = async || consumer.get_info().await.unwrap().ack_floor.stream_sequence;
    assert_eq!(floor().await, 0, "the one before it was not taken");
    receiver.take(new).await;
    until("both are acknowledged", async || (floor().await == 2).then_some(())).await;
    receiver.end().await;
}

/// A sending Rack.
fn send(dir: &Path, bus: &Bus, cancel: &CancellationToken) -> (Arc<Outbox>, Arc<Counters>, SpoolThread) {
    let (outbox, thread) = outbox(dir);
    let counters = Arc::new(Counters::default());
    let (_, identity) = watch::channel(outbox.identity.borrow().clone());
    let sender = Sender::new(SenderParts {
        spool: outbox.spool().clone(),
        bus: bus.clone(),
        identity,
        counters: Arc::clone(&counters),
        clock: Clock::new(|| chrono::Utc::now().into()),
        lane: Some((
            Lane {
                outbox: Arc::clone(&outbox),
                bus: bus.clone(),
                stream: STREAM.to_owned(),
            },
            Limits::new(64, 2 << 20),
        )),
        stall: Duration::from_secs(600),
        cancel: cancel.clone(),
    });
    tokio::spawn(sender.run());
    (outbox, counters, thread)
}

/// Has a message of so many bytes leave.
async fn leave(outbox: &Outbox, bytes: usize) {
    let leaving = Leaving {
        gear: "tail".parse().unwrap(),
        port: "out",
        body: vec![0; bytes],
    };
    let whole = Whole {
        leaving: vec![leaving],
        ..Whole::default()
    };
    outbox.commit(whole, Admission::Producer, None).await.unwrap();
}

/// The numbers on the stream in its order.
async fn landed(bus: &Bus, count: usize) -> Vec<u64> {
    let stream = until("all are on the stream", async || {
        let stream = bus.js.get_stream(STREAM).await.ok()?;
        let state = stream.cached_info().state.clone();
        (state.messages >= count as u64).then_some(stream)
    })
    .await;
    let state = stream.cached_info().state.clone();
    let mut all = Vec::new();
    for sequence in state.first_sequence..=state.last_sequence {
        let Ok(message) = stream.get_raw_message(sequence).await else {
            continue;
        };
        if let Some(place) = message.headers.get(wire::PLACE) {
            all.push(Place::parse(place.as_str()).unwrap().number);
        }
    }
    all
}

/// The numbers on the stream once the last one is there.
async fn landed_through(bus: &Bus, last: u64) -> Vec<u64> {
    until("the last one is on the stream", async || {
        let all = landed(bus, 0).await;
        all.contains(&last).then_some(all)
    })
    .await
}

/// What a receiver gives out of these: each once.
fn once(numbers: &[u64]) -> Vec<u64> {
    let mut given = Vec::new();
    for number in numbers {
        if given.last().is_none_or(|last| number > last) {
            given.push(*number);
        }
    }
    given
}

/// Waits until the bus takes nothing of what is sent.
async fn only_tries(counters: &Counters) {
    let read = || (counters.sent.load(Relaxed), counters.acked.load(Relaxed));
    until("the bus takes nothing", async || {
        let (sent, acked) = read();
        until("it was tried again", async || (read().0 >= sent + 3).then_some(())).await;
        (read().1 == acked).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_follows_a_refused_message_waits_for_it() {
    let (server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    make(&bus, 1_000_000).await;
    let fill = bus.js.publish("flux.msg.other.gear.out", vec![0u8; 700_000].into());
    fill.await.unwrap().await.unwrap();
    let cancel = CancellationToken::new();
    let (outbox, counters, _thread) = send(dir.path(), &bus, &cancel);
    leave(&outbox, 1_000).await;
    assert_eq!(landed(&bus, 2).await, [1]);
    // There is room for all but the second.
    leave(&outbox, 500_000).await;
    for _ in 3..=40 {
        leave(&outbox, 1_000).await;
    }
    only_tries(&counters).await;
    assert_eq!(landed(&bus, 2).await, [1], "nothing passes the refused one");
    let stream = bus.js.get_stream(STREAM).await.unwrap();
    stream.purge().filter("flux.msg.other.>").await.unwrap();
    assert_eq!(landed(&bus, 40).await, (1..=40).collect::<Vec<_>>());
    cancel.cancel();
}

#[tokio::test]
async fn what_the_stream_never_takes_leaves_as_a_dead_letter_and_holds_up_nothing() {
    let (server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    make(&bus, -1).await;
    // The bus takes more than the stream.
    let config = stream::Config {
        subjects: vec!["flux.msg.>".to_owned(), "flux.gear.>".to_owned()],
        max_message_size: 10_000,
        ..bus.js.get_stream(STREAM).await.unwrap().cached_info().config.clone()
    };
    bus.js.update_stream(config).await.unwrap();
    let cancel = CancellationToken::new();
    let (outbox, _, _thread) = send(dir.path(), &bus, &cancel);
    for bytes in [50_000, 100, 100, 50_000, 100, 50_000] {
        leave(&outbox, bytes).await;
    }
    assert_eq!(landed(&bus, 6).await, [2, 3, 5]);
    let stream = bus.js.get_stream(STREAM).await.unwrap();
    let letter = stream
        .get_last_raw_message_by_subject("flux.gear.rack-a.tail")
        .await
        .unwrap();
    let reason = letter.headers.get(wire::DEAD_REASON).unwrap().as_str();
    assert!(reason.starts_with("it is too large for the bus"), "{reason}");
    assert!(letter.payload.len() > 5_000, "{}", letter.payload.len());
    cancel.cancel();
}

#[tokio::test]
async fn a_stream_that_is_another_one_gets_all_that_the_mixer_does_not_have_before_anything_new() {
    let (mut server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    make(&bus, -1).await;
    let cancel = CancellationToken::new();
    let (outbox, counters, _thread) = send(dir.path(), &bus, &cancel);
    for _ in 1..=3 {
        leave(&outbox, 10).await;
    }
    landed(&bus, 3).await;
    is_heard(&counters, 3).await;
    server.lose_store().await;
    leave(&outbox, 10).await;
    until("the bus is back", async || bus.js.query_account().await.ok()).await;
    make(&bus, -1).await;
    assert_eq!(landed(&bus, 4).await, [1, 2, 3, 4]);
    cancel.cancel();
}

/// Waits until the sender has heard that so many are stored.
async fn is_heard(counters: &Counters, count: u64) {
    until("the bus has acknowledged", async || {
        (counters.acked.load(Relaxed) >= count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_bus_that_is_killed_while_much_is_on_its_way_has_all_of_it_in_order() {
    let (mut server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    make(&bus, -1).await;
    let cancel = CancellationToken::new();
    let (outbox, counters, _thread) = send(dir.path(), &bus, &cancel);
    for round in 1..=5 {
        for _ in 0..2_000 {
            leave(&outbox, 200).await;
        }
        is_heard(&counters, (round - 1) * 2_000 + 500).await;
        server.restart_with("").await;
    }
    let all = landed_through(&bus, 10_000).await;
    assert_eq!(once(&all), (1..=10_000).collect::<Vec<_>>());
    cancel.cancel();
}

#[tokio::test]
async fn a_damaged_entry_of_the_outbox_becomes_a_log_record_and_holds_up_nothing() {
    let (server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let bus = server.connect().await;
    make(&bus, -1).await;
    let telemetry = stream::Config {
        name: "flux-telemetry".to_owned(),
        subjects: vec!["flux.telemetry.>".to_owned()],
        allow_batch_publish: true,
        ..stream::Config::default()
    };
    let telemetry = bus.js.create_stream(telemetry).await.unwrap();
    // Segments of 64 KiB.
    let (before, thread) = outbox_of(dir.path(), 256 << 10);
    for _ in 1..=10 {
        leave(&before, 20_000).await;
        before.settled().await.unwrap();
    }
    assert!(thread.close(PATIENCE).await);
    drop(before);
    let segments = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> = segments
        .filter(|path| path.extension().is_some_and(|end| end == "seg"))
        .collect();
    segments.sort();
    assert!(segments.len() > 2, "{segments:?}");
    let mut bytes = std::fs::read(&segments[1]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&segments[1], bytes).unwrap();
    let cancel = CancellationToken::new();
    let (outbox, _, _thread) = send(dir.path(), &bus, &cancel);
    leave(&outbox, 10).await;
    let all = until("the new run's message", async || {
        let all = landed(&bus, 0).await;
        (all.len() > 1 && all.last() == Some(&1)).then_some(all)
    })
    .await;
    assert!(all.contains(&10) && all.len() < 11, "{all:?}");
    let records = telemetry.get_info().await.unwrap().state.messages;
    assert_eq!(records as usize, 11 - all.len(), "one for each that is lost");
    cancel.cancel();
}

#[tokio::test]
async fn few_large_messages_behind_a_small_one_wait_for_no_acknowledgement_that_never_comes() {
    let (mut server, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    server.restart_with("max_payload: 8MB").await;
    let bus = server.connect().await;
    make(&bus, -1).await;
    let cancel = CancellationToken::new();
    let (outbox, counters, _thread) = send(dir.path(), &bus, &cancel);
    for _ in 0..3 {
        leave(&outbox, 10).await;
        for _ in 0..6 {
            leave(&outbox, 1_500_000).await;
        }
    }
    is_heard(&counters, 21).await;
    assert_eq!(landed(&bus, 21).await, (1..=21).collect::<Vec<_>>());
    assert_eq!(counters.sent.load(Relaxed), 21, "each was sent once");
    cancel.cancel();
}

#[tokio::test]
async fn the_places_of_an_outbox_grow_with_every_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outbox");
    let mut last = None;
    for _ in 0..3 {
        let (outbox, thread) = outbox(&path);
        let leaving = Leaving {
            gear: "tail".parse().unwrap(),
            port: "out",
            body: Vec::new(),
        };
        for _ in 0..2 {
            let next = outbox.place(outbox.spool().boot_epoch(), outbox.next(&leaving));
            assert!(
                last.is_none_or(|last| Place::is_behind(last, next) && !next.is_behind(last)),
                "{next}"
            );
            last = Some(next);
        }
        assert!(thread.close(PATIENCE).await);
    }
    assert_eq!(last.map(|last| last.number), Some(2));
}
