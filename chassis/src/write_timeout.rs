//! A stream that fails when a write makes no progress for a while, or when its peer takes less than a least rate: a peer that reads
//! nothing, or a byte now and then, must not hold an answer for ever.
//!
//! # Invariants
//!
//! - Each byte that goes counts as progress. Where there is a least rate, the time that writes wait adds up, and each byte takes
//!   off what it may last at that rate: a peer that is slower on the whole has the patience for one wait, and no more.
//! - Only a write that has to wait fails: who takes all at once is never too late, however long there was nothing to write.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How fast a peer must take what is written to it, or send; at any rate at first.
#[derive(Debug, Clone, Default)]
pub struct MinimumRate(Arc<Mutex<TransferPace>>);

#[derive(Debug, Default)]
struct TransferPace {
    /// How long a byte may take.
    byte_time: Option<Duration>,
    /// The time that was waited and that the bytes since then have not taken off.
    waited: Duration,
}

impl MinimumRate {
    /// From now on a byte may take so long, or any time, whatever was before.
    pub fn set(&self, byte_time: Option<Duration>) {
        *self.pace() = TransferPace {
            byte_time,
            waited: Duration::ZERO,
        };
    }

    /// So many bytes went, or came, after a wait.
    pub fn count(&self, waited: Duration, bytes: usize) {
        let mut pace = self.pace();
        if let Some(byte_time) = pace.byte_time {
            let taken = byte_time.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
            pace.waited = (pace.waited + waited).saturating_sub(taken);
        }
    }

    /// How long the next wait may last for who has so much patience on the whole.
    #[must_use]
    pub fn left(&self, patience: Duration) -> Duration {
        patience.saturating_sub(self.pace().waited)
    }

    fn pace(&self) -> MutexGuard<'_, TransferPace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module.
#[derive(Debug)]
pub struct WriteTimeoutStream<S> {
    stream: S,
    patience: Duration,
    rate: MinimumRate,
    /// Runs while a write waits.
    deadline: Pin<Box<Sleep>>,
    /// Since when it waits.
    waits: Option<Instant>,
}

impl<S> WriteTimeoutStream<S> {
    /// Writes to `stream`; one that waits longer than `patience` is its end.
    pub fn new(stream: S, patience: Duration) -> Self {
        Self {
            stream,
            patience,
            rate: MinimumRate::default(),
            deadline: Box::pin(sleep(patience)),
            waits: None,
        }
    }

    /// The same with a least rate; that all writes have waited longer than `patience` beyond it is its end too.
    #[must_use]
    pub fn with_minimum_rate(self, rate: MinimumRate) -> Self {
        Self { rate, ..self }
    }

    fn enforce_timeout(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let now = Instant::now();
        if let Poll::Ready(written) = written {
            let waited = self.waits.take().map_or(Duration::ZERO, |since| now - since);
            self.rate.count(waited, written.as_ref().copied().unwrap_or(0));
            return Poll::Ready(written);
        }
        if self.waits.is_none() {
            self.waits = Some(now);
            let left = self.rate.left(self.patience);
            self.deadline.as_mut().reset(now + left);
        }
        ready!(self.deadline.as_mut().poll(cx));
        self.waits = None;
        let reason = "the peer reads nothing, or reads too slowly";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.enforce_timeout(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.enforce_timeout(cx, written)
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
        let mut stream = WriteTimeoutStream::new(ours, Duration::from_secs(30));
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
    async fn a_peer_below_the_minimum_rate_times_out() {
        let (ours, mut theirs) = duplex(1);
        let rate = MinimumRate::default();
        let mut stream = WriteTimeoutStream::new(ours, Duration::from_secs(30)).with_minimum_rate(rate.clone());
        let slow = tokio::spawn(async move {
            while theirs.read_u8().await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
        // What has no least rate may take its time.
        stream.write_all(&[0; 100]).await.unwrap();
        rate.set(Some(Duration::from_millis(500)));
        let began = Instant::now();
        let error = stream.write_all(&[0; 1_000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // Each byte takes a second and takes off half of one.
        assert!((58..62).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        // What takes all at the rate is never late, and the time in which there is nothing to write does not count.
        rate.set(Some(Duration::from_secs(1)));
        stream.write_all(&[0; 200]).await.unwrap();
        sleep(Duration::from_secs(1_000)).await;
        stream.write_all(&[0; 200]).await.unwrap();
        drop(stream);
        slow.await.unwrap();
    }
}
