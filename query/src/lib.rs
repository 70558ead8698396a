//! The query layer over the engine: typed queries and SQL over one immutable snapshot of the store.
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
//! - Rows outside the scope of who asks ([`DataScope`]) are in no answer, and nothing that a user wrote is evaluated on them.
//! - Every query has a bound of rows, time and memory, runs behind a gate on its own threads, and ends when its future is
//!   dropped.
//! - Following `next_cursor` gives every row that was there at the first page exactly once, however much is appended
//!   meanwhile (`cursor` says how).
//!
//! # Not here
//!
//! HTTP (`mixer`), files and their lifetimes (`engine`).

mod admission_gate;
mod aggregation;
mod approx_percentile;
mod bucket_histogram;
mod cell_cut;
mod columns;
mod cursor;
mod data_scope;
mod error;
mod exemplars;
mod filter;
mod filter_pushdown;
mod flux;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod keyset_pagination;
mod limits;
mod list_query;
mod live_tail;
mod message_rendering;
mod ndjson_scan;
mod point_labels;
mod query_caller;
mod query_engine;
mod query_result;
mod query_scan;
mod regex_matcher;
mod row_context;
mod row_query;
mod row_rendering;
mod row_writer;
mod scalar_functions;
mod scan;
mod scan_order;
mod segment_reader;
mod session_pool;
mod snapshot_registry;
mod spec_tables;
mod sql;
#[cfg(test)]
mod tests;
mod time_bounds;
mod time_range;
mod trace_search;
mod trace_tree;
mod unknown_order;
mod view_table;

pub use data_scope::DataScope;
pub use error::{Error, QueryErrorKind};
pub use limits::QueryLimits;
pub use list_query::ListQuery;
pub use live_tail::{HEARTBEAT, LiveTail};
pub use query_caller::QueryCaller;
pub use query_engine::QueryEngine;
pub use query_result::{AnswerMemory, JsonPage, ListAnswer, LogHistogram, MetricPage, QueryStats};
pub use row_writer::{RowFormat, RowWriter, json_of};
pub use spec_tables::SpecTable;
pub use sql::{
    POSTGRES_SETTINGS, POSTGRES_VERSION, POSTGRES_VERSION_NUMBER, SqlAnswer, SqlColumn, SqlDialect, SqlParameters,
    SqlStatement, SqlStats, StatementDescription, StatementToken, TokenKind, split_statements, statement_tokens,
    text_of_double, text_of_interval, text_of_real, text_of_time,
};
pub use trace_search::TraceSearch;
