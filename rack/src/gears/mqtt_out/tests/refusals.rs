//! `mqtt_out` with messages, brokers and configurations that cannot be: what is rejected, what waits and what is told.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_not_allowed_and_a_message_that_is_too_large_are_rejected_and_the_next_one_goes() {
    let access = "allow_anonymous true\nacl_file {folder}/acl\nmax_packet_size 2000";
    let files = [("acl", "topic read t/#\ntopic write t/good\n")];
    let Some(broker) = Mosquitto::start_with(access, &files).await else {
        return;
    };
    let rack = Rack::open();
    let mut client = broker.client("test").await;
    client.subscribe("t/#", QosLevel::AtLeastOnce).await;
    let config = json!({ "broker": broker.client_config("it", "5"), "topic_expression": "meta['topic']" });
    let large = "x".repeat(3000);
    let mut taken = Vec::new();
    for (number, topic, body) in [
        (1, json!("t/secret"), "secret"),
        (2, json!("t/good"), large.as_str()),
        (3, json!("t/+"), "wild"),
        (4, json!(7), "number"),
        (5, json!(""), "empty"),
        (6, json!("t/\u{1}\n"), "control"),
        (7, json!("t/good"), "good"),
    ] {
        let mut message = message(number, Value::Null, body.as_bytes());
        message.meta.set("topic", topic);
        taken.push(deliver_to(&rack.inbox, "in", number, message));
    }
    let life = rack.begin_with(config);
    assert_eq!(client.receive().await.payload, b"good");
    all_taken(taken).await;
    assert_eq!(taken_from(&rack.outbox, 6).await.len(), 6);
    for says in [
        "the broker refuses it: not authorized",
        "it has 30",
        "topic_expression: the topic \"t/+\" has a wildcard",
        "topic_expression: the result is a number",
        "topic_expression: a topic has 1 to 65535 bytes",
    ] {
        rack.bench
            .says("it", &format!("a message became a dead letter: {says}"))
            .await;
    }
    life.end().await;
    rack.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_wait_for_a_broker_that_speaks_nonsense_or_cannot_do_what_is_asked_for() {
    let rack = Rack::open();
    let broker = ScriptedBroker::start().await;
    let taken = rack.deliver(&["one"]);
    let life = rack.begin(&broker.client_config(), 2);
    let with = |property: &[u8]| {
        let size = u8::try_from(property.len()).unwrap();
        [&[0x20, size + 3, 0, 0, size], property].concat()
    };
    for (says, answer) in [
        ("flags that no broker sends", b"SSH-2.0-OpenSSH_9.9\r\n".repeat(9)),
        ("banned (reason code 0x8a)", vec![0x20, 3, 0, 0x8a, 0]),
        ("at most QoS 1: set qos", with(&[0x24, 1])),
        ("does not fit", [ACCEPTED, &[0x40, 2, 0, 9]].concat()),
        ("administrative action", [ACCEPTED, &[0xe0, 1, 0x98]].concat()),
        ("a packet ends within a field", [ACCEPTED, &[0x40, 1, 0]].concat()),
    ] {
        let guest = broker.accept(&answer).await;
        let said = rack.bench.says("it", says).await;
        assert!(said.contains("trying again in"), "{said}");
        drop(guest);
    }
    let mut guest = broker.accept(ACCEPTED).await;
    let one = is_sent(&mut guest, "one").await;
    guest.answer(PUBREC, one.id, &[]).await;
    guest.step().await;
    guest.answer(PUBCOMP, one.id, &[]).await;
    all_taken(taken).await;
    life.end().await;
    rack.close().await;
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused_by_its_key() {
    for (more, says) in [
        (json!({}), "either topic or topic_expression"),
        (
            json!({ "topic": "a", "topic_expression": "'a'" }),
            "either topic or topic_expression",
        ),
        (json!({ "topic": "a/#" }), "topic: the topic \"a/#\" has a wildcard"),
        (json!({ "topic": "" }), "topic: a topic has"),
        (json!({ "topic_expression": "nothing" }), "topic_expression: "),
        (json!({ "topic": "a", "qos": 3 }), "qos must be 0, 1 or 2"),
        (json!({ "topic": "a", "in_flight": 0 }), "in_flight must be between"),
        (
            json!({ "topic": "a", "in_flight": 21, "qos": 2, "broker": { "address": "b:1883", "client_id": "c", "version": "3.1.1" } }),
            "in_flight must be at most 20",
        ),
        (json!({ "topic": "a", "colour": 0 }), "unknown field `colour`"),
    ] {
        let mut config = json!({ "broker": { "address": "b:1883", "client_id": "c" } });
        config
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let error = gear_manifest::check::<MqttOutConfig>(config.as_object().unwrap()).unwrap_err();
        assert!(error.contains(says), "{more}: {error}");
    }
}
