//! `Idempotency-Key`: which request this is, and that it is not being answered already.

use std::collections::BTreeSet;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::RequestPart;
use http::HeaderMap;
use model::Table;
use model::telemetry_codec::PublisherIdentity;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use crate::api::problem::ApiProblem;

/// The header.
pub(super) const HEADER: &str = "Idempotency-Key";
const MAX_KEY: usize = 255;
/// A request that takes so long hangs. Its client may have left, and is told that the key is in use whenever it asks again.
const HANGING: Duration = Duration::from_secs(60);

/// A request's key, of one publisher, one table, and one scope of entities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IdempotencyHeader {
    id: Uuid,
    /// Stands for the publisher.
    sender: u64,
}

impl IdempotencyHeader {
    /// What the headers say.
    pub(super) fn of(
        headers: &HeaderMap,
        table: Table,
        (publisher, writers): (&PublisherIdentity, &BTreeSet<String>),
    ) -> Result<Option<Self>, ApiProblem> {
        let Some(value) = headers.get(HEADER) else {
            return Ok(None);
        };
        let text = value
            .to_str()
            .map_err(|_| ApiProblem::parameter(HEADER, "it is not visible ASCII"))?;
        if text.is_empty() || text.len() > MAX_KEY {
            let reason = format!("it has {} characters, not 1 to {MAX_KEY}", text.len());
            return Err(ApiProblem::parameter(HEADER, reason));
        }
        let scoped = format!("{table}/{text}");
        let mut publisher = publisher.entity_id.uuid();
        if !writers.is_empty() {
            // Of another scope other rows of the same body are good.
            let entities: Vec<&str> = writers.iter().map(String::as_str).collect();
            publisher = Uuid::new_v5(&publisher, entities.join("\0").as_bytes());
        }
        let (high, low) = publisher.as_u64_pair();
        Ok(Some(Self {
            id: Uuid::new_v5(&publisher, scoped.as_bytes()),
            sender: high ^ low,
        }))
    }
}

/// Which request a body is, by its key and what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IdempotentRequest {
    key: IdempotencyHeader,
    digest: u64,
}

/// What makes a request known again.
#[derive(Debug, Clone)]
pub(super) enum BodyKey {
    /// Its header, if it has one.
    Header(Option<IdempotencyHeader>),
    /// Its body: senders repeat the same bytes. Of a publisher, who may be whose rows they are, and of a caller who may write for some
    /// entities only, of these.
    Content(PublisherIdentity, BTreeSet<String>),
}

impl BodyKey {
    /// The request that records of a kind are, however they were packed.
    pub(super) fn of_records(&self, kind: &str, body: &[u8]) -> Option<IdempotentRequest> {
        let Self::Header(Some(key)) = self else { return None };
        let mut digest = Sha256::new();
        digest.update(kind);
        digest.update([0]);
        digest.update(body);
        let (first, _) = halves(digest);
        Some(IdempotentRequest {
            key: *key,
            digest: first,
        })
    }

    /// The request that a body in a format of others is, of a sender: the same bytes of another one, or in another format, are another request.
    pub(super) fn of_content(
        &self,
        (table, format): (Table, &str),
        sender: u64,
        body: &[u8],
    ) -> Option<IdempotentRequest> {
        let Self::Content(publisher, writers) = self else {
            return None;
        };
        let mut digest = Sha256::new();
        digest.update(publisher.entity_id.as_bytes());
        digest.update(sender.to_le_bytes());
        digest.update((writers.len() as u64).to_le_bytes());
        for text in [table.name(), format, &publisher.entity_name]
            .into_iter()
            .chain(writers.iter().map(String::as_str))
        {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        }
        digest.update(body);
        let (first, second) = halves(digest);
        let id = Uuid::from_u64_pair(first, second);
        Some(IdempotentRequest {
            key: IdempotencyHeader { id, sender },
            digest: first,
        })
    }
}

/// The first two numbers of a digest.
fn halves(digest: Sha256) -> (u64, u64) {
    let digest = digest.finalize();
    let number = |at: usize| digest.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    (number(0).unwrap_or_default(), number(8).unwrap_or_default())
}

/// The keys of the requests that are being answered, and since when.
#[derive(Debug, Clone, Default)]
pub(super) struct InFlightKeys(Arc<Mutex<HashMap<Uuid, Instant>>>);

/// A key that nobody else uses until this is dropped.
#[derive(Debug)]
pub(super) struct KeyGuard {
    all: InFlightKeys,
    part: RequestPart,
}

