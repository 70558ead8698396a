//! The time range of a query.
//!
//! | given | from (inclusive) | to (exclusive) |
//! |---|---|---|
//! | nothing | 24 h before now | open |
//! | `until` only | 24 h before `until` | `until` |
//! | `since` | `since` | `until` or open |
//! | `flux_id` of version 7, no `since` | its creation less an hour of clock skew, at latest as above | `until` or open |
//!
//! A version 7 id bounds the search from below only: rows of a flux come after the id was made, by any amount.

use std::ops::Range;
use std::time::Duration;

use model::filter::{DEFAULT_WINDOW, TimePoint};
use model::{FluxId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Error;

/// How far apart the clocks of two Racks may be.
const SKEW: Duration = Duration::from_secs(3600);

/// A stretch of time: from `since` on, before `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimeRange {
    #[serde(rename = "s", with = "micros")]
    pub(crate) since: Timestamp,
    #[serde(rename = "u", with = "micros")]
    pub(crate) until: Timestamp,
}

impl TimeRange {
    /// All of time; [`Timestamp::MAX`] itself is in no answer.
    pub(crate) const ALL: Self = Self {
        since: Timestamp::from_micros(i64::MIN),
        until: Timestamp::from_micros(i64::MAX),
    };

    pub(crate) fn resolve(
        since: Option<TimePoint>,
        until: Option<TimePoint>,
        flux_id: Option<FluxId>,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let until = until.map(|until| until.resolve(now));
        let window = Self {
            since: match since {
                Some(since) => since.resolve(now),
                None => default_since(until.unwrap_or(now), flux_id),
            },
            until: until.unwrap_or(Self::ALL.until),
        };
        if since.is_some() && window.since > window.until {
            let reason = format!("{} is before since ({}): swap them", window.until, window.since);
            return Err(Error::parameter("until", reason));
        }
        Ok(window)
    }

    /// Whether rows from `min` to `max` can be in it.
    pub(crate) fn overlaps(self, min: Timestamp, max: Timestamp) -> bool {
        max >= self.since && min < self.until
    }

    /// Whether all rows from `min` to `max` are in it.
    pub(crate) fn contains_span(self, min: Timestamp, max: Timestamp) -> bool {
        self == Self::ALL || (min >= self.since && max < self.until)
    }

    /// The part of it before `until`.
    pub(crate) fn before(self, until: Timestamp) -> Self {
        Self {
            until: self.until.min(until),
            ..self
        }
    }

    /// The part of it from `since` on.
    pub(crate) fn from(self, since: Timestamp) -> Self {
        Self {
            since: self.since.max(since),
            ..self
        }
    }

    /// Its times up to `now`, where its end is open.
    pub(crate) fn known(self, now: Timestamp) -> Range<i64> {
        let end = if self.until == Self::ALL.until {
            self.until.min(now)
        } else {
            self.until
        };
        self.since.micros()..end.micros()
    }

    /// One moment.
    pub(crate) fn at(ts: Timestamp) -> Self {
        Self {
            since: ts,
            until: Timestamp::from_micros(ts.micros().saturating_add(1)),
        }
    }
}

fn default_since(end: Timestamp, flux_id: Option<FluxId>) -> Timestamp {
    let since = end.minus(DEFAULT_WINDOW.get());
    match flux_id.and_then(|id| id.created()) {
        Some(created) => since.min(created.minus(SKEW)),
        None => since,
    }
}

mod micros {
    use model::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(ts: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i64(ts.micros())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        i64::deserialize(from).map(Timestamp::from_micros)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const DAY: i64 = 86_400_000_000;
    const NOW: Timestamp = Timestamp::from_micros(100 * DAY);

    fn at(micros: i64) -> TimePoint {
        TimePoint::At(Timestamp::from_micros(micros))
    }

    #[test]
    fn nothing_given_is_the_last_day_and_rows_of_a_clock_that_runs_ahead() {
        let window = TimeRange::resolve(None, None, None, NOW).unwrap();
        assert_eq!(window.since.micros(), 99 * DAY);
        assert!(window.overlaps(NOW.plus(SKEW), NOW.plus(SKEW)));
        let window = TimeRange::resolve(None, Some(at(50 * DAY)), None, NOW).unwrap();
        assert_eq!((window.since.micros(), window.until.micros()), (49 * DAY, 50 * DAY));
    }

    #[test]
    fn since_is_inclusive_until_exclusive_and_swapped_ones_are_refused() {
        let window = TimeRange::resolve(Some(at(10)), Some(at(20)), None, NOW).unwrap();
        let moment = |at| window.overlaps(Timestamp::from_micros(at), Timestamp::from_micros(at));
        assert!(moment(10) && moment(19) && !moment(9) && !moment(20));
        assert!(TimeRange::resolve(Some(at(20)), Some(at(20)), None, NOW).is_ok());
        assert!(TimeRange::resolve(Some(at(21)), Some(at(20)), None, NOW).is_err());
    }

    #[test]
    fn a_flux_id_only_ever_reaches_further_back() {
        let old = FluxId::at(Timestamp::from_micros(10 * DAY), [1; 10]);
        let future = FluxId::at(Timestamp::from_micros(1_000 * DAY), [1; 10]);
        let since = |flux| TimeRange::resolve(None, None, Some(flux), NOW).unwrap().since;
        assert_eq!(since(old), Timestamp::from_micros(10 * DAY).minus(SKEW));
        assert_eq!(since(future).micros(), 99 * DAY);
        let given = TimeRange::resolve(Some(at(50 * DAY)), None, Some(old), NOW).unwrap();
        assert_eq!(given.since.micros(), 50 * DAY);
    }
}
