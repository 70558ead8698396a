//! One connection to a broker: from the handshake to its end, packet by packet.
//!
//! # Invariants
//!
//! - Nothing is lost where [`Connection::next`] is cut off: it goes on where it was.
//! - What was read and not yet taken is at most the largest message that the Rack takes, with [`HEAD`] for what is around it, and a little
//!   more. A message that is larger is read over, and told ([`Packet::TooLong`]). The broker is not told that limit: it would drop
//!   such a message in silence.
//! - A broker from which nothing comes between two signs of life is given up; while the gear does not read, that does not count.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use chassis::stall::Stalling;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::fields::{Fields, Malformed};
use super::packet::{self, Connected, PUBLISH, Packet};
use super::writing::{self, Connect};
use super::{Endpoint, Version};

/// The most bytes of a packet beside a message: its topic, its properties.
const HEAD: usize = 128 * 1024;
/// How much is read at once, about.
const READ: usize = 64 * 1024;
/// The most packets that are taken at once.
const MOST_PACKETS: usize = 1024;

/// How a connection begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    /// Whether the session of before is forgotten.
    pub(crate) is_clean: bool,
    /// Seconds that the session outlives the connection.
    pub(crate) session_expiry: u32,
    /// How many messages of QoS 1 and 2 may come unacknowledged.
    pub(crate) receive_maximum: u16,
    /// The most bytes of a message.
    pub(crate) max_message: usize,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection that the broker has accepted.
pub(crate) struct Connection {
    packets: PacketReader<ReadHalf<Box<dyn Stream>>>,
    write: Stalling<WriteHalf<Box<dyn Stream>>>,
    /// What the broker said when it accepted.
    pub(crate) connected: Connected,
    keep_alive: u16,
}

impl Connection {
    /// Connects and is accepted; in words why not.
    pub(crate) async fn open(endpoint: &Endpoint, start: Start) -> Result<Self, String> {
        let opened = tokio::time::timeout(endpoint.connect_timeout, Self::handshake(endpoint, start)).await;
        let timeout = || Err(format!("no answer within {:?}", endpoint.connect_timeout));
        opened
            .unwrap_or_else(|_| timeout())
            .map_err(|why| format!("cannot connect to {}: {why}", endpoint.address))
    }

    async fn handshake(endpoint: &Endpoint, start: Start) -> Result<Self, String> {
        let stream = dial(endpoint).await.map_err(|error| error.to_string())?;
        let (read, write) = tokio::io::split(stream);
        let mut connection = Self {
            packets: PacketReader::new(read, endpoint.version, start.max_message + HEAD),
            write: Stalling::new(write, endpoint.write_timeout),
            connected: Connected::default(),
            keep_alive: endpoint.keep_alive,
        };
        let connect = Connect {
            version: endpoint.version,
            client_id: &endpoint.client_id,
            user: endpoint.user.as_deref(),
            password: endpoint.password.as_deref(),
            keep_alive: endpoint.keep_alive,
            is_clean: start.is_clean,
            session_expiry: start.session_expiry,
            receive_maximum: start.receive_maximum,
        };
        let mut out = Vec::new();
        writing::connect(&connect, &mut out);
        connection.send(&out).await?;
        let connected = connection.packets.first().await?;
        if let Some(refusal) = connected.refusal() {
            return Err(format!("the broker refuses: {refusal}"));
        }
        connection.keep_alive = connected.keep_alive().unwrap_or(endpoint.keep_alive);
        connection.connected = connected;
        Ok(connection)
    }

    /// The packets that have come, at least one; in words why there are none.
    pub(crate) async fn next(&mut self) -> Result<Vec<Packet>, String> {
        self.packets.next().await
    }

    /// Writes packets.
    pub(crate) async fn send(&mut self, packets: &[u8]) -> Result<(), String> {
        let written = async {
            self.write.write_all(packets).await?;
            self.write.flush().await
        };
        let written: io::Result<()> = written.await;
        written.map_err(|error| format!("the connection to the broker takes no more: {error}"))
    }

