//! The publisher's turn at damage: an open file that is not what was published takes no more rows.

use super::Publisher;
use crate::Error;
use crate::hot::{Frozen, Place};
use crate::quarantine::set_aside;
use crate::segment::damage_of;
use crate::slot::Done;

impl Publisher {
    /// Publishes frozen rows into the partition's file, into a new one if the present one turns out damaged.
    pub(super) fn publish_frozen(&mut self, place: Place, frozen: &Frozen) -> Result<Done, Error> {
        self.set_full_aside(place);
        match self.publish_open(place, frozen) {
            Err(Error::Damaged { .. }) if self.set_damaged_aside(place)? => self.publish_open(place, frozen),
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
