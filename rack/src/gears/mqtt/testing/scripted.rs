//! A broker that does what a test says, step by step.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::packet::decode;
use super::super::packet_fields::put_variable;
use super::super::{BrokerPacket, MqttVersion, PublishPacket, publish};
use super::happens;

/// A broker whose every step is the test's.
pub(crate) struct ScriptedBroker {
    listener: TcpListener,
    pub(crate) address: String,
}

/// A connection to it.
pub(crate) struct Guest(pub(crate) TcpStream);

/// Says in version 5 that a connection is accepted, in a new session or in the one of before.
pub(crate) const ACCEPTED: &[u8] = &[0x20, 3, 0, 0, 0];
pub(crate) const RESUMED: &[u8] = &[0x20, 3, 1, 0, 0];

impl ScriptedBroker {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Self { listener, address }
    }

    pub(crate) fn client_config(&self) -> Value {
        json!({ "address": self.address, "client_id": "it", "reconnect_min": "1ms", "reconnect_max": "20ms" })
    }

    /// The next connection, accepted with these bytes.
    pub(crate) async fn accept(&self, answer: &[u8]) -> Guest {
        let (stream, _) = happens("a gear connects", self.listener.accept()).await.unwrap();
        let mut guest = Guest(stream);
        let (first, body) = guest.packet().await.unwrap();
        assert!(first == 0x10 && body.starts_with(b"\0\x04MQTT"), "{body:?}");
        guest.send(answer).await;
        guest
    }

    /// The same of a gear that subscribes.
    pub(crate) async fn accept_subscriber(&self, answer: &[u8]) -> Guest {
        let mut guest = self.accept(answer).await;
        let (first, body) = guest.packet().await.unwrap();
        assert_eq!(first, 0x82);
        guest.send(&[0x90, 4, body[0], body[1], 0, 2]).await;
        guest
    }
}

impl Guest {
    /// The first byte and the body of the next packet; none at the end.
    pub(crate) async fn packet(&mut self) -> Option<(u8, Vec<u8>)> {
        happens("a packet comes, or the end", async {
            let first = self.0.read_u8().await.ok()?;
            let (mut size, mut shift) = (0, 0);
            loop {
                let byte = self.0.read_u8().await.ok()?;
                size |= usize::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            let mut body = vec![0; size];
            self.0.read_exact(&mut body).await.ok()?;
            Some((first, body))
        })
        .await
    }

    /// The next packet of a client that is a step of a delivery: its first byte and its identifier.
    pub(crate) async fn step(&mut self) -> (u8, u16) {
        let (first, body) = self.packet().await.unwrap();
        (first, u16::from_be_bytes([body[0], body[1]]))
    }

    /// The next message of a client, of version 5.
    pub(crate) async fn message(&mut self) -> PublishPacket {
        let (first, body) = self.packet().await.unwrap();
        match decode(MqttVersion::V5, first, &body).unwrap() {
            BrokerPacket::Publish(message) => message,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Sends a message of version 5.
    pub(crate) async fn publish(&mut self, message: &PublishPacket) {
        let mut out = Vec::new();
        publish(MqttVersion::V5, message, &mut out);
        self.send(&out).await;
    }

    /// Sends a packet that has an identifier and what follows it.
    pub(crate) async fn answer(&mut self, first: u8, id: u16, more: &[u8]) {
        let mut out = vec![first];
        put_variable(&mut out, 2 + more.len());
        out.extend(id.to_be_bytes());
        out.extend_from_slice(more);
        self.send(&out).await;
    }
}
