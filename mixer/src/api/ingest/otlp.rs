//! OTLP's requests over HTTP and gRPC: `POST /v1/{logs,metrics,traces}`, and gRPC's `Export` of each signal, which is the same
//! route in another frame.
//!
//! | case | HTTP | gRPC |
//! |---|---|---|
//! | stored | 200 | `OK` |
//! | some records refused | 200 with `partial_success`; they are dead letters | `OK` with the same |
//! | malformed, too large, an unknown encoding | 400, 413, 415 | `INVALID_ARGUMENT` |
//! | no place, a quota used up, a repetition while the first one is stored | 503 with `Retry-After` | `UNAVAILABLE` with `RetryInfo` |
//! | no token, no right | 401, 403 | `UNAUTHENTICATED`, `PERMISSION_DENIED` |
//!
//! # Invariants
//!
//! - A request is known again by its bytes: what a client repeats after an unclear answer is stored once.
//! - No answer is 429: clients of OTLP drop what was answered with that.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use model::{Clock, Table};
use protocols::otlp::{self, JSON, OtlpEncoding, OtlpSettings, PROTOBUF, export_response};
use tower::Layer;
use tower::util::MapRequestLayer;

use super::body_format::BodyFormat;
use super::grpc::{self, code};
use super::idempotency_key::BodyKey;
use super::ingest_handler::{BodyFraming, IngestHandler, IngestPlan, StoredBody};
use super::refused_letters::BodyOrigin;
use super::{body, end_after_refusal, headers};
use crate::access::ApiCaller;
use crate::api::authorization::RequestCaller;
use crate::api::problem::ApiProblem;
use crate::api::query_params::NoParams;
use crate::grpc_frame::export_method;

/// The signals and their paths.
const SIGNALS: [(Table, &str); 3] = [
    (Table::Logs, "/v1/logs"),
    (Table::Metrics, "/v1/metrics"),
    (Table::Traces, "/v1/traces"),
];
/// The most of a refusal's body that is read to say it in another form.
const MAX_REFUSAL: usize = 64 << 10;

/// What OTLP's requests need beside the handler.
#[derive(Debug, Clone)]
pub(crate) struct OtlpAnswers {
    pub(crate) clock: Clock,
    /// The resource attributes that name an entity.
    pub(crate) entity: Arc<[String]>,
}

/// The routes of the three signals.
pub(in crate::api) fn otlp_routes(door: IngestHandler, answers: OtlpAnswers) -> Router {
    let state = (door, answers);
    let routes = SIGNALS.into_iter().map(|(table, path)| {
        let export =
            move |State((door, answers)): State<(IngestHandler, OtlpAnswers)>,
                  RequestCaller(caller): RequestCaller,
                  _: NoParams,
                  request: Request| async move { export((table, caller), (door, answers), request).await };
        (path, post(export))
    });
    let router = routes.fold(Router::new(), |router, (path, export)| router.route(path, export));
    router
        .layer(axum::middleware::map_response(end_after_refusal))
        .with_state(state)
}

/// Answers for gRPC's paths by the routes of a router.
pub(in crate::api) fn grpc_paths(router: Router) -> Router {
    let rewritten = MapRequestLayer::new(|mut request: Request| {
        let method = request.uri().path();
        let signal = SIGNALS.iter().find(|(table, _)| export_method(*table) == Some(method));
        if let Some((_, path)) = signal {
            *request.uri_mut() = Uri::from_static(path);
        }
        request
    });
    Router::new().fallback_service(rewritten.layer(router))
}

