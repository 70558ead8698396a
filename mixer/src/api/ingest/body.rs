//! A request's body: read and decompressed, bounded by itself and together with all others.
//!
//! # Invariants
//!
//! - Nothing is held that was not counted first, in the memory of all that is on its way to the store. Who waits for room waits
//!   only so long.
//! - A client holds half as much again as it has sent, and 8 KiB at first. One that has begun to send a body of the usual size has room
//!   for all of it, for many that are here in part would wait for each other; where it becomes slow it gives that back.
//! - A client that sends nothing for a while, or too slowly on the whole ([`SlowClientLimits`]), is sent away: it gives back what it holds.
//! - What a packed body becomes is counted as it is unpacked; what it says of itself is not believed.

use std::io::Read;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use chassis::write_timeout::MinimumRate;
use engine::{InboundMemory, InboundRoom};
use futures::StreamExt;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::Instant;

use crate::api::problem::ApiProblem;
use crate::api::server::SlowClientLimits;
use crate::quotas::CallerUsage;

/// The largest body, packed and unpacked.
pub(super) const MAX_BODY: usize = 64 << 20;
/// What a body's buffer has room for at least.
const FIRST: usize = 8 << 10;
/// A body that says it has at most so many bytes …
const USUAL: usize = 4 << 20;
/// … has room for all of them when so many are here …
const BEGUN: usize = 64 << 10;
/// … as long as the others come as fast as this, by so much on the whole.
const QUICK: SlowClientLimits = SlowClientLimits {
    silence: Duration::from_secs(1),
    byte_time: Duration::from_nanos(1_000_000_000 / (1 << 20)),
};
/// How much is unpacked at a time.
const STEP: usize = 256 << 10;
/// How long to wait for room.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest window of a zstd frame, as a power of two: the 8 MiB of RFC 9659.
const ZSTD_WINDOW: u32 = 23;

/// What a request takes of the memory that all share; given back when it is dropped.
#[derive(Debug)]
pub(super) struct IngestReservation {
    inbound: InboundRoom,
    /// What it takes of the part of its caller.
    own: Option<InboundRoom>,
    patience: Duration,
}

impl IngestReservation {
    pub(super) fn new(memory: &InboundMemory) -> Self {
        Self {
            inbound: memory.room(),
            own: None,
            patience: PATIENCE,
        }
    }

    /// The same for a body of a caller, who has a part of that memory.
    pub(super) fn of_caller(memory: &InboundMemory, usage: Option<&CallerUsage>) -> Self {
        Self {
            own: usage.map(|usage| usage.bodies(memory).room()),
            ..Self::new(memory)
        }
    }

    /// Takes room for so many bytes more.
    pub(super) async fn grow(&mut self, bytes: usize) -> Result<(), ApiProblem> {
        if let Some(own) = &mut self.own {
            let taken = tokio::time::timeout(self.patience, own.grow(bytes as u64)).await;
            let busy = "your earlier requests hold what one caller has of the memory for incoming rows, and nothing of this one is \
                        stored";
            taken.map_err(|_| ApiProblem::busy(busy))?;
        }
        let taken = tokio::time::timeout(self.patience, self.inbound.grow(bytes as u64)).await;
        let busy = "earlier requests hold the memory for incoming rows, and nothing of this one is stored";
        taken.map_err(|_| ApiProblem::busy(busy))
    }

    /// How many it has taken.
    pub(super) const fn bytes(&self) -> u64 {
        self.inbound.bytes()
    }

    /// Gives back what it has beyond so many bytes.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        for room in self.own.iter_mut().chain([&mut self.inbound]) {
            room.shrink_to(bytes as u64);
        }
    }

    /// Takes room for so many bytes more in a buffer, and some beyond them, if there may be more than them: `most` altogether.
    async fn reserve(&mut self, buffer: &mut Vec<u8>, bytes: usize, most: usize) -> Result<(), ApiProblem> {
        let (held, needed) = (buffer.capacity(), buffer.len() + bytes);
        if needed > held {
            let wanted = (needed + needed / 2).max(FIRST).min(most).max(needed);
            self.grow(wanted - held).await?;
            buffer.reserve_exact(wanted - buffer.len());
        }
        Ok(())
    }

    /// Gives back what a buffer spares, which is all that there is in this room.
    fn fit(&mut self, buffer: &mut Vec<u8>) {
        buffer.shrink_to_fit();
        self.shrink_to(buffer.capacity());
    }
}

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestCompression {
    None,
    Gzip,
    Zstd,
    /// One block of snappy, not the frames that files have.
    Snappy,
}

/// What `Content-Encoding` says.
pub(super) fn packing(headers: &HeaderMap) -> Result<RequestCompression, ApiProblem> {
    let mut said = headers.get_all(CONTENT_ENCODING).iter();
    let (first, second) = (said.next(), said.next());
    let name = first.map(|value| value.to_str().unwrap_or("?").trim().to_ascii_lowercase());
    match name.as_deref() {
        _ if second.is_some() => Err(unknown("more than one")),
        None | Some("" | "identity") => Ok(RequestCompression::None),
        Some("gzip" | "x-gzip") => Ok(RequestCompression::Gzip),
        Some("zstd") => Ok(RequestCompression::Zstd),
        Some(other) => Err(unknown(other)),
    }
}

