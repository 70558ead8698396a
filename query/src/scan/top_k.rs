//! Top-k: the first rows of a window that meet conditions, with all that share the `ts` of the last.
//!
//! ```text
//! sources by frontier:  hot 12:30:01 │ group 12:29:59 │ segment 12:00:00 │ …      take the first, read on, put it back
//! kept:                 rows found, down to the cut: the rank of the row number `wanted`
//! done:                 every frontier is below the cut
//! ```
//!
//! # Invariants
//!
//! - Rows with the rank of the cut are all kept: which of them belong to a page is decided by their hashes, without another
//!   scan.
//! - The state is locked to take a source and to put it back, never while one is read.
//! - Until the end a found row is 16 bytes: its rank and where it is.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use datafusion::arrow::compute::take_record_batch;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use engine::DataFileHandle;
use model::Table;
use model::filter::SortOrder;
use parking_lot::Mutex;

use super::page_cache::PageCache;
use super::prune::PruningConditions;
use super::row_group_scan::read_rows;
use super::row_source::{RowLocation, RowSource, SourceStep};
use super::scan_filter::ScanFilter;
use super::scan_workers::ScanDeadline;
use super::{ScanTask, TopKRequest, TopKRows, rank};
use crate::Error;
use crate::segment_reader::ScanMeter;
use crate::time_range::TimeRange;

/// More rows than this beyond the wanted ones are not kept: a plan that spills sorts them.
pub(super) const MOST_TIES: usize = 1 << 16;

/// Why a scan ends early.
pub(super) enum ScanError {
    Failed(Error),
    /// The scan is not made for this: a plan answers.
    NotHere,
}

impl<E: Into<Error>> From<E> for ScanError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// One scan.
pub(super) struct TopKScan {
    pub(super) table: Table,
    pub(super) window: TimeRange,
    pub(super) order: SortOrder,
    pub(super) conditions: ScanFilter,
    output: ScanOutput,
    pub(super) needs: PruningConditions,
    pub(super) cache: Arc<PageCache>,
    pub(super) meter: Arc<ScanMeter>,
    /// What the scan holds counts against the memory of queries.
    pub(super) memory: MemoryReservation,
    patience: ScanDeadline,
    skip: usize,
    state: Mutex<TopKHeap>,
}

/// What is given of the rows.
struct ScanOutput {
    columns: Vec<usize>,
    schema: SchemaRef,
}

#[derive(Default)]
struct TopKHeap {
    sources: BinaryHeap<RowSource>,
    /// Held once more for each source that is being read, however that ends.
    taken: Arc<()>,
    wanted: usize,
    /// Rows of this rank are kept and not counted.
    uncounted: Option<i64>,
    /// The ranks of the first `wanted` rows that count, the last on top.
    first: BinaryHeap<Reverse<i64>>,
    kept: Vec<RankedRow>,
    /// Forget what is below the cut at so many.
    tidy_at: usize,
    places: Vec<Option<RowLocation>>,
    away: Vec<Arc<DataFileHandle>>,
}

#[derive(Debug, Clone, Copy)]
struct RankedRow {
    rank: i64,
    place: u32,
    row: u32,
}

impl TopKScan {
    pub(super) fn new(
        session: &SessionState,
        request: &TopKRequest<'_>,
        needs: PruningConditions,
        cache: &Arc<PageCache>,
        patience: ScanDeadline,
    ) -> Result<Self, Error> {
        let wanted = request.wanted.max(1);
        let state = TopKHeap {
            sources: RowSource::all(request).into(),
            wanted,
            uncounted: request.uncounted.map(|ts| rank(request.order, ts)),
            tidy_at: tidy_at(wanted, 0),
            ..TopKHeap::default()
        };
        Ok(Self {
            table: request.table,
            window: request.window,
            order: request.order,
            conditions: ScanFilter::new(session, request.table, request.conditions)?,
            output: ScanOutput {
                columns: request.columns.to_vec(),
                schema: Arc::new(request.table.schema().project(request.columns)?),
            },
            needs,
            cache: Arc::clone(cache),
            meter: Arc::clone(request.meter),
            memory: MemoryConsumer::new("scan").register(&session.runtime_env().memory_pool),
            patience,
            skip: request.skip,
            state: Mutex::new(state),
        })
    }

    /// Ends the scan if it was cancelled.
    pub(super) fn check(&self) -> Result<(), ScanError> {
        Ok(self.patience.check()?)
    }

    /// The times that are wanted, given the cut.
    pub(super) fn wanted(&self, cut: Option<i64>) -> Range<i64> {
        let (since, until) = (self.window.since.micros(), self.window.until.micros());
        match (self.order, cut) {
            (_, None) => since..until,
            (SortOrder::Desc, Some(cut)) => since.max(cut)..until,
            (SortOrder::Asc, Some(cut)) => since..until.min(rank(self.order, cut).saturating_add(1)),
        }
    }

    /// A batch of what is given, counted.
    fn hold(&self, batch: &RecordBatch, memory: &MemoryReservation) -> Result<RecordBatch, ScanError> {
        self.check()?;
        memory.try_grow(batch.get_array_memory_size())?;
        Ok(RecordBatch::try_new(
            Arc::clone(&self.output.schema),
            batch.columns().to_vec(),
        )?)
    }
}

impl ScanTask for TopKScan {
    type Found = TopKRows;

