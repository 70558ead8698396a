//! Which pieces of a view a plan reads, and which of its files can have the ids and texts that its filters ask for.
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

use super::Scanner;
use super::prune::{Needs, blocks, of_blocks, rows_of, selection};
use super::workers::Turns;
use crate::Error;
use crate::reader::Meter;
use crate::window::Window;

/// Where in a view to look.
#[derive(Debug, Clone, Default)]
pub(crate) enum Pieces {
    /// In all segments and in memory.
    #[default]
    All,
    /// In all but these segments, and in memory or not.
    But(Arc<HashSet<u64>>, bool),
    /// In these segments, and in memory or not.
    Only(Arc<HashSet<u64>>, bool),
}

impl Pieces {
    pub(crate) fn have(&self, segment: &DataFileHandle) -> bool {
        match self {
            Self::All => true,
            Self::But(those, _) => !those.contains(&segment.id),
            Self::Only(these, _) => these.contains(&segment.id),
        }
    }

    /// Whether rows in memory are looked at.
    pub(crate) const fn have_memory(&self) -> bool {
        matches!(self, Self::All | Self::But(_, true) | Self::Only(_, true))
    }

    /// Whether there is nothing of a table within a window.
    pub(crate) fn are_empty(&self, view: &ReadView, table: Table, window: Window) -> bool {
        let mut files = view.files(table).iter();
        let mut hot = view.hot(table).iter();
        !files.any(|file| window.meets(file.min_ts, file.max_ts) && self.have(file))
            && (!self.have_memory() || !hot.any(|hot| window.meets(hot.min_ts, hot.max_ts)))
    }
}

/// What indexes leave of the files of a table.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) files: Vec<Arc<DataFileHandle>>,
    /// Of some of them, by the segment's number, which rows.
    pub(crate) rows: HashMap<u64, ParquetAccessPlan>,
}

impl Scanner {
    /// The files that can have rows which meet the conditions; what is read for that counts.
    pub(crate) async fn left(
        &self,
        table: Table,
        conditions: &[Expr],
        files: Vec<Arc<DataFileHandle>>,
        meter: &Arc<Meter>,
    ) -> Result<Left, Error> {
        let needs = self.needs(table, conditions);
        if !needs.ask_indexes() || files.is_empty() {
            return Ok(Left {
                files,
                ..Left::default()
            });
        }
        let meter = Arc::clone(meter);
        self.look(move |turns| look(files, &needs, &meter, turns)).await
    }
}

fn look(files: Vec<Arc<DataFileHandle>>, needs: &Needs, meter: &Meter, turns: &mut Turns) -> Result<Left, Error> {
    let mut left = Left::default();
    for segment in files {
        turns.check()?;
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
fn rows(segment: &DataFileHandle, blocks: &[u32], meter: &Meter) -> Option<ParquetAccessPlan> {
    if segment.is_uploaded() {
        return None;
    }
    let footer = segment.metadata().ok()?;
    meter.opened(segment.id);
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
