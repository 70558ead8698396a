//! The order of messages of one port, at who receives them: by their numbers, each once.
//!
//! # Invariants
//!
//! - A number is given out once; a smaller one than the last is old, a larger one than the next waits.
//! - A number is given up only when it is proven that it never comes; no clock decides that. The proof has two halves, and a
//!   message that waits, the *witness*, carries both:
//!   1. Its Rack says with it that every number before the missing one's successor had been accepted by the stream when the
//!      witness was sent ([`wire::LANDED`](model::wire::LANDED)). So what is missing stands before the witness in the stream,
//!      or stood in one that is lost and was in the archive by then: a Rack sends everything else again, in order, to a stream
//!      that is another one, and to a bus that began anew.
//!   2. Everything that the consumer has delivered up to the witness and that was not acknowledged is with us ([`Proof`]). A
//!      consumer delivers in the order of the stream, so what is missing was acknowledged, or is not in the stream any more.
//!
//!   The last message of a burst is sent when those before it have been accepted, so there is a witness in the end.
//! - A message without a place is of a foreign publisher: its number is that of the stream, which is its own witness. It waits
//!   for the second half only.
//!
//! # Not here
//!
//! Asking the bus, and how often ([`super::inlet`]).
//!
//! [`Proof`]: super::proof::Proof

use std::collections::BTreeMap;
use std::fmt;

use uuid::Uuid;

/// Where a message stands among those of its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

/// A message as it came.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) item: T,
    /// The consumer's number of its delivery; none for one that this consumer has not delivered.
    pub(super) delivery: Option<u64>,
    /// All numbers up to this one had been accepted by the stream when it was sent.
    pub(super) landed: u64,
}

/// The messages of one source: those of a port that one outbox numbered, or those of foreign publishers in one stream.
#[derive(Debug)]
pub(super) struct Source<T> {
    outbox: Uuid,
    last: Option<u64>,
    waiting: BTreeMap<u64, Waiting<T>>,
}

impl<T> Source<T> {
    /// A source of which everything up to `last` was given out.
    pub(super) const fn new(outbox: Uuid, last: Option<u64>) -> Self {
        Self {
            outbox,
            last,
            waiting: BTreeMap::new(),
        }
    }

    /// Takes a message that is next, or waits for the ones before; false if it was given out, or waits already.
    pub(super) fn came(&mut self, number: u64, message: Waiting<T>) -> bool {
        if self.last.is_some_and(|last| number <= last) {
            return false;
        }
        if let Some(known) = self.waiting.get_mut(&number) {
            known.delivery = message.delivery;
            known.landed = known.landed.max(message.landed);
            return false;
        }
        self.waiting.insert(number, message);
        true
    }

    /// The next message, and how many before it never come. `sure`: everything delivered up to there is with us, or
    /// acknowledged.
    pub(super) fn next(&mut self, sure: Option<u64>) -> Option<(Place, T, u64)> {
        let number = *self.waiting.keys().next()?;
        let wanted = self.last.map_or(1, |last| last.saturating_add(1));
        let is_next = number == wanted && !self.outbox.is_nil();
        if !is_next && !self.never_come_before(number, sure?) {
            return None;
        }
        let item = self.waiting.remove(&number)?.item;
        let is_counted = self.last.is_some() && !self.outbox.is_nil();
        self.last = Some(number);
        let missing = if is_counted { number.saturating_sub(wanted) } else { 0 };
        let place = Place {
            outbox: self.outbox,
            number,
        };
        Some((place, item, missing))
    }

    /// Whether there is a witness that the numbers missing before this one, the first that waits, never come.
    fn never_come_before(&self, number: u64, sure: u64) -> bool {
        let (mut waiting, before) = (self.waiting.values(), number.saturating_sub(1));
        waiting.any(|witness| witness.landed >= before && witness.delivery.is_some_and(|delivery| delivery <= sure))
    }

    /// What was delivered later than this delivery counts as not delivered: the consumer is another one, or does not know.
    pub(super) fn forget_after(&mut self, delivery: u64) {
        for message in self.waiting.values_mut() {
            message.delivery = message.delivery.filter(|known| *known <= delivery);
        }
    }

