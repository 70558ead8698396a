//! One connection to a broker: from the handshake to its end, packet by packet.
//!
//! # Invariants
//!
//! - What was read and not yet taken is at most the largest message that the Rack takes, with [`HEAD`] for what is around it, and a little
//!   more.
//! - A read or a write that is cut off goes on where it was with the next one.
//! - A write that makes no progress for the write timeout ends the connection, also with TLS.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};

use super::super::tcp_connect::{DuplexStream, dial};
use super::BrokerEndpoint;
use super::keep_alive::KeepAlive;
use super::packet::{BrokerPacket, ConnackPacket};
use super::packet_fields::MalformedPacket;
use super::packet_reader::PacketReader;
use super::packet_writer::{self, ConnectPacket};
use super::reason_code::BrokerRefusal;

/// The most bytes of a packet beside a message: its topic, its properties.
const HEAD: usize = 128 * 1024;

/// What a connection asks of its session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionOptions {
    /// Whether the session of before is forgotten.
    pub(crate) is_clean: bool,
    /// Seconds that the session outlives the connection.
    pub(crate) session_expiry: u32,
    /// How many messages of QoS 1 and 2 may come unacknowledged.
    pub(crate) receive_maximum: u16,
    /// The most bytes of a message.
    pub(crate) max_message: usize,
}

/// A connection that the broker has accepted.
pub(crate) struct BrokerConnection {
    packets: PacketReader<ReadHalf<Box<dyn DuplexStream>>>,
    write: WriteHalf<Box<dyn DuplexStream>>,
    /// What a write that was cut off has left.
    unsent: BytesMut,
    /// What the broker said when it accepted.
    pub(crate) connected: ConnackPacket,
    keep_alive: u16,
}

impl BrokerConnection {
    /// Connects and is accepted; in words why not.
    pub(crate) async fn open(endpoint: &BrokerEndpoint, options: SessionOptions) -> Result<Self, String> {
        let opened = tokio::time::timeout(endpoint.connect_timeout, Self::handshake(endpoint, options)).await;
        let timeout = || Err(format!("no answer within {:?}", endpoint.connect_timeout));
        opened
            .unwrap_or_else(|_| timeout())
            .map_err(|why| format!("cannot connect to {}: {why}", endpoint.address))
    }

    async fn handshake(endpoint: &BrokerEndpoint, options: SessionOptions) -> Result<Self, String> {
        let stream = dial_broker(endpoint).await.map_err(|error| error.to_string())?;
        let (read, write) = tokio::io::split(stream);
        let mut connection = Self {
            packets: PacketReader::new(read, endpoint.version, options.max_message + HEAD),
            write,
            unsent: BytesMut::new(),
            connected: ConnackPacket::default(),
            keep_alive: endpoint.keep_alive,
        };
        let connect = ConnectPacket {
            version: endpoint.version,
            client_id: &endpoint.client_id,
            user: endpoint.user.as_deref(),
            password: endpoint.password.as_deref(),
            keep_alive: endpoint.keep_alive,
            is_clean: options.is_clean,
            session_expiry: options.session_expiry,
            receive_maximum: options.receive_maximum,
        };
        let mut out = Vec::new();
        packet_writer::connect(&connect, &mut out);
        connection.send(&out).await?;
        let connected = connection.packets.first().await?;
        if let Some(refusal) = connected.refusal() {
            return Err(format!("the broker refuses: {refusal}"));
        }
        connection.keep_alive = connected.keep_alive().unwrap_or(endpoint.keep_alive);
        connection.connected = connected;
        Ok(connection)
    }

    /// The packets that have come, at least one; else why there are none.
    pub(crate) async fn next(&mut self) -> Result<Vec<BrokerPacket>, ConnectionEnd> {
        self.packets.next().await
    }

    /// Writes packets.
    pub(crate) async fn send(&mut self, packets: &[u8]) -> Result<(), ConnectionEnd> {
        self.unsent.extend_from_slice(packets);
        let written = async {
            while !self.unsent.is_empty() {
                self.write.write_buf(&mut self.unsent).await?;
            }
            self.write.flush().await
        };
        let written: io::Result<()> = written.await;
        written.map_err(|error| {
            let why = format!("the broker reads no more from the connection: {error}");
            match error.kind() {
                io::ErrorKind::TimedOut => ConnectionEnd::Told(why),
                _ => ConnectionEnd::Broken(why),
            }
        })
    }

    /// Says goodbye. What the broker makes of it is its affair.
    pub(crate) async fn close(mut self) {
        let mut out = Vec::new();
        packet_writer::disconnect(&mut out);
        self.send(&out).await.ok();
        self.write.shutdown().await.ok();
    }

    /// When signs of life are due.
    pub(crate) fn keep_alive(&self) -> KeepAlive {
        KeepAlive::new(Duration::from_secs(self.keep_alive.into()))
    }
}

async fn dial_broker(endpoint: &BrokerEndpoint) -> io::Result<Box<dyn DuplexStream>> {
    let timeouts = (endpoint.connect_timeout, endpoint.write_timeout);
    let dialed = dial(&endpoint.policy, &endpoint.address, endpoint.tls.as_ref(), timeouts).await?;
    Ok(dialed.stream)
}

/// Why a connection ended, in words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionEnd {
    /// It broke, or the broker closed it without a word.
    #[error("{0}")]
    Broken(String),
    #[error("the broker ends the connection: {0}")]
    Disconnected(BrokerRefusal),
    #[error("{0}")]
    Told(String),
}

impl ConnectionEnd {
    /// Whether a message may be why the broker ended it.
    pub(crate) const fn blames_message(&self) -> bool {
        match self {
            Self::Broken(_) => true,
            Self::Disconnected(refusal) => refusal.blames_message(),
            Self::Told(_) => false,
        }
    }
}

impl From<String> for ConnectionEnd {
    fn from(why: String) -> Self {
        Self::Told(why)
    }
}

impl From<MalformedPacket> for ConnectionEnd {
    fn from(malformed: MalformedPacket) -> Self {
        Self::Told(malformed.to_string())
    }
}

impl From<ConnectionEnd> for String {
    fn from(end: ConnectionEnd) -> Self {
        end.to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::Arc;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio_rustls::TlsAcceptor;

    use gear_spec::mqtt::BrokerConfig;

    use super::*;
    use crate::policy::RackPolicy;

    fn acceptor() -> TlsAcceptor {
        let certificate = CertificateDer::from_pem_slice(include_bytes!("../http_out/testdata/localhost.crt")).unwrap();
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("../http_out/testdata/localhost.key")).unwrap();
        let tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(tls))
    }

    #[tokio::test]
    async fn a_broker_that_takes_nothing_ends_the_connection_also_with_tls() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ca_file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/gears/http_out/testdata/localhost.crt");
        let broker: BrokerConfig = serde_json::from_value(serde_json::json!({
            "address": listener.local_addr().unwrap().to_string(), "client_id": "it", "write_timeout": "10ms",
            "tls": { "ca_file": ca_file, "server_name": "localhost" },
        }))
        .unwrap();
        let endpoint = BrokerEndpoint::of(&broker, None, &RackPolicy::for_tests()).unwrap();
        let accepting = async { acceptor().accept(listener.accept().await.unwrap().0).await.unwrap() };
        let (stream, _peer) = tokio::join!(dial_broker(&endpoint), accepting);
        let mut stream = stream.unwrap();
        let error = loop {
            let written = async {
                stream.write_all(&[0; 1000]).await?;
                stream.flush().await
            };
            if let Err(error) = written.await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
