//! `tcp_in`: takes TCP connections; each frame becomes a message, and messages on port `reply` go back.
//!
//! ```text
//! socket ──▶ frames ──▶ out      meta: tcp.connection, network.peer.*
//! socket ◀── frame ◀─── reply    to the connection that meta tcp.connection names
//! ```
//!
//! # Invariants
//!
//! - A full inbox behind `out` stops the reading of that socket: nothing is dropped, the peer waits.
//! - Frames that have arrived together leave together, with one sync of the outbox.
//! - The id of a connection is never used again, not by a later life of the gear either: a reply reaches the connection that
//!   its message came from or is rejected.
//! - A connection is closed when its peer ends the stream, sends a frame that is too long, takes nothing of a reply for
//!   [`WRITE_TIMEOUT`](super::tcp_listener::WRITE_TIMEOUT), or is idle: no frame went either way for `idle_timeout`.
//! - Each connection has a reply_writer of its own ([`reply_writer`]). A reply of a guaranteed wire was taken when it is written, and those before
//!   it; meanwhile replies to others go on.
//!
//! # Not here
//!
//! Frames ([`super::framing`]), taking connections ([`super::tcp_listener`]).

mod reply_writer;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures::FutureExt;
use gear_spec::tcp_in::TcpInConfig;
use model::dead_letter::PortSide;
use model::gear_manifest;
use model::message::Message;
use model::{HumanDuration, Level, MessageId};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::ReadHalf;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::framing::{FrameFormat, FrameReader, FramingError};
use super::output_transaction::DeliveryGuarantee;
use super::tcp_connect::peer_facts;
use super::tcp_listener::{GearListener, GearStream, IncomingStream, ListenerAddress};
use super::trace_context::TraceContext;
use super::{ActiveGear, Gear, GearContext, GearError, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;
use reply_writer::{TcpReply, TcpReplyQueue};

/// How often it is asked what became of replies.
const HEAR_EVERY: Duration = Duration::from_millis(10);
/// How long the last replies of a life may take: its connections end with it.
const LAST_REPLIES: Duration = Duration::from_millis(300);
/// The fact that names a message's connection.
const CONNECTION: &str = "tcp.connection";

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: TcpInConfig = gear_manifest::config(config)?;
    let shared = Arc::new(TcpConnectionTable {
        rule: FrameFormat::of(&config.framing)?,
        max_frame: config.max_frame as usize,
        idle_timeout: config.idle_timeout.get(),
        made: AtomicU64::new(0),
        open: Mutex::default(),
        writers: Mutex::default(),
    });
    let replies = TcpReplyHandler {
        shared: Arc::clone(&shared),
        unheard: VecDeque::new(),
        asked: Instant::now(),
    };
    let door = TcpReceiver {
        config,
        shared,
        listener: None,
    };
    Ok(Gear::Duplex(Box::new(door), Box::new(replies)))
}

/// What both halves know.
struct TcpConnectionTable {
    rule: FrameFormat,
    max_frame: usize,
    idle_timeout: Duration,
    /// How many connections this life has taken.
    made: AtomicU64,
    /// The connections that are open, as far as is known.
    open: Mutex<HashMap<String, Arc<TcpReplyQueue>>>,
    /// They end with this life of the gear.
    writers: Mutex<JoinSet<()>>,
}

struct TcpReceiver {
    config: TcpInConfig,
    shared: Arc<TcpConnectionTable>,
    listener: Option<GearListener>,
}

impl ActiveGear for TcpReceiver {
    fn init<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let address = ListenerAddress {
                listen: self.config.listen,
                tls: self.config.tls.as_ref(),
                schemes: ["tcp", "tls"],
                path: "",
            };
            self.listener = Some(GearListener::bind(cx, address).await?);
            Ok(())
        }
        .boxed()
    }

    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let Some(listener) = self.listener.take() else {
                return Ok(());
            };
            let life = cx.recorder().now().micros();
            let serve = |incoming: IncomingStream| {
                let number = self.shared.made.fetch_add(1, Relaxed);
                let peer = TcpPeer {
                    cx: Arc::clone(cx),
                    shared: Arc::clone(&self.shared),
                    id: format!("{life:x}-{number}"),
                    address: incoming.peer,
                };
                peer.serve(incoming)
            };
            listener.serve(cx, self.config.max_connections as usize, serve).await;
            Ok(())
        }
        .boxed()
    }
}

