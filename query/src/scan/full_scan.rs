//! Full scan: every row of a window that meets conditions, in no order, given to an aggregator.
//!
//! Files give words as codes of a dictionary: who sums up compares numbers and looks a text up once a run.
//!
//! # Invariants
//!
//! - Each row is given once, to one sink.
//! - Segments of lines, and columns of another version of the program, are for plans.
//! - Indexes are not asked: they know nothing of metric points, which are all that is summed up.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{DataType, Schema};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::execution::SessionState;
use datafusion::logical_expr::Expr;
use engine::{BlockSelection, DataFileHandle, ReadView};
use model::{ColumnType, Table};
use parking_lot::Mutex;

use super::ScanTask;
use super::page_cache::PageCache;
use super::prune::{PruningConditions, candidates, selection};
use super::row_group::SegmentRowGroup;
use super::row_group_scan::batch_rows;
use super::scan_filter::FilterStage;
use super::scan_workers::ScanDeadline;
use super::top_k::ScanError;
use crate::Error;
use crate::filter::in_range;
use crate::segment_reader::ScanMeter;
use crate::time_range::TimeRange;

/// Rows read at once, at most.
const BATCH_ROWS: usize = 8_192;

/// What rows are given to.
pub(crate) trait RowSink: Send + 'static {
    /// Rows of the columns that were asked for, words as texts or as codes of a dictionary.
    fn add(&mut self, rows: &RecordBatch) -> Result<(), Error>;
}

/// What to read.
#[derive(Debug)]
pub(crate) struct FullScanRequest<'a> {
    pub(crate) view: &'a ReadView,
    pub(crate) table: Table,
    pub(crate) window: TimeRange,
    pub(crate) conditions: &'a [Expr],
    /// In the table's order.
    pub(crate) columns: &'a [usize],
    pub(crate) meter: &'a Arc<ScanMeter>,
    /// When the query began.
    pub(crate) started: Instant,
}

/// Conditions and columns, for batches in which columns come in one way.
struct FilterProjection {
    schema: Schema,
    conditions: FilterStage,
    /// What is read: the columns of the conditions and those that are given, in the table's order.
    read: Vec<usize>,
    /// Of these, the places of the conditions' columns and of those that are given.
    asked: Vec<usize>,
    given: Vec<usize>,
}

impl FilterProjection {
    fn new(state: &SessionState, wanted: &FullScanRequest<'_>, schema: Schema) -> Result<Self, Error> {
        let inside = in_range(wanted.window);
        let all: Vec<&Expr> = wanted.conditions.iter().chain([&inside]).collect();
        let conditions = FilterStage::new(state, wanted.table, &schema, &all, true)?;
        let mut read = [conditions.columns(), wanted.columns].concat();
        read.sort_unstable();
        read.dedup();
        let places = |columns: &[usize]| {
            columns
                .iter()
                .filter_map(|column| read.binary_search(column).ok())
                .collect()
        };
        Ok(Self {
            asked: places(conditions.columns()),
            given: places(wanted.columns),
            schema,
            conditions,
            read,
        })
    }

    /// Of a batch of what is read, the rows that meet the conditions, with the columns that are given.
    fn filter_and_project(&self, batch: &RecordBatch, patience: &ScanDeadline) -> Result<RecordBatch, ScanError> {
        let mask = self
            .conditions
            .keep(&batch.project(&self.asked)?, || patience.check())?;
        let given = batch.project(&self.given)?;
        let all = |mask: &BooleanArray| mask.true_count() == mask.len();
        Ok(match mask.filter(|mask| !all(mask)) {
            Some(mask) => filter_record_batch(&given, &mask)?,
            None => given,
        })
    }
}

/// A table's columns, words as codes of a dictionary.
fn dictionary_schema(table: Table) -> Schema {
    let schema = table.schema();
    let fields = schema.fields().iter().zip(table.columns()).map(|(field, column)| {
        let field = field.as_ref().clone();
        match column.kind {
            ColumnType::Word => {
                let words = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
                field.with_data_type(words)
            }
            _ => field,
        }
    });
    Schema::new(fields.collect::<Vec<_>>())
}

enum ScanUnit {
    Hot(RecordBatch),
    Segment(Arc<DataFileHandle>),
    Group(Arc<SegmentRowGroup>),
}

struct FullScanQueue<S> {
    left: Vec<ScanUnit>,
    away: Vec<Arc<DataFileHandle>>,
    /// Held once more for each piece that is being read, however that ends.
    taken: Arc<()>,
    sinks: Vec<S>,
}

/// One sweep.
pub(super) struct FullScan<S> {
    table: Table,
    window: TimeRange,
    memory: FilterProjection,
    files: FilterProjection,
    needs: PruningConditions,
    cache: Arc<PageCache>,
    meter: Arc<ScanMeter>,
    patience: ScanDeadline,
    make: Box<dyn Fn() -> S + Send + Sync>,
    state: Mutex<FullScanQueue<S>>,
}

