//! Turns business messages into rows of `messages`. Pure functions, so that every kind of message has a unit test. A bus message
//! carries one message, or, if a Rack sent it, a sequence of messages that all left by the same port.
//!
//! | column | from |
//! |---|---|
//! | `ts`, `trace_id`, `flux_id` | the message |
//! | `entity_name`, `src_gear_id` | the Rack and the gear in the subject |
//! | `entity_id` | the header `Entity-Id`, else an id derived from the Rack's name |
//! | `dst_gear_id` | the header `Flux-To` if a Rack sent the message with a direction; otherwise its fact `dst.gear` |
//! | `msg_type` | the message's fact `msg.type`, else the port in the subject |
//! | `direction` | the header `Flux-Direction` if a Rack sent it, else `outbound`; `inbound` if no Rack sent it |
//! | `status` | `error` if the message has the fact `error`, else `ok` |
//! | `raw_msg` | the message's bytes as they came |
//! | `promoted` | the fields that its spec promotes; empty without a spec |
//!
//! # Invariants
//!
//! - A bus message is identified by its position on the bus, and by its Rack's sequence number if it has one. So it is stored once
//!   however often it comes, all of it or nothing, and its Rack learns that it is durable.
//! - A message that a gear could not handle comes on `flux.gear.` and becomes a dead letter with the gear's reason.
//! - A value that cannot be promoted is left out and counted; the message is stored.
//! - A payload that is not a message, or contains something that is not one, becomes a dead letter with the same position.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{AppendBatch, SpecName};
use model::batch::MessageRow;
use model::catch_panic;
use model::message::{Message, MessageSequence};
use model::spec::MessageFacts;
use model::{
    EntityId, MessageDestination, MessageDirection, SpanStatus, Table, Timestamp, Token, subject, telemetry_codec,
};

use crate::decode::{DecodedBatch, InboundMessage, PayloadTruncation, dead_letter, entity, header, origin};
use crate::spec_matcher::{ActiveSpec, PendingSpecCounts, SpecMatcher};

/// Decodes a bus message into a batch of rows, or into a dead letter if it cannot be decoded.
///
/// # Errors
/// Only if even the dead letter cannot be encoded, a defect of `model`.
pub(crate) fn archive(
    incoming: &InboundMessage<'_>,
    now: Timestamp,
    max_payload: usize,
    specs: &SpecMatcher,
) -> Result<DecodedBatch, String> {
    let (origin, origin_problem) = origin(incoming);
    if let Some(reason) = origin_problem {
        return dead_letter(incoming, origin, reason, now, PayloadTruncation::Whole);
    }
    if subject::parse_gear(incoming.subject).is_some() {
        let reason = header(incoming.headers, telemetry_codec::DEAD_REASON).unwrap_or("it does not say why");
        return dead_letter(incoming, origin, reason.to_owned(), now, PayloadTruncation::Whole);
    }
    // Only Racks put sequence numbers on what they send.
    let is_from_rack = origin.producer.is_some();
    let groups = match catch_panic(|| group_by_spec(incoming, is_from_rack, max_payload, specs)) {
        Ok(groups) => groups,
        Err(reason) => return dead_letter(incoming, origin, reason, now, PayloadTruncation::Whole),
    };
    let batches = groups.values().map(|group| model::batch::messages(&group.rows));
    let rows: Vec<_> = batches.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let payload = telemetry_codec::encode_arrow(&rows)
        .map_err(|error| error.to_string())?
        .into();
    Ok(DecodedBatch {
        batch: AppendBatch {
            table: Table::Messages,
            origin,
            payload,
            rows,
        },
        dead: None,
        specs: groups.into_values().map(|group| group.counts).collect(),
    })
}

/// The rows of one spec, or those that no spec matches.
#[derive(Default)]
struct SpecRowGroup {
    rows: Vec<MessageRow>,
    counts: Option<PendingSpecCounts>,
}

/// Groups the rows of a bus message by spec. A Rack's bus message has a sequence of messages, anybody else's has one.
fn group_by_spec(
    incoming: &InboundMessage<'_>,
    is_from_rack: bool,
    max_payload: usize,
    specs: &SpecMatcher,
) -> Result<BTreeMap<Option<SpecName>, SpecRowGroup>, String> {
    let envelope = BusEnvelope::parse(incoming, is_from_rack)?;
    let mut groups = BTreeMap::<_, SpecRowGroup>::new();
    let mut add = |raw: &[u8], read: Result<Message, String>| {
        // The limit is for a single message. Each message of a sequence was checked when it was sent.
        if raw.len() > max_payload && raw.len() == incoming.payload.len() {
            let bytes = raw.len();
            return Err(format!(
                "the message has {bytes} bytes, mixer.max_payload_size allows {max_payload}"
            ));
        }
        let message = read.map_err(|reason| format!("not a message: {reason}"))?;
        let (row, spec, failed) = envelope.row(raw, &message, specs);
        let group = groups.entry(spec.as_ref().map(|active| active.spec.name)).or_default();
        group.rows.push(row);
        if let Some(active) = spec {
            let counts = group.counts.get_or_insert_with(|| PendingSpecCounts::new(active));
            counts.messages += 1;
            counts.failed += failed;
        }
        Ok(())
    };
    if is_from_rack {
        MessageSequence::new(incoming.payload.clone()).try_for_each(|(raw, read)| add(&raw, read))?;
    } else {
        add(incoming.payload, Message::from_cbor(incoming.payload))?;
    }
    Ok(groups)
}

