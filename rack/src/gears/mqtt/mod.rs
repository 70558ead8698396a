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
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod keep_alive;
mod packet;
mod packet_fields;
mod packet_reader;
mod packet_writer;
mod reason_code;
#[cfg(test)]
pub(super) mod testing;

pub(super) use broker::BrokerEndpoint;
pub(super) use connection::{BrokerConnection, ConnectionEnd, SessionOptions};
#[cfg(any(test, feature = "fuzz"))]
pub(super) use fuzz::fuzz_targets;
pub(super) use gear_spec::mqtt::{MqttVersion, QosLevel};
pub(super) use keep_alive::KeepAlive;
pub(super) use packet::{AckPacketKind, BrokerPacket, ConnackPacket, PublishPacket};
pub(super) use packet_fields::PacketProperties;
pub(super) use packet_writer::{TopicSubscription, acknowledge, publish, subscribe};
pub(super) use reason_code::{BrokerRefusal, is_refusal};
