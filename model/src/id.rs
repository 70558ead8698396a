//! Identities: 128-bit UUIDs for things that live long, W3C hex ids for traces and spans.
//!
//! # Invariants
//!
//! - Each kind is its own type: a swapped argument does not compile.
//! - Ids are made from a time and entropy that the caller passes in.
//!
//! # Not here
//!
//! Names that become folders or subjects ([`crate::Token`]).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Timestamp;

/// A text that is not the id it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {what}")]
pub struct BadId {
    /// What was expected, with its article.
    pub what: &'static str,
    /// The text that was found.
    pub text: String,
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        plain_schema!($name, { "type": "string", "format": "uuid" });

        impl $name {
            /// A new version 7 id for the moment `at`; `entropy` is 10 random bytes.
            #[must_use]
            pub fn at(at: Timestamp, entropy: [u8; 10]) -> Self {
                let millis = u64::try_from(at.micros().div_euclid(1_000)).unwrap_or(0);
                Self(uuid::Builder::from_unix_timestamp_millis(millis, &entropy).into_uuid())
            }

            /// Wraps a UUID of any version (foreign publishers and version 5 ids are accepted).
            #[must_use]
            pub const fn from_uuid(id: Uuid) -> Self {
                Self(id)
            }

            /// The UUID.
            #[must_use]
            pub const fn uuid(&self) -> Uuid {
                self.0
            }

            /// The 16 bytes, most significant first: the form stored in columns.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// An id from its 16 stored bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            /// The creation time that a version 7 id carries (millisecond precision), if it is one.
            #[must_use]
            pub fn created(&self) -> Option<Timestamp> {
                if self.0.get_version_num() != 7 {
                    return None;
                }
                let (secs, nanos) = self.0.get_timestamp()?.to_unix();
                let micros = i64::try_from(secs).ok()?.checked_mul(1_000_000)?;
                Some(Timestamp::from_micros(micros.checked_add(i64::from(nanos / 1_000))?))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                Uuid::try_parse(text)
                    .map(Self)
                    .map_err(|_| BadId { what: concat!("a UUID for ", $what), text: text.to_owned() })
            }
        }
    };
}

uuid_id!(
    /// A Rack's or another entity's identity, given by the registry at enrolment.
    EntityId,
    "entity_id"
);
uuid_id!(
    /// A business signal's identity across its whole life; version 7 where we make it, so ids sort by time.
    FluxId,
    "flux_id"
);
uuid_id!(
    /// One message's identity; the messages that are made of it have their own.
    MessageId,
    "a message id"
);
uuid_id!(
    /// A Mixer cluster's identity, made on first boot.
    ClusterId,
    "cluster_id"
);

impl EntityId {
    /// A stable id for a publisher that names itself but was never enrolled: version 5 of the name.
    #[must_use]
    pub fn for_name(name: &str) -> Self {
        Self(Uuid::new_v5(&Uuid::NAMESPACE_DNS, name.as_bytes()))
    }
}

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name([u8; $bytes]);

        plain_schema!($name, { "type": "string", "pattern": format!("^(?!0{{{0}}}$)[0-9a-fA-F]{{{0}}}$", 2 * $bytes) });

        impl $name {
            /// An id from random bytes. All zeros is invalid in W3C Trace Context; the last bit is set then.
            #[must_use]
            pub const fn from_entropy(mut bytes: [u8; $bytes]) -> Self {
                let mut i = 0;
                let mut any = 0;
                while i < $bytes {
                    any |= bytes[i];
                    i += 1;
                }
                if any == 0 {
                    bytes[$bytes - 1] = 1;
                }
                Self(bytes)
            }

            /// The raw bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let text = self.0.map(crate::hex::digits);
                f.write_str(std::str::from_utf8(text.as_flattened()).unwrap_or_default())
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                let bad = || BadId { what: $what, text: text.to_owned() };
                if text.len() != $bytes * 2 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Err(bad());
                }
                let mut bytes = [0u8; $bytes];
                for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
                    let pair = std::str::from_utf8(pair).map_err(|_| bad())?;
                    *byte = u8::from_str_radix(pair, 16).map_err(|_| bad())?;
                }
                if bytes == [0u8; $bytes] {
                    return Err(bad());
                }
                Ok(Self(bytes))
            }
        }

        impl TryFrom<&[u8]> for $name {
            type Error = BadId;
            fn try_from(bytes: &[u8]) -> Result<Self, BadId> {
                let id = bytes.try_into().map(Self).ok().filter(|id| id.0 != [0; $bytes]);
                id.ok_or_else(|| BadId {
                    what: $what,
                    text: crate::hex::encode(bytes.get(..64).unwrap_or(bytes)),
                })
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;
            fn try_from(text: String) -> Result<Self, BadId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

hex_id!(
    /// A W3C Trace Context trace id: 16 bytes, written as 32 lower-case hex digits, never all zeros.
    TraceId,
    16,
    "a trace id of 32 hex digits, not all zeros"
);
hex_id!(
    /// A W3C Trace Context span id: 8 bytes, written as 16 lower-case hex digits, never all zeros.
    SpanId,
    8,
    "a span id of 16 hex digits, not all zeros"
);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_flux_id_sorts_by_the_time_it_was_made_for_and_gives_it_back() {
        let early = FluxId::at(Timestamp::from_micros(1_700_000_000_123_456), [0xff; 10]);
        let late = FluxId::at(Timestamp::from_micros(1_700_000_000_124_000), [0; 10]);
        assert!(early < late);
        assert_eq!(early.created(), Some(Timestamp::from_micros(1_700_000_000_123_000)));
        assert_eq!(early.to_string().parse(), Ok(early));
    }

    #[test]
    fn hex_ids_refuse_zeros_wrong_lengths_and_other_letters() {
        for bad in [
            "",
            "00000000000000000000000000000000",
            "xyz",
            "+0000000000000000000000000000001",
        ] {
            assert!(bad.parse::<TraceId>().is_err(), "{bad}");
        }
        assert_eq!(
            "00F067AA0BA902B7".parse::<SpanId>().unwrap().to_string(),
            "00f067aa0ba902b7"
        );
        assert_eq!(SpanId::from_entropy([0; 8]).to_string(), "0000000000000001");
    }
}
