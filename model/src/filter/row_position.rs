//! The position of a row of a list: its time and a hash of its columns.
//!
//! Written as 32 hex digits: the 16 of the time in µs since 1970 (as two's complement), the 16 of the hash. A moment is a position
//! too, before all of its rows.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{BadId, Timestamp};

/// Where a row is in the order of lists. Rows that are equal in every column have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RowPosition {
    /// The row's time.
    pub ts: Timestamp,
    /// The hash of its columns.
    pub hash: u64,
}

plain_schema!(RowPosition, { "anyOf": [
    { "type": "string", "pattern": "^[0-9a-f]{32}$" },
    { "type": "string", "format": "date-time" },
] });

impl FromStr for RowPosition {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        if let Ok(ts) = text.parse() {
            return Ok(Self { ts, hash: 0 });
        }
        let is_hex = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let number = is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        let [high, low] = number.map(halves).ok_or_else(|| BadId {
            what: "a row's position (32 hex digits, as a list with positions=true gives it, or a time such as 2026-11-21T10:00:00Z)",
            text: text.to_owned(),
        })?;
        Ok(Self {
            ts: Timestamp::from_micros(i64::from_be_bytes(high)),
            hash: u64::from_be_bytes(low),
        })
    }
}

fn halves(number: u128) -> [[u8; 8]; 2] {
    let bytes = number.to_be_bytes();
    let (mut high, mut low) = ([0; 8], [0; 8]);
    high.copy_from_slice(&bytes[..8]);
    low.copy_from_slice(&bytes[8..]);
    [high, low]
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
        write!(f, "{:016x}{:016x}", self.ts.micros(), self.hash)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_position_is_read_as_it_is_written_and_a_moment_is_before_its_rows() {
        for (micros, hash) in [(0, 0), (-1, u64::MAX), (i64::MIN, 1), (i64::MAX, 7)] {
            let position = RowPosition {
                ts: Timestamp::from_micros(micros),
                hash,
            };
            assert_eq!(position.to_string().len(), 32);
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        let moment: RowPosition = "1970-01-01T00:00:01Z".parse().unwrap();
        assert_eq!((moment.ts.micros(), moment.hash), (1_000_000, 0));
    }

    #[test]
    fn other_texts_are_refused() {
        let short = "0".repeat(31);
        let signed = format!("+{short}");
        let (upper, wide) = ("A".repeat(32), "é".repeat(16));
        for text in ["", "1h", short.as_str(), signed.as_str(), upper.as_str(), wide.as_str()] {
            assert!(text.parse::<RowPosition>().is_err(), "{text}");
        }
    }
}
