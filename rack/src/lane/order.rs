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
//! - A message may be *left with the bus*: we know where it stands, its body is asked for when it is its turn. For the proof it is
//!   with us, since it is none of those that are missing.
//!
//! # Not here
//!
//! Asking the bus, and how often ([`super::inlet`]); how much may wait ([`super::sources`]).
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
    /// What the bus sends again, by number; its item says whether it was asked to.
    left: BTreeMap<u64, Waiting<IsAsked>>,
}

/// Whether the bus was asked to send a message again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IsAsked(bool);

impl<T> Source<T> {
    /// A source of which everything up to `last` was given out.
    pub(super) const fn new(outbox: Uuid, last: Option<u64>) -> Self {
        Self {
            outbox,
            last,
            waiting: BTreeMap::new(),
            left: BTreeMap::new(),
        }
    }

    /// Takes a message that is next, or waits for the ones before; false if it was given out, or waits already.
    pub(super) fn came(&mut self, number: u64, mut message: Waiting<T>) -> bool {
        if self.last.is_some_and(|last| number <= last) {
            return false;
        }
        if let Some(left) = self.left.remove(&number) {
            message.landed = message.landed.max(left.landed);
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
        let (number, wanted) = (self.due(sure)?, self.wanted());
        let item = self.waiting.remove(&number)?.item;
        let is_counted = self.last.is_some() && !self.outbox.is_nil();
        self.last = Some(number);
        let missing = if is_counted { number.saturating_sub(wanted) } else { 0 };
        Some((self.place(number), item, missing))
    }

    /// The first so many that were left with the bus, if it is the turn of the first: the bus is to send them again, which is
    /// said of each once.
    pub(super) fn ask_for(&mut self, sure: Option<u64>, most: usize) -> Vec<Place> {
        if self.left.is_empty() {
            return Vec::new();
        }
        let Some(first) = self.due(sure).filter(|first| self.left.contains_key(first)) else {
            return Vec::new();
        };
        let mut due = Vec::new();
        for (number, left) in self.left.range_mut(first..).take(most) {
            if !std::mem::replace(&mut left.item, IsAsked(true)).0 {
                due.push(*number);
            }
        }
        due.into_iter().map(|number| self.place(number)).collect()
    }

    /// Leaves the message with the bus that is the furthest from its turn.
    pub(super) fn leave_last(&mut self) -> Option<(Place, T)> {
        let number = self.last_to_leave()?;
        let Waiting { item, delivery, landed } = self.waiting.remove(&number)?;
        let left = Waiting {
            item: IsAsked(false),
            delivery,
            landed,
        };
        self.left.insert(number, left);
        Some((self.place(number), item))
    }

    /// How far that message is from its turn.
    pub(super) fn reach(&self) -> Option<u64> {
        Some(self.last_to_leave()?.saturating_sub(self.wanted()))
    }

    /// The last message here that the bus has as well.
    fn last_to_leave(&self) -> Option<u64> {
        let mut last_first = self.waiting.iter().rev();
        let is_with_bus = |message: &Waiting<T>| message.delivery.is_some_and(|delivery| delivery > 0);
        last_first
            .find(|(_, message)| is_with_bus(message))
            .map(|(number, _)| *number)
    }

    /// The bus does not have a message any more; false if it was not left there.
    pub(super) fn forget_left(&mut self, number: u64) -> bool {
        self.left.remove(&number).is_some()
    }

    const fn place(&self, number: u64) -> Place {
        Place {
            outbox: self.outbox,
            number,
        }
    }

    fn wanted(&self) -> u64 {
        self.last.map_or(1, |last| last.saturating_add(1))
    }

    /// The first message that we know of, if it is its turn.
    fn due(&self, sure: Option<u64>) -> Option<u64> {
        let (here, left) = (self.waiting.keys().next(), self.left.keys().next());
        let number = *here.into_iter().chain(left).min()?;
        let is_next = number == self.wanted() && !self.outbox.is_nil();
        (is_next || self.never_come_before(number, sure?)).then_some(number)
    }

    /// Whether there is a witness that the numbers missing before this one, the first that we know of, never come.
    fn never_come_before(&self, number: u64, sure: u64) -> bool {
        let before = number.saturating_sub(1);
        let is_proof = |landed: u64, delivery: Option<u64>| landed >= before && delivery.is_some_and(|at| at <= sure);
        self.waiting
            .values()
            .any(|witness| is_proof(witness.landed, witness.delivery))
            || self
                .left
                .values()
                .any(|witness| is_proof(witness.landed, witness.delivery))
    }

    /// What was delivered later than this delivery counts as not delivered: the consumer is another one, or does not know. Says
    /// what was left with the bus and is known no more: the consumer need not send it.
    pub(super) fn forget_after(&mut self, delivery: u64) -> Vec<Place> {
        let is_known = |at: Option<u64>| at.is_some_and(|at| at <= delivery);
        for message in self.waiting.values_mut() {
            message.delivery = message.delivery.filter(|at| is_known(Some(*at)));
        }
        let gone = self.left.extract_if(.., |_, message| !is_known(message.delivery));
        let gone: Vec<u64> = gone.map(|(number, _)| number).collect();
        gone.into_iter().map(|number| self.place(number)).collect()
    }

    /// The stream is another one: no foreign message of the old one comes any more.
    pub(super) fn stream_is_lost(&mut self) {
        if self.outbox.is_nil() {
            self.waiting.values_mut().for_each(|message| message.delivery = Some(0));
        }
    }

    /// How many wait, here and with the bus.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len() + self.left.len()
    }

