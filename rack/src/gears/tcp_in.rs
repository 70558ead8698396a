//! `tcp_in`: takes TCP connections; each frame becomes a message, and messages on port `reply` go back.
//!
//! ```text
//! socket ──▶ frames ──▶ out      meta: tcp.connection, net.peer
//! socket ◀── frame ◀─── reply    to the connection that meta tcp.connection names
//! ```
//!
//! # Invariants
//!
//! - A full inbox behind `out` stops the reading of that socket: nothing is dropped, the peer waits.
//! - The id of a connection is never used again, not by a later life of the gear either: a reply reaches the connection that
//!   its message came from or is rejected.
//! - A connection is closed when its peer ends the stream, sends a frame that is too long, takes no reply for
//!   [`WRITE_TIMEOUT`], or is idle: no frame went either way for `idle_timeout`.
//!
//! # Not here
//!
//! Frames ([`super::framing`]), taking connections ([`super::listener`]).

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures::FutureExt;
use model::gear::{self, GearConfig, Manifest};
use model::{Attributes, HumanDuration, Level};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::framing::{Broken, Frames, Framing, Rule};
use super::listener::Listener;
use super::{Active, Config, Context, Fault, Gear, Passive, Work};
use crate::wires::Delivery;

/// How long a peer may take to make room for a reply.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The fact that names a message's connection.
const CONNECTION: &str = "tcp.connection";

/// What the type is.
pub(super) const MANIFEST: Manifest = Manifest {
    kind: "tcp_in",
    summary: "takes TCP connections; each frame becomes a message, and replies go back",
    inputs: &["reply"],
    outputs: &["out"],
    doc: "Messages have `tcp.connection` and `net.peer` in their meta. A message on `reply` goes to the connection that its `tcp.connection` names; \
          one whose connection is closed is rejected. A full inbox keeps the peer waiting. A peer that ends its stream is closed.",
    example: include_str!("../../../examples/gears/tcp_in.yaml"),
    schema: gear::schema::<TcpIn>,
    check: gear::check::<TcpIn>,
};

pub(super) fn build(config: &Config) -> Result<Gear, String> {
    let config: TcpIn = gear::config(config)?;
    let shared = Arc::new(Shared {
        rule: config.framing.rule()?,
        max_frame: config.max_frame as usize,
        idle_timeout: config.idle_timeout.get(),
        made: AtomicU64::new(0),
        open: Mutex::default(),
    });
    let replies = Replies(Arc::clone(&shared));
    let door = Door {
        config,
        shared,
        listener: None,
    };
    Ok(Gear::Duplex(Box::new(door), Box::new(replies)))
}

/// What both halves know.
struct Shared {
    rule: Rule,
    max_frame: usize,
    idle_timeout: Duration,
    /// How many connections this life has taken.
    made: AtomicU64,
    open: Mutex<HashMap<String, Arc<Connection>>>,
}

/// A connection that is open, as far as is known.
struct Connection {
    write: tokio::sync::Mutex<OwnedWriteHalf>,
    /// When a frame went either way.
    active: Mutex<Instant>,
    closed: CancellationToken,
}

impl Connection {
    fn touch(&self) {
        *self.active.lock() = Instant::now();
    }

    /// Resolves when no frame went either way for a time.
    async fn idle(&self, timeout: Duration) {
        loop {
            let end = *self.active.lock() + timeout;
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }

    async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut write = self.write.lock().await;
        let written = tokio::time::timeout(WRITE_TIMEOUT, write.write_all(bytes)).await;
        written.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        self.touch();
        Ok(())
    }
}

struct Door {
    config: TcpIn,
    shared: Arc<Shared>,
    listener: Option<Listener>,
}

impl Active for Door {
    fn init<'a>(&'a mut self, cx: &'a Arc<Context>) -> Work<'a> {
        async move {
            self.listener = Some(Listener::bind(cx, self.config.listen, "tcp", "").await?);
            Ok(())
        }
        .boxed()
    }

    fn run<'a>(&'a mut self, cx: &'a Arc<Context>) -> Work<'a> {
        async move {
            let Some(listener) = self.listener.take() else {
                return Ok(());
            };
            let life = cx.recorder().now().micros();
            let serve = |stream, peer, stop| {
                let number = self.shared.made.fetch_add(1, Relaxed);
                let peer = Peer {
                    cx: Arc::clone(cx),
                    shared: Arc::clone(&self.shared),
                    id: format!("{life:x}-{number}"),
                    address: peer,
                };
                peer.serve(stream, stop)
            };
            listener.serve(cx, self.config.max_connections as usize, serve).await;
            Ok(())
        }
        .boxed()
    }
}

