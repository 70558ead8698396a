//! `mqtt_out` with mosquitto, and with brokers that do what a test says.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod refusals;

use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::gears::mqtt::QosLevel;
use crate::gears::mqtt::testing::{ACCEPTED, Guest, Mosquitto, Proxy, RESUMED, ScriptedBroker, VERSIONS, happens};
use crate::gears::supervisor::supervise;
use crate::gears::testing::held::{deliver, deliver_to, outbox, spec, surroundings, taken_from};
use crate::gears::testing::{Bench, message, push};
use crate::inbox::GearInbox;
use crate::outbox::MessageOutbox;
use crate::spool::{RecordingError, SpoolThread};

const PUBACK: u8 = 0x40;
const PUBREC: u8 = 0x50;
const PUBREL: u8 = 0x62;
const PUBCOMP: u8 = 0x70;

type Taken = oneshot::Receiver<Result<(), RecordingError>>;

/// A gear behind a guaranteed wire.
struct Rack {
    _folder: tempfile::TempDir,
    bench: Bench,
    outbox: Arc<MessageOutbox>,
    thread: SpoolThread,
    inbox: GearInbox,
}

impl Rack {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::open(folder.path());
        let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
        Self {
            _folder: folder,
            bench,
            outbox,
            thread,
            inbox: GearInbox::new(),
        }
    }

    fn begin(&self, broker: &Value, qos: u8) -> Life {
        self.begin_with(json!({ "broker": broker, "topic": "t/x", "qos": qos }))
    }

    fn begin_with(&self, config: Value) -> Life {
        let spec = spec("mqtt_out", &config, &[]);
        let (cx, stop) = surroundings(&spec, &self.bench, &self.outbox);
        let task = tokio::spawn(supervise(None, spec, cx, Some(self.inbox.clone())));
        Life { stop, task }
    }

    fn deliver(&self, bodies: &[&str]) -> Vec<Taken> {
        let bodies = (1..).zip(bodies);
        bodies
            .map(|(number, body)| deliver(&self.inbox, number, body.as_bytes()))
            .collect()
    }

    async fn close(self) {
        self.bench.close().await;
        assert!(self.thread.close(Duration::from_secs(10)).await);
    }
}

