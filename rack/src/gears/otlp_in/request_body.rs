//! A request's body: read and unpacked, within its bounds.
//!
//! # Invariants
//!
//! - A body has at most [`MAX_BODY`] bytes, packed and unpacked, and [`BODY_TIMEOUT`] to arrive. What a packed one says of itself is not
//!   believed.
//! - Nothing is held that was not counted first ([`RequestRoom`]).

use std::fmt::Display;
use std::io::Read;
use std::time::Duration;

use axum::body::HttpBody;
use axum::http::header::CONTENT_ENCODING;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use protocols::grpc;

use super::export_refusal::ExportRefusal;
use super::request_room::RequestRoom;

/// The largest body.
pub(super) const MAX_BODY: usize = 16 << 20;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How much is unpacked at a time.
const STEP: usize = 256 << 10;
/// The largest window of a zstd frame, as a power of two: the 8 MiB of RFC 9659.
const ZSTD_WINDOW: u32 = 23;

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyPacking {
    Nothing,
    Gzip,
    Zstd,
}

impl BodyPacking {
    /// What the headers of a request say.
    pub(super) fn of(headers: &HeaderMap, is_grpc: bool) -> Result<Self, ExportRefusal> {
        let name = if is_grpc {
            grpc::ENCODING
        } else {
            CONTENT_ENCODING.as_str()
        };
        let said = headers.get(name).map(HeaderValue::as_bytes).unwrap_or_default();
        if said.is_empty() || said.eq_ignore_ascii_case(b"identity") {
            Ok(Self::Nothing)
        } else if said.eq_ignore_ascii_case(b"gzip") {
            Ok(Self::Gzip)
        } else if said.eq_ignore_ascii_case(b"zstd") {
            Ok(Self::Zstd)
        } else {
            let said = String::from_utf8_lossy(said);
            let detail = format!("{name} {said:?} is not supported: send gzip, zstd or nothing");
            Err(ExportRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
        }
    }
}

/// The body as it came. What is slow may be sent again: clients of OTLP drop what was answered 408.
pub(super) async fn read<B>(body: B, room: &mut RequestRoom) -> Result<Bytes, ExportRefusal>
where
    B: HttpBody<Data = Bytes, Error: Display> + Unpin,
{
    let read = tokio::time::timeout(BODY_TIMEOUT, read_all(body, room)).await;
    read.unwrap_or_else(|_| Err(ExportRefusal::busy("the body did not arrive in time")))
}

async fn read_all<B>(mut body: B, room: &mut RequestRoom) -> Result<Bytes, ExportRefusal>
where
    B: HttpBody<Data = Bytes, Error: Display> + Unpin,
{
    let mut read: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let broken = |error: B::Error| ExportRefusal::malformed(format!("the body did not arrive completely: {error}"));
        let Ok(piece) = frame.map_err(broken)?.into_data() else {
            continue;
        };
        if read.len() + piece.len() > MAX_BODY {
            return Err(too_large());
        }
        // A buffer that grows has up to twice what is in it.
        room.grow(2 * piece.len())?;
        read.extend_from_slice(&piece);
    }
    Ok(read.into())
}

/// The message of a body that came over gRPC, and how that is packed.
pub(super) fn grpc_message(packing: BodyPacking, framed: &Bytes) -> Result<(BodyPacking, Bytes), ExportRefusal> {
    let found = grpc::message(framed).map_err(|error| ExportRefusal::malformed(error.to_string()))?;
    match packing {
        _ if !found.is_packed => Ok((BodyPacking::Nothing, found.message)),
        BodyPacking::Nothing => Err(ExportRefusal::malformed(
            "the message is packed, and grpc-encoding does not say how",
        )),
        said => Ok((said, found.message)),
    }
}

/// The body as it was meant.
pub(super) fn unpack(packing: BodyPacking, packed: Bytes, room: &mut RequestRoom) -> Result<Bytes, ExportRefusal> {
    let bad = |error: std::io::Error| ExportRefusal::malformed(format!("the body cannot be decompressed: {error}"));
    let from = std::io::Cursor::new(packed);
    let mut reader: Box<dyn Read> = match packing {
        BodyPacking::Nothing => return Ok(from.into_inner()),
        BodyPacking::Gzip => Box::new(MultiGzDecoder::new(from)),
        BodyPacking::Zstd => {
            let mut reader = zstd::stream::read::Decoder::new(from).map_err(bad)?;
            reader.window_log_max(ZSTD_WINDOW).map_err(bad)?;
            room.grow(1 << ZSTD_WINDOW)?;
            Box::new(reader)
        }
    };
    let mut unpacked = Vec::new();
    loop {
        room.grow(2 * STEP)?;
        let step = reader.by_ref().take(STEP as u64).read_to_end(&mut unpacked);
        let step = step.map_err(bad)?;
        if unpacked.len() > MAX_BODY {
            return Err(too_large());
        }
        if step == 0 {
            return Ok(unpacked.into());
        }
    }
}

fn too_large() -> ExportRefusal {
    let detail = format!("the request has more than {MAX_BODY} bytes unpacked: send several smaller ones");
    ExportRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::convert::Infallible;

    use axum::body::Body;
    use futures::{StreamExt, stream};

    use super::super::request_room::RequestMemory;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_in_time_may_be_sent_again() {
        let begun = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"{"))]);
        let whole = Body::from_stream(begun.clone());
        assert_eq!(read(whole, &mut RequestMemory::new().room()).await.unwrap(), "{");
        let slow = Body::from_stream(begun.chain(stream::pending()));
        let refused = read(slow, &mut RequestMemory::new().room()).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.retry.is_some(), "{refused:?}");
    }

    #[test]
    fn a_packed_body_is_unpacked_within_its_bounds() {
        let unpacked = |packed: Vec<u8>| unpack(BodyPacking::Zstd, packed.into(), &mut RequestMemory::new().room());
        let packed = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
        assert_eq!(unpacked(packed(b"text")).unwrap(), "text");
        assert_eq!(
            unpacked(packed(&vec![b' '; MAX_BODY])).unwrap().len(),
            MAX_BODY,
            "the largest"
        );
        let large = unpacked(packed(&vec![b' '; MAX_BODY + 1])).unwrap_err();
        assert_eq!(large.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(unpacked(b"text".to_vec()).unwrap_err().status, StatusCode::BAD_REQUEST);
        let mut wide = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        wide.window_log(ZSTD_WINDOW + 1).unwrap();
        std::io::Write::write_all(&mut wide, b"text").unwrap();
        let wide = unpacked(wide.finish().unwrap()).unwrap_err();
        assert_eq!(wide.status, StatusCode::BAD_REQUEST, "{wide:?}");
    }
}
