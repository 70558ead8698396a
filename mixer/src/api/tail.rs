//! `GET /api/v1/telemetry/logs/tail` and `GET /api/v1/messages/tail`: rows as they become visible, as server-sent events.
//!
//! Parameters are those of the lists, `until`, `offset` and `order` apart. `since` (every row from then on) or `limit` (so many of the newest)
//! has earlier rows sent first. `Last-Event-ID`, which browsers send by themselves, goes before `cursor`.
//!
//! # Invariants
//!
//! - A tail ends when its client leaves, when its token is revoked or expires, when the API stops, or when a write makes no progress (`server`). It has no deadline.
//!
//! # Not here
//!
//! What events there are and what they promise: [`query::LiveTail`].

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Extension;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, http::HeaderMap};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use query::{LiveTail, QueryEngine};
use tokio_util::sync::CancellationToken;

use super::authorization::{CallerQuerier, RequestCaller};
use super::problem::ApiProblem;
use super::query_params::QueryParams;
use super::server::ShutdownToken;
use crate::access::ApiCaller;

const LAST_EVENT_ID: &str = "Last-Event-ID";

pub(crate) fn routes(querier: Arc<QueryEngine>) -> Router {
    let routes = Router::new()
        .route("/api/v1/telemetry/logs/tail", get(logs))
        .route("/api/v1/messages/tail", get(messages));
    routes.with_state(querier)
}

async fn logs(
    CallerQuerier(querier): CallerQuerier,
    (stopping, RequestCaller(caller)): (Extension<ShutdownToken>, RequestCaller),
    headers: HeaderMap,
    params: QueryParams,
) -> Result<Response, ApiProblem> {
    let tail = querier.tail(&params.filter()?, last(&headers))?;
    Ok(events(tail, stopping, &caller))
}

async fn messages(
    CallerQuerier(querier): CallerQuerier,
    (stopping, RequestCaller(caller)): (Extension<ShutdownToken>, RequestCaller),
    headers: HeaderMap,
    params: QueryParams,
) -> Result<Response, ApiProblem> {
    let tail = querier.tail_messages(&params.filter()?, last(&headers))?;
    Ok(events(tail, stopping, &caller))
}

/// The id of the last event that the reader had, with who said so.
fn last(headers: &HeaderMap) -> Option<(&'static str, &str)> {
    let id = headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty());
    id.map(|id| (LAST_EVENT_ID, id.to_str().unwrap_or_default()))
}

/// Whether an answer is a stream of events.
pub(super) fn is_events(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"))
}

fn events(tail: LiveTail, Extension(ShutdownToken(stop)): Extension<ShutdownToken>, caller: &ApiCaller) -> Response {
    let pieces = futures::stream::unfold(tail, |mut tail: LiveTail| async move {
        let piece = tail.next().await?;
        Some((Ok::<Bytes, Infallible>(piece), tail))
    });
    let until_stopped = futures::StreamExt::take_until(pieces, ended(stop, caller));
    event_stream(Body::from_stream(until_stopped))
}

/// Returns when a stream of a caller ends: at the stop, or when the caller may follow it no more.
pub(super) fn ended(stop: CancellationToken, caller: &ApiCaller) -> impl Future<Output = ()> + Send + use<> {
    let revoked = caller.revoked.clone();
    async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = revoked.cancelled() => {}
        }
    }
}

/// An answer of server-sent events.
pub(super) fn event_stream(body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // A proxy that gathers answers would hold rows back.
        (
            HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    (headers, body).into_response()
}
