//! Cursors: where the next page begins, as an opaque token.
//!
//! # Order of rows
//!
//! `ts` descending, or ascending where `order=asc` asks for it; rows of one `ts` by a hash over all their columns, ascending.
//! The order is a property of the rows, not of where they are stored, so it is the same before and after a row moves from memory
//! into a file and when a file is sealed. Rows that are equal in every column are interchangeable and are counted.
//!
//! # What a cursor says
//!
//! [`KeysetPosition`]: "after `seen` of the rows of `ts` whose hash is `hash` or more, in order". The next page is the rest of that
//! `ts`, then the rows beyond it. A row appended behind the position since is given by a later page, once; one appended
//! before it is not given, like any row newer than the first page of the newest. A row that was there throughout is given
//! exactly once.
//!
//! The window of the first page travels along: an age (`since=1h`) counts from the first request, not from each page. So does
//! a fingerprint of the filter: a cursor under another filter is refused. Tokens are hex of JSON; they hold nothing secret
//! and a forged one is only an unusual window.

use model::{Timestamp, stable_hash};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::time_range::TimeRange;

/// The `ts` and the hash of a row. Rows that are equal in every column have the same.
pub(crate) type RowPlace = (i64, u64);

/// A place between two rows; the module says what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeysetPosition {
    #[serde(rename = "t")]
    pub(crate) ts: i64,
    #[serde(rename = "h")]
    pub(crate) hash: u64,
    #[serde(rename = "n")]
    pub(crate) seen: u64,
}

impl KeysetPosition {
    pub(crate) const fn moment(self) -> Timestamp {
        Timestamp::from_micros(self.ts)
    }
}

/// A token's content: `P` is [`KeysetPosition`] for rows, the last key for groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageCursor<P> {
    #[serde(rename = "f")]
    fingerprint: u64,
    #[serde(rename = "w")]
    pub(crate) window: TimeRange,
    #[serde(rename = "p")]
    pub(crate) position: P,
}

impl<P: Serialize + DeserializeOwned> PageCursor<P> {
    pub(crate) fn new(fingerprint: u64, window: TimeRange, position: P) -> Self {
        Self {
            fingerprint,
            window,
            position,
        }
    }

    pub(crate) fn token(&self) -> String {
        hex::encode(serde_json::to_vec(self).unwrap_or_default())
    }

    pub(crate) fn parse(token: &str, fingerprint: u64) -> Result<Self, Error> {
        let cursor: Self = hex::decode(token)
            .ok()
            .and_then(|json| serde_json::from_slice(&json).ok())
            .ok_or_else(|| Error::parameter("cursor", "not a cursor of this API: take next_cursor of an answer"))?;
        if cursor.fingerprint != fingerprint {
            let reason = "this cursor belongs to a query with other parameters: only limit may change between pages";
            return Err(Error::parameter("cursor", reason));
        }
        Ok(cursor)
    }
}

/// A number that is the same for two queries that differ only in their paging, in every release.
pub(crate) fn fingerprint(filter: &impl Serialize) -> u64 {
    let mut value = serde_json::to_value(filter).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        for paging in ["limit", "offset", "cursor"] {
            object.remove(paging);
        }
    }
    stable_hash(value.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use model::Level;
    use model::filter::LogFilter;

    #[test]
    fn the_fingerprint_of_a_filter_is_the_same_in_every_release() {
        let filter = LogFilter {
            level: Some(Level::Warn),
            limit: Some(7),
            ..LogFilter::default()
        };
        assert_eq!(fingerprint(&filter), stable_hash(br#"{"level":"warn"}"#));
    }

    #[test]
    fn a_cursor_comes_back_whole_and_only_under_its_own_filter() {
        let filter = LogFilter {
            level: Some(Level::Warn),
            limit: Some(7),
            ..LogFilter::default()
        };
        let position = KeysetPosition {
            ts: -5,
            hash: u64::MAX,
            seen: 3,
        };
        let cursor = PageCursor::new(fingerprint(&filter), TimeRange::ALL, position);
        let more = LogFilter {
            limit: Some(9),
            cursor: Some(cursor.token()),
            ..filter.clone()
        };
        assert_eq!(PageCursor::parse(&cursor.token(), fingerprint(&more)).unwrap(), cursor);
        let other = fingerprint(&LogFilter::default());
        assert!(PageCursor::<KeysetPosition>::parse(&cursor.token(), other).is_err());
    }

    #[test]
    fn texts_that_are_no_cursors_are_refused() {
        for bad in ["", "0", "zz", "é0", "00", "7b7d", "é", "5b5d"] {
            assert!(PageCursor::<KeysetPosition>::parse(bad, 0).is_err(), "{bad}");
        }
    }
}
