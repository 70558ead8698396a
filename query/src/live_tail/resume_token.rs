//! Resume token: the `id` of events, from which a tail resumes.
//!
//! ```text
//! store ─ lsn ─ row                        live: before the row number `row` of the batch `lsn`
//! store ─ lsn ─ row ─ ts ─ hash ─ seen     in the backlog: what came before that place is given up to a row, see `cursor`, in
//!                                          ascending order
//! ```
//!
//! Numbers in hexadecimal; `store` is a hash of the store's id, so that a place in another store is not taken for one here. A
//! token does not depend on the filter.

use std::fmt;

use engine::ArrivalPosition;
use model::stable_hash;
use uuid::Uuid;

use crate::{Error, cursor};

/// What tokens say of their store. Of all bits: the first half of an id is the time at which the store was made.
pub(crate) fn store_tag(store: Uuid) -> u32 {
    (stable_hash(store.as_bytes()) >> 32) as u32
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResumeToken {
    pub(crate) store: u32,
    pub(crate) lsn: u64,
    pub(crate) row: u64,
    pub(crate) after: Option<cursor::KeysetPosition>,
}

impl ResumeToken {
    pub(crate) fn live(store: u32, position: ArrivalPosition) -> Self {
        Self {
            store,
            lsn: position.lsn,
            row: position.row as u64,
            after: None,
        }
    }

    pub(crate) fn position(self) -> ArrivalPosition {
        ArrivalPosition {
            lsn: self.lsn,
            row: usize::try_from(self.row).unwrap_or(usize::MAX),
        }
    }

    /// `None` for a text that no event had.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-').map(number);
        let store = u32::try_from(parts.next()??).ok()?;
        let (lsn, row) = (parts.next()??, parts.next()??);
        let after = match parts.next() {
            None => None,
            Some(ts) => Some(cursor::KeysetPosition {
                ts: ts?.cast_signed(),
                hash: parts.next()??,
                seen: parts.next()??,
            }),
        };
        parts.next().is_none().then_some(Self { store, lsn, row, after })
    }
}

fn number(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_plain.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

impl fmt::Display for ResumeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{:x}-{:x}", self.store, self.lsn, self.row)?;
        match self.after {
            Some(after) => write!(f, "-{:x}-{:x}-{:x}", after.ts.cast_unsigned(), after.hash, after.seen),
            None => Ok(()),
        }
    }
}

/// The target: an id that a client goes on from.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz_resume_token() -> model::fuzz::FuzzTarget {
    let samples = ["0000002a-7-ff", "ffffffff-ffffffffffffffff-0-7fffffffffffffff-a-3"];
    model::fuzz::FuzzTarget::of_text("names.event_id", &samples, |text| {
        ResumeToken::parse(text).is_some_and(|token| {
            token.position();
            assert_eq!(
                ResumeToken::parse(&token.to_string()),
                Some(token),
                "it is written as it is read"
            );
            true
        })
    })
}

/// Why a text cannot be gone on from; `name` is what it came in.
pub(crate) fn refused(name: &'static str) -> Error {
    Error::parameter(
        name,
        "not an id of this stream's events: take that of the last event, or leave it out",
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn stores_made_in_the_same_minute_have_tokens_of_their_own() {
        let made = |millis| uuid::Builder::from_unix_timestamp_millis(millis, &[7; 10]).into_uuid();
        let (old, new) = (made(0x1_0000_0000), made(0x1_0000_0001));
        assert_eq!(old.as_fields().0, new.as_fields().0, "as they begin alike");
        assert_ne!(store_tag(old), store_tag(new));
    }

    #[test]
    fn a_token_comes_back_whole_and_other_texts_are_refused() {
        let live = ResumeToken::live(0xc0ffee, ArrivalPosition { lsn: u64::MAX, row: 7 });
        let after = cursor::KeysetPosition {
            ts: -5,
            hash: u64::MAX,
            seen: 3,
        };
        let backlog = ResumeToken {
            after: Some(after),
            ..live
        };
        for token in [live, backlog] {
            assert_eq!(ResumeToken::parse(&token.to_string()), Some(token));
        }
        for bad in [
            "",
            "-",
            "1-2",
            "1-2-3-4",
            "1-2-3-4-5-6-7",
            "1-2-+3",
            "1-2-x",
            "100000000-1-1",
            "1--1",
            "é-1-1",
        ] {
            assert_eq!(ResumeToken::parse(bad), None, "{bad}");
        }
    }
}
