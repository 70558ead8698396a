//! Targets of the messages between gears.
//!
//! # Invariants
//!
//! - What is read is written, and read as the same again; no byte of a sequence is lost.

use bytes::Bytes;
use serde_json::json;

use super::FuzzTarget;
use crate::message::{Message, MessageContent, MessageSequence};
use crate::{Attributes, FluxId, MessageId, SpanId, Timestamp, TraceId};

/// The targets.
pub(super) fn targets() -> Vec<FuzzTarget> {
    vec![messages(), message_content()]
}

fn message() -> Message {
    let ts = Timestamp::from_micros(1_763_728_200_000_000);
    Message {
        id: MessageId::at(ts, [1; 10]),
        ts,
        raw: b"body".to_vec(),
        data: json!({ "a": [1, 2.5, null, { "b": "\u{e4}" }] }),
        hops: 3,
        meta: Attributes::new().with("zz", 1).with("a", true),
        parent: Some(MessageId::at(ts, [2; 10])),
        flux_id: FluxId::at(ts, [3; 10]),
        sampled: true,
        span_id: SpanId::from_entropy([5; 8]),
        trace_id: TraceId::from_entropy([6; 16]),
        trace_state: None,
    }
}

/// Messages of gears: what is read is written, and read as the same again.
fn messages() -> FuzzTarget {
    let one = message().to_cbor().unwrap_or_default();
    let samples = vec![one.repeat(2), one];
    FuzzTarget::new("wire.message", samples, |bytes| {
        let items: Vec<_> = MessageSequence::new(Bytes::copy_from_slice(bytes)).collect();
        assert_eq!(
            items.iter().map(|(bytes, _)| bytes.len()).sum::<usize>(),
            bytes.len(),
            "no byte is lost"
        );
        for message in items.iter().filter_map(|(_, read)| read.as_ref().ok()) {
            let written = message.to_cbor().unwrap_or_default();
            assert_eq!(written.len(), message.size());
            assert_eq!(Message::from_cbor(&written).as_ref(), Ok(message));
        }
        items.iter().all(|(_, read)| read.is_ok())
    })
}

fn message_content() -> FuzzTarget {
    let samples = vec![message().to_cbor().unwrap_or_default(), vec![0xa0]];
    FuzzTarget::new("wire.message_content", samples, |bytes| {
        MessageContent::from_cbor(bytes).is_ok()
    })
}
