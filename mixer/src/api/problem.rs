//! Errors as RFC 9457 problem documents. Here and in [`error_statuses`] alone an error becomes an HTTP status.
//!
//! # Invariants
//!
//! - What is our fault (500) is told in one plain sentence with a reference. Paths and other programs' words are in the log alone,
//!   beside the same reference: it is made from the cause, so that the same fault has the same one.

mod error_statuses;

use std::num::NonZeroU32;

use axum::response::{IntoResponse, Response};
use chassis::host_guard::ForeignRequest;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, StatusCode};
use model::telemetry_codec::RecordRejection;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::counted_status::CountedStatus;
use super::openapi::problems;
use crate::access::{AccessRight, AccessRole, ApiCaller, role_list};
use crate::authentication::AuthenticationError;

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiProblem {
    status: StatusCode,
    code: &'static str,
    /// What went wrong; of our faults (500), for the log alone.
    detail: String,
    parameter: Option<Box<str>>,
    /// Bad rows of a body, faults of a scenario.
    errors: Vec<Value>,
    /// Where a statement went wrong.
    position: Option<Box<ProblemPosition>>,
    /// What became of the rows of a body.
    rows: Option<Box<IngestCounts>>,
    /// Seconds to wait, where more is known than the status says.
    retry_after: Option<NonZeroU32>,
    /// Whether a stranger chose words of the detail: they are not for the audit log.
    has_foreign_words: bool,
    /// The key of `[quotas]` that was used up, for the audit log.
    quota: Option<&'static str>,
    /// Whether it counts as 503: whatever the client is told, the Mixer does not get on.
    is_unavailable: bool,
}

/// Why a request was refused, for the audit log: in the extensions of the answer.
#[derive(Debug, Clone)]
pub(super) struct RefusalReason(pub(super) String);

/// How many rows of a body are stored, and how many are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct IngestCounts {
    /// Good rows; those of a repetition are there already.
    pub(crate) stored: u64,
    /// Bad rows.
    pub(crate) rejected_total: u64,
    /// Those of them that are kept as dead letters.
    pub(crate) kept: u64,
    /// Whether everything had been stored before.
    pub(crate) duplicate: bool,
}

/// A place in a text, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct ProblemPosition {
    line: u64,
    column: u64,
}

/// The document's fields.
#[derive(Serialize)]
struct ProblemDocument<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    code: &'a str,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<ProblemPosition>,
    #[serde(flatten)]
    rows: Option<IngestCounts>,
}

/// Eight hexadecimal digits for a cause.
fn reference(cause: &str) -> String {
    let (first, ..) = Uuid::new_v5(&Uuid::NAMESPACE_OID, cause.as_bytes()).as_fields();
    format!("{first:08x}")
}

