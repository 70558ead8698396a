//! A business message as a row of `messages`: pure, so that every kind of message is a unit test.
//!
//! | column | from |
//! |---|---|
//! | `ts`, `trace_id`, `flux_id` | the message |
//! | `entity_name`, `src_gear_id` | the subject's Rack and gear |
//! | `entity_id` | the header `Entity-Id`, else the Rack's name |
//! | `dst_gear_id` | the header `Flux-To` of a Rack's message; of one that says nothing of its way, its fact `dst.gear` |
//! | `msg_type` | the message's fact `msg.type`, else the subject's port |
//! | `direction` | the header `Flux-Direction` of a Rack's message, else `outbound`; `inbound` if no Rack sent it |
//! | `status` | `error` if the message has the fact `error`, else `ok` |
//! | `raw_msg` | the payload as it came |
//! | `promoted` | what its spec promotes out of its data; nothing without a spec |
//!
//! # Invariants
//!
//! - A message is known by its place on the bus, and by its Rack's own number where it has one, so it is stored once however
//!   often it comes, and its Rack hears that it is durable.
//! - What a Rack's gear could not handle comes on `flux.gear.` and is a dead letter with the gear's reason.
//! - What cannot be promoted is missing and counted; the message is stored.
//! - What is no message becomes a dead letter with the same place.

use std::sync::Arc;

use async_nats::HeaderMap;
use engine::Batch;
use model::batch::MessageRow;
use model::message::Message;
use model::spec::Facts;
use model::{Destination, Direction, EntityId, SpanStatus, Table, Timestamp, subject, wire};

use crate::decode::{Decoded, Incoming, Keep, caught, dead_letter, entity, header, origin};
use crate::specs::{InForce, Specs};

/// The batch of one row that a message is; a dead letter if it is none.
///
/// # Errors
/// Only if even the dead letter cannot be encoded, a defect of `model`.
pub(crate) fn archive(
    incoming: &Incoming<'_>,
    now: Timestamp,
    max_payload: usize,
    specs: &Specs,
) -> Result<Decoded, String> {
    let (origin, unclear) = origin(incoming);
    if let Some(reason) = unclear {
        return dead_letter(incoming, origin, reason, now, Keep::Whole);
    }
    if subject::parse_gear(incoming.subject).is_some() {
        let reason = header(incoming.headers, wire::DEAD_REASON).unwrap_or("it does not say why");
        return dead_letter(incoming, origin, reason.to_owned(), now, Keep::Whole);
    }
    // Only Racks number what they send.
    let is_ours = origin.producer.is_some();
    let (row, spec) = match caught(|| row(incoming, is_ours, max_payload, specs)) {
        Ok(row) => row,
        Err(reason) => return dead_letter(incoming, origin, reason, now, Keep::Whole),
    };
    let rows = vec![model::batch::messages(&[row]).map_err(|error| error.to_string())?];
    let payload = wire::encode_arrow(&rows).map_err(|error| error.to_string())?.into();
    Ok(Decoded {
        batch: Batch {
            table: Table::Messages,
            origin,
            payload,
            rows,
        },
        dead: None,
        spec,
    })
}

type Row = (MessageRow, Option<(Arc<InForce>, u64)>);

/// What a Rack says of the way of its message. What it cannot say so is as if it said nothing.
fn destination(headers: &HeaderMap) -> Option<Destination> {
    Destination::of(header(headers, wire::DIRECTION)?, header(headers, wire::TO))
}

