//! The flusher's handling of damage: a damaged open file takes no more rows.

use super::MemtableFlusher;
use crate::Error;
use crate::datafile::damage_of;
use crate::flush_scheduler::DamagedFile;
use crate::io_pacing::IoPriority;
use crate::memtable::{FrozenRows, PartitionKey};
use crate::open_partition::FlushedGroup;
use crate::quarantine::{quarantine_open_file, quarantine_unlisted};

impl MemtableFlusher {
    /// Moves files that queries found damaged out of the tree. One that cannot be moved stays, outside every view; the next
    /// start finds it again.
    pub(super) fn quarantine_damaged(&mut self, damaged: Vec<DamagedFile>) {
        // Of a poisoned store nothing is moved any more.
        let damaged = damaged.into_iter().filter(|_| self.shared.poisoned().is_none());
        for DamagedFile {
            place,
            number,
            sealed,
            path,
            rows,
            what,
        } in damaged.collect::<Vec<_>>()
        {
            if sealed {
                // A later version of it has the name by now.
                if self.shared.rows.state.lock().file(place.0, (place.1, number)).is_none() {
                    quarantine_unlisted(&self.shared.store.layout, &path, rows, &what);
                }
                continue;
            }
            // A file that waits for its seal is the sealer's to find.
            if self.open.get(&place).is_some_and(|slot| slot.named.number == number)
                && let Err(error) = self.set_damaged_aside(place)
            {
                if error.is_in_doubt() {
                    self.shared.poison(&error.to_string());
                }
                tracing::error!(rows, %error, "{what}; it stays where it is, no query reads it");
            }
        }
    }

    /// Publishes frozen rows into the partition's file, into a new one if the present one turns out damaged. Its form is
    /// looked at anew: rows of a spec's next version may have come before they were frozen.
    pub(super) fn flush_frozen(
        &mut self,
        place: PartitionKey,
        frozen: &FrozenRows,
        haste: IoPriority,
    ) -> Result<FlushedGroup, Error> {
        self.set_full_aside(place);
        let is_missing = |source: &std::io::Error| source.kind() == std::io::ErrorKind::NotFound;
        match self.flush_open(place, frozen, haste) {
            Err(Error::Damaged { .. }) if self.set_damaged_aside(place)? => self.flush_open(place, frozen, haste),
            Err(Error::Io { source, .. }) if is_missing(&source) && self.set_damaged_aside(place)? => {
                self.flush_open(place, frozen, haste)
            }
            done => done,
        }
    }

    /// Takes the partition's open file away if reading it anew finds it damaged too. Whether it did.
    fn set_damaged_aside(&mut self, place: PartitionKey) -> Result<bool, Error> {
        let Some(slot) = self.open.get_mut(&place) else {
            return Ok(false);
        };
        let Some(reason) = damage_of(&slot.segment)? else {
            return Ok(false);
        };
        let aside = quarantine_open_file(&self.shared, slot, &reason);
        self.open.remove(&place);
        aside.map(|()| true)
    }
}
