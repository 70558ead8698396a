//! The window alone: what is sent, sent again and done, over connections that break.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::gears::mqtt::testing::message as packet;
use crate::gears::testing::message;

fn outgoing(qos: QosLevel, name: &str) -> OutgoingPublish {
    let signal = TraceContext::of(&message(1, serde_json::Value::Null, b""));
    OutgoingPublish::new(
        PublishPacket {
            id: 0,
            ..packet("t", qos, 0, name.as_bytes())
        },
        signal,
    )
}

fn window(qos: QosLevel, names: &[&str]) -> PublishWindow {
    let mut window = PublishWindow::new(MqttVersion::V5, 16);
    begin(&mut window, false);
    names.iter().for_each(|name| window.push(outgoing(qos, name)));
    window
}

fn begin(window: &mut PublishWindow, session_present: bool) -> Vec<u8> {
    let connected = ConnackPacket {
        session_present,
        ..ConnackPacket::default()
    };
    let mut out = Vec::new();
    window.begin(&connected, &mut out);
    out
}

/// The names of messages that are sent now, with their identifiers, and whether they were sent before.
fn sent(window: &mut PublishWindow, now: Instant) -> Vec<(String, u16, bool)> {
    let is_waiting = |entry: &&PublishWindowEntry| entry.stage == PublishStage::Waiting;
    let waiting: Vec<_> = window
        .entries
        .iter()
        .filter(is_waiting)
        .map(|entry| entry.outgoing.packet.payload.clone())
        .collect();
    window.send(now, &mut Vec::new());
    let is_sent = |entry: &&PublishWindowEntry| {
        entry.stage == PublishStage::Published && waiting.contains(&entry.outgoing.packet.payload)
    };
    let sent = window
        .entries
        .iter()
        .filter(is_sent)
        .map(|entry| &entry.outgoing.packet);
    sent.map(|packet| {
        (
            String::from_utf8(packet.payload.clone()).unwrap(),
            packet.id,
            packet.dup,
        )
    })
    .collect()
}

fn ended(window: &mut PublishWindow) -> Vec<(String, Option<String>)> {
    let name = |outgoing: &OutgoingPublish| String::from_utf8(outgoing.packet.payload.clone()).unwrap();
    let all = window.take_ended().into_iter();
    all.map(|(outgoing, result)| (name(&outgoing), result.err().map(|rejection| rejection.reason)))
        .collect()
}

fn answer(window: &mut PublishWindow, kind: AckPacketKind, id: u16, code: u8) -> Vec<u8> {
    let refusal = (code >= 0x80).then_some(BrokerRefusal { code, text: None });
    let mut out = Vec::new();
    window
        .answered((kind, id), refusal.as_ref(), Instant::now(), &mut out)
        .unwrap();
    out
}

fn triple(name: &str, id: u16, dup: bool) -> (String, u16, bool) {
    (name.to_owned(), id, dup)
}

#[test]
fn in_the_same_session_a_message_is_sent_again_with_its_identifier_and_a_released_one_is_only_released() {
    let now = Instant::now();
    let mut window = window(QosLevel::ExactlyOnce, &["a", "b"]);
    assert_eq!(sent(&mut window, now), [triple("a", 1, false), triple("b", 2, false)]);
    assert_eq!(answer(&mut window, AckPacketKind::PubRec, 1, 0), [0x62, 2, 0, 1]);
    window.end(&ConnectionEnd::Told("it broke".into()));
    assert_eq!(begin(&mut window, true), [0x62, 2, 0, 1]);
    assert_eq!(sent(&mut window, now), [triple("b", 2, true)]);
    answer(&mut window, AckPacketKind::PubComp, 1, 0);
    answer(&mut window, AckPacketKind::PubRec, 2, 0);
    assert_eq!(ended(&mut window), [("a".into(), None)]);
    // The broker's word that it knows the identifier no more is as good.
    answer(&mut window, AckPacketKind::PubComp, 2, 0x92);
    assert_eq!(ended(&mut window), [("b".into(), None)]);
}

#[test]
fn a_broker_that_says_what_it_has_gets_no_message_again() {
    let now = Instant::now();
    let mut window = window(QosLevel::ExactlyOnce, &["a", "b"]);
    sent(&mut window, now);
    begin(&mut window, true);
    assert_eq!(answer(&mut window, AckPacketKind::PubRec, 1, 0), [0x62, 2, 0, 1]);
    assert_eq!(sent(&mut window, now), [triple("b", 2, true)]);
}

#[test]
fn in_a_new_session_a_message_is_a_new_one_also_one_that_was_released() {
    let now = Instant::now();
    let mut window = window(QosLevel::ExactlyOnce, &["a", "b"]);
    sent(&mut window, now);
    answer(&mut window, AckPacketKind::PubRec, 1, 0);
    assert!(begin(&mut window, false).is_empty());
    assert_eq!(ended(&mut window), []);
    assert_eq!(sent(&mut window, now), [triple("a", 3, false), triple("b", 4, false)]);
}

