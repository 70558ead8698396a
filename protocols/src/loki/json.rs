//! Push requests as JSON, into the same request as protobuf.
//!
//! # Invariants
//!
//! - What the request becomes in memory is known before it is read: [`json_bytes`].

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::encoding::encode_varint;
use serde::Deserialize;

use super::{LokiError, label_parser};

/// About the most bytes that a request as JSON becomes while it is read.
#[must_use]
pub fn json_bytes(body: &[u8]) -> u64 {
    // A map has a node of about 600 bytes, an entry 72, a text what the allocator gives at least.
    const MAP: u64 = 640;
    const VALUE: u64 = 64;
    let maps = body.iter().filter(|byte| **byte == b'{').count() as u64;
    let values = body.iter().filter(|byte| matches!(byte, b',' | b':' | b'[')).count() as u64;
    maps * MAP + values * VALUE + 3 * body.len() as u64
}

#[derive(Deserialize)]
struct PushBody {
    #[serde(default)]
    streams: Vec<StreamBody>,
}

#[derive(Deserialize)]
struct StreamBody {
    #[serde(default)]
    stream: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<EntryBody>,
}

/// Nanoseconds since 1970, the line, structured metadata.
#[derive(Deserialize)]
struct EntryBody(String, String, #[serde(default)] BTreeMap<String, String>);

/// The request as protobuf.
pub(super) fn to_protobuf(body: &[u8]) -> Result<Bytes, LokiError> {
    let push: PushBody = serde_json::from_slice(body).map_err(|error| LokiError::Json(error.to_string()))?;
    let (mut request, mut stream, mut entry) = (Vec::new(), Vec::new(), Vec::new());
    for sent in push.streams {
        stream.clear();
        put_bytes(&mut stream, 1, label_parser::written(&sent.stream).as_bytes());
        for EntryBody(nanos, line, metadata) in sent.values {
            entry.clear();
            put_bytes(&mut entry, 1, &time(&nanos)?);
            put_bytes(&mut entry, 2, line.as_bytes());
            for (name, value) in &metadata {
                let mut pair = Vec::new();
                put_bytes(&mut pair, 1, name.as_bytes());
                put_bytes(&mut pair, 2, value.as_bytes());
                put_bytes(&mut entry, 3, &pair);
            }
            put_bytes(&mut stream, 2, &entry);
        }
        put_bytes(&mut request, 1, &stream);
    }
    Ok(request.into())
}

/// A `google.protobuf.Timestamp`.
fn time(nanos: &str) -> Result<Vec<u8>, LokiError> {
    const SECOND: i64 = 1_000_000_000;
    let shown = || nanos.chars().take(40).collect::<String>();
    let parsed = nanos.parse::<i64>();
    let nanos = parsed.map_err(|_| LokiError::Json(format!("{:?} are no nanoseconds since 1970", shown())))?;
    let mut message = Vec::new();
    for (number, value) in [(1, nanos.div_euclid(SECOND)), (2, nanos.rem_euclid(SECOND))] {
        message.push(number << 3);
        encode_varint(value.cast_unsigned(), &mut message);
    }
    Ok(message)
}

/// A field of a message with its length before it.
fn put_bytes(to: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    to.push(number << 3 | 2);
    encode_varint(bytes.len() as u64, to);
    to.extend_from_slice(bytes);
}
