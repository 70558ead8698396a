//! Limits the partitions with an open file to a bounded number, whatever times rows claim.
//!
//! | a partition without an open file, when [`crate::Settings::open_max`] files are open | |
//! |---|---|
//! | is the present one | gets one all the same |
//! | has much, or has waited long, or everything must go | its rows become a sealed file at once, without an open one, or go into a small one ([`super::small_file_compaction`]) |
//! | else | waits in memory; the open file of a past partition that was left alone longest is sealed, and makes room for it |
//!
//! # Invariants
//!
//! - Files that are not sealed yet, those that wait for it included, are at most `open_max` and a few of present partitions.
//! - No row waits for ever: rows of a partition that never gets an open file are published after [`LONGEST_WAIT`] ticks.

use super::{MemtableFlusher, WORTHWHILE};
use crate::flush_scheduler::SealJob;
use crate::layout::TimePartition;
use crate::memtable::{FlushCandidate, PartitionKey};

/// Ticks that rows wait for an open file of their partition at most.
const LONGEST_WAIT: u32 = 60;
/// Present partitions may have so many files more, full ones that wait for their seal included.
const PRESENT: usize = 16;

impl MemtableFlusher {
    /// Files that are not sealed yet.
    fn unsealed(&self) -> usize {
        self.open.len() + self.full.len() + self.shared.scheduler.seals()
    }

    /// Whether a partition may have an open file that has none.
    pub(super) fn may_open(&self, place: PartitionKey) -> bool {
        let now = TimePartition::of(self.shared.time.clock.now(), self.shared.settings.partition_by);
        let more = if place.1.of_spec(None) == now { PRESENT } else { 0 };
        self.unsealed() < self.shared.settings.open_max.saturating_add(more)
    }

    /// Leaves only those that are published on this tick if there is no more than one file for each. Seals early what was
    /// left alone longest, as many as are asked for.
    pub(super) fn admit(&mut self, waiting: &mut Vec<FlushCandidate>) {
        let mut free = self.shared.settings.open_max.saturating_sub(self.unsealed());
        let mut asked = 0;
        let present = TimePartition::of(self.shared.time.clock.now(), self.shared.settings.partition_by);
        // The newest first: most of what comes is new.
        waiting.sort_by_key(|waiting| std::cmp::Reverse(waiting.place.1.start()));
        waiting.retain(|waiting| {
            if self.open.contains_key(&waiting.place) || waiting.place.1.of_spec(None) == present {
                return true;
            }
            // Those with many small files are written anew with what came: the more comes at once, the better.
            let is_merged = self.has_many_small(waiting.place);
            if free > 0 && !is_merged {
                free -= 1;
                return true;
            }
            asked += usize::from(!is_merged);
            let waited = self.late.entry(waiting.place).or_insert(0);
            *waited += 1;
            *waited > LONGEST_WAIT || waiting.weight >= WORTHWHILE
        });
        // Those on their way to their seal will make room too.
        let coming = self.unsealed() - self.open.len();
        self.evict(asked.min(self.open.len()).saturating_sub(coming), present);
        let counters = &self.shared.counters;
        counters.late_partitions.set(self.late.len() as u64);
    }

    /// Hands up to `wanted` open files of past partitions to the sealer that nothing came for on the last tick, the longest idle
    /// first. The present ones' would only be begun again.
    fn evict(&mut self, wanted: usize, present: TimePartition) {
        let mut idle: Vec<(u32, PartitionKey)> = self.open.values().map(|slot| (slot.idle, slot.place)).collect();
        idle.retain(|(idle, place)| *idle > 0 && place.1.of_spec(None) != present);
        idle.sort_by_key(|(idle, place)| (std::cmp::Reverse(*idle), *place));
        for (_, place) in idle.into_iter().take(wanted) {
            self.full.extend(self.open.remove(&place).map(SealJob::new));
            self.shared.counters.evicted_files.add(1);
        }
    }
}
