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
//! - What can be stored later is 503, never 409 or 429: some clients of OTLP drop what was answered with these.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use protocols::otlp::{self, JSON, OtlpEncoding, PROTOBUF, SIGNALS, export_response};
use tower::Layer;
use tower::util::MapRequestLayer;

use super::body;
use super::body_format::ForeignFormat;
use super::grpc::{self, code};
use super::ingest_handler::{BodyFraming, IngestHandler};
use super::senders::{SenderAnswers, SenderProtocol, SentBody, detail_of, is_retriable, named_refusals, problem_of};
use crate::access::ApiCaller;
use crate::api::counted_status::CountedStatus;
use crate::api::problem::ApiProblem;

/// The routes of the three signals.
pub(in crate::api) fn otlp_routes(door: IngestHandler, answers: SenderAnswers) -> Router {
    SIGNALS.into_iter().fold(Router::new(), |router, (table, path, _)| {
        let protocol = SenderProtocol {
            door: door.clone(),
            clock: answers.clock.clone(),
            entity: Arc::clone(&answers.otlp_entity),
            table,
            name: "otlp",
            // What is kept are single records, as protobuf.
            content_type: PROTOBUF,
        };
        router.merge(protocol.route(path, export))
    })
}

/// Answers for gRPC's paths by the routes of a router.
pub(in crate::api) fn grpc_paths(router: Router) -> Router {
    let rewritten = MapRequestLayer::new(|mut request: Request| {
        let signal = SIGNALS.iter().find(|(.., service)| *service == request.uri().path());
        if let Some((_, path, _)) = signal {
            let mut parts = request.uri().clone().into_parts();
            parts.path_and_query = Some(PathAndQuery::from_static(path));
            // The authority stays: the host is checked by it.
            if let Ok(uri) = Uri::from_parts(parts) {
                *request.uri_mut() = uri;
            }
        }
        request
    });
    Router::new().fallback_service(rewritten.layer(router))
}

/// Says refusals of OTLP's requests as their protocol does, whoever refused them.
pub(in crate::api) async fn refuse_in_kind(mut request: Request, next: Next) -> Response {
    let is_signal =
        request.method() == Method::POST && SIGNALS.iter().any(|(_, path, _)| *path == request.uri().path());
    let is_grpc = grpc::is_grpc(request.headers());
    let encoding = encoding(request.headers()).unwrap_or(OtlpEncoding::Json);
    if is_grpc || is_signal {
        // A refusal is read here, and gRPC packs messages itself.
        request.headers_mut().remove(ACCEPT_ENCODING);
    }
    let response = next.run(request).await;
    let is_refusal = response.status().is_client_error() || response.status().is_server_error();
    // Who is not let in at all is told as everywhere; gRPC has one form for all.
    if !(is_refusal && (is_grpc || is_signal && !is_of_the_door(response.status()))) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let problem = problem_of(&head.headers, body).await;
    let detail = detail_of(&problem);
    // The status that it has so far, unless more is known: gRPC's all have 200, and 5xx is what the Mixer cannot do.
    head.extensions.get_or_insert(CountedStatus(head.status));
    if is_retriable(head.status) {
        head.status = StatusCode::SERVICE_UNAVAILABLE;
    }
    let code = code::of_status(head.status);
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
    head.headers
        .insert(CONTENT_TYPE, HeaderValue::from_static(encoding.content_type()));
    head.headers.remove(http::header::CONTENT_LENGTH);
    if let Some(seconds) = retry {
        head.headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    Response::from_parts(head, Body::from(otlp::status(encoding, code, detail)))
}

/// Whether it is said of who calls, not of what is sent.
pub(in crate::api) const fn is_of_the_door(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST
    )
}

/// How a request over HTTP is encoded.
fn encoding(headers: &HeaderMap) -> Result<OtlpEncoding, ApiProblem> {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    OtlpEncoding::of_content_type(kind).ok_or_else(|| {
        ApiProblem::body(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("Content-Type {kind:?} is none of OTLP's: known are {PROTOBUF} and {JSON}"),
        )
    })
}

/// What the head of a request says of its body, over HTTP or gRPC.
fn sent_body(headers: &HeaderMap) -> Result<SentBody, ApiProblem> {
    let (encoding, packing, framing) = if grpc::is_grpc(headers) {
        (OtlpEncoding::Protobuf, grpc::packing(headers)?, BodyFraming::Grpc)
    } else {
        (encoding(headers)?, body::packing(headers)?, BodyFraming::Nothing)
    };
    Ok((ForeignFormat::Otlp(encoding), packing, framing))
}

async fn export(caller: Arc<ApiCaller>, protocol: SenderProtocol, request: Request) -> Result<Response, ApiProblem> {
    let is_grpc = grpc::is_grpc(request.headers());
    let encoding = encoding(request.headers()).unwrap_or(OtlpEncoding::Protobuf);
    let table = protocol.table;
    let stored = protocol.store(&caller, request, sent_body).await?;
    let message = export_response(encoding, table, stored.rows.rejected_total, &named_refusals(&stored));
    if is_grpc {
        return Ok(grpc::answer(&message));
    }
    Ok(([(CONTENT_TYPE, encoding.content_type())], message).into_response())
}
