//! Time arguments of the command line: read and shown in a time zone.
//!
//! | typed | means |
//! |---|---|
//! | `90s`, `1h30m`, `7d` | that long ago; a `d` is 24 hours, whatever clocks did meanwhile |
//! | `2026-11-21T14:30:00Z`, `…+01:00` | that moment |
//! | `2026-11-21 14:30[:05[.25]]`, also with `T` | that time of the zone |
//! | `2026-11-21` | the first moment of that day in the zone |
//! | `14:30[:05[.25]]` | that time of today in the zone |
//!
//! The zone is the local one, or UTC with `--utc`; it is known only after the whole command line is read, so reading has
//! two steps: text to [`TimeArg`], and [`TimeArg::when`].
//!
//! # Invariants
//!
//! - A time that clocks skip, or show twice, is refused; the message names both moments it may mean. A day always has a
//!   first moment.
//! - What [`DisplayZone::show`] writes reads back as the same moment, with or without `--utc`.
//!
//! # Not here
//!
//! What programs read (JSON, NDJSON, CSV): those times are UTC as the Mixer wrote them.

use std::str::FromStr;

use chrono::{DateTime, FixedOffset, Local, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeDelta, TimeZone, Utc};
use model::Timestamp;
use model::filter::TimePoint;

/// No clock is put further than this, and no zone is further from UTC.
const FAR: TimeDelta = TimeDelta::hours(24);

/// In which zone times are read and shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DisplayZone {
    Utc,
    Local,
}

impl DisplayZone {
    /// A moment as RFC 3339, with the zone's offset.
    pub(crate) fn show(self, at: Timestamp) -> String {
        match self {
            Self::Utc => at.to_string(),
            Self::Local => shown(&Local, at),
        }
    }

    /// A moment in few cells, without the zone: the time of today, or a day and the time to the second.
    pub(crate) fn show_narrow(self, at: Timestamp, now: Timestamp) -> String {
        match self {
            Self::Utc => narrow(&Utc, at, now),
            Self::Local => narrow(&Local, at, now),
        }
    }
}

/// A time as it was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeArg {
    /// It needs no zone.
    Zoned(TimePoint),
    /// A time of some day.
    Wall(NaiveDateTime),
    /// A whole day.
    Day(NaiveDate),
    /// A time of today.
    Clock(NaiveTime),
}

/// Why a text is no moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadTime {
    #[error(
        "{0:?} is neither a time (2026-11-21, \"2026-11-21 14:30\", 14:30, 2026-11-21T14:30:00Z) nor an age (90s, 1h, 7d)"
    )]
    Text(String),
    #[error("clocks skip {wall} in this zone; write {early} or {late} (or give --utc)")]
    Skipped {
        wall: NaiveDateTime,
        early: String,
        late: String,
    },
    #[error("clocks show {wall} twice in this zone; write {early} or {late} (or give --utc)")]
    Twice {
        wall: NaiveDateTime,
        early: String,
        late: String,
    },
    #[error("{0} is not within the years 0001 to 9999 in UTC")]
    Range(NaiveDateTime),
}

impl FromStr for TimeArg {
    type Err = BadTime;
    fn from_str(text: &str) -> Result<Self, BadTime> {
        if let Ok(when) = text.parse() {
            return Ok(Self::Zoned(when));
        }
        let read = match (day(text), clock(text), text.split_once(['T', ' '])) {
            (Some(day), _, _) => Some(Self::Day(day)),
            (_, Some(time), _) => Some(Self::Clock(time)),
            (_, _, Some((first, second))) => day(first)
                .zip(clock(second))
                .map(|(day, time)| Self::Wall(day.and_time(time))),
            _ => None,
        };
        read.ok_or_else(|| BadTime::Text(text.to_owned()))
    }
}

/// `2026-11-21`, and nothing looser.
fn day(text: &str) -> Option<NaiveDate> {
    let digits = |(at, byte): (usize, u8)| {
        if matches!(at, 4 | 7) {
            byte == b'-'
        } else {
            byte.is_ascii_digit()
        }
    };
    let is_plain = text.len() == 10 && text.bytes().enumerate().all(digits);
    is_plain
        .then(|| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok())
        .flatten()
}

/// `14:30`, `14:30:05`, `14:30:05.25`, and nothing looser; no 60th second.
fn clock(text: &str) -> Option<NaiveTime> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |(at, byte): (usize, u8)| {
        if at % 3 == 2 {
            byte == b':'
        } else {
            byte.is_ascii_digit()
        }
    };
    let is_plain = whole.bytes().enumerate().all(digits)
        && (whole.len() == 8 || (whole.len() == 5 && whole.len() == text.len()))
        && (1..=9).contains(&fraction.len())
        && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let part = |from: usize| whole.get(from..from + 2).map_or(Some(0), |digits| digits.parse().ok());
    let nanos = format!("{fraction:0<9}").parse().ok()?;
    is_plain
        .then(|| NaiveTime::from_hms_nano_opt(part(0)?, part(3)?, part(6)?, nanos))
        .flatten()
}

