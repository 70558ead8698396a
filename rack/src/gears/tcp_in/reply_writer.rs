//! Writes the replies of one connection, so that a peer that does not read delays no other.
//!
//! ```text
//! replies ──▶ queue of a connection ──▶ its writer ──▶ socket
//!     ▲                                    │ taken, or why not
//!     └──────── flush: guaranteed wires ◀──┘
//! ```
//!
//! # Invariants
//!
//! - Replies of a connection are written in their order, each whole or the connection ends.
//! - A peer that does not read is not read from ([`TcpReplyQueue::wait_for_low_water`]): who only answers it waits for nobody. Where more than [`MOST`] waits
//!   all the same, the gear waits, at most until the connection is closed.
//! - Who queues a reply hears what became of it, if it asks to.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Bytes of replies that wait for a peer; with more, nothing is read from it.
const CALM: usize = 64 * 1024;
/// With so many, the gear waits.
const MOST: usize = 4 << 20;
/// What a reply counts beside its bytes.
const REPLY: usize = 256;

/// A reply, as it is written.
pub(super) struct TcpReply {
    pub(super) bytes: Vec<u8>,
    /// Says why it was not written. One that nobody waits for is told by `refused`.
    pub(super) done: Option<oneshot::Sender<Result<(), String>>>,
    pub(super) refused: Box<dyn FnOnce(String) + Send>,
}

/// What a connection and its writer know of each other.
pub(super) struct ConnectionLink {
    /// When a frame went either way.
    active: Mutex<Instant>,
    /// Cancelled where the peer takes no more.
    pub(super) closed: CancellationToken,
    /// Cancelled where nothing more is written.
    pub(super) ended: CancellationToken,
    /// For what waits.
    room: Arc<Semaphore>,
    written: Notify,
}

impl ConnectionLink {
    pub(super) fn touch(&self) {
        *self.active.lock() = Instant::now();
    }

    /// Resolves when no frame went either way for a time.
    pub(super) async fn idle(&self, timeout: Duration) {
        loop {
            let end = *self.active.lock() + timeout;
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

/// The end of a writer at which replies are queued; the writer ends with the last one.
pub(super) struct TcpReplyQueue {
    pub(super) link: Arc<ConnectionLink>,
    sender: mpsc::UnboundedSender<(TcpReply, OwnedSemaphorePermit)>,
}

impl TcpReplyQueue {
    /// A queue, and what writes it.
    pub(super) fn new(to: impl AsyncWrite + Send + Unpin) -> (Self, impl Future<Output = ()> + Send) {
        let link = Arc::new(ConnectionLink {
            active: Instant::now().into(),
            closed: CancellationToken::new(),
            ended: CancellationToken::new(),
            room: Arc::new(Semaphore::new(MOST)),
            written: Notify::new(),
        });
        let (sender, queue) = mpsc::unbounded_channel();
        let writing = write(to, queue, Arc::clone(&link));
        (Self { link, sender }, writing)
    }

    /// Queues a reply, waiting where too many wait; false if the peer takes no more.
    pub(super) async fn put(&self, reply: TcpReply) -> bool {
        let bytes = u32::try_from((reply.bytes.len() + REPLY).min(MOST)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.link.room).acquire_many_owned(bytes).await;
        room.is_ok_and(|room| self.sender.send((reply, room)).is_ok())
    }

    /// Resolves when few replies wait for the peer.
    pub(super) async fn wait_for_low_water(&self) {
        loop {
            let written = self.link.written.notified();
            if self.link.room.available_permits() > MOST - CALM {
                return;
            }
            written.await;
        }
    }

    /// Resolves when what was queued until now has been written, or never will be.
    pub(super) async fn drained(&self) {
        let (done, heard) = oneshot::channel();
        let nothing = TcpReply {
            bytes: Vec::new(),
            done: Some(done),
            refused: Box::new(drop),
        };
        if self.put(nothing).await {
            heard.await.ok();
        }
    }
}

async fn write(
    mut to: impl AsyncWrite + Send + Unpin,
    mut queue: mpsc::UnboundedReceiver<(TcpReply, OwnedSemaphorePermit)>,
    link: Arc<ConnectionLink>,
) {
    let _ended = link.ended.clone().drop_guard();
    while let Some((reply, room)) = queue.recv().await {
        let written = async {
            to.write_all(&reply.bytes).await?;
            to.flush().await
        };
        let Err(error) = written.await else {
            link.touch();
            drop(room);
            link.written.notify_waiters();
            reply.end(Ok(()));
            continue;
        };
        link.closed.cancel();
        link.room.close();
        queue.close();
        let why = format!("took no reply and is closed: {error}");
        reply.end(Err(why.clone()));
        while let Some((reply, _)) = queue.recv().await {
            reply.end(Err(why.clone()));
        }
        return;
    }
    // With TLS the peer learns so that nothing was cut off.
    to.shutdown().await.ok();
}

impl TcpReply {
    fn end(self, result: Result<(), String>) {
        match (self.done, result) {
            (Some(done), result) => drop(done.send(result)),
            (None, Err(why)) => (self.refused)(why),
            (None, Ok(())) => {}
        }
    }
}
