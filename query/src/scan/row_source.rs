//! Row sources: each knows how soon the order comes to the rows that it has not given yet.
//!
//! ```text
//! hot batch ───────────────────────────────────────────────> rows, at once
//! Parquet segment ──> its index ──> its row groups ──> one being read ──> rows, in the order, until nothing before the cut is left
//! segment of lines ──> its batches ────────────────────────> rows, in no order, to the end
//! ```
//!
//! # Invariants
//!
//! - A source's frontier is not below the rank of any row that it has yet to give.
//! - A segment is not opened before the scan comes down to its first row. One that may have to be fetched first, from an
//!   object store, is asked for: threads that read do not wait for a network.
//! - A segment that its index rules out is neither fetched nor opened.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::RecordBatch;
use datafusion::arrow::compute::filter_record_batch;
use datafusion::execution::memory_pool::MemoryReservation;
use engine::{BlockSelection, DataFileHandle, NdjsonReader};
use model::Timestamp;
use model::filter::SortOrder;
use parquet::errors::ParquetError;
use parquet::file::statistics::Statistics;

use super::prune::blocks;
use super::row_group::SegmentRowGroup;
use super::row_group_scan::{RowGroupScan, RowHit, for_each_kept, times_of};
use super::top_k::{ScanError, TopKScan};
use super::{TopKRequest, rank};

/// See the module.
pub(super) struct RowSource {
    pub(super) frontier: i64,
    /// Where its rows are, once some were found; the number is the scan's.
    pub(super) place: Option<u32>,
    kind: RowSourceKind,
}

enum RowSourceKind {
    Hot(RecordBatch),
    /// Nothing is known but its times.
    Unseen(Arc<DataFileHandle>),
    Parquet(Arc<DataFileHandle>, BlockSelection),
    Group(Arc<SegmentRowGroup>, BlockSelection),
    Reading(Box<RowGroupScan>),
    Lines(Arc<DataFileHandle>),
    ReadingLines(Arc<DataFileHandle>, Box<NdjsonReader>),
}

/// Where rows are that were found.
pub(super) enum RowLocation {
    /// In memory; those of lines count as the scan's.
    Memory {
        rows: RecordBatch,
        _memory: Option<MemoryReservation>,
    },
    /// In a row group, to be read again.
    Group(Arc<SegmentRowGroup>),
}

/// What a step found, and what is left of the source.
#[derive(Default)]
pub(super) struct SourceStep {
    pub(super) hits: Vec<RowHit>,
    /// Where the hits are.
    pub(super) place: Option<RowLocation>,
    /// What goes on in the stead of the source.
    pub(super) next: Vec<RowSource>,
    /// What is to be opened once, by somebody who may wait, before anything else is read.
    pub(super) away: Option<Arc<DataFileHandle>>,
}

impl RowSource {
    /// All sources of a view that can have rows in the window.
    pub(super) fn all(request: &TopKRequest<'_>) -> Vec<Self> {
        let (view, table, window) = (request.view, request.table, request.window);
        let begin = |min: Timestamp, max: Timestamp| frontier(request.order, (min.micros(), max.micros()));
        let hot = view.hot(table).iter();
        let hot = hot
            .filter(|hot| window.overlaps(hot.min_ts, hot.max_ts))
            .map(|hot| Self::new(begin(hot.min_ts, hot.max_ts), RowSourceKind::Hot(hot.batch.clone())));
        let files = view.files(table).iter();
        let files = files.filter(|file| window.overlaps(file.min_ts, file.max_ts));
        let files =
            files.map(|file| Self::new(begin(file.min_ts, file.max_ts), RowSourceKind::Unseen(Arc::clone(file))));
        hot.chain(files).collect()
    }

    const fn new(frontier: i64, kind: RowSourceKind) -> Self {
        Self {
            frontier,
            place: None,
            kind,
        }
    }

    /// Whether what it gives next is where its last rows are.
    pub(super) const fn keeps_place(&self) -> bool {
        matches!(self.kind, RowSourceKind::Reading(_))
    }

    /// Reads a little. Rows of a rank below `cut` are not wanted.
    pub(super) fn step(self, search: &TopKScan, cut: Option<i64>) -> Result<SourceStep, ScanError> {
        let Self { frontier, place, kind } = self;
        let at = SourceProgress { frontier, place };
        match kind {
            RowSourceKind::Hot(batch) => {
                search.meter.count_rows(batch.num_rows());
                let mask = search.conditions.keep(&batch, || search.check())?;
                let mut hits = Vec::new();
                search.collect(&batch, mask.as_ref(), cut, &mut hits);
                Ok(SourceStep {
                    hits,
                    place: Some(RowLocation::Memory {
                        rows: batch,
                        _memory: None,
                    }),
                    ..SourceStep::default()
                })
            }
            RowSourceKind::Unseen(segment) => {
                let blocks = blocks(&segment, &search.needs, &search.meter);
                if blocks.is_none() {
                    return Ok(SourceStep::default());
                }
                if segment.is_uploaded() {
                    return Ok(SourceStep {
                        away: Some(Arc::clone(&segment)),
                        next: vec![at.continue_as(local_kind(segment, blocks))],
                        ..SourceStep::default()
                    });
                }
                at.continue_as(local_kind(segment, blocks)).step(search, cut)
            }
            RowSourceKind::Parquet(segment, blocks) => Ok(SourceStep {
                next: groups(&segment, &blocks, search)?,
                ..SourceStep::default()
            }),
            RowSourceKind::Group(group, blocks) => match RowGroupScan::begin(group, &blocks, search)? {
                Some(reading) => at.read(Box::new(reading), search, cut),
                None => Ok(SourceStep::default()),
            },
            RowSourceKind::Reading(reading) => at.read(reading, search, cut),
            RowSourceKind::Lines(segment) => {
                let may = search.meter.charge_read(segment.id, segment.size);
                may.map_err(ParquetError::from)?;
                let lines = Box::new(segment.lines()?);
                Ok(SourceStep {
                    next: vec![at.continue_as(RowSourceKind::ReadingLines(segment, lines))],
                    ..SourceStep::default()
                })
            }
            RowSourceKind::ReadingLines(segment, lines) => at.read_lines(segment, lines, search, cut),
        }
    }
}

