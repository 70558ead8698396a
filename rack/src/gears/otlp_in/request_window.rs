//! Request deduplication: the digests of the last requests that were stored, durable together with their rows.
//!
//! ```text
//! begin(digest) ─┬─ known     ─▶ answered as before
//!                ├─ under way ─▶ come again
//!                └─ new       ─▶ note, in the same write as the rows ─▶ end
//! ```
//!
//! # Invariants
//!
//! - The last [`MOST_REQUESTS`] with rows, whose first record has a time, are known, over restarts of the gear and of the Rack: each has a
//!   checkpoint of its own, which a later one overwrites. Of two equal requests at once one is stored.
//! - A digest is known once its rows are on disk. Only a gear that begins anew while a write of its life before is still under way
//!   cannot know it: the same request may be stored twice then.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use model::{Table, Token};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::spool::SourceCheckpoint;
use crate::telemetry::TelemetryRecorder;

/// So many requests are known.
const MOST_REQUESTS: u64 = 1024;
/// The bytes of a digest.
const DIGEST: usize = 16;

/// What a request is known by: the beginning of the SHA-256 of its table and its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RequestDigest([u8; DIGEST]);

impl RequestDigest {
    pub(super) fn of(table: Table, message: &[u8]) -> Self {
        let whole = Sha256::new_with_prefix([table.number()])
            .chain_update(message)
            .finalize();
        let mut digest = [0; DIGEST];
        digest.iter_mut().zip(whole).for_each(|(to, byte)| *to = byte);
        Self(digest)
    }
}

/// What is known of a request that comes.
pub(super) enum RequestTurn {
    New(RequestGuard),
    /// It is stored, and so many of its records were refused.
    Stored(u64),
    UnderWay,
}

/// See the module.
#[derive(Debug)]
pub(super) struct RequestWindow {
    /// What the keys of its checkpoints begin with.
    prefix: String,
    requests: Mutex<KnownRequests>,
}

#[derive(Debug, Default)]
struct KnownRequests {
    by_digest: HashMap<RequestDigest, u64>,
    /// By number, the oldest first.
    order: BTreeMap<u64, RequestDigest>,
    under_way: HashSet<RequestDigest>,
    next: u64,
}

impl RequestWindow {
    /// What a gear knows from its lives before.
    pub(super) fn restore(gear: &Token, recorder: &TelemetryRecorder) -> Self {
        let prefix = format!("otlp_in/{gear}/");
        let mut requests = KnownRequests::default();
        for note in recorder.checkpoints(&prefix) {
            if let Some((number, digest, refused)) = decode(&note.value) {
                requests.insert(number, digest, refused);
                requests.next = requests.next.max(number.saturating_add(1));
            }
        }
        Self {
            prefix,
            requests: Mutex::new(requests),
        }
    }

    /// Begins a request, unless it is known.
    pub(super) fn begin(self: &Arc<Self>, digest: RequestDigest) -> RequestTurn {
        let mut requests = self.requests.lock();
        if let Some(refused) = requests.by_digest.get(&digest) {
            return RequestTurn::Stored(*refused);
        }
        if !requests.under_way.insert(digest) {
            return RequestTurn::UnderWay;
        }
        RequestTurn::New(RequestGuard {
            window: Arc::clone(self),
            digest,
        })
    }
}

impl KnownRequests {
    fn insert(&mut self, number: u64, digest: RequestDigest, refused: u64) {
        self.by_digest.insert(digest, refused);
        self.order.insert(number, digest);
        while self.order.len() as u64 > MOST_REQUESTS
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.by_digest.remove(&oldest);
        }
    }
}

/// A request that nobody else stores meanwhile.
#[derive(Debug)]
pub(super) struct RequestGuard {
    window: Arc<RequestWindow>,
    digest: RequestDigest,
}

impl RequestGuard {
    /// Its number, and the checkpoint that is written with its rows.
    pub(super) fn note(&self, refused: u64) -> (u64, SourceCheckpoint) {
        let number = {
            let mut requests = self.window.requests.lock();
            let number = requests.next;
            requests.next += 1;
            number
        };
        let value = [&number.to_le_bytes()[..], &refused.to_le_bytes(), &self.digest.0].concat();
        let key = format!("{}{}", self.window.prefix, number % MOST_REQUESTS);
        (number, SourceCheckpoint { key, value })
    }

    /// Its rows are on disk.
    pub(super) fn end(self, number: u64, refused: u64) {
        self.window.requests.lock().insert(number, self.digest, refused);
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.window.requests.lock().under_way.remove(&self.digest);
    }
}

/// A checkpoint's number, digest and refused records.
fn decode(value: &[u8]) -> Option<(u64, RequestDigest, u64)> {
    let (number, rest) = value.split_first_chunk()?;
    let (refused, digest) = rest.split_first_chunk()?;
    let digest = RequestDigest(digest.try_into().ok()?);
    Some((u64::from_le_bytes(*number), digest, u64::from_le_bytes(*refused)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "tests")]
    use super::*;

    fn window() -> Arc<RequestWindow> {
        Arc::new(RequestWindow {
            prefix: "otlp_in/it/".to_owned(),
            requests: Mutex::default(),
        })
    }

    fn digest(number: u64) -> RequestDigest {
        RequestDigest::of(Table::Logs, &number.to_le_bytes())
    }

    fn store(window: &Arc<RequestWindow>, number: u64) -> SourceCheckpoint {
        let RequestTurn::New(guard) = window.begin(digest(number)) else {
            panic!("{number} is known")
        };
        let (place, note) = guard.note(3);
        guard.end(place, 3);
        note
    }

    #[test]
    fn a_request_is_known_once_it_is_stored_and_not_while_it_is_under_way_or_failed() {
        let window = window();
        let RequestTurn::New(first) = window.begin(digest(1)) else {
            panic!("it is new")
        };
        assert!(matches!(window.begin(digest(1)), RequestTurn::UnderWay));
        drop(first);
        store(&window, 1);
        assert!(matches!(window.begin(digest(1)), RequestTurn::Stored(3)));
        assert!(matches!(window.begin(digest(2)), RequestTurn::New(_)));
        assert_ne!(
            RequestDigest::of(Table::Logs, b"x"),
            RequestDigest::of(Table::Traces, b"x")
        );
    }

    #[test]
    fn the_oldest_are_forgotten_and_their_checkpoints_overwritten() {
        let window = window();
        let notes: Vec<_> = (0..=MOST_REQUESTS).map(|number| store(&window, number)).collect();
        assert!(matches!(window.begin(digest(0)), RequestTurn::New(_)));
        assert!(matches!(window.begin(digest(1)), RequestTurn::Stored(3)));
        let keys: HashSet<&str> = notes.iter().map(|note| note.key.as_str()).collect();
        assert_eq!(keys.len() as u64, MOST_REQUESTS);
        assert_eq!(notes.first().map(|note| &note.key), notes.last().map(|note| &note.key));
        let last = notes.last().and_then(|note| decode(&note.value));
        assert_eq!(last, Some((MOST_REQUESTS, digest(MOST_REQUESTS), 3)));
        assert_eq!(decode(b"short"), None);
    }
}
