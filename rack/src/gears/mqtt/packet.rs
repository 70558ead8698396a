//! MQTT control packets, and how a client reads them.
//!
//! ```text
//! packet = type and flags u8 | length variable | body
//! ```
//!
//! | written | read |
//! |---|---|
//! | CONNECT, SUBSCRIBE, PUBLISH, PINGREQ, DISCONNECT | CONNACK, SUBACK, PUBLISH, PINGRESP, DISCONNECT |
//! | PUBACK, PUBREC, PUBREL, PUBCOMP | the same |
//!
//! # Invariants
//!
//! - Version 3.1.1 has no properties and no reason codes: an acknowledgement is a success there.
//!
//! # Not here
//!
//! Writing them ([`super::packet_writer`]), cutting a stream into packets ([`super::connection`]).

use gear_spec::mqtt::QosLevel;

use super::MqttVersion;
use super::packet_fields::{MalformedPacket, PacketFieldReader, PacketProperties};
use super::reason_code::BrokerRefusal;

const CONNACK: u8 = 0x20;
pub(super) const PUBLISH: u8 = 0x30;
const SUBACK: u8 = 0x90;
const PINGRESP: u8 = 0xd0;
const DISCONNECT: u8 = 0xe0;
/// The flag of a message that was sent before.
pub(super) const DUP: u8 = 0x08;
const RETAIN: u8 = 0x01;

/// A step of the delivery of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::enum_variant_names, reason = "the words of the specification")]
pub(crate) enum AckPacketKind {
    /// QoS 1: it was taken.
    PubAck,
    /// QoS 2: it was received.
    PubRec,
    /// QoS 2: its identifier may be forgotten.
    PubRel,
    /// QoS 2: its identifier was forgotten.
    PubComp,
}

impl AckPacketKind {
    pub(super) const fn first_byte(self) -> u8 {
        match self {
            Self::PubAck => 0x40,
            Self::PubRec => 0x50,
            Self::PubRel => 0x62,
            Self::PubComp => 0x70,
        }
    }

    fn of(first: u8) -> Option<Self> {
        let all = [Self::PubAck, Self::PubRec, Self::PubRel, Self::PubComp];
        all.into_iter().find(|kind| kind.first_byte() == first)
    }
}

/// What a broker said to a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ConnackPacket {
    /// Whether the session of before goes on.
    pub(crate) session_present: bool,
    pub(crate) code: u8,
    pub(crate) properties: PacketProperties,
}

impl ConnackPacket {
    /// How many unacknowledged messages the broker takes.
    pub(crate) fn receive_maximum(&self) -> u16 {
        self.properties
            .receive_maximum
            .filter(|most| *most > 0)
            .unwrap_or(u16::MAX)
    }

    /// The largest packet that the broker takes.
    pub(crate) fn maximum_packet_size(&self) -> usize {
        let most = self
            .properties
            .maximum_packet_size
            .and_then(|most| usize::try_from(most).ok());
        most.unwrap_or(usize::MAX)
    }

    /// What the broker cannot do of what a message asks for.
    pub(crate) fn lacks(&self, qos: QosLevel, is_retained: bool) -> Option<String> {
        let most = self.properties.maximum_qos.unwrap_or(2);
        if u8::from(qos) > most {
            return Some(format!("the broker takes at most QoS {most}: set qos to that"));
        }
        let has_retain = self.properties.retain_available != Some(0);
        (is_retained && !has_retain).then(|| "the broker keeps no retained messages: set retain to false".to_owned())
    }

    pub(super) fn refusal(&self) -> Option<BrokerRefusal> {
        (self.code != 0).then(|| BrokerRefusal {
            code: self.code,
            text: self.properties.reason.clone(),
        })
    }

    /// Seconds, if the broker wants others; zero would be none.
    pub(super) fn keep_alive(&self) -> Option<u16> {
        self.properties.server_keep_alive.filter(|seconds| *seconds > 0)
    }
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublishPacket {
    pub(crate) topic: String,
    pub(crate) qos: QosLevel,
    pub(crate) retain: bool,
    /// Whether it was sent before.
    pub(crate) dup: bool,
    /// None, 0, for QoS 0.
    pub(crate) id: u16,
    pub(crate) properties: PacketProperties,
    pub(crate) payload: Vec<u8>,
}

/// What a broker sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BrokerPacket {
    Connected(ConnackPacket),
    Publish(PublishPacket),
    /// A message that was read over: it is larger than what is kept.
    TooLong {
        topic: String,
        qos: QosLevel,
        id: u16,
        size: usize,
    },
    Acknowledged {
        kind: AckPacketKind,
        id: u16,
        refusal: Option<BrokerRefusal>,
    },
    /// The codes of the filters, in their order, and the broker's own words, if it has any.
    Subscribed {
        id: u16,
        codes: Vec<u8>,
        text: Option<String>,
    },
    Pong,
    Disconnected(BrokerRefusal),
}