struct Life {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Life {
    /// It ends where it is.
    async fn kill(self) {
        self.task.abort();
        self.task.await.ok();
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

async fn all_taken(taken: Vec<Taken>) {
    for taken in taken {
        assert_eq!(happens("a message is taken", taken).await.unwrap(), Ok(()));
    }
}

fn bodies_of(count: u8) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

/// The next message of a gear that has this body.
async fn is_sent(guest: &mut Guest, body: &str) -> PublishPacket {
    let message = guest.message().await;
    assert_eq!(message.payload, body.as_bytes());
    message
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_both_versions_and_every_qos_reach_their_topics_in_order() {
    let Some(broker) = Mosquitto::start("").await else {
        return;
    };
    for version in VERSIONS {
        for qos in 0..=2 {
            let folder = tempfile::tempdir().unwrap();
            let bench = Bench::open(folder.path());
            let mut client = broker.client(&format!("test-{version}-{qos}")).await;
            client.subscribe("plant/#", QosLevel::ExactlyOnce).await;
            let config = json!({
                "broker": broker.client_config(&format!("it-{version}-{qos}"), version),
                "topic_expression": "'plant/' + meta['line']", "qos": qos, "in_flight": 4,
            });
            let feed: Vec<_> = bodies_of(50)
                .into_iter()
                .map(|body| json!({ "raw": body, "meta": { "line": "7", "content_type": "text/x" } }))
                .collect();
            let gears = json!([
                { "name": "feed", "type": "test_feed", "deploy": "rack-a", "config": { "messages": feed } },
                { "name": "it", "type": "mqtt_out", "deploy": "rack-a", "config": config },
            ]);
            let mut runtime = bench.runtime();
            let applied = runtime
                .apply(&push("h", &gears.to_string(), "{ from: feed.out, to: it.in }"))
                .await;
            assert_eq!(applied.error, None);
            for body in bodies_of(50) {
                let message = client.receive().await;
                assert_eq!(
                    (message.topic.as_str(), message.payload.as_slice()),
                    ("plant/7", body.as_bytes())
                );
                assert_eq!((u8::from(message.qos), message.retain), (qos, false));
                let properties = message.properties;
                if version == "5" {
                    assert_eq!(properties.content_type.as_deref(), Some("text/x"));
                    let (name, trace) = &properties.user[0];
                    assert!(name == "traceparent" && TraceParent::parse(trace).is_some(), "{trace}");
                } else {
                    assert_eq!(properties, PacketProperties::default());
                }
            }
            runtime.close().await;
            bench.close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_connections_break_and_the_broker_ends_and_qos_2_arrives_once() {
    let Some(mut broker) = Mosquitto::start("").await else {
        return;
    };
    for (version, qos) in [("3.1.1", 1), ("3.1.1", 2), ("5", 1), ("5", 2)] {
        let rack = Rack::open();
        let mut proxy = Proxy::to(broker.port).await;
        let mut config = broker.client_config(&format!("it-{version}-{qos}"), version);
        config["address"] = json!(proxy.address);
        let mut client = broker.client(&format!("test-{version}-{qos}")).await;
        client.subscribe("t/#", QosLevel::ExactlyOnce).await;
        let bodies = bodies_of(200);
        let bodies: Vec<_> = bodies.iter().map(String::as_str).collect();
        let taken = rack.deliver(&bodies);
        let life = rack.begin(&config, qos);
        let mut seen = Vec::new();
        let mut receive = async |client: &mut crate::gears::mqtt::testing::Client, most: usize| {
            while seen.len() < most {
                let message = client.receive().await;
                let body = String::from_utf8(message.payload).unwrap();
                // QoS 2: each once, but for what mosquitto sends again by itself. QoS 1: what was not acknowledged comes again.
                if !seen.contains(&body) {
                    seen.push(body);
                } else if qos == 2 && !message.dup {
                    panic!("{body} twice");
                }
            }
            seen.len()
        };
        proxy.accepted().await;
        for most in [40, 80, 120] {
            receive(&mut client, most).await;
            proxy.cut();
        }
        broker.restart().await;
        client.reconnect().await;
        let all = tokio::time::timeout(Duration::from_secs(30), receive(&mut client, 200)).await;
        let logs = rack.bench.logs("it");
        assert!(all.is_ok(), "version {version}, QoS {qos}: {seen:?} {logs:#?}");
        all_taken(taken).await;
        assert_eq!(seen, bodies, "version {version}, QoS {qos}");
        life.end().await;
        rack.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_taken_when_the_broker_has_acknowledged_it_and_not_when_the_gear_was_killed_before() {
    let rack = Rack::open();
    let broker = ScriptedBroker::start().await;
    let mut taken = rack.deliver(&["one", "two"]);
    let life = rack.begin(&broker.client_config(), 1);
    let mut guest = broker.accept(ACCEPTED).await;
    let one = is_sent(&mut guest, "one").await;
    let two = is_sent(&mut guest, "two").await;
    guest.answer(PUBACK, one.id, &[]).await;
    all_taken(vec![taken.remove(0)]).await;
    assert!(taken[0].try_recv().is_err());
    life.kill().await;
    let life = rack.begin(&broker.client_config(), 1);
    let mut guest = broker.accept(ACCEPTED).await;
    let again = is_sent(&mut guest, "two").await;
    assert!(!again.dup && two.id != 0, "the session is a new one");
    assert!(taken[0].try_recv().is_err());
    guest.answer(PUBACK, again.id, &[]).await;
    all_taken(taken).await;
    life.end().await;
    rack.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_qos_2_is_taken_when_its_identifier_is_forgotten_over_a_broken_connection() {
    let rack = Rack::open();
    let broker = ScriptedBroker::start().await;
    let mut taken = rack.deliver(&["one"]);
    let life = rack.begin(&broker.client_config(), 2);
    let mut guest = broker.accept(ACCEPTED).await;
    let one = is_sent(&mut guest, "one").await;
    drop(guest);
    let mut guest = broker.accept(RESUMED).await;
    let again = is_sent(&mut guest, "one").await;
    assert!(again.dup && again.id == one.id);
    guest.answer(PUBREC, one.id, &[]).await;
    assert_eq!(guest.step().await, (PUBREL, one.id));
    drop(guest);
    let mut guest = broker.accept(RESUMED).await;
    assert_eq!(guest.step().await, (PUBREL, one.id));
    assert!(taken[0].try_recv().is_err());
    guest.answer(PUBCOMP, one.id, &[]).await;
    all_taken(taken).await;
    life.end().await;
    rack.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_broker_refuses_for_good_is_a_dead_letter_and_what_it_refuses_for_now_is_sent_again() {
    let rack = Rack::open();
    let broker = ScriptedBroker::start().await;
    let taken = rack.deliver(&["format", "quota", "good"]);
    let life = rack.begin_with(json!({ "broker": broker.client_config(), "topic": "t", "in_flight": 2 }));
    let mut guest = broker.accept(ACCEPTED).await;
    let format = is_sent(&mut guest, "format").await;
    let quota = is_sent(&mut guest, "quota").await;
    guest.answer(PUBACK, quota.id, &[0x97]).await;
    guest
        .answer(PUBACK, format.id, &[0x99, 6, 0x1f, 0, 3, b'b', b'a', b'd'])
        .await;
    let quota = is_sent(&mut guest, "quota").await;
    let good = is_sent(&mut guest, "good").await;
    guest.answer(PUBACK, quota.id, &[]).await;
    guest.answer(PUBACK, good.id, &[0x10]).await;
    all_taken(taken).await;
    let letters = taken_from(&rack.outbox, 1).await;
    assert_eq!(letters.len(), 1);
    let said = rack.bench.says("it", "payload format invalid").await;
    assert!(said.contains("it says \"bad\""), "{said}");
    life.end().await;
    rack.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_hot_wire_that_were_not_acknowledged_at_the_end_are_counted_as_lost() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let broker = ScriptedBroker::start().await;
    let gears = json!([
        { "name": "feed", "type": "test_feed", "deploy": "rack-a", "config": { "messages": [{ "raw": "one" }, { "raw": "two" }] } },
        { "name": "it", "type": "mqtt_out", "deploy": "rack-a", "config": { "broker": broker.client_config(), "topic": "t" } },
    ]);
    let mut runtime = bench.runtime();
    assert_eq!(
        runtime
            .apply(&push("h", &gears.to_string(), "{ from: feed.out, to: it.in }"))
            .await
            .error,
        None
    );
    let mut guest = broker.accept(ACCEPTED).await;
    let one = is_sent(&mut guest, "one").await;
    is_sent(&mut guest, "two").await;
    guest.answer(PUBACK, one.id, &[]).await;
    runtime.close().await;
    bench.says("it", "messages are lost: 1 not acknowledged").await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_hot_wire_that_wait_for_room_when_the_gear_stops_are_all_counted_as_lost() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let broker = ScriptedBroker::start().await;
    let feed: Vec<_> = bodies_of(6).into_iter().map(|body| json!({ "raw": body })).collect();
    let gears = json!([
        { "name": "feed", "type": "test_feed", "deploy": "rack-a", "config": { "messages": feed } },
        { "name": "it", "type": "mqtt_out", "deploy": "rack-a", "config": { "broker": broker.client_config(), "topic": "t", "in_flight": 1 } },
    ]);
    let mut runtime = bench.runtime();
    let applied = runtime
        .apply(&push("h", &gears.to_string(), "{ from: feed.out, to: it.in }"))
        .await;
    assert_eq!(applied.error, None);
    let mut guest = broker.accept(ACCEPTED).await;
    is_sent(&mut guest, "0").await;
    runtime.close().await;
    bench.says("it", "messages are lost: 6 not acknowledged").await;
    bench.close().await;
}