/// The other side of a connection.
struct TcpPeer {
    cx: Arc<GearContext>,
    shared: Arc<TcpConnectionTable>,
    id: String,
    address: SocketAddr,
}

impl TcpPeer {
    /// Reads one connection until it ends or the gear stops; replies may be written until the gear has ended.
    async fn serve(self, incoming: IncomingStream) {
        let stop = incoming.stop.clone();
        let Some(stream) = incoming.accept().await else {
            return;
        };
        let (read, write) = tokio::io::split(stream);
        let (queue, writing) = TcpReplyQueue::new(write);
        let queue = Arc::new(queue);
        let shared = Arc::clone(&self.shared);
        {
            let mut writers = shared.writers.lock();
            while writers.try_join_next().is_some() {}
            writers.spawn(writing);
        }
        shared.open.lock().insert(self.id.clone(), Arc::clone(&queue));
        tokio::select! {
            biased;
            why = self.read(read, &queue, &stop) => match why {
                Some(why) => self.cx.log(Level::Warn, format!("the connection from {} is closed: {why}", self.address)),
                None if stop.is_cancelled() => return,
                None => {}
            },
            () = queue.link.closed.cancelled() => {}
        }
        shared.open.lock().remove(&self.id);
        let link = Arc::clone(&queue.link);
        drop(queue);
        // It keeps its place until what was queued for it is written.
        tokio::select! {
            () = link.ended.cancelled() => {}
            () = stop.cancelled() => {}
        }
    }

    /// Reads to the end, to the stop, or to what is wrong.
    async fn read(
        &self,
        mut from: ReadHalf<GearStream>,
        queue: &TcpReplyQueue,
        stop: &CancellationToken,
    ) -> Option<String> {
        let timeout = self.shared.idle_timeout;
        let mut frames = FrameReader::new(self.shared.rule.clone(), self.shared.max_frame).refusing_http();
        loop {
            let arrived = tokio::select! {
                biased;
                arrived = async { queue.wait_for_low_water().await; frames.read_all(&mut from).await } => arrived,
                () = stop.cancelled() => return None,
                () = queue.link.idle(timeout) => {
                    return Some(format!("no frame went either way for {}", HumanDuration::from(timeout)));
                }
            };
            match arrived {
                // How a connection ends between two frames is its peer's affair.
                Err(FramingError::Io(_)) => return None,
                Ok(arrived) if arrived.is_empty() => return None,
                Ok(arrived) => {
                    let pass_on = async {
                        for frame in arrived {
                            self.pass_on(frame).await;
                        }
                    };
                    self.cx.commit_received("out", None, pass_on).await;
                }
                Err(broken) => return Some(broken.to_string()),
            }
            queue.link.touch();
        }
    }

    async fn pass_on(&self, frame: Vec<u8>) {
        let began = std::time::Instant::now();
        let meta = peer_facts(self.address).with(CONNECTION, self.id.as_str());
        let message = self.cx.make(None, meta, frame);
        // A refusal has been counted and reported; the next frame may pass.
        self.cx.emit("out", message, None, began).await.ok();
    }
}

/// The half that hands replies to the writers.
struct TcpReplyHandler {
    shared: Arc<TcpConnectionTable>,
    /// Replies of guaranteed wires, until it is heard what became of them.
    unheard: VecDeque<UnconfirmedReply>,
    /// When that was asked last.
    asked: Instant,
}

struct UnconfirmedReply {
    port: &'static str,
    message: Box<Message>,
    heard: oneshot::Receiver<Result<(), String>>,
}

