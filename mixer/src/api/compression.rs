//! Compression of bodies by gzip or zstd (`Accept-Encoding`).
//!
//! # Invariants
//!
//! - A body of less than [`LEAST`] bytes goes as it is, and so do events: each must be there at once.
//! - A body that breaks off has no proper end of its packing either.
//! - Whether packed or not, an answer says that it depends on `Accept-Encoding` (`Vary`).

use std::io::{self, Write as _};

use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use flate2::write::GzEncoder;
use futures::StreamExt as _;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, VARY};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::content_negotiation::weighed;
use super::tail::is_events;

/// Less is not worth it.
const LEAST: usize = 1 << 10;
const ZSTD_LEVEL: i32 = 1;
/// The window of zstd, 2^17 bytes: it keeps about twice as much for each answer that is being sent.
const ZSTD_WINDOW: u32 = 17;

/// Packs the body of the answer if the client accepts it.
pub(super) async fn compress_response(request: Request, next: Next) -> Response {
    let packing = ResponseCompression::accepted(request.headers());
    let has_body = request.method() != Method::HEAD;
    let mut response = next.run(request).await;
    if is_events(response.headers()) || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    response.headers_mut().append(VARY, HeaderValue::from(ACCEPT_ENCODING));
    match packing {
        Some(packing) if has_body && response.status() != StatusCode::NOT_MODIFIED => pack(response, packing).await,
        _ => response,
    }
}

async fn pack(response: Response, packing: ResponseCompression) -> Response {
    let (mut parts, body) = response.into_parts();
    let mut rest = body.into_data_stream();
    let (mut begun, mut size) = (Vec::new(), 0);
    while size < LEAST {
        let Some(piece) = rest.next().await else {
            let whole = begun.into_iter().flatten().flatten().collect::<Vec<u8>>();
            return Response::from_parts(parts, Body::from(whole));
        };
        let is_whole = piece.is_ok();
        size += piece.as_ref().map_or(0, Bytes::len);
        begun.push(piece);
        if !is_whole {
            break;
        }
    }
    let Ok(packer) = packing.packer() else {
        let pieces = futures::stream::iter(begun).chain(rest);
        return Response::from_parts(parts, Body::from_stream(pieces));
    };
    parts.headers.remove(CONTENT_LENGTH);
    parts
        .headers
        .insert(CONTENT_ENCODING, HeaderValue::from_static(packing.name()));
    let packer = Some(packer);
    let begun = begun.into_iter();
    let body = futures::stream::unfold(CompressionStream { begun, rest, packer }, |mut packed| async move {
        let piece = packed.next().await?;
        Some((piece, packed))
    });
    Response::from_parts(parts, Body::from_stream(body))
}

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseCompression {
    Zstd,
    Gzip,
}

