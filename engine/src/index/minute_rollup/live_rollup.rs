//! Counts rows without a sidecar: rows in memory, and row groups of open files.
//!
//! They are made when they are asked for first, and kept with the rows: a row group never changes, and later versions of an open file
//! begin with those of the earlier ones. So what a question costs goes with the rows that came since the last one.
//!
//! # Invariants
//!
//! - As for sidecars: each row is counted once, or nothing is told of it.

use std::sync::Arc;

use arrow_array::RecordBatch;
use parquet::file::metadata::ParquetMetaData;

use super::rollup_builder::{FileRollupBuilder, RollupBuilder};
use super::{MinuteRollup, RollupDimension};
use crate::datafile::FilePrefix;

/// A larger section is none: an open file has [`MAX_ROW_GROUPS`](crate::datafile) of them in memory.
const MOST: u64 = 16 << 10;

fn none() -> RollupBuilder {
    RollupBuilder::new(MOST, MOST)
}

/// Some rows, counted in every way that is not too large.
#[derive(Debug, Clone)]
pub(crate) struct LiveRollup {
    rows: u64,
    counts: [Option<MinuteRollup>; RollupDimension::ALL.len()],
}

impl LiveRollup {
    fn of(counted: RollupBuilder, rows: u64) -> Self {
        let believed = |section: Option<Vec<u8>>| MinuteRollup::new(section?.into(), rows);
        let counts = counted.finish(rows).map(believed);
        Self { rows, counts }
    }

    /// Counts the rows of a row group; `None` if they cannot be read.
    pub(crate) fn of_group(file: &FilePrefix, footer: &Arc<ParquetMetaData>, group: usize) -> Option<Self> {
        let counting = FileRollupBuilder::of_group(none(), file, footer, group)?;
        Some(Self::of(
            counting,
            u64::try_from(footer.row_group(group).num_rows()).ok()?,
        ))
    }

    /// The rows that were counted.
    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) fn of_batch(batch: &RecordBatch) -> Self {
        let mut counted = none();
        counted.add(batch);
        Self::of(counted, batch.num_rows() as u64)
    }

    pub(crate) fn get(&self, by: RollupDimension) -> Option<MinuteRollup> {
        let mut all = RollupDimension::ALL.into_iter().zip(&self.counts);
        all.find(|(of, _)| *of == by)?.1.clone()
    }
}
