//! DuckDB access for external readers: `platform.sql` in the store's folder, and databases made from it.
//!
//! # Not here
//!
//! What the views say ([`model::dialect::duckdb`]).

pub mod export;
mod view_file;

pub use view_file::ViewFileStats;
pub(crate) use view_file::ViewFileWriter;

/// The file of views, in the store's folder.
pub const VIEWS_FILE: &str = "platform.sql";
