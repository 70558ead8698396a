//! The context of a row: a stretch of a list, with so many rows before and after the one of a position.
//!
//! ```text
//! order of the list ─▶   … rows sooner in it │ equal rows, the row among them if the filter lets it through │ rows later in it …
//!                        ◀── reversed scan   │ ──────────────────────── scan ──▶
//! ```
//!
//! # Invariants
//!
//! - The rows are those of the list, in its order: none is left out between two of them, however many share a moment or are equal.
//! - Near the row is looked first ([`crate::row_query`]). Where rows end with that window, and the request has none, the whole store is
//!   looked through; the answer says so where that takes too long.

use std::time::Duration;

use arrow_array::RecordBatch;
use datafusion::arrow::compute::interleave_record_batch;
use datafusion::execution::memory_pool::MemoryReservation;
use model::filter::{RowPosition, SortOrder};
use serde_json::{Value, json};

use crate::Error;
use crate::cursor::{KeysetPosition, RowPlace};
use crate::keyset_pagination::{PositionedRows, equal_rows, positioned_rows};
use crate::query_result::ListAnswer;
use crate::query_scan::QueryScan;
use crate::row_query::RowContext;
use crate::row_rendering::RowRendering;
use crate::time_range::TimeRange;

/// How long is looked beyond the window near the row, if the query has that much time.
const FURTHER: Duration = Duration::from_secs(3);

/// The rows around a position, in the scan's window; where they end with that, in the widest one. `timeout` is that of the query. What [`ListAnswer::about`] says is which
/// of them is the row, and whether there are more on either side.
pub(crate) async fn rows_around(
    mut scan: QueryScan,
    context: RowContext,
    widest: TimeRange,
    shown: RowRendering,
    timeout: Duration,
) -> Result<ListAnswer, Error> {
    let mut found = RowStretch::find(&scan, context).await?;
    let mut is_whole = true;
    let wider = found.wider_window(&scan, widest);
    if wider != scan.window {
        scan.window = wider;
        // Half of what is left: what was found near the row is shown in the other half.
        let left = timeout.saturating_sub(scan.elapsed()) / 2;
        match tokio::time::timeout(FURTHER.min(left), RowStretch::find(&scan, context)).await {
            Ok(further) => found = further?,
            Err(_) => is_whole = false,
        }
    }
    let about = found.about(&scan, context);
    let (rows, places, memory) = found.copy_rows(&scan)?;
    let equal_before = found.equal_before;
    drop(found);
    let mut list = shown.render(&scan, (&rows, &places, equal_before), None, &memory)?;
    if !is_whole {
        let reason = "rows more than a day from it are not looked through, which takes long: say how far to look by since and until";
        list.stats.add_partial_reason(reason);
    }
    Ok(list.about("around", about))
}

/// A stretch of a list.
struct RowStretch {
    /// Rows that come before all that are equal to that of the position, in the opposite order, with the complements of hashes.
    first: PositionedRows,
    /// How many of them are in the stretch.
    shown_first: usize,
    /// The rows after them.
    rest: PositionedRows,
    shown_rest: usize,
    /// The number of the row, if it is there.
    row: Option<usize>,
    /// How many rows that are equal to the first of all come before it.
    equal_before: u64,
    more_sooner: bool,
    more_later: bool,
}

impl RowStretch {
    async fn find(scan: &QueryScan, context: RowContext) -> Result<Self, Error> {
        let (position, (sooner, later)) = (context.position, in_order(scan, (context.before, context.after)));
        // The rows of a moment are after it: in this order the one before begins behind them.
        let is_behind = position == RowPosition::of_moment(position.ts) && scan.order == SortOrder::Desc;
        let (ts, hash) = (position.ts.micros().saturating_sub(is_behind.into()), position.hash);
        // Those before it that are equal to it; a filter may let none of them through.
        let nth = match position.nth {
            0 => 0,
            nth => equal_rows(scan, (ts, hash)).await?.min(nth.into()),
        };
        let equal = usize::try_from(nth).map_or(sooner, |nth| nth.min(sooner));
        let seen = nth - equal as u64;
        let from = KeysetPosition { ts, hash, seen };
        let rest = positioned_rows(scan, equal + later + 1, Some(from)).await?;
        let has_row = rest.places.get(equal) == Some(&(ts, hash));
        let most = equal + later + usize::from(has_row);

        let reversed = scan.reversed();
        let wanted = sooner - equal;
        let first = positioned_rows(&reversed, wanted + 1, Some(beyond_equal(ts, hash))).await?;
        let shown_first = first.places.len().min(wanted);
        let equal_before = match shown_first {
            0 if rest.places.first() == Some(&(ts, hash)) => seen,
            0 => 0,
            shown => equal_sooner(scan, &first.places, shown).await?,
        };
        Ok(Self {
            shown_first,
            row: has_row.then_some(shown_first + equal),
            equal_before,
            more_sooner: seen > 0 || first.places.len() > shown_first,
            first,
            shown_rest: rest.places.len().min(most),
            more_later: rest.more || rest.places.len() > most,
            rest,
        })
    }

