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
use http::{HeaderMap, StatusCode};
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::Write;

    use futures::FutureExt;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    async fn unpacked(packing: RequestCompression, packed: Vec<u8>, room: u64) -> Result<Bytes, ApiProblem> {
        unpack(
            packing,
            packed.into(),
            &mut IngestReservation::new(&InboundMemory::new(room)),
        )
        .await
    }

    #[tokio::test]
    async fn bodies_are_unpacked_and_bombs_and_garbage_are_refused() {
        let text = b"some telemetry, ".repeat(100_000);
        let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
        let twice = [gzip(&text), gzip(&text)].concat();
        for (packing, packed, copies) in [
            (RequestCompression::None, text.clone(), 1),
            (RequestCompression::Gzip, gzip(&text), 1),
            (RequestCompression::Gzip, twice, 2),
            (RequestCompression::Zstd, zstd(&text), 1),
            (RequestCompression::Zstd, [zstd(&text), zstd(&text)].concat(), 2),
        ] {
            let body = unpacked(packing, packed, 256 << 20).await.unwrap();
            assert_eq!(body.len(), text.len() * copies, "{packing:?}");
        }
        let bomb = vec![b' '; MAX_BODY + 1];
        for (packing, packed, says) in [
            (RequestCompression::Gzip, gzip(&bomb), "larger than"),
            (RequestCompression::Zstd, zstd(&bomb), "larger than"),
            (RequestCompression::Gzip, b"garbage".to_vec(), "decompressed"),
            (RequestCompression::Zstd, b"garbage".to_vec(), "decompressed"),
            (RequestCompression::Gzip, gzip(&text)[..500].to_vec(), "decompressed"),
            (RequestCompression::Zstd, zstd(&text)[..100].to_vec(), "decompressed"),
        ] {
            let refused = format!("{:?}", unpacked(packing, packed, 256 << 20).await.unwrap_err());
            assert!(refused.contains(says), "{packing:?}: {refused}");
        }
    }

    #[tokio::test]
    async fn a_zstd_frame_that_wants_a_huge_window_is_refused() {
        let mut writer = zstd::Encoder::new(Vec::new(), 1).unwrap();
        writer.window_log(27).unwrap();
        writer.write_all(b"small").unwrap();
        let frame = writer.finish().unwrap();
        assert!(unpacked(RequestCompression::Zstd, frame, 256 << 20).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_below_the_minimum_rate_times_out() {
        let all = InboundMemory::new(1 << 20);
        let sent = async |chunk: usize, count: u64| {
            let chunks = futures::stream::iter(0..count).then(move |_| async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok::<_, std::convert::Infallible>(Bytes::from(vec![7; chunk]))
            });
            read(
                &HeaderMap::new(),
                Body::from_stream(chunks),
                &mut IngestReservation::new(&all),
            )
            .await
        };
        assert_eq!(sent(64 << 10, 100).await.unwrap().len(), 100 << 16);
        assert_eq!(sent(32 << 10, 50).await.unwrap().len(), 50 << 15);
        for chunk in [1, 32 << 10] {
            let began = Instant::now();
            let slow = format!("{:?}", sent(chunk, 100).await.unwrap_err());
            assert!(slow.contains("slow_request"), "{slow}");
            assert!(
                began.elapsed() <= 2 * SlowClientLimits::default().silence,
                "{:?}",
                began.elapsed()
            );
        }
        let silent = Body::from_stream(futures::stream::pending::<Result<Bytes, std::convert::Infallible>>());
        assert!(
            read(&HeaderMap::new(), silent, &mut IngestReservation::new(&all))
                .await
                .is_err()
        );
        assert_eq!(all.held(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_hold_little_more_than_they_have_sent_whatever_they_say_that_they_will() {
        let all = InboundMemory::new(16 << 20);
        let headers = HeaderMap::from_iter([(CONTENT_LENGTH, "4194304".parse().unwrap())]);
        let sent = async |chunks: usize, bytes: usize| {
            let chunks = (0..chunks).map(|_| Ok::<_, std::convert::Infallible>(Bytes::from(vec![7; bytes])));
            let body = futures::stream::iter(chunks.collect::<Vec<_>>()).chain(futures::stream::pending());
            read(&headers, Body::from_stream(body), &mut IngestReservation::new(&all)).await
        };
        let mut one_byte: Vec<_> = (0..9).map(|_| Box::pin(sent(1, 1))).collect();
        for client in &mut one_byte {
            assert!(client.now_or_never().is_none());
        }
        let few = 9 * FIRST as u64;
        assert!(all.held() <= few, "{} bytes", all.held());
        let mut many = Box::pin(sent(100, 10_000));
        assert!((&mut many).now_or_never().is_none());
        assert!(all.held() >= USUAL as u64, "it has room for all of it");
        let stalls = tokio::time::timeout(2 * QUICK.silence, &mut many).await;
        assert!(stalls.is_err(), "it may go on");
        assert!(all.held() <= 1_000_000 + few, "{} bytes", all.held());
        drop(many);
        assert!(all.held() <= few, "{} bytes", all.held());
    }

    #[tokio::test]
    async fn a_body_has_its_bytes_in_the_end_packed_or_not() {
        let text = b"some telemetry, ".repeat(100_000);
        for (packing, sent) in [
            (RequestCompression::None, text.clone()),
            (RequestCompression::Gzip, gzip(&text)),
        ] {
            let all = InboundMemory::new(64 << 20);
            let mut room = IngestReservation::new(&all);
            let chunks: Vec<_> = sent
                .chunks(10_000)
                .map(|chunk| Ok::<_, std::convert::Infallible>(Bytes::copy_from_slice(chunk)))
                .collect();
            let body = Body::from_stream(futures::stream::iter(chunks));
            let packed = read(&HeaderMap::new(), body, &mut room).await.unwrap();
            assert_eq!(all.held(), sent.len() as u64, "{packing:?}");
            let body = unpack(packing, packed, &mut room).await.unwrap();
            assert_eq!(
                (body.len() as u64, all.held()),
                (text.len() as u64, text.len() as u64),
                "{packing:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_request_that_finds_no_room_is_sent_away_after_a_while_and_room_comes_back() {
        let all = InboundMemory::new(1 << 20);
        let (mut first, mut second, mut third) = (
            IngestReservation::new(&all),
            IngestReservation::new(&all),
            IngestReservation::new(&all),
        );
        first.grow(1 << 20).await.unwrap();
        second.grow(1).await.unwrap();
        third.patience = Duration::from_millis(10);
        let busy = format!("{:?}", third.grow(1).await.unwrap_err());
        assert!(busy.contains("hold the memory"), "{busy}");
        drop(first);
        IngestReservation::new(&all).grow(1 << 20).await.unwrap();
    }
}
