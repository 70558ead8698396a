//! The order of messages of one port, at who receives them: by their numbers, each once.
//!
//! # Invariants
//!
//! - A number is given out once; a smaller one than the last is old, a larger one than the next waits.
//! - A number that does not come within [`GAP`] is given up: it was older than what the stream keeps. What waits goes on then.
//! - A message without a place is of a foreign publisher: it comes in the order of the stream.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

/// How long a number is waited for: longer than the bus takes to send again what a receiver that died had.
pub(crate) const GAP: Duration = Duration::from_secs(90);
/// How long the first message of a port waits for earlier ones.
const SETTLE: Duration = Duration::from_secs(2);

/// Where a message stands among those of its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The outbox that numbered it; nil for the stream's own number.
    pub(crate) outbox: Uuid,
    /// From 1, without gaps.
    pub(crate) number: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.outbox, self.number)
    }
}

impl Place {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (outbox, number) = text.split_once('/')?;
        Some(Self {
            outbox: Uuid::try_parse(outbox).ok()?,
            number: number.parse().ok().filter(|number| *number > 0)?,
        })
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        [self.outbox.as_bytes().as_slice(), &self.number.to_le_bytes()].concat()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (outbox, number) = bytes.split_at_checked(16)?;
        Some(Self {
            outbox: Uuid::from_slice(outbox).ok()?,
            number: u64::from_le_bytes(number.try_into().ok()?),
        })
    }
}

/// The last place that was given out, of each source. It lives as long as the queue that it was given into.
#[derive(Debug, Default)]
pub(crate) struct Delivered(pub(crate) parking_lot::Mutex<BTreeMap<String, Place>>);

/// What becomes of a message that came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// It is next, or waits for the ones before.
    Kept,
    /// It was given out before.
    Old,
}

/// The messages of one source.
#[derive(Debug)]
pub(super) struct Source<T> {
    last: Option<Place>,
    outbox: Uuid,
    waiting: BTreeMap<u64, T>,
    since: Option<Instant>,
}

impl<T> Source<T> {
    /// A source of which everything up to `last` was given out.
    pub(super) fn new(last: Option<Place>) -> Self {
        Self {
            outbox: last.map_or(Uuid::nil(), |last| last.outbox),
            last,
            waiting: BTreeMap::new(),
            since: None,
        }
    }

