//! What outside readers are given: `platform.sql` in the store's folder, and databases made from it.
//!
//! # Not here
//!
//! What the views say ([`model::dialect::duckdb`]).

pub mod export;
mod views;

pub use views::ViewFileStats;
pub(crate) use views::ViewFileWriter;

/// The file of views, in the store's folder.
pub const VIEWS_FILE: &str = "platform.sql";
