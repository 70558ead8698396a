//! Aggregations: counts over time, the most frequent values of a field, the metric catalog and its labels.
//!
//! | file | what |
//! |---|---|
//! | `rollup_query` | which questions roll-ups answer |
//! | `field_catalog` | which columns and attributes rows have |
//! | `gap_fill` | buckets without rows, beside those with some |
//! | `log_histogram` | how many log records there were, bucket by bucket |
//! | `metric_aggregation` | what an aggregate of metric points means, page by page |
//! | `metric_catalog` | metrics, their types, units and labels |
//! | `series_walk`, `series_rates` | what metric points come to, and rates, series by series |
//! | `group_output` | buckets without points; a row for each series |
//! | `bucket_aggregator` | sums of points by series and bucket |
//! | `service_graph` | services, their operations, and which of them calls which |
//! | `top_values` | the most frequent values of a column or of a key of a JSON column |
//!
//! # Invariants
//!
//! - An answer is whole or cut at a number the request gave; what would go beyond our own bounds is refused.
//!   One that is cut says so, but for the most frequent values, of which nobody wants all.
//!
//! # Not here
//!
//! The public queries, and their limits: [`crate::query_engine`].

pub(crate) mod bucket_aggregator;
pub(crate) mod field_catalog;
pub(crate) mod gap_fill;
pub(crate) mod group_output;
pub(crate) mod log_histogram;
pub(crate) mod metric_aggregation;
pub(crate) mod metric_catalog;
pub(crate) mod rollup_query;
pub(crate) mod series_rates;
pub(crate) mod series_walk;
pub(crate) mod service_graph;
pub(crate) mod top_values;

use crate::Error;
use crate::query_scan::QueryScan;
use crate::view_table::RowOrder;

pub(crate) fn no_metric(name: String, scan: &QueryScan) -> Error {
    let since = scan.window.since;
    scan.not_found(
        "metric",
        name,
        format!("has points since {since}: look further back with since"),
    )
}

/// Whether there is any row.
pub(crate) async fn has_rows(scan: &QueryScan) -> Result<bool, Error> {
    let frame = scan.frame(scan.window, RowOrder::Any)?;
    let found = frame.limit(0, Some(1))?.collect().await?;
    Ok(found.iter().any(|batch| batch.num_rows() > 0))
}
