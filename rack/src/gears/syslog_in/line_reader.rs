//! Syslog lines in a TCP stream, by RFC 6587: each is either counted (`83 <34>1 …`) or ends with a line feed.
//!
//! # Invariants
//!
//! - A stream that begins with a request of HTTP has no lines, and no rest.
//! - What is held is at most one line of `max` bytes and one read.
//! - Nothing that was read is lost: what is no whole line is given out at the end by [`SyslogLineReader::rest`].
//! - [`SyslogLineReader::read`] may be dropped while it waits: no byte is lost.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::super::framing::TOGETHER;
use super::super::http_request_line::StreamBeginning;

/// What a read asks for, in bytes.
const READ: usize = 64 * 1024;
/// The most digits of a count.
const MAX_DIGITS: usize = 9;

/// Why a stream has no more lines.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyslogStreamError {
    /// A line is too long.
    #[error("a line has more than {max} bytes, the most that max_message allows")]
    TooLong { max: usize },
    /// A browser speaks here.
    #[error("it begins with a request of HTTP, as a browser sends it")]
    HttpRequest,
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The lines of a stream.
#[derive(Debug)]
pub(super) struct SyslogLineReader {
    max: usize,
    buffer: BytesMut,
    /// How much of the buffer is known to have no line feed.
    seen: usize,
    /// Whether the sender has counted a line: it does so with all then, whatever they begin with.
    counts: bool,
    /// Whether nothing was taken yet.
    is_beginning: bool,
}

/// How the next line is framed.
enum SyslogFraming {
    /// So many bytes behind so many of the count.
    Counted {
        skip: usize,
        size: usize,
    },
    Line,
    /// It cannot be told yet.
    Unknown,
}

impl SyslogLineReader {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            buffer: BytesMut::new(),
            seen: 0,
            counts: false,
            is_beginning: true,
        }
    }

    /// Lines that have arrived, at least one and [`TOGETHER`] at most, none of them empty; none where the stream has ended.
    pub(super) async fn read(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
    ) -> Result<Vec<Vec<u8>>, SyslogStreamError> {
        let mut arrived = loop {
            if let Some(line) = self.next()? {
                break vec![line];
            }
            self.buffer.reserve(READ);
            if from.read_buf(&mut self.buffer).await? == 0 {
                return Ok(Vec::new());
            }
        };
        // What is wrong with the next one is told by the next read.
        while arrived.len() < TOGETHER
            && let Ok(Some(line)) = self.next()
        {
            arrived.push(line);
        }
        Ok(arrived)
    }

    /// What was read of a line that did not end.
    pub(super) fn rest(&mut self) -> Option<Vec<u8>> {
        if let SyslogFraming::Counted { skip, .. } = self.framing() {
            self.buffer.advance(skip);
        }
        let rest = self.buffer.split().to_vec();
        (!rest.is_empty()).then_some(rest)
    }

    fn next(&mut self) -> Result<Option<Vec<u8>>, SyslogStreamError> {
        let max = self.max;
        if self.is_beginning && StreamBeginning::of(&self.buffer) == StreamBeginning::Request {
            self.buffer.clear();
            return Err(SyslogStreamError::HttpRequest);
        }
        loop {
            if self.seen == 0 {
                // Some senders end counted lines with a line feed as well.
                let blank = self
                    .buffer
                    .iter()
                    .take_while(|byte| matches!(byte, b'\n' | b'\r' | 0))
                    .count();
                self.buffer.advance(blank);
            }
            let (skip, size, edge) = match self.framing() {
                SyslogFraming::Unknown => return Ok(None),
                SyslogFraming::Counted { size, .. } if size > max => return Err(SyslogStreamError::TooLong { max }),
                SyslogFraming::Counted { skip, size } => {
                    self.counts = true;
                    (skip, size, 0)
                }
                SyslogFraming::Line => {
                    let unseen = self.buffer.get(self.seen..).unwrap_or_default();
                    match unseen.iter().position(|byte| *byte == b'\n') {
                        Some(at) => (0, self.seen + at, 1),
                        None => {
                            self.seen = self.buffer.len();
                            return if self.seen > max {
                                Err(SyslogStreamError::TooLong { max })
                            } else {
                                Ok(None)
                            };
                        }
                    }
                }
            };
            if size > max {
                return Err(SyslogStreamError::TooLong { max });
            }
            if self.buffer.len() < skip + size + edge {
                return Ok(None);
            }
            self.is_beginning = false;
            self.buffer.advance(skip);
            let line = self.buffer.split_to(size);
            self.buffer.advance(edge);
            self.seen = 0;
            let line = trimmed(&line);
            if !line.is_empty() {
                return Ok(Some(line.to_vec()));
            }
        }
    }

    fn framing(&self) -> SyslogFraming {
        let Some(first) = self.buffer.first() else {
            return SyslogFraming::Unknown;
        };
        if !(b'1'..=b'9').contains(first) {
            return SyslogFraming::Line;
        }
        let digits = self.buffer.iter().take_while(|byte| byte.is_ascii_digit()).count();
        match self.buffer.get(digits) {
            _ if digits > MAX_DIGITS => SyslogFraming::Line,
            None => SyslogFraming::Unknown,
            // What is counted first begins with its priority; a line may begin with a number.
            Some(b' ') if !self.counts && self.buffer.get(digits + 1).is_none() => SyslogFraming::Unknown,
            Some(b' ') if self.counts || self.buffer.get(digits + 1) == Some(&b'<') => {
                let count = self.buffer.iter().take(digits);
                let size = count.fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
                SyslogFraming::Counted { skip: digits + 1, size }
            }
            Some(_) => SyslogFraming::Line,
        }
    }
}

