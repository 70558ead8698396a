//! Answers of `http_in`: what became of a message, the reply to it, and problems (RFC 9457).

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use gear_spec::http_headers::FLUX_ID;
use model::message::Message;
use model::{HumanDuration, SpanStatus};
use serde_json::json;

use super::idempotency::SignalIds;
use super::pending_replies::PendingHttpReply;
use crate::gears::request_authentication::AuthenticationRefusal;
use crate::gears::{GearSendError, OpenSpan};

/// The answer to a request whose message has left, with a reply where one is awaited.
pub(super) async fn taken_response(
    SignalIds { flux_id, trace_id }: SignalIds,
    awaited: Option<PendingHttpReply>,
) -> Response {
    let answer = match awaited {
        Some(awaited) => reply_response(awaited).await,
        None => {
            let ids = json!({ "flux_id": flux_id, "trace_id": trace_id });
            (StatusCode::ACCEPTED, axum::Json(ids)).into_response()
        }
    };
    ([(FLUX_ID, flux_id)], answer).into_response()
}

/// Ends the span of a request: what its sender did wrong is no failure of the gear.
pub(super) fn set_answer(span: &OpenSpan, status: StatusCode) {
    let outcome = if status.is_server_error() {
        SpanStatus::Error
    } else {
        SpanStatus::Ok
    };
    span.set_answer(status.as_u16(), outcome);
}

/// The reply to a request whose message has left.
async fn reply_response(awaited: PendingHttpReply) -> Response {
    let within = HumanDuration::from(awaited.within());
    let Some((status, reply)) = awaited.reply().await else {
        let detail = format!("no reply came within {within} (reply_within); the message was taken");
        return problem(StatusCode::GATEWAY_TIMEOUT, "no_reply", &detail);
    };
    let content_type = content_type(&reply).to_owned();
    (
        status,
        [(header::CONTENT_TYPE, content_type)],
        reply.body().into_owned(),
    )
        .into_response()
}

/// What a reply's body is: a value is written as JSON, bytes are what the message says of them.
fn content_type(reply: &Message) -> &str {
    if !reply.data.is_null() {
        return "application/json";
    }
    let said = reply.meta.get("content_type").and_then(serde_json::Value::as_str);
    said.filter(|text| header::HeaderValue::from_str(text).is_ok())
        .unwrap_or("application/octet-stream")
}

/// The status and the code of a message that did not leave.
pub(super) const fn error_status(why: GearSendError) -> (StatusCode, &'static str) {
    match why {
        GearSendError::Size { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        GearSendError::Hops { .. } => (StatusCode::SERVICE_UNAVAILABLE, "too_many_hops"),
        GearSendError::Unwired { .. } => (StatusCode::SERVICE_UNAVAILABLE, "unwired"),
        GearSendError::NotKept => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
    }
}

/// The answer to its request.
pub(super) fn error_response(why: GearSendError) -> Response {
    let (status, code) = error_status(why);
    problem(status, code, &why.to_string())
}

/// The answer to who does not show what it must.
pub(super) fn unauthenticated(refused: AuthenticationRefusal) -> Response {
    let problem = problem(StatusCode::UNAUTHORIZED, "unauthenticated", &refused.to_string());
    ([(header::WWW_AUTHENTICATE, refused.challenge)], problem).into_response()
}

/// A problem as RFC 9457 has it.
pub(super) fn problem(status: StatusCode, code: &str, detail: &str) -> Response {
    let body = json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or_default(),
        "status": status.as_u16(),
        "code": code,
        "detail": detail,
    });
    (
        status,
        [(header::CONTENT_TYPE, "application/problem+json")],
        body.to_string(),
    )
        .into_response()
}
