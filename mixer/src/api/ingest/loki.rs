//! `POST /loki/api/v1/push`: what Promtail, Alloy, the Docker driver and other clients of Grafana Loki push.
//!
//! | case | status |
//! |---|---|
//! | stored | 204 |
//! | some entries refused | 400; the others are stored, these are dead letters, and clients send none of them again |
//! | malformed, too large, an unknown encoding | 400, 413, 415 |
//! | no place, a quota used up, a repetition while the first one is stored | 503 with `Retry-After` |

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use model::Table;
use protocols::loki::LokiEncoding;
use protocols::otlp::{JSON, PROTOBUF};

use super::body::{self, RequestCompression};
use super::body_format::BodyFormat;
use super::end_after_refusal;
use super::ingest_handler::IngestHandler;
use super::senders::{SenderAnswers, refused_records};
use crate::access::ApiCaller;
use crate::api::authorization::RequestCaller;
use crate::api::problem::ApiProblem;
use crate::api::query_params::NoParams;

/// Loki's own path.
pub(super) const PATH: &str = "/loki/api/v1/push";

/// The route.
pub(in crate::api) fn loki_routes(door: IngestHandler, answers: SenderAnswers) -> Router {
    let push = |State((door, answers)): State<(IngestHandler, SenderAnswers)>,
                RequestCaller(caller): RequestCaller,
                _: NoParams,
                request: Request| async move { push(caller, (door, answers), request).await };
    Router::new()
        .route(PATH, post(push))
        .layer(axum::middleware::map_response(end_after_refusal))
        .with_state((door, answers))
}

/// How a body is encoded and packed: as Loki takes it, protobuf if nothing is said.
fn encoding(headers: &HeaderMap) -> Result<(LokiEncoding, RequestCompression), ApiProblem> {
    let kind = headers.get(CONTENT_TYPE).map_or(Ok(PROTOBUF), |value| value.to_str());
    let kind = kind.unwrap_or("?").split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case(JSON) {
        return Ok((LokiEncoding::Json, body::packing(headers)?));
    }
    if kind.eq_ignore_ascii_case(PROTOBUF) {
        return Ok((LokiEncoding::Protobuf, body::snappy_packing(headers)?));
    }
    Err(ApiProblem::body(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        format!("Content-Type {kind:?} is none of Loki's: known are {PROTOBUF} and {JSON}"),
    ))
}

async fn push(
    caller: Arc<ApiCaller>,
    (door, answers): (IngestHandler, SenderAnswers),
    request: Request,
) -> Result<Response, ApiProblem> {
    door.admit(&caller)?;
    let (head, body) = request.into_parts();
    let (encoding, packing) = encoding(&head.headers)?;
    let settings = answers.settings(&answers.loki_entity, &head.headers)?;
    let format = (BodyFormat::Loki(encoding, settings), packing);
    // What is kept are single entries, as protobuf.
    let plan = answers.plan((Table::Logs, &caller), format, ("loki", PROTOBUF));
    let stored = door.ingest(&caller, plan, (&head, body)).await?;
    if stored.rows.rejected_total > 0 {
        return Err(refused_records(&stored));
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
