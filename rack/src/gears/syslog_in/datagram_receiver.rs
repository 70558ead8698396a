//! The datagrams of a UDP socket, as many as have arrived.
//!
//! # Invariants
//!
//! - What the system dropped, since its buffer was full, is counted with the next datagram that comes.
//! - [`DatagramReceiver::receive`] may be dropped while it waits: no datagram is lost.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// The most bytes of a datagram.
const MAX_DATAGRAM: usize = 64 * 1024;
/// Datagrams are received until they have so many bytes …
const BATCH_BYTES: usize = 64 * 1024;
/// … or are so many.
const BATCH: usize = 512;
/// The system's buffer, as far as `net.core.rmem_max` allows it.
const SYSTEM_BUFFER: usize = 8 << 20;

/// See the module.
pub(super) struct DatagramReceiver {
    socket: UdpSocket,
    buffer: Vec<u8>,
    /// Dropped by the system since the socket was made.
    dropped: u32,
}

/// What arrived.
#[derive(Debug, Default)]
pub(super) struct DatagramBatch {
    pub(super) datagrams: Vec<(Vec<u8>, SocketAddr)>,
    /// So many more were dropped by the system before these.
    pub(super) dropped: u32,
}

impl DatagramReceiver {
    pub(super) async fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address).await?;
        // Neither is vital: without them more is dropped, and not counted.
        setsockopt(&socket, sockopt::RcvBuf, &SYSTEM_BUFFER).ok();
        setsockopt(&socket, sockopt::RxqOvfl, &1).ok();
        Ok(Self {
            socket,
            buffer: vec![0; MAX_DATAGRAM],
            dropped: 0,
        })
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Waits for one datagram, and takes those that are there already.
    pub(super) async fn receive(&mut self) -> io::Result<DatagramBatch> {
        let (mut arrived, mut bytes) = (DatagramBatch::default(), 0);
        while bytes < BATCH_BYTES && arrived.datagrams.len() < BATCH {
            if arrived.datagrams.is_empty() {
                self.socket.readable().await?;
            }
            let (socket, buffer) = (&self.socket, &mut self.buffer);
            match socket.try_io(Interest::READABLE, || receive_one(socket, buffer)) {
                Ok((size, from, dropped)) => {
                    bytes += size;
                    let datagram = self.buffer.get(..size).unwrap_or_default().to_vec();
                    arrived.datagrams.push((datagram, from));
                    if let Some(dropped) = dropped {
                        arrived.dropped += dropped.wrapping_sub(self.dropped);
                        self.dropped = dropped;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !arrived.datagrams.is_empty() {
                        break;
                    }
                }
                Err(error) if arrived.datagrams.is_empty() => return Err(error),
                // It comes again, or is over.
                Err(_) => break,
            }
        }
        Ok(arrived)
    }
}

/// A datagram, who sent it, and how many the system has dropped in all, if it has dropped any.
fn receive_one(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr, Option<u32>)> {
    let mut control = nix::cmsg_space!(u32);
    let mut into = [IoSliceMut::new(buffer)];
    let received = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut into,
        Some(&mut control),
        MsgFlags::MSG_DONTWAIT,
    )?;
    let address = received.address.as_ref();
    let v4 = || address?.as_sockaddr_in().map(|from| SocketAddr::V4((*from).into()));
    let v6 = || address?.as_sockaddr_in6().map(|from| SocketAddr::V6((*from).into()));
    let from = v4()
        .or_else(v6)
        .ok_or_else(|| io::Error::other("a datagram of nobody"))?;
    let dropped = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::RxqOvfl(dropped) => Some(dropped),
        _ => None,
    });
    Ok((received.bytes, from, dropped))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn every_datagram_arrives_or_is_counted_as_dropped() {
        // More than the system's buffer can be made to hold.
        const COUNT: u64 = 40_000;
        let mut datagrams = DatagramReceiver::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let to = datagrams.local_addr().unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in 0..COUNT {
            let mut text = number.to_string().into_bytes();
            text.resize(1_000, b' ');
            sender.send_to(&text, to).unwrap();
        }
        let (mut arrived, mut dropped, mut largest) = (0, 0, 0);
        let mut is_over = false;
        while !is_over {
            let next = datagrams.receive().await.unwrap();
            assert!(
                next.datagrams
                    .iter()
                    .all(|(_, from)| *from == sender.local_addr().unwrap())
            );
            if arrived == 0 {
                // There is room now. What was dropped last is told with the next one.
                sender.send_to(b"the last", to).unwrap();
            }
            arrived += next.datagrams.len() as u64;
            dropped += u64::from(next.dropped);
            largest = largest.max(next.datagrams.len());
            is_over = next.datagrams.iter().any(|(datagram, _)| datagram == b"the last");
        }
        assert_eq!(arrived + dropped, COUNT + 1);
        assert!(dropped > 0 && largest > 1, "{dropped} {largest}");
    }
}
