//! OTLP, the OpenTelemetry Protocol: requests that export logs, traces and metrics, as protobuf and as JSON, into rows, and back.
//!
//! ```text
//! request ─ resources ─ scopes ─ log records │ spans │ metrics ─ points
//!              └── context: entity, shared attributes ──┘
//! ```
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/> and opentelemetry-proto 1.10. What becomes of each field: `docs/otlp.md`.
//!
//! # Invariants
//!
//! - A request is looked through before anything of it is taken: [`request`] refuses what is malformed as a whole. A record with
//!   something else wrong (an id of zeros, a text that is not UTF-8) is refused alone.
//! - Fields that are new in the protocol are passed over.
//! - Work is bounded by the body: a resource is read with each of its scopes and written with each of its records, so that what all of
//!   that comes to is known before it is done.
//!
//! # Not here
//!
//! gRPC's framing and codes ([`crate::grpc`]), who may send and where rows go (`mixer`, `rack`).

mod any_value;
mod context;
mod distribution;
mod exemplars;
mod export;
mod json;
mod json_metric;
mod log_records;
mod message_log;
mod metric_points;
mod metric_walker;
mod response;
mod signal_walker;
mod spans;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use model::telemetry_codec::RecordFormat;
use model::{Table, stable_hash};

use crate::MalformedProtobuf;
use crate::protobuf::FieldReader;
use crate::sender::{ExpandedTooFar, OpenedRequest, SenderSettings};

pub use export::export_request;
pub use json::{JSON, json_bytes};
pub use message_log::{MessageLogSource, message_log_request, refused_logs};
pub use response::{
    export_response, rejected_of, rejected_of_json, rejected_of_start, retry_info, retry_status, status, status_of,
};

/// The content type of a request as protobuf.
pub const PROTOBUF: &str = "application/x-protobuf";

/// The signals: the table of each, its path over HTTP, and its method of gRPC.
pub const SIGNALS: [(Table, &str, &str); 3] = [
    (
        Table::Logs,
        "/v1/logs",
        "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    ),
    (
        Table::Metrics,
        "/v1/metrics",
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    ),
    (
        Table::Traces,
        "/v1/traces",
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    ),
];

/// How requests are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtlpEncoding {
    /// Protocol Buffers.
    Protobuf,
    /// Their JSON mapping, with ids as hex.
    Json,
}

impl OtlpEncoding {
    /// The encoding that a content type names; parameters and letter case do not count.
    #[must_use]
    pub fn of_content_type(text: &str) -> Option<Self> {
        let kind = text.split(';').next().unwrap_or_default().trim();
        match kind {
            _ if kind.eq_ignore_ascii_case(PROTOBUF) || kind.eq_ignore_ascii_case("application/protobuf") => {
                Some(Self::Protobuf)
            }
            _ if kind.eq_ignore_ascii_case(JSON) => Some(Self::Json),
            _ => None,
        }
    }

    /// The content type of requests and answers.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => PROTOBUF,
            Self::Json => JSON,
        }
    }
}

/// Why a request cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtlpError {
    /// Not a message.
    #[error("the body is no OTLP request as protobuf: {0}")]
    Protobuf(#[from] MalformedProtobuf),
    /// Not JSON, or not that of a request.
    #[error("the body is no OTLP request as JSON: {0}")]
    Json(String),
    /// Rows that are not those of their table.
    #[error("the rows have no column {0} of the type that it has in their table")]
    Column(&'static str),
    /// A table that no signal has.
    #[error("{0} are no signal of OTLP")]
    Signal(Table),
    /// Few bytes that are very much work: every record is read and written with its resource and scope.
    #[error(transparent)]
    Expanded(#[from] ExpandedTooFar),
}

/// Whether the first record has a time of its own.
fn has_time(table: Table, walker: signal_walker::SignalWalker, body: &[u8]) -> Result<bool, MalformedProtobuf> {
    // Of a log record, when it happened and when it was observed; of a span, its start and end; of every kind of point, its time.
    let (record, times) = match table {
        Table::Metrics => (metric_walker::MetricWalker::new(walker).first(body)?, [3, 3]),
        Table::Traces => (walker.first(body)?, [7, 8]),
        _ => (walker.first(body)?, [1, 11]),
    };
    // What is wrong with a record refuses that record, later.
    let mut reader = FieldReader::new(body, record);
    while let Ok(Some(field)) = reader.next() {
        if times.contains(&field.number) && field.fixed64().is_ok_and(|nanos| nanos > 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Looks through a request.
///
/// # Errors
/// An [`OtlpError`] that says what is wrong with the body.
pub fn request(
    table: Table,
    encoding: OtlpEncoding,
    body: Bytes,
    settings: SenderSettings,
) -> Result<OpenedRequest, OtlpError> {
    let (body, held) = match encoding {
        OtlpEncoding::Protobuf => (body, 0),
        OtlpEncoding::Json => {
            let converted = json::to_protobuf(table, &body)?;
            let held = converted.len();
            (converted, held)
        }
    };
    let walker = signal_walker::SignalWalker::new(&body);
    let first = walker.clone().first_resource(&body)?;
    let has_time = has_time(table, walker.clone(), &body)?;
    let sender = has_time.then(|| stable_hash(body.get(first).unwrap_or_default()));
    let (records, expanded): (Box<dyn RecordFormat>, u64) = match table {
        Table::Logs => {
            let expanded = walker.clone().expanded(&body)?;
            (Box::new(log_records::LogRecords::new(walker, settings)), expanded)
        }
        Table::Traces => {
            let expanded = walker.clone().expanded(&body)?;
            (Box::new(spans::SpanRecords::new(walker, settings)), expanded)
        }
        Table::Metrics => {
            let metrics = metric_walker::MetricWalker::new(walker);
            let expanded = metrics.clone().expanded(&body)?;
            (Box::new(metric_points::MetricPoints::new(metrics, settings)), expanded)
        }
        Table::DeadLetters | Table::Messages => return Err(OtlpError::Signal(table)),
    };
    ExpandedTooFar::check(expanded, body.len())?;
    Ok(OpenedRequest {
        records,
        body,
        expanded,
        held,
        sender,
    })
}