impl PassiveGear for TcpReplyHandler {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let InputMessage { port, message } = delivery;
            let (id, queue) = self.connection(&message)?;
            let bytes = self.shared.rule.encode(&message.body()).map_err(GearError::Rejected)?;
            let (signal, gear) = (TraceContext::of(&message), Arc::clone(cx));
            let said = id.clone();
            let mut reply = TcpReply {
                bytes,
                done: None,
                refused: Box::new(move |why| signal.in_scope(|| gear.reject(&format!("connection {said} {why}")))),
            };
            let heard = (DeliveryGuarantee::current() == DeliveryGuarantee::Again).then(|| {
                let (done, heard) = oneshot::channel();
                reply.done = Some(done);
                heard
            });
            if !queue.put(reply).await {
                return Err(closed(&id));
            }
            let message = Box::new(message);
            self.unheard
                .extend(heard.map(|heard| UnconfirmedReply { port, message, heard }));
            Ok(())
        }
        .boxed()
    }

    fn holds_back(&self) -> bool {
        true
    }

    fn flush<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let last = Instant::now() + LAST_REPLIES;
            while let Some(UnconfirmedReply { heard, .. }) = self.unheard.front_mut() {
                let heard = match heard.try_recv() {
                    // The others are not held up for a peer that does not read, unless they are the last.
                    Err(TryRecvError::Empty) if !cx.is_draining() => break,
                    Err(TryRecvError::Empty) => {
                        let closed = |_| Err("was closed before it took the reply".to_owned());
                        match tokio::time::timeout_at(last, &mut *heard).await {
                            Ok(heard) => heard.unwrap_or_else(closed),
                            // It would be closed with this life anyway; what others took is known then.
                            Err(_) => {
                                self.shared.writers.lock().abort_all();
                                heard.await.unwrap_or_else(closed)
                            }
                        }
                    }
                    Err(TryRecvError::Closed) => Err("is closed".to_owned()),
                    Ok(heard) => heard,
                };
                let Some(UnconfirmedReply { port, message, .. }) = self.unheard.pop_front() else {
                    break;
                };
                if let Err(why) = heard {
                    let reason = format!("the connection {why}");
                    TraceContext::of(&message).in_scope(|| cx.reject(&reason));
                    let buried = cx.dead_letter((port, PortSide::In), &message, (reason, 1));
                    cx.commit_for(message.id, buried).await;
                }
            }
            if cx.is_draining() {
                let open: Vec<_> = self.shared.open.lock().values().cloned().collect();
                let drained = futures::future::join_all(open.iter().map(|queue| queue.drained()));
                tokio::time::timeout_at(last, drained).await.ok();
            }
            self.asked = Instant::now();
            Ok(())
        }
        .boxed()
    }

    fn unfinished(&self) -> Option<MessageId> {
        Some(self.unheard.front()?.message.id)
    }

    fn wake_at(&self) -> Option<Instant> {
        (!self.unheard.is_empty()).then(|| self.asked + HEAR_EVERY)
    }

    fn wake<'a>(&'a mut self, _: &'a Arc<GearContext>) -> GearFuture<'a> {
        // What it is woken for is the flush.
        self.asked = Instant::now();
        futures::future::ready(Ok(())).boxed()
    }
}

impl TcpReplyHandler {
    /// The connection that a reply names.
    fn connection(&self, message: &Message) -> Result<(String, Arc<TcpReplyQueue>), GearError> {
        let id = message.meta.get(CONNECTION).and_then(Value::as_str).ok_or_else(|| {
            GearError::Rejected(format!(
                "a reply names no connection: {CONNECTION} must be in its meta, as in messages from port out"
            ))
        })?;
        let queue = self.shared.open.lock().get(id).cloned();
        Ok((id.to_owned(), queue.ok_or_else(|| closed(id))?))
    }
}

fn closed(id: &str) -> GearError {
    GearError::Rejected(format!("connection {id} is closed or was never open"))
}

#[cfg(test)]
mod tests;