    fn work(&self, until: Instant) -> Result<(), ScanError> {
        loop {
            self.check()?;
            let Some((source, cut, taken)) = self.state.lock().take() else {
                return Ok(());
            };
            let place = source.place;
            let step = source.step(self, cut)?;
            self.state.lock().put(self.order, place, step)?;
            drop(taken);
            if Instant::now() >= until {
                return Ok(());
            }
        }
    }

    fn is_done(&self) -> bool {
        let state = self.state.lock();
        Arc::strong_count(&state.taken) == 1 && state.away.is_empty() && state.is_done()
    }

    fn take_remote(&self) -> Vec<Arc<DataFileHandle>> {
        std::mem::take(&mut self.state.lock().away)
    }

    fn take_result(&self) -> Result<TopKRows, ScanError> {
        let (mut kept, places) = {
            let mut state = self.state.lock();
            state.drop_below_cut()?;
            (std::mem::take(&mut state.kept), std::mem::take(&mut state.places))
        };
        kept.sort_unstable_by_key(|row| (Reverse(row.rank), row.place, row.row));
        let skipped = match kept.get(self.skip) {
            // Rows before the first that is not skipped are not looked at any more.
            Some(first) => kept.partition_point(|row| row.rank > first.rank),
            None => kept.len(),
        };
        let mut rows = kept.split_off(skipped);
        rows.sort_unstable_by_key(|row| (row.place, row.row));
        let memory = self.memory.new_empty();
        let mut batches = Vec::new();
        for of_place in rows.chunk_by(|a, b| a.place == b.place) {
            let place = of_place.first().and_then(|row| places.get(row.place as usize));
            let numbers: Vec<u32> = of_place.iter().map(|row| row.row).collect();
            match place {
                Some(Some(RowLocation::Memory { rows, .. })) => {
                    let taken = take_record_batch(&rows.project(&self.output.columns)?, &UInt32Array::from(numbers))?;
                    batches.push(self.hold(&taken, &memory)?);
                }
                Some(Some(RowLocation::Group(group))) => {
                    for batch in read_rows(group, self.table, &self.output.columns, &numbers)? {
                        batches.push(self.hold(&batch?, &memory)?);
                    }
                }
                _ => return Err(DataFusionError::Internal("a found row is nowhere".to_owned()).into()),
            }
        }
        Ok(TopKRows {
            batches,
            skipped,
            memory,
        })
    }
}

impl TopKHeap {
    /// The rank below which no row is wanted.
    fn cut(&self) -> Option<i64> {
        let full = self.first.len() >= self.wanted;
        self.first.peek().filter(|_| full).map(|last| last.0)
    }

    fn is_done(&self) -> bool {
        match (self.sources.peek(), self.cut()) {
            (None, _) => true,
            (Some(next), Some(cut)) => next.frontier < cut,
            (Some(_), None) => false,
        }
    }

    fn take(&mut self) -> Option<(RowSource, Option<i64>, Arc<()>)> {
        if self.is_done() || !self.away.is_empty() {
            return None;
        }
        Some((self.sources.pop()?, self.cut(), Arc::clone(&self.taken)))
    }

    fn put(&mut self, order: SortOrder, place: Option<u32>, step: SourceStep) -> Result<(), ScanError> {
        let mut place = place;
        self.away.extend(step.away);
        if place.is_none() && !step.hits.is_empty() {
            place = u32::try_from(self.places.len()).ok();
            self.places.push(step.place);
        }
        if let Some(place) = place {
            for (ts, row) in step.hits {
                let rank = rank(order, ts);
                self.push_row(RankedRow { rank, place, row });
            }
        }
        self.sources.extend(step.next.into_iter().map(|mut source| {
            // A place belongs to what is read on, not to the parts of what was opened.
            source.place = place.filter(|_| source.keeps_place());
            source
        }));
        if self.kept.len() >= self.tidy_at {
            self.drop_below_cut()?;
        }
        Ok(())
    }

    fn push_row(&mut self, row: RankedRow) {
        if self.uncounted != Some(row.rank) {
            match self.cut() {
                Some(cut) if row.rank < cut => return,
                Some(cut) if row.rank > cut => {
                    self.first.pop();
                    self.first.push(Reverse(row.rank));
                }
                Some(_) => {}
                None => self.first.push(Reverse(row.rank)),
            }
        }
        self.kept.push(row);
    }

    /// Forgets what is below the cut.
    fn drop_below_cut(&mut self) -> Result<(), ScanError> {
        if let Some(cut) = self.cut() {
            self.kept.retain(|row| row.rank >= cut);
        }
        if self.kept.len() > self.wanted + MOST_TIES {
            return Err(ScanError::NotHere);
        }
        self.tidy_at = tidy_at(self.wanted, self.kept.len());
        let mut used = vec![false; self.places.len()];
        for row in &self.kept {
            if let Some(used) = used.get_mut(row.place as usize) {
                *used = true;
            }
        }
        for (place, used) in self.places.iter_mut().zip(used) {
            if !used && matches!(place, Some(RowLocation::Memory { .. })) {
                *place = None;
            }
        }
        Ok(())
    }
}

fn tidy_at(wanted: usize, kept: usize) -> usize {
    (wanted + 4096).max(kept * 2).min(wanted + MOST_TIES + 1)
}
