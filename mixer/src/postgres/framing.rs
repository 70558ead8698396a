//! Framing of protocol messages: reads frontend messages, writes backend messages.
//!
//! # Invariants
//!
//! - A frame says its length before it comes; one that is too long is refused then, and none is made room for before its bytes
//!   are there.
//! - Reading a field beyond the end of a frame is the client's fault, and never a panic.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use chassis::tls_server::ServerTls;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::pg_error::{PgError, put_fields};

/// The largest message of a client.
pub(super) const MAX_FRAME: usize = 512 << 10;
/// The largest first message.
const MAX_STARTUP: usize = 10_000;
/// How far is read ahead while a statement runs, to see whether the client is still there.
const AHEAD: usize = 64 << 10;
/// How often a client that sent more than that is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// A connection that takes nothing of an answer for so long is closed.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// What a client that has closed its sending half is sent to see whether it has gone: its system answers with a reset then. The
/// message tells a setting anew, which may come between any two others.
const PROBE: &[u8] = b"S\0\0\0\x17in_hot_standby\0off\0";
/// As much of an answer is gathered before it is sent.
const GATHER: usize = 64 << 10;

/// One message of a client.
#[derive(Debug)]
pub(super) struct FrontendMessage {
    pub(super) kind: u8,
    pub(super) body: MessageFields,
}

/// The fields of a message.
#[derive(Debug)]
pub(super) struct MessageFields(Bytes);

impl MessageFields {
    /// A text up to its zero byte.
    pub(super) fn text(&mut self) -> Result<String, PgError> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end.ok_or_else(|| PgError::protocol("a text in a message has no end"))?;
        let text = self.0.split_to(end);
        self.0.advance(1);
        String::from_utf8(text.into()).map_err(|_| PgError::error("22021", "a text is not UTF-8"))
    }

    pub(super) fn byte(&mut self) -> Result<u8, PgError> {
        self.0.try_get_u8().map_err(short)
    }

    pub(super) fn short(&mut self) -> Result<i16, PgError> {
        self.0.try_get_i16().map_err(short)
    }

    /// A number of things.
    pub(super) fn count(&mut self) -> Result<u16, PgError> {
        self.0.try_get_u16().map_err(short)
    }

    pub(super) fn int(&mut self) -> Result<i32, PgError> {
        self.0.try_get_i32().map_err(short)
    }

    /// All that is left.
    pub(super) fn rest(self) -> Bytes {
        self.0
    }

    /// A value with its length before it; `None` if it is null.
    pub(super) fn value(&mut self) -> Result<Option<Bytes>, PgError> {
        let Ok(length) = usize::try_from(self.int()?) else {
            return Ok(None);
        };
        if length > self.0.len() {
            return Err(PgError::protocol("a value is longer than its message"));
        }
        Ok(Some(self.0.split_to(length)))
    }
}

fn short(_: bytes::TryGetError) -> PgError {
    PgError::protocol("a message ends too early")
}

/// The two directions of a connection.
pub(super) fn split(stream: TcpStream) -> (FrontendReader, BackendWriter) {
    let (read, write) = stream.into_split();
    of_halves(Either::Right(read), Either::Right(write))
}

/// The same connection, encrypted.
///
/// # Errors
/// If the handshake fails, or the client sent more than its request before it: an attacker could have put that there.
pub(super) async fn encrypt(
    (incoming, outgoing): (FrontendReader, BackendWriter),
    tls: &ServerTls,
    within: Duration,
) -> io::Result<(FrontendReader, BackendWriter)> {
    if !incoming.buffer.is_empty() {
        return Err(io::Error::other(
            "the client sent something between its request for TLS and the handshake",
        ));
    }
    let (Either::Right(read), Either::Right(write)) = (incoming.stream, outgoing.stream) else {
        return Err(io::Error::other("the connection is encrypted already"));
    };
    let stream = read.reunite(write).map_err(io::Error::other)?;
    let (read, write) = tokio::io::split(tls.accept(stream, within).await?);
    Ok(of_halves(Either::Left(read), Either::Left(write)))
}