/// What the subject and the headers say about all messages of a bus message.
struct BusEnvelope {
    rack: Token,
    gear: Token,
    port: Token,
    entity: EntityId,
    /// From the headers of a Rack's message; none if they are missing or invalid.
    destination: Option<MessageDestination>,
    direction: MessageDirection,
}

impl BusEnvelope {
    fn parse(incoming: &InboundMessage<'_>, is_from_rack: bool) -> Result<Self, String> {
        let (rack, gear, port) = subject::parse_message(incoming.subject)
            .ok_or_else(|| "the subject is not flux.msg.<rack>.<gear>.<port>".to_owned())?;
        let value = |name| header(incoming.headers, name);
        let destination = value(telemetry_codec::DIRECTION)
            .and_then(|direction| MessageDestination::of(direction, value(telemetry_codec::TO)));
        let destination = destination.filter(|_| is_from_rack);
        let direction = match &destination {
            Some(destination) => destination.direction(),
            None if is_from_rack => MessageDirection::Outbound,
            None => MessageDirection::Inbound,
        };
        let entity = entity(incoming.headers)?.unwrap_or_else(|| EntityId::for_name(rack.as_str()));
        Ok(Self {
            rack,
            gear,
            port,
            entity,
            destination,
            direction,
        })
    }

    /// The row of a message, the spec that matches it, and how many of its values did not have the type of their field.
    fn row(&self, raw: &[u8], message: &Message, specs: &SpecMatcher) -> (MessageRow, Option<Arc<ActiveSpec>>, u64) {
        let fact = |name: &str| message.meta.get(name).and_then(serde_json::Value::as_str);
        let msg_type = fact("msg.type").unwrap_or(self.port.as_str());
        let spec = specs.match_spec(MessageFacts {
            msg_type,
            rack: self.rack.as_str(),
            gear: self.gear.as_str(),
            port: self.port.as_str(),
            meta: &message.meta,
        });
        let promoted = spec
            .as_ref()
            .map(|active| active.spec.promote(&message.data))
            .unwrap_or_default();
        let row = MessageRow {
            ts: message.ts,
            trace_id: message.trace_id,
            flux_id: message.flux_id,
            entity_id: self.entity,
            entity_name: self.rack.to_string(),
            src_gear_id: self.gear.to_string(),
            dst_gear_id: match &self.destination {
                Some(destination) => destination.to().map(ToString::to_string),
                None => fact("dst.gear").map(str::to_owned),
            },
            msg_type: msg_type.to_owned(),
            direction: self.direction,
            status: if message.meta.get("error").is_some() {
                SpanStatus::Error
            } else {
                SpanStatus::Ok
            },
            raw_msg: raw.to_vec(),
            promoted: promoted.values,
        };
        (row, spec, promoted.failed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use bytes::Bytes;
    use engine::BusPosition;
    use model::{Attributes, FluxId, MessageId};
    use serde_json::json;

    use async_nats::HeaderMap;

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
            trace_state: None,
        }
    }

    fn archived(subject: &str, payload: Vec<u8>) -> DecodedBatch {
        archived_with(subject, payload, &SpecMatcher::default())
    }

    fn archived_with(subject: &str, payload: Vec<u8>, specs: &SpecMatcher) -> DecodedBatch {
        archived_of(subject, &[], payload, specs)
    }