    /// The stream is another one: no foreign message of the old one comes any more.
    pub(super) fn stream_is_lost(&mut self) {
        if self.outbox.is_nil() {
            self.waiting.values_mut().for_each(|message| message.delivery = Some(0));
        }
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

    /// A message that was sent when everything up to `landed` had been accepted.
    fn sent(item: u64, delivery: u64, landed: u64) -> Waiting<u64> {
        Waiting {
            item,
            delivery: Some(delivery),
            landed,
        }
    }

    const BOX: Uuid = Uuid::from_bytes([7; 16]);

    fn at(number: u64) -> Place {
        Place { outbox: BOX, number }
    }

    fn drain(source: &mut Source<u64>, sure: Option<u64>) -> Vec<u64> {
        std::iter::from_fn(|| source.next(sure))
            .map(|(place, item, _)| {
                assert_eq!(place.number, item);
                item
            })
            .collect()
    }

    #[test]
    fn messages_come_out_in_the_order_of_their_numbers_and_once() {
        let mut source = Source::new(BOX, Some(2));
        for (delivery, (number, is_new, out)) in (1..).zip([
            (4, true, vec![]),
            (2, false, vec![]),
            (3, true, vec![3, 4]),
            (4, false, vec![]),
            (6, true, vec![]),
            (6, false, vec![]),
            (5, true, vec![5, 6]),
        ]) {
            assert_eq!(source.came(number, sent(number, delivery, 0)), is_new, "{number}");
            assert_eq!(drain(&mut source, Some(delivery)), out, "after {number}");
        }
    }

    #[test]
    fn a_number_is_given_up_when_the_bus_has_nothing_outstanding_and_counted() {
        let mut source = Source::new(BOX, Some(1));
        source.came(5, sent(5, 9, 4));
        assert_eq!(source.next(None), None, "somebody else may have it");
        assert_eq!(source.next(Some(8)), None, "that was before it was delivered");
        assert_eq!(source.next(Some(9)), Some((at(5), 5, 3)));
        assert!(!source.came(3, sent(3, 10, 2)));
    }

    #[test]
    fn a_number_that_its_rack_has_not_got_accepted_is_waited_for() {
        let mut source = Source::new(BOX, Some(4));
        // 5 was refused, what was on its way with it was not.
        for number in 6..9 {
            source.came(number, sent(number, number, 4));
        }
        assert_eq!(source.next(Some(8)), None);
        source.came(5, sent(5, 9, 4));
        assert_eq!(drain(&mut source, Some(9)), [5, 6, 7, 8]);
        source.came(11, sent(11, 10, 8));
        assert_eq!(source.next(Some(10)), None);
        // One sent later says that 9 and 10 had been accepted.
        source.came(12, sent(12, 11, 11));
        assert_eq!(source.next(Some(11)), Some((at(11), 11, 2)));
    }

    #[test]
    fn the_first_message_waits_for_earlier_ones_that_are_outstanding_and_number_one_for_none() {
        let mut source = Source::new(BOX, None);
        source.came(12, sent(12, 1, 11));
        assert_eq!(source.next(None), None);
        source.came(11, sent(11, 2, 10));
        assert_eq!(source.next(Some(2)), Some((at(11), 11, 0)));
        assert_eq!(drain(&mut source, Some(2)), [12]);
        let mut source = Source::new(BOX, None);
        source.came(1, sent(1, 1, 0));
        assert_eq!(drain(&mut source, None), [1]);
    }

    #[test]
    fn foreign_messages_need_no_numbers_and_wait_for_what_is_outstanding() {
        let mut source = Source::new(Uuid::nil(), None);
        source.came(129, sent(129, 140, 128));
        assert_eq!(source.next(None), None);
        source.came(11, sent(11, 141, 10));
        source.came(70, sent(70, 142, 69));
        assert_eq!(drain(&mut source, Some(142)), [11, 70, 129]);
    }

    #[test]
    fn another_consumer_has_delivered_nothing_of_what_waits() {
        let mut source = Source::new(BOX, Some(1));
        source.came(3, sent(3, 4, 2));
        source.forget_after(0);
        assert_eq!(source.next(Some(9)), None);
        source.came(3, sent(3, 10, 2));
        assert_eq!(drain(&mut source, Some(10)), [3]);
        let mut foreign = Source::new(Uuid::nil(), None);
        foreign.came(3, sent(3, 4, 2));
        foreign.forget_after(0);
        foreign.stream_is_lost();
        assert_eq!(drain(&mut foreign, Some(0)), [3]);
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