impl ResponseCompression {
    /// The packing that a client likes best; none if it likes bodies as they are better.
    fn accepted(headers: &HeaderMap) -> Option<Self> {
        let ranges = weighed(headers, &ACCEPT_ENCODING);
        let weight = |name: &str| {
            let of = |name: &str| ranges.iter().find(|(range, _)| range == name);
            of(name).map(|(_, weight)| *weight)
        };
        let weight_of = |packing: Self| weight(packing.name()).or_else(|| weight("*")).unwrap_or(0.0);
        let (zstd, gzip) = (weight_of(Self::Zstd), weight_of(Self::Gzip));
        let (best, weight_of_best) = if zstd >= gzip {
            (Self::Zstd, zstd)
        } else {
            (Self::Gzip, gzip)
        };
        (weight_of_best > 0.0 && weight_of_best >= weight("identity").unwrap_or(0.0)).then_some(best)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    fn packer(self) -> io::Result<BodyCompressor> {
        match self {
            Self::Zstd => {
                let mut packer = zstd::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
                packer.window_log(ZSTD_WINDOW)?;
                Ok(BodyCompressor::Zstd(packer))
            }
            Self::Gzip => Ok(BodyCompressor::Gzip(GzEncoder::new(
                Vec::new(),
                flate2::Compression::fast(),
            ))),
        }
    }
}

enum BodyCompressor {
    Zstd(zstd::Encoder<'static, Vec<u8>>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl BodyCompressor {
    /// What there is after more bytes; the packer keeps some back.
    fn add(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let out = match self {
            Self::Zstd(packer) => {
                packer.write_all(bytes)?;
                packer.get_mut()
            }
            Self::Gzip(packer) => {
                packer.write_all(bytes)?;
                packer.get_mut()
            }
        };
        Ok(std::mem::take(out))
    }

    /// What it kept back, and the end.
    fn end(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Zstd(packer) => packer.finish(),
            Self::Gzip(packer) => packer.finish(),
        }
    }
}

/// What is left of a body to be packed.
struct CompressionStream {
    begun: std::vec::IntoIter<Result<Bytes, axum::Error>>,
    rest: BodyDataStream,
    /// None after the end.
    packer: Option<BodyCompressor>,
}

impl CompressionStream {
    async fn next(&mut self) -> Option<Result<Vec<u8>, axum::Error>> {
        loop {
            let packer = self.packer.as_mut()?;
            let piece = match self.begun.next() {
                Some(piece) => Some(piece),
                None => self.rest.next().await,
            };
            let packed = match piece {
                Some(Ok(bytes)) => packer.add(&bytes),
                Some(Err(error)) => {
                    self.packer = None;
                    return Some(Err(error));
                }
                None => self.packer.take()?.end(),
            };
            match packed {
                Ok(bytes) if bytes.is_empty() => {}
                packed => return Some(packed.map_err(axum::Error::new)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use axum::Router;
    use axum::middleware::from_fn;
    use axum::response::IntoResponse;
    use axum::routing::get;
    use http::header::CONTENT_TYPE;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    type Piece = Result<Bytes, io::Error>;

    /// The answer to who accepts these packings, of a route with these pieces.
    async fn answer(accept: &str, kind: &'static str, pieces: Vec<Piece>) -> Response {
        let pieces = std::sync::Arc::new(parking(pieces));
        let route = get(move || {
            let pieces = pieces.lock().unwrap().take().unwrap();
            async move { ([(CONTENT_TYPE, kind)], Body::from_stream(futures::stream::iter(pieces))).into_response() }
        });
        let router = Router::new().route("/", route).layer(from_fn(compress_response));
        let request = Request::get("/").header(ACCEPT_ENCODING, accept).body(Body::empty());
        router.oneshot(request.unwrap()).await.unwrap()
    }

    fn parking(pieces: Vec<Piece>) -> std::sync::Mutex<Option<Vec<Piece>>> {
        std::sync::Mutex::new(Some(pieces))
    }

    fn lines(count: usize) -> (Vec<Piece>, Vec<u8>) {
        let lines: Vec<Bytes> = (0..count).map(|n| format!("line {n} of many\n").into()).collect();
        let whole = lines.concat();
        (lines.into_iter().map(Ok).collect(), whole)
    }

    fn unpacked(name: &str, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut whole = Vec::new();
        match name {
            "gzip" => io::copy(&mut flate2::read::GzDecoder::new(bytes), &mut whole)?,
            _ => io::copy(&mut zstd::Decoder::new(bytes)?, &mut whole)?,
        };
        Ok(whole)
    }

    #[tokio::test]
    async fn a_packed_body_is_the_body() {
        for name in ["gzip", "zstd"] {
            for count in [70, 100_000] {
                let (pieces, whole) = lines(count);
                let response = answer(name, "text/csv", pieces).await;
                assert_eq!(response.headers()[CONTENT_ENCODING], name);
                assert_eq!(response.headers()[VARY], "accept-encoding");
                let packed = response.into_body().collect().await.unwrap().to_bytes();
                assert!(packed.len() < whole.len());
                assert_eq!(unpacked(name, &packed).unwrap(), whole, "{name}");
            }
        }
    }

    #[tokio::test]
    async fn small_bodies_and_events_go_as_they_are() {
        for (kind, count) in [("text/csv", 5), ("text/csv", 0), ("text/event-stream", 1_000)] {
            let (pieces, whole) = lines(count);
            let response = answer("gzip, zstd", kind, pieces).await;
            assert!(!response.headers().contains_key(CONTENT_ENCODING), "{kind} {count}");
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), whole);
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_breaks_off_when_it_is_packed_too() {
        for count in [3, 1_000] {
            let (mut pieces, _) = lines(count);
            pieces.push(Err(io::Error::other("gone")));
            let response = answer("zstd", "text/csv", pieces).await;
            assert!(response.into_body().collect().await.is_err(), "{count}");
        }
    }

    #[test]
    fn the_packing_is_the_one_that_the_client_likes_best() {
        for (accept, packing) in [
            ("gzip", Some(ResponseCompression::Gzip)),
            ("gzip, deflate, br, zstd", Some(ResponseCompression::Zstd)),
            ("zstd;q=0.5, gzip;q=0.8", Some(ResponseCompression::Gzip)),
            ("*", Some(ResponseCompression::Zstd)),
            ("zstd;q=0, *", Some(ResponseCompression::Gzip)),
            ("identity, gzip;q=0.5", None),
            ("br", None),
            ("", None),
            ("gzip;q=0", None),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, accept.parse().unwrap())]);
            assert_eq!(ResponseCompression::accepted(&headers), packing, "{accept}");
        }
    }
}
