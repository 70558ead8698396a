//! Decodes one bus message into a batch for the engine. Pure functions, so that every kind of bad message has a unit test.
//!
//! # Invariants
//!
//! - A message that cannot be decoded or stored becomes a dead letter with the message's origin, so that its producer's
//!   watermark advances and the message is not sent for ever.
//! - A decoder that panics makes a bad message, and does not end the process.

use async_nats::HeaderMap;
use bytes::Bytes;
use engine::{AppendBatch, BatchOrigin, BusPosition};
use model::batch::DeadLetter;
use model::catch_panic;
use model::telemetry_codec::{self, BatchEncoding, BatchId, PublisherIdentity};
use model::{Attributes, EntityId, Table, Timestamp, subject};

use crate::spec_matcher::PendingSpecCounts;

/// How many characters of a content type a dead letter keeps.
const CONTENT_TYPE_CHARS: usize = 200;

/// A message as the bus delivered it.
#[derive(Debug)]
pub(crate) struct InboundMessage<'a> {
    pub(crate) subject: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) payload: &'a Bytes,
    /// Its position in the stream, if the bus reports it.
    pub(crate) position: Option<BusPosition>,
}

/// How much of a message its dead letter keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PayloadTruncation {
    /// Payload and headers.
    Whole,
    /// The payload's first bytes, without headers.
    Head(usize),
}

/// A batch to append, and the reason if it is a dead letter.
#[derive(Debug)]
pub(crate) struct DecodedBatch {
    pub(crate) batch: AppendBatch,
    pub(crate) dead: Option<String>,
    /// For each record batch of business messages, the counts for its spec, if it has one; empty for other tables.
    pub(crate) specs: Vec<Option<PendingSpecCounts>>,
}

/// Decodes a telemetry message into a batch, or into a dead letter if it cannot be decoded.
///
/// # Errors
/// Only if even the dead letter cannot be encoded, a defect of `model`.
pub(crate) fn decode(
    incoming: &InboundMessage<'_>,
    now: Timestamp,
    max_payload: usize,
) -> Result<DecodedBatch, String> {
    let (origin, origin_problem) = origin(incoming);
    if let Some(reason) = origin_problem {
        return dead_letter(incoming, origin, reason, now, PayloadTruncation::Whole);
    }
    match catch_panic(|| rows(incoming, origin.producer, max_payload)) {
        Ok((table, encoding, rows)) => {
            let payload = match encoding {
                BatchEncoding::Arrow => incoming.payload.clone(),
                _ => telemetry_codec::encode_arrow(&rows)
                    .map_err(|error| error.to_string())?
                    .into(),
            };
            Ok(DecodedBatch {
                batch: AppendBatch {
                    table,
                    origin,
                    payload,
                    rows,
                },
                dead: None,
                specs: Vec::new(),
            })
        }
        Err(reason) => dead_letter(incoming, origin, reason, now, PayloadTruncation::Whole),
    }
}

/// The origin of a message, by which it is deduplicated, and the reason if it has no valid one. A message with neither a producer's
/// key nor a position would be stored each time that it comes.
pub(crate) fn origin(incoming: &InboundMessage<'_>) -> (BatchOrigin, Option<String>) {
    let mut origin = BatchOrigin {
        bus: incoming.position.clone(),
        ..BatchOrigin::default()
    };
    match producer(incoming.headers) {
        Ok((None, _)) if origin.bus.is_none() => {
            let reason = "it has neither a stream sequence nor a producer key";
            (origin, Some(reason.to_owned()))
        }
        Ok((producer, settled)) => {
            (origin.producer, origin.settled) = (producer, settled);
            (origin, None)
        }
        Err(reason) => (origin, Some(reason)),
    }
}

type DecodedRows = (Table, BatchEncoding, Vec<arrow_array::RecordBatch>);

