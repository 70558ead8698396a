//! The publisher's turn at damage: an open file that is not what was published takes no more rows.

use super::Publisher;
use crate::Error;
use crate::desk::Damaged;
use crate::hot::{Frozen, Place};
use crate::pace::Haste;
use crate::quarantine::{keep_hidden, set_aside};
use crate::segment::damage_of;
use crate::slot::Done;

impl Publisher {
    /// Moves files that queries found damaged out of the tree. One that cannot be moved stays, outside every view; the next
    /// start finds it again.
    pub(super) fn put_aside(&mut self, damaged: Vec<Damaged>) {
        // Of a poisoned store nothing is moved any more.
        let damaged = damaged.into_iter().filter(|_| self.shared.poisoned().is_none());
        for Damaged {
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
                if self.shared.state.lock().file(place.0, (place.1, number)).is_none() {
                    keep_hidden(&self.shared.layout, &path, rows, &what);
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
    pub(super) fn publish_frozen(&mut self, place: Place, frozen: &Frozen, haste: Haste) -> Result<Done, Error> {
        self.set_full_aside(place);
        let is_missing = |source: &std::io::Error| source.kind() == std::io::ErrorKind::NotFound;
        match self.publish_open(place, frozen, haste) {
            Err(Error::Damaged { .. }) if self.set_damaged_aside(place)? => self.publish_open(place, frozen, haste),
            Err(Error::Io { source, .. }) if is_missing(&source) && self.set_damaged_aside(place)? => {
                self.publish_open(place, frozen, haste)
            }
            done => done,
        }
    }

    /// Takes the partition's open file away if reading it anew finds it damaged too. Whether it did.
    fn set_damaged_aside(&mut self, place: Place) -> Result<bool, Error> {
        let Some(slot) = self.open.get_mut(&place) else {
            return Ok(false);
        };
        let Some(reason) = damage_of(&slot.segment)? else {
            return Ok(false);
        };
        let aside = set_aside(&self.shared, slot, &reason);
        self.open.remove(&place);
        aside.map(|()| true)
    }
}
