//! Grafana Loki's push requests into rows of `logs`: streams with labels, and their entries.
//!
//! ```text
//! request ─ streams (labels) ─ entries (time, line, structured metadata)
//! ```
//!
//! Source: `push.proto` of Loki 3 and <https://grafana.com/docs/loki/latest/reference/loki-http-api/#ingest-logs>.
//!
//! | of an entry | becomes |
//! |---|---|
//! | time in nanoseconds | `ts`, cut to microseconds; the time of the request if there is none |
//! | line | `message` |
//! | labels of its stream, structured metadata | attributes under their own names; metadata goes before labels |
//! | `level`, `severity`, `detected_level` and the like, else what the line says | `level`; `info` if nothing does |
//! | `host`, `hostname`, `instance`, `service_name`, `job`: the first one | `entity_name` |
//! | `trace_id`, `traceID`, …; `flux_id` | the attributes `trace_id` and `span_id`; `flux_id` |
//!
//! # Invariants
//!
//! - A request is looked through before anything of it is taken. Labels that cannot be read refuse the entries of their stream,
//!   what is wrong with an entry refuses that entry.
//!
//! # Not here
//!
//! Snappy and gzip (`mixer`).

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod json;
mod label_parser;
mod stream_entries;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use model::stable_hash;

use crate::MalformedProtobuf;
use crate::sender::{ExpandedTooFar, OpenedRequest, SenderSettings};
use stream_entries::{StreamEntries, StreamWalker};

pub use json::json_bytes;

/// How requests are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LokiEncoding {
    /// Protocol Buffers.
    Protobuf,
    /// JSON, with times as texts.
    Json,
}

/// Why a request cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LokiError {
    /// Not a message.
    #[error("the body is no push request of Loki as protobuf: {0}")]
    Protobuf(#[from] MalformedProtobuf),
    /// Not JSON, or not that of a request.
    #[error("the body is no push request of Loki as JSON: {0}")]
    Json(String),
    /// Many entries under many labels.
    #[error(transparent)]
    Expanded(#[from] ExpandedTooFar),
}

/// Looks through a request.
///
/// # Errors
/// A [`LokiError`] that says what is wrong with the body.
pub fn request(encoding: LokiEncoding, body: Bytes, settings: SenderSettings) -> Result<OpenedRequest, LokiError> {
    let (body, held) = match encoding {
        LokiEncoding::Protobuf => (body, 0),
        LokiEncoding::Json => {
            let converted = json::to_protobuf(&body)?;
            let held = converted.len();
            (converted, held)
        }
    };
    let walker = StreamWalker::new(&body);
    let has_time = walker.clone().has_time(&body)?;
    let expanded = walker.clone().expanded(&body)?;
    ExpandedTooFar::check(expanded, body.len())?;
    let first = walker.clone().first_labels(&body)?;
    Ok(OpenedRequest {
        // Entries without a time get that of the request: equal ones of another time are another request.
        sender: has_time.then(|| stable_hash(body.get(first).unwrap_or_default())),
        records: Box::new(StreamEntries::new(walker, settings)),
        body,
        expanded,
        held,
    })
}