fn rows(incoming: &InboundMessage<'_>, producer: Option<BatchId>, max_payload: usize) -> Result<DecodedRows, String> {
    let (table, rack) = subject::parse_telemetry(incoming.subject)
        .ok_or_else(|| "the subject is not flux.telemetry.<logs|traces|metrics>.<rack>".to_owned())?;
    if incoming.payload.len() > max_payload {
        return Err(format!(
            "the batch has {} bytes, mixer.max_payload_size allows {max_payload}: send smaller batches",
            incoming.payload.len()
        ));
    }
    let content_type = header(incoming.headers, telemetry_codec::CONTENT_TYPE)
        .ok_or_else(|| format!("the header {} is missing", telemetry_codec::CONTENT_TYPE))?;
    let encoding: BatchEncoding = content_type.parse().map_err(|error: model::BadId| error.to_string())?;
    let publisher = publisher(incoming.headers, producer, &rack)?;
    let rows =
        telemetry_codec::decode(table, encoding, incoming.payload, &publisher).map_err(|error| error.to_string())?;
    Ok((table, encoding, rows))
}

pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(async_nats::HeaderValue::as_str)
}

fn number(headers: &HeaderMap, name: &str) -> Result<Option<u64>, String> {
    header(headers, name)
        .map(|text| {
            text.parse()
                .map_err(|_| format!("the header {name} is {text:?}, not a number"))
        })
        .transpose()
}

pub(crate) fn entity(headers: &HeaderMap) -> Result<Option<EntityId>, String> {
    header(headers, telemetry_codec::ENTITY_ID)
        .map(|text| {
            text.parse()
                .map_err(|error: model::BadId| format!("the header {}: {error}", telemetry_codec::ENTITY_ID))
        })
        .transpose()
}

/// The producer's key, if the message has one, and the sequence up to which the producer has settled. Epoch and sequence need each
/// other and the entity's id; without both there is no key.
fn producer(headers: &HeaderMap) -> Result<(Option<BatchId>, u64), String> {
    let settled = number(headers, telemetry_codec::SETTLED)?.unwrap_or(0);
    match (
        entity(headers)?,
        number(headers, telemetry_codec::BOOT_EPOCH)?,
        number(headers, telemetry_codec::SEQUENCE)?,
    ) {
        (Some(entity), Some(boot_epoch), Some(seq)) if seq > 0 => Ok((
            Some(BatchId {
                entity,
                boot_epoch,
                seq,
            }),
            settled.min(seq),
        )),
        (_, None, None) => Ok((None, 0)),
        _ => Err(format!(
            "the headers {}, {} and {} (from 1) go together",
            telemetry_codec::ENTITY_ID,
            telemetry_codec::BOOT_EPOCH,
            telemetry_codec::SEQUENCE
        )),
    }
}

fn publisher(headers: &HeaderMap, producer: Option<BatchId>, rack: &model::Token) -> Result<PublisherIdentity, String> {
    let entity_id = match producer {
        Some(id) => id.entity,
        None => entity(headers)?.unwrap_or_else(|| EntityId::for_name(rack.as_str())),
    };
    let entity_name = header(headers, telemetry_codec::ENTITY_NAME)
        .unwrap_or(rack.as_str())
        .to_owned();
    if entity_name.len() > telemetry_codec::MAX_ENTITY_NAME {
        let (bytes, most) = (entity_name.len(), telemetry_codec::MAX_ENTITY_NAME);
        return Err(format!(
            "the header {} has {bytes} bytes, more than {most}",
            telemetry_codec::ENTITY_NAME
        ));
    }
    Ok(PublisherIdentity { entity_id, entity_name })
}