#[test]
fn a_message_that_is_refused_for_now_keeps_its_place_and_one_that_is_refused_for_good_is_rejected() {
    let mut window = window(QosLevel::AtLeastOnce, &["a", "b", "c"]);
    sent(&mut window, Instant::now());
    answer(&mut window, AckPacketKind::PubAck, 1, 0x97);
    answer(&mut window, AckPacketKind::PubAck, 2, 0x87);
    let gone = ended(&mut window);
    assert!(
        gone[0].0 == "b" && gone[0].1.as_ref().unwrap().contains("not authorized"),
        "{gone:?}"
    );
    window.push(outgoing(QosLevel::AtLeastOnce, "d"));
    assert_eq!(
        sent(&mut window, Instant::now()),
        [],
        "nothing is sent during the pause"
    );
    let later = window.hold_until().unwrap();
    assert_eq!(sent(&mut window, later), [triple("a", 4, false), triple("d", 5, false)]);
}

#[test]
fn a_message_that_is_refused_again_and_again_is_rejected_and_so_is_one_that_ends_connections() {
    let mut window = window(QosLevel::AtLeastOnce, &["quota", "good"]);
    for attempt in 1..=ATTEMPTS {
        let at = window.hold_until().unwrap_or_else(Instant::now);
        assert!(ended(&mut window).is_empty(), "{attempt}");
        let id = sent(&mut window, at)[0].1;
        answer(&mut window, AckPacketKind::PubAck, id, 0x97);
    }
    assert!(ended(&mut window)[0].1.as_ref().unwrap().contains("quota exceeded"));
    let at = window.hold_until().unwrap_or_else(Instant::now);
    sent(&mut window, at);
    for attempt in 1..=ATTEMPTS {
        assert!(ended(&mut window).is_empty(), "{attempt}");
        begin(&mut window, false);
        sent(&mut window, at);
        window.end(&ConnectionEnd::Broken("the broker closed the connection".into()));
        // Attempts to connect that fail are nobody's fault.
        window.end(&ConnectionEnd::Told("connection refused".into()));
        // Nor is the broker's own affair.
        begin(&mut window, false);
        sent(&mut window, at);
        window.end(&ConnectionEnd::Disconnected(BrokerRefusal { code: 0x8b, text: None }));
    }
    let gone = ended(&mut window);
    assert!(
        gone[0].0 == "good" && gone[0].1.as_ref().unwrap().contains("ends the connection at it"),
        "{gone:?}"
    );
}

#[test]
fn no_more_is_under_way_than_the_broker_takes_and_what_is_too_large_for_it_is_rejected() {
    let mut window = window(
        QosLevel::AtLeastOnce,
        &["a", "much larger than the others are", "b", "c"],
    );
    (window.limit, window.largest) = (2, 20);
    let now = Instant::now();
    assert_eq!(sent(&mut window, now), [triple("a", 1, false), triple("b", 3, false)]);
    let gone = ended(&mut window);
    assert!(
        gone[0].1.as_ref().unwrap().contains("the broker takes at most 20"),
        "{gone:?}"
    );
    assert_eq!(sent(&mut window, now), []);
    answer(&mut window, AckPacketKind::PubAck, 1, 0);
    assert_eq!(sent(&mut window, now), [triple("c", 4, false)]);
}

#[test]
fn an_unknown_acknowledgement_is_refused_and_one_from_before_a_restart_accepted() {
    let mut window = window(QosLevel::AtLeastOnce, &["a"]);
    sent(&mut window, Instant::now());
    for (kind, id) in [
        (AckPacketKind::PubAck, 9),
        (AckPacketKind::PubRec, 1),
        (AckPacketKind::PubRel, 1),
    ] {
        let said = window.answered((kind, id), None, Instant::now(), &mut Vec::new());
        assert!(said.unwrap_err().contains("does not fit"));
    }
    assert_eq!(answer(&mut window, AckPacketKind::PubRec, 9, 0), [0x62, 2, 0, 9]);
    assert_eq!(ended(&mut window), []);
}

#[test]
fn a_turn_ends_at_about_a_mebibyte_and_the_next_one_goes_on() {
    let mut window = window(QosLevel::AtLeastOnce, &[]);
    for _ in 0..3 {
        let mut large = outgoing(QosLevel::AtLeastOnce, "");
        large.packet.payload = vec![b'x'; TURN_BYTES * 2 / 3];
        window.push(large);
    }
    let sizes = [0; 3].map(|_| {
        let mut out = Vec::new();
        window.send(Instant::now(), &mut out);
        out.len() / (TURN_BYTES / 3)
    });
    assert_eq!(sizes, [4, 2, 0]);
    assert!(!window.has_more());
}