/// Without what ends a line.
pub(super) fn trimmed(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r' | 0));
    end.and_then(|end| line.get(..=end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Reads a stream that arrives in pieces: its lines, what is left, and what ended it.
    async fn lines(stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<Vec<u8>>, Option<SyslogStreamError>) {
        let (mut near, mut far) = tokio::io::duplex(piece);
        let stream = stream.to_vec();
        let send = tokio::spawn(async move {
            tokio::io::AsyncWriteExt::write_all(&mut near, &stream).await.ok();
        });
        let (mut lines, mut all) = (SyslogLineReader::new(20), Vec::new());
        let end = loop {
            match lines.read(&mut far).await {
                Ok(arrived) if arrived.is_empty() => break None,
                Ok(arrived) => all.extend(arrived),
                Err(broken) => break Some(broken),
            }
        };
        drop(far);
        send.await.unwrap();
        (all, lines.rest(), end)
    }

    #[tokio::test]
    async fn a_line_that_begins_with_a_number_is_no_count() {
        for piece in 1..30 {
            let (all, rest, end) = lines(b"50 items lost\n<34>1 a\n7 <1>xyz3", piece).await;
            assert_eq!(all, [&b"50 items lost"[..], b"<34>1 a", b"<1>xyz3"], "{piece}");
            assert!(rest.is_none() && end.is_none(), "{piece}");
        }
    }

    #[tokio::test]
    async fn counted_and_ended_lines_may_follow_each_other_and_nothing_is_lost() {
        for piece in [1, 3, 7, 100] {
            let (all, rest, end) = lines(b"5 <1>a\n6 <1>b\nc\n<1>d\r\n\n7x\n1234567890 a\n<1>e\0\n<1>f", piece).await;
            let wanted: [&[u8]; 6] = [b"<1>a", b"<1>b\nc", b"<1>d", b"7x", b"1234567890 a", b"<1>e"];
            assert_eq!(all, wanted, "{piece}");
            assert!(rest.as_deref() == Some(b"<1>f") && end.is_none(), "{piece}");
            let (all, rest, end) = lines(b"9 <1>cut", piece).await;
            assert!(all.is_empty() && rest.as_deref() == Some(b"<1>cut") && end.is_none());
            let (all, rest, end) = lines(&[b'x'; 200], piece).await;
            assert!(all.is_empty() && rest.is_some() && matches!(end, Some(SyslogStreamError::TooLong { max: 20 })));
            let (all, _, end) = lines(b"4 <1>a21 <1>b", piece).await;
            assert!(all == [b"<1>a"] && matches!(end, Some(SyslogStreamError::TooLong { max: 20 })));
            // Who counts once counts always.
            let (all, _, end) = lines(b"4 <1>a4 x\nyz3 <1>", piece).await;
            assert!(all == [&b"<1>a"[..], b"x\nyz", b"<1>"] && end.is_none(), "{all:?}");
        }
    }
}
