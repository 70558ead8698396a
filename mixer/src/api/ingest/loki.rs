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
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use model::Table;
use protocols::loki::LokiEncoding;
use protocols::otlp::{JSON, PROTOBUF};

use super::body;
use super::body_format::ForeignFormat;
use super::ingest_handler::{BodyFraming, IngestHandler};
use super::senders::{SenderAnswers, SenderProtocol, SentBody, refused_records};
use crate::access::ApiCaller;
use crate::api::problem::ApiProblem;

/// Loki's own path.
pub(super) const PATH: &str = "/loki/api/v1/push";

/// The route.
pub(in crate::api) fn loki_routes(door: IngestHandler, answers: SenderAnswers) -> Router {
    let protocol = SenderProtocol {
        door,
        clock: answers.clock,
        entity: answers.loki_entity,
        table: Table::Logs,
        name: "loki",
        content_type: PROTOBUF,
    };
    protocol.route(PATH, push)
}

/// How a body is encoded and packed: as Loki takes it, protobuf if nothing is said.
fn sent_body(headers: &HeaderMap) -> Result<SentBody, ApiProblem> {
    let kind = headers.get(CONTENT_TYPE).map_or(Ok(PROTOBUF), |value| value.to_str());
    let kind = kind.unwrap_or("?").split(';').next().unwrap_or_default().trim();
    let (encoding, packing) = if kind.eq_ignore_ascii_case(JSON) {
        (LokiEncoding::Json, body::packing(headers)?)
    } else if kind.eq_ignore_ascii_case(PROTOBUF) {
        (LokiEncoding::Protobuf, body::snappy_packing(headers)?)
    } else {
        return Err(ApiProblem::body(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("Content-Type {kind:?} is none of Loki's: known are {PROTOBUF} and {JSON}"),
        ));
    };
    Ok((ForeignFormat::Loki(encoding), packing, BodyFraming::Nothing))
}

async fn push(caller: Arc<ApiCaller>, protocol: SenderProtocol, request: Request) -> Result<Response, ApiProblem> {
    let stored = protocol.store(&caller, request, sent_body).await?;
    if stored.rows.rejected_total > 0 {
        return Err(refused_records(&stored));
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
