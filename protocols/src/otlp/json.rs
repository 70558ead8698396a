//! OTLP as JSON, into the same request as protobuf.
//!
//! # Invariants
//!
//! - What the request becomes in memory is known before it is read: [`json_bytes`].

use bytes::Bytes;
use model::Table;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use serde::de::DeserializeOwned;

use super::OtlpError;

/// The content type of a request as JSON.
pub const JSON: &str = "application/json";

/// About the most bytes that a request as JSON becomes while it is read.
#[must_use]
pub fn json_bytes(body: &[u8]) -> u64 {
    // The largest message, that of a span, has 400 bytes; a value takes at least two bytes of text and a comma or colon.
    const MESSAGE: u64 = 400;
    const VALUE: u64 = 80;
    let objects = body.iter().filter(|byte| **byte == b'{').count() as u64;
    let values = body.iter().filter(|byte| matches!(byte, b',' | b':' | b'[')).count() as u64;
    objects * MESSAGE + values * VALUE + body.len() as u64
}

/// The request as protobuf.
pub(super) fn to_protobuf(table: Table, body: &[u8]) -> Result<Bytes, OtlpError> {
    fn converted<T: Message + DeserializeOwned>(body: &[u8]) -> Result<Bytes, OtlpError> {
        let request: T = serde_json::from_slice(body).map_err(|error| OtlpError::Json(error.to_string()))?;
        Ok(request.encode_to_vec().into())
    }
    match table {
        Table::Logs => converted::<ExportLogsServiceRequest>(body),
        Table::Traces => converted::<ExportTraceServiceRequest>(body),
        Table::Metrics => converted::<ExportMetricsServiceRequest>(body),
        Table::DeadLetters | Table::Messages => Err(OtlpError::Signal(table)),
    }
}
