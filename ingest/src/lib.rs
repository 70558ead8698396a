//! Ingest from the bus into the engine: every telemetry batch is stored once, acknowledged, and its producer notified.
//!
//! ```text
//!   stream flux-telemetry ─ pull ─▶ decode ─▶ engine.append (durable) ─▶ ack ─▶ durable floor to the Rack
//!                                     │ cannot be decoded, or the engine refuses the rows
//!                                     └▶ dead_letters row with the reason (durable) ─▶ ack
//! ```
//!
//! Business messages take the same way from their stream into `messages`, each as one row, of a spec if one takes it; they stay
//! on the bus for those whom they are for.
//!
//! # Invariants
//!
//! - A message is acknowledged only after its rows, or its dead letter, are durable.
//! - A batch that the bus or a Rack sends again is stored once: the engine knows its origin.
//! - Memory is bounded: at most `ingest.buffer_size` batches and half of [`engine::Settings::inbound_max`] bytes are in flight, and of each stream half
//!   as many bytes, or four messages of the largest size that the bus takes, wait here for that; when the engine waits, pulling waits,
//!   and the bus and the Racks' spools hold the rest.
//! - Nothing is retried for ever and nothing vanishes silently.
//!
//! # Not here
//!
//! Storage and exactly-once bookkeeping (`engine`), signing floors (`mixer`), OTLP and HTTP ingest.

mod archive;
mod consumer;
mod decode;
mod durable_floors;
mod error;
mod message_processor;
mod pipeline;
mod publisher_identity;
mod puller;
mod settings;
mod spec_matcher;
mod stats;
mod stream_regression;
mod subject_traffic;

pub use durable_floors::{DurableFloorTracker, SignFloor, SyncBus};
pub use error::Error;
pub use pipeline::{IngestPipeline, PipelineParts};
pub use publisher_identity::{CurrentIdentityLookup, FormerIdentity, FormerIdentityLookup, RackDirectory};
pub use settings::{ArchiveSource, IngestSettings};
pub use spec_matcher::{SpecCounts, SpecMatcher};
pub use stats::{IngestStats, IngestStatsSnapshot};
pub use subject_traffic::{SubjectTraffic, TrafficVolume};
