//! The nouns of the platform, shared by every room.
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

mod ambient;
pub mod answer;
pub mod batch;
pub mod control;
mod destination;
pub mod dialect;
mod field;
pub mod filter;
mod flat;
mod fold;
pub mod gear;
mod id;
mod known;
pub mod letter;
pub mod message;
pub mod passport;
mod record;
mod scan;
pub mod scenario;
pub mod scenario_test;
pub mod signed;
pub mod spec;
mod spec_name;
mod stable_hash;
pub mod subject;
mod table;
pub mod tap;
mod token;
mod units;
pub mod wire;
mod yaml;

pub use ambient::{Clock, Entropy};
pub use destination::MessageDestination;
pub use field::{field_json, field_text, value_text};
pub use fold::fold_into;
pub use id::{BadId, ClusterId, EntityId, FluxId, MessageId, SpanId, TraceId};
pub use letter::LetterId;
pub use message::MessageDirection;
pub use record::{Attributes, Level, LogRecord, MetricPoint, MetricType, Span, SpanStatus, TelemetryRecord};
pub use signed::{BadSignature, SignedPayload, SigningContext};
pub use spec_name::{BadSpecName, SpecName};
pub use stable_hash::{extend_stable_hash, stable_hash};
pub use table::{ColumnType, Table, TableColumn};
pub use token::{BadToken, Token};
pub use units::{BadDuration, BadTimestamp, ByteSize, HumanDuration, Timestamp};
