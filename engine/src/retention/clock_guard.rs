//! Clock guard: which time retention may rely on; a clock that jumped forward would make everything look old.
//!
//! The time that passes is measured twice, by the clock and by a counter that nobody sets. A clock that runs ahead of the
//! counter by more than [`SLACK`] is held: until it has gone on evenly for as long as it jumped, at most [`LONGEST_HOLD`],
//! the time counted from before the jump is relied on. The last relied-on time is kept in the catalogue, so a restart is
//! not a way around.
//!
//! A machine that was switched off for two hours so deletes two hours late; one whose clock shows next year for an hour
//! deletes nothing for it. A clock that went back is believed at once: that deletes less.

use std::time::Duration;

use model::Timestamp;

/// How far the clock may run ahead.
pub(crate) const SLACK: Duration = Duration::from_secs(3_600);
/// How long a clock that jumped must run steadily before it is trusted.
const LONGEST_HOLD: Duration = Duration::from_secs(24 * 3_600);

/// The judge of the clock.
#[derive(Debug)]
pub(crate) struct ClockGuard {
    /// A time that was relied on, and the counter then.
    anchor: (Timestamp, Duration),
    hold: Option<ClockHold>,
}

#[derive(Debug, Clone, Copy)]
struct ClockHold {
    jump: Duration,
    /// The counter when it began.
    since: Duration,
}

/// A judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockVerdict {
    /// The time to rely on.
    pub(crate) now: Timestamp,
    /// How far ahead the clock is and how much longer it is held for that.
    pub(crate) held: Option<(Duration, Duration)>,
    /// Whether the hold begins with this judgement.
    pub(crate) news: bool,
    /// How far the clock went back since the judgement before, if it is more than [`SLACK`].
    pub(crate) went_back: Option<Duration>,
}

impl ClockVerdict {
    /// The clock is believed.
    const fn even(now: Timestamp, went_back: Option<Duration>) -> Self {
        Self {
            now,
            held: None,
            news: false,
            went_back,
        }
    }
}

fn ahead(of: Timestamp, by: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(by.micros().saturating_sub(of.micros())).unwrap_or(0))
}

impl ClockGuard {
    /// Begins with the last time that was relied on, and the counter now.
    pub(crate) const fn new(relied_on: Timestamp, counter: Duration) -> Self {
        Self {
            anchor: (relied_on, counter),
            hold: None,
        }
    }

    /// Judges the clock.
    pub(crate) fn check(&mut self, clock: Timestamp, counter: Duration) -> ClockVerdict {
        let counted = self.anchor.0.plus(counter.saturating_sub(self.anchor.1));
        let jump = ahead(counted, clock);
        if jump <= SLACK {
            self.hold = None;
            if clock < counted {
                self.anchor = (clock, counter);
            }
            return ClockVerdict::even(clock, Some(ahead(clock, counted)).filter(|back| *back > SLACK));
        }
        let same = |hold: &ClockHold| hold.jump.abs_diff(jump) <= SLACK;
        let news = !self.hold.as_ref().is_some_and(same);
        let hold = match self.hold.filter(|_| !news) {
            Some(hold) => hold,
            None => ClockHold { jump, since: counter },
        };
        self.hold = Some(hold);
        let left = jump
            .min(LONGEST_HOLD)
            .saturating_sub(counter.saturating_sub(hold.since));
        if left.is_zero() {
            self.anchor = (clock, counter);
            self.hold = None;
            return ClockVerdict::even(clock, None);
        }
        ClockVerdict {
            now: counted,
            held: Some((jump, left)),
            news,
            went_back: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600;

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_micros(hours * 3_600_000_000)
    }

    const fn hours(hours: u64) -> Duration {
        Duration::from_secs(hours * HOUR)
    }

    #[test]
    fn a_steady_clock_is_always_trusted() {
        let mut trust = ClockGuard::new(at(0), hours(5));
        for hour in 0..10_000u32 {
            let judged = trust.check(at(i64::from(hour)), hours(5 + u64::from(hour)));
            assert_eq!((judged.now, judged.held), (at(i64::from(hour)), None));
        }
    }

    #[test]
    fn a_clock_that_jumps_ahead_is_distrusted_for_a_day_or_until_it_returns() {
        let mut trust = ClockGuard::new(at(0), hours(0));
        let jumped = trust.check(at(1 + 40 * 24), hours(1));
        assert_eq!(jumped.now, at(1), "counted from before the jump");
        assert!(jumped.news && jumped.held.is_some());
        let later = trust.check(at(3 + 40 * 24), hours(3));
        assert_eq!((later.now, later.news), (at(3), false));
        let back = trust.check(at(4), hours(4));
        assert_eq!((back.now, back.held), (at(4), None));
        assert!(
            trust.check(at(5 + 40 * 24), hours(5)).news,
            "a second jump is held anew"
        );
    }

    #[test]
    fn a_clock_that_stays_ahead_is_trusted_after_the_length_of_its_jump() {
        let mut trust = ClockGuard::new(at(0), hours(0));
        assert_eq!(trust.check(at(3), hours(0)).now, at(0));
        assert_eq!(trust.check(at(5), hours(2)).now, at(2));
        assert_eq!(
            trust.check(at(6), hours(3)).now,
            at(6),
            "three hours ahead, three hours held"
        );
        assert_eq!(trust.check(at(7), hours(4)).held, None);
        let mut trust = ClockGuard::new(at(0), hours(0));
        let far = |hours: i64| at(365 * 24 + hours);
        assert!(trust.check(far(0), hours(0)).held.is_some());
        assert_eq!(trust.check(far(23), hours(23)).now, at(23));
        assert_eq!(trust.check(far(24), hours(24)).now, far(24));
    }

    #[test]
    fn many_small_steps_are_no_way_around() {
        let mut trust = ClockGuard::new(at(0), hours(0));
        let mut clock = at(0);
        for _ in 0..100 {
            clock = clock.plus(Duration::from_secs(1_800));
            let judged = trust.check(clock, hours(0));
            assert!(judged.now <= at(1), "{:?}", judged.now);
        }
    }

    #[test]
    fn a_clock_that_drifts_while_distrusted_is_not_trusted() {
        let mut trust = ClockGuard::new(at(0), hours(0));
        for hour in 0..100u32 {
            let clock = at(i64::from(1_000 + hour * 3));
            assert!(trust.check(clock, hours(u64::from(hour))).held.is_some(), "{hour}");
        }
    }

    #[test]
    fn a_clock_that_steps_back_is_trusted_at_once() {
        let mut trust = ClockGuard::new(at(1_000), hours(0));
        let back = trust.check(at(10), hours(1));
        assert_eq!((back.now, back.went_back), (at(10), Some(hours(991))));
        assert_eq!(trust.check(at(1_000), hours(2)).now, at(11));
        let later = trust.check(at(12), hours(3));
        assert_eq!((later.now, later.went_back), (at(12), None), "it is said once");
    }
}
