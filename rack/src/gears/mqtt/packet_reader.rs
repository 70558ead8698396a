//! Framing: cuts the stream of a broker into packets.
//!
//! # Invariants
//!
//! - Nothing is lost where [`PacketReader::next`] is cut off: it goes on where it was. Packets before one that is malformed are taken.
//! - A message that is larger than what is kept is read over, and told ([`BrokerPacket::TooLong`]). The broker is not told that limit: it would
//!   drop such a message in silence.

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::MqttVersion;
use super::connection::ConnectionEnd;
use super::packet::{self, BrokerPacket, ConnackPacket, PUBLISH};
use super::packet_fields::{MalformedPacket, PacketFieldReader};

/// How much is read at once, about.
const READ: usize = 64 * 1024;
/// The most packets that are taken at once.
const MOST_PACKETS: usize = 1024;

/// Cuts a stream into packets.
pub(super) struct PacketReader<R> {
    read: R,
    version: MqttVersion,
    buffer: BytesMut,
    /// The most bytes of a packet that is kept.
    max: usize,
    /// Bytes of a packet that are read over.
    skipped: usize,
}

/// A packet in the buffer.
struct FixedHeader {
    first: u8,
    /// The bytes before the body.
    start: usize,
    /// Those of the body.
    size: usize,
}

impl<R: AsyncRead + Unpin> PacketReader<R> {
    pub(super) fn new(read: R, version: MqttVersion, max: usize) -> Self {
        Self {
            read,
            version,
            buffer: BytesMut::new(),
            max,
            skipped: 0,
        }
    }

    pub(super) async fn next(&mut self) -> Result<Vec<BrokerPacket>, ConnectionEnd> {
        loop {
            let mut packets = Vec::new();
            while packets.len() < MOST_PACKETS {
                match self.take() {
                    Ok(Some(packet)) => packets.push(packet),
                    Ok(None) => break,
                    // What came before it counts; it is found again then.
                    Err(_) if !packets.is_empty() => break,
                    Err(malformed) => return Err(malformed.into()),
                }
            }
            if !packets.is_empty() {
                return Ok(packets);
            }
            self.fill().await?;
        }
    }

    /// The answer to the request to connect.
    pub(super) async fn first(&mut self) -> Result<ConnackPacket, String> {
        loop {
            match self.take().map_err(|error| error.to_string())? {
                Some(BrokerPacket::Connected(connected)) => return Ok(connected),
                Some(_) => return Err("the broker sent something else before it accepted the connection".to_owned()),
                None => self.fill().await?,
            }
        }
    }

    async fn fill(&mut self) -> Result<(), ConnectionEnd> {
        self.buffer.reserve(READ);
        match self.read.read_buf(&mut self.buffer).await {
            Ok(0) => Err(ConnectionEnd::Broken("the broker closed the connection".to_owned())),
            Ok(_) => Ok(()),
            Err(error) => Err(ConnectionEnd::Broken(format!(
                "the connection to the broker broke: {error}"
            ))),
        }
    }

    /// The next packet, if all of it is there.
    fn take(&mut self) -> Result<Option<BrokerPacket>, MalformedPacket> {
        let now = self.skipped.min(self.buffer.len());
        self.buffer.advance(now);
        self.skipped -= now;
        if self.skipped > 0 {
            return Ok(None);
        }
        let Some(FixedHeader { first, start, size }) = self.head()? else {
            return Ok(None);
        };
        if size > self.max {
            return self.read_over(&FixedHeader { first, start, size });
        }
        let Some(body) = self.buffer.get(start..start + size) else {
            return Ok(None);
        };
        let packet = packet::decode(self.version, first, body)?;
        self.buffer.advance(start + size);
        Ok(Some(packet))
    }

    fn head(&self) -> Result<Option<FixedHeader>, MalformedPacket> {
        let mut fields = PacketFieldReader::of(&self.buffer);
        if fields.is_empty() {
            return Ok(None);
        }
        let first = fields.u8()?;
        let size = fields.partial_variable()?;
        let start = self.buffer.len() - fields.len();
        Ok(size.map(|size| FixedHeader { first, start, size }))
    }

    fn read_over(&mut self, head: &FixedHeader) -> Result<Option<BrokerPacket>, MalformedPacket> {
        if head.first & 0xf0 != PUBLISH {
            return Err(MalformedPacket("a packet that is too large and no message"));
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
    use std::io;

    use super::super::{AckPacketKind, PublishPacket, QosLevel, packet_writer};
    use super::*;

    fn message(id: u16, size: usize) -> PublishPacket {
        PublishPacket {
            topic: "a/b".into(),
            qos: QosLevel::AtLeastOnce,
            retain: false,
            dup: false,
            id,
            properties: super::super::PacketProperties::default(),
            payload: vec![7; size],
        }
    }

    #[tokio::test]
    async fn packets_are_cut_out_of_a_stream_however_it_comes_and_one_that_is_too_large_is_read_over() {
        let mut stream = Vec::new();
        for (id, size) in [(1, 10), (2, 5000), (3, 0)] {
            packet_writer::publish(MqttVersion::V5, &message(id, size), &mut stream);
        }
        packet_writer::acknowledge(AckPacketKind::PubAck, 9, &mut stream);
        for piece in [1, 2, 3, 7, 1000, 10_000] {
            let mut reads = in_pieces(&stream, piece);
            let mut reader = PacketReader::new(&mut reads, MqttVersion::V5, 100);
            let mut seen = Vec::new();
            let end = loop {
                match reader.next().await {
                    Ok(packets) => seen.extend(packets),
                    Err(end) => break end.to_string(),
                }
            };
            assert_eq!(end, "the broker closed the connection");
            assert_eq!(seen.len(), 4, "{piece}: {seen:?}");
            assert_eq!(seen[0], BrokerPacket::Publish(message(1, 10)));
            assert!(
                matches!(&seen[1], BrokerPacket::TooLong { topic, id: 2, size, .. } if topic == "a/b" && *size > 5000)
            );
            assert_eq!(seen[2], BrokerPacket::Publish(message(3, 0)));
            assert!(matches!(
                seen[3],
                BrokerPacket::Acknowledged {
                    id: 9,
                    refusal: None,
                    ..
                }
            ));
        }
    }

    #[tokio::test]
    async fn packets_before_one_that_is_malformed_in_the_same_read_are_taken() {
        let mut stream = Vec::new();
        packet_writer::publish(MqttVersion::V5, &message(1, 10), &mut stream);
        stream.extend([0xff; 9]);
        let mut reader = PacketReader::new(stream.as_slice(), MqttVersion::V5, 100);
        assert_eq!(reader.next().await.unwrap(), [BrokerPacket::Publish(message(1, 10))]);
        assert!(matches!(reader.next().await, Err(ConnectionEnd::Told(_))));
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
}