/// Reads the body of a packet.
pub(super) fn decode(version: MqttVersion, first: u8, body: &[u8]) -> Result<BrokerPacket, MalformedPacket> {
    let mut fields = PacketFieldReader::of(body);
    if first & 0xf0 == PUBLISH {
        return decode_publish(version, first, fields).map(BrokerPacket::Publish);
    }
    match first {
        CONNACK => connack(version, &mut fields).map(BrokerPacket::Connected),
        SUBACK => suback(version, &mut fields),
        PINGRESP => Ok(BrokerPacket::Pong),
        DISCONNECT if version == MqttVersion::V5 => Ok(BrokerPacket::Disconnected(coded(&mut fields)?)),
        _ => match AckPacketKind::of(first) {
            Some(kind) => acknowledged(version, kind, &mut fields),
            None => Err(MalformedPacket("a packet of a type or with flags that no broker sends")),
        },
    }
}

fn connack(version: MqttVersion, fields: &mut PacketFieldReader<'_>) -> Result<ConnackPacket, MalformedPacket> {
    let (flags, code) = (fields.u8()?, fields.u8()?);
    let properties = match version {
        // A broker that speaks only 3.1.1 refuses version 5 without properties.
        MqttVersion::V5 if !fields.is_empty() => PacketProperties::read(fields)?,
        _ => PacketProperties::default(),
    };
    Ok(ConnackPacket {
        session_present: flags & 1 == 1,
        code,
        properties,
    })
}

fn suback(version: MqttVersion, fields: &mut PacketFieldReader<'_>) -> Result<BrokerPacket, MalformedPacket> {
    let id = fields.u16()?;
    let text = match version {
        MqttVersion::V5 => PacketProperties::read(fields)?.reason,
        MqttVersion::V3 => None,
    };
    let codes = fields.rest().to_vec();
    Ok(BrokerPacket::Subscribed { id, codes, text })
}

fn acknowledged(
    version: MqttVersion,
    kind: AckPacketKind,
    fields: &mut PacketFieldReader<'_>,
) -> Result<BrokerPacket, MalformedPacket> {
    let id = fields.u16()?;
    let refusal = match version {
        MqttVersion::V5 => Some(coded(fields)?).filter(|refusal| super::is_refusal(refusal.code)),
        MqttVersion::V3 => None,
    };
    Ok(BrokerPacket::Acknowledged { kind, id, refusal })
}

/// A reason code and properties, either of which may be left out.
fn coded(fields: &mut PacketFieldReader<'_>) -> Result<BrokerRefusal, MalformedPacket> {
    let code = if fields.is_empty() { 0 } else { fields.u8()? };
    let text = if fields.is_empty() {
        None
    } else {
        PacketProperties::read(fields)?.reason
    };
    Ok(BrokerRefusal { code, text })
}

fn decode_publish(
    version: MqttVersion,
    first: u8,
    mut fields: PacketFieldReader<'_>,
) -> Result<PublishPacket, MalformedPacket> {
    let (topic, qos, id) = publish_head(first, &mut fields)?;
    let properties = match version {
        MqttVersion::V5 => PacketProperties::read(&mut fields)?,
        MqttVersion::V3 => PacketProperties::default(),
    };
    Ok(PublishPacket {
        topic,
        qos,
        retain: first & RETAIN != 0,
        dup: first & DUP != 0,
        id,
        properties,
        payload: fields.rest().to_vec(),
    })
}

/// What a message begins with: its topic, its QoS and its identifier.
fn publish_head(first: u8, fields: &mut PacketFieldReader<'_>) -> Result<(String, QosLevel, u16), MalformedPacket> {
    let qos = QosLevel::try_from(first >> 1 & 3).map_err(|_| MalformedPacket("a message of QoS 3"))?;
    let topic = fields.text()?;
    if topic.is_empty() || topic.contains(['+', '#']) {
        return Err(MalformedPacket("a message whose topic is empty or has a wildcard"));
    }
    let id = if qos == QosLevel::AtMostOnce { 0 } else { fields.u16()? };
    if id == 0 && qos != QosLevel::AtMostOnce {
        return Err(MalformedPacket("a message of QoS 1 or 2 without an identifier"));
    }
    Ok((topic.to_owned(), qos, id))
}

