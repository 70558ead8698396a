//! Which files of a plan can have the ids and texts that its filters ask for.
//!
//! # Invariants
//!
//! - Indexes are read, and footers with them, on a thread that scans read on, and by no more of them at once.
//! - What is not known to be without them stays: a file without an index, one whose footer cannot be read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use datafusion::logical_expr::Expr;
use engine::{Blocks, Segment};
use model::Table;

use super::Scanner;
use super::prune::{Needs, blocks, needs, of_blocks, rows_of, selection};
use super::workers::{self, Patience};
use crate::Error;
use crate::reader::Meter;

/// What indexes leave of the files of a table.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) files: Vec<Arc<Segment>>,
    /// Of some of them, by the segment's number, which rows.
    pub(crate) rows: HashMap<u64, ParquetAccessPlan>,
}

impl Scanner {
    /// The files that can have rows which meet the conditions; what is read for that counts.
    pub(crate) async fn left(
        &self,
        table: Table,
        conditions: &[Expr],
        files: Vec<Arc<Segment>>,
        meter: &Arc<Meter>,
    ) -> Result<Left, Error> {
        let needs = needs(table, conditions);
        if !needs.ask_indexes() || files.is_empty() {
            return Ok(Left {
                files,
                ..Left::default()
            });
        }
        let (patience, waiting) = Patience::new(Instant::now(), self.timeout);
        let place = self.workers.enter().await?;
        let meter = Arc::clone(meter);
        let looking = workers::run(place, move || look(files, &needs, &meter, &patience));
        let left = looking.await;
        drop(waiting);
        left.unwrap_or_else(|stopped| Err(Error::Aborted(stopped.to_string())))
    }
}

fn look(files: Vec<Arc<Segment>>, needs: &Needs, meter: &Meter, patience: &Patience) -> Result<Left, Error> {
    let mut left = Left::default();
    for segment in files {
        patience.check()?;
        let blocks = blocks(&segment, needs, meter);
        if blocks.is_none() {
            continue;
        }
        if let Blocks::Some(blocks) = &blocks
            && let Some(rows) = rows(&segment, blocks, meter)
        {
            left.rows.insert(segment.id, rows);
        }
        left.files.push(segment);
    }
    Ok(left)
}

/// The rows of some blocks. A file that may have to be fetched for that is not: the plan may never come to it.
fn rows(segment: &Segment, blocks: &[u32], meter: &Meter) -> Option<ParquetAccessPlan> {
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
