//! Counts rows without a sidecar: rows in memory, and row groups of open files.
//!
//! They are made when they are asked for first, and kept with the rows: a row group never changes, and later versions of an open file
//! begin with those of the earlier ones. So what a question costs goes with the rows that came since the last one.
//!
//! # Invariants
//!
//! - As for sidecars: each row is counted once, or nothing is told of it.

use arrow_array::RecordBatch;
use model::Table;

use super::rollup_builder::{FileRollupBuilder, RollupBuilder};
use super::{MinuteRollup, RollupDimension};
use crate::HotBatch;
use crate::datafile::FilePrefix;
use crate::manifest::DataFileHandle;

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

    fn of_batch(batch: &RecordBatch) -> Self {
        let mut counted = none();
        counted.add(batch);
        Self::of(counted, batch.num_rows() as u64)
    }

    fn get(&self, by: RollupDimension) -> Option<MinuteRollup> {
        let mut all = RollupDimension::ALL.into_iter().zip(&self.counts);
        all.find(|(of, _)| *of == by)?.1.clone()
    }
}

impl HotBatch {
    /// How many of its rows, of log records, there are in each minute; `None` if that is too much to say.
    #[must_use]
    pub fn counts(&self, by: RollupDimension) -> Option<MinuteRollup> {
        self.counts.get_or_init(|| LiveRollup::of_batch(&self.batch)).get(by)
    }
}

impl DataFileHandle {
    /// How many rows it has in each minute, piece by piece, and how many bytes were read for that; `None` if that is not known. Of an
    /// open file that is here, rows that were not counted yet are; a sealed one that has no sidecar yet has the rows of the open one.
    /// May read from the disk.
    #[must_use]
    pub fn counts(&self, by: RollupDimension) -> Option<(Vec<MinuteRollup>, u64)> {
        if let Some(index) = self.index() {
            let (counts, bytes) = index.counts(by)?;
            return Some((vec![counts], bytes));
        }
        if !self.is_parquet() || self.table != Table::Logs {
            return None;
        }
        let live = self.lineage().live();
        let mut counted = live.counted.lock();
        let so_far = |counted: &[LiveRollup]| counted.iter().map(|group| group.rows).sum::<u64>();
        let (mut rows, mut bytes) = (so_far(&counted), 0);
        if rows < self.rows && !self.sealed && !self.is_uploaded() {
            let footer = self.metadata().ok()?;
            let file = FilePrefix::new(self.open().ok()?, self.size);
            for group in counted.len()..footer.num_row_groups() {
                let about = footer.row_group(group);
                let counting = FileRollupBuilder::of_group(none(), &file, &footer, group)?;
                counted.push(LiveRollup::of(counting, u64::try_from(about.num_rows()).ok()?));
                bytes += u64::try_from(about.compressed_size()).unwrap_or(0);
            }
            rows = so_far(&counted);
        }
        // Those of later versions are behind.
        let mut left = self.rows;
        let ours = counted.iter().take_while(|group| {
            let is_ours = left > 0;
            left = left.saturating_sub(group.rows);
            is_ours
        });
        let counts = ours.map(|group| group.get(by)).collect::<Option<_>>()?;
        (rows >= self.rows).then_some((counts, bytes))
    }
}