    /// Says goodbye. What the broker makes of it is its affair.
    pub(crate) async fn close(mut self) {
        let mut out = Vec::new();
        writing::disconnect(&mut out);
        self.send(&out).await.ok();
        self.write.shutdown().await.ok();
    }

    /// When signs of life are due.
    pub(crate) fn keep_alive(&self) -> KeepAlive {
        KeepAlive::new(Duration::from_secs(self.keep_alive.into()))
    }
}

async fn dial(endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect(&endpoint.address).await?;
    // An acknowledgement shall not wait for that of the one before.
    stream.set_nodelay(true).ok();
    Ok(match &endpoint.tls {
        Some((connector, name)) => Box::new(connector.connect(name.clone(), stream).await?),
        None => Box::new(stream),
    })
}

/// When a sign of life is due, and whether the broker gives any.
#[derive(Debug)]
pub(crate) struct KeepAlive {
    /// Half of what was agreed; none where nothing was.
    every: Option<Duration>,
    next: Instant,
    /// The signs of life since the broker was heard.
    unheard: u8,
}

/// Signs of life without an answer after which a broker is given up: twice the time that was agreed.
const MOST_UNHEARD: u8 = 4;

impl KeepAlive {
    fn new(agreed: Duration) -> Self {
        Self {
            every: (!agreed.is_zero()).then_some(agreed / 2),
            next: Instant::now() + agreed / 2,
            unheard: 0,
        }
    }

    /// Resolves when a sign of life is due.
    pub(crate) async fn due(&self) {
        crate::timer::until(self.every.map(|_| self.next)).await;
    }

    /// Something came, or nobody listened.
    pub(crate) const fn heard(&mut self) {
        self.unheard = 0;
    }

    /// Writes a sign of life; in words why the broker is given up.
    pub(crate) fn beat(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        self.next = Instant::now() + self.every.unwrap_or_default();
        if self.unheard >= MOST_UNHEARD {
            return Err("the broker gives no sign of life".to_owned());
        }
        self.unheard += 1;
        writing::ping(out);
        Ok(())
    }
}

/// Cuts a stream into packets.
struct PacketReader<R> {
    read: R,
    version: Version,
    buffer: BytesMut,
    /// The most bytes of a packet that is kept.
    max: usize,
    /// Bytes of a packet that are read over.
    skipped: usize,
}

/// A packet in the buffer.
struct Head {
    first: u8,
    /// The bytes before the body.
    start: usize,
    /// Those of the body.
    size: usize,
}

impl<R: AsyncRead + Unpin> PacketReader<R> {
    fn new(read: R, version: Version, max: usize) -> Self {
        Self {
            read,
            version,
            buffer: BytesMut::new(),
            max,
            skipped: 0,
        }
    }

    async fn next(&mut self) -> Result<Vec<Packet>, String> {
        loop {
            let mut packets = Vec::new();
            while packets.len() < MOST_PACKETS {
                let Some(packet) = self.take().map_err(|error| error.to_string())? else {
                    break;
                };
                packets.push(packet);
            }
            if !packets.is_empty() {
                return Ok(packets);
            }
            self.fill().await?;
        }
    }

    /// The answer to the request to connect.
    async fn first(&mut self) -> Result<Connected, String> {
        loop {
            match self.take().map_err(|error| error.to_string())? {
                Some(Packet::Connected(connected)) => return Ok(connected),
                Some(_) => return Err("the broker sent something else before it accepted the connection".to_owned()),
                None => self.fill().await?,
            }
        }
    }

    async fn fill(&mut self) -> Result<(), String> {
        self.buffer.reserve(READ);
        match self.read.read_buf(&mut self.buffer).await {
            Ok(0) => Err("the broker closed the connection".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("the connection to the broker broke: {error}")),
        }
    }

