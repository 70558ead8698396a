//! The client side of MQTT 3.1.1 and 5, which `mqtt_in` and `mqtt_out` share.
//!
//! ```text
//! broker key ─▶ endpoint ─▶ connection ◀─▶ packets ◀─▶ fields
//! ```
//!
//! # Invariants
//!
//! - Nothing that a broker sends ends the program: what is malformed is an error in words, and ends the connection.
//! - What a connection keeps in memory is bounded by the largest message of the Rack.
//! - An acknowledgement is sent when the gear says so, never by itself.
//! - Signs of life go on while a gear reads nothing: with one loop for both, the broker would drop a client whose flow is slow.
//!   For that reason, and because a note of the outbox must hold the identifiers of QoS 2, the session is
//!   the gears' own; both versions have one set of packets.
//!
//! # Not here
//!
//! What is acknowledged when (`mqtt_in`); what is sent again (`mqtt_out`). A will, enhanced authentication, topic aliases and
//! WebSockets are not spoken.

mod broker;
mod connection;
mod fields;
mod keep_alive;
mod packet;
mod packet_reader;
mod reason;
#[cfg(test)]
pub(super) mod testing;
mod writing;

pub(super) use broker::{BrokerConfig, BrokerEndpoint, MqttVersion};
pub(super) use connection::{BrokerConnection, ConnectionEnd, SessionOptions};
pub(super) use fields::{MAX_TEXT, PacketProperties, is_text};
pub(super) use keep_alive::KeepAlive;
pub(super) use packet::{AckPacketKind, BrokerPacket, ConnackPacket, PublishPacket, QosLevel};
pub(super) use reason::{BrokerRefusal, is_refusal};
pub(super) use writing::{TopicSubscription, acknowledge, publish, subscribe};
