//! Which messages of QoS 2 have arrived and were not released: one of them that comes again is no second one.
//!
//! ```text
//! note = length u16 | broker and client | identifier u16 …        little endian
//! ```
//!
//! # Invariants
//!
//! - A note is durable together with the messages whose identifiers are new in it, and before an identifier that was released is
//!   released to the broker: it may name another message then.
//! - Identifiers belong to a session: a note of another broker or client says nothing, and that of an older session is replaced
//!   before the new one brings messages.

use std::collections::BTreeSet;

use crate::gears::Context;
use crate::gears::mqtt::Endpoint;
use crate::telemetry::Checkpoint;

/// The identifiers of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Receipts {
    /// Whose they are.
    session: String,
    ids: BTreeSet<u16>,
    /// How many there may be.
    most: usize,
}

impl Receipts {
    /// Those that are durable.
    pub(super) fn load(cx: &Context, endpoint: &Endpoint, most: u16) -> Self {
        let session = format!("{} {}", endpoint.client_id, endpoint.address);
        let ids = cx.note(&key(cx)).and_then(|note| read(&note, &session));
        Self {
            session,
            ids: ids.unwrap_or_default(),
            most: most.into(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.ids.clear();
    }

    /// A message has come; whether it is a new one. In words why there are too many.
    pub(super) fn arrived(&mut self, id: u16) -> Result<bool, String> {
        if self.ids.contains(&id) {
            return Ok(false);
        }
        if self.ids.len() >= self.most {
            return Err(format!(
                "the broker has more than {} messages of QoS 2 under way: raise receive_maximum, or lower what the broker allows",
                self.most
            ));
        }
        Ok(self.ids.insert(id))
    }

    /// The broker will not send it again.
    pub(super) fn released(&mut self, id: u16) {
        self.ids.remove(&id);
    }

    /// All of them, to be made durable.
    pub(super) fn note(&self, cx: &Context) -> Checkpoint {
        Checkpoint {
            key: key(cx),
            value: write(&self.session, &self.ids),
        }
    }
}

fn key(cx: &Context) -> String {
    format!("mqtt_in {}", cx.name())
}

fn write(session: &str, ids: &BTreeSet<u16>) -> Vec<u8> {
    let mut note = Vec::new();
    note.extend(u16::try_from(session.len()).unwrap_or(u16::MAX).to_le_bytes());
    note.extend_from_slice(session.as_bytes());
    note.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
    note
}

/// The identifiers of a note, if it is of this session and whole.
fn read(note: &[u8], session: &str) -> Option<BTreeSet<u16>> {
    let (length, rest) = note.split_first_chunk()?;
    let (of, ids) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    let (ids, cut) = ids.as_chunks();
    (of == session.as_bytes() && cut.is_empty()).then(|| ids.iter().map(|id| u16::from_le_bytes(*id)).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_note_says_what_was_written_and_nothing_of_another_session_or_when_it_was_cut_within() {
        let ids = BTreeSet::from([1, 700, 65_535]);
        let note = write("me broker:1883", &ids);
        assert_eq!(read(&note, "me broker:1883"), Some(ids));
        assert_eq!(read(&note, "me broker:1884"), None);
        assert_eq!(read(&note[..note.len() - 1], "me broker:1883"), None);
        assert_eq!(read(&note[..9], "me broker:1883"), None);
        assert_eq!(read(&[], "me broker:1883"), None);
    }

    #[test]
    fn a_message_that_comes_again_is_no_new_one_until_it_was_released() {
        let mut receipts = Receipts {
            session: String::new(),
            ids: BTreeSet::new(),
            most: 2,
        };
        let arrived = [5, 5, 6].map(|id| receipts.arrived(id).unwrap());
        assert_eq!(arrived, [true, false, true]);
        let error = receipts.arrived(7).unwrap_err();
        assert!(error.contains("receive_maximum"), "{error}");
        receipts.released(5);
        assert_eq!(receipts.arrived(5), Ok(true));
    }
}