/// The other side of a connection.
struct Peer {
    cx: Arc<Context>,
    shared: Arc<Shared>,
    id: String,
    address: SocketAddr,
}

impl Peer {
    /// Reads one connection until it ends or the gear stops; replies may be written until the gear has ended.
    async fn serve(self, stream: TcpStream, stop: CancellationToken) {
        let (read, write) = stream.into_split();
        let connection = Arc::new(Connection {
            write: write.into(),
            active: Instant::now().into(),
            closed: CancellationToken::new(),
        });
        let shared = Arc::clone(&self.shared);
        shared.open.lock().insert(self.id.clone(), Arc::clone(&connection));
        tokio::select! {
            biased;
            why = self.read(read, &connection, &stop) => match why {
                Some(why) => self.cx.log(Level::Warn, format!("the connection from {} is closed: {why}", self.address)),
                None if stop.is_cancelled() => return,
                None => {}
            },
            () = connection.closed.cancelled() => {}
        }
        shared.open.lock().remove(&self.id);
    }

    /// Reads to the end, to the stop, or to what is wrong.
    async fn read(&self, mut from: OwnedReadHalf, connection: &Connection, stop: &CancellationToken) -> Option<String> {
        let timeout = self.shared.idle_timeout;
        let mut frames = Frames::new(self.shared.rule.clone(), self.shared.max_frame);
        loop {
            let frame = tokio::select! {
                biased;
                frame = frames.read(&mut from) => frame,
                () = stop.cancelled() => return None,
                () = connection.idle(timeout) => {
                    return Some(format!("no frame went either way for {}", HumanDuration::from(timeout)));
                }
            };
            match frame {
                Ok(Some(frame)) => self.pass_on(frame).await,
                // How a connection ends between two frames is its peer's affair.
                Ok(None) | Err(Broken::Io(_)) => return None,
                Err(broken) => return Some(broken.to_string()),
            }
            connection.touch();
        }
    }

    async fn pass_on(&self, frame: Vec<u8>) {
        let began = std::time::Instant::now();
        let meta = Attributes::new()
            .with(CONNECTION, self.id.as_str())
            .with("net.peer", self.address.to_string());
        let message = self.cx.make(None, meta, frame);
        // A refusal has been counted and reported; the next frame may pass.
        self.cx.emit("out", message, None, began).await.ok();
    }
}

/// The half that writes replies.
struct Replies(Arc<Shared>);

impl Passive for Replies {
    fn process<'a>(&'a mut self, _: &'a Arc<Context>, delivery: Delivery) -> Work<'a> {
        async move {
            let message = delivery.message;
            let id = message.meta.get(CONNECTION).and_then(Value::as_str).ok_or_else(|| {
                Fault::Rejected(format!(
                    "a reply names no connection: {CONNECTION} must be in its meta, as in messages from port out"
                ))
            })?;
            let connection = self.0.open.lock().get(id).cloned();
            let connection =
                connection.ok_or_else(|| Fault::Rejected(format!("connection {id} is closed or was never open")))?;
            let bytes = self.0.rule.encode(&message.body()).map_err(Fault::Rejected)?;
            connection.write(&bytes).await.map_err(|error| {
                connection.closed.cancel();
                self.0.open.lock().remove(id);
                Fault::Rejected(format!("connection {id} took no reply and is closed: {error}"))
            })
        }
        .boxed()
    }
}

/// Configuration of `tcp_in`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TcpIn {
    /// Where to listen, `127.0.0.1:0` for any free port.
    listen: SocketAddr,
    /// How streams are cut into frames, both ways.
    #[serde(default)]
    framing: Framing,
    /// The most bytes of a frame; a connection that sends a longer one is closed.
    #[serde(default = "default_max_frame")]
    max_frame: u32,
    /// The most connections at a time; more wait until one is closed.
    #[serde(default = "default_max_connections")]
    max_connections: u32,
    /// How long a connection may be open without a frame going either way.
    #[serde(default = "default_idle_timeout")]
    idle_timeout: HumanDuration,
}

const fn default_max_frame() -> u32 {
    1024 * 1024
}

const fn default_max_connections() -> u32 {
    256
}

const fn default_idle_timeout() -> HumanDuration {
    HumanDuration::from_secs(300)
}

impl GearConfig for TcpIn {
    fn validate(&self) -> Result<(), String> {
        if self.max_frame == 0 {
            return Err("max_frame must be more than zero".into());
        }
        if self.max_connections == 0 || self.max_connections > 65_536 {
            return Err("max_connections must be between 1 and 65536".into());
        }
        if self.idle_timeout.get().is_zero() {
            return Err("idle_timeout must be more than zero".into());
        }
        self.framing.validate()
    }
}

#[cfg(test)]
mod tests;
