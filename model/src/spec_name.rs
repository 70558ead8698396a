//! The name of a message spec, as it stands in paths.
//!
//! # Invariants
//!
//! - 1 to 47 letters, digits, `_` or `-`: it cannot leave its folder. Its size is fixed, so that it is as cheap as a number.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest name, in bytes.
const MOST: usize = 47;

/// A spec's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpecName {
    bytes: [u8; MOST],
    length: u8,
}

plain_schema!(SpecName, { "type": "string" });

impl SpecName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.length)).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl SpecName {
    /// Whether it is another name that readers who do not tell capitals from small letters take for this one.
    #[must_use]
    pub fn is_case_variant_of(&self, other: &Self) -> bool {
        self != other && self.as_str().eq_ignore_ascii_case(other.as_str())
    }
}

/// Why a text is no spec's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a name of a spec: use 1 to {MOST} letters, digits, _ or -")]
pub struct BadSpecName(String);

impl FromStr for SpecName {
    type Err = BadSpecName;

    fn from_str(text: &str) -> Result<Self, BadSpecName> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let fits = !text.is_empty() && text.len() <= MOST && text.bytes().all(plain);
        let length = u8::try_from(text.len()).ok().filter(|_| fits);
        let length = length.ok_or_else(|| BadSpecName(text.chars().take(2 * MOST).collect()))?;
        let mut bytes = [0; MOST];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes, length })
    }
}

impl fmt::Display for SpecName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for SpecName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpecName({})", self.as_str())
    }
}

impl Serialize for SpecName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for SpecName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_folder() {
        for good in ["order", "Order_Paid-2", &"x".repeat(47)] {
            assert_eq!(
                good.parse::<SpecName>().map(|name| name.to_string()),
                Ok(good.to_owned())
            );
        }
        for bad in ["", "..", "a/b", "a.b", "a b", "\u{e9}", &"x".repeat(48)] {
            assert!(bad.parse::<SpecName>().is_err(), "{bad:?}");
        }
    }
}
