//! What has come from the broker at once: what is passed on, and what is answered after that.

use super::packet_ids::ReceivedPacketIds;
use crate::gears::mqtt::{Acknowledgement, Packet, Publish, Qos, acknowledge};

/// What became of subscriptions.
#[derive(Debug)]
pub(super) struct SubscribeAnswer {
    pub(super) id: u16,
    pub(super) codes: Vec<u8>,
    pub(super) text: Option<String>,
}

/// Packets, sorted; each kind is in its order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Messages that are new.
    pub(super) arrived: Vec<Publish>,
    /// What is sent once they are durable.
    pub(super) answers: Vec<u8>,
    /// The broker's answer to the subscriptions.
    pub(super) subscribed: Option<SubscribeAnswer>,
    /// In words, messages that were too large.
    pub(super) too_long: Vec<String>,
    /// Why the connection ends after these.
    pub(super) end: Option<String>,
}

impl Batch {
    /// Sorts packets, up to one that ends the connection.
    pub(super) fn sort(packets: Vec<Packet>, ids: &mut ReceivedPacketIds) -> Self {
        let mut batch = Self::default();
        for packet in packets {
            if let Err(why) = batch.add(packet, ids) {
                batch.end = Some(why);
                break;
            }
        }
        batch
    }

    /// Adds a packet; in words why the connection ends.
    fn add(&mut self, packet: Packet, ids: &mut ReceivedPacketIds) -> Result<(), String> {
        match packet {
            Packet::Publish(message) => self.arrive(message, ids)?,
            Packet::TooLong { topic, qos, id, size } => {
                self.too_long.push(format!("one of topic {topic:?} has {size} bytes"));
                self.answer(qos, id);
            }
            Packet::Acknowledged { kind, id, .. } => self.release(kind, id, ids)?,
            Packet::Subscribed { id, codes, text } => self.subscribed = Some(SubscribeAnswer { id, codes, text }),
            Packet::Disconnected(why) => return Err(format!("the broker ends the connection: {why}")),
            Packet::Pong => {}
            Packet::Connected(_) => return Err("the broker accepts the connection a second time".to_owned()),
        }
        Ok(())
    }

    fn arrive(&mut self, message: Publish, ids: &mut ReceivedPacketIds) -> Result<(), String> {
        let (qos, id) = (message.qos, message.id);
        if qos != Qos::ExactlyOnce || ids.arrived(&message)? {
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

    fn release(&mut self, kind: Acknowledgement, id: u16, ids: &mut ReceivedPacketIds) -> Result<(), String> {
        if kind != Acknowledgement::PubRel {
            return Err("the broker acknowledges what was never sent to it".to_owned());
        }
        ids.released(id);
        acknowledge(Acknowledgement::PubComp, id, &mut self.answers);
        Ok(())
    }
}
