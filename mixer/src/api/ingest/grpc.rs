//! gRPC's framing of one request and one answer, on HTTP/2.
//!
//! Source: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>; `google.rpc.Status` and `RetryInfo`.
//!
//! # Invariants
//!
//! - A body is read as any other is, in room that was counted: a library would read a message before anybody asks how large it is.
//! - Every answer has status 200 in HTTP, and its own in `grpc-status`.
//!
//! # Not here
//!
//! What the messages are (`protocols::otlp`).

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, Full};
use protocols::otlp::{OtlpEncoding, retry_status};

use super::body::RequestCompression;
use crate::api::problem::ApiProblem;
pub(super) use crate::grpc_frame::code;
use crate::grpc_frame::{ENCODING, GRPC, frame, unframe};

/// Whether a request is one of gRPC.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.and_then(|kind| kind.strip_prefix(GRPC))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']))
}

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
    let bad = |detail: &str| ApiProblem::body(StatusCode::BAD_REQUEST, detail.to_owned());
    let (is_packed, message) = unframe(framed).map_err(bad)?;
    if is_packed && packing == RequestCompression::None {
        return Err(bad("the message is packed, and grpc-encoding does not say how"));
    }
    Ok((if is_packed { packing } else { RequestCompression::None }, message))
}

/// The answer with a message.
pub(super) fn answer(message: &[u8]) -> Response {
    let trailers = HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    let body = Full::new(frame(false, message)).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(Body::new(body));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    response
}

/// The answer that says what is wrong, and after how many seconds to try again.
pub(super) fn refusal(code: u8, message: &str, retry_after: Option<u32>) -> Response {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    headers.insert("grpc-status", HeaderValue::from(u16::from(code)));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(message)) {
        headers.insert("grpc-message", message);
    }
    if let Some(seconds) = retry_after {
        let details = retry_status(OtlpEncoding::Protobuf, code, message, seconds);
        if let Ok(details) = HeaderValue::try_from(STANDARD_NO_PAD.encode(details)) {
            headers.insert("grpc-status-details-bin", details);
        }
    }
    response
}

/// A text as `grpc-message` has it.
fn percent_encoded(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn one_whole_message_is_taken_and_nothing_else() {
        let framed = |bytes: &[u8]| message(RequestCompression::Gzip, &Bytes::copy_from_slice(bytes));
        assert_eq!(
            framed(&[0, 0, 0, 0, 2, 7, 8]).unwrap(),
            (RequestCompression::None, Bytes::from_static(&[7, 8]))
        );
        assert_eq!(
            framed(&[1, 0, 0, 0, 1, 7]).unwrap(),
            (RequestCompression::Gzip, Bytes::from_static(&[7]))
        );
        assert_eq!(framed(&[0, 0, 0, 0, 0]).unwrap().1.len(), 0);
        for bad in [
            &[][..],
            &[0, 0, 0, 0],
            &[0, 0, 0, 0, 3, 7, 8],
            &[0, 0, 0, 0, 1, 7, 8],
            &[2, 0, 0, 0, 0],
            &[0, 255, 255, 255, 255, 1],
        ] {
            assert!(framed(bad).is_err(), "{bad:?}");
        }
        assert!(message(RequestCompression::None, &Bytes::from_static(&[1, 0, 0, 0, 0])).is_err());
    }

    #[test]
    fn a_refusal_is_in_the_headers_with_the_time_to_wait() {
        let refused = refusal(code::UNAVAILABLE, "full: 100 %\n", Some(7));
        let header = |name: &str| refused.headers().get(name).unwrap().to_str().unwrap().to_owned();
        assert_eq!(refused.status(), StatusCode::OK);
        assert_eq!(
            (header("grpc-status"), header("grpc-message")),
            ("14".to_owned(), "full: 100 %25%0A".to_owned())
        );
        let details = STANDARD_NO_PAD.decode(header("grpc-status-details-bin")).unwrap();
        assert!(details.ends_with(&[0x12, 4, 0x0a, 2, 0x08, 7]), "{details:?}");
    }

    #[test]
    fn a_content_type_of_grpc_may_name_the_encoding_of_messages() {
        let headers = |kind: &'static str| HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
            assert!(is_grpc(&headers(kind)), "{kind}");
        }
        for kind in ["application/grpc-web", "application/json", "grpc"] {
            assert!(!is_grpc(&headers(kind)), "{kind}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
