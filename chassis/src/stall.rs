//! A stream that fails when a write makes no progress for a while, or is not done by its deadline: a peer that reads nothing, or a byte now
//! and then, must not hold an answer for ever.
//!
//! # Invariants
//!
//! - Each byte that goes counts as progress, but moves no deadline.
//! - Only a write that has to wait fails: who takes all at once is never too late.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep};

/// When what is written to a stream must have been taken; none at first.
#[derive(Debug, Clone)]
pub struct WriteDeadline(watch::Sender<Option<Instant>>);

impl WriteDeadline {
    /// From now on it is this one.
    pub fn set(&self, deadline: Option<Instant>) {
        self.0.send_replace(deadline);
    }
}

impl Default for WriteDeadline {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

/// See the module.
#[derive(Debug)]
pub struct Stalling<S> {
    stream: S,
    patience: Duration,
    last: WriteDeadline,
    /// Runs while a write waits.
    deadline: Pin<Box<Sleep>>,
    waits: bool,
}

impl<S> Stalling<S> {
    /// Writes to `stream`; one that waits longer than `patience` is its end.
    pub fn new(stream: S, patience: Duration) -> Self {
        Self {
            stream,
            patience,
            last: WriteDeadline::default(),
            deadline: Box::pin(sleep(patience)),
            waits: false,
        }
    }

    /// The same with a deadline; a write that waits beyond it is its end too.
    #[must_use]
    pub fn until(self, last: WriteDeadline) -> Self {
        Self { last, ..self }
    }

    fn watched<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !std::mem::replace(&mut self.waits, true) {
            let patience = Instant::now() + self.patience;
            let last = *self.last.0.borrow();
            self.deadline
                .as_mut()
                .reset(last.map_or(patience, |last| last.min(patience)));
        }
        ready!(self.deadline.as_mut().poll(cx));
        self.waits = false;
        let reason = "the peer took nothing of what is written for too long, or not all of it in time";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watched(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.watched(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_ends_the_stream_and_a_slow_one_does_not() {
        let (ours, mut theirs) = duplex(1);
        let mut stream = Stalling::new(ours, Duration::from_secs(30));
        let slow = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(29)).await;
                theirs.read_u8().await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(stream.write_all(b"abcd"), slow);
        written.unwrap();
        let began = Instant::now();
        let error = stream.write_all(b"e").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_a_byte_now_and_then_ends_the_stream_at_its_deadline() {
        let (ours, mut theirs) = duplex(1);
        let deadline = WriteDeadline::default();
        let mut stream = Stalling::new(ours, Duration::from_secs(30)).until(deadline.clone());
        let slow = tokio::spawn(async move {
            while theirs.read_u8().await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
        let began = Instant::now();
        deadline.set(Some(began + Duration::from_secs(10)));
        let error = stream.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), 10);
        // What has no deadline may take its time.
        deadline.set(None);
        stream.write_all(&[0; 100]).await.unwrap();
        drop(stream);
        slow.await.unwrap();
    }
}
