//! Dead letters: messages that could not be handled or stored, and their ids.
//!
//! # Invariants
//!
//! - A [`LetterId`] is made of the letter alone, so it is the same in memory, in any data file and after a restart, and nothing
//!   has to be stored beside the row to find it.
//! - Ids sort by the times of their letters.
//!
//! # Not here
//!
//! The row (`batch::DeadLetter`); what became of a letter (the Mixer's registry).

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{BadId, Timestamp};

/// A letter: its time in microseconds and half of a hash's beginning, as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LetterId([u8; 16]);

plain_schema!(LetterId, { "type": "string", "pattern": "^[0-9a-fA-F]{32}$" });

impl LetterId {
    /// The id of a letter. Two letters of one microsecond differ in one of the parts.
    #[must_use]
    pub fn of(ts: Timestamp, parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        let digest = hasher.finalize();
        let mut id = Self::first(ts);
        for (byte, hashed) in id.0.iter_mut().skip(8).zip(digest) {
            *byte = hashed;
        }
        id
    }

    /// The least id of a moment: all letters before it have smaller ids.
    #[must_use]
    pub fn first(at: Timestamp) -> Self {
        let micros = u64::try_from(at.micros()).unwrap_or(0);
        let mut bytes = [0; 16];
        for (byte, of_time) in bytes.iter_mut().zip(micros.to_be_bytes()) {
            *byte = of_time;
        }
        Self(bytes)
    }

    /// When the letter was stored.
    #[must_use]
    pub fn ts(&self) -> Timestamp {
        let micros = self
            .0
            .iter()
            .take(8)
            .fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }

    /// As it is stored.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// From what was stored.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for LetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for LetterId {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = || BadId {
            what: "the id of a letter (32 hexadecimal digits, as platform dlq list shows them)",
            text: text.chars().take(80).collect(),
        };
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| bad())?;
        Ok(Self(number.to_be_bytes()))
    }
}

impl TryFrom<String> for LetterId {
    type Error = BadId;
    fn try_from(text: String) -> Result<Self, BadId> {
        text.parse()
    }
}

impl From<LetterId> for String {
    fn from(id: LetterId) -> Self {
        id.to_string()
    }
}

/// On which side of a port a message was when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PortSide {
    /// It arrived there.
    #[default]
    In,
    /// It was to leave there.
    Out,
}

impl PortSide {
    /// The word that travels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// What became of a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LetterState {
    /// Nothing so far.
    Open,
    /// It is to go back to its gear, which has not taken it yet.
    Waiting,
    /// Its gear has taken it.
    Replayed,
    /// Nobody wants it.
    Dropped,
}

impl LetterState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Open, Self::Waiting, Self::Replayed, Self::Dropped];

    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Waiting => "waiting",
            Self::Replayed => "replayed",
            Self::Dropped => "dropped",
        }
    }
}

impl fmt::Display for LetterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_id_is_a_text_that_sorts_by_time_and_comes_back() {
        let at = Timestamp::from_micros(1_800_000_000_000_001);
        let id = LetterId::of(at, &[b"flux.gear.a.b", b"why"]);
        assert_eq!(id.to_string().parse::<LetterId>().unwrap(), id);
        assert_eq!(id.to_string().to_uppercase().parse::<LetterId>().unwrap(), id);
        assert_eq!((id.ts(), LetterId::from_bytes(*id.as_bytes())), (at, id));
        assert_eq!(id, LetterId::of(at, &[b"flux.gear.a.b", b"why"]));
        assert_ne!(
            id,
            LetterId::of(at, &[b"flux.gear.a.bw", b"hy"]),
            "parts do not run together"
        );
        assert!(LetterId::first(at) <= id && id < LetterId::first(Timestamp::from_micros(at.micros() + 1)));
    }

    #[test]
    fn texts_that_are_no_ids_are_refused() {
        for bad in [
            "",
            "0",
            &"g".repeat(32),
            &"0".repeat(31),
            &"0".repeat(33),
            "+0000000000000000000000000000000",
            "é",
        ] {
            assert!(bad.parse::<LetterId>().is_err(), "{bad}");
        }
    }
}
