//! `mqtt_in` with mosquitto, and with brokers that do what a test says.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod refusals;

use std::time::Duration;

use model::Table;
use model::message::Message;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::gears::mqtt::testing::{ACCEPTED, Mosquitto, Proxy, RESUMED, ScriptedBroker, VERSIONS, happens, message};
use crate::gears::mqtt::{PacketProperties, PublishPacket, QosLevel};
use crate::gears::supervisor::supervise;
use crate::gears::testing::held::{fill, outbox, spec, surroundings_with, taken_behind, taken_from};
use crate::gears::testing::{Bench, push};
use crate::message_limits::MessageLimits;
use crate::outbox::{MessageOutbox, OutboxRecord};
use crate::spool::{SpoolCursor, SpoolThread};

const PUBACK: u8 = 0x40;
const PUBREC: u8 = 0x50;
const PUBREL: u8 = 0x62;
const PUBCOMP: u8 = 0x70;
const PINGREQ: u8 = 0xc0;

/// A Rack with an outbox.
struct Rack {
    _folder: tempfile::TempDir,
    bench: Bench,
    outbox: Arc<MessageOutbox>,
    thread: SpoolThread,
}

impl Rack {
    fn open(max_bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::open(folder.path());
        let (outbox, thread) = outbox(&folder.path().join("outbox"), max_bytes);
        Self {
            _folder: folder,
            bench,
            outbox,
            thread,
        }
    }

    /// Begins a gear whose messages leave by the outbox.
    fn begin(&self, broker: &Value, qos: u8) -> Life {
        self.begin_with(broker, qos, 2 << 20)
    }

