//! What rows come to: counts over time, the most frequent values of a field, the metrics that there are and their labels.
//!
//! | file | what |
//! |---|---|
//! | `counts` | which questions counts of segments answer |
//! | `fill` | buckets without rows, beside those with some |
//! | `histogram` | how many log records there were, bucket by bucket |
//! | `names` | metrics, their types, units and labels |
//! | `series` | what metric points come to, series by series |
//! | `shape` | buckets without points; a row for each series |
//! | `tally` | sums of points by series and bucket |
//! | `top` | the most frequent values of a column or of a key of a JSON column |
//!
//! # Invariants
//!
//! - An answer is whole or cut at a number the request gave; none has pages, and what would go beyond our own bounds is refused.
//!   One that is cut says so, but for the most frequent values, of which nobody wants all.
//!
//! # Not here
//!
//! What an aggregate of metric points means, and rates: [`crate::aggregation::metric_aggregation`], [`crate::aggregation::series_rates`].

pub(crate) mod bucket_aggregator;
pub(crate) mod gap_fill;
pub(crate) mod group_output;
pub(crate) mod log_histogram;
pub(crate) mod metric_aggregation;
pub(crate) mod metric_catalog;
pub(crate) mod rollup_query;
pub(crate) mod series_rates;
pub(crate) mod series_walk;
pub(crate) mod top_values;

use crate::Error;
use crate::query_scan::QueryScan;

pub(crate) fn no_metric(name: String, scan: &QueryScan) -> Error {
    let since = scan.window.since;
    scan.not_found(
        "metric",
        name,
        format!("has points since {since}: look further back with since"),
    )
}
