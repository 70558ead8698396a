//! Pages of rows, newest or oldest first, in the order that [`crate::cursor`] defines.
//!
//! # How
//!
//! A scan finds the first rows with all that share the `ts` of the last one; their hashes say which of those are on the page.
//!
//! What the scan is not made for, a plan finds: a top-k by `ts` alone, which sorted files answer from their beginnings where the
//! newest come first. Only the rows of the one `ts` at which a page is cut need the order by hash, and only they are asked for
//! again, by exactly that `ts`.
//!
//! ```text
//! cursor's ts: rest of its ties │ rows beyond it: top-k by ts │ ties at the cut, by hash
//! ```
//!
//! Where a scan reverses ties, all hashes here are the complements of the rows', so that they ascend in either order.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::arrow::compute::{cast, interleave_record_batch};
use datafusion::dataframe::DataFrame;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{Expr, SortExpr, ident, lit};
use model::Timestamp;
use model::filter::SortOrder;

use crate::Error;
use crate::cursor::{KeysetPosition, PageCursor, RowPlace};
use crate::filter::PageBounds;
use crate::query_result::ListAnswer;
use crate::query_scan::QueryScan;
use crate::row_rendering::RowRendering;
use crate::scalar_functions::{FunctionKind, hash_rows};
use crate::scan::{rank, times_of};
use crate::time_range::TimeRange;
use crate::view_table::RowOrder;

/// The name of the hash beside the table's own columns.
const HASH: &str = "_hash";
/// No store has more rows of one `ts`; plans cannot count much further.
const MAX_SKIP: u64 = 1 << 40;

/// Rows to skip, at most, that a scan finds: a plan only counts them.
const MOST_SKIPPED: usize = 100_000;

/// A page of the scan's rows, after `from` if given.
pub(crate) async fn list(
    scan: &QueryScan,
    paging: PageBounds,
    from: Option<KeysetPosition>,
    fingerprint: u64,
    shown: RowRendering,
) -> Result<ListAnswer, Error> {
    render_page(scan, read_page(scan, paging, from).await?, fingerprint, shown)
}

/// Rows in order with their places in it.
pub(crate) struct PositionedRows {
    pub(crate) rows: RecordBatch,
    pub(crate) places: Vec<RowPlace>,
    /// Whether there are more after them.
    pub(crate) more: bool,
    _memory: MemoryReservation,
}

/// The first rows after `from` if given, at most so many.
pub(crate) async fn positioned_rows(
    scan: &QueryScan,
    limit: usize,
    from: Option<KeysetPosition>,
) -> Result<PositionedRows, Error> {
    let given = read_page(scan, PageBounds { limit, offset: 0 }, from).await?;
    let (rows, places, memory) = given.copy_rows(scan)?;
    Ok(PositionedRows {
        rows,
        places,
        more: given.more,
        _memory: memory,
    })
}

/// How many rows have a place.
pub(crate) async fn equal_rows(scan: &QueryScan, (ts, hash): RowPlace) -> Result<u64, Error> {
    let rows = hashed_rows(scan, Timestamp::from_micros(ts))?;
    Ok(rows.filter(ident(HASH).eq(lit(hash)))?.count().await? as u64)
}

async fn read_page(scan: &QueryScan, paging: PageBounds, from: Option<KeysetPosition>) -> Result<KeysetPage, Error> {
    match page_by_scan(scan, paging, from).await? {
        Some(given) => Ok(given),
        None => page_by_plan(scan, paging, from).await,
    }
}

fn render_page(
    scan: &QueryScan,
    given: KeysetPage,
    fingerprint: u64,
    shown: RowRendering,
) -> Result<ListAnswer, Error> {
    let next = given.rows.position_after(given.from).filter(|_| given.more);
    let next = next.map(|position| PageCursor::new(fingerprint, scan.window, position).token());
    let (rows, places, memory) = given.copy_rows(scan)?;
    let nth = given.rows.equal_before(given.skip, given.from);
    drop(given);
    shown.render(scan, (&rows, &places, nth), next, &memory)
}

/// The rows of a page in order.
#[derive(Default)]
struct KeysetPage {
    /// Those to skip included, as far as they matter to the position after the page.
    rows: SortedRows,
    skip: usize,
    /// Where they begin.
    from: Option<KeysetPosition>,
    /// Whether there are more after them.
    more: bool,
    /// What the rows take, counted for as long as they are held.
    _memory: Option<MemoryReservation>,
}

