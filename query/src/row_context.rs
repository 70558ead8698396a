//! The context of a row: a stretch of a list, with so many rows before and after the one of a position.
//!
//! ```text
//! order of the list ─▶   … rows sooner in it │ the row, if the filter lets it through │ rows later in it …
//!                        ◀── reversed scan   │ ────────────── scan ──▶
//! ```
//!
//! # Invariants
//!
//! - The rows are those of the list, in its order: none is left out between two of them, however many share a moment.
//! - Rows that are equal in every column have one position: the first of them is the row, the others come after it.

use arrow_array::RecordBatch;
use datafusion::arrow::compute::interleave_record_batch;
use model::filter::SortOrder;
use serde_json::json;

use crate::Error;
use crate::cursor::KeysetPosition;
use crate::keyset_pagination::positioned_rows;
use crate::query_result::ListAnswer;
use crate::query_scan::QueryScan;
use crate::row_query::RowContext;
use crate::row_rendering::RowRendering;

/// The rows around a position. What [`ListAnswer::about`] says is which of them is the row, and whether there are more on either side.
pub(crate) async fn rows_around(
    scan: QueryScan,
    context: RowContext,
    shown: RowRendering,
) -> Result<ListAnswer, Error> {
    let RowContext {
        position,
        before,
        after,
    } = context;
    let (sooner, later) = match scan.order {
        SortOrder::Desc => (after, before),
        SortOrder::Asc => (before, after),
    };
    let (ts, hash) = (position.ts.micros(), position.hash);
    let here = KeysetPosition { ts, hash, seen: 0 };
    // A reversed scan has the complements of hashes; the row itself is not among its rows.
    let beside = KeysetPosition {
        hash: (!hash).saturating_add(1),
        ..here
    };
    let first = positioned_rows(&scan.reversed(), sooner, Some(beside)).await?;
    let rest = positioned_rows(&scan, later + 1, Some(here)).await?;
    let has_row = rest.places.first() == Some(&(ts, hash));
    let most = later + usize::from(has_row);
    let shown_rest = rest.places.len().min(most);

    let backwards = (0..first.places.len()).rev().map(|row| (0, row));
    let order: Vec<_> = backwards.chain((0..shown_rest).map(|row| (1, row))).collect();
    let parts = [&first.rows, &rest.rows];
    let rows = match order.is_empty() {
        true => RecordBatch::new_empty(scan.table().schema()),
        false => interleave_record_batch(&parts, &order)?,
    };
    let places = first.places.iter().rev().map(|(ts, hash)| (*ts, !hash));
    let places: Vec<_> = places.chain(rest.places.iter().take(shown_rest).copied()).collect();
    let memory = scan.memory("context");
    memory.try_grow(rows.get_array_memory_size())?;

    let (more_sooner, more_later) = (first.more, rest.more || rest.places.len() > most);
    let (more_before, more_after) = match scan.order {
        SortOrder::Desc => (more_later, more_sooner),
        SortOrder::Asc => (more_sooner, more_later),
    };
    let about = json!({
        "position": position.to_string(), "row": has_row.then_some(first.places.len()), "more_before": more_before, "more_after": more_after,
    });
    let list = shown.render(&scan, (&rows, &places), None, &memory)?;
    Ok(list.about("around", about))
}
