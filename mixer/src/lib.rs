//! The control plane: bus server process, registry, enrolment, scenarios, REST API, and the order of start and stop.
//!
//! ```text
//!  app ─┬─ engine ◀── ingest ◀── bus_server (nats-server process, streams)
//!       ├─ control ── registry · cluster · liveness · events
//!       ├─ agent_rpc (enrollment, heartbeat) · scenario (rollout, convergence) · liveness_monitor
//!       ├─ dlq ── registry · query · bus
//!       ├─ export ── engine, to a collector
//!       ├─ api ── authentication (access) · control · dlq · query
//!       ├─ postgres ── authentication · query
//!       ├─ iceberg_catalog ── engine, iceberg
//!       └─ outside ── engine
//! ```
//!
//! # Invariants
//!
//! - [`app::Mixer::start`] starts in one order, [`app::Mixer::close`] stops in the reverse.
//! - Time and entropy come from `main`.
//!
//! # Not here
//!
//! Storage (`engine`), the way from bus to storage (`ingest`), plans (`query`), gears (`rack`).

pub mod access;
mod agent_rpc;
pub mod api;
pub mod app;
mod audit_keeper;
pub mod authentication;
pub mod backup;
pub mod bootstrap;
pub mod bucket;
pub mod bus_operator;
pub mod bus_server;
pub mod catalog_export;
pub mod check;
pub mod cluster;
mod command_clock;
pub mod config;
pub mod control;
pub mod copy;
pub mod dlq;
pub mod duckdb;
mod enrollment;
pub mod events;
pub mod export;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod heartbeat;
pub mod iceberg_catalog;
pub mod key_rotation;
pub mod liveness;
mod liveness_monitor;
pub mod postgres;
pub mod quotas;
pub mod registry;
mod rejection_counters;
pub mod retention;
pub mod scenario;
mod security_report;
mod self_tracing;
pub mod specs;
mod start_error;
mod tasks;
#[cfg(test)]
mod testing;
