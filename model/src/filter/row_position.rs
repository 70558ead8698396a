//! The position of a row of a list: its time, a hash of its columns, and its number among rows that are equal in every column.
//!
//! Written as 40 hex digits: the 16 of the time in µs since 1970 (as two's complement), the 16 of the hash, the 8 of the number, from
//! 0. A moment is a position too: its rows come after it in time, whatever the order of the list.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{BadId, Timestamp};

/// Where a row is in the order of lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RowPosition {
    /// The row's time.
    pub ts: Timestamp,
    /// The hash of its columns.
    pub hash: u64,
    /// How many equal rows come before it.
    pub nth: u32,
}

impl RowPosition {
    /// That of a moment.
    #[must_use]
    pub const fn of_moment(ts: Timestamp) -> Self {
        Self { ts, hash: 0, nth: 0 }
    }
}

plain_schema!(RowPosition, { "anyOf": [
    { "type": "string", "pattern": "^[0-9a-f]{40}$" },
    { "type": "string", "format": "date-time" },
] });

impl FromStr for RowPosition {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        if let Ok(ts) = text.parse() {
            return Ok(Self::of_moment(ts));
        }
        of_digits(text).ok_or_else(|| BadId {
            what: "a row's position (40 hex digits, as a list with positions=true gives it, or a time such as 2026-11-21T10:00:00Z)",
            text: text.to_owned(),
        })
    }
}

fn of_digits(text: &str) -> Option<RowPosition> {
    let is_hex = text.len() == 40 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let (ts, rest) = text.split_at_checked(16).filter(|_| is_hex)?;
    let (hash, nth) = rest.split_at_checked(16)?;
    Some(RowPosition {
        ts: Timestamp::from_micros(u64::from_str_radix(ts, 16).ok()?.cast_signed()),
        hash: u64::from_str_radix(hash, 16).ok()?,
        nth: u32::from_str_radix(nth, 16).ok()?,
    })
}

impl TryFrom<String> for RowPosition {
    type Error = BadId;
    fn try_from(text: String) -> Result<Self, BadId> {
        text.parse()
    }
}

impl From<RowPosition> for String {
    fn from(position: RowPosition) -> Self {
        position.to_string()
    }
}

impl fmt::Display for RowPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}{:08x}", self.ts.micros(), self.hash, self.nth)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_position_is_read_as_it_is_written_and_a_moment_is_one_too() {
        for (micros, hash, nth) in [
            (0, 0, 0),
            (-1, u64::MAX, 1),
            (i64::MIN, 1, u32::MAX),
            (i64::MAX, 7, 256),
        ] {
            let ts = Timestamp::from_micros(micros);
            let position = RowPosition { ts, hash, nth };
            assert_eq!(position.to_string().len(), 40);
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        let moment: RowPosition = "1970-01-01T00:00:01Z".parse().unwrap();
        assert_eq!(moment, RowPosition::of_moment(Timestamp::from_micros(1_000_000)));
    }

    #[test]
    fn other_texts_are_refused() {
        let short = "0".repeat(39);
        let signed = format!("+{short}");
        let (upper, wide) = ("A".repeat(40), "é".repeat(20));
        for text in ["", "1h", short.as_str(), signed.as_str(), upper.as_str(), wide.as_str()] {
            assert!(text.parse::<RowPosition>().is_err(), "{text}");
        }
    }
}
