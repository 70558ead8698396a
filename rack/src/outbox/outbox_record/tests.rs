//! Records of the outbox, written and read.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

#[test]
fn a_letter_comes_back_and_no_part_of_one_panics() {
    let leaving = OutgoingMessage {
        gear: "parse".parse().unwrap(),
        port: "out",
        body: vec![1, 2, 3],
    };
    let rack: Token = "rack-a".parse().unwrap();
    let destination = MessageDestination::new(true, Some("sink".parse().unwrap()));
    let message = OutboxRecord::messages(MessageBatch::new(leaving, 7), Some(destination));
    let mut headers = HeaderMap::new();
    message.write_headers(None, &mut headers);
    for (name, value) in [(telemetry_codec::DIRECTION, "internal"), (telemetry_codec::TO, "sink")] {
        assert_eq!(headers.get(name).unwrap().as_str(), value, "{name}");
    }
    let dead = OutboxRecord::dead(OutboxDeadLetter {
        gear: "parse".parse().unwrap(),
        port: "in".to_owned(),
        way: PortSide::Out,
        reason: "line\none".repeat(500),
        attempts: 5,
        past: DeliveryHistory {
            from: Some("flux.msg.rack-b.tail.out".into()),
            letter: Some(LetterId::from_bytes([7; 16])),
            replays: 2,
            attempts: 11,
        },
        body: vec![9; 10],
    });
    let mut headers = HeaderMap::new();
    dead.write_headers(None, &mut headers);
    let said = |name| headers.get(name).unwrap().as_str();
    assert!(
        said(telemetry_codec::DEAD_REASON).len() <= MAX_REASON && !said(telemetry_codec::DEAD_REASON).contains('\n')
    );
    for (name, value) in [
        (telemetry_codec::DEAD_PORT, "in"),
        (telemetry_codec::DEAD_WAY, "out"),
        (telemetry_codec::DEAD_ATTEMPTS, "16"),
        (telemetry_codec::DEAD_FROM, "flux.msg.rack-b.tail.out"),
        (telemetry_codec::DEAD_LETTER, "07070707070707070707070707070707"),
        (telemetry_codec::DEAD_REPLAYS, "2"),
    ] {
        assert_eq!(said(name), value, "{name}");
    }
    for (letter, subject) in [(message, "flux.msg.rack-a.parse.out"), (dead, "flux.gear.rack-a.parse")] {
        let bytes = Bytes::from(letter.encode());
        assert_eq!(OutboxRecord::decode(&bytes), Some(letter.clone()));
        assert_eq!(letter.subject(&rack).as_deref(), Some(subject));
        for end in 0..bytes.len() - letter.body.len() {
            assert_eq!(OutboxRecord::decode(&bytes.slice(..end)), None, "{end}");
        }
    }
}

#[test]
fn what_is_too_large_leaves_as_a_dead_letter_with_its_head_and_says_so() {
    let leaving = OutgoingMessage {
        gear: "parse".parse().unwrap(),
        port: "out",
        body: vec![7; 100],
    };
    let whole = OutboxRecord::messages(MessageBatch::new(leaving, 7), None);
    assert_eq!(whole.clone().truncate(100), whole);
    let letter = whole.truncate(40);
    assert_eq!(
        (letter.body.len(), &letter.kind),
        (40, &letter.clone().truncate(40).kind)
    );
    assert_eq!(
        letter.subject(&"rack-a".parse().unwrap()).as_deref(),
        Some("flux.gear.rack-a.parse")
    );
    let dead = OutboxRecord::dead(OutboxDeadLetter {
        gear: "parse".parse().unwrap(),
        port: "in".to_owned(),
        way: PortSide::In,
        reason: "because ".repeat(500),
        attempts: 5,
        past: DeliveryHistory::default(),
        body: vec![9; MAX_BODY + 1],
    });
    assert_eq!(dead.body.len(), MAX_BODY);
    let mut headers = HeaderMap::new();
    dead.truncate(50).write_headers(None, &mut headers);
    let reason = headers.get(telemetry_codec::DEAD_REASON).unwrap().as_str();
    assert!(reason.starts_with("because ") && reason.len() <= MAX_REASON, "{reason}");
    assert!(reason.ends_with("only the first 50 could be kept"), "{reason}");
    assert_eq!(headers.get(telemetry_codec::DEAD_ATTEMPTS).unwrap().as_str(), "5");
}
