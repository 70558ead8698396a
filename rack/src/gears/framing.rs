//! Frames in a stream of bytes: what the TCP gears cut their streams into.
//!
//! | framing | a frame on the wire |
//! |---|---|
//! | `delimiter: "\n"` | the bytes, then the delimiter |
//! | `length: { bytes: 4, order: big }` | the number of bytes in 1, 2 or 4 bytes, then the bytes |
//!
//! # Invariants
//!
//! - A stream that announces or brings a frame longer than `max_frame` is given up before more of it is kept: what is held is
//!   never more than one frame, its frame's edge and one read.
//! - [`FrameReader::read`] may be dropped while it waits: no byte is lost.
//! - A [guarded](FrameReader::refusing_http) reader gives no frame of a stream that begins with a request of HTTP, whatever the framing: one byte
//!   of a length is a letter as well, and a delimiter may stand in a path.
//! - What [`FrameFormat::encode`] makes, [`FrameReader`] with the same framing gives back.

use std::io;

use bytes::{Buf, BytesMut};
use gear_spec::framing::{ByteOrder, LengthPrefix, StreamFraming};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::http_request_line::StreamBeginning;

/// What a read asks for, in bytes.
const READ: usize = 64 * 1024;
/// The most frames that are taken at once.
pub(super) const TOGETHER: usize = 256;
/// A framing that is valid.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FrameFormat {
    Delimiter(Vec<u8>),
    Length(LengthPrefix),
}

impl FrameFormat {
    /// What a configuration means.
    pub(super) fn of(framing: &StreamFraming) -> Result<Self, String> {
        match framing {
            StreamFraming::Delimiter(delimiter) => delimiter.bytes().map(Self::Delimiter),
            StreamFraming::Length(length) => length.check().map(|()| Self::Length(*length)),
        }
    }

    /// A frame as it goes over the wire.
    pub(super) fn encode(&self, body: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Delimiter(delimiter) => {
                // A body whose end and the delimiter's beginning make another delimiter would be cut too early as well.
                let whole = [body, delimiter].concat();
                if find(&whole, delimiter) == Some(body.len()) {
                    Ok(whole)
                } else {
                    Err(
                        "the body has the delimiter in it: the other side would see two frames; use framing length"
                            .into(),
                    )
                }
            }
            Self::Length(length) => {
                let count = u32::try_from(body.len())
                    .ok()
                    .filter(|count| *count <= largest_length(*length));
                let count = count.ok_or_else(|| {
                    let (bytes, most) = (length.bytes, largest_length(*length));
                    format!(
                        "the body has {} bytes; a length of {bytes} bytes allows {most}",
                        body.len()
                    )
                })?;
                Ok([write_prefix(*length, count).as_slice(), body].concat())
            }
        }
    }
}

/// The greatest number that a prefix can say.
const fn largest_length(prefix: LengthPrefix) -> u32 {
    match prefix.bytes {
        1 => 0xff,
        2 => 0xffff,
        _ => u32::MAX,
    }
}

fn write_prefix(prefix: LengthPrefix, count: u32) -> Vec<u8> {
    let size = usize::from(prefix.bytes).min(4);
    match prefix.order {
        ByteOrder::Big => count.to_be_bytes().into_iter().skip(4 - size).collect(),
        ByteOrder::Little => count.to_le_bytes().into_iter().take(size).collect(),
    }
}

