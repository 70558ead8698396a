//! `GET /api/v1/telemetry/logs/tail`: the logs as they become visible, as server-sent events.
//!
//! Parameters are those of the list of logs, `until` and `offset` apart. `since` (every row from then on) or `limit` (so many of the newest)
//! has earlier rows sent first. `Last-Event-ID`, which browsers send by themselves, goes before `cursor`.
//!
//! # Invariants
//!
//! - A tail ends when its client leaves, when the API stops, or when a write makes no progress (`server`).
//!
//! # Not here
//!
//! What events there are and what they promise: [`query::Tail`].

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, http::HeaderMap};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use query::{Querier, Tail};

use super::params::Params;
use super::problem::Problem;
use super::server::Stopping;

const LAST_EVENT_ID: &str = "Last-Event-ID";

pub(crate) fn routes(querier: Arc<Querier>) -> Router {
    let routes = Router::new().route("/api/v1/telemetry/logs/tail", get(tail));
    routes.with_state(querier)
}

async fn tail(
    State(querier): State<Arc<Querier>>,
    Extension(Stopping(stop)): Extension<Stopping>,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, Problem> {
    let resume = headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty());
    let resume = resume.map(|id| (LAST_EVENT_ID, id.to_str().unwrap_or_default()));
    let tail = querier.tail(&params.filter()?, resume)?;
    let pieces = futures::stream::unfold(tail, |mut tail: Tail| async move {
        let piece = tail.next().await?;
        Some((Ok::<Bytes, Infallible>(piece), tail))
    });
    let until_stopped = futures::StreamExt::take_until(pieces, stop.cancelled_owned());
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // A proxy that gathers answers would hold rows back.
        (
            HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    Ok((headers, Body::from_stream(until_stopped)).into_response())
}