    /// The next packet, if all of it is there.
    fn take(&mut self) -> Result<Option<Packet>, Malformed> {
        let now = self.skipped.min(self.buffer.len());
        self.buffer.advance(now);
        self.skipped -= now;
        if self.skipped > 0 {
            return Ok(None);
        }
        let Some(Head { first, start, size }) = self.head()? else {
            return Ok(None);
        };
        if size > self.max {
            return self.read_over(&Head { first, start, size });
        }
        let Some(body) = self.buffer.get(start..start + size) else {
            return Ok(None);
        };
        let packet = packet::decode(self.version, first, body)?;
        self.buffer.advance(start + size);
        Ok(Some(packet))
    }

    fn head(&self) -> Result<Option<Head>, Malformed> {
        let mut fields = Fields::of(&self.buffer);
        if fields.is_empty() {
            return Ok(None);
        }
        let first = fields.u8()?;
        let size = fields.partial_variable()?;
        let start = self.buffer.len() - fields.len();
        Ok(size.map(|size| Head { first, start, size }))
    }

    fn read_over(&mut self, head: &Head) -> Result<Option<Packet>, Malformed> {
        if head.first & 0xf0 != PUBLISH {
            return Err(Malformed("a packet that is too large and no message"));
        }
        let told = packet::too_long(head.first, &self.buffer[head.start..], head.size)?;
        if told.is_some() {
            self.skipped = head.start + head.size;
        }
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::{Acknowledgement, Publish, Qos};
    use super::*;

    fn message(id: u16, size: usize) -> Publish {
        Publish {
            topic: "a/b".into(),
            qos: Qos::AtLeastOnce,
            retain: false,
            dup: false,
            id,
            properties: super::super::Properties::default(),
            payload: vec![7; size],
        }
    }

    #[tokio::test]
    async fn packets_are_cut_out_of_a_stream_however_it_comes_and_one_that_is_too_large_is_read_over() {
        let mut stream = Vec::new();
        for (id, size) in [(1, 10), (2, 5000), (3, 0)] {
            writing::publish(Version::V5, &message(id, size), &mut stream);
        }
        writing::acknowledge(Acknowledgement::PubAck, 9, &mut stream);
        for piece in [1, 2, 3, 7, 1000, 10_000] {
            let mut reads = in_pieces(&stream, piece);
            let mut reader = PacketReader::new(&mut reads, Version::V5, 100);
            let mut seen = Vec::new();
            let end = loop {
                match reader.next().await {
                    Ok(packets) => seen.extend(packets),
                    Err(end) => break end,
                }
            };
            assert_eq!(end, "the broker closed the connection");
            assert_eq!(seen.len(), 4, "{piece}: {seen:?}");
            assert_eq!(seen[0], Packet::Publish(message(1, 10)));
            assert!(matches!(&seen[1], Packet::TooLong { topic, id: 2, size, .. } if topic == "a/b" && *size > 5000));
            assert_eq!(seen[2], Packet::Publish(message(3, 0)));
            assert!(matches!(
                seen[3],
                Packet::Acknowledged {
                    id: 9,
                    refusal: None,
                    ..
                }
            ));
        }
    }

    /// Gives bytes in pieces.
    fn in_pieces(bytes: &[u8], piece: usize) -> impl AsyncRead + Unpin {
        struct Pieces(Vec<u8>, usize);
        impl AsyncRead for Pieces {
            fn poll_read(
                mut self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
                into: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                let count = self.1.min(self.0.len()).min(into.remaining());
                into.put_slice(&self.0.drain(..count).collect::<Vec<_>>());
                std::task::Poll::Ready(Ok(()))
            }
        }
        Pieces(bytes.to_vec(), piece)
    }

    #[test]
    fn a_broker_is_given_up_when_it_answers_no_sign_of_life_for_twice_the_time_that_was_agreed() {
        let (mut keep_alive, mut out) = (KeepAlive::new(Duration::from_secs(60)), Vec::new());
        for _ in 0..3 {
            keep_alive.beat(&mut out).unwrap();
        }
        keep_alive.heard();
        for _ in 0..4 {
            keep_alive.beat(&mut out).unwrap();
        }
        assert!(keep_alive.beat(&mut out).is_err());
    }
}