    /// A Rack that lost its state counts anew; what waited of the old count never becomes next, and is given back.
    pub(super) fn turn_to(&mut self, outbox: Uuid) -> Vec<T> {
        if outbox == self.outbox {
            return Vec::new();
        }
        self.outbox = outbox;
        self.last = None;
        self.since = None;
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    pub(super) fn came(&mut self, place: Place, item: T, now: Instant) -> Came {
        self.turn_to(place.outbox);
        if self.last.is_some_and(|last| place.number <= last.number) || self.waiting.contains_key(&place.number) {
            return Came::Old;
        }
        self.waiting.insert(place.number, item);
        self.since.get_or_insert(now);
        Came::Kept
    }

    /// The next message, and how many before it never came.
    pub(super) fn next(&mut self, now: Instant) -> Option<(Place, T, u64)> {
        let number = *self.waiting.keys().next()?;
        let wanted = self.last.map_or(1, |last| last.number + 1);
        let is_next = number == wanted || self.outbox.is_nil();
        if !is_next && self.until().is_none_or(|until| now < until) {
            return None;
        }
        let item = self.waiting.remove(&number)?;
        let missing = if is_next || self.last.is_none() {
            0
        } else {
            number - wanted
        };
        let place = Place {
            outbox: self.outbox,
            number,
        };
        self.last = Some(place);
        self.since = (!self.waiting.is_empty()).then_some(now);
        Some((place, item, missing))
    }

    /// Until when the next number is waited for; none if nothing waits.
    pub(super) fn until(&self) -> Option<Instant> {
        // Nobody knows how many came before the first that is seen.
        let patience = if self.last.is_some() { GAP } else { SETTLE };
        Some(self.since? + patience)
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const BOX: Uuid = Uuid::from_bytes([7; 16]);

    fn at(number: u64) -> Place {
        Place { outbox: BOX, number }
    }

    fn drain(source: &mut Source<u64>, now: Instant) -> Vec<u64> {
        std::iter::from_fn(|| source.next(now))
            .map(|(place, item, _)| {
                assert_eq!(place.number, item);
                item
            })
            .collect()
    }

    #[test]
    fn messages_come_out_in_the_order_of_their_numbers_and_once() {
        let now = Instant::now();
        let mut source = Source::new(Some(at(2)));
        for (number, came, out) in [
            (4, Came::Kept, vec![]),
            (2, Came::Old, vec![]),
            (3, Came::Kept, vec![3, 4]),
            (4, Came::Old, vec![]),
            (6, Came::Kept, vec![]),
            (6, Came::Old, vec![]),
            (5, Came::Kept, vec![5, 6]),
        ] {
            assert_eq!(source.came(at(number), number, now), came, "{number}");
            assert_eq!(drain(&mut source, now), out, "after {number}");
        }
    }

    #[test]
    fn a_number_that_never_comes_is_given_up_and_counted() {
        let now = Instant::now();
        let mut source = Source::new(Some(at(1)));
        source.came(at(5), 5, now);
        assert!(source.next(now + GAP - Duration::from_millis(1)).is_none());
        assert_eq!(source.until(), Some(now + GAP));
        assert_eq!(source.next(now + GAP), Some((at(5), 5, 3)));
        assert_eq!(source.came(at(3), 3, now), Came::Old);
    }

    #[test]
    fn the_first_message_waits_a_moment_for_earlier_ones_and_number_one_for_none() {
        let now = Instant::now();
        let mut source = Source::new(None);
        source.came(at(12), 12, now);
        assert!(source.next(now).is_none());
        source.came(at(11), 11, now);
        assert_eq!(source.next(now + SETTLE), Some((at(11), 11, 0)));
        assert_eq!(drain(&mut source, now), [12]);
        let mut source = Source::new(None);
        source.came(at(1), 1, now);
        assert_eq!(drain(&mut source, now), [1]);
    }

    #[test]
    fn a_rack_that_lost_its_state_counts_anew_and_foreign_messages_need_no_numbers() {
        let now = Instant::now();
        let mut source = Source::new(Some(at(900)));
        let other = Place {
            outbox: Uuid::from_bytes([8; 16]),
            number: 1,
        };
        assert_eq!(source.came(other, 1, now), Came::Kept);
        assert_eq!(drain(&mut source, now), [1]);
        let mut source = Source::new(None);
        for number in [5, 9, 70] {
            let place = Place {
                outbox: Uuid::nil(),
                number,
            };
            source.came(place, number, now);
        }
        assert_eq!(drain(&mut source, now), [5, 9, 70]);
    }

    #[test]
    fn what_waited_of_a_count_that_is_over_is_given_back() {
        let now = Instant::now();
        let mut source = Source::new(Some(at(3)));
        for number in [5, 6] {
            source.came(at(number), number, now);
        }
        assert_eq!(source.turn_to(BOX), [0; 0]);
        assert_eq!(source.turn_to(Uuid::from_bytes([8; 16])), [5, 6]);
        assert_eq!((source.waiting(), source.until()), (0, None));
    }

    #[test]
    fn a_place_comes_back_as_text_and_as_bytes() {
        let place = at(77);
        assert_eq!(Place::parse(&place.to_string()), Some(place));
        assert_eq!(Place::from_bytes(&place.to_bytes()), Some(place));
        for bad in [
            "",
            "x/1",
            "07070707-0707-0707-0707-070707070707/0",
            "07070707-0707-0707-0707-070707070707",
        ] {
            assert_eq!(Place::parse(bad), None, "{bad}");
        }
        assert_eq!(Place::from_bytes(&[1; 23]), None);
    }
}
