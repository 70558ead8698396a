//! Cron times: reads the wall clock against a cron expression and says what is due.
//!
//! # Invariants
//!
//! - However many times have passed since the last reading, one is due: the first of them.
//! - A clock that was set back by up to [`SETTLED`], as the correction of a drift does, brings no time twice.
//! - The clock is read at least every [`LOOK`], so that one that was set is noticed; where no time lies ahead, one is looked for each time.
//!
//! # Not here
//!
//! Reading an expression ([`gear_spec::timer`]). Its syntax and the gaps of daylight saving time: the crate `croner`.

use std::time::Duration;

use chrono::{Local, Utc};
use croner::Cron;
use gear_spec::timer::{TimeZoneChoice, next_in};
use model::Timestamp;

/// The longest time between two readings.
const LOOK: Duration = Duration::from_secs(5);
/// How far a clock may be set back without times coming again.
const SETTLED: Duration = Duration::from_secs(3600);

/// A wall clock that rings at the times of an expression.
#[derive(Debug, Clone)]
pub(super) struct CronClock {
    cron: Cron,
    zone: TimeZoneChoice,
    /// When it was read last.
    looked: Option<Timestamp>,
    /// The last time that was due.
    last: Option<Timestamp>,
    /// The next one.
    next: Option<Timestamp>,
}

/// What the clock says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClockReading {
    /// This time has come.
    Due(Timestamp),
    /// Read it again after a pause.
    Wait(Duration),
    /// No time lies ahead; read it again after a pause.
    Never(Duration),
}

impl CronClock {
    pub(super) const fn new(cron: Cron, zone: TimeZoneChoice) -> Self {
        Self {
            cron,
            zone,
            looked: None,
            last: None,
            next: None,
        }
    }

    /// Reads the clock; what is due is told once.
    pub(super) fn read(&mut self, now: Timestamp) -> ClockReading {
        // First of all, set back, or none was found.
        if self.next.is_none() || self.looked.is_some_and(|looked| now < looked) {
            self.last = self.last.filter(|last| last.since(now) <= SETTLED);
            self.next = self.after(now);
        }
        self.looked = Some(now);
        match self.next {
            Some(next) if next <= now => {
                self.last = Some(next);
                self.next = self.after(now);
                ClockReading::Due(next)
            }
            Some(next) => ClockReading::Wait(next.since(now).min(LOOK)),
            None => ClockReading::Never(LOOK),
        }
    }

    /// The first time after `now` and after the last one.
    fn after(&self, now: Timestamp) -> Option<Timestamp> {
        let after = self.last.map_or(now, |last| last.max(now));
        match self.zone {
            TimeZoneChoice::Utc => next_in(&self.cron, after, &Utc),
            TimeZoneChoice::Local => next_in(&self.cron, after, &Local),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use gear_spec::timer::parse_cron;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn clock(cron: &str) -> CronClock {
        CronClock::new(parse_cron(cron).unwrap(), TimeZoneChoice::Utc)
    }

    /// What is due at each reading.
    fn due(clock: &mut CronClock, readings: &[&str]) -> Vec<Timestamp> {
        let due = readings.iter().filter_map(|now| match clock.read(at(now)) {
            ClockReading::Due(time) => Some(time),
            ClockReading::Wait(pause) | ClockReading::Never(pause) => {
                assert!(pause <= LOOK && !pause.is_zero());
                None
            }
        });
        due.collect()
    }

    #[test]
    fn each_time_is_due_once_and_many_missed_ones_are_one() {
        let mut clock = clock("*/10 * * * *");
        let readings = [
            "2026-11-22T10:00:00Z",
            "2026-11-22T10:09:59.999Z",
            "2026-11-22T10:10:00.001Z",
            "2026-11-22T10:10:00.002Z",
            // The machine slept, or the clock was set forward.
            "2027-11-22T12:34:00Z",
            "2027-11-22T12:34:01Z",
            "2027-11-22T12:40:00Z",
        ];
        let wanted = ["2026-11-22T10:10:00Z", "2026-11-22T10:20:00Z", "2027-11-22T12:40:00Z"];
        assert_eq!(due(&mut clock, &readings), wanted.map(at));
    }

    #[test]
    fn a_clock_that_is_corrected_brings_no_time_twice_and_one_that_was_far_ahead_does_not_silence_the_gear() {
        let mut clock = clock("0 * * * *");
        let readings = [
            "2026-11-22T10:59:00Z",
            "2026-11-22T11:00:00.010Z",
            "2026-11-22T10:59:59.990Z",
            "2026-11-22T11:00:00.020Z",
            "2026-11-22T12:00:00Z",
            "2026-01-01T00:30:00Z",
            "2026-01-01T01:00:00Z",
        ];
        let wanted = ["2026-11-22T11:00:00Z", "2026-11-22T12:00:00Z", "2026-01-01T01:00:00Z"];
        assert_eq!(due(&mut clock, &readings), wanted.map(at));
    }

    #[test]
    fn a_clock_that_was_set_far_back_and_is_corrected_then_leaves_out_no_time() {
        let mut clock = clock("0,30 12 * * *");
        let readings = [
            "2026-11-22T12:20:00Z",
            "2026-11-22T12:30:00Z",
            // Two hours back, and later a second more.
            "2026-11-22T10:30:00Z",
            "2026-11-22T11:45:00Z",
            "2026-11-22T11:44:59Z",
            "2026-11-22T12:00:00Z",
            "2026-11-22T12:30:00Z",
        ];
        let wanted = ["2026-11-22T12:30:00Z", "2026-11-22T12:00:00Z", "2026-11-22T12:30:00Z"];
        assert_eq!(due(&mut clock, &readings), wanted.map(at));
    }

    #[test]
    fn a_clock_behind_all_times_says_so_and_goes_on_when_it_is_set_right() {
        let mut clock = clock("0 * * * *");
        assert_eq!(clock.read(at("9000-01-01T00:30:00Z")), ClockReading::Never(LOOK));
        let readings = ["2026-11-22T10:30:00Z", "2026-11-22T11:00:00Z"];
        assert_eq!(due(&mut clock, &readings), [at("2026-11-22T11:00:00Z")]);
    }

    #[test]
    fn daylight_saving_time_leaves_out_no_daily_time_and_brings_none_twice() {
        let zone = chrono_tz::Europe::Berlin;
        let daily = clock("30 2 * * *").cron;
        let mut after = at("2026-03-27T12:00:00Z");
        let mut days = Vec::new();
        for _ in 0..3 {
            after = next_in(&daily, after, &zone).unwrap();
            days.push(after);
        }
        // On the 29th 02:30 does not exist.
        let wanted = ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"];
        assert_eq!(days, wanted.map(at));
        // On the 25th of October it exists twice.
        let first = next_in(&daily, at("2026-10-24T12:00:00Z"), &zone).unwrap();
        let second = next_in(&daily, first, &zone).unwrap();
        assert_eq!(
            [first, second],
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"].map(at)
        );
    }

    #[test]
    fn the_machine_s_own_time_zone_has_whole_hours_too() {
        let mut clock = CronClock::new(parse_cron("@hourly").unwrap(), TimeZoneChoice::Local);
        assert!(matches!(clock.read(at("2026-11-22T10:00:00Z")), ClockReading::Wait(_)));
        assert!(matches!(clock.read(at("2026-11-22T11:30:00Z")), ClockReading::Due(_)));
    }
}
