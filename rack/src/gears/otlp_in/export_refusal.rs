//! Why a request is not stored, and how that is said over HTTP and over gRPC.
//!
//! # Invariants
//!
//! - No answer is 429: clients of OTLP drop what was answered with that.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use protocols::grpc::{self, code};
use protocols::otlp::{self, OtlpEncoding};

/// After how many seconds to come again where memory is short.
const SOON: u32 = 1;
/// The same where the spool is full: the Mixer has to take some of it.
const LATER: u32 = 10;

/// Why a request is not stored.
#[derive(Debug)]
pub(super) struct ExportRefusal {
    pub(super) status: StatusCode,
    pub(super) detail: String,
    /// After how many seconds to come again, if that helps.
    pub(super) retry: Option<u32>,
    /// More headers of the answer.
    pub(super) headers: Box<HeaderMap>,
}

impl ExportRefusal {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            retry: None,
            headers: Box::default(),
        }
    }

    /// The request cannot be read.
    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Not now, and soon.
    pub(super) fn busy(detail: impl Into<String>) -> Self {
        Self {
            retry: Some(SOON),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        }
    }

    /// Not now.
    pub(super) fn full(detail: impl Into<String>) -> Self {
        Self {
            retry: Some(LATER),
            ..Self::busy(detail)
        }
    }

    /// The answer over HTTP, to a request in an encoding.
    pub(super) fn into_http(self, encoding: OtlpEncoding) -> Response {
        let said = otlp::status(encoding, code::of_status(self.status), &self.detail);
        let mut response = Response::new(Body::from(said));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.extend(*self.headers);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(encoding.content_type()));
        if let Some(seconds) = self.retry {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// The answer over gRPC.
    pub(super) fn into_grpc(self) -> Response {
        grpc::refusal(code::of_status(self.status), &self.detail, self.retry).map(|()| Body::empty())
    }
}