impl KeysetPage {
    /// Its rows but for those to skip, and their places. For a moment they are there twice: the copy is counted before it is made.
    fn copy_rows(&self, scan: &QueryScan) -> Result<(RecordBatch, Vec<RowPlace>, MemoryReservation), Error> {
        let memory = scan.memory("page");
        memory.try_grow(self.rows.batches.iter().map(RecordBatch::get_array_memory_size).sum())?;
        let rows = self.rows.concat_rows(self.skip, &scan.table().schema())?;
        let in_order = self.rows.in_order.iter().skip(self.skip);
        Ok((rows, in_order.map(|row| (row.ts, row.hash)).collect(), memory))
    }
}

/// By a scan; `None` if a plan must find them.
async fn page_by_scan(
    scan: &QueryScan,
    paging: PageBounds,
    from: Option<KeysetPosition>,
) -> Result<Option<KeysetPage>, Error> {
    let PageBounds { limit, offset } = paging;
    if offset > MOST_SKIPPED {
        return Ok(None);
    }
    let window = match from {
        Some(from) => range_from(scan, from.moment()),
        None => scan.window,
    };
    let wanted = offset + limit + 1;
    let Some(found) = scan.top_k(window, from.map(|from| from.ts), offset, wanted).await? else {
        return Ok(None);
    };
    let mut rows = SortedRows::of_scan(found.batches, scan)?;
    if let Some(from) = from {
        rows.begin_after(from);
    }
    let skip = offset - found.skipped;
    let more = rows.in_order.len() > skip + limit;
    rows.in_order.truncate(skip + limit);
    Ok(Some(KeysetPage {
        rows,
        skip,
        from,
        more,
        _memory: Some(found.memory),
    }))
}

/// By plans.
async fn page_by_plan(scan: &QueryScan, paging: PageBounds, from: Option<KeysetPosition>) -> Result<KeysetPage, Error> {
    let mut from = match paging.offset {
        0 => from,
        offset => match locate(scan, offset).await? {
            Some(position) => Some(position),
            None => return Ok(KeysetPage::default()),
        },
    };
    let (rows, more) = gather(scan, paging.limit, from).await?;
    if let (Some(located), Some(first)) = (from.as_mut(), rows.in_order.first())
        && paging.offset > 0
        && located.seen > 0
        && located.ts == first.ts
    {
        // Of the rows that it counts, those that are equal to the first one are what a position says.
        let lesser = hashed_rows(scan, located.moment())?.filter(ident(HASH).lt(lit(first.hash)))?;
        located.seen = located.seen.saturating_sub(lesser.count().await? as u64);
        located.hash = first.hash;
    }
    Ok(KeysetPage {
        rows,
        skip: 0,
        from,
        more,
        _memory: None,
    })
}

/// The rows of a page in order, and whether there are more after them.
async fn gather(scan: &QueryScan, limit: usize, from: Option<KeysetPosition>) -> Result<(SortedRows, bool), Error> {
    let mut rows = SortedRows::of_scan(Vec::new(), scan)?;
    let mut window = scan.window;
    if let Some(from) = from {
        rows.extend(ties(scan, from, limit + 1).await?)?;
        window = range_after(scan, from.moment());
    }
    let mut more = rows.in_order.len() > limit;
    if !more {
        let wanted = limit + 1 - rows.in_order.len();
        let mut first = SortedRows::of_scan(first_rows(scan, window, wanted).await?, scan)?;
        if first.in_order.len() >= wanted {
            more = true;
            first.complete_last_ties(scan, limit - rows.in_order.len()).await?;
        }
        rows.append(first);
    }
    rows.in_order.truncate(limit);
    Ok((rows, more))
}

/// The part of the window that the order comes to at `ts` and after it.
fn range_from(scan: &QueryScan, ts: Timestamp) -> TimeRange {
    match scan.order {
        SortOrder::Desc => scan.window.before(TimeRange::at(ts).until),
        SortOrder::Asc => scan.window.from(ts),
    }
}

/// The part of the window that the order comes to after `ts`.
fn range_after(scan: &QueryScan, ts: Timestamp) -> TimeRange {
    match scan.order {
        SortOrder::Desc => scan.window.before(ts),
        SortOrder::Asc => scan.window.from(TimeRange::at(ts).until),
    }
}

