//! A business message as a request with one OTLP log record, and what a collector says of it.
//!
//! # Invariants
//!
//! - The same message gives the same bytes: a receiver that knows requests by their content stores a repetition once.

use model::Level;
use model::message::Message;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as OtlpValue;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use serde_json::Value;

use super::context::FLUX_ID;
use super::export::{any_value, key_value, nanos_of, text_value};
use super::{OtlpEncoding, rejected_of, rejected_of_json};
use crate::severity;

/// The attribute that has a message's id.
const MESSAGE_ID: &str = "messaging.message.id";
/// Whether a trace is kept, in the flags of a record.
const SAMPLED: u32 = 1;

/// What all records of a sender have in common.
#[derive(Debug, Clone, Copy)]
pub struct MessageLogSource<'a> {
    /// The attributes of the resource.
    pub resource: &'a [(String, String)],
    /// The name of the scope.
    pub scope: &'a str,
    /// The level.
    pub level: Level,
}

/// A request that exports a message as one log record, as protobuf.
#[must_use]
pub fn message_log_request(source: MessageLogSource<'_>, message: &Message) -> Vec<u8> {
    let resource = source.resource.iter().map(|(key, value)| text_value(key, value));
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(Resource {
                attributes: resource.collect(),
                ..Resource::default()
            }),
            scope_logs: vec![ScopeLogs {
                scope: Some(InstrumentationScope {
                    name: source.scope.to_owned(),
                    ..InstrumentationScope::default()
                }),
                log_records: vec![record(source.level, message)],
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    };
    request.encode_to_vec()
}

fn record(level: Level, message: &Message) -> LogRecord {
    let own = [
        (FLUX_ID, message.flux_id.to_string()),
        (MESSAGE_ID, message.id.to_string()),
    ];
    let facts = message.meta.as_map().iter();
    // A key may be there once.
    let facts = facts.filter(|(key, _)| ![FLUX_ID, MESSAGE_ID].contains(&key.as_str()));
    let facts = facts.map(|(key, value)| key_value(key, value));
    let own = own.map(|(key, value)| text_value(key, &value));
    let at = nanos_of(message.ts.micros());
    LogRecord {
        time_unix_nano: at,
        observed_time_unix_nano: at,
        severity_number: severity::canonical_number(level),
        severity_text: severity::canonical_text(level).to_owned(),
        body: Some(body(message)),
        attributes: facts.chain(own).collect(),
        flags: if message.sampled { SAMPLED } else { 0 },
        trace_id: message.trace_id.as_bytes().to_vec(),
        span_id: message.span_id.as_bytes().to_vec(),
        ..LogRecord::default()
    }
}

/// The value of a message, else its bytes as text where they are that.
fn body(message: &Message) -> AnyValue {
    if !message.data.is_null() {
        return any_value(&message.data);
    }
    match std::str::from_utf8(&message.raw) {
        Ok(plain) => any_value(&Value::from(plain)),
        Err(_) => AnyValue {
            value: Some(OtlpValue::BytesValue(message.raw.clone())),
        },
    }
}

/// Why a collector that took a request refused records of it; none if it refused none, or says nothing that can be read.
#[must_use]
pub fn refused_logs(encoding: OtlpEncoding, answer: &[u8]) -> Option<String> {
    let (refused, why) = match encoding {
        OtlpEncoding::Protobuf => rejected_of(answer).ok()?,
        OtlpEncoding::Json => rejected_of_json(answer).ok()?,
    };
    (refused > 0).then_some(why)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::Arc;

    use model::telemetry_codec::{BodyRecordReader, PublisherIdentity};
    use model::{Attributes, EntityId, FluxId, MessageId, Table, Timestamp};
    use serde_json::json;

    use super::super::{OtlpSettings, export_response, request};
    use super::*;

    fn message(data: Value, raw: &[u8]) -> Message {
        let ts = Timestamp::from_micros(1_763_728_200_000_001);
        Message {
            trace_state: None,
            id: MessageId::at(ts, [1; 10]),
            ts,
            raw: raw.to_vec(),
            data,
            hops: 1,
            meta: Attributes::new().with("tcp.connection", "c").with("number", 7),
            parent: None,
            flux_id: FluxId::at(ts, [2; 10]),
            sampled: true,
            span_id: "b7ad6b7169203331".parse().unwrap(),
            trace_id: "0af7651916cd43dd8448eb211c80319c".parse().unwrap(),
        }
    }

    /// The row that the Mixer would make of a message.
    fn row(message: &Message) -> serde_json::Map<String, Value> {
        let resource = [("service.name".to_owned(), "shop".to_owned())];
        let source = MessageLogSource {
            resource: &resource,
            scope: "out",
            level: Level::Warn,
        };
        let body = message_log_request(source, message);
        assert_eq!(body, message_log_request(source, message));
        let publisher = PublisherIdentity {
            entity_id: EntityId::for_name("http"),
            entity_name: "http".to_owned(),
        };
        let settings = OtlpSettings {
            entity: Arc::from(["service.name".to_owned()]),
            fallback: publisher.clone(),
            now: Timestamp::from_micros(1),
        };
        let opened = request(Table::Logs, OtlpEncoding::Protobuf, body.into(), settings).unwrap();
        let mut records = BodyRecordReader::of_format(Table::Logs, opened.records, opened.body, publisher);
        let part = records.next_part(1 << 20).unwrap().unwrap();
        assert_eq!((part.batch.num_rows(), records.rejected()), (1, 0));
        model::batch::row_json(&part.batch, 0)
    }

    #[test]
    fn a_message_is_a_record_in_its_signal_and_trace() {
        let message = message(Value::Null, "grüße".as_bytes());
        let row = row(&message);
        assert_eq!(
            (&row["entity_name"], &row["level"], &row["message"]),
            (&json!("shop"), &json!("warn"), &json!("grüße"))
        );
        assert_eq!(row["ts"], message.ts.to_string());
        assert_eq!(row["flux_id"], message.flux_id.to_string());
        let attributes = row["attributes"].as_object().unwrap();
        for (key, value) in [
            ("trace_id", json!("0af7651916cd43dd8448eb211c80319c")),
            ("span_id", json!("b7ad6b7169203331")),
            ("tcp.connection", json!("c")),
            ("number", json!(7)),
            (MESSAGE_ID, json!(message.id.to_string())),
        ] {
            assert_eq!(attributes[key], value, "{key}");
        }
    }

    #[test]
    fn facts_of_a_message_do_not_pass_for_its_ids() {
        let mut message = message(Value::Null, b"x");
        for key in [FLUX_ID, MESSAGE_ID] {
            message.meta.set(key, "0193c3f2-7d1a-7000-8000-0123456789ab");
        }
        let attributes = record(Level::Info, &message).attributes;
        for (key, id) in [
            (FLUX_ID, message.flux_id.to_string()),
            (MESSAGE_ID, message.id.to_string()),
        ] {
            let found: Vec<_> = attributes.iter().filter(|found| found.key == key).collect();
            assert_eq!(found, [&text_value(key, &id)]);
        }
        assert_eq!(attributes.len(), 4);
    }

    #[test]
    fn values_stay_what_they_are_and_bytes_that_are_no_text_bytes() {
        let value = json!({ "message": "sold", "count": 3, "price": 1.5, "tags": ["a", null, { "b": true }] });
        let values = row(&message(value, b""));
        assert_eq!(values["message"], "sold");
        let attributes = values["attributes"].as_object().unwrap();
        assert_eq!(
            (
                &attributes["body.count"],
                &attributes["body.price"],
                &attributes["body.tags"]
            ),
            (&json!(3), &json!(1.5), &json!(["a", null, { "b": true }]))
        );
        let bytes = row(&message(Value::Null, &[0xff, 0]));
        assert_eq!(bytes["attributes"]["otel.body.type"], "bytes");
        assert_eq!(row(&message(json!(7), b""))["message"], "7");
    }

    #[test]
    fn a_collector_that_refuses_a_record_says_why() {
        for encoding in [OtlpEncoding::Protobuf, OtlpEncoding::Json] {
            let refused = export_response(encoding, Table::Logs, 1, "too long");
            assert_eq!(
                refused_logs(encoding, &refused).as_deref(),
                Some("too long"),
                "{encoding:?}"
            );
            let taken = export_response(encoding, Table::Logs, 0, "");
            assert_eq!(refused_logs(encoding, &taken), None, "{encoding:?}");
            assert_eq!(refused_logs(encoding, b"\xff<html>"), None, "{encoding:?}");
        }
    }
}