/// The two directions of a connection of these halves.
pub(super) fn of_halves<R, W>(read: R, write: W) -> (FrontendReader<R>, BackendWriter<W>) {
    let is_sending = Arc::new(AtomicBool::new(false));
    let incoming = FrontendReader {
        stream: read,
        buffer: BytesMut::new(),
        is_sending: Arc::clone(&is_sending),
    };
    let outgoing = BackendWriter {
        stream: write,
        buffer: BytesMut::new(),
        is_sending,
    };
    (incoming, outgoing)
}

type PgReadHalf = Either<ReadHalf<Box<TlsStream<TcpStream>>>, OwnedReadHalf>;
type PgWriteHalf = Either<WriteHalf<Box<TlsStream<TcpStream>>>, OwnedWriteHalf>;

/// What comes from a client.
#[derive(Debug)]
pub(super) struct FrontendReader<R = PgReadHalf> {
    stream: R,
    buffer: BytesMut,
    /// Whether a part of what goes to the client is still to be sent.
    is_sending: Arc<AtomicBool>,
}

impl<R: AsyncRead + Unpin> FrontendReader<R> {
    /// The first message, which has no kind; `None` if the client has gone.
    pub(super) async fn startup(&mut self) -> Result<Option<MessageFields>, PgError> {
        if !self.fill(4).await? {
            return Ok(None);
        }
        let length = usize::try_from(self.buffer.get_i32()).unwrap_or_default();
        if !(8..=MAX_STARTUP).contains(&length) {
            return Err(PgError::protocol("this is not how a client of PostgreSQL begins"));
        }
        let length = length - 4;
        if !self.fill(length).await? {
            return Ok(None);
        }
        Ok(Some(MessageFields(self.buffer.split_to(length).freeze())))
    }

    /// The next message; `None` if the client has gone. Nothing is lost if it is not waited for to its end.
    pub(super) async fn next(&mut self) -> Result<Option<FrontendMessage>, PgError> {
        self.next_within(MAX_FRAME).await
    }

    /// The same, of so many bytes at most.
    pub(super) async fn next_within(&mut self, most: usize) -> Result<Option<FrontendMessage>, PgError> {
        if !self.fill(5).await? {
            return Ok(None);
        }
        let mut head = self.buffer.get(..5).unwrap_or_default();
        let (kind, length) = (head.get_u8(), head.get_i32());
        let length = usize::try_from(length)
            .ok()
            .filter(|length| (4..=most).contains(length));
        let Some(length) = length else {
            return Err(PgError::protocol(format!(
                "a message is longer than {most} bytes, or has no length"
            )));
        };
        if !self.fill(1 + length).await? {
            return Ok(None);
        }
        self.buffer.advance(5);
        let body = MessageFields(self.buffer.split_to(length - 4).freeze());
        Ok(Some(FrontendMessage { kind, body }))
    }