/// The first `count` rows of the window; of the last `ts` among them, any.
async fn first_rows(scan: &QueryScan, window: TimeRange, count: usize) -> Result<Vec<RecordBatch>, Error> {
    let frame = scan.frame(window, layout(scan.order))?;
    Ok(frame
        .sort(by_time(scan.order))?
        .limit(0, Some(count))?
        .collect()
        .await?)
}

/// What the order wants of a plan: files are of no help to the oldest first.
const fn layout(order: SortOrder) -> RowOrder {
    match order {
        SortOrder::Desc => RowOrder::NewestFirst,
        SortOrder::Asc => RowOrder::Any,
    }
}

/// The rows of a `ts`, each with its hash.
fn hashed_rows(scan: &QueryScan, ts: Timestamp) -> Result<DataFrame, Error> {
    let frame = scan.frame(range_from(scan, ts), RowOrder::Any)?;
    let frame = frame.filter(ident("ts").eq(crate::filter::timestamp_literal(ts)))?;
    Ok(frame.with_column(HASH, FunctionKind::RowHash.call(own_columns(scan)))?)
}

fn own_columns(scan: &QueryScan) -> Vec<Expr> {
    let columns = scan.table().columns().iter();
    columns.map(|column| ident(column.name)).collect()
}

/// The rows of the position's `ts` after it, in order; at most `count`.
async fn ties(scan: &QueryScan, from: KeysetPosition, count: usize) -> Result<Vec<RecordBatch>, Error> {
    let skip = usize::try_from(from.seen.min(MAX_SKIP)).unwrap_or(usize::MAX);
    let is_after = match scan.ties_reversed {
        true => ident(HASH).lt_eq(lit(!from.hash)),
        false => ident(HASH).gt_eq(lit(from.hash)),
    };
    let frame = hashed_rows(scan, from.moment())?
        .filter(is_after)?
        .sort(vec![ident(HASH).sort(!scan.ties_reversed, false)])?
        .limit(skip, Some(count))?
        .select(own_columns(scan))?;
    Ok(frame.collect().await?)
}

/// The position before the row number `offset`; `None` if there are not so many.
async fn locate(scan: &QueryScan, offset: usize) -> Result<Option<KeysetPosition>, Error> {
    let total = scan.frame(scan.window, RowOrder::Any)?.count().await?;
    if offset >= total {
        return Ok(None);
    }
    let times = scan.frame(scan.window, layout(scan.order))?.select(vec![ident("ts")])?;
    let found = times
        .sort(by_time(scan.order))?
        .limit(offset, Some(1))?
        .collect()
        .await?;
    let Some(ts) = found.iter().find_map(|batch| times_of(batch).first().copied()) else {
        return Ok(None);
    };
    let moment = crate::filter::timestamp_literal(Timestamp::from_micros(ts));
    let is_before = match scan.order {
        SortOrder::Desc => ident("ts").gt(moment),
        SortOrder::Asc => ident("ts").lt(moment),
    };
    let before = scan.frame(scan.window, RowOrder::Any)?.filter(is_before)?;
    let seen = offset.saturating_sub(before.count().await?);
    Ok(Some(KeysetPosition {
        ts,
        hash: 0,
        seen: seen as u64,
    }))
}

/// A batch of a table with exactly its columns' types, which plans vary.
fn cast_columns(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Error> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()));
    Ok(RecordBatch::try_new(
        Arc::clone(schema),
        columns.collect::<Result<_, _>>()?,
    )?)
}

pub(crate) fn by_time(order: SortOrder) -> Vec<SortExpr> {
    vec![ident("ts").sort(order == SortOrder::Asc, true)]
}

/// One row of a batch with its place in the order.
pub(crate) struct RowRef {
    /// Which batch.
    pub(crate) batch: usize,
    pub(crate) index: usize,
    pub(crate) ts: i64,
    pub(crate) hash: u64,
}

#[derive(Default)]
pub(crate) struct SortedRows {
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) in_order: Vec<RowRef>,
    /// Whether hashes are complements.
    ties_reversed: bool,
}

impl SortedRows {
    /// All rows of batches.
    pub(crate) fn of(batches: Vec<RecordBatch>, order: SortOrder) -> Result<Self, Error> {
        Self::default().filled(batches, order)
    }

