//! The lane on a real bus: what is given out when a bus or a Rack was away.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod batches;
mod bounds;
mod destinations;
mod half_open;
mod restart;
mod sending;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{self, PullConsumer};
use async_nats::jetstream::stream::{self, DiscardPolicy};
use chassis::bus::{BusConnection, BusOptions};
use ed25519_dalek::SigningKey;
use futures::StreamExt as _;
use model::{Clock, EntityId, Entropy, telemetry_codec};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::inbox::{DeliveryReceipt, GearInbox, InboxMessage};
use crate::spool::SpoolThread;
use crate::wire_consumer::{WireConsumer, WireConsumerSpec};

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

    async fn connect(&self) -> BusConnection {
        connect(self.port).await
    }
}

async fn connect(port: u16) -> BusConnection {
    let options = BusOptions {
        reconnect_wait: Duration::from_millis(20),
        ..BusOptions::new(format!("nats://127.0.0.1:{port}"), "flux", "a test")
    };
    let bus = BusConnection::connect_forever(options).await.unwrap();
    bus.wait_connected().await;
    bus
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
const fn place(number: u64) -> PortSequenceNumber {
    PortSequenceNumber {
        outbox: BOX,
        run: 1,
        number,
    }
}

/// The stream, and a wire's consumer.
async fn make(bus: &BusConnection, max_bytes: i64) -> PullConsumer {
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
async fn publish(bus: &BusConnection, number: Option<u64>, body: &'static str) {
    let mut headers = HeaderMap::new();
    if let Some(number) = number {
        headers.insert(telemetry_codec::PLACE, place(number).to_string());
    }
    let sent = bus.js.publish_with_headers(SUBJECT, headers, body.into());
    sent.await.unwrap().await.unwrap();
}

fn outbox(dir: &Path) -> (Arc<MessageOutbox>, SpoolThread) {
    outbox_of(dir, 64 << 20)
}

fn outbox_of(dir: &Path, max_bytes: u64) -> (Arc<MessageOutbox>, SpoolThread) {
    let identity = RackIdentity {
        entity_id: EntityId::for_name("rack-a"),
        name: "rack-a".parse().unwrap(),
        cluster_key: SigningKey::from_bytes(&[7; 32]).verifying_key(),
        former_cluster_keys: Vec::new(),
    };
    let clock = Clock::new(|| chrono::Utc::now().into());
    let entropy = Entropy::new(|buffer| getrandom::fill(buffer).unwrap());
    let (_, identity) = watch::channel(Some(identity));
    let (outbox, thread, _) = MessageOutbox::open(dir, max_bytes, (clock, &entropy), identity).unwrap();
    (outbox, thread)
}

/// A receiving Rack.
struct Receiver {
    inbox: GearInbox,
    outbox: Arc<MessageOutbox>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    _thread: SpoolThread,
}

impl Receiver {
    fn start(dir: &Path, bus: &BusConnection) -> Self {
        Self::of(outbox(dir), bus)
    }

    /// One with an outbox.
    fn of((outbox, thread): (Arc<MessageOutbox>, SpoolThread), bus: &BusConnection) -> Self {
        let (inbox, stop) = (GearInbox::new(), CancellationToken::new());
        let lane = GuaranteedLane {
            outbox: Arc::clone(&outbox),
            bus: bus.clone(),
            stream: STREAM.to_owned(),
        };
        let spec = WireConsumerSpec {
            consumer: CONSUMER.to_owned(),
            gear: "sink".parse().unwrap(),
            port: "in",
        };
        let inlet = WireConsumer::new(spec, lane, inbox.clone(), stop.clone());
        Self {
            inbox,
            outbox,
            stop,
            task: tokio::spawn(inlet.run()),
            _thread: thread,
        }
    }

    /// The next message and its text: they are not messages of ours, which is no matter here.
    async fn next(&self) -> (String, DeliveryReceipt) {
        let mut receiver = self.inbox.receiver.lock().await;
        let next = tokio::time::timeout(PATIENCE, receiver.recv()).await;
        let InboxMessage { message, receipt, .. } = next.unwrap().unwrap();
        let text = String::from_utf8(message.unwrap_err().body.to_vec()).unwrap();
        (text, receipt.unwrap())
    }

    /// Notes that a message was taken, as its gear does.
    async fn take(&self, receipt: DeliveryReceipt) {
        let whole = OutboxTransaction {
            notes: vec![receipt.taken.into_checkpoint()],
            ..OutboxTransaction::default()
        };
        self.outbox
            .commit(whole, AdmissionClass::Consumer, Some(receipt.done))
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
async fn the_same_sequence_of_a_recreated_stream_is_another_message() {
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
    receiver.outbox.flush().await.unwrap();
    let floor = async || consumer.get_info().await.unwrap().ack_floor.stream_sequence;
    assert_eq!(floor().await, 0, "the one before it was not taken");
    receiver.take(new).await;
    until("both are acknowledged", async || (floor().await == 2).then_some(())).await;
    receiver.end().await;
}