/// Says refusals of OTLP's requests as their protocol does, whoever refused them.
pub(in crate::api) async fn refuse_in_kind(request: Request, next: Next) -> Response {
    let is_signal = request.method() == Method::POST && SIGNALS.iter().any(|(_, path)| *path == request.uri().path());
    let is_grpc = grpc::is_grpc(request.headers());
    let encoding = encoding(request.headers()).unwrap_or(OtlpEncoding::Json);
    let response = next.run(request).await;
    if !(is_signal || is_grpc) || !(response.status().is_client_error() || response.status().is_server_error()) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let body = axum::body::to_bytes(body, MAX_REFUSAL).await.unwrap_or_default();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let detail = problem["detail"].as_str().unwrap_or("the request was refused");
    head.status = retriable(head.status);
    let code = grpc_code(head.status);
    let retry = (code == code::UNAVAILABLE).then(|| {
        let said = head
            .headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        said.unwrap_or(1)
    });
    if is_grpc {
        let mut refusal = grpc::refusal(code, detail, retry);
        refusal.extensions_mut().extend(head.extensions);
        return refusal;
    }
    let kind = if encoding == OtlpEncoding::Json { JSON } else { PROTOBUF };
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    head.headers.remove(http::header::CONTENT_LENGTH);
    if let Some(seconds) = retry {
        head.headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    Response::from_parts(head, Body::from(otlp::status(encoding, code, detail)))
}

/// What a client of OTLP must see to try again: it drops what was answered with 409 or 429.
const fn retriable(status: StatusCode) -> StatusCode {
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::CONFLICT => StatusCode::SERVICE_UNAVAILABLE,
        other => other,
    }
}

const fn grpc_code(status: StatusCode) -> u8 {
    match status {
        StatusCode::UNAUTHORIZED => code::UNAUTHENTICATED,
        StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => code::PERMISSION_DENIED,
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => code::UNIMPLEMENTED,
        StatusCode::REQUEST_TIMEOUT => code::DEADLINE_EXCEEDED,
        StatusCode::SERVICE_UNAVAILABLE => code::UNAVAILABLE,
        StatusCode::INTERNAL_SERVER_ERROR => code::INTERNAL,
        _ => code::INVALID_ARGUMENT,
    }
}

/// How a request over HTTP is encoded.
fn encoding(headers: &HeaderMap) -> Result<OtlpEncoding, ApiProblem> {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    let kind = kind.split(';').next().unwrap_or_default().trim();
    match kind {
        _ if kind.eq_ignore_ascii_case(PROTOBUF) || kind.eq_ignore_ascii_case("application/protobuf") => {
            Ok(OtlpEncoding::Protobuf)
        }
        _ if kind.eq_ignore_ascii_case(JSON) => Ok(OtlpEncoding::Json),
        _ => Err(ApiProblem::body(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("Content-Type {kind:?} is none of OTLP's: known are {PROTOBUF} and {JSON}"),
        )),
    }
}

async fn export(
    (table, caller): (Table, Arc<ApiCaller>),
    (door, answers): (IngestHandler, OtlpAnswers),
    request: Request,
) -> Result<Response, ApiProblem> {
    door.admit(&caller)?;
    let (head, body) = request.into_parts();
    let is_grpc = grpc::is_grpc(&head.headers);
    let (encoding, packing, framing) = if is_grpc {
        (OtlpEncoding::Protobuf, grpc::packing(&head.headers)?, BodyFraming::Grpc)
    } else {
        (
            encoding(&head.headers)?,
            body::packing(&head.headers)?,
            BodyFraming::Nothing,
        )
    };
    let now = answers.clock.now();
    let settings = OtlpSettings {
        entity: Arc::clone(&answers.entity),
        fallback: headers::publisher(&head.headers)?,
        now,
    };
    let content_type = if encoding == OtlpEncoding::Json { JSON } else { PROTOBUF };
    let plan = IngestPlan {
        table,
        format: BodyFormat::Otlp(encoding, settings),
        packing,
        framing,
        key: BodyKey::Content(caller.scope.entities.clone()),
        origin: Some(BodyOrigin {
            subject: format!("otlp/{table}"),
            // What is kept are single records, as protobuf.
            content_type: PROTOBUF.to_owned(),
            at: now,
        }),
        for_bucket: false,
    };
    let stored = door.ingest(&caller, plan, (&head, body)).await?;
    let message = export_response(encoding, table, stored.rejected_total, &partial_message(&stored));
    if is_grpc {
        return Ok(grpc::answer(&message));
    }
    Ok(([(CONTENT_TYPE, content_type)], message).into_response())
}

/// Why records were refused, the first ones by name.
fn partial_message(stored: &StoredBody) -> String {
    let named = stored.rejected.iter().take(5);
    let named: Vec<_> = named.map(|bad| format!("record {}: {}", bad.row, bad.reason)).collect();
    named.join("; ")
}