    /// All rows of batches in the order of a scan.
    fn of_scan(batches: Vec<RecordBatch>, scan: &QueryScan) -> Result<Self, Error> {
        let rows = Self {
            ties_reversed: scan.ties_reversed,
            ..Self::default()
        };
        rows.filled(batches, scan.order)
    }

    fn filled(mut self, batches: Vec<RecordBatch>, order: SortOrder) -> Result<Self, Error> {
        self.extend(batches)?;
        self.in_order
            .sort_by_key(|row| (std::cmp::Reverse(rank(order, row.ts)), row.hash));
        Ok(self)
    }

    fn extend(&mut self, batches: Vec<RecordBatch>) -> Result<(), Error> {
        for batch in batches {
            let mut hashes = hash_rows(batch.columns(), batch.num_rows())?;
            if self.ties_reversed {
                hashes.iter_mut().for_each(|hash| *hash = !*hash);
            }
            let number = self.batches.len();
            let places = times_of(&batch).iter().zip(hashes).enumerate();
            self.in_order.extend(places.map(|(index, (ts, hash))| RowRef {
                batch: number,
                index,
                ts: *ts,
                hash,
            }));
            self.batches.push(batch);
        }
        Ok(())
    }

    /// Adds rows that come after these.
    fn append(&mut self, more: Self) {
        let first = self.batches.len();
        self.batches.extend(more.batches);
        self.in_order.extend(more.in_order.into_iter().map(|row| RowRef {
            batch: row.batch + first,
            ..row
        }));
    }

    /// The rows in order, but for the first `skip`, as one batch with the columns of a table.
    pub(crate) fn concat_rows(&self, skip: usize, schema: &SchemaRef) -> Result<RecordBatch, Error> {
        let shown = self.in_order.get(skip..).unwrap_or_default();
        if shown.is_empty() {
            return Ok(RecordBatch::new_empty(Arc::clone(schema)));
        }
        let batches = self.batches.iter().map(|batch| cast_columns(batch, schema));
        let batches = batches.collect::<Result<Vec<_>, _>>()?;
        let places: Vec<_> = shown.iter().map(|row| (row.batch, row.index)).collect();
        Ok(interleave_record_batch(&batches.iter().collect::<Vec<_>>(), &places)?)
    }

    /// Leaves out what comes before the position, among the rows of its `ts`.
    fn begin_after(&mut self, from: KeysetPosition) {
        self.in_order.retain(|row| row.ts != from.ts || row.hash >= from.hash);
        let ties = self.in_order.iter().take_while(|row| row.ts == from.ts).count();
        let seen = usize::try_from(from.seen.min(MAX_SKIP)).unwrap_or(usize::MAX);
        self.in_order.drain(..ties.min(seen));
    }

    /// Replaces the rows of the last `ts`, of which some may be missing, by the first of all rows of that `ts`, so that
    /// there are `wanted` in all.
    async fn complete_last_ties(&mut self, scan: &QueryScan, wanted: usize) -> Result<(), Error> {
        let Some(ts) = self.in_order.last().map(|row| row.ts) else {
            return Ok(());
        };
        self.in_order.retain(|row| row.ts != ts);
        let missing = wanted.saturating_sub(self.in_order.len());
        if missing > 0 {
            let start = KeysetPosition { ts, hash: 0, seen: 0 };
            self.extend(ties(scan, start, missing).await?)?;
        }
        Ok(())
    }

    /// How many rows that are equal to the one of this number come before it, those of earlier pages included.
    fn equal_before(&self, number: usize, from: Option<KeysetPosition>) -> u64 {
        let (Some(row), Some(before)) = (self.in_order.get(number), self.in_order.get(..number)) else {
            return 0;
        };
        let place = (row.ts, row.hash);
        let equal = before.iter().rev();
        let equal = equal.take_while(|other| (other.ts, other.hash) == place).count();
        // The page did not get beyond the rows that the position counts.
        let earlier = from.filter(|from| equal == number && (from.ts, from.hash) == place);
        earlier.map_or(0, |from| from.seen).saturating_add(equal as u64)
    }

    /// The position after the last row.
    fn position_after(&self, from: Option<KeysetPosition>) -> Option<KeysetPosition> {
        let last = self.in_order.last()?;
        let before = self.equal_before(self.in_order.len() - 1, from);
        Some(KeysetPosition {
            ts: last.ts,
            hash: last.hash,
            seen: before.saturating_add(1),
        })
    }
}
