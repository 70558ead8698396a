//! The destination of a message, as seen from the Rack that it leaves.
//!
//! ```text
//! outbound          over the edge of the Rack, to several gears
//! internal sink     to the gear sink, which is of the same Rack
//! ```
//!
//! # Invariants
//!
//! - It is never inbound: that is what a message is that no Rack of ours sent.

use std::fmt;
use std::str::FromStr;

use crate::{BadId, MessageDirection, Token};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageDestination {
    direction: MessageDirection,
    to: Option<Token>,
}

impl MessageDestination {
    /// To one gear, or to several; whether all of them are of the sender's Rack.
    #[must_use]
    pub const fn new(is_internal: bool, to: Option<Token>) -> Self {
        let direction = if is_internal {
            MessageDirection::Internal
        } else {
            MessageDirection::Outbound
        };
        Self { direction, to }
    }

    /// Of a direction's word and a gear's name; none if the word is not a direction that a Rack sends in. What is no name is
    /// no gear.
    #[must_use]
    pub fn of(direction: &str, to: Option<&str>) -> Option<Self> {
        let sent = [MessageDirection::Internal, MessageDirection::Outbound];
        let direction = sent.into_iter().find(|known| known.as_str() == direction)?;
        let to = to.and_then(|to| to.parse().ok());
        Some(Self { direction, to })
    }

    /// Internal, or outbound.
    #[must_use]
    pub const fn direction(&self) -> MessageDirection {
        self.direction
    }

    /// The gear that it is for, if it is for one only.
    #[must_use]
    pub const fn to(&self) -> Option<&Token> {
        self.to.as_ref()
    }
}

impl fmt::Display for MessageDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.direction.as_str())?;
        self.to.iter().try_for_each(|to| write!(f, " {to}"))
    }
}

impl FromStr for MessageDestination {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        let (direction, to) = text.split_once(' ').map_or((text, None), |(word, to)| (word, Some(to)));
        let found = Self::of(direction, to).filter(|found| found.to.is_some() == to.is_some());
        found.ok_or_else(|| BadId {
            what: "a direction, internal or outbound, and the name of a gear",
            text: text.chars().take(80).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_destination_comes_back_from_its_text_and_nothing_else_is_one() {
        for text in ["internal", "outbound", "internal sink", "outbound sink"] {
            let read: MessageDestination = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
            assert_eq!(read.to().is_some(), text.ends_with("sink"));
        }
        for text in [
            "",
            "inbound",
            "inbound sink",
            "Internal",
            "internal ",
            "internal a.b",
            "sink",
            " sink",
        ] {
            assert!(text.parse::<MessageDestination>().is_err(), "{text:?}");
        }
        assert_eq!(
            MessageDestination::of("internal", Some("no name")),
            Some(MessageDestination::new(true, None))
        );
    }
}
