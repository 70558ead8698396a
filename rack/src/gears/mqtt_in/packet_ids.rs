//! Deduplication of QoS 2: which messages have arrived and were not released. One of them that comes again is no second one.
//!
//! ```text
//! key  = mqtt_in <client identifier> <broker>
//! note = identifier u16 | CRC-32C of topic and payload u32 …        little endian
//! ```
//!
//! # Invariants
//!
//! - A note is durable together with the messages whose identifiers are new in it, and before an identifier that was released is
//!   released to the broker: it may name another message then.
//! - Only a message that says that it was sent before (DUP), with the identifier and the checksum of one that has arrived, is not a new one:
//!   an identifier that is left over swallows nothing.
//! - Identifiers belong to a session at the broker, whatever the gear is called. A new session forgets them before it brings messages, and
//!   one that goes on forgets those that its broker neither sends again nor releases before the first message that is new.

use std::collections::{BTreeMap, BTreeSet};

use crate::gears::GearContext;
use crate::gears::mqtt::{BrokerEndpoint, PublishPacket};
use crate::spool::SourceCheckpoint;

/// The bytes of an identifier and a checksum.
const ENTRY: usize = 6;

/// The identifiers of one session, each with the checksum of its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReceivedPacketIds {
    /// The key of the note.
    key: String,
    ids: BTreeMap<u16, u32>,
    /// Those of earlier connections that the broker has not named in this one.
    unnamed: BTreeSet<u16>,
    /// How many there may be.
    most: usize,
}

impl ReceivedPacketIds {
    /// Those that are durable.
    pub(super) fn load(cx: &GearContext, endpoint: &BrokerEndpoint, most: u16) -> Self {
        let key = format!("mqtt_in {} {}", endpoint.client_id, endpoint.address);
        let ids = cx.note(&key).map(|note| read(&note)).unwrap_or_default();
        Self {
            key,
            ids,
            unnamed: BTreeSet::new(),
            most: most.into(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.ids.clear();
        self.unnamed.clear();
    }

    /// A connection begins that goes on with the session.
    pub(super) fn resume(&mut self) {
        self.unnamed = self.ids.keys().copied().collect();
    }

    /// A message has come; whether it is a new one. In words why there are too many.
    pub(super) fn arrived(&mut self, message: &PublishPacket) -> Result<bool, String> {
        let id = message.id;
        let checksum = crc32c::crc32c_append(crc32c::crc32c(message.topic.as_bytes()), &message.payload);
        self.unnamed.remove(&id);
        if message.dup && self.ids.get(&id) == Some(&checksum) {
            return Ok(false);
        }
        if !message.dup {
            // What was under way comes before what is new.
            for id in std::mem::take(&mut self.unnamed) {
                self.ids.remove(&id);
            }
        }
        if self.ids.len() >= self.most && !self.ids.contains_key(&id) {
            return Err(format!(
                "the broker has more than {} messages of QoS 2 under way: raise receive_maximum, or lower what the broker allows",
                self.most
            ));
        }
        self.ids.insert(id, checksum);
        Ok(true)
    }

    /// The broker will not send it again.
    pub(super) fn released(&mut self, id: u16) {
        self.ids.remove(&id);
        self.unnamed.remove(&id);
    }

    /// Whether both have the same note.
    pub(super) fn has_same_ids(&self, other: &Self) -> bool {
        self.ids == other.ids
    }

    /// Whether a note is durable.
    pub(super) fn has_note(&self, cx: &GearContext) -> bool {
        cx.note(&self.key).is_some()
    }

    /// All of them, to be made durable.
    pub(super) fn note(&self) -> SourceCheckpoint {
        SourceCheckpoint {
            key: self.key.clone(),
            value: write(&self.ids),
        }
    }
}

fn write(ids: &BTreeMap<u16, u32>) -> Vec<u8> {
    let mut note = Vec::with_capacity(ids.len() * ENTRY);
    for (id, checksum) in ids {
        note.extend(id.to_le_bytes());
        note.extend(checksum.to_le_bytes());
    }
    note
}

fn read(note: &[u8]) -> BTreeMap<u16, u32> {
    let (entries, _) = note.as_chunks::<ENTRY>();
    let entry = |[a, b, checksum @ ..]: &[u8; ENTRY]| (u16::from_le_bytes([*a, *b]), u32::from_le_bytes(*checksum));
    entries.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::packet_batch::PacketBatch;
    use super::*;
    use crate::gears::mqtt::testing::message;
    use crate::gears::mqtt::{BrokerPacket, QosLevel};

    fn ids(most: usize) -> ReceivedPacketIds {
        ReceivedPacketIds {
            key: String::new(),
            ids: BTreeMap::new(),
            unnamed: BTreeSet::new(),
            most,
        }
    }

    fn sent(id: u16, payload: &str, dup: bool) -> PublishPacket {
        let message = message("t", QosLevel::ExactlyOnce, id, payload.as_bytes());
        PublishPacket { dup, ..message }
    }

    #[test]
    fn a_note_says_what_was_written() {
        let ids = BTreeMap::from([(1, 7), (700, u32::MAX), (65_535, 0)]);
        assert_eq!(read(&write(&ids)), ids);
        assert_eq!(read(&[]), BTreeMap::new());
    }

    #[test]
    fn a_message_that_comes_again_is_no_new_one_until_it_was_released() {
        let mut ids = ids(2);
        assert_eq!(ids.arrived(&sent(5, "a", false)), Ok(true));
        assert_eq!(ids.arrived(&sent(5, "a", true)), Ok(false));
        assert_eq!(ids.arrived(&sent(6, "b", true)), Ok(true), "its first sending was lost");
        let error = ids.arrived(&sent(7, "c", false)).unwrap_err();
        assert!(error.contains("receive_maximum"), "{error}");
        ids.released(5);
        assert_eq!(ids.arrived(&sent(5, "a", true)), Ok(true));
    }

    #[test]
    fn an_identifier_that_is_left_over_swallows_no_other_message() {
        let mut ids = ids(9);
        ids.arrived(&sent(5, "old", false)).unwrap();
        assert_eq!(ids.arrived(&sent(5, "old", false)), Ok(true), "a first delivery");
        assert_eq!(ids.arrived(&sent(5, "new", true)), Ok(true), "another message");
    }

    #[test]
    fn identifiers_that_the_broker_neither_sends_again_nor_releases_take_no_room_once_something_new_comes() {
        let mut ids = ids(3);
        for id in 1..=3 {
            ids.arrived(&sent(id, "a", false)).unwrap();
        }
        ids.resume();
        assert_eq!(ids.arrived(&sent(1, "a", true)), Ok(false));
        ids.released(2);
        assert_eq!(ids.arrived(&sent(9, "b", false)), Ok(true));
        assert_eq!(ids.ids.keys().copied().collect::<Vec<_>>(), [1, 9]);
    }

    #[test]
    fn a_broker_that_has_too_much_under_way_is_answered_as_far_as_there_is_room() {
        let mut ids = ids(1);
        let packets = ["a", "b"].into_iter().zip(1..);
        let packets = packets.map(|(payload, id)| BrokerPacket::Publish(sent(id, payload, false)));
        let batch = PacketBatch::sort(packets.collect(), &mut ids);
        assert_eq!(batch.arrived, [sent(1, "a", false)]);
        assert_eq!(batch.answers, [0x50, 2, 0, 1]);
        assert!(batch.end.unwrap().contains("receive_maximum"));
    }
}
