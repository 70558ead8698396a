//! The control plane: bus server process, registry, enrolment, scenarios, REST API, and the order of start and stop.
//!
//! ```text
//!  app ─┬─ engine ◀── ingest ◀── bus_server (nats-server process, streams)
//!       ├─ control ── registry · cluster · presence · events
//!       ├─ desk (enrollment, heartbeat) · scenario (courier, convergence) · roll_call
//!       ├─ dlq ── registry · query · bus
//!       ├─ api ── control · dlq · query
//!       ├─ postgres ── query
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

pub mod api;
pub mod app;
pub mod bucket;
pub mod bus_server;
pub mod check;
pub mod cluster;
pub mod config;
pub mod control;
pub mod copy;
mod desk;
pub mod dlq;
mod enrollment;
pub mod events;
pub mod founding;
mod heartbeat;
mod hex;
mod issuer;
pub mod outside;
mod passes;
pub mod postgres;
pub mod presence;
mod refusals;
pub mod registry;
pub mod retention;
mod roll_call;
pub mod scenario;
pub mod specs;
mod tasks;
#[cfg(test)]
mod testing;
