//! Ring buffer of the newest arrivals of one table, bounded by bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::HotBatch;
use crate::memtable::PartitionKey;

/// A place in the order in which rows became visible: before the row number `row` of the batch `lsn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArrivalPosition {
    /// The batch's place in the log.
    pub lsn: u64,
    /// So many of its rows are before the position.
    pub row: usize,
}

/// The rows of one batch, as they became visible.
#[derive(Debug)]
pub struct TailArrival {
    /// The batch's place in the log.
    pub lsn: u64,
    /// Its rows, by partition.
    pub pieces: Vec<Arc<HotBatch>>,
    /// How many they are.
    pub rows: usize,
    /// What they count against the bound.
    weight: u64,
    /// Rows and weight of the table since the ring began, up to here.
    pub(super) before: (u64, u64),
}

impl TailArrival {
    pub(super) fn of(lsn: u64, pieces: &[(PartitionKey, Arc<HotBatch>, u64)]) -> Self {
        Self {
            lsn,
            rows: pieces.iter().map(|(_, rows, _)| rows.batch.num_rows()).sum(),
            weight: pieces.iter().map(|(_, _, weight)| weight).sum(),
            pieces: pieces.iter().map(|(_, rows, _)| Arc::clone(rows)).collect(),
            before: (0, 0),
        }
    }

    /// What the rows take in memory, about.
    #[must_use]
    pub const fn weight(&self) -> u64 {
        self.weight
    }
}

impl ArrivalPosition {
    /// Before the first row of a batch.
    pub(crate) const fn before(lsn: u64) -> Self {
        Self { lsn, row: 0 }
    }
}

#[derive(Debug, Default)]
pub(super) struct ArrivalRing {
    pub(super) kept: VecDeque<Arc<TailArrival>>,
    /// Every arrival from this LSN on is kept.
    pub(super) start: u64,
    /// Rows and weight that came, those that are gone included.
    pub(super) passed: (u64, u64),
}

impl ArrivalRing {
    /// Rows and weight before the oldest that is kept.
    pub(super) fn gone(&self) -> (u64, u64) {
        self.kept.front().map_or(self.passed, |oldest| oldest.before)
    }

    pub(super) fn push(&mut self, mut arrival: TailArrival, most: u64, past: &mut Vec<Arc<TailArrival>>) {
        arrival.before = self.passed;
        self.passed.0 += arrival.rows as u64;
        self.passed.1 += arrival.weight;
        self.kept.push_back(Arc::new(arrival));
        while self.passed.1 - self.gone().1 > most {
            let Some(oldest) = self.kept.pop_front() else {
                return;
            };
            self.start = oldest.lsn + 1;
            past.push(oldest);
        }
    }

    pub(super) fn forget(&mut self, start: u64) -> VecDeque<Arc<TailArrival>> {
        self.start = start;
        std::mem::take(&mut self.kept)
    }

    /// The number of the first arrival that is not before an LSN.
    pub(super) fn find(&self, lsn: u64) -> usize {
        self.kept.partition_point(|arrival| arrival.lsn < lsn)
    }

    /// Rows before a position that is here.
    pub(super) fn rows_before(&self, position: ArrivalPosition) -> u64 {
        match self.kept.get(self.find(position.lsn)) {
            Some(arrival) if arrival.lsn == position.lsn => arrival.before.0 + position.row.min(arrival.rows) as u64,
            Some(arrival) => arrival.before.0,
            None => self.passed.0,
        }
    }
}
