//! Backlog of a tail: the rows of a snapshot, oldest first, a slice of time at a time.
//!
//! The scan finds newest rows; a slice is a stretch of time that has about [`SLICE`] of them, or [`BYTES`], or that takes a part of the time that
//! a query may take. Stretches without rows are skipped by what the catalogue knows. Within a slice rows are ordered by `ts`, then by the hash of all columns, as pages of lists are.
//!
//! # Going on after a break
//!
//! The token of a row says which place in the order of arrival the backlog began at, and how far it was given; after a slice, up to which time all
//! was looked at, so that a filter that lets nothing through gets on too. A new view has more rows: those
//! that arrived since. They are live rows, so as many rows like them are left out here; equal rows are interchangeable.
//!
//! # Invariants
//!
//! - A slice's rows are held while its texts are made; they count as memory of queries until then, in the form in which they are shown.
//! - Rows for which there is not the memory, or the time, are asked for in shorter stretches. Those of one `ts` are found together and held
//!   a slice at a time. Only where they are too many to be found the backlog ends.
//! - The time that a backlog waits for others is not its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::RecordBatch;
use bytes::{Bytes, BytesMut};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{Expr, ident};
use engine::ReadView;
use futures::TryStreamExt as _;
use model::Timestamp;
use model::filter::SortOrder;
use tokio::sync::SemaphorePermit;

use super::event_text::write_row;
use super::resume_token::ResumeToken;
use super::{TEXT, TailRendering, TailService};
use crate::Error;
use crate::admission_gate::AdmissionGate;
use crate::cursor::KeysetPosition;
use crate::data_scope::DataScope;
use crate::keyset_pagination::{RowRef, SortedRows, by_time};
use crate::message_rendering::{self, render_json};
use crate::query_caller::QueryCaller;
use crate::query_scan::QueryScan;
use crate::scalar_functions::hash_rows;
use crate::scan::times_of;
use crate::time_range::TimeRange;
use crate::view_table::RowOrder;

/// Rows of a slice.
const SLICE: usize = 1024;
/// Their bytes, unless one row has more.
const BYTES: usize = 1 << 20;
/// The first stretch that is tried, in microseconds.
const FIRST: i64 = 1_000_000;
/// A stretch that takes more than this part of the time of a query is not followed by a longer one.
const QUICK: u32 = 8;

/// What a tail sees, and for whom it reads.
type TailSubject = (Arc<DataScope>, Option<Arc<QueryCaller>>);

/// See the module.
pub(super) struct TailBacklog {
    view: ReadView,
    shown: TailRendering,
    subject: TailSubject,
    conditions: Vec<Expr>,
    boundary: ResumeToken,
    /// What was given.
    after: KeysetPosition,
    /// The next slice begins here.
    from: i64,
    until: i64,
    width: i64,
    /// How many rows of a `ts` and hash are not of the backlog.
    others: HashMap<(i64, u64), u64>,
    /// When it ends, however far it is.
    deadline: tokio::time::Instant,
}

/// What a slice is of its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SliceCoverage {
    /// All of it, and a longer one could be asked for.
    Small,
    Whole,
    /// The first rows of one `ts`.
    Part,
}

/// Some rows.
pub(super) struct BacklogSlice {
    /// Those that are yet to be given.
    rows: std::vec::IntoIter<RowRef>,
    batches: Vec<RecordBatch>,
    _memory: MemoryReservation,
}

impl TailBacklog {
    pub(super) fn new(
        view: ReadView,
        (shown, window): (TailRendering, TimeRange),
        (subject, conditions): (TailSubject, Vec<Expr>),
        boundary: ResumeToken,
        after: KeysetPosition,
        deadline: tokio::time::Instant,
    ) -> Self {
        Self {
            view,
            shown,
            subject,
            conditions,
            boundary,
            after,
            from: after.ts.max(window.since.micros()),
            until: window.until.micros(),
            width: FIRST,
            others: HashMap::new(),
            deadline,
        }
    }

