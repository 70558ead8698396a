//! Compression of response bodies by gzip or zstd (`Accept-Encoding`).
//!
//! # Invariants
//!
//! - A body that is known to be shorter than [`MIN_SIZE`] goes as it is, and so do events: each must be there at once.
//! - Whether compressed or not, an answer says that it depends on `Accept-Encoding` (`Vary`).
//! - A body that breaks off has no proper end of its compression either.

use axum::response::Response;
use http::HeaderValue;
use http::header::{ACCEPT_ENCODING, VARY};
use tower_http::CompressionLevel;
use tower_http::compression::predicate::{And, NotForContentType, SizeAbove};
use tower_http::compression::{CompressionLayer, Predicate as _};

use super::tail::is_events;

/// Less is not worth it.
const MIN_SIZE: u16 = 1 << 10;

/// Says that an answer depends on `Accept-Encoding` also where it was not compressed this time: a cache may keep it.
pub(super) async fn vary(mut response: Response) -> Response {
    let says_so = |value: &HeaderValue| {
        value
            .as_bytes()
            .eq_ignore_ascii_case(ACCEPT_ENCODING.as_str().as_bytes())
    };
    let headers = response.headers_mut();
    if !is_events(headers) && !headers.get_all(VARY).iter().any(says_so) {
        headers.append(VARY, HeaderValue::from(ACCEPT_ENCODING));
    }
    response
}

/// Compresses bodies as the client likes it best, zstd before gzip.
pub(super) fn compression_layer() -> CompressionLayer<And<SizeAbove, NotForContentType>> {
    CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .compress_when(SizeAbove::new(MIN_SIZE).and(NotForContentType::SSE))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io;

    use axum::Router;
    use axum::body::Body;
    use axum::response::IntoResponse;
    use axum::routing::{MethodRouter, get};
    use bytes::Bytes;
    use http::Request;
    use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
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
        through(route, accept).await
    }

    async fn through(route: MethodRouter, accept: &str) -> Response {
        let router = Router::new().route("/", route).layer(compression_layer());
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
            let (_, whole) = lines(count);
            let sent = whole.clone();
            let route = get(move || async move { ([(CONTENT_TYPE, kind)], sent) });
            let response = through(route, "gzip, zstd").await;
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

    #[tokio::test]
    async fn the_encoding_is_the_one_that_the_client_likes_best() {
        for (accept, encoding) in [
            ("gzip", Some("gzip")),
            ("gzip, deflate, br, zstd", Some("zstd")),
            ("zstd;q=0.5, gzip;q=0.8", Some("gzip")),
            ("identity, gzip;q=0.5", None),
            ("br", None),
            ("", None),
            ("gzip;q=0", None),
            ("*", None),
            ("zstd;q=0, *", None),
        ] {
            let response = answer(accept, "text/csv", lines(1_000).0).await;
            let seen = response.headers().get(CONTENT_ENCODING);
            assert_eq!(seen.map(|name| name.to_str().unwrap()), encoding, "{accept}");
        }
    }
}