impl TimeArg {
    /// The moment or the age, given the zone and the current time.
    pub(crate) fn when(self, zone: DisplayZone, now: Timestamp) -> Result<TimePoint, BadTime> {
        match zone {
            DisplayZone::Utc => self.within(&Utc, now),
            DisplayZone::Local => self.within(&Local, now),
        }
    }

    fn within<Z: TimeZone>(self, zone: &Z, now: Timestamp) -> Result<TimePoint, BadTime> {
        let utc = match self {
            Self::Zoned(when) => return Ok(when),
            Self::Wall(wall) => moment(zone, wall)?,
            Self::Day(day) => first_moment(zone, day),
            Self::Clock(time) => {
                let now = now.to_datetime().unwrap_or_default().naive_utc();
                let today = (now + offset(zone, now)).date();
                moment(zone, today.and_time(time))?
            }
        };
        let at = Timestamp::from(utc.and_utc());
        if (Timestamp::MIN..=Timestamp::MAX).contains(&at) {
            Ok(TimePoint::At(at))
        } else {
            Err(BadTime::Range(utc))
        }
    }
}

/// The zone's offset at a moment (in UTC).
fn offset<Z: TimeZone>(zone: &Z, utc: NaiveDateTime) -> FixedOffset {
    zone.offset_from_utc_datetime(&utc).fix()
}

/// The moments (in UTC) at which clocks may be meant to show a time, earliest first, and whether they do show it.
fn readings<Z: TimeZone>(zone: &Z, wall: NaiveDateTime) -> Vec<(NaiveDateTime, bool)> {
    let (before, after) = (offset(zone, wall - FAR), offset(zone, wall + FAR));
    let offsets = [before, after, offset(zone, wall - before), offset(zone, wall - after)];
    let mut readings: Vec<_> = offsets
        .iter()
        .map(|by| (wall - *by, offset(zone, wall - *by) == *by))
        .collect();
    readings.sort_unstable();
    readings.dedup();
    readings
}

/// The one moment (in UTC) at which clocks show a time.
fn moment<Z: TimeZone>(zone: &Z, wall: NaiveDateTime) -> Result<NaiveDateTime, BadTime> {
    let readings = readings(zone, wall);
    let exact: Vec<NaiveDateTime> = readings.iter().filter(|(_, is)| *is).map(|(utc, _)| *utc).collect();
    let named = |utc: Option<NaiveDateTime>| {
        utc.map(|utc| brief(zone, Timestamp::from(utc.and_utc())))
            .unwrap_or_default()
    };
    match exact.as_slice() {
        [one] => Ok(*one),
        [] => Err(BadTime::Skipped {
            wall,
            early: named(readings.first().map(|(utc, _)| *utc)),
            late: named(readings.last().map(|(utc, _)| *utc)),
        }),
        [early, .., late] => Err(BadTime::Twice {
            wall,
            early: named(Some(*early)),
            late: named(Some(*late)),
        }),
    }
}

/// The first moment (in UTC) of a day: its midnight, the earlier one of two, or where clocks skip over midnight the moment
/// they do.
fn first_moment<Z: TimeZone>(zone: &Z, day: NaiveDate) -> NaiveDateTime {
    let midnight = day.and_time(NaiveTime::MIN);
    let readings = readings(zone, midnight);
    if let Some((utc, _)) = readings.iter().find(|(_, is)| *is) {
        return *utc;
    }
    // Between the readings lies the moment of the change; clocks show a time before midnight until then.
    let (mut early, mut late) = match readings.as_slice() {
        [(early, _), .., (late, _)] => (*early, *late),
        _ => return midnight,
    };
    while late - early > TimeDelta::microseconds(1) {
        let middle = early + (late - early) / 2;
        if middle + offset(zone, middle) < midnight {
            early = middle;
        } else {
            late = middle;
        }
    }
    late
}

fn in_zone<Z: TimeZone>(zone: &Z, at: Timestamp) -> Option<DateTime<FixedOffset>> {
    let at = at.to_datetime()?.with_timezone(zone).fixed_offset();
    // RFC 3339 has no seconds in offsets, which local mean times of the 19th century have.
    (at.offset().local_minus_utc() % 60 == 0).then_some(at)
}

fn shown<Z: TimeZone>(zone: &Z, at: Timestamp) -> String {
    in_zone(zone, at).map_or_else(
        || at.to_string(),
        |at| at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true),
    )
}

/// The same with as many decimals as it needs.
fn brief<Z: TimeZone>(zone: &Z, at: Timestamp) -> String {
    in_zone(zone, at).map_or_else(
        || at.to_string(),
        |at| at.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true),
    )
}

fn narrow<Z: TimeZone>(zone: &Z, at: Timestamp, now: Timestamp) -> String {
    let (Some(local), Some(today)) = (in_zone(zone, at), in_zone(zone, now)) else {
        return at.to_string();
    };
    let form = if local.date_naive() == today.date_naive() {
        "%H:%M:%S%.3f"
    } else {
        "%Y-%m-%d %H:%M:%S"
    };
    local.format(form).to_string()
}

#[cfg(test)]
mod tests;