impl<S: RowSink> FullScan<S> {
    /// `None` if not all of the view can be swept.
    pub(super) fn new(
        state: &SessionState,
        wanted: &FullScanRequest<'_>,
        needs: PruningConditions,
        cache: &Arc<PageCache>,
        patience: ScanDeadline,
        make: Box<dyn Fn() -> S + Send + Sync>,
    ) -> Result<Option<Self>, Error> {
        let (table, window) = (wanted.table, wanted.window);
        let files = wanted.view.files(table).iter();
        let files: Vec<_> = files.filter(|file| window.overlaps(file.min_ts, file.max_ts)).collect();
        if files.iter().any(|file| !file.is_parquet()) {
            return Ok(None);
        }
        let hot = wanted.view.hot(table).iter();
        let hot = hot.filter(|hot| window.overlaps(hot.min_ts, hot.max_ts));
        let hot = hot.map(|hot| ScanUnit::Hot(hot.batch.clone()));
        let away = files
            .iter()
            .copied()
            .filter(|file| file.is_uploaded())
            .cloned()
            .collect();
        let files = files.into_iter().map(|file| ScanUnit::Segment(Arc::clone(file)));
        Ok(Some(Self {
            table,
            window,
            memory: FilterProjection::new(state, wanted, table.schema().as_ref().clone())?,
            files: FilterProjection::new(state, wanted, dictionary_schema(table))?,
            needs,
            cache: Arc::clone(cache),
            meter: Arc::clone(wanted.meter),
            patience,
            make,
            state: Mutex::new(FullScanQueue {
                left: hot.chain(files).collect(),
                away,
                taken: Arc::default(),
                sinks: Vec::new(),
            }),
        }))
    }

    fn take(&self) -> Option<(ScanUnit, S, Arc<()>)> {
        let mut state = self.state.lock();
        if !state.away.is_empty() {
            return None;
        }
        let (piece, taken, sink) = (state.left.pop()?, Arc::clone(&state.taken), state.sinks.pop());
        drop(state);
        Some((piece, sink.unwrap_or_else(|| (self.make)()), taken))
    }

    fn read(&self, piece: ScanUnit, sink: &mut S) -> Result<Vec<ScanUnit>, ScanError> {
        match piece {
            ScanUnit::Hot(batch) => {
                self.meter.count_rows(batch.num_rows());
                let rows = batch.project(&self.memory.read)?;
                sink.add(&self.memory.filter_and_project(&rows, &self.patience)?)?;
            }
            ScanUnit::Segment(segment) => {
                let groups = SegmentRowGroup::all_of(&segment, &self.cache, &self.meter)?.into_iter();
                return Ok(groups.map(|group| ScanUnit::Group(Arc::new(group))).collect());
            }
            ScanUnit::Group(group) => self.read_group(&group, sink)?,
        }
        Ok(Vec::new())
    }

    fn read_group(&self, group: &SegmentRowGroup, sink: &mut S) -> Result<(), ScanError> {
        if !group.is_of(self.table) {
            return Err(ScanError::NotHere);
        }
        let ranges = candidates(group, self.window, &BlockSelection::All, &self.needs)?;
        if ranges.is_empty() {
            return Ok(());
        }
        let lens = &self.files;
        let selection = selection(&ranges, group.rows());
        let batch = batch_rows(group, &lens.read, BATCH_ROWS);
        for batch in group.read(&lens.schema.fields, &lens.read, selection, batch)? {
            self.patience.check()?;
            let batch = batch?;
            self.meter.count_rows(batch.num_rows());
            sink.add(&lens.filter_and_project(&batch, &self.patience)?)?;
        }
        Ok(())
    }
}

impl<S: RowSink> ScanTask for FullScan<S> {
    type Found = Vec<S>;

    fn work(&self, until: Instant) -> Result<(), ScanError> {
        loop {
            self.patience.check()?;
            let Some((piece, mut sink, taken)) = self.take() else {
                return Ok(());
            };
            let parts = self.read(piece, &mut sink)?;
            {
                let mut state = self.state.lock();
                state.left.extend(parts);
                state.sinks.push(sink);
            }
            drop(taken);
            if Instant::now() >= until {
                return Ok(());
            }
        }
    }

    fn is_done(&self) -> bool {
        let state = self.state.lock();
        Arc::strong_count(&state.taken) == 1 && state.left.is_empty() && state.away.is_empty()
    }

    fn take_remote(&self) -> Vec<Arc<DataFileHandle>> {
        std::mem::take(&mut self.state.lock().away)
    }

    fn take_result(&self) -> Result<Vec<S>, ScanError> {
        Ok(std::mem::take(&mut self.state.lock().sinks))
    }
}
