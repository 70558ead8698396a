//! From the engine to rows: typed queries and SQL over one immutable view of the store.
//!
//! ```text
//! filter ─> window, expressions ─┬> scan: first rows, sums of points ───┬> columns of a list, or JSON objects under the columns' names
//!                                └> DataFusion plan: everything else ────┘
//!                                    │
//!                     ViewTable: catalogue pruning, Parquet segments, hot rows (one ReadView)
//!                                    │
//! SQL ─> one statement ─────────> DataFusion plan ──────────────────────> a stream of batches
//! ```
//!
//! # Invariants
//!
//! - An answer comes from one [`engine::ReadView`]: every row that was acknowledged before the query began, each once.
//! - Plans of typed queries are built from expressions; a text of a user is parsed only where it is meant as SQL.
//! - Every query has a bound of rows, time and memory, runs behind a gate on its own threads, and ends when its future is
//!   dropped.
//! - Following `next_cursor` gives every row that was there at the first page exactly once, however much is appended
//!   meanwhile (`cursor` says how).
//!
//! # Not here
//!
//! HTTP (`mixer`), files and their lifetimes (`engine`).

mod answer;
mod cursor;
mod error;
mod exec;
mod filter;
mod filter_pushdown;
mod flux;
mod functions;
mod gate;
mod lines;
mod list;
mod memory;
mod messages;
mod metrics;
mod patterns;
mod plan_properties;
mod querier;
mod reader;
mod rows;
mod scan;
mod scan_order;
mod series;
mod snapshots;
mod specs;
mod sql;
mod summary;
mod table;
mod tail;
#[cfg(test)]
mod tests;
mod times;
mod trace;
mod window;
mod write;

pub use answer::{JsonPage, ListAnswer, LogHistogram, MetricPage, QueryStats};
pub use error::{Error, QueryErrorKind};
pub use list::ListQuery;
pub use querier::{QueryEngine, QueryLimits};
pub use specs::SpecTable;
pub use sql::{
    POSTGRES_VERSION, POSTGRES_VERSION_NUMBER, SqlAnswer, SqlColumn, SqlDialect, SqlParameters, SqlStatement, SqlStats,
    StatementDescription, split_statements, text_of_double, text_of_interval, text_of_real,
};
pub use tail::{HEARTBEAT, LiveTail};
pub use write::{RowFormat, RowWriter, json_of};
