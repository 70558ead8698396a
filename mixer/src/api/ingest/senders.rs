//! What the requests of other senders have in common, OpenTelemetry's too: their route, whose rows they are, how they are planned, and
//! refusals that make a client send again what can be stored later.
//!
//! | case | status |
//! |---|---|
//! | a quota used up, a repetition while the first one is stored, a slow body | 503 with `Retry-After` instead of 429, 409, 408 |
//! | a Mixer that only reads or collects nothing | 403: its configuration says so, and clients that tried again would fill their buffers |
//!
//! # Invariants
//!
//! - What is made 503 for the client is counted with the status that it had: 5xx in the metrics is what the Mixer cannot do.
//! - A request whose first record has a time is known again by its bytes: what a client repeats after an unclear answer is stored
//!   once. Records without a time have that of the first arrival then.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::post;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use model::{Clock, Table};
use protocols::SenderSettings;
use serde_json::Value;

use super::body::RequestCompression;
use super::body_format::{BodyFormat, ForeignFormat};
use super::idempotency_key::BodyKey;
use super::ingest_handler::{BodyFraming, IngestHandler, IngestPlan, StoredBody};
use super::refused_letters::BodyOrigin;
use super::{end_after_refusal, headers};
use crate::access::ApiCaller;
use crate::api::authorization::RequestCaller;
use crate::api::counted_status::CountedStatus;
use crate::api::problem::ApiProblem;
use crate::api::query_params::NoParams;

/// The most of a refusal's body that is read to say it in another form.
const MAX_REFUSAL: usize = 64 << 10;

/// What their requests need beside the handler: which attributes, labels or fields name an entity, the first one that is there.
#[derive(Debug, Clone)]
pub(crate) struct SenderAnswers {
    pub(crate) clock: Clock,
    pub(crate) otlp_entity: Arc<[String]>,
    pub(crate) loki_entity: Arc<[String]>,
    pub(crate) elasticsearch_entity: Arc<[String]>,
    pub(crate) prometheus_entity: Arc<[String]>,
}

/// How requests of a protocol are taken in.
#[derive(Debug, Clone)]
pub(super) struct SenderProtocol {
    pub(super) door: IngestHandler,
    pub(super) clock: Clock,
    /// What names an entity.
    pub(super) entity: Arc<[String]>,
    pub(super) table: Table,
    /// What its letters are of.
    pub(super) name: &'static str,
    /// The content type of a single record, which a letter has.
    pub(super) content_type: &'static str,
}

/// What the head of a request says of its body.
pub(super) type SentBody = (ForeignFormat, RequestCompression, BodyFraming);

impl SenderProtocol {
    /// Its one route, by what makes its answers.
    pub(super) fn route<F, R>(self, path: &'static str, answer: F) -> Router
    where
        F: Fn(Arc<ApiCaller>, Self, Request) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Result<Response, ApiProblem>> + Send + 'static,
    {
        let take = move |State(protocol): State<Self>,
                         RequestCaller(caller): RequestCaller,
                         _: NoParams,
                         request: Request| answer(caller, protocol, request);
        Router::new()
            .route(path, post(take))
            .layer(map_response(end_after_refusal))
            .with_state(self)
    }

    /// Takes a request in, whose head says what its body is.
    pub(super) async fn store(
        self,
        caller: &ApiCaller,
        request: Request,
        sent: impl FnOnce(&HeaderMap) -> Result<SentBody, ApiProblem>,
    ) -> Result<StoredBody, ApiProblem> {
        self.door.admit(caller)?;
        let (head, body) = request.into_parts();
        let (format, packing, framing) = sent(&head.headers)?;
        let (publisher, now) = (headers::publisher(&head.headers)?, self.clock.now());
        let settings = SenderSettings {
            entity: self.entity,
            fallback: publisher.clone(),
            now,
        };
        let plan = IngestPlan {
            table: self.table,
            format: BodyFormat::Foreign(format, settings),
            packing,
            framing,
            key: BodyKey::Content(publisher, caller.scope.entities.clone()),
            origin: Some(BodyOrigin {
                subject: format!("{}/{}", self.name, self.table),
                content_type: self.content_type.to_owned(),
                at: now,
            }),
            for_bucket: false,
        };
        self.door.ingest(caller, plan, (&head, body)).await
    }
}

/// Why records were refused, the first ones by name.
pub(super) fn named_refusals(stored: &StoredBody) -> String {
    let named = stored.rejected.iter().take(5);
    let named: Vec<_> = named.map(|bad| format!("record {}: {}", bad.row, bad.reason)).collect();
    named.join("; ")
}

/// What is said of a body of which records were refused: clients do not send it again.
pub(super) fn refused_records(stored: &StoredBody) -> ApiProblem {
    let detail = format!(
        "{} records are stored and {} refused: {}",
        stored.rows.stored,
        stored.rows.rejected_total,
        named_refusals(stored)
    );
    ApiProblem::body(StatusCode::BAD_REQUEST, detail)
}

/// Whether a client shall send again what was refused so: some drop it, and some of them even with 429.
pub(super) const fn is_retriable(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::CONFLICT | StatusCode::REQUEST_TIMEOUT
    )
}

/// Makes 503 of what a client shall send again, and would drop otherwise.
pub(super) async fn retriable(response: Response) -> Response {
    if !is_retriable(response.status()) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let problem = problem_of(&head.headers, body).await;
    let problem = ApiProblem::busy(detail_of(&problem));
    head.extensions.get_or_insert(CountedStatus(head.status));
    head.status = StatusCode::SERVICE_UNAVAILABLE;
    head.headers.remove(CONTENT_LENGTH);
    head.headers.remove(CONTENT_ENCODING);
    head.headers.entry(RETRY_AFTER).or_insert(HeaderValue::from_static("1"));
    Response::from_parts(head, Body::from(problem.document().to_string()))
}

/// The problem that a refusal is; null if it is compressed, as only large ones are.
pub(in crate::api) async fn problem_of(headers: &HeaderMap, body: Body) -> Value {
    let body = axum::body::to_bytes(body, MAX_REFUSAL).await.unwrap_or_default();
    match headers.contains_key(CONTENT_ENCODING) {
        true => Value::Null,
        false => serde_json::from_slice(&body).unwrap_or_default(),
    }
}

/// What a problem says is wrong.
pub(in crate::api) fn detail_of(problem: &Value) -> &str {
    problem["detail"].as_str().unwrap_or("the request was refused")
}