fn read_prefix(prefix: LengthPrefix, bytes: &[u8]) -> Option<usize> {
    let number = bytes.get(..usize::from(prefix.bytes))?;
    let add = |sum: usize, byte: &u8| (sum << 8) | usize::from(*byte);
    Some(match prefix.order {
        ByteOrder::Big => number.iter().fold(0, add),
        ByteOrder::Little => number.iter().rev().fold(0, add),
    })
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Why a stream has no more frames.
#[derive(Debug, thiserror::Error)]
pub(super) enum FramingError {
    /// A frame is too long.
    #[error("a frame has more than {max} bytes, the most that max_frame allows")]
    TooLong { max: usize },
    /// A browser speaks here.
    #[error("it begins with a request of HTTP, as a browser sends it: use http_in for HTTP")]
    HttpRequest,
    /// The stream ended within a frame.
    #[error("it ended within a frame, after {bytes} bytes of it")]
    Unfinished { bytes: usize },
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The frames of a stream.
#[derive(Debug)]
pub(super) struct FrameReader {
    rule: FrameFormat,
    max: usize,
    buffer: BytesMut,
    /// How much of the buffer is known not to hold the beginning of a delimiter.
    seen: usize,
    /// Whether the stream may turn out to be a request of HTTP, and must not be one.
    may_be_http: bool,
}

impl FrameReader {
    pub(super) fn new(rule: FrameFormat, max: usize) -> Self {
        Self {
            rule,
            max,
            buffer: BytesMut::new(),
            seen: 0,
            may_be_http: false,
        }
    }

    /// The same, which refuses a stream that begins with a request of HTTP.
    pub(super) fn refusing_http(self) -> Self {
        Self {
            may_be_http: true,
            ..self
        }
    }

    /// The next frame; none where the stream has ended after a frame.
    pub(super) async fn read(&mut self, from: &mut (impl AsyncRead + Unpin)) -> Result<Option<Vec<u8>>, FramingError> {
        loop {
            if let Some(frame) = self.next()? {
                return Ok(Some(frame));
            }
            self.buffer.reserve(READ);
            if from.read_buf(&mut self.buffer).await? == 0 {
                return match self.buffer.len() {
                    0 => Ok(None),
                    bytes => Err(FramingError::Unfinished { bytes }),
                };
            }
        }
    }

    /// Frames that have arrived, at least one and [`TOGETHER`] at most; none where the stream has ended after a frame. May be dropped
    /// while it waits: no byte is lost.
    pub(super) async fn read_all(&mut self, from: &mut (impl AsyncRead + Unpin)) -> Result<Vec<Vec<u8>>, FramingError> {
        let mut arrived = Vec::from_iter(self.read(from).await?);
        if !arrived.is_empty() {
            arrived.append(&mut self.buffered_frames());
        }
        Ok(arrived)
    }

    /// Frames that have arrived, fewer than [`TOGETHER`]. What is wrong with the next one is told by the next read.
    pub(super) fn buffered_frames(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.next().ok().flatten())
            .take(TOGETHER - 1)
            .collect()
    }

    /// A frame that has arrived whole.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, FramingError> {
        let max = self.max;
        let begins = if self.may_be_http {
            StreamBeginning::of(&self.buffer)
        } else {
            StreamBeginning::Other
        };
        if begins == StreamBeginning::Request {
            return Err(FramingError::HttpRequest);
        }
        let (skip, size, edge) = match &self.rule {
            FrameFormat::Delimiter(delimiter) => {
                let unseen = self.buffer.get(self.seen..).unwrap_or_default();
                let Some(at) = find(unseen, delimiter) else {
                    self.seen = (self.buffer.len() + 1).saturating_sub(delimiter.len());
                    let is_long = self.seen > max;
                    return if is_long {
                        Err(FramingError::TooLong { max })
                    } else {
                        Ok(None)
                    };
                };
                (0, self.seen + at, delimiter.len())
            }
            FrameFormat::Length(length) => match read_prefix(*length, &self.buffer) {
                Some(size) => (usize::from(length.bytes), size, 0),
                None => return Ok(None),
            },
        };
        if size > max && begins == StreamBeginning::LikeRequest {
            return Err(FramingError::HttpRequest);
        }
        if size > max {
            return Err(FramingError::TooLong { max });
        }
        if self.buffer.len() < skip + size + edge {
            return Ok(None);
        }
        // A frame is not cut from what may become a request with the next read.
        if begins == StreamBeginning::LikeRequest {
            return Err(FramingError::HttpRequest);
        }
        self.may_be_http = false;
        self.buffer.advance(skip);
        let frame = self.buffer.split_to(size).to_vec();
        self.buffer.advance(edge);
        self.seen = 0;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;

    use super::*;

    fn rule(framing: &str) -> Result<FrameFormat, String> {
        FrameFormat::of(&serde_json::from_str(framing).unwrap())
    }

    fn rules() -> Vec<FrameFormat> {
        [
            r#"{"delimiter": "\n"}"#,
            r#"{"delimiter": "\\r\\n"}"#,
            r#"{"delimiter": "aab\\xff"}"#,
            r#"{"length": {"bytes": 1}}"#,
            r#"{"length": {"bytes": 2, "order": "little"}}"#,
            r#"{"length": {"bytes": 4, "order": "big"}}"#,
        ]
        .map(|framing| rule(framing).unwrap())
        .to_vec()
    }

    /// Feeds a stream in pieces and gives back its frames and what ended it.
    fn frames(rule: &FrameFormat, max: usize, stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<FramingError>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut near, mut far) = tokio::io::duplex(piece.max(1));
            let stream = stream.to_vec();
            let send = tokio::spawn(async move {
                // A reader that gave up reads no more.
                tokio::io::AsyncWriteExt::write_all(&mut near, &stream).await.ok();
            });
            let (mut frames, mut all) = (FrameReader::new(rule.clone(), max), Vec::new());
            let end = loop {
                match frames.read(&mut far).await {
                    Ok(Some(frame)) => all.push(frame),
                    Ok(None) => break None,
                    Err(broken) => break Some(broken),
                }
            };
            drop(far);
            send.await.unwrap();
            (all, end)
        })
    }

    proptest! {
        #[test]
        fn frames_come_back_whatever_the_pieces_they_arrive_in(
            bodies in proptest::collection::vec(proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'\r'), any::<u8>()], 0..40), 0..8),
            piece in 1usize..50,
        ) {
            for rule in rules() {
                let sent: Vec<&Vec<u8>> = bodies.iter().filter(|body| rule.encode(body).is_ok()).collect();
                let stream: Vec<u8> = sent.iter().flat_map(|body| rule.encode(body).unwrap()).collect();
                let (got, end) = frames(&rule, 40, &stream, piece);
                prop_assert_eq!(got.iter().collect::<Vec<_>>(), sent);
                prop_assert!(end.is_none());
            }
        }

        #[test]
        fn any_bytes_end_in_frames_within_the_limit_or_a_reason(stream in proptest::collection::vec(any::<u8>(), 0..300), max in 1usize..40) {
            for rule in rules() {
                let (got, _) = frames(&rule, max, &stream, 7);
                prop_assert!(got.iter().all(|frame| frame.len() <= max));
            }
        }
    }

    /// Reads a stream that must be no request of HTTP.
    async fn guarded(rule: &FrameFormat, stream: &[u8]) -> (Vec<Vec<u8>>, Option<FramingError>) {
        let (mut reader, mut all) = (FrameReader::new(rule.clone(), 1 << 20).refusing_http(), Vec::new());
        let mut stream = stream;
        loop {
            match reader.read(&mut stream).await {
                Ok(Some(frame)) => all.push(frame),
                Ok(None) => return (all, None),
                Err(broken) => return (all, Some(broken)),
            }
        }
    }

    #[tokio::test]
    async fn a_request_of_a_browser_is_no_frame_in_any_framing() {
        let mut rules = rules();
        let more = [";", "/", "T /", "\\r\\n\\r\\n", " "]
            .map(|delimiter| rule(&format!("{{\"delimiter\": \"{delimiter}\"}}")).unwrap());
        rules.extend(more);
        let long = format!(
            "GET /{}{} HTTP/1.1\r\nHost: a\r\n\r\n",
            ";aab\u{1}".repeat(20),
            "x".repeat(300_000)
        );
        for request in ["POST /a;b/c HTTP/1.1\r\nHost: a\r\n\r\n{};\n", &long] {
            let whole = [request.as_bytes(), &[b'x'; 100_000]].concat();
            for rule in &rules {
                let (frames, end) = guarded(rule, &whole).await;
                assert!(
                    frames.is_empty() && matches!(end, Some(FramingError::HttpRequest)),
                    "{rule:?} {end:?}"
                );
            }
        }
    }

    #[tokio::test]
    async fn what_is_no_request_passes_and_so_does_one_that_comes_later() {
        for stream in ["GET /tag 1\n", "GET\n", "POST\n/ HTTP/1.1\n", "hello\nGET / HTTP/1.1\n"] {
            let (frames, end) = guarded(&rules()[0], stream.as_bytes()).await;
            assert_eq!(frames.join(&b'\n'), stream.trim_end().as_bytes(), "{stream}");
            assert!(end.is_none());
        }
    }

    #[test]
    fn a_frame_that_is_too_long_or_cut_off_is_a_reason() {
        for rule in rules() {
            let stream = [rule.encode(&[b'x'; 10]).unwrap(), rule.encode(&[b'x'; 11]).unwrap()].concat();
            let (got, end) = frames(&rule, 10, &stream, 5);
            assert!(
                got.len() == 1 && matches!(end, Some(FramingError::TooLong { max: 10 })),
                "{rule:?}"
            );
            let (got, end) = frames(&rule, 11, &stream[..stream.len() - 1], 64);
            assert!(
                got.len() == 1 && matches!(end, Some(FramingError::Unfinished { .. })),
                "{rule:?} {end:?}"
            );
        }
        // The end of a frame that never comes is not waited for.
        let (_, end) = frames(&rules()[0], 10, &[b'x'; 100_000], 64);
        assert!(matches!(end, Some(FramingError::TooLong { .. })));
    }

    #[test]
    fn what_the_other_side_would_not_understand_is_not_sent() {
        let all = rules();
        assert!(all[0].encode(b"a\nb").unwrap_err().contains("two frames"));
        assert!(all[1].encode(b"a\r").is_ok());
        assert!(rule(r#"{"delimiter": "--"}"#).unwrap().encode(b"a-").is_err());
        assert!(all[3].encode(&[0; 256]).unwrap_err().contains("allows 255"));
        for (bad, says) in [
            (r#"{"delimiter": ""}"#, "1 to 64 bytes"),
            (r#"{"delimiter": "\\q"}"#, "\\q stands for nothing"),
            (r#"{"delimiter": "\\x1"}"#, "two digits"),
            (r#"{"delimiter": "\\x+1"}"#, "is not a byte"),
            (r#"{"delimiter": "\\"}"#, "single"),
            (r#"{"length": {"bytes": 3}}"#, "1, 2 or 4"),
        ] {
            assert!(rule(bad).unwrap_err().contains(says), "{bad}");
        }
    }
}