fn row(incoming: &Incoming<'_>, is_ours: bool, max_payload: usize, specs: &Specs) -> Result<Row, String> {
    let (rack, gear, port) = subject::parse_message(incoming.subject)
        .ok_or_else(|| "the subject is not flux.msg.<rack>.<gear>.<port>".to_owned())?;
    let bytes = incoming.payload.len();
    if bytes > max_payload {
        return Err(format!(
            "the message has {bytes} bytes, mixer.max_payload_size allows {max_payload}"
        ));
    }
    let message = Message::from_cbor(incoming.payload).map_err(|reason| format!("not a message: {reason}"))?;
    let destination = is_ours.then(|| destination(incoming.headers)).flatten();
    let direction = match &destination {
        Some(destination) => destination.direction(),
        None if is_ours => Direction::Outbound,
        None => Direction::Inbound,
    };
    let fact = |name: &str| {
        message
            .meta
            .get(name)
            .and_then(serde_json::Value::as_str)
            .map(str::to_owned)
    };
    let msg_type = fact("msg.type").unwrap_or_else(|| port.to_string());
    let spec = specs.taking(Facts {
        msg_type: &msg_type,
        rack: rack.as_str(),
        gear: gear.as_str(),
        port: port.as_str(),
        meta: &message.meta,
    });
    let promoted = spec
        .as_ref()
        .map(|of| of.spec.promote(&message.data))
        .unwrap_or_default();
    let row = MessageRow {
        ts: message.ts,
        trace_id: message.trace_id,
        flux_id: message.flux_id,
        entity_id: entity(incoming.headers)?.unwrap_or_else(|| EntityId::for_name(rack.as_str())),
        entity_name: rack.to_string(),
        src_gear_id: gear.to_string(),
        dst_gear_id: match destination {
            Some(destination) => destination.to().map(ToString::to_string),
            None => fact("dst.gear"),
        },
        msg_type,
        direction,
        status: if message.meta.get("error").is_some() {
            SpanStatus::Error
        } else {
            SpanStatus::Ok
        },
        raw_msg: incoming.payload.to_vec(),
        promoted: promoted.values,
    };
    Ok((row, spec.map(|of| (of, promoted.failed))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use bytes::Bytes;
    use engine::BusPosition;
    use model::{Attributes, FluxId, MessageId};
    use serde_json::json;

    use super::*;

    fn message(meta: Attributes) -> Message {
        let ts = "2026-11-21T10:00:00Z".parse().unwrap();
        Message {
            id: MessageId::at(ts, [2; 10]),
            ts,
            raw: vec![1, 2, 3],
            data: serde_json::Value::Null,
            hops: 1,
            meta,
            parent: None,
            flux_id: FluxId::at(ts, [1; 10]),
            sampled: true,
            span_id: "b7ad6b7169203331".parse().unwrap(),
            trace_id: "0af7651916cd43dd8448eb211c80319c".parse().unwrap(),
        }
    }

    fn archived(subject: &str, payload: Vec<u8>) -> Decoded {
        archived_with(subject, payload, &Specs::default())
    }

    fn archived_with(subject: &str, payload: Vec<u8>, specs: &Specs) -> Decoded {
        archived_of(subject, &[], payload, specs)
    }

    fn archived_of(subject: &str, said: &[(&'static str, &str)], payload: Vec<u8>, specs: &Specs) -> Decoded {
        let mut headers = HeaderMap::new();
        said.iter().for_each(|(name, value)| headers.insert(*name, *value));
        let payload = Bytes::from(payload);
        let incoming = Incoming {
            subject,
            headers: &headers,
            payload: &payload,
            position: Some(BusPosition {
                stream: "flux-msg".into(),
                incarnation: 1,
                seq: 7,
                identity: 1,
            }),
        };
        archive(&incoming, Timestamp::from_micros(2), 4096, specs).unwrap()
    }

    #[test]
    fn a_message_is_a_row_with_all_of_its_bytes() {
        let sent = message(Attributes::new().with("msg.type", "order").with("dst.gear", "sink"));
        let payload = sent.to_cbor().unwrap();
        let done = archived("flux.msg.rack-a.parse.out", payload.clone());
        assert_eq!((done.dead, done.batch.table), (None, Table::Messages));
        assert_eq!(done.batch.origin.bus.unwrap().seq, 7);
        let row = model::batch::row_json(&done.batch.rows[0], 0);
        for (key, value) in [
            ("ts", "2026-11-21T10:00:00.000000Z"),
            ("entity_name", "rack-a"),
            ("src_gear_id", "parse"),
            ("dst_gear_id", "sink"),
            ("msg_type", "order"),
            ("direction", "inbound"),
            ("status", "ok"),
            ("trace_id", "0af7651916cd43dd8448eb211c80319c"),
        ] {
            assert_eq!(row[key], value, "{key}");
        }
        assert_eq!(row["raw_msg"].as_str().map(str::len), Some(payload.len() * 2));
    }

    #[test]
    fn a_rack_says_whom_its_message_is_for_and_whether_that_is_over_its_edge_and_nobody_else_does() {
        let payload = message(Attributes::new().with("dst.gear", "fact")).to_cbor().unwrap();
        let entity = EntityId::for_name("r").to_string();
        let rack = [
            (wire::ENTITY_ID, entity.as_str()),
            (wire::BOOT_EPOCH, "1"),
            (wire::SEQUENCE, "1"),
        ];
        for (is_ours, said, direction, to) in [
            (
                true,
                &[(wire::DIRECTION, "internal"), (wire::TO, "sink")][..],
                "internal",
                Some("sink"),
            ),
            (
                true,
                &[(wire::DIRECTION, "outbound"), (wire::TO, "sink")],
                "outbound",
                Some("sink"),
            ),
            (true, &[(wire::DIRECTION, "outbound")], "outbound", None),
            (
                true,
                &[(wire::DIRECTION, "outbound"), (wire::TO, "a b")],
                "outbound",
                None,
            ),
            (
                true,
                &[(wire::DIRECTION, "inbound"), (wire::TO, "sink")],
                "outbound",
                Some("fact"),
            ),
            (
                true,
                &[(wire::DIRECTION, "up"), (wire::TO, "sink")],
                "outbound",
                Some("fact"),
            ),
            (true, &[(wire::TO, "sink")], "outbound", Some("fact")),
            (true, &[], "outbound", Some("fact")),
            (false, &[], "inbound", Some("fact")),
            (
                false,
                &[(wire::DIRECTION, "internal"), (wire::TO, "sink")],
                "inbound",
                Some("fact"),
            ),
        ] {
            let all = [if is_ours { &rack[..] } else { &[] }, said].concat();
            let done = archived_of("flux.msg.r.g.out", &all, payload.clone(), &Specs::default());
            let row = model::batch::row_json(&done.batch.rows[0], 0);
            assert_eq!(
                (done.dead, row["direction"].as_str()),
                (None, Some(direction)),
                "{all:?}"
            );
            assert_eq!(row["dst_gear_id"].as_str(), to, "{all:?}");
        }
    }

    #[test]
    fn a_message_without_facts_is_of_the_type_of_its_port() {
        let payload = message(Attributes::new().with("error", "broken")).to_cbor().unwrap();
        let row = model::batch::row_json(&archived("flux.msg.r.g.out", payload).batch.rows[0], 0);
        assert_eq!(
            (row["msg_type"].as_str(), row["status"].as_str()),
            (Some("out"), Some("error"))
        );
        assert!(row["dst_gear_id"].is_null());
    }

    #[test]
    fn a_message_that_a_spec_takes_is_of_it_with_what_it_promotes() {
        let specs = Specs::default();
        let order = "name: order\nversion: 1\nmatch: { msg_type: order }\nfields:
  - { name: amount, path: /amount, type: float }
  - { name: city, path: /to/city, type: string }
  - { name: n, path: /to, type: int }\n";
        let other = "name: all\nversion: 1\npriority: -1\nmatch: { rack: 'r*' }\n";
        specs.set([other, order].map(|yaml| model::spec::parse(yaml).unwrap()).into());
        let mut sent = message(Attributes::new().with("msg.type", "order"));
        sent.data = json!({"amount": 7, "to": {"city": "Ulm"}, "more": 1});
        let done = archived_with("flux.msg.r.g.out", sent.to_cbor().unwrap(), &specs);
        let (of, failed) = done.spec.unwrap();
        assert_eq!((of.spec.name.as_str(), failed), ("order", 1));
        let row = model::batch::row_json(&done.batch.rows[0], 0);
        assert_eq!(row["promoted"], json!({"amount": 7.0, "city": "Ulm"}));
        sent.meta = Attributes::new();
        let done = archived_with("flux.msg.r.g.out", sent.to_cbor().unwrap(), &specs);
        assert_eq!(done.spec.unwrap().0.spec.name.as_str(), "all");
        let done = archived_with("flux.msg.x.g.out", sent.to_cbor().unwrap(), &specs);
        assert!(done.spec.is_none());
        specs.set(Vec::new());
        let done = archived_with("flux.msg.r.g.out", sent.to_cbor().unwrap(), &specs);
        assert!(done.spec.is_none());
    }

    #[test]
    fn what_is_no_message_becomes_a_dead_letter_at_its_place() {
        let good = message(Attributes::new()).to_cbor().unwrap();
        for (subject, payload, says) in [
            ("flux.msg.r.g.out", b"garbage".to_vec(), "not a message"),
            ("flux.msg.r.g.out", [good.clone(), vec![0]].concat(), "not a message"),
            ("flux.msg.r.g", good.clone(), "the subject is not"),
            ("flux.msg.r.g.out", vec![0; 5000], "max_payload_size"),
        ] {
            let done = archived(subject, payload);
            let reason = done.dead.unwrap();
            assert!(reason.contains(says), "{says}: {reason}");
            assert_eq!(done.batch.table, Table::DeadLetters);
            assert_eq!(done.batch.origin.bus.unwrap().seq, 7);
        }
    }
}