impl ApiProblem {
    fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        debug_assert!(
            problems::is_known(status.as_u16(), code),
            "{status} {code} is not documented"
        );
        Self {
            status,
            code,
            detail: detail.into(),
            parameter: None,
            errors: Vec::new(),
            position: None,
            rows: None,
            retry_after: None,
            has_foreign_words: false,
            quota: None,
            is_unavailable: false,
        }
    }

    /// A parameter that cannot be used.
    pub(crate) fn parameter(name: &str, reason: impl std::fmt::Display) -> Self {
        Self {
            parameter: Some(name.into()),
            ..Self::new(StatusCode::BAD_REQUEST, "bad_parameter", format!("{name}: {reason}"))
        }
    }

    /// A parameter that the path does not know.
    pub(crate) fn unknown_parameter(name: &str, known: &str) -> Self {
        let detail = format!("{name}: there is no such parameter here; known are {known}");
        Self {
            parameter: Some(name.into()),
            ..Self::new(StatusCode::BAD_REQUEST, "unknown_parameter", detail)
        }
    }

    /// A body that cannot be used.
    pub(crate) fn body(status: StatusCode, detail: impl Into<String>) -> Self {
        Self::new(status, "bad_body", detail)
    }

    pub(crate) fn no_route(path: &str) -> Self {
        let detail = format!(
            "{path} is not a path of this API: paths begin with /api/v1/, /iceberg/v1/ or /jaeger/api/, or are /healthz, /readyz, \
             /metrics, /version"
        );
        Self::new(StatusCode::NOT_FOUND, "no_route", detail)
    }

    /// A file of the page as another build of the program has it: an open page is of the one before an upgrade.
    pub(crate) fn other_build(path: &str) -> Self {
        let detail = format!(
            "{path} is a file of the page of another build of the Mixer, which was upgraded: load the page again"
        );
        Self::new(StatusCode::NOT_FOUND, "other_build", detail)
    }

    /// The metrics of a Mixer that is configured not to report about itself.
    pub(crate) fn not_reported() -> Self {
        let detail = "the Mixer reports nothing about itself: PLATFORM_DISABLE_TELEMETRY is set";
        Self::new(StatusCode::NOT_FOUND, "telemetry_disabled", detail)
    }

    /// A namespace that the Iceberg catalogue does not have.
    pub(crate) fn unknown_namespace(name: &str) -> Self {
        let detail = format!("Namespace does not exist: {name}");
        Self::new(StatusCode::NOT_FOUND, "unknown_namespace", detail)
    }

    /// A table that it does not have.
    pub(crate) fn unknown_table(name: &str) -> Self {
        let detail = format!("Table does not exist: {name}");
        Self::new(StatusCode::NOT_FOUND, "unknown_table", detail)
    }

    /// A Mixer that serves no Iceberg catalogue.
    pub(crate) fn no_catalog() -> Self {
        let detail = "this Mixer serves no Iceberg catalogue: observability.embedded.iceberg.enabled is false";
        Self::new(StatusCode::NOT_ACCEPTABLE, "no_catalog", detail)
    }

    pub(crate) fn unknown_gear(kind: &str, known: &str) -> Self {
        let detail = format!("there is no gear type {kind:?}; known are {known}");
        Self::new(StatusCode::NOT_FOUND, "unknown_gear", detail)
    }

    pub(crate) fn method(method: &Method) -> Self {
        let detail = format!("{method} is not supported here: see the Allow header");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
    }

    /// A browser asks for a page of another site.
    pub(crate) fn foreign(refused: &ForeignRequest) -> Self {
        let code = match refused {
            ForeignRequest::UnknownHost { .. } => "unknown_host",
            ForeignRequest::ForeignOrigin { .. } | ForeignRequest::CrossSite { .. } => "cross_origin",
        };
        // The text of a page's request is a stranger's.
        Self {
            has_foreign_words: true,
            ..Self::new(refused.status(), code, refused.to_string())
        }
    }

    /// Nobody knows who calls.
    pub(crate) fn unauthorized(error: &AuthenticationError) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", error.to_string())
    }

    /// A caller without the right that a route asks for.
    pub(crate) fn without_right(caller: &ApiCaller, right: AccessRight) -> Self {
        let wanted = AccessRole::names_with(right).join(", ");
        if caller.roles.iter().any(|role| role.has(right)) {
            let detail = "this concerns the whole fleet, and the token's scope is limited to a part of it";
            return Self::forbidden(detail);
        }
        Self::forbidden(format!(
            "the role {} does not allow it; roles that do: {wanted}",
            role_list(&caller.roles)
        ))
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// A caller has half of the taps that there may be.
    pub(crate) fn too_many_taps() -> Self {
        let detail = "this caller has half of the taps that there may be: close one, or try again later";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many", detail)
    }

    pub(crate) fn too_many_connections() -> Self {
        let detail = "this caller has half of the connections that there may be: close some, or try again later";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many", detail)
    }

    pub(crate) fn slow_request() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "slow_request",
            "the request took too long to arrive or to answer",
        )
    }

    /// A body that came too slowly.
    pub(crate) fn slow_body() -> Self {
        let detail = "the body took too long to arrive; nothing of it is stored";
        Self::new(StatusCode::REQUEST_TIMEOUT, "slow_request", detail)
    }

    /// A body without one row that can be stored.
    pub(crate) fn nothing_stored(rows: IngestCounts, named: &[RecordRejection]) -> Self {
        let rejected = rows.rejected_total;
        let detail = match named.first() {
            Some(first) => format!(
                "none of {rejected} rows can be stored; row {}: {}",
                first.row, first.reason
            ),
            None => "the body has no rows".to_owned(),
        };
        Self {
            errors: named.iter().map(|row| json!(row)).collect(),
            rows: Some(Box::new(rows)),
            ..Self::new(StatusCode::BAD_REQUEST, "nothing_stored", detail)
        }
    }

    /// A body of which only some rows are stored.
    pub(crate) fn partly_stored(rows: IngestCounts, named: &[RecordRejection]) -> Self {
        let first = named
            .first()
            .map_or_else(String::new, |first| format!("; row {}: {}", first.row, first.reason));
        let detail = format!(
            "{} rows are stored, {} are rejected and are not{first}",
            rows.stored, rows.rejected_total
        );
        Self {
            errors: named.iter().map(|row| json!(row)).collect(),
            rows: Some(Box::new(rows)),
            ..Self::new(StatusCode::MULTI_STATUS, "partly_stored", detail)
        }
    }

    /// Rows cannot be stored just now.
    pub(crate) fn busy(reason: impl std::fmt::Display) -> Self {
        let detail = format!("{reason}; try again");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
    }

    pub(crate) fn not_collected() -> Self {
        let detail = "this Mixer collects no telemetry: observability.enabled is false";
        Self::new(StatusCode::FORBIDDEN, "not_collected", detail)
    }

    pub(crate) fn read_only(reason: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::FORBIDDEN, "read_only", reason.to_string())
    }

    pub(crate) fn key_in_use() -> Self {
        let detail = "a request with this Idempotency-Key is being answered: ask again when it is";
        Self::new(StatusCode::CONFLICT, "key_in_use", detail)
    }

    /// A key whose request should have been answered long ago.
    pub(crate) fn key_hangs() -> Self {
        Self {
            is_unavailable: true,
            ..Self::key_in_use()
        }
    }

    pub(crate) fn no_object_store() -> Self {
        let detail = "durable=bucket: this Mixer has no object store (observability.embedded.storage.url)";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "no_object_store", detail)
    }

    pub(crate) fn key_of_another(header: &str) -> Self {
        let detail = format!("{header}: it was used for another body; every body needs a key of its own");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "key_of_another", detail)
    }

    /// No format that there is would do.
    pub(crate) fn not_acceptable(known: &[&str]) -> Self {
        let detail = format!(
            "Accept: none of the requested formats is supported; known are {}",
            known.join(", ")
        );
        Self::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", detail)
    }

    /// An answer that would look whole wherever it broke off.
    pub(crate) fn http_version() -> Self {
        let detail = "over HTTP/1.0 a truncated answer could not be detected: use HTTP/1.1, or ask for JSON";
        Self::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "http_version", detail)
    }

    /// An answer with more rows than any may have.
    pub(crate) fn too_many_rows(most: u64) -> Self {
        let detail = format!("the answer has more than {most} rows, as many as query.max_rows allows: ask for fewer");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "query_too_large", detail)
    }

    pub(crate) fn internal(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }

    /// The problem as a document.
    pub(crate) fn document(&self) -> Value {
        let errors = self.parameter.as_ref();
        let errors = errors.map(|parameter| json!([{ "parameter": parameter, "detail": self.detail }]));
        let errors = errors.or_else(|| (!self.errors.is_empty()).then(|| json!(self.errors)));
        let document = ProblemDocument {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or("error"),
            status: self.status.as_u16(),
            code: self.code,
            detail: self.detail(),
            errors,
            position: self.position.as_deref().copied(),
            rows: self.rows.as_deref().copied(),
        };
        serde_json::to_value(document).unwrap_or_default()
    }

    /// What the requester is told.
    pub(crate) fn detail(&self) -> String {
        if self.is_ours() {
            let reference = reference(&self.detail);
            format!("the request failed in the Mixer; its log says why, with the reference {reference}")
        } else {
            self.detail.clone()
        }
    }

    fn is_ours(&self) -> bool {
        self.status == StatusCode::INTERNAL_SERVER_ERROR
    }

    /// Logs what is our fault; the requester's faults are the requester's to read.
    pub(crate) fn log(&self) {
        if self.is_ours() {
            let reference = reference(&self.detail);
            tracing::error!(code = self.code, reference, "request failed: {}", self.detail);
        }
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        self.log();
        let body = serde_json::to_vec(&self.document()).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        // How long to wait is never the same twice, and refusals are summed by their text.
        let has_varying_words = self.has_foreign_words || self.status == StatusCode::TOO_MANY_REQUESTS;
        let refusal = match self.quota {
            Some(quota) => format!("{} quotas.{quota}", self.code),
            None if has_varying_words => self.code.to_owned(),
            None => self.detail,
        };
        let refusal = RefusalReason(refusal);
        response.extensions_mut().insert(refusal);
        if self.is_unavailable {
            let counted = CountedStatus(StatusCode::SERVICE_UNAVAILABLE);
            response.extensions_mut().insert(counted);
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"platform\""));
        }
        let usual = match (self.status, self.code) {
            (StatusCode::SERVICE_UNAVAILABLE, _) | (_, "key_in_use") => Some(1),
            (StatusCode::TOO_MANY_REQUESTS, _) => Some(5),
            _ => None,
        };
        if let Some(seconds) = self.retry_after.map(NonZeroU32::get).or(usual) {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dlq::DlqError;

    #[test]
    fn words_of_a_strangers_page_are_no_reason_in_the_audit_log() {
        let foreign = ForeignRequest::UnknownHost {
            host: "evil.example".to_owned(),
            key: "api.allowed_hosts",
        };
        let reason = |problem: ApiProblem| {
            let response = problem.into_response();
            response
                .extensions()
                .get::<RefusalReason>()
                .map(|reason| reason.0.clone())
        };
        assert_eq!(reason(ApiProblem::foreign(&foreign)).as_deref(), Some("unknown_host"));
        assert_eq!(reason(ApiProblem::forbidden("why")).as_deref(), Some("why"));
        // Which quota is told, and not how long to wait, which is never the same twice.
        let busy = ApiProblem::from(query::Error::CallerBusy { running: 2 });
        assert_eq!(reason(busy).as_deref(), Some("quota_exceeded quotas.queries"));
        assert_eq!(reason(ApiProblem::too_many_taps()).as_deref(), Some("too_many"));
    }

    #[test]
    fn internal_errors_tell_a_reference_instead_of_the_cause() {
        let cause = "cannot open /srv/data/meta/catalogue: Permission denied";
        let problem = ApiProblem::internal(cause);
        let document = problem.document().to_string();
        assert!(!document.contains("/srv") && !document.contains("denied"), "{document}");
        assert!(document.contains(&reference(cause)), "{document}");
        assert_ne!(reference(cause), reference("another"));
        let of_query = ApiProblem::of_letters(&DlqError::Query(query::Error::Closed));
        assert!(!of_query.detail().contains(&query::Error::Closed.to_string()));
        assert!(
            ApiProblem::body(StatusCode::BAD_REQUEST, "row 3: no ts")
                .detail()
                .contains("row 3")
        );
    }
}