/// The dead letter of a message that cannot be stored as what it claims to be.
///
/// # Errors
/// Only if it cannot be encoded, a defect of `model`.
pub(crate) fn dead_letter(
    incoming: &InboundMessage<'_>,
    origin: BatchOrigin,
    mut reason: String,
    now: Timestamp,
    truncation: PayloadTruncation,
) -> Result<DecodedBatch, String> {
    let mut headers = Attributes::new();
    let mut payload = &incoming.payload[..];
    match truncation {
        PayloadTruncation::Whole => {
            for (name, values) in incoming.headers.iter() {
                if let Some(value) = values.first() {
                    headers.set(name.as_ref(), value.as_str());
                }
            }
        }
        PayloadTruncation::Head(bytes) => {
            let total = payload.len();
            payload = payload.get(..bytes).unwrap_or(payload);
            reason = format!("{reason} (kept of it: the first {} of {total} bytes)", payload.len());
        }
    }
    let content_type = header(incoming.headers, telemetry_codec::CONTENT_TYPE);
    let letter = DeadLetter {
        ts: now,
        subject: incoming.subject.to_owned(),
        reason: reason.clone(),
        content_type: content_type.map(|name| name.chars().take(CONTENT_TYPE_CHARS).collect()),
        headers,
        payload: payload.to_vec(),
    };
    let rows = vec![model::batch::dead_letters(&[letter]).map_err(|error| error.to_string())?];
    let payload = telemetry_codec::encode_arrow(&rows)
        .map_err(|error| error.to_string())?
        .into();
    Ok(DecodedBatch {
        batch: AppendBatch {
            table: Table::DeadLetters,
            origin,
            payload,
            rows,
        },
        dead: Some(reason),
        specs: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const LINE: &[u8] = br#"[{"ts":"2026-11-21T10:00:00Z","level":"info","message":"hello"}]"#;

    fn decoded(subject: &str, headers: &[(&str, &str)], payload: &'static [u8]) -> DecodedBatch {
        let mut map = HeaderMap::new();
        headers.iter().for_each(|(name, value)| map.insert(*name, *value));
        let now = Timestamp::from_micros(1);
        let position = BusPosition {
            stream: "flux-telemetry".into(),
            incarnation: 1,
            seq: 7,
            identity: 1,
        };
        let incoming = InboundMessage {
            subject,
            headers: &map,
            payload: &Bytes::from_static(payload),
            position: Some(position),
        };
        decode(&incoming, now, 1024).unwrap()
    }

    #[test]
    fn a_json_batch_without_headers_takes_its_publisher_from_the_subject() {
        let good = decoded(
            "flux.telemetry.logs.script",
            &[("Content-Type", "application/json")],
            LINE,
        );
        assert_eq!(good.dead, None);
        assert_eq!(good.batch.table, Table::Logs);
        let row = model::batch::row_json(&good.batch.rows[0], 0);
        assert_eq!(row["entity_name"], "script");
        assert_eq!(row["entity_id"], EntityId::for_name("script").to_string());
        assert_eq!(good.batch.origin.producer, None);
    }

    #[test]
    fn a_rack_batch_keeps_its_key_even_when_it_becomes_a_dead_letter() {
        let id = EntityId::for_name("rack-a").to_string();
        let headers = [
            ("Content-Type", "application/json"),
            (telemetry_codec::ENTITY_ID, id.as_str()),
            (telemetry_codec::BOOT_EPOCH, "5"),
            (telemetry_codec::SEQUENCE, "3"),
            (telemetry_codec::SETTLED, "2"),
        ];
        let bad = decoded("flux.telemetry.logs.rack-a", &headers, b"not json");
        assert!(bad.dead.unwrap().contains("not application/json"));
        assert_eq!(bad.batch.table, Table::DeadLetters);
        assert_eq!(bad.batch.origin.producer.unwrap().seq, 3);
        assert_eq!(bad.batch.origin.settled, 2);
    }

    #[test]
    fn every_kind_of_bad_message_is_named() {
        let json = ("Content-Type", "application/json");
        let big: &'static [u8] = Box::leak(vec![b' '; 2000].into_boxed_slice());
        let long = &"n".repeat(256);
        for (subject, headers, payload, says) in [
            ("flux.telemetry.logs.a", &[][..], LINE, "Content-Type is missing"),
            (
                "flux.telemetry.logs.a",
                &[("Content-Type", "text/plain")],
                LINE,
                "text/plain",
            ),
            ("flux.telemetry.cats.a", &[json], LINE, "subject"),
            (
                "flux.telemetry.metrics.a",
                &[json],
                LINE,
                "record 0 is not a record of metrics",
            ),
            ("flux.telemetry.logs.a", &[json], big, "max_payload_size"),
            (
                "flux.telemetry.logs.a",
                &[json, (telemetry_codec::SEQUENCE, "x")],
                LINE,
                "not a number",
            ),
            (
                "flux.telemetry.logs.a",
                &[json, (telemetry_codec::SEQUENCE, "1")],
                LINE,
                "go together",
            ),
            (
                "flux.telemetry.logs.a",
                &[json, (telemetry_codec::ENTITY_NAME, long)],
                LINE,
                "more than 255",
            ),
            (
                "flux.telemetry.logs.a",
                &[("Content-Type", "application/vnd.apache.arrow.stream")],
                b"ARROW1xx",
                "Arrow",
            ),
        ] {
            let reason = decoded(subject, headers, payload).dead.unwrap();
            assert!(reason.contains(says), "{says}: {reason}");
        }
    }

    #[test]
    fn a_message_without_a_position_is_identified_by_its_key_or_becomes_a_dead_letter() {
        let id = EntityId::for_name("rack-a").to_string();
        let key = [
            (telemetry_codec::ENTITY_ID, id.as_str()),
            (telemetry_codec::BOOT_EPOCH, "5"),
            (telemetry_codec::SEQUENCE, "3"),
        ];
        for (said, reason) in [(&key[..], None), (&[], Some("neither a stream sequence"))] {
            let mut headers = HeaderMap::new();
            headers.insert("Content-Type", "application/json");
            said.iter().for_each(|(name, value)| headers.insert(*name, *value));
            let incoming = InboundMessage {
                subject: "flux.telemetry.logs.rack-a",
                headers: &headers,
                payload: &Bytes::from_static(LINE),
                position: None,
            };
            let done = decode(&incoming, Timestamp::from_micros(1), 1024).unwrap();
            let dead = done.dead.as_deref();
            assert!(
                dead.is_some() == reason.is_some() && dead.unwrap_or("").contains(reason.unwrap_or("")),
                "{dead:?}"
            );
            assert_eq!(
                (done.batch.origin.producer.map(|id| id.seq), done.batch.origin.bus),
                (reason.is_none().then_some(3), None)
            );
        }
    }

    #[test]
    fn a_decoder_that_panics_is_a_bad_message() {
        let none: [u8; 0] = [];
        let died = catch_panic(|| Ok(none[std::hint::black_box(3)])).unwrap_err();
        assert!(died.contains("panicked") && died.contains("index"), "{died}");
    }

    #[test]
    fn a_cut_dead_letter_keeps_the_origin_and_says_what_is_missing() {
        let bad = decoded(
            "flux.telemetry.logs.a",
            &[("Content-Type", "text/plain")],
            b"0123456789",
        );
        let origin = bad.batch.origin.clone();
        let map = HeaderMap::new();
        let incoming = InboundMessage {
            subject: "flux.telemetry.logs.a",
            headers: &map,
            payload: &Bytes::from_static(b"0123456789"),
            position: origin.bus.clone(),
        };
        let now = Timestamp::from_micros(1);
        let cut = dead_letter(
            &incoming,
            origin.clone(),
            "too large".into(),
            now,
            PayloadTruncation::Head(4),
        )
        .unwrap();
        assert_eq!(cut.batch.origin, origin);
        let reason = cut.dead.unwrap();
        assert!(
            reason.contains("too large") && reason.contains("4 of 10 bytes"),
            "{reason}"
        );
        let row = model::batch::row_json(&cut.batch.rows[0], 0);
        assert_eq!(row["payload"].as_str().map(str::len), Some(8), "four bytes: {row:?}");
    }
}
