//! The rows of a view, oldest first, a slice of time at a time.
//!
//! The scan finds newest rows; a slice is a stretch of time that has about [`SLICE`] of them, or [`BYTES`]. Stretches without rows are
//! skipped by what the catalogue knows. Within a slice rows are ordered by `ts`, then by the hash of all columns, as pages of lists are.
//!
//! # Going on after a break
//!
//! The token of a row says which place in the order of arrival the backlog began at, and how far it was given. A new view has more rows: those
//! that arrived since. They are live rows, so as many rows like them are left out here; equal rows are interchangeable.
//!
//! # Invariants
//!
//! - A slice's rows are held while its texts are made; they count as memory of queries until then, in the form in which they are shown.
//! - Rows for which there is not the memory are asked for in shorter stretches. Only where those of one `ts` are too many the tail ends.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use bytes::{Bytes, BytesMut};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{Expr, ident};
use engine::ReadView;
use model::Timestamp;
use model::filter::SortOrder;

use super::text::write_row;
use super::token::Token;
use super::{Shown, TEXT, Tails};
use crate::Error;
use crate::cursor::Position;
use crate::exec::Scan;
use crate::functions::hash_rows;
use crate::messages::{self, shown_json};
use crate::rows::{Row, Rows, by_time};
use crate::scan::times_of;
use crate::table::Order;
use crate::window::Window;

/// Rows of a slice, unless more share one `ts`.
const SLICE: usize = 1024;
/// Their bytes, unless one row has more.
const BYTES: usize = 8 << 20;
/// The first stretch that is tried, in microseconds.
const FIRST: i64 = 1_000_000;
/// How long a backlog may take: it keeps its view's files.
const PATIENCE: Duration = Duration::from_secs(600);

/// See the module.
pub(super) struct Backlog {
    view: ReadView,
    shown: Shown,
    conditions: Vec<Expr>,
    boundary: Token,
    /// What was given.
    after: Position,
    /// So many rows like the last given one are yet to be left out: they were given.
    skip: u64,
    /// The next slice begins here.
    from: i64,
    until: i64,
    width: i64,
    /// How many rows of a `ts` and hash are not of the backlog.
    others: HashMap<(i64, u64), u64>,
    began: Instant,
}

/// Some rows.
pub(super) struct Slice {
    rows: Vec<Row>,
    batches: Vec<RecordBatch>,
    /// What was read for it.
    bytes: usize,
    _memory: Option<MemoryReservation>,
}

impl Backlog {
    pub(super) fn new(
        view: ReadView,
        (shown, window, conditions): (Shown, Window, Vec<Expr>),
        boundary: Token,
        after: Position,
    ) -> Self {
        Self {
            view,
            shown,
            conditions,
            boundary,
            after,
            skip: after.seen,
            from: after.ts.max(window.since.micros()),
            until: window.until.micros(),
            width: FIRST,
            others: HashMap::new(),
            began: Instant::now(),
        }
    }

    /// Where a reader goes on that has what was given.
    pub(super) const fn token(&self) -> Token {
        Token {
            after: Some(self.after),
            ..self.boundary
        }
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.began.elapsed() > PATIENCE
    }

