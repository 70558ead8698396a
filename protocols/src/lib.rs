//! Telemetry in the formats of others: OTLP, JSON records of any shape, the text that Prometheus scrapes, and what agents speak.
//!
//! ```text
//! body ─ a format ─ found record ─▶ row of ours (model::telemetry_codec::RecordFormat)
//! ```
//!
//! # Invariants
//!
//! - Decoding holds the body and one record: nothing is built of the body as a whole, but for OTLP as JSON, which is counted first.
//! - Nothing panics on any input; what cannot be told apart refuses the body, what is wrong with one record refuses that record.
//!
//! # Not here
//!
//! Who may send, quotas (`mixer`); what makes a request stored once (`engine`).

pub mod elasticsearch;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod grpc;
pub mod json_records;
pub mod loki;
pub mod otlp;
pub mod prometheus_text;
mod protobuf;
pub mod record_shape;
pub mod remote_write;
mod sender;
mod severity;

pub use protobuf::MalformedProtobuf;
pub use sender::{OpenedRequest, SenderSettings};