    /// Whether some are left with the bus.
    pub(super) fn has_left(&self) -> bool {
        !self.left.is_empty()
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
        assert_eq!(foreign.leave_last(), None, "nobody else has it");
        assert_eq!(drain(&mut foreign, Some(0)), [3]);
    }

    #[test]
    fn what_is_left_with_the_bus_is_asked_for_once_when_its_turn_comes() {
        let mut source = Source::new(BOX, Some(1));
        for number in [3, 4, 5] {
            source.came(number, sent(number, number, 1));
        }
        assert_eq!(source.reach(), Some(3));
        assert_eq!(source.leave_last(), Some((at(5), 5)));
        assert_eq!(source.leave_last(), Some((at(4), 4)));
        assert_eq!(source.ask_for(Some(5), 64), []);
        source.came(2, sent(2, 6, 1));
        assert_eq!(drain(&mut source, Some(6)), [2, 3]);
        assert_eq!(source.ask_for(Some(6), 64), [at(4), at(5)]);
        assert_eq!(source.ask_for(Some(6), 64), []);
        source.came(5, sent(5, 7, 1));
        assert_eq!(source.next(Some(7)), None);
        source.came(4, sent(4, 8, 1));
        assert_eq!(drain(&mut source, Some(8)), [4, 5]);
    }

    #[test]
    fn what_is_left_with_the_bus_is_not_given_up_and_is_a_witness() {
        let mut source = Source::new(BOX, Some(1));
        source.came(3, sent(3, 1, 1));
        source.came(4, sent(4, 2, 2));
        source.leave_last();
        assert_eq!(source.next(Some(2)), Some((at(3), 3, 1)), "4 knows that 2 had landed");
        source.came(5, sent(5, 3, 4));
        assert_eq!(source.next(Some(3)), None, "4 comes");
        assert!(source.forget_left(4) && !source.forget_left(4));
        assert_eq!(source.next(Some(3)), Some((at(5), 5, 1)));
    }

    #[test]
    fn what_was_left_with_a_consumer_that_is_another_one_now_is_not_known_any_more() {
        let mut source = Source::new(BOX, Some(1));
        source.came(2, sent(2, 1, 1));
        source.leave_last();
        assert_eq!(source.forget_after(0), [at(2)]);
        source.came(3, sent(3, 1, 2));
        assert_eq!(source.next(Some(1)), Some((at(3), 3, 1)));
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