    /// Notes rows that are in the view and not of the backlog.
    pub(super) fn leave_out(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let hashes = hash_rows(rows.columns(), rows.num_rows())?;
        for (ts, hash) in times_of(rows).iter().zip(hashes) {
            if (*ts, hash) >= (self.after.ts, self.after.hash) {
                *self.others.entry((*ts, hash)).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Leaves out all but the newest rows.
    pub(super) async fn keep_newest(&mut self, tails: &Tails, count: usize) -> Result<(), Error> {
        let window = self.window(self.from, self.until);
        let (rows, count) = match self.find(tails, window, count, true).await {
            Ok((batches, _memory)) => (Rows::of(batches, SortOrder::Asc)?.in_order, count),
            Err(error) if error.lacks_memory() => self.first_of(tails, window, count).await?,
            Err(error) => return Err(error),
        };
        let Some(first) = rows.len().checked_sub(count) else {
            return Ok(());
        };
        let (before, rest) = rows.split_at(first);
        if let Some(row) = rest.first() {
            let equal = before
                .iter()
                .rev()
                .take_while(|other| (other.ts, other.hash) == (row.ts, row.hash));
            self.after = Position {
                ts: row.ts,
                hash: row.hash,
                seen: equal.count() as u64,
            };
            self.skip = self.after.seen;
            self.from = row.ts;
        }
        Ok(())
    }

    /// The rows of the `ts` at which the newest `count` rows begin, and how many of them are among those; none if there are not so many.
    async fn first_of(&self, tails: &Tails, window: Window, count: usize) -> Result<(Vec<Row>, usize), Error> {
        let times = self.newest_times(tails, window, count).await?;
        let Some(ts) = count.checked_sub(1).and_then(|last| times.get(last)).copied() else {
            return Ok((Vec::new(), 0));
        };
        let window = Window::at(Timestamp::from_micros(ts));
        let (batches, _memory) = self.find(tails, window, 1, false).await?;
        Ok((
            Rows::of(batches, SortOrder::Asc)?.in_order,
            times.iter().filter(|time| **time == ts).count(),
        ))
    }

    /// The next rows; `None` after the last.
    pub(super) async fn slice(&mut self, tails: &Tails) -> Result<Option<Slice>, Error> {
        while let Some(begin) = self.next_time() {
            let end = begin.saturating_add(self.width).min(self.until);
            let window = self.window(begin, end);
            let mut slice = match self.rows(tails, window).await {
                Ok(Some(slice)) => slice,
                Err(error) if is_least(window) || !error.lacks_memory() => return Err(error),
                _ => {
                    self.width = (self.width / 4).max(1);
                    continue;
                }
            };
            if slice.rows.len() < SLICE / 4 && slice.bytes < BYTES / 4 {
                self.width = self.width.saturating_mul(4);
            }
            self.from = end;
            slice.rows.retain(|row| !self.is_past(row));
            if !slice.rows.is_empty() {
                return Ok(Some(slice));
            }
        }
        Ok(None)
    }

    /// The rows of a window as they are shown; `None` if they are more than a slice should have.
    async fn rows(&self, tails: &Tails, window: Window) -> Result<Option<Slice>, Error> {
        let (batches, memory) = self.find(tails, window, SLICE + 1, false).await?;
        let bytes = memory.as_ref().map_or(0, MemoryReservation::size);
        let Rows {
            batches,
            in_order: rows,
        } = Rows::of(batches, SortOrder::Asc)?;
        let is_large = rows.len() > SLICE || (bytes > BYTES && rows.len() > 1);
        if is_large && !is_least(window) {
            return Ok(None);
        }
        let shown = batches.iter().map(|batch| messages::shown(batch, self.shown.raw));
        let shown = shown.collect::<Result<Vec<_>, _>>()?;
        drop(batches);
        if let Some(memory) = &memory {
            memory.try_resize(shown.iter().map(RecordBatch::get_array_memory_size).sum())?;
        }
        Ok(Some(Slice {
            rows,
            batches: shown,
            bytes,
            _memory: memory,
        }))
    }

    /// Whether a row is none of the backlog or was given. Of equal rows the first ones are.
    fn is_past(&mut self, row: &Row) -> bool {
        if (row.ts, row.hash) < (self.after.ts, self.after.hash) {
            return true;
        }
        if let Some(others) = self.others.get_mut(&(row.ts, row.hash)).filter(|others| **others > 0) {
            *others -= 1;
            return true;
        }
        if (row.ts, row.hash) == (self.after.ts, self.after.hash) && self.skip > 0 {
            self.skip -= 1;
            return true;
        }
        false
    }

    /// The texts of a slice, none much longer than is sent at once; what they say counts as given.
    pub(super) fn texts<'a>(&'a mut self, slice: &'a Slice) -> impl Iterator<Item = Bytes> + 'a {
        let mut rows = slice.rows.iter();
        std::iter::from_fn(move || {
            let mut text = BytesMut::new();
            while text.len() < TEXT {
                let Some(row) = rows.next() else { break };
                self.pass(row);
                if let Some(batch) = slice.batches.get(row.batch) {
                    write_row(&mut text, &self.token(), &shown_json(batch, row.index, self.shown.raw));
                }
            }
            (!text.is_empty()).then(|| text.freeze())
        })
    }

    fn pass(&mut self, row: &Row) {
        let is_equal = (row.ts, row.hash) == (self.after.ts, self.after.hash);
        self.after = Position {
            ts: row.ts,
            hash: row.hash,
            seen: if is_equal { self.after.seen + 1 } else { 1 },
        };
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

    fn window(&self, since: i64, until: i64) -> Window {
        Window {
            since: Timestamp::from_micros(since),
            until: Timestamp::from_micros(until),
        }
    }

    /// The times of the newest rows of a window, the newest first.
    async fn newest_times(&self, tails: &Tails, window: Window, count: usize) -> Result<Vec<i64>, Error> {
        let _permit = tails.gate.wait().await?;
        let times = self.scan(tails, window).frame(window, Order::NewestFirst)?;
        let times = times.select(vec![ident("ts")])?.sort(by_time(SortOrder::Desc))?;
        let batches = times.limit(0, Some(count))?.collect().await?;
        Ok(batches.iter().flat_map(|batch| times_of(batch).to_vec()).collect())
    }

    fn scan(&self, tails: &Tails, window: Window) -> Scan {
        let (session, view) = (tails.sessions.one(), self.view.clone());
        Scan::new(session, view, self.shown.table, window, self.conditions.clone())
    }

    /// The newest rows of a window, with all that share the last `ts`; or, where a plan must find them, all if not only the newest are
    /// wanted.
    async fn find(
        &self,
        tails: &Tails,
        window: Window,
        wanted: usize,
        only_newest: bool,
    ) -> Result<(Vec<RecordBatch>, Option<MemoryReservation>), Error> {
        let _permit = tails.gate.wait().await?;
        let scan = self.scan(tails, window);
        if let Some(found) = scan.first(window, None, 0, wanted).await? {
            return Ok((found.batches, Some(found.memory)));
        }
        let rows = if only_newest {
            let rows = scan.frame(window, Order::NewestFirst)?.sort(by_time(SortOrder::Desc))?;
            rows.limit(0, Some(wanted))?
        } else {
            scan.frame(window, Order::Any)?
        };
        Ok((rows.collect().await?, None))
    }
}

/// Whether there is no shorter stretch of time.
const fn is_least(window: Window) -> bool {
    window.until.micros() - window.since.micros() <= 1
}
