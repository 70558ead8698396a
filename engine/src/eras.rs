//! Which messages of a bus stream were seen: sequences and the times at which the bus stored them, in little room.
//!
//! A bus that lost acknowledged messages gives their sequences to new ones. The bus's time is therefore cut into *eras*, each
//! with the sequences of the messages that were stored in it, in whatever order they come here:
//!
//! ```text
//!   1 … 8 9 10            8 9 10 11 …
//! (───────────]  pause  (────────────]     time of the bus ─>
//! after   latest        after   latest
//! ```
//!
//! A message was seen exactly if the era of its time has its sequence. One from outside of all eras was not, and begins an
//! era of its own. Two neighbours become one if all sequences of the later are higher, and the pause between them was either
//! too short for a loss ([`SHORT`]) or is past ([`PAST`]).
//!
//! # Invariants
//!
//! - Eras are disjoint and only grow: what was seen stays seen, whatever the bus's clock does.
//! - No era is on both sides of a loss as far as these hold: the bus's clock does not go back over a loss; the bus is not
//!   back within [`SHORT`]; of what has a used sequence something comes before the pause is past.
//! - Eras are bounded ([`MOST`]): the oldest become one.

use serde::{Deserialize, Serialize};

use crate::BusPosition;
use crate::seqs::Seqs;

/// No bus that lost something goes on so soon (µs).
const SHORT: i64 = 100_000;
/// A pause is past when the stream has gone on for so many times its length.
const PAST: i64 = 64;
/// Eras of a stream at most.
const MOST: usize = 256;

/// A span of a stream's time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Era {
    /// Its messages were stored by the bus after this time (µs).
    after: i64,
    /// The latest store time seen in it (µs).
    latest: i64,
    seqs: Seqs,
}

/// The eras of one stream, oldest first; never empty once a message was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Eras(Vec<Era>);

/// Whether a message was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Never,
    Before,
    /// The sequence was, with another message.
    Reused,
}

impl Era {
    /// Whether nothing can have been lost between this one and the next, as the stream is at `now`.
    fn goes_on_in(&self, next: &Self, now: i64) -> bool {
        let pause = next.after.saturating_sub(self.latest);
        let is_past = pause.saturating_mul(PAST) < now.saturating_sub(self.latest);
        self.seqs.last() < next.seqs.first() && (pause < SHORT || is_past)
    }

    fn join(&mut self, other: &Self) {
        self.after = self.after.min(other.after);
        self.latest = self.latest.max(other.latest);
        self.seqs.join(&other.seqs);
    }
}

impl Eras {
    /// Whether a message was seen.
    pub(crate) fn check(&self, position: &BusPosition) -> Seen {
        let stored = time(position);
        let has = |era: &Era| era.seqs.contains(position.seq);
        let at = self.0.partition_point(|era| era.after < stored);
        let era = at.checked_sub(1).and_then(|at| self.0.get(at));
        if era.is_some_and(|era| stored <= era.latest && has(era)) {
            Seen::Before
        } else if self.0.iter().any(has) {
            Seen::Reused
        } else {
            Seen::Never
        }
    }

    /// Counts a message as seen.
    pub(crate) fn insert(&mut self, position: &BusPosition) {
        let stored = time(position);
        let at = self.0.partition_point(|era| era.after < stored);
        let era = at.checked_sub(1).and_then(|at| self.0.get_mut(at));
        if let Some(era) = era.filter(|era| stored <= era.latest) {
            era.seqs.insert(position.seq);
            return;
        }
        let mut era = Era {
            after: stored - 1,
            latest: stored,
            seqs: Seqs::default(),
        };
        era.seqs.insert(position.seq);
        self.0.insert(at, era);
        self.settle(stored);
    }

    /// Counts every sequence up to `last` as seen, of messages that the bus had by `until` (µs) and since its last known loss.
    pub(crate) fn assume(&mut self, last: u64, until: i64) {
        self.settle(i64::MAX);
        let mut era = self.0.pop().unwrap_or_else(|| Era {
            after: i64::MIN,
            latest: until,
            seqs: Seqs::default(),
        });
        era.after = self.0.last().map_or(i64::MIN, |before| before.latest);
        era.latest = era.latest.max(until);
        era.seqs.raise(last);
        self.0.push(era);
    }