    /// The window with all that is stored beyond it, on the sides where the rows end with it.
    fn wider_window(&self, scan: &QueryScan, widest: TimeRange) -> TimeRange {
        let (view, table, near) = (scan.view(), scan.table(), scan.window);
        let is_stored = |part: TimeRange| {
            let files = view.files(table).iter().map(|file| (file.min_ts, file.max_ts));
            let mut stored = files.chain(view.hot(table).iter().map(|hot| (hot.min_ts, hot.max_ts)));
            part.since < part.until && stored.any(|(min, max)| part.overlaps(min, max))
        };
        let (more_before, more_after) = in_order(scan, (self.more_sooner, self.more_later));
        let mut wider = near;
        if !more_before && is_stored(widest.before(near.since)) {
            wider.since = widest.since;
        }
        if !more_after && is_stored(widest.from(near.until)) {
            wider.until = widest.until;
        }
        wider
    }

    fn about(&self, scan: &QueryScan, context: RowContext) -> Value {
        let (more_before, more_after) = in_order(scan, (self.more_sooner, self.more_later));
        let position = context.position.to_string();
        json!({ "position": position, "row": self.row, "more_before": more_before, "more_after": more_after })
    }

    /// Its rows in the order of the list, and their places. For a moment they are there twice: the copy is counted before it is made.
    fn copy_rows(&self, scan: &QueryScan) -> Result<(RecordBatch, Vec<RowPlace>, MemoryReservation), Error> {
        let parts = [&self.first.rows, &self.rest.rows];
        let memory = scan.memory("context");
        memory.try_grow(parts.iter().map(|rows| rows.get_array_memory_size()).sum())?;
        let backwards = (0..self.shown_first).rev().map(|row| (0, row));
        let order: Vec<_> = backwards.chain((0..self.shown_rest).map(|row| (1, row))).collect();
        let rows = match order.is_empty() {
            true => RecordBatch::new_empty(scan.table().schema()),
            false => interleave_record_batch(&parts, &order)?,
        };
        let first = self.first.places.iter().take(self.shown_first).rev();
        let first = first.map(|(ts, hash)| (*ts, !hash));
        let rest = self.rest.places.iter().take(self.shown_rest).copied();
        Ok((rows, first.chain(rest).collect(), memory))
    }
}

/// What is of the rows before and after one, by which of them come sooner in the list and which later; and the other way round.
fn in_order<T>(scan: &QueryScan, (before, after): (T, T)) -> (T, T) {
    match scan.order {
        SortOrder::Desc => (after, before),
        SortOrder::Asc => (before, after),
    }
}

/// In a reversed scan, the position behind all rows of a place.
fn beyond_equal(ts: i64, hash: u64) -> KeysetPosition {
    match (!hash).checked_add(1) {
        Some(hash) => KeysetPosition { ts, hash, seen: 0 },
        None => KeysetPosition {
            ts,
            hash: u64::MAX,
            seen: u64::MAX,
        },
    }
}

/// How many rows come before the last of those that are shown of a reversed scan, in the order of the list, and are equal to it.
async fn equal_sooner(scan: &QueryScan, places: &[RowPlace], shown: usize) -> Result<u64, Error> {
    let (Some(last), Some(beyond)) = (places.get(shown - 1), places.get(shown)) else {
        return Ok(0);
    };
    if last != beyond {
        return Ok(0);
    }
    let equal = places
        .iter()
        .take(shown)
        .rev()
        .take_while(|place| *place == last)
        .count();
    let all = equal_rows(scan, (last.0, !last.1)).await?;
    Ok(all.saturating_sub(equal as u64))
}
