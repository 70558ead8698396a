//! The memtable: rows that are durable in the log and in no data file yet, by table and partition.
//!
//! ```text
//! insert ─> fresh ── freeze ─> frozen ── publish ok ─> gone (they are in a file now)
//!             ^                  │
//!             └──── thaw ────────┘ publish failed
//! ```
//!
//! Small batches are merged into larger ones after they are answered, like carries of a counter to base [`FAN`]: when [`FAN`] chunks of
//! one size are at the end, or enough for a large chunk, they become one. A row is copied about twice; once if its batch has
//! hundreds of rows, and not at all if it has thousands. So a query finds dozens of small chunks, not hundreds of thousands.
//!
//! # Invariants
//!
//! - Chunks of a partition are in the order of their LSNs; all rows of one LSN in one partition are in one chunk.
//! - Frozen chunks are not merged with fresh ones: the rows that a flusher took do not change.
//! - Rows keep about as much memory alive as is counted for them: see [`HotBatch::owned`].

mod hot_batch;
mod origin_ranges;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use model::Table;
use model::batch::slice_bytes;

pub use self::hot_batch::HotBatch;
pub(crate) use self::origin_ranges::OriginRanges;
use crate::BatchOrigin;
use crate::layout::TimePartition;

/// So many chunks are joined at once; a chunk's size is its number of digits to this base.
const FAN: usize = 16;
/// A chunk of so many rows …
const LARGE_ROWS: usize = 1024;
/// … or so many bytes is not joined with others any more.
const LARGE_BYTES: u64 = 256 << 10;

/// A partition of a table.
pub(crate) type PartitionKey = (Table, TimePartition);

/// The bytes that rows take, without what their buffers share or spare.
pub(crate) fn weight(rows: &RecordBatch) -> u64 {
    // A batch of few rows costs its structures too. Whole KiB, so that sums of weights and of room agree.
    (slice_bytes(rows) as u64 + 1024).next_multiple_of(1024)
}

/// Some rows of one partition.
#[derive(Debug, Clone)]
pub(crate) struct MemtableChunk {
    pub(crate) rows: Arc<HotBatch>,
    /// The first LSN in it.
    pub(crate) first: u64,
    /// The last one.
    last: u64,
    /// What it counts against the cap of hot rows.
    pub(crate) weight: u64,
}

impl MemtableChunk {
    /// Its size among those that are joined; `None` once it is large.
    fn size(&self) -> Option<u32> {
        let rows = self.rows.batch.num_rows();
        let is_small = rows < LARGE_ROWS && self.weight < LARGE_BYTES;
        is_small.then(|| rows.max(1).ilog(FAN))
    }

    /// Several, in order, as one.
    fn join(chunks: &[Self]) -> Option<Self> {
        let (first, last) = (chunks.first()?, chunks.last()?);
        let schema = first.rows.batch.schema_ref();
        // Schemas are equal and sizes small; were it to fail, several chunks are as right as one.
        let batch = concat_batches(schema, chunks.iter().map(|chunk| &chunk.rows.batch)).ok()?;
        Some(Self {
            rows: Arc::new(HotBatch {
                batch,
                min_ts: chunks.iter().map(|chunk| chunk.rows.min_ts).min()?,
                max_ts: chunks.iter().map(|chunk| chunk.rows.max_ts).max()?,
                spec: first.rows.spec,
                counts: OnceLock::new(),
            }),
            first: first.first,
            last: last.last,
            weight: chunks.iter().map(|chunk| chunk.weight).sum(),
        })
    }
}

/// What a flusher took: a partition's oldest rows, and the LSN through which they are complete.
#[derive(Debug, Clone)]
pub(crate) struct FrozenRows {
    pub(crate) rows: Vec<RecordBatch>,
    pub(crate) first: u64,
    /// The last LSN among them.
    last: u64,
    /// Every row of the partition with this LSN or a lower one is among these or already in a file.
    pub(crate) through: u64,
    pub(crate) origins: OriginRanges,
    /// Whether more rows of the partition wait behind them.
    pub(crate) more: bool,
}

impl FrozenRows {
    /// Rows of the partition with a higher LSN than `stored` were not inserted: of those only the ones that are here are complete.
    pub(crate) fn limit_through(&mut self, stored: u64) {
        self.through = self.through.min(stored).max(self.last);
    }
}

#[derive(Debug, Default)]
struct PartitionMemtable {
    frozen: Vec<MemtableChunk>,
    fresh: Vec<MemtableChunk>,
    /// Of all rows here, frozen or fresh.
    origins: OriginRanges,
    rows: usize,
    weight: u64,
}

impl PartitionMemtable {
    fn chunks(&self) -> impl Iterator<Item = &MemtableChunk> {
        self.frozen.iter().chain(&self.fresh)
    }

    /// Chunks on either side of `barrier` stay apart.
    fn join_tail(&mut self, barrier: u64) {
        while let Some(size) = self.fresh.last().and_then(MemtableChunk::size) {
            let mut rows = 0;
            let fits = |chunk: &&MemtableChunk| {
                let is_small = chunk.size().is_some_and(|other| other <= size);
                let fits = chunk.first > barrier && rows < LARGE_ROWS && is_small;
                rows += chunk.rows.batch.num_rows();
                fits
            };
            let count = self.fresh.iter().rev().take(FAN).take_while(fits).count();
            let tail = self.fresh.get(self.fresh.len() - count..).unwrap_or_default();
            let is_due =
                count == FAN || tail.iter().map(|chunk| chunk.rows.batch.num_rows()).sum::<usize>() >= LARGE_ROWS;
            let Some(joined) = is_due.then(|| MemtableChunk::join(tail)).flatten() else {
                return;
            };
            self.fresh.truncate(self.fresh.len() - count);
            self.fresh.push(joined);
        }
    }
}

