//! What has come from the broker at once: what is passed on, and what is answered after that.

use super::packet_ids::ReceivedPacketIds;
use crate::gears::mqtt::{AckPacketKind, BrokerPacket, PublishPacket, QosLevel, acknowledge};

/// What became of subscriptions.
#[derive(Debug)]
pub(super) struct SubscribeAnswer {
    pub(super) id: u16,
    pub(super) codes: Vec<u8>,
    pub(super) text: Option<String>,
}

/// Packets, sorted; each kind is in its order.
#[derive(Debug, Default)]
pub(super) struct PacketBatch {
    /// Messages that are new.
    pub(super) arrived: Vec<PublishPacket>,
    /// What is sent once they are durable.
    pub(super) answers: Vec<u8>,
    /// The broker's answer to the subscriptions.
    pub(super) subscribed: Option<SubscribeAnswer>,
    /// In words, messages that were too large.
    pub(super) too_long: Vec<String>,
    /// Why the connection ends after these.
    pub(super) end: Option<String>,
}

impl PacketBatch {
    /// Sorts packets, up to one that ends the connection.
    pub(super) fn sort(packets: Vec<BrokerPacket>, ids: &mut ReceivedPacketIds) -> Self {
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
    fn add(&mut self, packet: BrokerPacket, ids: &mut ReceivedPacketIds) -> Result<(), String> {
        match packet {
            BrokerPacket::Publish(message) => self.arrive(message, ids)?,
            BrokerPacket::TooLong { topic, qos, id, size } => {
                self.too_long.push(format!("one of topic {topic:?} has {size} bytes"));
                self.answer(qos, id);
            }
            BrokerPacket::Acknowledged { kind, id, .. } => self.release(kind, id, ids)?,
            BrokerPacket::Subscribed { id, codes, text } => self.subscribed = Some(SubscribeAnswer { id, codes, text }),
            BrokerPacket::Disconnected(why) => return Err(format!("the broker ends the connection: {why}")),
            BrokerPacket::Pong => {}
            BrokerPacket::Connected(_) => return Err("the broker accepts the connection a second time".to_owned()),
        }
        Ok(())
    }

    fn arrive(&mut self, message: PublishPacket, ids: &mut ReceivedPacketIds) -> Result<(), String> {
        let (qos, id) = (message.qos, message.id);
        if qos != QosLevel::ExactlyOnce || ids.arrived(&message)? {
            self.arrived.push(message);
        }
        self.answer(qos, id);
        Ok(())
    }

    fn answer(&mut self, qos: QosLevel, id: u16) {
        match qos {
            QosLevel::AtMostOnce => {}
            QosLevel::AtLeastOnce => acknowledge(AckPacketKind::PubAck, id, &mut self.answers),
            QosLevel::ExactlyOnce => acknowledge(AckPacketKind::PubRec, id, &mut self.answers),
        }
    }

    fn release(&mut self, kind: AckPacketKind, id: u16, ids: &mut ReceivedPacketIds) -> Result<(), String> {
        if kind != AckPacketKind::PubRel {
            return Err("the broker acknowledges what was never sent to it".to_owned());
        }
        ids.released(id);
        acknowledge(AckPacketKind::PubComp, id, &mut self.answers);
        Ok(())
    }
}
