//! Port sequence: a message's sequence number within a port and a run of its Rack.
//!
//! # Invariants
//!
//! - The places of a port grow: by the run, and within a run by one for each message. No run comes twice, so no place does.
//! - A message without a place is from a foreign publisher; the stream's sequence takes its place.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use super::ConsumerOffset;

/// See the module. Ordered within one outbox and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortSequenceNumber {
    /// The outbox that numbered it; nil if the stream did.
    pub(crate) outbox: Uuid,
    /// The boot epoch of the outbox; 0 if the stream numbered it.
    pub(crate) run: u64,
    /// From 1, without gaps.
    pub(crate) number: u64,
}

impl fmt::Display for PortSequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.outbox, self.run, self.number)
    }
}

impl PortSequenceNumber {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/');
        Some(Self {
            // The nil one is for places in the stream.
            outbox: Uuid::try_parse(parts.next()?).ok().filter(|outbox| !outbox.is_nil())?,
            run: parts.next()?.parse().ok()?,
            number: parts.next()?.parse().ok().filter(|number| *number > 0)?,
        })
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [
            self.outbox.as_bytes().as_slice(),
            &self.run.to_le_bytes(),
            &self.number.to_le_bytes(),
        ]
        .concat()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (outbox, numbers) = bytes.split_at_checked(16)?;
        let (run, number) = numbers.split_at_checked(8)?;
        Some(Self {
            outbox: Uuid::from_slice(outbox).ok()?,
            run: u64::from_le_bytes(run.try_into().ok()?),
            number: u64::from_le_bytes(number.try_into().ok()?),
        })
    }

    /// Whether it is `last` or comes before it.
    pub(crate) fn is_behind(self, last: Self) -> bool {
        self.outbox == last.outbox && self <= last
    }

    /// How many places lie between `last` and this one. Those at the end of an earlier run are not known.
    pub(crate) const fn gap_since(self, last: Self) -> u64 {
        let before = if self.run == last.run { last.number } else { 0 };
        if self.outbox.is_nil() {
            0
        } else {
            self.number.saturating_sub(before).saturating_sub(1)
        }
    }
}

/// The last place of each source that was put into an inbox. Lives as long as the inbox.
#[derive(Debug, Default)]
pub(crate) struct DeliveredOffsets(pub(crate) parking_lot::Mutex<BTreeMap<Arc<str>, PortSequenceNumber>>);

impl DeliveredOffsets {
    pub(crate) fn last(&self, key: &str) -> Option<PortSequenceNumber> {
        self.0.lock().get(key).copied()
    }

    pub(crate) fn set(&self, last: &ConsumerOffset) {
        let mut all = self.0.lock();
        if let Some(place) = all.get_mut(&last.key) {
            *place = last.place;
        } else {
            all.insert(Arc::clone(&last.key), last.place);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const fn place(outbox: u8, run: u64, number: u64) -> PortSequenceNumber {
        let outbox = Uuid::from_bytes([outbox; 16]);
        PortSequenceNumber { outbox, run, number }
    }

    #[test]
    fn a_place_comes_back_and_what_is_none_is_none() {
        let one = place(7, 1_764_000_000_000_001, 9);
        assert_eq!(PortSequenceNumber::parse(&one.to_string()), Some(one));
        assert_eq!(PortSequenceNumber::from_bytes(&one.to_bytes()), Some(one));
        for text in [
            "",
            "not a place/0",
            "07070707-0707-0707-0707-070707070707/1",
            "07070707-0707-0707-0707-070707070707/1/0",
            "00000000-0000-0000-0000-000000000000/5/1",
        ] {
            assert_eq!(PortSequenceNumber::parse(text), None, "{text}");
        }
        assert_eq!(PortSequenceNumber::from_bytes(&[1; 31]), None);
    }

    #[test]
    fn places_of_one_outbox_are_in_order_and_those_of_another_are_never_behind() {
        assert!(place(1, 3, 7).is_behind(place(1, 3, 7)) && place(1, 3, 9).is_behind(place(1, 4, 1)));
        assert!(!place(1, 3, 8).is_behind(place(1, 3, 7)) && !place(1, 3, 1).is_behind(place(2, 9, 9)));
        for (next, last, missing) in [
            ((3, 8), (3, 7), 0),
            ((3, 9), (3, 7), 1),
            ((4, 1), (3, 7), 0),
            ((4, 3), (3, 7), 2),
        ] {
            assert_eq!(place(1, next.0, next.1).gap_since(place(1, last.0, last.1)), missing);
        }
        assert_eq!(place(0, 0, 9).gap_since(place(0, 0, 2)), 0);
    }
}