/// What waits in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlushCandidate {
    pub(crate) place: PartitionKey,
    pub(crate) weight: u64,
}

/// All hot rows.
#[derive(Debug, Default)]
pub(crate) struct MemtableSet {
    places: BTreeMap<PartitionKey, PartitionMemtable>,
    rows: usize,
    weight: u64,
    /// The LSN of the last prefix cut: no chunk has rows of both sides.
    barrier: u64,
}

impl MemtableSet {
    /// Begins a prefix cut: what is here, all of it up to `lsn`, is not joined with what comes from now on.
    pub(crate) const fn set_barrier(&mut self, lsn: u64) {
        self.barrier = lsn;
    }

    /// Adds the rows that the batch `lsn` has in a partition. LSNs come in ascending order.
    pub(crate) fn insert(
        &mut self,
        place: PartitionKey,
        rows: impl Into<Arc<HotBatch>>,
        weight: u64,
        lsn: u64,
        origin: &BatchOrigin,
    ) {
        let rows = rows.into();
        let count = rows.batch.num_rows();
        let here = self.places.entry(place).or_default();
        here.fresh.push(MemtableChunk {
            rows,
            first: lsn,
            last: lsn,
            weight,
        });
        here.origins.add(origin);
        here.rows += count;
        here.weight += weight;
        self.rows += count;
        self.weight += weight;
    }

    /// Joins what came last to a partition, where it is enough.
    pub(crate) fn join(&mut self, place: PartitionKey) {
        if let Some(here) = self.places.get_mut(&place) {
            here.join_tail(self.barrier);
        }
    }

    /// Takes a partition's oldest rows for a publish: whole chunks, at least one, up to about `max_rows` and `max_bytes`.
    /// `committed` is the last LSN that was inserted, or the one that a prefix cut ends with: rows behind it are left. They
    /// stay visible until [`MemtableSet::drop_flushed`].
    pub(crate) fn freeze(
        &mut self,
        place: PartitionKey,
        committed: u64,
        max_rows: usize,
        max_bytes: u64,
    ) -> Option<FrozenRows> {
        let here = self.places.get_mut(&place)?;
        debug_assert!(here.frozen.is_empty(), "one publish at a time");
        let (mut rows, mut weight, mut take) = (0, 0, 0);
        for chunk in &here.fresh {
            rows += chunk.rows.batch.num_rows();
            weight += chunk.weight;
            if chunk.first > committed || take > 0 && (rows > max_rows || weight > max_bytes) {
                break;
            }
            take += 1;
        }
        let behind = here.fresh.split_off(take);
        here.frozen = std::mem::replace(&mut here.fresh, behind);
        let (first, last) = (here.frozen.first()?.first, here.frozen.last()?.last);
        Some(FrozenRows {
            rows: here.frozen.iter().map(|chunk| chunk.rows.batch.clone()).collect(),
            first,
            last,
            through: here
                .fresh
                .first()
                .map_or(committed, |next| committed.min(next.first - 1)),
            origins: here.origins.clone(),
            more: here.fresh.first().is_some_and(|next| next.first <= committed),
        })
    }

    /// The publish failed: the frozen rows wait again, before the fresh ones.
    pub(crate) fn unfreeze(&mut self, place: PartitionKey) {
        if let Some(here) = self.places.get_mut(&place) {
            let fresh = std::mem::take(&mut here.fresh);
            here.fresh = std::mem::take(&mut here.frozen);
            here.fresh.extend(fresh);
        }
    }

    /// The publish is done: the frozen rows are in a file. Returns the weight they had, and the rows themselves: to free them
    /// takes its time.
    pub(crate) fn drop_flushed(&mut self, place: PartitionKey) -> (u64, Vec<MemtableChunk>) {
        let Some(here) = self.places.get_mut(&place) else {
            return (0, Vec::new());
        };
        let frozen = std::mem::take(&mut here.frozen);
        let weight: u64 = frozen.iter().map(|chunk| chunk.weight).sum();
        let rows: usize = frozen.iter().map(|chunk| chunk.rows.batch.num_rows()).sum();
        here.rows -= rows;
        here.weight -= weight;
        if here.fresh.is_empty() {
            self.places.remove(&place);
        }
        self.rows -= rows;
        self.weight -= weight;
        (weight, frozen)
    }

    /// The lowest LSN that has rows here which are not frozen.
    pub(crate) fn first_fresh_lsn(&self) -> Option<u64> {
        let first = |rows: &PartitionMemtable| rows.fresh.first().map(|chunk| chunk.first);
        self.places.values().filter_map(first).min()
    }

    /// Partitions with rows, and their weight.
    pub(crate) fn flush_candidates(&self) -> Vec<FlushCandidate> {
        let waiting = |(place, rows): (&PartitionKey, &PartitionMemtable)| FlushCandidate {
            place: *place,
            weight: rows.weight,
        };
        self.places.iter().map(waiting).collect()
    }

    /// Whether a partition has rows.
    pub(crate) fn has(&self, place: PartitionKey) -> bool {
        self.places.contains_key(&place)
    }

    /// A table's rows.
    pub(crate) fn list(&self, table: Table) -> Vec<Arc<HotBatch>> {
        let of_table = self.places.iter().filter(|((of, _), _)| *of == table);
        of_table
            .flat_map(|(_, rows)| rows.chunks().map(|chunk| Arc::clone(&chunk.rows)))
            .collect()
    }

    pub(crate) const fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) const fn weight(&self) -> u64 {
        self.weight
    }
}

#[cfg(test)]
mod tests;