    /// Adds what others saw. Eras that share time become one: a message that either has is found in it.
    pub(crate) fn join(&mut self, other: &Self) {
        for theirs in &other.0 {
            let from = self.0.partition_point(|era| era.latest <= theirs.after);
            let to = self.0.partition_point(|era| era.after < theirs.latest).max(from);
            if let Some([first, more @ ..]) = self.0.get_mut(from..to) {
                first.join(theirs);
                more.iter().for_each(|era| first.join(era));
                self.0.drain(from + 1..to);
            } else {
                self.0.insert(from, theirs.clone());
            }
        }
        self.bound();
    }

    /// Makes neighbours one between which nothing can have been lost.
    fn settle(&mut self, now: i64) {
        self.0.dedup_by(|next, era| {
            let goes_on = era.goes_on_in(next, now);
            if goes_on {
                era.join(next);
            }
            goes_on
        });
        self.bound();
    }

    fn bound(&mut self) {
        while self.0.len() > MOST
            && let [first, second, ..] = self.0.as_mut_slice()
        {
            first.join(second);
            self.0.remove(1);
        }
    }
}

/// When the bus stored a message (µs). An era begins before it.
fn time(position: &BusPosition) -> i64 {
    position.stored.micros().max(i64::MIN + 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::Timestamp;
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000;

    fn at(seq: u64, stored: i64) -> BusPosition {
        BusPosition {
            stream: "flux-telemetry".to_owned(),
            incarnation: 7,
            seq,
            stored: Timestamp::from_micros(stored),
        }
    }

    fn seen(positions: &[BusPosition]) -> Eras {
        let mut eras = Eras::default();
        positions.iter().for_each(|position| eras.insert(position));
        eras
    }

    /// What a bus stores that loses its end now and then: how many messages it keeps, how long it is away (s), and how long
    /// each of its next messages is awaited (ms).
    fn lives() -> impl Strategy<Value = Vec<(u64, i64, Vec<i64>)>> {
        prop::collection::vec((0u64..8, 5i64..30, prop::collection::vec(0i64..1_000, 1..10)), 1..5)
    }

    fn messages(lives: &[(u64, i64, Vec<i64>)]) -> Vec<BusPosition> {
        let (mut all, mut last, mut now) = (Vec::new(), 0, 0);
        for (kept, away, waits) in lives {
            last = last.min(*kept);
            now += away * SECOND;
            for wait in waits {
                last += 1;
                now += wait * 1_000;
                all.push(at(last, now));
            }
        }
        all
    }

    proptest! {
        #[test]
        fn of_a_bus_that_loses_its_end_each_message_is_new_once_in_whatever_order_they_come(
            (lives, order) in lives().prop_flat_map(|lives| {
                let all = messages(&lives).len();
                (Just(lives), prop::collection::vec((0..all, prop::bool::weighted(0.2)), 0..3 * all))
            }),
        ) {
            let all = messages(&lives);
            let (mut eras, mut stored, mut came) = (Eras::default(), Vec::new(), vec![false; all.len()]);
            for (at, is_restart) in order {
                prop_assert_eq!(eras.check(&all[at]) == Seen::Before, came[at], "{:?} in {:?}", &all[at], eras);
                eras.insert(&all[at]);
                stored.push(eras.clone());
                came[at] = true;
                if is_restart {
                    eras = Eras::default();
                    stored.iter().for_each(|changes| eras.join(changes));
                    prop_assert_eq!(Some(&eras), stored.last());
                }
            }
            for (position, came) in all.iter().zip(came) {
                prop_assert_eq!(eras.check(position) == Seen::Before, came, "{:?} in {:?}", position, eras);
            }
        }

        #[test]
        fn what_was_seen_stays_seen_whatever_the_clock_does_and_whoever_saw_it(
            steps in prop::collection::vec((1u64..30, -200i64..200, 0u32..24, 0usize..3), 0..120),
        ) {
            let mut eras = [Eras::default(), Eras::default(), Eras::default()];
            let mut known = [Vec::new(), Vec::new(), Vec::new()];
            for (seq, time, scale, who) in steps {
                if seq == 29 {
                    let (others, theirs) = (eras[(who + 1) % 3].clone(), known[(who + 1) % 3].clone());
                    eras[who].join(&others);
                    known[who].extend(theirs);
                } else {
                    let position = at(seq, time << scale);
                    eras[who].insert(&position);
                    known[who].push(position);
                }
                prop_assert!(eras[who].0.windows(2).all(|two| two[0].latest <= two[1].after), "{:?}", eras[who]);
                for position in &known[who] {
                    prop_assert_eq!(eras[who].check(position), Seen::Before, "{:?} in {:?}", position, eras[who]);
                }
            }
        }
    }

    #[test]
    fn a_stream_without_losses_is_few_eras_however_seldom_its_messages_come() {
        for wait in [1, SHORT - 1, SECOND, 3_600 * SECOND] {
            let mut eras = Eras::default();
            let mut most = 0;
            for seq in 1..5_000 {
                eras.insert(&at(seq, seq as i64 * wait));
                most = most.max(eras.0.len());
            }
            assert!(most <= if wait < SHORT { 1 } else { 70 }, "{most} at {wait}");
            assert_eq!(eras.check(&at(1, wait)), Seen::Before);
            assert_eq!(eras.check(&at(5_000, 5_000 * wait)), Seen::Never);
        }
    }

    #[test]
    fn a_bus_that_loses_something_again_and_again_takes_bounded_room() {
        let lost = |n: i64| at(7, n * 3_600 * SECOND);
        let mut eras = seen(&(0..1_000).map(lost).collect::<Vec<_>>());
        assert_eq!(eras.0.len(), MOST);
        eras.join(&seen(&(1_000..2_000).map(lost).collect::<Vec<_>>()));
        assert_eq!(eras.0.len(), MOST);
        assert_eq!(eras.check(&lost(3)), Seen::Before);
        assert_eq!(eras.check(&lost(1_999)), Seen::Before);
        assert_eq!(eras.check(&lost(2_000)), Seen::Reused);
    }

    #[test]
    fn what_is_assumed_is_all_since_the_last_known_loss() {
        let mut eras = seen(&[at(1, SECOND), at(5, 60 * SECOND), at(9, 120 * SECOND)]);
        eras.assume(12, 200 * SECOND);
        for position in [at(3, 0), at(7, 90 * SECOND), at(12, 200 * SECOND)] {
            assert_eq!(eras.check(&position), Seen::Before, "{position:?}");
        }
        assert_eq!(eras.check(&at(13, 130 * SECOND)), Seen::Never);
        assert_eq!(eras.check(&at(12, 201 * SECOND)), Seen::Reused);
        let mut eras = seen(&[at(1, SECOND), at(5, 60 * SECOND), at(4, 120 * SECOND)]);
        eras.assume(6, 200 * SECOND);
        assert_eq!(eras.check(&at(3, 50 * SECOND)), Seen::Reused);
        assert_eq!(eras.check(&at(3, 100 * SECOND)), Seen::Before);
    }

    /// Earlier versions began an era where the one before it ended, and the first one at the beginning of time.
    #[test]
    fn eras_that_an_earlier_version_stored_say_what_they_said() {
        let stored = format!(
            r#"[{{"after":{},"latest":110,"seqs":[10,[]]}},{{"after":110,"latest":208,"seqs":[0,[[6,8]]]}}]"#,
            i64::MIN
        );
        let stored: Eras = serde_json::from_str(&stored).unwrap();
        let mut eras = Eras::default();
        eras.join(&stored);
        assert_eq!(eras, stored);
        for known in [at(1, -5), at(10, 110), at(6, 206), at(8, 208)] {
            assert_eq!(eras.check(&known), Seen::Before, "{known:?}");
        }
        assert_eq!(eras.check(&at(9, 209)), Seen::Reused);
        assert_eq!(eras.check(&at(11, 109)), Seen::Never);
        let later = at(9, 209);
        eras.insert(&later);
        assert_eq!(eras.0.len(), 2, "{eras:?}");
        eras.join(&stored);
        assert_eq!(eras.check(&later), Seen::Before);
    }
}
