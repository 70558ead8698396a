//! Units at the boundary: time in microseconds UTC, Go-style durations, byte sizes.
//!
//! # Not here
//!
//! A clock: the current time is always an argument.

mod fast_timestamp;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// A moment: microseconds since 1970-01-01T00:00:00Z. Written as RFC 3339 in UTC with six decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(i64);

/// A text that is not an RFC 3339 time within the years 0001 to 9999.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an RFC 3339 time such as 2026-11-21T10:00:00Z")]
pub struct BadTimestamp(pub String);

impl Timestamp {
    /// 0001-01-01T00:00:00Z, the earliest moment that has an RFC 3339 form.
    pub const MIN: Self = Self(-62_135_596_800_000_000);
    /// 9999-12-31T23:59:59.999999Z, the latest moment that has an RFC 3339 form.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// A moment from microseconds since the epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// The moment `by` later, saturating.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The moment `by` earlier, saturating.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The calendar form; `None` outside the years chrono knows.
    #[must_use]
    pub fn to_datetime(self) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp_micros(self.0)
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(at: DateTime<Utc>) -> Self {
        Self(at.timestamp_micros())
    }
}

impl From<std::time::SystemTime> for Timestamp {
    fn from(at: std::time::SystemTime) -> Self {
        DateTime::<Utc>::from(at).into()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_datetime() {
            Some(at) => f.write_str(&at.to_rfc3339_opts(SecondsFormat::Micros, true)),
            None => write!(f, "{}us", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = BadTimestamp;
    fn from_str(text: &str) -> Result<Self, BadTimestamp> {
        if let Some(micros) = fast_timestamp::micros(text.as_bytes()) {
            return Ok(Self(micros));
        }
        let at = DateTime::parse_from_rfc3339(text).map_err(|_| BadTimestamp(text.to_owned()))?;
        let at = Self::from(at.with_timezone(&Utc));
        if (Self::MIN..=Self::MAX).contains(&at) {
            Ok(at)
        } else {
            Err(BadTimestamp(text.to_owned()))
        }
    }
}

impl TryFrom<String> for Timestamp {
    type Error = BadTimestamp;
    fn try_from(text: String) -> Result<Self, BadTimestamp> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    fn from(at: Timestamp) -> Self {
        at.to_string()
    }
}

plain_schema!(Timestamp, { "type": "string", "format": "date-time" });

/// A span of time written the Go way: `100ms`, `5s`, `1h30m`, `720h`, `1.5s`; `d` for days is accepted too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HumanDuration(Duration);

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration: write it like 100ms, 5s, 1h30m or 720h")]
pub struct BadDuration(pub String);

impl HumanDuration {
    /// A duration of whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// A duration of whole seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// The standard library's form.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl From<Duration> for HumanDuration {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

/// Nanoseconds of a unit's name.
fn unit_nanos(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    })
}

/// `whole.fraction` units in nanoseconds, exactly.
fn term_nanos(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.bytes() {
        place /= 10;
        total = total.checked_add(u64::from(digit.checked_sub(b'0').filter(|d| *d < 10)?).checked_mul(place)?)?;
    }
    Some(total)
}

impl FromStr for HumanDuration {
    type Err = BadDuration;
    fn from_str(text: &str) -> Result<Self, BadDuration> {
        let bad = || BadDuration(text.to_owned());
        let mut rest = text.trim();
        if rest == "0" {
            return Ok(Self(Duration::ZERO));
        }
        if rest.is_empty() {
            return Err(bad());
        }
        let mut nanos = 0u64;
        while !rest.is_empty() {
            let split = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
            let (number, tail) = rest.split_at(split);
            let end = tail
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(end);
            let unit = unit_nanos(unit).ok_or_else(bad)?;
            nanos = term_nanos(number, unit)
                .and_then(|n| nanos.checked_add(n))
                .ok_or_else(bad)?;
            rest = tail;
        }
        Ok(Self(Duration::from_nanos(nanos)))
    }
}

impl TryFrom<String> for HumanDuration {
    type Error = BadDuration;
    fn try_from(text: String) -> Result<Self, BadDuration> {
        text.parse()
    }
}

impl From<HumanDuration> for String {
    fn from(duration: HumanDuration) -> Self {
        duration.to_string()
    }
}

plain_schema!(HumanDuration, {
    "type": "string",
    "pattern": r"^\s*(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|ms|s|m|h|d))+)\s*$",
    "examples": ["100ms", "5s", "1h30m"],
});

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        for (name, unit) in [
            ("h", 3_600_000_000_000u128),
            ("m", 60_000_000_000),
            ("s", 1_000_000_000),
        ] {
            let whole = nanos / unit;
            if whole > 0 {
                write!(f, "{whole}{name}")?;
                nanos %= unit;
            }
        }
        for (name, unit) in [("ms", 1_000_000u128), ("us", 1_000), ("ns", 1)] {
            let whole = nanos / unit;
            if whole > 0 {
                write!(f, "{whole}{name}")?;
                nanos %= unit;
            }
        }
        Ok(())
    }
}

/// A number of bytes. Displayed with binary units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteSize(u64);

impl ByteSize {
    /// A size in bytes.
    #[must_use]
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A size in MiB (2^20 bytes), the unit of every `_mb` key; saturating.
    #[must_use]
    pub const fn mib(mib: u64) -> Self {
        Self(mib.saturating_mul(1 << 20))
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ByteSize {
    #[allow(clippy::cast_precision_loss, reason = "two decimals of a size do not need 53 bits")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut size = self.0 as f64 / 1024.0;
        let mut unit = "KiB";
        for next in &units[1..] {
            if size < 1024.0 {
                break;
            }
            size /= 1024.0;
            unit = next;
        }
        write!(f, "{size:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn durations_read_like_go_writes_them_and_write_back() {
        for (text, millis) in [
            ("100ms", 100),
            ("5s", 5_000),
            ("1h30m", 5_400_000),
            ("720h", 2_592_000_000),
            ("1.5s", 1_500),
            ("0", 0),
        ] {
            let duration: HumanDuration = text.parse().unwrap();
            assert_eq!(duration.get(), Duration::from_millis(millis), "{text}");
            assert_eq!(duration.to_string().parse::<HumanDuration>().unwrap(), duration);
        }
        for bad in [
            "",
            "5",
            "s",
            "5 s",
            "-5s",
            "5x",
            "1..5s",
            ".s",
            "99999999999999h",
            "5s5",
        ] {
            assert!(bad.parse::<HumanDuration>().is_err(), "{bad}");
        }
    }

    #[test]
    fn times_keep_microseconds_and_refuse_years_that_cannot_be_written() {
        let at: Timestamp = "2026-11-21T12:00:00.123456+02:00".parse().unwrap();
        assert_eq!(at.to_string(), "2026-11-21T10:00:00.123456Z");
        assert!("2026-11-21".parse::<Timestamp>().is_err());
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-31T23:59:59.999999Z");
        assert_eq!(Timestamp::MIN.to_string(), "0001-01-01T00:00:00.000000Z");
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(ByteSize::bytes(512).to_string(), "512 B");
        assert_eq!(ByteSize::mib(128).to_string(), "128.0 MiB");
        assert_eq!(ByteSize::bytes(1536).to_string(), "1.5 KiB");
    }
}
