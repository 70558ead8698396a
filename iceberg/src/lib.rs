//! The stored tables as Iceberg tables (format version 2), for other people's engines: metadata that follows from the list of files.
//!
//! ```text
//! engine: list of published files ─> publisher ─> v<n>.metadata.json ─> snap-….avro (manifest list) ─> …-m.avro (manifests) ─> data files
//!                                                        └─> catalog: what a Mixer serves
//! ```
//!
//! # Layers, each of which uses only those above it
//!
//! | module | what it knows |
//! |---|---|
//! | `error` | why something failed |
//! | `avro` | Avro object container files |
//! | `schema` | columns, their types, their numbers |
//! | `partition_spec` | hours and days as partitions |
//! | `bounds` | least and greatest values of columns, from Parquet footers |
//! | `data_file` | a data file as a manifest describes it |
//! | `manifest`, `manifest_list` | the Avro files of a snapshot |
//! | `table_metadata` | the JSON file that names snapshots and schemas |
//! | `catalog_table`, `metadata_folder`, `table_index` | names: of tables, of their objects, the list of tables |
//! | `table_files`, `table_schemas`, `file_descriptions`, `day_manifests`, `snapshot_history` | what a new version of a table consists of |
//! | `published_state`, `garbage`, `link_expiry`, `table_publication` | one table: what goes, what is new |
//! | `cached_look` | what was read, and when it is looked for again |
//! | `catalog`, `publisher` | all tables: what is served, what is published |
//!
//! # Invariants
//!
//! - Nothing here is a commit point: what is lost or damaged is made anew from the engine's list of files.
//! - The same files, written by the same program, give the same bytes.
//! - A bound is never narrower than the column: an engine that skips files by it misses no row.
//! - What is read back may be damaged: it is an error, never a panic, and takes memory in proportion to its size.
//!
//! # Not here
//!
//! HTTP (`mixer`), data files and their lifetimes (`engine`).

mod avro;
mod bounds;
mod cached_look;
mod catalog;
mod catalog_table;
mod data_file;
mod day_manifests;
mod error;
mod file_descriptions;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod garbage;
mod link_expiry;
mod manifest;
mod manifest_list;
mod metadata_folder;
mod partition_spec;
mod published_state;
mod publisher;
mod schema;
mod snapshot_history;
mod table_files;
mod table_index;
mod table_metadata;
mod table_publication;
mod table_schemas;
#[cfg(test)]
mod tests;

pub use catalog::{IcebergCatalog, LoadedTable, NAMESPACE, TableOverview};
pub use catalog_table::CatalogTable;
pub use error::IcebergError;
pub use link_expiry::MARGIN;
pub use publisher::{CatalogPublisher, CatalogSettings, PublishReport};
