//! The domain model of the platform, shared by every crate.
//!
//! One noun, one struct: a [`LogRecord`], [`Span`] or [`MetricPoint`] travels from a Rack over the wire into
//! columns, JSON and the terminal under the specification's column names. Parse once at the border, trust after.
//!
//! # Invariants
//!
//! - No I/O, no async, no clock, no randomness: time and entropy are arguments.
//! - Every parser refuses bad input with an error that names the value.
//!
//! # Not here
//!
//! Files and sockets (`chassis`, `engine`, `rack`), Parquet (`engine`), plans (`query`).

#[macro_use]
mod json_schema;

pub mod audit_chain;
pub mod batch;
mod bus_credential;
mod case_fold;
mod clock;
pub mod control;
pub mod dead_letter;
mod destination;
pub mod dialect;
mod env_expansion;
pub mod filter;
mod flat_json;
mod flat_json_cache;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod gear_manifest;
pub mod hex;
mod id;
mod invite;
mod json_field;
mod json_scan;
mod key_fingerprint;
pub mod key_succession;
pub mod lifecycle_event;
pub mod message;
mod metric_set;
mod panic_text;
pub mod passport;
mod record;
pub mod scenario;
pub mod scenario_test;
pub mod signed;
pub mod signed_reply;
pub mod spec;
mod spec_name;
mod stable_hash;
pub mod subject;
mod table;
pub mod tap;
pub mod telemetry_codec;
mod token;
pub mod trace_context;
mod units;
mod yaml;

pub use bus_credential::BusCredential;
pub use case_fold::fold_into;
pub use clock::{Clock, Entropy};
pub use dead_letter::LetterId;
pub use destination::MessageDestination;
pub use env_expansion::{EnvExpansion, expand_env};
pub use id::{BadId, ClusterId, EntityId, FluxId, MessageId, SpanId, TraceId};
pub use invite::{BadInvite, InviteProof, RackInvite};
pub use json_field::{each_key, field_json, field_text, value_text};
pub use json_schema::{inline_schema, written_schema};
pub use key_fingerprint::{BadFingerprint, KeyFingerprint};
pub use message::MessageDirection;
pub use metric_set::{AtomicCounter, MetricKind, MetricReading};
pub use panic_text::{catch_panic, panic_text};
pub use record::{Attributes, Level, LogRecord, MetricPoint, MetricType, Span, SpanStatus, TelemetryRecord};
pub use signed::{BadSignature, SignedPayload, SigningContext};
pub use spec_name::{BadSpecName, SpecName};
pub use stable_hash::{extend_stable_hash, stable_hash};
pub use table::{ColumnType, Table, TableColumn};
pub use token::{BadToken, Token};
pub use units::{BadDuration, BadTimestamp, ByteSize, HumanDuration, Timestamp};