    pub(super) const fn deadline(&self) -> tokio::time::Instant {
        self.deadline
    }

    /// Whether it has had its time.
    pub(super) fn is_late(&self) -> bool {
        tokio::time::Instant::now() >= self.deadline
    }

    /// A place for a look at the store.
    async fn enter<'a>(&mut self, gate: &'a AdmissionGate) -> Result<[SemaphorePermit<'a>; 2], Error> {
        let asked = tokio::time::Instant::now();
        let place = gate.enter_tail().await?;
        self.deadline += asked.elapsed();
        Ok(place)
    }

    /// Where a reader goes on that has what was given.
    pub(super) const fn token(&self) -> ResumeToken {
        self.token_of(self.after)
    }

    const fn token_of(&self, after: KeysetPosition) -> ResumeToken {
        ResumeToken {
            after: Some(after),
            ..self.boundary
        }
    }

    /// Where a reader goes on when all of the last slice were given.
    pub(super) fn advance_past_slice(&mut self) -> ResumeToken {
        if self.from > self.after.ts {
            self.after = KeysetPosition {
                ts: self.from,
                hash: 0,
                seen: 0,
            };
        }
        self.token()
    }

    /// Notes that what comes up to a place was given.
    pub(super) const fn set_given(&mut self, given: KeysetPosition) {
        self.after = given;
    }

    /// Notes rows that are in the view and not of the backlog.
    pub(super) fn exclude_rows(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let hashes = hash_rows(rows.columns(), rows.num_rows())?;
        for (ts, hash) in times_of(rows).iter().zip(hashes) {
            if (*ts, hash) >= (self.after.ts, self.after.hash) {
                *self.others.entry((*ts, hash)).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Leaves out all but the newest rows.
    pub(super) async fn keep_newest(&mut self, tails: &TailService, count: usize) -> Result<(), Error> {
        let _place = self.enter(&tails.gate).await?;
        let (rows, count) = tails.with_timeout(self.newest(tails, count)).await?;
        let Some(first) = rows.len().checked_sub(count) else {
            return Ok(());
        };
        let (before, rest) = rows.split_at(first);
        if let Some(row) = rest.first() {
            let equal = before
                .iter()
                .rev()
                .take_while(|other| (other.ts, other.hash) == (row.ts, row.hash));
            self.after = KeysetPosition {
                ts: row.ts,
                hash: row.hash,
                seen: equal.count() as u64,
            };
            self.from = row.ts;
        }
        Ok(())
    }

    /// Rows in order that have the newest ones at their end, and how many of them are to be given.
    async fn newest(&self, tails: &TailService, count: usize) -> Result<(Vec<RowRef>, usize), Error> {
        let window = self.window(self.from, self.until);
        match self.find(tails, window, count, true).await {
            Ok((batches, _memory)) => Ok((SortedRows::of(batches, SortOrder::Asc)?.in_order, count)),
            Err(error) if error.lacks_memory() => self.first_of(tails, window, count).await,
            Err(error) => Err(error),
        }
    }

    /// The rows of the `ts` at which the newest `count` rows begin, and how many of them are among those; none if there are not so many.
    async fn first_of(
        &self,
        tails: &TailService,
        window: TimeRange,
        count: usize,
    ) -> Result<(Vec<RowRef>, usize), Error> {
        let times = self.newest_times(tails, window, count).await?;
        let Some(ts) = count.checked_sub(1).and_then(|last| times.get(last)).copied() else {
            return Ok((Vec::new(), 0));
        };
        let window = TimeRange::at(Timestamp::from_micros(ts));
        let (batches, _memory) = self.find(tails, window, 1, false).await?;
        Ok((
            SortedRows::of(batches, SortOrder::Asc)?.in_order,
            times.iter().filter(|time| **time == ts).count(),
        ))
    }

    /// The rows of the next stretch, if there are any in it; `None` after the last.
    pub(super) async fn slice(&mut self, tails: &TailService) -> Result<Option<BacklogSlice>, Error> {
        while let Some(begin) = self.next_time() {
            if self.is_late() {
                return Err(Error::Timeout(tails.timeout.into()));
            }
            let end = begin.saturating_add(self.width).min(self.until);
            let window = self.window(begin, end);
            let place = self.enter(&tails.gate).await?;
            let began = Instant::now();
            let found = tails.with_timeout(self.rows(tails, window)).await;
            let is_quick = began.elapsed() < tails.timeout / QUICK;
            drop(place);
            let (slice, size) = match found {
                Ok(Some(found)) => found,
                Err(error) if is_least(window) || !is_of_size(&error) => return Err(error),
                _ => {
                    self.width = (self.width / 4).max(1);
                    continue;
                }
            };
            if size == SliceCoverage::Small && is_quick {
                self.width = self.width.saturating_mul(4);
            }
            self.from = if size == SliceCoverage::Part { begin } else { end };
            return Ok(Some(slice));
        }
        Ok(None)
    }

    /// The rows of a window as they are shown; `None` if they are more than a slice should have, and a shorter one has fewer.
    async fn rows(
        &self,
        tails: &TailService,
        window: TimeRange,
    ) -> Result<Option<(BacklogSlice, SliceCoverage)>, Error> {
        let (batches, memory) = self.find(tails, window, SLICE + 1, false).await?;
        let bytes = memory.size();
        let mut rows = SortedRows::of(batches, SortOrder::Asc)?;
        let count = rows.in_order.len();
        let is_large = count > SLICE || (bytes > BYTES && count > 1);
        if is_large && !is_least(window) {
            return Ok(None);
        }
        let is_small = count < SLICE / 4 && bytes < BYTES / 4;
        let mut size = if is_small {
            SliceCoverage::Small
        } else {
            SliceCoverage::Whole
        };
        rows.in_order = self.remaining_rows(rows.in_order);
        let most = SLICE.min(count.saturating_mul(BYTES) / bytes.max(1)).max(1);
        if is_large {
            if rows.in_order.len() > most {
                rows.in_order.truncate(most);
                size = SliceCoverage::Part;
            }
            // Without those that are not held.
            rows.batches = vec![rows.concat_rows(0, &self.shown.table.schema())?];
            (0..)
                .zip(&mut rows.in_order)
                .for_each(|(index, row)| (row.batch, row.index) = (0, index));
        }
        let shown = rows
            .batches
            .iter()
            .map(|batch| message_rendering::render_messages(batch, self.shown.raw, Some(&memory)));
        let shown = shown.collect::<Result<Vec<_>, _>>()?;
        memory.try_resize(shown.iter().map(RecordBatch::get_array_memory_size).sum())?;
        let slice = BacklogSlice {
            rows: rows.in_order.into_iter(),
            batches: shown,
            _memory: memory,
        };
        Ok(Some((slice, size)))
    }

    /// Rows in order without those that are none of the backlog or were given. Of equal rows the first ones are.
    fn remaining_rows(&self, rows: Vec<RowRef>) -> Vec<RowRef> {
        let after = (self.after.ts, self.after.hash);
        let mut left = Vec::with_capacity(rows.len());
        let (mut equal_to, mut past) = (None, 0);
        for row in rows {
            let place = (row.ts, row.hash);
            if equal_to.replace(place) != Some(place) {
                let given = if place == after { self.after.seen } else { 0 };
                past = self.others.get(&place).copied().unwrap_or(0).saturating_add(given);
            }
            if place < after || past > 0 {
                past = past.saturating_sub(1);
            } else {
                left.push(row);
            }
        }
        left
    }

    /// The next text of a slice, not much longer than is sent at once, and the place behind its rows; `None` after the last.
    pub(super) fn text(&self, slice: &mut BacklogSlice) -> Option<(Bytes, KeysetPosition)> {
        let (mut text, mut given) = (BytesMut::new(), self.after);
        while text.len() < TEXT {
            let Some(row) = slice.rows.next() else { break };
            let is_equal = (row.ts, row.hash) == (given.ts, given.hash);
            given = KeysetPosition {
                ts: row.ts,
                hash: row.hash,
                seen: if is_equal { given.seen + 1 } else { 1 },
            };
            if let Some(batch) = slice.batches.get(row.batch) {
                let row = render_json(batch, row.index, self.shown.raw);
                write_row(&mut text, &self.token_of(given), &row);
            }
        }
        (!text.is_empty()).then(|| (text.freeze(), given))
    }

    /// The earliest time from the next slice's beginning on that a row can have.
    fn next_time(&self) -> Option<i64> {
        let files = self
            .view
            .files(self.shown.table)
            .iter()
            .map(|file| (file.min_ts, file.max_ts));
        let hot = self
            .view
            .hot(self.shown.table)
            .iter()
            .map(|hot| (hot.min_ts, hot.max_ts));
        let times = files.chain(hot).filter(|(_, max)| max.micros() >= self.from);
        let first = times.map(|(min, _)| min.micros().max(self.from)).min()?;
        (first < self.until).then_some(first)
    }

    fn window(&self, since: i64, until: i64) -> TimeRange {
        TimeRange {
            since: Timestamp::from_micros(since),
            until: Timestamp::from_micros(until),
        }
    }

    /// The times of the newest rows of a window, the newest first.
    async fn newest_times(&self, tails: &TailService, window: TimeRange, count: usize) -> Result<Vec<i64>, Error> {
        let times = self.scan(tails, window)?.frame(window, RowOrder::NewestFirst)?;
        let times = times.select(vec![ident("ts")])?.sort(by_time(SortOrder::Desc))?;
        let batches = times.limit(0, Some(count))?.collect().await?;
        Ok(batches.iter().flat_map(|batch| times_of(batch).to_vec()).collect())
    }

    fn scan(&self, tails: &TailService, window: TimeRange) -> Result<QueryScan, Error> {
        let looked_at = (tails.sessions.acquire_session(), self.view.clone());
        let conditions = self.conditions.clone();
        let (scope, caller) = &self.subject;
        let scan = QueryScan::new(looked_at, scope, self.shown.table, window, conditions)?;
        Ok(scan.charged_to(caller.clone()))
    }

    /// The newest rows of a window, with all that share the last `ts`. Where a plan must find them: so many, if only the newest are
    /// wanted or there is a shorter window; else all.
    async fn find(
        &self,
        tails: &TailService,
        window: TimeRange,
        wanted: usize,
        only_newest: bool,
    ) -> Result<(Vec<RecordBatch>, MemoryReservation), Error> {
        let scan = self.scan(tails, window)?;
        if let Some(found) = scan.top_k(window, None, 0, wanted).await? {
            return Ok((found.batches, found.memory));
        }
        let rows = if only_newest {
            scan.frame(window, RowOrder::NewestFirst)?
                .sort(by_time(SortOrder::Desc))?
        } else {
            scan.frame(window, RowOrder::Any)?
        };
        let most = (only_newest || !is_least(window)).then_some(wanted);
        let mut rows = rows.limit(0, most)?.execute_stream().await?;
        let (memory, mut batches) = (scan.memory("backlog"), Vec::new());
        while let Some(batch) = rows.try_next().await? {
            memory.try_grow(batch.get_array_memory_size())?;
            batches.push(batch);
        }
        Ok((batches, memory))
    }
}

/// Whether less may be answered.
fn is_of_size(error: &Error) -> bool {
    error.lacks_memory() || matches!(error, Error::Timeout(_))
}

/// Whether there is no shorter stretch of time.
const fn is_least(window: TimeRange) -> bool {
    window.until.micros() - window.since.micros() <= 1
}
