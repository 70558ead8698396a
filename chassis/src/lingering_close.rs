//! Lingering close: drains a connection for a while that was answered before all of the request was read.
//!
//! Closing a socket over bytes that nobody read resets it, and a client that is told of the reset may never see the answer that
//! came before (RFC 9112, section 9.6): the 413 to a body that is too large would be a broken connection.
//!
//! # Invariants
//!
//! - Only after a body that was not read to its end, at most for 5 s and 64 MiB.
//!
//! # Not here
//!
//! When to answer early: the handlers'.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long a client may take to see that it was answered.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes that are thrown away.
const MOST: usize = 64 << 20;

/// Whether the body of a connection's last request has been read.
#[derive(Debug, Clone, Default)]
pub struct UnreadBodyFlag(Arc<AtomicBool>);

impl UnreadBodyFlag {
    /// Whether the last request's body has more that nobody read: the connection ends with its answer.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// The body of the connection's next request.
    pub fn track<B: Body>(&self, body: B) -> TrackedBody<B> {
        self.0.store(!body.is_end_stream(), Relaxed);
        TrackedBody {
            body,
            unread: self.clone(),
        }
    }
}

/// A body; see [`UnreadBodyFlag`].
#[derive(Debug)]
pub struct TrackedBody<B: Body> {
    body: B,
    unread: UnreadBodyFlag,
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.unread.0.store(false, Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The stream of a connection; see the module.
#[derive(Debug)]
pub struct LingeringStream<S> {
    stream: S,
    unread: UnreadBodyFlag,
    /// Until when what comes is thrown away, and how much of it; none before the end.
    end: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<S> LingeringStream<S> {
    /// Wraps a stream whose requests' bodies `unread` watches.
    pub const fn new(stream: S, unread: UnreadBodyFlag) -> Self {
        Self {
            stream,
            unread,
            end: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LingeringStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LingeringStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.end.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            if !this.unread.is_unread() {
                return Poll::Ready(Ok(()));
            }
        }
        let (until, left) = this.end.get_or_insert_with(|| (Box::pin(sleep(PATIENCE)), MOST));
        let mut thrown = [0; 16 << 10];
        while *left > 0 && Instant::now() < until.deadline() {
            let mut into = ReadBuf::new(&mut thrown);
            let came = match Pin::new(&mut this.stream).poll_read(cx, &mut into) {
                Poll::Ready(Ok(())) => into.filled().len(),
                // It is gone, which is all that is waited for.
                Poll::Ready(Err(_)) => 0,
                Poll::Pending => {
                    ready!(until.as_mut().poll(cx));
                    0
                }
            };
            if came == 0 {
                break;
            }
            *left = left.saturating_sub(came);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_a_client_still_sends_is_taken_for_a_while_and_only_if_something_was_left_unread() {
        for (is_unread, patience) in [(true, PATIENCE), (false, Duration::ZERO)] {
            let (ours, mut theirs) = duplex(8);
            let unread = UnreadBodyFlag::default();
            unread.0.store(is_unread, Relaxed);
            let mut stream = LingeringStream::new(ours, unread);
            stream.write_all(b"413").await.unwrap();
            let began = Instant::now();
            let closed = tokio::spawn(async move {
                stream.shutdown().await.unwrap();
                began.elapsed()
            });
            if is_unread {
                theirs.write_all(&[0; 4096]).await.unwrap();
            }
            let mut answer = Vec::new();
            theirs.read_to_end(&mut answer).await.unwrap();
            assert_eq!((answer.as_slice(), closed.await.unwrap()), (&b"413"[..], patience));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_closes_is_not_waited_for() {
        let (ours, theirs) = duplex(8);
        let unread = UnreadBodyFlag::default();
        unread.0.store(true, Relaxed);
        let mut stream = LingeringStream::new(ours, unread);
        drop(theirs);
        let began = Instant::now();
        stream.shutdown().await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
