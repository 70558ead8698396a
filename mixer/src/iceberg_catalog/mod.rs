//! The Iceberg catalogue of the store: its publication by the Mixer that writes, and what every Mixer serves of it.
//!
//! ```text
//!  engine's list of files ─▶ PublisherThread ─▶ metadata beside the tree ─▶ IcebergCatalog ─▶ CatalogService ─▶ API, /metrics
//!                                                                   └─ (a Mixer that only reads begins here)
//! ```
//!
//! # Invariants
//!
//! - The metadata is derived: what goes wrong with it is told, counted and tried again, and nothing else waits for it.
//!
//! # Not here
//!
//! What the metadata says ([`iceberg`]); routes and their errors (`api::iceberg`, `api::catalog`), a catalogue in a folder of its own (`catalog_export`).

mod catalog_service;
mod catalog_view;
mod publication_status;
mod publisher_thread;

pub(crate) use catalog_service::{CatalogReadError, CatalogService};
pub(crate) use catalog_view::{CatalogTableView, CatalogView};
pub(crate) use publisher_thread::PublisherThread;
