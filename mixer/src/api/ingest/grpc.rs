//! gRPC's requests as bodies of this API: how they are packed, and refusals as problems.
//!
//! # Not here
//!
//! The framing ([`protocols::grpc`]), what the messages are (`protocols::otlp`).

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use protocols::grpc::{self, ENCODING};
pub(super) use protocols::grpc::{code, is_grpc};

use super::body::RequestCompression;
use crate::api::problem::ApiProblem;

/// How packed messages of a request are packed.
pub(super) fn packing(headers: &HeaderMap) -> Result<RequestCompression, ApiProblem> {
    match headers.get(ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(RequestCompression::None),
        Some(b"gzip") => Ok(RequestCompression::Gzip),
        Some(b"zstd") => Ok(RequestCompression::Zstd),
        Some(other) => {
            let detail = format!(
                "{ENCODING} {:?} is not supported: send gzip, zstd or identity",
                String::from_utf8_lossy(other)
            );
            Err(ApiProblem::body(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
        }
    }
}

/// The one message of a body, and how it is packed.
pub(super) fn message(packing: RequestCompression, framed: &Bytes) -> Result<(RequestCompression, Bytes), ApiProblem> {
    let bad = |detail: String| ApiProblem::body(StatusCode::BAD_REQUEST, detail);
    let found = grpc::message(framed).map_err(|error| bad(error.to_string()))?;
    let packing = match packing {
        _ if !found.is_packed => RequestCompression::None,
        RequestCompression::None => {
            return Err(bad(
                "the message is packed, and grpc-encoding does not say how".to_owned()
            ));
        }
        said => said,
    };
    Ok((packing, found.message))
}

/// The answer with a message.
pub(super) fn answer(message: &[u8]) -> Response {
    grpc::answer(message).map(Body::new)
}

/// The answer that says what is wrong, and after how many seconds to try again.
pub(super) fn refusal(code: u8, message: &str, retry_after: Option<u32>) -> Response {
    grpc::refusal(code, message, retry_after).map(|()| Body::empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_packed_message_is_packed_as_its_header_says() {
        let framed = |flag| Bytes::copy_from_slice(&[flag, 0, 0, 0, 1, 7]);
        for (said, flag, packing) in [
            (RequestCompression::Gzip, 0, RequestCompression::None),
            (RequestCompression::Gzip, 1, RequestCompression::Gzip),
            (RequestCompression::None, 0, RequestCompression::None),
        ] {
            let found = message(said, &framed(flag)).unwrap();
            assert_eq!(found, (packing, Bytes::from_static(&[7])));
        }
        assert!(message(RequestCompression::None, &framed(1)).is_err());
        assert!(message(RequestCompression::Gzip, &framed(2)).is_err());
    }
}