    fn begin_with(&self, broker: &Value, qos: u8, max_payload: usize) -> Life {
        let config = json!({ "broker": broker, "topics": [ { "filter": "t/#", "qos": qos } ] });
        let spec = spec("mqtt_in", &config, &["out"]);
        let (cx, stop) = surroundings_with(&spec, &self.bench, &self.outbox, MessageLimits::new(64, max_payload));
        let task = tokio::spawn(supervise(None, spec, cx, None));
        Life { stop, task }
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

fn bodies(letters: &[OutboxRecord]) -> Vec<String> {
    let body = |letter: &OutboxRecord| Message::from_cbor(letter.body()).unwrap().raw;
    letters
        .iter()
        .map(|letter| String::from_utf8(body(letter)).unwrap())
        .collect()
}

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// Each in the order in which it came first.
fn without_repetitions(all: &[String]) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    all.iter()
        .filter(|body| seen.insert((*body).clone()))
        .cloned()
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_both_versions_have_their_metadata_and_trace() {
    let Some(broker) = Mosquitto::start("").await else {
        return;
    };
    for version in VERSIONS {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::open(folder.path());
        let mut runtime = bench.runtime();
        let topics = json!([{ "filter": "plant/+/heat", "qos": 2 }, { "filter": "$share/group/alarm", "qos": 1 }]);
        // The next version shall not share its messages with a session that nobody uses.
        let mut config = json!({ "broker": broker.client_config(&format!("it-{version}"), version), "topics": topics });
        config["broker"]["session_expiry"] = json!("0s");
        let gears = json!([
            { "name": "it", "type": "mqtt_in", "deploy": "rack-a", "config": config },
            { "name": "sink", "type": "log_sink", "deploy": "rack-a" },
        ]);
        let applied = runtime
            .apply(&push("h", &gears.to_string(), "{ from: it.out, to: sink.in }"))
            .await;
        assert_eq!(applied.error, None);
        bench.says("it", "subscribed to 2 topics").await;
        let mut client = broker.client("test").await;
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let properties = PacketProperties {
            content_type: Some("text/x".into()),
            user: vec![("traceparent".into(), trace.into()), ("line".into(), "7".into())],
            ..PacketProperties::default()
        };
        client
            .publish_with("plant/7/heat", QosLevel::ExactlyOnce, b"hot", properties)
            .await;
        client.publish("alarm", QosLevel::AtLeastOnce, b"fire").await;
        client.publish("plant/7/heat", QosLevel::AtMostOnce, b"warm").await;
        let records = bench.records("sink", 3).await;
        let texts: Vec<_> = records.iter().map(|row| row["message"].as_str().unwrap()).collect();
        assert_eq!(texts, ["hot", "fire", "warm"]);
        let facts = &records[0]["attributes"];
        assert_eq!(
            (&facts["mqtt.topic"], &facts["mqtt.qos"]),
            (&json!("plant/7/heat"), &json!(2)),
            "{facts}"
        );
        assert_eq!(facts["mqtt.retain"], json!(false));
        assert_eq!(records[1]["attributes"]["mqtt.topic"], "alarm");
        if version == "5" {
            assert_eq!(
                (&facts["content_type"], &facts["mqtt.property.line"]),
                (&json!("text/x"), &json!("7"))
            );
            assert_eq!(facts["trace_id"], "0af7651916cd43dd8448eb211c80319c");
        }
        runtime.close().await;
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_connections_break_and_gears_and_brokers_end_and_qos_2_comes_once() {
    let Some(mut broker) = Mosquitto::start("").await else {
        return;
    };
    for (version, qos) in [("3.1.1", 1), ("3.1.1", 2), ("5", 1), ("5", 2)] {
        let rack = Rack::open(1 << 24);
        let mut proxy = Proxy::to(broker.port).await;
        let mut config = broker.client_config(&format!("it-{version}-{qos}"), version);
        config["address"] = json!(proxy.address);
        let life = rack.begin(&config, qos);
        proxy.accepted().await;
        rack.bench.says("it", "subscribed to 1 topics").await;
        let mut client = broker.client("test").await;
        let sent = QosLevel::try_from(qos).unwrap();
        let publishing = async {
            for number in 0..300 {
                client.publish("t/x", sent, number.to_string().as_bytes()).await;
            }
        };
        let cutting = async {
            let (mut cursor, mut all) = (SpoolCursor::default(), Vec::new());
            let mut cut = 0;
            while without_repetitions(&all).len() < 300 {
                let letters = happens("a message leaves", taken_behind(&rack.outbox, &mut cursor, 1)).await;
                all.extend(bodies(&letters));
                if all.len() / 60 > cut {
                    cut = all.len() / 60;
                    proxy.cut();
                }
            }
            (cursor, all)
        };
        let ((), (mut cursor, mut all)) = tokio::join!(publishing, cutting);
        drop(client);
        if qos == 2 {
            // When it restarts, mosquitto 2.0 sends again what it has released, unless it has heard that the gear knows.
            let last = format!("Received PUBCOMP from it-{version}-2-rack-a (Mid: 300,");
            broker.logs(&last).await;
        }
        life.kill().await;
        let mut client = broker.client("test").await;
        for number in 300..350 {
            client.publish("t/x", sent, number.to_string().as_bytes()).await;
        }
        drop(client);
        broker.restart().await;
        let life = rack.begin(&config, qos);
        while without_repetitions(&all).len() < 350 {
            let letters = happens("a message leaves", taken_behind(&rack.outbox, &mut cursor, 1)).await;
            all.extend(bodies(&letters));
        }
        assert_eq!(
            without_repetitions(&all),
            numbers(0..350),
            "version {version}, QoS {qos}"
        );
        if qos == 2 {
            assert_eq!(all, numbers(0..350), "version {version}");
        }
        life.end().await;
        rack.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_acknowledged_when_it_is_durable_and_signs_of_life_go_on_until_then() {
    let rack = Rack::open(8_000);
    fill(&rack.outbox).await;
    let broker = ScriptedBroker::start().await;
    let mut config = broker.client_config();
    config["keep_alive"] = json!("1s");
    let life = rack.begin(&config, 2);
    let mut guest = broker.accept_subscriber(ACCEPTED).await;
    guest.publish(&message("t/x", QosLevel::AtLeastOnce, 1, b"one")).await;
    guest.publish(&message("t/x", QosLevel::ExactlyOnce, 2, b"two")).await;
    for _ in 0..2 {
        let (first, _) = guest.packet().await.unwrap();
        assert_eq!(first, PINGREQ, "not acknowledged while there is no room");
    }
    let mut cursor = SpoolCursor::default();
    happens("the outbox empties", taken_behind(&rack.outbox, &mut cursor, 1)).await;
    let mut steps = Vec::new();
    while steps.len() < 2 {
        let (first, body) = guest.packet().await.unwrap();
        if first != PINGREQ {
            steps.push((first, body[1]));
        }
    }
    assert_eq!(steps, [(PUBACK, 1), (PUBREC, 2)]);
    assert_eq!(
        bodies(&taken_behind(&rack.outbox, &mut cursor, 2).await),
        ["one", "two"]
    );
    life.end().await;
    rack.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_durable_when_the_gear_was_killed_comes_again() {
    let Some(broker) = Mosquitto::start("").await else {
        return;
    };
    for qos in [1, 2] {
        let rack = Rack::open(8_000);
        fill(&rack.outbox).await;
        let config = broker.client_config(&format!("it-{qos}"), "5");
        let life = rack.begin(&config, qos);
        rack.bench.says("it", "subscribed").await;
        let mut client = broker.client("test").await;
        let qos_level = QosLevel::try_from(qos).unwrap();
        client.publish("t/x", qos_level, b"one").await;
        client.publish("t/x", qos_level, b"two").await;
        let has_read = |bench: &Bench| (!bench.rows(Table::Traces).is_empty()).then_some(());
        rack.bench.wait("the gear reads one", has_read).await;
        life.kill().await;
        let mut cursor = SpoolCursor::default();
        taken_behind(&rack.outbox, &mut cursor, 1).await;
        let life = rack.begin(&config, qos);
        let letters = happens("both leave", taken_behind(&rack.outbox, &mut cursor, 2)).await;
        assert_eq!(bodies(&letters), ["one", "two"], "QoS {qos}");
        life.end().await;
        rack.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_qos_2_that_was_durable_when_the_gear_was_killed_is_no_second_one() {
    let rack = Rack::open(1 << 20);
    let broker = ScriptedBroker::start().await;
    let mut cursor = SpoolCursor::default();
    let first = message("t/x", QosLevel::ExactlyOnce, 7, b"first");
    let life = rack.begin(&broker.client_config(), 2);
    let mut guest = broker.accept_subscriber(ACCEPTED).await;
    guest.publish(&first).await;
    assert_eq!(bodies(&taken_behind(&rack.outbox, &mut cursor, 1).await), ["first"]);
    // For the broker PUBREC never came.
    life.kill().await;
    drop(guest);
    let life = rack.begin(&broker.client_config(), 2);
    let mut guest = broker.accept_subscriber(RESUMED).await;
    guest.publish(&PublishPacket { dup: true, ..first }).await;
    assert_eq!(guest.step().await, (PUBREC, 7));
    guest.answer(PUBREL, 7, &[]).await;
    assert_eq!(guest.step().await, (PUBCOMP, 7));
    // Released, the identifier names another message, also to the next life.
    life.kill().await;
    drop(guest);
    let life = rack.begin(&broker.client_config(), 2);
    let mut guest = broker.accept_subscriber(RESUMED).await;
    guest
        .publish(&message("t/x", QosLevel::ExactlyOnce, 7, b"second"))
        .await;
    assert_eq!(guest.step().await, (PUBREC, 7));
    assert_eq!(bodies(&taken_behind(&rack.outbox, &mut cursor, 1).await), ["second"]);
    // In a new session too.
    drop(guest);
    let mut guest = broker.accept_subscriber(ACCEPTED).await;
    guest.publish(&message("t/x", QosLevel::ExactlyOnce, 7, b"third")).await;
    assert_eq!(guest.step().await, (PUBREC, 7));
    assert_eq!(bodies(&taken_behind(&rack.outbox, &mut cursor, 1).await), ["third"]);
    // And where the identifier is left over, as after an expiry at the broker.
    life.kill().await;
    drop(guest);
    let life = rack.begin(&broker.client_config(), 2);
    let mut guest = broker.accept_subscriber(RESUMED).await;
    for (body, dup) in [(&b"fourth"[..], true), (b"fifth", false)] {
        let message = message("t/x", QosLevel::ExactlyOnce, 7, body);
        guest.publish(&PublishPacket { dup, ..message }).await;
        assert_eq!(guest.step().await, (PUBREC, 7));
    }
    let letters = taken_behind(&rack.outbox, &mut cursor, 2).await;
    assert_eq!(bodies(&letters), ["fourth", "fifth"]);
    life.end().await;
    rack.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_oversized_message_is_acknowledged_and_logged_and_the_next_one_passes() {
    let rack = Rack::open(1 << 20);
    let broker = ScriptedBroker::start().await;
    let life = rack.begin_with(&broker.client_config(), 2, 1000);
    let mut guest = broker.accept_subscriber(ACCEPTED).await;
    // Larger than a message may be, and larger than a packet that is kept at all.
    for (id, size) in [(1, 2000), (2, 1 << 20)] {
        guest
            .publish(&message("t/x", QosLevel::AtLeastOnce, id, &vec![b'x'; size]))
            .await;
    }
    guest.publish(&message("t/x", QosLevel::AtLeastOnce, 3, b"small")).await;
    for id in 1..=3 {
        assert_eq!(guest.step().await, (PUBACK, id));
    }
    rack.bench.says("it", "max_payload_size allows 1000").await;
    let lost = rack.bench.says("it", "messages are lost").await;
    assert!(lost.contains("topic \"t/x\"") && lost.contains("1000"), "{lost}");
    let letters = taken_from(&rack.outbox, 2).await;
    // The first one is a dead letter.
    assert_eq!(letters.len(), 2);
    life.end().await;
    rack.close().await;
}