impl InFlightKeys {
    pub(super) fn hold(&self, request: IdempotentRequest) -> Result<KeyGuard, ApiProblem> {
        let IdempotentRequest { key, digest } = request;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.entry(key.id) {
            Entry::Vacant(free) => free.insert(Instant::now()),
            Entry::Occupied(held) if held.get().elapsed() >= HANGING => return Err(ApiProblem::key_hangs()),
            Entry::Occupied(_) => return Err(ApiProblem::key_in_use()),
        };
        let part = RequestPart {
            id: key.id,
            sender: key.sender,
            digest,
            from: 0,
            to: 0,
        };
        Ok(KeyGuard {
            all: self.clone(),
            part,
        })
    }
}

impl KeyGuard {
    /// The request, of which nothing is stored yet.
    pub(super) const fn part(&self) -> RequestPart {
        self.part
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.part.id);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::EntityId;

    use super::*;

    fn key(name: &str, table: Table, text: &str) -> Result<Option<IdempotencyHeader>, ApiProblem> {
        scoped_key((name, &[]), table, text)
    }

    fn scoped_key(
        (name, writers): (&str, &[&str]),
        table: Table,
        text: &str,
    ) -> Result<Option<IdempotencyHeader>, ApiProblem> {
        let publisher = PublisherIdentity {
            entity_id: EntityId::for_name(name),
            entity_name: name.to_owned(),
        };
        let headers = HeaderMap::from_iter([(http::HeaderName::from_static("idempotency-key"), text.parse().unwrap())]);
        let writers = writers.iter().map(|&name| name.to_owned()).collect();
        IdempotencyHeader::of(&headers, table, (&publisher, &writers))
    }

    #[test]
    fn a_key_belongs_to_one_publisher_and_table() {
        let one = key("a", Table::Logs, "1").unwrap();
        assert_eq!(one, key("a", Table::Logs, "1").unwrap());
        for other in [
            ("b", Table::Logs, "1"),
            ("a", Table::Metrics, "1"),
            ("a", Table::Logs, "2"),
        ] {
            assert_ne!(one, key(other.0, other.1, other.2).unwrap(), "{other:?}");
        }
        let scoped = scoped_key(("a", &["a"]), Table::Logs, "1").unwrap();
        assert!(scoped != one && scoped != scoped_key(("a", &["a", "b"]), Table::Logs, "1").unwrap());
        assert!(key("a", Table::Logs, "").is_err() && key("a", Table::Logs, &"k".repeat(256)).is_err());
    }

    #[test]
    fn a_body_is_one_request_of_each_sender_publisher_and_scope() {
        let content_as = |format: &str, (publisher, writers): (&str, &[&str]), sender: u64, body: &str| {
            let publisher = PublisherIdentity {
                entity_id: EntityId::for_name("same"),
                entity_name: publisher.to_owned(),
            };
            let writers = writers.iter().map(|&name| name.to_owned()).collect();
            let key = BodyKey::Content(publisher, writers);
            key.of_content((Table::Logs, format), sender, body.as_bytes()).unwrap()
        };
        let content = |publisher: &str, writers: &[&str], sender: u64, body: &str| {
            content_as("loki", (publisher, writers), sender, body)
        };
        let one = content("p", &["a"], 1, "body");
        assert_eq!(one, content("p", &["a"], 1, "body"));
        for other in [
            content("p", &["a"], 2, "body"),
            content("q", &["a"], 1, "body"),
            content("p", &[], 1, "body"),
            content("p", &["a", "b"], 1, "body"),
            // What is a text of one is another text of the other, or the body.
            content("p", &[], 1, "a\0body"),
            content("p\0a", &[], 1, "body"),
            content("p", &["a\0body"], 1, ""),
            content_as("otlp", ("p", &["a"][..]), 1, "body"),
        ] {
            assert_ne!(one.key.id, other.key.id, "{other:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_held_by_one_request_at_a_time() {
        let (all, key) = (InFlightKeys::default(), key("a", Table::Logs, "1").unwrap().unwrap());
        let request = BodyKey::Header(Some(key))
            .of_records("application/json", b"[]")
            .unwrap();
        let held = all.hold(request).unwrap();
        assert_eq!(all.hold(request).err(), Some(ApiProblem::key_in_use()));
        tokio::time::advance(HANGING).await;
        assert_eq!(all.hold(request).err(), Some(ApiProblem::key_hangs()));
        drop(held);
        assert!(all.hold(request).is_ok());
    }
}
