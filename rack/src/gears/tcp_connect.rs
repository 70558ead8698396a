//! TCP connections that gears open: each address of a name in its part of the time, without Nagle's delay, keep-alive, TLS where it is asked
//! for, and the back-off between attempts.
//!
//! # Invariants
//!
//! - A write that makes no progress for its time ends the connection, also with TLS.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use chassis::write_timeout::WriteTimeoutStream;
use model::Attributes;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::tls::TlsTarget;
use crate::policy::RackPolicy;

/// A connection on which nothing is to be said is asked so often whether the other side is still there, and so many times.
const KEEP_ALIVE: (u32, u32) = (15, 3);
/// The system ends a connection whose bytes nobody confirms for this time, in ms.
const UNCONFIRMED: u32 = 60_000;

/// A connection, with TLS or without it.
pub(super) trait DuplexStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> DuplexStream for S {}

/// What a message says of who is at the other end.
pub(super) fn peer_facts(peer: SocketAddr) -> Attributes {
    Attributes::new()
        .with("network.peer.address", peer.ip().to_string())
        .with("network.peer.port", peer.port())
}

/// A connection that was opened.
pub(super) struct DialedStream {
    pub(super) stream: Box<dyn DuplexStream>,
    pub(super) peer: SocketAddr,
}

/// Connects to `host:port`, with TLS if there is a target for it, all within the first of the times; a write that waits longer than the second
/// is the end of the connection.
pub(super) async fn dial(
    policy: &RackPolicy,
    address: &str,
    tls: Option<&TlsTarget>,
    (connect_timeout, write_timeout): (Duration, Duration),
) -> io::Result<DialedStream> {
    let deadline = Instant::now() + connect_timeout;
    let stream = connect(policy, address, connect_timeout).await?;
    let peer = stream.peer_addr()?;
    // Below TLS, which takes what the other side does not.
    let stream = WriteTimeoutStream::new(stream, write_timeout);
    let Some(tls) = tls else {
        let stream = Box::new(stream);
        return Ok(DialedStream { stream, peer });
    };
    let shaken = timeout_at(deadline, tls.connector.connect(tls.name.clone(), stream)).await;
    let late = || io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long");
    let stream = Box::new(shaken.map_err(|_| late())??);
    Ok(DialedStream { stream, peer })
}

/// Connects to `host:port`: to the first of its addresses that the policy allows and that answers in its part of the time.
pub(super) async fn connect(policy: &RackPolicy, address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let deadline = Instant::now() + timeout;
    let late = || io::Error::from(io::ErrorKind::TimedOut);
    let mut failed = io::Error::new(io::ErrorKind::InvalidInput, "the address is not host:port");
    let parts = address
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let Some((host, port)) = parts else { return Err(failed) };
    let resolving = timeout_at(deadline, policy.resolve(host, port));
    let mut left: Vec<SocketAddr> = resolving.await.map_err(|_| late())??;
    left.reverse();
    while let Some(next) = left.pop() {
        let others = u32::try_from(left.len()).unwrap_or(u32::MAX);
        let part = deadline.saturating_duration_since(Instant::now()) / others.saturating_add(1);
        match tokio::time::timeout(part, TcpStream::connect(next)).await {
            Ok(Ok(stream)) => {
                set_options(&stream);
                return Ok(stream);
            }
            Ok(Err(error)) => failed = error,
            Err(_) => failed = late(),
        }
    }
    Err(failed)
}

/// What a system does not know of these it leaves out.
fn set_options(stream: &TcpStream) {
    // Small frames shall not wait for the answer to the one before.
    stream.set_nodelay(true).ok();
    let (every, times) = KEEP_ALIVE;
    setsockopt(stream, sockopt::KeepAlive, &true).ok();
    setsockopt(stream, sockopt::TcpKeepIdle, &every).ok();
    setsockopt(stream, sockopt::TcpKeepInterval, &every).ok();
    setsockopt(stream, sockopt::TcpKeepCount, &times).ok();
    setsockopt(stream, sockopt::TcpUserTimeout, &UNCONFIRMED).ok();
}

/// The pause before another attempt to connect: it doubles, and is short again after a connection that lived as long as the longest.
#[derive(Debug)]
pub(super) struct ReconnectBackoff {
    shortest: Duration,
    longest: Duration,
    next: Duration,
}

impl ReconnectBackoff {
    pub(super) const fn new(shortest: Duration, longest: Duration) -> Self {
        Self {
            shortest,
            longest,
            next: shortest,
        }
    }

    /// The pause after a connection, or an attempt, that lasted so long.
    pub(super) fn after(&mut self, lived: Duration) -> Duration {
        if lived >= self.longest {
            self.next = self.shortest;
        }
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_to_the_longest_and_is_short_again_after_a_long_connection() {
        let seconds = Duration::from_secs;
        let mut backoff = ReconnectBackoff::new(seconds(1), seconds(5));
        let pauses = [0, 0, 0, 4, 5, 0].map(|lived| backoff.after(seconds(lived)).as_secs());
        assert_eq!(pauses, [1, 2, 4, 5, 1, 2]);
    }
}
