//! The control packets that a client writes.

use gear_spec::mqtt::QosLevel;

use super::MqttVersion;
use super::packet::{AckPacketKind, DUP, PUBLISH, PublishPacket};
use super::packet_fields::{put_binary, put_text, put_u16, put_variable};

const CONNECT: u8 = 0x10;
const SUBSCRIBE: u8 = 0x82;
const PINGREQ: u8 = 0xc0;
const DISCONNECT: u8 = 0xe0;
/// Subscription options of version 5: the flag retain stays as it was published; retained messages come only with a new subscription.
const RETAIN_AS_PUBLISHED: u8 = 0x08;
const RETAINED_ONCE: u8 = 0x10;

/// What a client says of itself.
#[derive(Debug)]
pub(super) struct ConnectPacket<'a> {
    pub(super) version: MqttVersion,
    pub(super) client_id: &'a str,
    pub(super) user: Option<&'a str>,
    pub(super) password: Option<&'a str>,
    /// Seconds.
    pub(super) keep_alive: u16,
    /// Whether a session of before is forgotten.
    pub(super) is_clean: bool,
    /// Seconds that the session outlives its connection; version 5.
    pub(super) session_expiry: u32,
    /// How many messages of QoS 1 and 2 may come unacknowledged; version 5.
    pub(super) receive_maximum: u16,
}

/// A filter of topics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TopicSubscription<'a> {
    pub(crate) filter: &'a str,
    pub(crate) qos: QosLevel,
}

pub(super) fn connect(connect: &ConnectPacket<'_>, out: &mut Vec<u8>) {
    let mut body = Vec::new();
    put_text(&mut body, "MQTT");
    let (level, is_5) = match connect.version {
        MqttVersion::V3 => (4, false),
        MqttVersion::V5 => (5, true),
    };
    let flag = |is_set: bool, bit: u8| u8::from(is_set) << bit;
    let secrets = flag(connect.user.is_some(), 7) | flag(connect.password.is_some(), 6);
    body.extend([level, secrets | flag(connect.is_clean, 1)]);
    put_u16(&mut body, connect.keep_alive);
    if is_5 {
        let mut properties = vec![0x11];
        properties.extend(connect.session_expiry.to_be_bytes());
        properties.push(0x21);
        put_u16(&mut properties, connect.receive_maximum);
        put_variable(&mut body, properties.len());
        body.append(&mut properties);
    }
    put_text(&mut body, connect.client_id);
    for secret in [connect.user, connect.password].into_iter().flatten() {
        put_binary(&mut body, secret.as_bytes());
    }
    frame(CONNECT, &body, out);
}

/// Writes a message.
pub(crate) fn publish(version: MqttVersion, message: &PublishPacket, out: &mut Vec<u8>) {
    let mut head = Vec::new();
    put_text(&mut head, &message.topic);
    if message.qos != QosLevel::AtMostOnce {
        put_u16(&mut head, message.id);
    }
    if version == MqttVersion::V5 {
        message.properties.write(&mut head);
    }
    let flags = u8::from(message.qos) << 1 | if message.dup { DUP } else { 0 } | u8::from(message.retain);
    out.push(PUBLISH | flags);
    put_variable(out, head.len() + message.payload.len());
    out.append(&mut head);
    out.extend_from_slice(&message.payload);
}

/// Writes a step of a delivery that succeeded.
pub(crate) fn acknowledge(kind: AckPacketKind, id: u16, out: &mut Vec<u8>) {
    frame(kind.first_byte(), &id.to_be_bytes(), out);
}

/// Asks for topics. Of retained messages version 5 sends those of subscriptions that are new.
pub(crate) fn subscribe<'a>(
    version: MqttVersion,
    id: u16,
    subscriptions: impl Iterator<Item = TopicSubscription<'a>>,
    out: &mut Vec<u8>,
) {
    let mut body = Vec::new();
    put_u16(&mut body, id);
    let options = match version {
        MqttVersion::V3 => 0,
        MqttVersion::V5 => {
            put_variable(&mut body, 0);
            RETAIN_AS_PUBLISHED | RETAINED_ONCE
        }
    };
    for subscription in subscriptions {
        put_text(&mut body, subscription.filter);
        body.push(u8::from(subscription.qos) | options);
    }
    frame(SUBSCRIBE, &body, out);
}

pub(crate) fn ping(out: &mut Vec<u8>) {
    frame(PINGREQ, &[], out);
}

pub(super) fn disconnect(out: &mut Vec<u8>) {
    frame(DISCONNECT, &[], out);
}

fn frame(first: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(first);
    put_variable(out, body.len());
    out.extend_from_slice(body);
}
