//! What has come from the broker at once: what is passed on, and what is answered after that.

use super::receipts::Receipts;
use crate::gears::mqtt::{Acknowledgement, Packet, Publish, Qos, acknowledge};

/// Packets, sorted; each kind is in its order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Messages that are new.
    pub(super) arrived: Vec<Publish>,
    /// What is sent once they are durable.
    pub(super) answers: Vec<u8>,
    /// The codes of the subscriptions, where the broker answers them.
    pub(super) subscribed: Option<Vec<u8>>,
    /// In words, messages that were too large.
    pub(super) too_long: Vec<String>,
    /// Why the broker ends the connection.
    pub(super) disconnected: Option<String>,
}

impl Batch {
    /// Sorts packets; in words why they are not what a broker sends.
    pub(super) fn sort(packets: Vec<Packet>, receipts: &mut Receipts) -> Result<Self, String> {
        let mut batch = Self::default();
        for packet in packets {
            match packet {
                Packet::Publish(message) => batch.arrive(message, receipts)?,
                Packet::TooLong { topic, qos, id, size } => {
                    batch.too_long.push(format!("one of topic {topic:?} has {size} bytes"));
                    batch.answer(qos, id);
                }
                Packet::Acknowledged { kind, id, .. } => batch.release(kind, id, receipts)?,
                Packet::Subscribed(codes) => batch.subscribed = Some(codes),
                Packet::Disconnected(why) => {
                    batch.disconnected = Some(format!("the broker ends the connection: {why}"));
                }
                Packet::Pong => {}
                Packet::Connected(_) => return Err("the broker accepts the connection a second time".to_owned()),
            }
        }
        Ok(batch)
    }

    fn arrive(&mut self, message: Publish, receipts: &mut Receipts) -> Result<(), String> {
        let (qos, id) = (message.qos, message.id);
        if qos != Qos::ExactlyOnce || receipts.arrived(id)? {
            self.arrived.push(message);
        }
        self.answer(qos, id);
        Ok(())
    }

    fn answer(&mut self, qos: Qos, id: u16) {
        match qos {
            Qos::AtMostOnce => {}
            Qos::AtLeastOnce => acknowledge(Acknowledgement::PubAck, id, &mut self.answers),
            Qos::ExactlyOnce => acknowledge(Acknowledgement::PubRec, id, &mut self.answers),
        }
    }

    fn release(&mut self, kind: Acknowledgement, id: u16, receipts: &mut Receipts) -> Result<(), String> {
        if kind != Acknowledgement::PubRel {
            return Err("the broker acknowledges what was never sent to it".to_owned());
        }
        receipts.released(id);
        acknowledge(Acknowledgement::PubComp, id, &mut self.answers);
        Ok(())
    }
}