    /// Whether there are so many bytes; waits for them.
    async fn fill(&mut self, wanted: usize) -> Result<bool, PgError> {
        while self.buffer.len() < wanted {
            if !self.more().await {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether something came, and not the end.
    async fn more(&mut self) -> bool {
        self.buffer.reserve(8 << 10);
        matches!(self.stream.read_buf(&mut self.buffer).await, Ok(read) if read > 0)
    }
}

impl FrontendReader {
    /// Returns when the client has gone; one that has only closed its sending half waits for its answers.
    pub(super) async fn gone(&mut self) {
        self.ended().await;
        let mut pause = LOOK;
        while self.is_taken() {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(WRITE_TIME);
        }
    }

    /// Returns when nothing comes any more.
    async fn ended(&mut self) {
        while self.buffer.len() < AHEAD {
            if !self.more().await {
                return;
            }
        }
        // It sends without waiting for answers: what it sends is not looked at, only whether it is there.
        let Either::Right(stream) = &self.stream else {
            // Of an encrypted connection its end cannot be seen before all that stands before it is read.
            return std::future::pending().await;
        };
        loop {
            match stream.ready(tokio::io::Interest::READABLE).await {
                Ok(ready) if !ready.is_read_closed() => tokio::time::sleep(LOOK).await,
                _ => return,
            }
        }
    }

    /// Whether the client takes what it is sent, as far as is known.
    fn is_taken(&self) -> bool {
        // In the midst of a message nothing may come between; its own sending fails if the client has gone.
        if self.is_sending.load(Ordering::Relaxed) {
            return true;
        }
        // TLS has no half that is closed by itself.
        let Either::Right(stream) = &self.stream else {
            return false;
        };
        let stream: &TcpStream = stream.as_ref();
        match stream.try_write(PROBE) {
            Ok(written) => written == PROBE.len(),
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

/// What goes to a client.
#[derive(Debug)]
pub(super) struct BackendWriter<W = PgWriteHalf> {
    stream: W,
    buffer: BytesMut,
    /// Whether a part of it is still to be sent.
    is_sending: Arc<AtomicBool>,
}

impl<W: AsyncWrite + Unpin> BackendWriter<W> {
    /// One byte that is no message.
    pub(super) fn byte(&mut self, byte: u8) {
        self.buffer.put_u8(byte);
    }

    /// A message, whose fields `body` writes.
    pub(super) fn message(&mut self, kind: u8, body: impl FnOnce(&mut BytesMut)) {
        self.buffer.put_u8(kind);
        let at = self.buffer.len();
        self.buffer.put_i32(0);
        body(&mut self.buffer);
        let length = i32::try_from(self.buffer.len() - at).unwrap_or(i32::MAX);
        if let Some(place) = self.buffer.get_mut(at..at + 4) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// That a statement has ended, with what it did.
    pub(super) fn complete(&mut self, tag: &str) {
        self.message(b'C', |out| put_text(out, tag));
    }

    pub(super) fn fault(&mut self, fault: &PgError) {
        self.message(b'E', |out| fault.write(out));
    }

    /// What a client should know beside its answers, or of a statement that does not fail.
    pub(super) fn warning(&mut self, code: &str, message: &str) {
        self.message(b'N', |out| put_fields(out, "WARNING", code, message, None));
    }

    /// Sends what was gathered if it is much.
    pub(super) async fn send_some(&mut self) -> io::Result<()> {
        if self.buffer.len() < GATHER {
            return Ok(());
        }
        self.send().await
    }

    /// Sends what was gathered.
    pub(super) async fn send(&mut self) -> io::Result<()> {
        self.is_sending.store(true, Ordering::Relaxed);
        let is_wide = self.buffer.len() > 4 * GATHER;
        while !self.buffer.is_empty() {
            let written = tokio::time::timeout(WRITE_TIME, self.stream.write_buf(&mut self.buffer)).await;
            if written.map_err(|_| io::ErrorKind::TimedOut)?? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        let flushed = tokio::time::timeout(WRITE_TIME, self.stream.flush()).await;
        flushed.map_err(|_| io::ErrorKind::TimedOut)??;
        self.is_sending.store(false, Ordering::Relaxed);
        // The room of one wide row is not kept for the life of the session.
        if is_wide {
            self.buffer = BytesMut::new();
        }
        Ok(())
    }
}

/// A text with its zero byte; what stands in its place of one is left out.
pub(super) fn put_text(out: &mut BytesMut, text: &str) {
    for part in text.split('\0') {
        out.put_slice(part.as_bytes());
    }
    out.put_u8(0);
}

/// A number of things as two bytes; callers have fewer.
pub(super) fn put_count(out: &mut BytesMut, count: usize) {
    out.put_u16(u16::try_from(count).unwrap_or(u16::MAX));
}
