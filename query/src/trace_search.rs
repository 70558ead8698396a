//! Trace search: the newest traces with a span that meets all conditions, each with all of its stored spans.
//!
//! ```text
//! spans in the window that meet them ─> the ids of their traces, the newest first ─> all spans of these, by the index
//! ```
//!
//! # Invariants
//!
//! - An answer has at most [`MAX_LIMIT`] spans, and says so where there are more: the newest traces are there then.
//! - What an answer takes as objects and as text is counted as memory of queries until it has been sent.
//! - A trace is as new as its newest span that meets the conditions. Its other spans may lie outside the window.

use std::time::Duration;

use datafusion::functions_aggregate::expr_fn::max;
use datafusion::logical_expr::{Expr, ident};
use model::filter::{KeyedValues, MAX_LIMIT, TraceFilter};
use model::{Table, TraceId};

use crate::aggregation::metric_aggregation::column;
use crate::filter::{self, PageBounds};
use crate::keyset_pagination;
use crate::query_result::JsonPage;
use crate::query_scan::QueryScan;
use crate::row_rendering::RowRendering;
use crate::scalar_functions::texts;
use crate::time_range::TimeRange;
use crate::view_table::RowOrder;
use crate::{Error, trace_tree};

/// An index is asked for no more traces at once.
const MOST_AT_ONCE: usize = 100;

/// Which traces: those with a span that meets all of it.
#[derive(Debug, Clone, Default)]
pub struct TraceSearch {
    /// The span; `limit` is of traces.
    pub filter: TraceFilter,
    /// Values of its attributes, or of its resource's (`resource.<key>`).
    pub tags: KeyedValues,
    /// How long it took at least.
    pub min_duration: Option<Duration>,
    /// How long it took at most.
    pub max_duration: Option<Duration>,
}

impl TraceSearch {
    pub(crate) fn conditions(&self) -> Vec<Expr> {
        let mut conditions = filter::traces(&self.filter);
        conditions.extend(self.tags.iter().map(|(key, value)| filter::tag(key, value)));
        conditions.extend(filter::durations(
            self.min_duration.map(stored_ms),
            self.max_duration.map(stored_ms),
        ));
        conditions
    }
}

/// A duration as spans have it.
#[allow(
    clippy::cast_possible_truncation,
    reason = "a stored duration is rounded the same way"
)]
fn stored_ms(duration: Duration) -> f32 {
    (duration.as_secs_f64() * 1e3) as f32
}

/// The spans of the newest traces that `scan` meets, at most so many traces.
pub(crate) async fn whole_traces(scan: QueryScan, limit: usize) -> Result<JsonPage, Error> {
    let frame = scan.frame(scan.window, RowOrder::Any)?;
    let frame = frame.aggregate(vec![ident("trace_id")], vec![max(ident("ts")).alias("latest")])?;
    let order = vec![ident("latest").sort(false, true), ident("trace_id").sort(true, false)];
    let mut ids = Vec::new();
    for batch in frame.sort(order)?.limit(0, Some(limit))?.collect().await? {
        let found = texts(column(&batch, "trace_id")?)?.flatten();
        ids.extend(found.filter_map(|id| id.parse::<TraceId>().ok()));
    }
    spans_of(&scan, &ids).await
}

/// The spans of traces of which at least one is stored.
pub(crate) async fn stored_traces(scan: QueryScan, ids: &[TraceId]) -> Result<JsonPage, Error> {
    let found = spans_of(&scan, ids).await?;
    if found.rows.is_empty() {
        let ids: Vec<_> = ids.iter().map(TraceId::to_string).collect();
        return Err(trace_tree::not_found(&scan, ids.join(", ")));
    }
    Ok(found)
}

/// All spans of traces, the newest of each hundred traces first.
async fn spans_of(scan: &QueryScan, ids: &[TraceId]) -> Result<JsonPage, Error> {
    let memory = scan.memory("traces");
    let mut found = JsonPage {
        stats: scan.stats(0),
        ..JsonPage::default()
    };
    let mut is_cut = false;
    for ids in ids.chunks(MOST_AT_ONCE) {
        let left = (MAX_LIMIT as usize).saturating_sub(found.rows.len());
        if left == 0 {
            is_cut = true;
            break;
        }
        let spans = scan.scan_table(Table::Traces, TimeRange::ALL, vec![filter::of_traces(ids)])?;
        let paging = PageBounds { limit: left, offset: 0 };
        let page = keyset_pagination::list(&spans, paging, None, 0, RowRendering::default()).await?;
        let columns = page.rows().get_array_memory_size();
        memory.try_grow(columns)?;
        let page = page.into_objects(&memory)?;
        memory.shrink(columns);
        is_cut |= page.next_cursor.is_some();
        found.rows.extend(page.rows);
        found.stats = found.stats.add_cost(page.stats);
    }
    found.stats.ms = scan.stats(0).ms;
    if is_cut {
        let reason = format!("these traces have more than {MAX_LIMIT} spans: the newest are here");
        found.stats.add_partial_reason(&reason);
    }
    let bytes = memory.free();
    found.reserve_memory(&scan.session(), bytes)
}
