//! What a query answers with.

use model::{HumanDuration, MetricType, TraceId};
use serde::Serialize;
use serde_json::{Map, Value};

/// Rows, in the order that was asked for.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// One object per row, under the specification's column names.
    pub rows: Vec<Map<String, Value>>,
    /// Where the next page begins; `None` after the last row.
    pub next_cursor: Option<String>,
    /// What the answer cost.
    pub stats: QueryStats,
}

/// What an answer cost, and whether it is whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct QueryStats {
    /// Data files of the table in the view.
    pub files_considered: u64,
    /// Of these, files that the catalogue or their index ruled out.
    pub files_pruned: u64,
    /// Files that were opened.
    pub files_read: u64,
    /// Bytes read from files and from their indexes.
    pub bytes_read: u64,
    /// Pages of files that were at hand and not read.
    pub cache_hits: u64,
    /// Rows in memory that were looked at.
    pub hot_rows: u64,
    /// Rows of files and of memory that a list of rows or a sum of metric points looked at; plans do not count them.
    pub rows_scanned: u64,
    /// Rows in the answer.
    pub rows: u64,
    /// Wall time, in milliseconds.
    pub ms: u64,
    /// Why rows are missing, if a part of the store cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
}

impl QueryStats {
    /// What two looks at one view cost that were made one after the other; `self` from the beginning to the end.
    pub(crate) fn and(self, part: Self) -> Self {
        Self {
            files_considered: self.files_considered + part.files_considered,
            files_pruned: self.files_pruned + part.files_pruned,
            files_read: self.files_read + part.files_read,
            bytes_read: self.bytes_read + part.bytes_read,
            cache_hits: self.cache_hits + part.cache_hits,
            hot_rows: self.hot_rows + part.hot_rows,
            rows_scanned: self.rows_scanned + part.rows_scanned,
            rows: self.rows + part.rows,
            ..self
        }
    }
}

/// All spans of one trace, and what was logged meanwhile under its id.
#[derive(Debug, Clone)]
pub struct TraceTree {
    /// The trace.
    pub trace_id: TraceId,
    /// The spans' rows in tree order: a span comes directly before its children, siblings by start. Each carries `depth`
    /// beside its columns: 0 for a root and for a span whose parent is not in the store.
    pub rows: Vec<Map<String, Value>>,
    /// Whether the trace has more spans than one answer holds.
    pub truncated: bool,
    /// Log records whose attribute `trace_id` is the trace's, from an hour before its first span to an hour after its last one;
    /// by time, the earliest first.
    pub logs: Vec<Map<String, Value>>,
    /// Whether there are more of them; those that are here are the newest.
    pub logs_truncated: bool,
    /// What the answer cost.
    pub stats: QueryStats,
}

/// The points of one metric, and what it is.
#[derive(Debug, Clone)]
pub struct MetricPage {
    /// The metric.
    pub name: String,
    /// What its values mean.
    pub metric_type: Option<MetricType>,
    /// The unit of its values (label `otel.unit`).
    pub unit: Option<String>,
    /// The keys of its labels, sorted.
    pub label_keys: Vec<String>,
    /// The points or buckets.
    pub page: Page,
}

/// How many rows there were over time.
#[derive(Debug, Clone)]
pub struct Histogram {
    /// The width of a bucket.
    pub interval: HumanDuration,
    /// One row per bucket and group.
    pub page: Page,
}