    fn archived_of(
        subject: &str,
        said: &[(&'static str, &str)],
        payload: Vec<u8>,
        specs: &SpecMatcher,
    ) -> DecodedBatch {
        let mut headers = HeaderMap::new();
        said.iter().for_each(|(name, value)| headers.insert(*name, *value));
        let payload = Bytes::from(payload);
        let incoming = InboundMessage {
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
    fn only_a_rack_sets_the_receiver_and_direction_of_its_message() {
        let payload = message(Attributes::new().with("dst.gear", "fact")).to_cbor().unwrap();
        let entity = EntityId::for_name("r").to_string();
        let rack = [
            (telemetry_codec::ENTITY_ID, entity.as_str()),
            (telemetry_codec::BOOT_EPOCH, "1"),
            (telemetry_codec::SEQUENCE, "1"),
        ];
        for (is_from_rack, said, direction, to) in [
            (
                true,
                &[(telemetry_codec::DIRECTION, "internal"), (telemetry_codec::TO, "sink")][..],
                "internal",
                Some("sink"),
            ),
            (
                true,
                &[(telemetry_codec::DIRECTION, "outbound"), (telemetry_codec::TO, "sink")],
                "outbound",
                Some("sink"),
            ),
            (true, &[(telemetry_codec::DIRECTION, "outbound")], "outbound", None),
            (
                true,
                &[(telemetry_codec::DIRECTION, "outbound"), (telemetry_codec::TO, "a b")],
                "outbound",
                None,
            ),
            (
                true,
                &[(telemetry_codec::DIRECTION, "inbound"), (telemetry_codec::TO, "sink")],
                "outbound",
                Some("fact"),
            ),
            (
                true,
                &[(telemetry_codec::DIRECTION, "up"), (telemetry_codec::TO, "sink")],
                "outbound",
                Some("fact"),
            ),
            (true, &[(telemetry_codec::TO, "sink")], "outbound", Some("fact")),
            (true, &[], "outbound", Some("fact")),
            (false, &[], "inbound", Some("fact")),
            (
                false,
                &[(telemetry_codec::DIRECTION, "internal"), (telemetry_codec::TO, "sink")],
                "inbound",
                Some("fact"),
            ),
        ] {
            let all = [if is_from_rack { &rack[..] } else { &[] }, said].concat();
            let done = archived_of("flux.msg.r.g.out", &all, payload.clone(), &SpecMatcher::default());
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
    fn a_message_without_msg_type_has_its_port_as_type() {
        let payload = message(Attributes::new().with("error", "broken")).to_cbor().unwrap();
        let row = model::batch::row_json(&archived("flux.msg.r.g.out", payload).batch.rows[0], 0);
        assert_eq!(
            (row["msg_type"].as_str(), row["status"].as_str()),
            (Some("out"), Some("error"))
        );
        assert!(row["dst_gear_id"].is_null());
    }

    #[test]
    fn a_message_is_stored_under_the_spec_that_matches_it_with_its_promoted_fields() {
        let specs = SpecMatcher::default();
        let order = "name: order\nversion: 1\nmatch: { msg_type: order }\nfields:
  - { name: amount, path: /amount, type: float }
  - { name: city, path: /to/city, type: string }
  - { name: n, path: /to, type: int }\n";
        let other = "name: all\nversion: 1\npriority: -1\nmatch: { rack: 'r*' }\n";
        specs.set([other, order].map(|yaml| model::spec::parse(yaml).unwrap()).into());
        let mut sent = message(Attributes::new().with("msg.type", "order"));
        sent.data = json!({"amount": 7, "to": {"city": "Ulm"}, "more": 1});
        let done = archived_with("flux.msg.r.g.out", sent.to_cbor().unwrap(), &specs);
        let taken = done.specs[0].as_ref().unwrap();
        assert_eq!((taken.name().as_str(), taken.failed), ("order", 1));
        let row = model::batch::row_json(&done.batch.rows[0], 0);
        assert_eq!(row["promoted"], json!({"amount": 7.0, "city": "Ulm"}));
        sent.meta = Attributes::new();
        let done = archived_with("flux.msg.r.g.out", sent.to_cbor().unwrap(), &specs);
        assert_eq!(done.specs[0].as_ref().unwrap().name().as_str(), "all");
        let done = archived_with("flux.msg.x.g.out", sent.to_cbor().unwrap(), &specs);
        assert!(done.specs[0].is_none());
        specs.set(Vec::new());
        let done = archived_with("flux.msg.r.g.out", sent.to_cbor().unwrap(), &specs);
        assert!(done.specs[0].is_none());
    }

    #[test]
    fn a_sequence_of_messages_becomes_one_row_each_only_if_a_rack_sent_it() {
        let specs = SpecMatcher::default();
        let order = "name: order\nversion: 1\nmatch: { msg_type: order }\nfields: []\n";
        specs.set(vec![model::spec::parse(order).unwrap()]);
        let types = ["order", "bill", "order"];
        let sent = types.map(|kind| message(Attributes::new().with("msg.type", kind)).to_cbor().unwrap());
        let entity = EntityId::for_name("r").to_string();
        let rack = [
            (telemetry_codec::ENTITY_ID, entity.as_str()),
            (telemetry_codec::BOOT_EPOCH, "1"),
            (telemetry_codec::SEQUENCE, "1"),
        ];
        let done = archived_of("flux.msg.r.g.out", &rack, sent.concat(), &specs);
        let of = |at: usize| {
            done.specs[at]
                .as_ref()
                .map(|taken| (taken.name().to_string(), taken.messages))
        };
        assert_eq!((of(0), of(1)), (None, Some(("order".to_owned(), 2))));
        let raw = |at: usize, row| model::batch::row_json(&done.batch.rows[at], row)["raw_msg"].clone();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(
            [raw(1, 0), raw(0, 0), raw(1, 1)],
            sent.each_ref().map(|sent| json!(hex(sent)))
        );
        let broken = [sent.concat(), vec![0]].concat();
        for (said, payload) in [(&rack[..], broken), (&[], sent.concat())] {
            let done = archived_of("flux.msg.r.g.out", said, payload.clone(), &specs);
            assert!(done.dead.unwrap().contains("not a message"));
            let kept = model::batch::row_json(&done.batch.rows[0], 0)["payload"].clone();
            assert_eq!(kept, hex(&payload));
        }
    }

    #[test]
    fn a_payload_that_is_not_a_message_becomes_a_dead_letter_with_its_position() {
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
