//! Ingest: stores every message of the bus once in the engine, acknowledges it, and tells its Rack how far its batches are durable.
//!
//! ```text
//!   stream flux-telemetry ─ pull ─▶ decode ─▶ engine.append (durable) ─▶ ack ─▶ durable floor to the Rack
//!                                     │ cannot be decoded, or the engine refuses the rows
//!                                     └▶ dead_letters row with the reason (durable) ─▶ ack
//! ```
//!
//! Business messages take the same path from their own stream into `messages`, one row each, in the folder of their spec if one
//! matches. They stay on the bus for their receivers.
//!
//! # Invariants
//!
//! - A message is acknowledged only after its rows, or its dead letter, are durable.
//! - A batch that the bus or a Rack sends again is stored once: the engine remembers its origin.
//! - Memory is bounded. At most `ingest.buffer_size` batches and half of [`engine::Settings::inbound_max`] bytes are in flight. Beside these,
//!   each stream may have half as many bytes, or four messages of the largest size that the bus takes, waiting here for room. When the
//!   engine makes appends wait, pulling waits too, and the bus and the Racks' spools hold the rest.
//! - Nothing is retried for ever and nothing vanishes silently.
//!
//! # Not here
//!
//! Storage and deduplication (`engine`), signing floors and HTTP ingest (`mixer`).

mod archive;
mod consumer;
mod decode;
mod durable_floors;
mod error;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod message_processor;
mod pipeline;
mod publisher_identity;
mod puller;
mod rack_usage;
mod settings;
mod spec_matcher;
mod stats;
mod stream_regression;
mod subject_traffic;

pub use durable_floors::{DurableFloorTracker, SignFloor, SyncBus};
pub use error::Error;
pub use pipeline::{IngestPipeline, PipelineParts};
pub use publisher_identity::{CurrentIdentityLookup, FormerIdentity, FormerIdentityLookup, RackDirectory};
pub use rack_usage::{RackQuotas, RackTraffic, RackUsageTable};
pub use settings::{ArchiveSource, IngestSettings};
pub use spec_matcher::{SpecCounts, SpecMatcher};
pub use stats::{IngestStats, IngestStatsSnapshot};
pub use subject_traffic::{SubjectTraffic, TrafficVolume};
