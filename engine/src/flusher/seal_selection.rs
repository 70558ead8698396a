//! Selects which open files the sealer gets, and when.
//!
//! # Not here
//!
//! The seal itself, and what becomes of one that failed: [`crate::sealer`].

use super::MemtableFlusher;
use crate::flush_scheduler::SealJob;
use crate::memtable::PartitionKey;
use crate::open_partition::OpenPartition;

impl MemtableFlusher {
    /// Offers the sealer what is full and what is past.
    pub(super) fn offer_seals(&mut self, on_time: bool) {
        for place in self.seal_candidates() {
            self.full.extend(self.open.remove(&place).map(SealJob::new));
        }
        if on_time {
            for slot in self.open.values_mut() {
                slot.idle = if slot.touched { 0 } else { slot.idle.saturating_add(1) };
                slot.touched = false;
            }
        }
        let mut kept = Vec::new();
        for mut job in std::mem::take(&mut self.full) {
            if job.tick_backoff(on_time) {
                kept.extend(self.shared.scheduler.seal(job));
            } else {
                kept.push(job);
            }
        }
        self.full = kept;
    }

    /// The partitions whose open files take no more rows.
    fn seal_candidates(&self) -> Vec<PartitionKey> {
        let now = self.shared.time.clock.now();
        let grace = self.shared.settings.seal_grace;
        let cap = self.shared.settings.segment_size.get();
        let state = self.shared.rows.state.lock();
        let past = |slot: &OpenPartition| {
            let over = slot.place.1.end().plus(grace) <= now && slot.published.plus(grace) <= now;
            over && !state.hot.has(slot.place)
        };
        let ripe = |slot: &&OpenPartition| slot.segment.is_full() || slot.segment.size() >= cap || past(slot);
        self.open.values().filter(ripe).map(|slot| slot.place).collect()
    }
}
