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
//!
//! # Not here
//!
//! gRPC's framing and status codes (`mixer`).

mod any_value;
mod context;
mod distribution;
mod exemplars;
mod export;
mod json;
mod log_records;
mod metric_points;
mod response;
mod signal_walker;
mod spans;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use model::telemetry_codec::{PublisherIdentity, RecordFormat};
use model::{Table, Timestamp, stable_hash};

use crate::MalformedProtobuf;

pub use export::export_request;
pub use json::{JSON, json_bytes};
pub use response::{export_response, rejected_of, retry_status, status, status_of};

/// The content type of a request as protobuf.
pub const PROTOBUF: &str = "application/x-protobuf";

/// How requests are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtlpEncoding {
    /// Protocol Buffers.
    Protobuf,
    /// Their JSON mapping, with ids as hex.
    Json,
}

/// How requests become rows.
#[derive(Debug, Clone)]
pub struct OtlpSettings {
    /// The resource attributes that name an entity, the first one that is there.
    pub entity: Arc<[String]>,
    /// Whose rows are those whose resource has none of them.
    pub fallback: PublisherIdentity,
    /// The time of what has none.
    pub now: Timestamp,
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
}

/// A request that was looked through.
#[derive(Debug)]
pub struct OtlpRequest {
    /// Its records.
    pub records: Box<dyn RecordFormat>,
    /// The body that they are read from, as protobuf.
    pub body: Bytes,
    /// The bytes of its records, each with its resource and scope.
    pub expanded: u64,
    /// Stands for who sends: made of the first resource.
    pub sender: u64,
}

/// Looks through a request.
///
/// # Errors
/// An [`OtlpError`] that says what is wrong with the body.
pub fn request(
    table: Table,
    encoding: OtlpEncoding,
    body: Bytes,
    settings: OtlpSettings,
) -> Result<OtlpRequest, OtlpError> {
    let body = match encoding {
        OtlpEncoding::Protobuf => body,
        OtlpEncoding::Json => json::to_protobuf(table, &body)?,
    };
    let walker = signal_walker::SignalWalker::new(&body);
    let first = walker.clone().first_resource(&body)?;
    let sender = stable_hash(body.get(first).unwrap_or_default());
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
            let metrics = metric_points::MetricWalker::new(walker);
            let expanded = metrics.clone().expanded(&body)?;
            (Box::new(metric_points::MetricPoints::new(metrics, settings)), expanded)
        }
        Table::DeadLetters | Table::Messages => return Err(OtlpError::Signal(table)),
    };
    Ok(OtlpRequest {
        records,
        body,
        expanded,
        sender,
    })
}
