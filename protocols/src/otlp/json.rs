//! OTLP as JSON, into the same request as protobuf.
//!
//! # Invariants
//!
//! - What the request becomes in memory is known before it is read: [`json_bytes`].
//! - Nothing is lost in silence: a metric whose data cannot be read is refused by name.

use bytes::Bytes;
use model::Table;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Gauge, NumberDataPoint};
use prost::Message;
use serde::de::DeserializeOwned;

use super::OtlpError;
use super::metric_points::UNREAD;

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
    fn converted<T: Message + DeserializeOwned>(body: &[u8], settle: impl FnOnce(&mut T)) -> Result<Bytes, OtlpError> {
        let request = serde_json::from_slice(body);
        let mut request: T = request.map_err(|error| OtlpError::Json(error.to_string()))?;
        settle(&mut request);
        Ok(request.encode_to_vec().into())
    }
    match table {
        Table::Logs => converted::<ExportLogsServiceRequest>(body, |_| ()),
        Table::Traces => converted::<ExportTraceServiceRequest>(body, |_| ()),
        Table::Metrics => converted(body, mark_unread_data),
        Table::DeadLetters | Table::Messages => Err(OtlpError::Signal(table)),
    }
}

/// A metric whose data cannot be read has none for the library. It gets a point that says so and is refused.
fn mark_unread_data(request: &mut ExportMetricsServiceRequest) {
    let resources = request.resource_metrics.iter_mut();
    let scopes = resources.flat_map(|resource| resource.scope_metrics.iter_mut());
    for metric in scopes.flat_map(|scope| scope.metrics.iter_mut()) {
        metric.data.get_or_insert_with(|| {
            Data::Gauge(Gauge {
                data_points: vec![NumberDataPoint {
                    flags: UNREAD,
                    ..NumberDataPoint::default()
                }],
            })
        });
    }
}
