//! What requests of Loki's, Prometheus' and Elasticsearch's clients have in common: whose rows they are, how they are planned, and
//! refusals that make a client send again what can be stored later.
//!
//! | case | status |
//! |---|---|
//! | a quota used up, a repetition while the first one is stored, a slow body | 503 with `Retry-After` instead of 429, 409, 408 |
//!
//! # Invariants
//!
//! - A request is known again by its bytes, as one of OTLP is.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use model::{Clock, Table};
use protocols::SenderSettings;
use serde_json::Value;

use super::body::RequestCompression;
use super::body_format::BodyFormat;
use super::headers;
use super::idempotency_key::BodyKey;
use super::ingest_handler::{BodyFraming, IngestPlan, StoredBody};
use super::refused_letters::BodyOrigin;
use crate::access::ApiCaller;
use crate::api::problem::ApiProblem;

/// The most of a refusal's body that is read to say it in another form.
const MAX_REFUSAL: usize = 64 << 10;

/// What their requests need beside the handler: which fields name an entity, the first one that is there.
#[derive(Debug, Clone)]
pub(crate) struct SenderAnswers {
    pub(crate) clock: Clock,
    pub(crate) loki_entity: Arc<[String]>,
    pub(crate) elasticsearch_entity: Arc<[String]>,
    pub(crate) prometheus_entity: Arc<[String]>,
}

impl SenderAnswers {
    /// How a request with these headers becomes rows.
    pub(super) fn settings(&self, entity: &Arc<[String]>, headers: &HeaderMap) -> Result<SenderSettings, ApiProblem> {
        Ok(SenderSettings {
            entity: Arc::clone(entity),
            fallback: headers::publisher(headers)?,
            now: self.clock.now(),
        })
    }

    /// What is to be done with a body, whose refused records are kept as letters of a protocol.
    pub(super) fn plan(
        &self,
        (table, caller): (Table, &ApiCaller),
        (format, packing): (BodyFormat, RequestCompression),
        (protocol, content_type): (&str, &str),
    ) -> IngestPlan {
        IngestPlan {
            table,
            packing,
            framing: BodyFraming::Nothing,
            key: BodyKey::Content(format.publisher(), caller.scope.entities.clone()),
            format,
            origin: Some(BodyOrigin {
                subject: format!("{protocol}/{table}"),
                content_type: content_type.to_owned(),
                at: self.clock.now(),
            }),
            for_bucket: false,
        }
    }
}

/// What is said of a body of which records were refused: clients do not send it again.
pub(super) fn refused_records(stored: &StoredBody) -> ApiProblem {
    let named = stored.rejected.iter().take(5);
    let named: Vec<_> = named.map(|bad| format!("record {}: {}", bad.row, bad.reason)).collect();
    let detail = format!(
        "{} records are stored and {} refused: {}",
        stored.rows.stored,
        stored.rows.rejected_total,
        named.join("; ")
    );
    ApiProblem::body(StatusCode::BAD_REQUEST, detail)
}

/// Makes 503 of what a client shall send again, and would drop otherwise.
pub(super) async fn retriable(response: Response) -> Response {
    if !matches!(
        response.status(),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::CONFLICT | StatusCode::REQUEST_TIMEOUT
    ) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let problem = problem_of(&head.headers, body).await;
    let problem = ApiProblem::busy(detail_of(&problem));
    head.status = StatusCode::SERVICE_UNAVAILABLE;
    head.headers.remove(CONTENT_LENGTH);
    head.headers.remove(CONTENT_ENCODING);
    head.headers.entry(RETRY_AFTER).or_insert(HeaderValue::from_static("1"));
    Response::from_parts(head, Body::from(problem.document().to_string()))
}

/// The problem that a refusal is; null if it is compressed, as only large ones are.
pub(super) async fn problem_of(headers: &HeaderMap, body: Body) -> Value {
    let body = axum::body::to_bytes(body, MAX_REFUSAL).await.unwrap_or_default();
    match headers.contains_key(CONTENT_ENCODING) {
        true => Value::Null,
        false => serde_json::from_slice(&body).unwrap_or_default(),
    }
}

/// What a problem says is wrong.
pub(super) fn detail_of(problem: &Value) -> &str {
    problem["detail"].as_str().unwrap_or("the request was refused")
}