/// The same of a protocol whose protobuf always is a block of snappy, whether the header says it or is left out.
pub(super) fn snappy_packing(headers: &HeaderMap) -> Result<RequestCompression, ApiProblem> {
    let said = headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
    match said {
        None | Some(b"snappy") => Ok(RequestCompression::Snappy),
        Some(other) => {
            let name = String::from_utf8_lossy(other);
            let detail = format!("Content-Encoding {name:?} is not supported: send protobuf as a block of snappy");
            Err(ApiProblem::body(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
        }
    }
}

fn unknown(name: &str) -> ApiProblem {
    let detail = format!("Content-Encoding {name:?} is not supported: send gzip, zstd or none");
    ApiProblem::body(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
}

fn too_large() -> ApiProblem {
    let detail = format!("the body is larger than {MAX_BODY} bytes uncompressed: send several smaller ones");
    ApiProblem::body(StatusCode::PAYLOAD_TOO_LARGE, detail)
}

/// The body as it was meant, from how it comes.
pub(super) async fn receive(
    packing: RequestCompression,
    headers: &HeaderMap,
    body: Body,
    room: &mut IngestReservation,
) -> Result<Bytes, ApiProblem> {
    unpack(packing, read(headers, body, room).await?, room).await
}

/// The body as it came.
pub(super) async fn read(headers: &HeaderMap, body: Body, room: &mut IngestReservation) -> Result<Bytes, ApiProblem> {
    let said = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    if said.is_some_and(|said: usize| said > MAX_BODY) {
        return Err(too_large());
    }
    let mut chunks = body.into_data_stream();
    let mut read = Vec::new();
    let slow = SlowClientLimits::default();
    let (least, quick) = (MinimumRate::default(), MinimumRate::default());
    least.set(Some(slow.byte_time));
    quick.set(Some(QUICK.byte_time));
    // Of a usual body, as long as its client is quick.
    let mut all = said.filter(|said| *said <= USUAL);
    loop {
        let has_all = all.is_some_and(|all| all > BEGUN && read.capacity() >= all);
        let left = least.left(slow.silence);
        let wait = if has_all {
            quick.left(QUICK.silence).min(left)
        } else {
            left
        };
        let began = Instant::now();
        let next = tokio::time::timeout(wait, chunks.next()).await;
        // The wait for room is not the client's.
        let waited = began.elapsed();
        let Ok(next) = next else {
            if !has_all {
                return Err(ApiProblem::slow_body());
            }
            least.count(waited, 0);
            all = None;
            room.fit(&mut read);
            continue;
        };
        let Some(chunk) = next else {
            room.fit(&mut read);
            return Ok(read.into());
        };
        let chunk = chunk.map_err(|error| {
            let detail = format!("the body did not arrive completely: {error}");
            ApiProblem::body(StatusCode::BAD_REQUEST, detail)
        })?;
        least.count(waited, chunk.len());
        if has_all {
            quick.count(waited, chunk.len());
        }
        let length = read.len() + chunk.len();
        if length > MAX_BODY {
            return Err(too_large());
        }
        let more = all
            .filter(|_| length >= BEGUN)
            .map_or(0, |all| all.saturating_sub(read.len()));
        room.reserve(&mut read, chunk.len().max(more), said.unwrap_or(MAX_BODY))
            .await?;
        read.extend_from_slice(&chunk);
    }
}

/// The body as it was meant.
pub(super) async fn unpack(
    packing: RequestCompression,
    packed: Bytes,
    room: &mut IngestReservation,
) -> Result<Bytes, ApiProblem> {
    let bad = |error: std::io::Error| {
        ApiProblem::body(
            StatusCode::BAD_REQUEST,
            format!("the body cannot be decompressed: {error}"),
        )
    };
    let from = std::io::Cursor::new(packed);
    let mut reader: Box<dyn Read + Send> = match packing {
        RequestCompression::None => return Ok(from.into_inner()),
        RequestCompression::Snappy => return unpack_block(from.into_inner(), room).await,
        RequestCompression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(from)),
        RequestCompression::Zstd => {
            let mut reader = zstd::stream::read::Decoder::new(from).map_err(bad)?;
            reader.window_log_max(ZSTD_WINDOW).map_err(bad)?;
            room.grow(1 << ZSTD_WINDOW).await?;
            Box::new(reader)
        }
    };
    let mut unpacked = Vec::new();
    loop {
        room.reserve(&mut unpacked, STEP, MAX_BODY + STEP).await?;
        let read = reader
            .by_ref()
            .take(STEP as u64)
            .read_to_end(&mut unpacked)
            .map_err(bad)?;
        if unpacked.len() > MAX_BODY {
            return Err(too_large());
        }
        if read == 0 {
            drop(reader);
            room.fit(&mut unpacked);
            return Ok(unpacked.into());
        }
        tokio::task::yield_now().await;
    }
}

/// Unpacks a block of snappy, which says before how long it becomes: what no block could become is not believed.
async fn unpack_block(packed: Bytes, room: &mut IngestReservation) -> Result<Bytes, ApiProblem> {
    // A copy of 64 bytes takes three.
    const MOST: usize = 22;
    let bad = |error: &dyn std::fmt::Display| {
        let detail = format!("the body is no block of snappy: {error}");
        ApiProblem::body(StatusCode::BAD_REQUEST, detail)
    };
    let length = snap::raw::decompress_len(&packed).map_err(|error| bad(&error))?;
    if length > MAX_BODY {
        return Err(too_large());
    }
    if length > packed.len().saturating_mul(MOST) {
        let packed = packed.len();
        return Err(bad(&format_args!(
            "{packed} bytes cannot become the {length} that it says"
        )));
    }
    room.grow(length).await?;
    let mut unpacked = vec![0; length];
    let unpacking = snap::raw::Decoder::new().decompress(&packed, &mut unpacked);
    unpacking.map_err(|error| bad(&error))?;
    drop(packed);
    room.fit(&mut unpacked);
    Ok(unpacked.into())
}

#[cfg(test)]
mod tests;
