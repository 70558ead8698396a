//! A request's body: read and unpacked, within its bounds.
//!
//! # Invariants
//!
//! - A body has at most [`MAX_BODY`] bytes, packed and unpacked, and [`BODY_TIMEOUT`] to arrive. What a packed one says of itself is not
//!   believed.
//! - Nothing is held that was not counted first ([`RequestRoom`]).

use std::io::Read;
use std::time::Duration;

use axum::http::header::CONTENT_ENCODING;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use bytes::Bytes;
use chassis::lingering_close::TrackedBody;
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use protocols::grpc;

use super::export_refusal::ExportRefusal;
use super::request_room::RequestRoom;

/// The largest body.
pub(super) const MAX_BODY: usize = 16 << 20;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How much is unpacked at a time.
const STEP: usize = 256 << 10;

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyPacking {
    Nothing,
    Gzip,
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
        } else {
            let said = String::from_utf8_lossy(said);
            let detail = format!("{name} {said:?} is not supported: send gzip or nothing");
            Err(ExportRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
        }
    }
}

/// The body as it came.
pub(super) async fn read(body: TrackedBody<Incoming>, room: &mut RequestRoom) -> Result<Bytes, ExportRefusal> {
    let read = tokio::time::timeout(BODY_TIMEOUT, read_all(body, room)).await;
    read.unwrap_or_else(|_| {
        Err(ExportRefusal::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time",
        ))
    })
}

async fn read_all(mut body: TrackedBody<Incoming>, room: &mut RequestRoom) -> Result<Bytes, ExportRefusal> {
    let mut read: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let broken =
            |error: hyper::Error| ExportRefusal::malformed(format!("the body did not arrive completely: {error}"));
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
        BodyPacking::Gzip => Ok((packing, found.message)),
    }
}

/// The body as it was meant.
pub(super) fn unpack(packing: BodyPacking, packed: Bytes, room: &mut RequestRoom) -> Result<Bytes, ExportRefusal> {
    if packing == BodyPacking::Nothing {
        return Ok(packed);
    }
    let (mut reader, mut unpacked) = (MultiGzDecoder::new(&packed[..]), Vec::new());
    loop {
        room.grow(2 * STEP)?;
        let step = reader.by_ref().take(STEP as u64).read_to_end(&mut unpacked);
        let step =
            step.map_err(|error| ExportRefusal::malformed(format!("the body cannot be decompressed: {error}")))?;
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