/// How far a source is that is being read.
#[derive(Clone, Copy)]
struct SourceProgress {
    frontier: i64,
    place: Option<u32>,
}

impl SourceProgress {
    fn continue_as(self, kind: RowSourceKind) -> RowSource {
        RowSource {
            frontier: self.frontier,
            place: self.place,
            kind,
        }
    }

    fn read(
        mut self,
        mut reading: Box<RowGroupScan>,
        search: &TopKScan,
        cut: Option<i64>,
    ) -> Result<SourceStep, ScanError> {
        let memory = search.memory.new_empty();
        let read = reading.step(search, cut, &memory)?;
        let place = Some(RowLocation::Group(Arc::clone(reading.group())));
        let next = match read.frontier {
            Some(frontier) => {
                self.frontier = self.frontier.min(frontier);
                vec![self.continue_as(RowSourceKind::Reading(reading))]
            }
            None => Vec::new(),
        };
        Ok(SourceStep {
            hits: read.hits,
            place,
            next,
            away: None,
        })
    }

    /// Each batch is a place of its own: only its wanted rows are kept.
    fn read_lines(
        self,
        segment: Arc<DataFileHandle>,
        mut lines: Box<NdjsonReader>,
        search: &TopKScan,
        cut: Option<i64>,
    ) -> Result<SourceStep, ScanError> {
        let Some(batch) = lines.next().transpose()? else {
            return Ok(SourceStep::default());
        };
        search.meter.count_rows(batch.num_rows());
        let kept = match search.conditions.keep(&batch, || search.check())? {
            Some(mask) => filter_record_batch(&batch, &mask)?,
            None => batch,
        };
        let mut hits = Vec::new();
        search.collect(&kept, None, cut, &mut hits);
        let place = if hits.is_empty() {
            None
        } else {
            let memory = search.memory.new_empty();
            memory.try_grow(kept.get_array_memory_size())?;
            Some(RowLocation::Memory {
                rows: kept,
                _memory: Some(memory),
            })
        };
        Ok(SourceStep {
            hits,
            place,
            next: vec![self.continue_as(RowSourceKind::ReadingLines(segment, lines))],
            away: None,
        })
    }
}

/// How a segment that is on this machine is read.
fn local_kind(segment: Arc<DataFileHandle>, blocks: BlockSelection) -> RowSourceKind {
    if segment.is_parquet() {
        RowSourceKind::Parquet(segment, blocks)
    } else {
        RowSourceKind::Lines(segment)
    }
}

/// The row groups of a segment that can have rows in the window.
fn groups(
    segment: &Arc<DataFileHandle>,
    blocks: &BlockSelection,
    search: &TopKScan,
) -> Result<Vec<RowSource>, ScanError> {
    let groups = SegmentRowGroup::all_of(segment, &search.cache, &search.meter)?;
    let sources = groups.into_iter().filter_map(|group| {
        let (min, max) = times_of_group(&group).unwrap_or((segment.min_ts.micros(), segment.max_ts.micros()));
        let meets = max >= search.window.since.micros() && min < search.window.until.micros();
        meets.then(|| {
            RowSource::new(
                frontier(search.order, (min, max)),
                RowSourceKind::Group(Arc::new(group), blocks.clone()),
            )
        })
    });
    Ok(sources.collect())
}

/// The rank of the first of rows from `min` to `max`.
const fn frontier(order: SortOrder, (min, max): (i64, i64)) -> i64 {
    match order {
        SortOrder::Desc => rank(order, max),
        SortOrder::Asc => rank(order, min),
    }
}

fn times_of_group(group: &SegmentRowGroup) -> Option<(i64, i64)> {
    match group.metadata().columns().first()?.statistics()? {
        Statistics::Int64(times) => Some((*times.min_opt()?, *times.max_opt()?)),
        _ => None,
    }
}

impl TopKScan {
    /// The rows of a batch in memory that a mask keeps and that are wanted.
    fn collect(
        &self,
        batch: &RecordBatch,
        mask: Option<&arrow_array::BooleanArray>,
        cut: Option<i64>,
        hits: &mut Vec<RowHit>,
    ) {
        let times = times_of(batch);
        let wanted = self.wanted(cut);
        for_each_kept(mask, times.len(), |at| {
            if let (Some(ts), Ok(row)) = (times.get(at), u32::try_from(at))
                && wanted.contains(ts)
            {
                hits.push((*ts, row));
            }
        });
    }
}

impl PartialEq for RowSource {
    fn eq(&self, other: &Self) -> bool {
        self.frontier == other.frontier
    }
}

impl Eq for RowSource {}

impl PartialOrd for RowSource {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RowSource {
    fn cmp(&self, other: &Self) -> Ordering {
        self.frontier.cmp(&other.frontier)
    }
}