/// What is known of a message that is too large, once enough of it has come.
pub(super) fn too_long(first: u8, body: &[u8], size: usize) -> Result<Option<BrokerPacket>, MalformedPacket> {
    let mut fields = PacketFieldReader::of(body);
    let needed = match fields.u16() {
        Ok(topic) => usize::from(topic) + 2,
        Err(_) => return Ok(None),
    };
    if fields.len() < needed {
        return Ok(None);
    }
    let (topic, qos, id) = publish_head(first, &mut PacketFieldReader::of(body))?;
    Ok(Some(BrokerPacket::TooLong { topic, qos, id, size }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;

    use super::super::publish;
    use super::*;

    /// The first byte and the body of a packet.
    fn cut(packet: &[u8]) -> (u8, &[u8]) {
        let mut fields = PacketFieldReader::of(&packet[1..]);
        let length = fields.variable().unwrap();
        assert_eq!(length, fields.len());
        (packet[0], fields.rest())
    }

    proptest! {
        #[test]
        fn whatever_a_broker_sends_is_read_or_refused_in_words(first: u8, body in prop::collection::vec(any::<u8>(), 0..300)) {
            for version in [MqttVersion::V3, MqttVersion::V5] {
                if let Err(MalformedPacket(why)) = decode(version, first, &body) {
                    prop_assert!(!why.is_empty());
                }
                too_long(first, &body, 9).ok();
            }
        }

        #[test]
        fn a_message_is_read_as_it_was_written_and_never_when_it_was_cut(
            topic in "[a-z/]{1,20}", level in 0_u8..3, retain: bool, dup: bool, id in 1_u16..,
            content_type in prop::option::of("[a-z/]{0,10}"),
            user in prop::collection::vec(("[a-z]{0,5}", "[a-z]{0,5}"), 0..4),
            payload in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let qos = QosLevel::try_from(level).unwrap();
            let message = PublishPacket {
                topic, qos, retain, dup,
                id: if level == 0 { 0 } else { id },
                properties: PacketProperties { content_type, user, ..PacketProperties::default() },
                payload,
            };
            let mut out = Vec::new();
            publish(MqttVersion::V5, &message, &mut out);
            let (first, body) = cut(&out);
            prop_assert_eq!(decode(MqttVersion::V5, first, body), Ok(BrokerPacket::Publish(message.clone())));
            let head = body.len() - message.payload.len();
            for end in 0..head {
                prop_assert!(decode(MqttVersion::V5, first, &body[..end]).is_err());
            }
            // One that is read over is large.
            let large = [body, b"more"].concat();
            prop_assert_eq!(too_long(first, &large, 9), Ok(Some(BrokerPacket::TooLong { topic: message.topic, qos, id: message.id, size: 9 })));
        }
    }

    #[test]
    fn reason_codes_and_the_brokers_words_are_read_and_may_be_left_out() {
        let (first, id) = (AckPacketKind::PubAck.first_byte(), 7);
        let read = |version, body: &[u8]| match decode(version, first, body).unwrap() {
            BrokerPacket::Acknowledged { id: 7, refusal, .. } => refusal.map(|refusal| refusal.to_string()),
            other => panic!("{other:?}"),
        };
        assert_eq!(read(MqttVersion::V3, &[0, id]), None);
        assert_eq!(read(MqttVersion::V5, &[0, id]), None);
        // No matching subscribers is no refusal.
        assert_eq!(read(MqttVersion::V5, &[0, id, 0x10]), None);
        let said = read(MqttVersion::V5, &[0, id, 0x87]).unwrap();
        assert_eq!(said, "not authorized (reason code 0x87)");
        let said = read(MqttVersion::V5, &[0, id, 0x97, 6, 0x1f, 0, 3, b'n', b'o', b'w']).unwrap();
        assert_eq!(said, "quota exceeded (reason code 0x97), it says \"now\"");
        assert!(decode(MqttVersion::V5, first, &[0, id, 0x97, 9, 0x1f]).is_err());
    }
}
