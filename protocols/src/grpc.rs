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
//! What the messages are ([`crate::otlp`]), unpacking them (who reads bodies).

use std::convert::Infallible;
use std::future::Ready;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body_util::combinators::WithTrailers;
use http_body_util::{BodyExt, Full};

use crate::otlp::{OtlpEncoding, retry_info, retry_status};

/// The content type, to which the encoding of messages may be added.
pub const GRPC: &str = "application/grpc";
/// How messages are packed that say that they are.
pub const ENCODING: &str = "grpc-encoding";
/// What is before a message: whether it is packed, and its length.
const FRAME: usize = 5;

/// The body of an answer with a message: the status comes behind it.
pub type GrpcBody = WithTrailers<Full<Bytes>, Ready<Option<Result<HeaderMap, Infallible>>>>;

/// Codes of gRPC.
pub mod code {
    use http::StatusCode;

    /// The request was given up.
    pub const CANCELLED: u8 = 1;
    /// What the client sent is wrong.
    pub const INVALID_ARGUMENT: u8 = 3;
    /// It took too long.
    pub const DEADLINE_EXCEEDED: u8 = 4;
    /// Who asks may not.
    pub const PERMISSION_DENIED: u8 = 7;
    /// There is no room: the client tries again if it is told when.
    pub const RESOURCE_EXHAUSTED: u8 = 8;
    /// It met another request.
    pub const ABORTED: u8 = 10;
    /// It lies beyond what there is.
    pub const OUT_OF_RANGE: u8 = 11;
    /// There is no such method.
    pub const UNIMPLEMENTED: u8 = 12;
    /// A defect of the server.
    pub const INTERNAL: u8 = 13;
    /// Not now: the client tries again.
    pub const UNAVAILABLE: u8 = 14;
    /// Something was lost on the way.
    pub const DATA_LOSS: u8 = 15;
    /// It is not known who asks.
    pub const UNAUTHENTICATED: u8 = 16;

    /// The code that says what a status of HTTP says.
    #[must_use]
    pub const fn of_status(status: StatusCode) -> u8 {
        match status {
            StatusCode::UNAUTHORIZED => UNAUTHENTICATED,
            StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => PERMISSION_DENIED,
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => UNIMPLEMENTED,
            StatusCode::REQUEST_TIMEOUT => DEADLINE_EXCEEDED,
            StatusCode::SERVICE_UNAVAILABLE => UNAVAILABLE,
            StatusCode::INTERNAL_SERVER_ERROR => INTERNAL,
            _ => INVALID_ARGUMENT,
        }
    }
}

/// Why a body is not one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GrpcFrameError {
    /// Fewer bytes than stand before a message.
    #[error("the request ends before its message")]
    Truncated,
    /// Another length than the one that is said, or more than one message.
    #[error("the request is not one message of the length that stands before it")]
    Length,
    /// Neither packed nor not.
    #[error("the first byte of a message is 0 or 1")]
    Flag,
}

/// The one message of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcMessage {
    /// Whether it is packed as `grpc-encoding` says.
    pub is_packed: bool,
    /// Its bytes.
    pub message: Bytes,
}

/// Whether a request is one of gRPC.
#[must_use]
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.and_then(|kind| kind.strip_prefix(GRPC))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']))
}

/// The one message of a body.
///
/// # Errors
/// A [`GrpcFrameError`].
pub fn message(framed: &Bytes) -> Result<GrpcMessage, GrpcFrameError> {
    let Some(([flag, length @ ..], message)) = framed.split_first_chunk::<FRAME>() else {
        return Err(GrpcFrameError::Truncated);
    };
    if message.len() != u32::from_be_bytes(*length) as usize {
        return Err(GrpcFrameError::Length);
    }
    if *flag > 1 {
        return Err(GrpcFrameError::Flag);
    }
    Ok(GrpcMessage {
        is_packed: *flag == 1,
        message: framed.slice(FRAME..),
    })
}

/// A message in its frame.
#[must_use]
pub fn frame(is_packed: bool, message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[u8::from(is_packed)][..], &length.to_be_bytes(), message]
        .concat()
        .into()
}

/// The answer with a message.
#[must_use]
pub fn answer(message: &[u8]) -> Response<GrpcBody> {
    let status = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
    let trailers = HeaderMap::from_iter([status]);
    let body = Full::new(frame(false, message)).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    response
}

/// The answer that says what is wrong, and after how many seconds to try again; it has no body.
#[must_use]
pub fn refusal(code: u8, message: &str, retry_after: Option<u32>) -> Response<()> {
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    headers.insert("grpc-status", HeaderValue::from(u16::from(code)));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(message)) {
        headers.insert("grpc-message", message);
    }
    if let Some(seconds) = retry_after {
        let details = retry_status(OtlpEncoding::Protobuf, code, message, seconds);
        // OpenTelemetry's exporter of Python reads the delay under a key of its own.
        for (name, message) in [
            ("grpc-status-details-bin", details),
            ("google.rpc.retryinfo-bin", retry_info(seconds)),
        ] {
            if let Ok(encoded) = HeaderValue::try_from(STANDARD_NO_PAD.encode(message)) {
                headers.insert(name, encoded);
            }
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
    use http::StatusCode;

    use super::*;

    #[test]
    fn one_whole_message_is_taken_and_nothing_else() {
        let framed = |bytes: &[u8]| message(&Bytes::copy_from_slice(bytes));
        for (bytes, is_packed, inner) in [
            (&[0, 0, 0, 0, 2, 7, 8][..], false, &[7, 8][..]),
            (&[1, 0, 0, 0, 1, 7], true, &[7]),
            (&[0, 0, 0, 0, 0], false, &[]),
        ] {
            let message = Bytes::copy_from_slice(inner);
            assert_eq!(framed(bytes), Ok(GrpcMessage { is_packed, message }));
        }
        for (bad, error) in [
            (&[][..], GrpcFrameError::Truncated),
            (&[0, 0, 0, 0], GrpcFrameError::Truncated),
            (&[0, 0, 0, 0, 3, 7, 8], GrpcFrameError::Length),
            (&[0, 0, 0, 0, 1, 7, 8], GrpcFrameError::Length),
            (&[2, 0, 0, 0, 0], GrpcFrameError::Flag),
            (&[0, 255, 255, 255, 255, 1], GrpcFrameError::Length),
        ] {
            assert_eq!(framed(bad), Err(error), "{bad:?}");
        }
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
        let delay = STANDARD_NO_PAD.decode(header("google.rpc.retryinfo-bin")).unwrap();
        assert_eq!(delay, [0x0a, 2, 0x08, 7]);
        let for_good = refusal(code::INVALID_ARGUMENT, "bad", None);
        assert!(for_good.headers().keys().all(|name| !name.as_str().ends_with("-bin")));
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
