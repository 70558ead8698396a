//! Every row of a window that meets conditions, in no order, given to what sums them up.
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

use super::Task;
use super::cache::PageCache;
use super::conditions::Stage;
use super::first::Halt;
use super::pages::Group;
use super::prune::{Needs, candidates, selection};
use super::read::batch_rows;
use super::workers::Patience;
use crate::Error;
use crate::filter::within;
use crate::reader::Meter;
use crate::window::Window;

/// Rows read at once, at most.
const BATCH_ROWS: usize = 8_192;

/// What rows are given to.
pub(crate) trait Sink: Send + 'static {
    /// Rows of the columns that were asked for, words as texts or as codes of a dictionary.
    fn add(&mut self, rows: &RecordBatch) -> Result<(), Error>;
}

/// What to read.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) view: &'a ReadView,
    pub(crate) table: Table,
    pub(crate) window: Window,
    pub(crate) conditions: &'a [Expr],
    /// In the table's order.
    pub(crate) columns: &'a [usize],
    pub(crate) meter: &'a Arc<Meter>,
    /// When the query began.
    pub(crate) started: Instant,
}

/// Conditions and columns, for batches in which columns come in one way.
struct Lens {
    schema: Schema,
    conditions: Stage,
    /// What is read: the columns of the conditions and those that are given, in the table's order.
    read: Vec<usize>,
    /// Of these, the places of the conditions' columns and of those that are given.
    asked: Vec<usize>,
    given: Vec<usize>,
}

impl Lens {
    fn new(state: &SessionState, wanted: &Wanted<'_>, schema: Schema) -> Result<Self, Error> {
        let inside = within(wanted.window);
        let all: Vec<&Expr> = wanted.conditions.iter().chain([&inside]).collect();
        let conditions = Stage::new(state, wanted.table, &schema, &all, true)?;
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
    fn kept(&self, batch: &RecordBatch) -> Result<RecordBatch, Halt> {
        let mask = self.conditions.keep(&batch.project(&self.asked)?)?;
        let given = batch.project(&self.given)?;
        let all = |mask: &BooleanArray| mask.true_count() == mask.len();
        Ok(match mask.filter(|mask| !all(mask)) {
            Some(mask) => filter_record_batch(&given, &mask)?,
            None => given,
        })
    }
}

/// A table's columns, words as codes of a dictionary.
fn coded(table: Table) -> Schema {
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

enum Piece {
    Hot(RecordBatch),
    Segment(Arc<DataFileHandle>),
    Group(Arc<Group>),
}

struct State<S> {
    left: Vec<Piece>,
    away: Vec<Arc<DataFileHandle>>,
    /// Held once more for each piece that is being read, however that ends.
    taken: Arc<()>,
    sinks: Vec<S>,
}

/// One sweep.
pub(super) struct Sweep<S> {
    table: Table,
    window: Window,
    memory: Lens,
    files: Lens,
    needs: Needs,
    cache: Arc<PageCache>,
    meter: Arc<Meter>,
    patience: Patience,
    make: Box<dyn Fn() -> S + Send + Sync>,
    state: Mutex<State<S>>,
}

impl<S: Sink> Sweep<S> {
    /// `None` if not all of the view can be swept.
    pub(super) fn new(
        state: &SessionState,
        wanted: &Wanted<'_>,
        needs: Needs,
        cache: &Arc<PageCache>,
        patience: Patience,
        make: Box<dyn Fn() -> S + Send + Sync>,
    ) -> Result<Option<Self>, Error> {
        let (table, window) = (wanted.table, wanted.window);
        let files = wanted.view.files(table).iter();
        let files: Vec<_> = files.filter(|file| window.meets(file.min_ts, file.max_ts)).collect();
        if files.iter().any(|file| !file.is_parquet()) {
            return Ok(None);
        }
        let hot = wanted.view.hot(table).iter();
        let hot = hot.filter(|hot| window.meets(hot.min_ts, hot.max_ts));
        let hot = hot.map(|hot| Piece::Hot(hot.batch.clone()));
        let away = files
            .iter()
            .copied()
            .filter(|file| file.is_uploaded())
            .cloned()
            .collect();
        let files = files.into_iter().map(|file| Piece::Segment(Arc::clone(file)));
        Ok(Some(Self {
            table,
            window,
            memory: Lens::new(state, wanted, table.schema().as_ref().clone())?,
            files: Lens::new(state, wanted, coded(table))?,
            needs,
            cache: Arc::clone(cache),
            meter: Arc::clone(wanted.meter),
            patience,
            make,
            state: Mutex::new(State {
                left: hot.chain(files).collect(),
                away,
                taken: Arc::default(),
                sinks: Vec::new(),
            }),
        }))
    }

    fn take(&self) -> Option<(Piece, S, Arc<()>)> {
        let mut state = self.state.lock();
        if !state.away.is_empty() {
            return None;
        }
        let (piece, taken, sink) = (state.left.pop()?, Arc::clone(&state.taken), state.sinks.pop());
        drop(state);
        Some((piece, sink.unwrap_or_else(|| (self.make)()), taken))
    }

    fn read(&self, piece: Piece, sink: &mut S) -> Result<Vec<Piece>, Halt> {
        match piece {
            Piece::Hot(batch) => {
                self.meter.rows(batch.num_rows());
                sink.add(&self.memory.kept(&batch.project(&self.memory.read)?)?)?;
            }
            Piece::Segment(segment) => {
                let groups = Group::all_of(&segment, &self.cache, &self.meter)?.into_iter();
                return Ok(groups.map(|group| Piece::Group(Arc::new(group))).collect());
            }
            Piece::Group(group) => self.read_group(&group, sink)?,
        }
        Ok(Vec::new())
    }

    fn read_group(&self, group: &Group, sink: &mut S) -> Result<(), Halt> {
        if !group.is_of(self.table) {
            return Err(Halt::NotHere);
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
            self.meter.rows(batch.num_rows());
            sink.add(&lens.kept(&batch)?)?;
        }
        Ok(())
    }
}

impl<S: Sink> Task for Sweep<S> {
    type Found = Vec<S>;

    fn work(&self, until: Instant) -> Result<(), Halt> {
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

    fn away(&self) -> Vec<Arc<DataFileHandle>> {
        std::mem::take(&mut self.state.lock().away)
    }

    fn gather(&self) -> Result<Vec<S>, Halt> {
        Ok(std::mem::take(&mut self.state.lock().sinks))
    }
}
