//! Index pruning: which pieces of a snapshot a plan reads, and which of its files can have the ids and texts of its filters.
//!
//! # Invariants
//!
//! - Indexes are read, and footers with them, on a thread that scans read on, by no more of them at once, and in turn with them.
//! - What is not known to be without them stays: a file without an index, one whose footer cannot be read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use datafusion::logical_expr::Expr;
use engine::{BlockSelection, DataFileHandle, ReadView};
use model::Table;

use super::ScanExecutor;
use super::prune::{PruningConditions, blocks, of_blocks, rows_of, selection};
use super::scan_workers::TimeSlicedPermit;
use crate::Error;
use crate::segment_reader::ScanMeter;
use crate::time_range::TimeRange;

/// Where in a view to look.
#[derive(Debug, Clone, Default)]
pub(crate) enum SegmentSelection {
    /// In all segments and in memory.
    #[default]
    All,
    /// In all but these segments, and in memory or not.
    But(Arc<HashSet<u64>>, bool),
    /// In these segments, and in memory or not.
    Only(Arc<HashSet<u64>>, bool),
}

impl SegmentSelection {
    pub(crate) fn includes_segment(&self, segment: &DataFileHandle) -> bool {
        match self {
            Self::All => true,
            Self::But(those, _) => !those.contains(&segment.id),
            Self::Only(these, _) => these.contains(&segment.id),
        }
    }

    /// Whether rows in memory are looked at.
    pub(crate) const fn includes_memory(&self) -> bool {
        matches!(self, Self::All | Self::But(_, true) | Self::Only(_, true))
    }

    /// Whether there is nothing of a table within a window.
    pub(crate) fn is_empty_in(&self, view: &ReadView, table: Table, window: TimeRange) -> bool {
        let mut files = view.files(table).iter();
        let mut hot = view.hot(table).iter();
        !files.any(|file| window.overlaps(file.min_ts, file.max_ts) && self.includes_segment(file))
            && (!self.includes_memory() || !hot.any(|hot| window.overlaps(hot.min_ts, hot.max_ts)))
    }
}

/// What indexes leave of the files of a table.
#[derive(Debug, Default)]
pub(crate) struct CandidateFiles {
    pub(crate) files: Vec<Arc<DataFileHandle>>,
    /// Of some of them, by the segment's number, which rows.
    pub(crate) rows: HashMap<u64, ParquetAccessPlan>,
}

impl ScanExecutor {
    /// The files that can have rows which meet the conditions; what is read for that counts.
    pub(crate) async fn prune_files(
        &self,
        table: Table,
        conditions: &[Expr],
        files: Vec<Arc<DataFileHandle>>,
        meter: &Arc<ScanMeter>,
    ) -> Result<CandidateFiles, Error> {
        let needs = self.needs(table, conditions);
        if !needs.ask_indexes() || files.is_empty() {
            return Ok(CandidateFiles {
                files,
                ..CandidateFiles::default()
            });
        }
        let meter = Arc::clone(meter);
        self.run_lookup(move |turns| prune_each(files, &needs, &meter, turns))
            .await
    }
}

fn prune_each(
    files: Vec<Arc<DataFileHandle>>,
    needs: &PruningConditions,
    meter: &ScanMeter,
    turns: &mut TimeSlicedPermit,
) -> Result<CandidateFiles, Error> {
    let mut left = CandidateFiles::default();
    for segment in files {
        turns.yield_if_due()?;
        let blocks = blocks(&segment, needs, meter);
        if blocks.is_none() {
            continue;
        }
        if let BlockSelection::Some(blocks) = &blocks
            && let Some(rows) = rows(&segment, blocks, meter)
        {
            left.rows.insert(segment.id, rows);
        }
        left.files.push(segment);
    }
    Ok(left)
}

/// The rows of some blocks. A file that may have to be fetched for that is not: the plan may never come to it.
fn rows(segment: &DataFileHandle, blocks: &[u32], meter: &ScanMeter) -> Option<ParquetAccessPlan> {
    if segment.is_uploaded() {
        return None;
    }
    let footer = segment.metadata().ok()?;
    meter.count_opened(segment.id);
    let groups = footer.row_groups().iter().enumerate().map(|(number, group)| {
        let ranges = of_blocks(&footer, number, blocks);
        match selection(&ranges, rows_of(group)) {
            _ if ranges.is_empty() => RowGroupAccess::Skip,
            None => RowGroupAccess::Scan,
            Some(rows) => RowGroupAccess::Selection(rows),
        }
    });
    Some(ParquetAccessPlan::new(groups.collect()))
}
