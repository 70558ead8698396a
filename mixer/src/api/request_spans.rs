//! Spans of requests, by the semantic conventions of HTTP servers.
//!
//! # Invariants
//!
//! - Requests that store rows have none, nor do those that anybody may make or that only watch the Mixer: they are many, and `/metrics` counts
//!   them.
//! - A request that is refused before it is looked at has none: strangers store nothing. One that a handler refuses has one if it has parts.

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::uri::Authority;
use http::{HeaderValue, StatusCode, Version, header};
use model::SpanStatus;
use model::trace_context::RemoteContext;

use super::authorization::ClientConnection;
use super::exposition::method_name;
use super::openapi::route_access;
use crate::access::AccessRight;
use crate::self_tracing::{SpanRecorder, WorkSpan};

/// Routes with these rights have no spans.
const UNTRACED: [AccessRight; 3] = [AccessRight::Anybody, AccessRight::Monitor, AccessRight::Ingest];
/// How requests are refused before they are looked at.
const REFUSED: [StatusCode; 4] = [
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::MISDIRECTED_REQUEST,
    StatusCode::TOO_MANY_REQUESTS,
];
/// The most characters of a path.
const MAX_PATH: usize = 1024;

/// Records a request, as far as its answer has begun.
pub(super) async fn record(
    State((spans, scheme)): State<(SpanRecorder, &'static str)>,
    request: Request,
    next: Next,
) -> Response {
    let Some(mut span) = of_request(&spans, scheme, &request) else {
        return next.run(request).await;
    };
    let response = span.scope(next.run(request)).await;
    let code = response.status();
    if REFUSED.contains(&code) && !span.has_parts() {
        return response;
    }
    span.set("http.response.status_code", code.as_u16());
    if code.is_server_error() {
        span.set("error.type", code.as_str());
        span.end(SpanStatus::Error);
    } else {
        span.end(SpanStatus::Ok);
    }
    response
}

/// The span of a request that may have one, unless its trace is not kept.
fn of_request(spans: &SpanRecorder, scheme: &str, request: &Request) -> Option<WorkSpan> {
    let route = request.extensions().get::<MatchedPath>()?.as_str();
    let access = route_access(request.method(), route).ok()?;
    if UNTRACED.contains(&access.right) {
        return None;
    }
    let (headers, method) = (request.headers(), method_name(request.method()));
    let caller = RemoteContext::read(|name| headers.get_all(name).iter().map(HeaderValue::as_bytes));
    let mut span = spans.begin(caller.as_ref(), format!("{method} {route}"))?;
    span.set("span.kind", "server");
    span.set("http.request.method", method);
    span.set("http.route", route);
    span.set(
        "url.path",
        request.uri().path().chars().take(MAX_PATH).collect::<String>(),
    );
    span.set("url.scheme", scheme);
    let version = match request.version() {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    };
    span.set("network.protocol.version", version);
    if let Some(client) = request.extensions().get::<ClientConnection>() {
        span.set("client.address", client.ends.peer.ip().to_string());
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if let Some(host) = host.and_then(|host| host.parse::<Authority>().ok()) {
        span.set("server.address", host.host());
        if let Some(port) = host.port_u16() {
            span.set("server.port", port);
        }
    }
    Some(span)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;
    use crate::testing::{Hand, entropy};

    #[tokio::test]
    async fn a_refusal_is_recorded_if_a_part_of_its_work_was() {
        let surroundings = (Hand::new().clock(), entropy());
        let (spans, mut recorded) = SpanRecorder::new(&"mixer".parse().unwrap(), surroundings, 1.0);
        let refuse = |has_part: bool| {
            move || async move {
                if has_part {
                    WorkSpan::of_list("logs").end(SpanStatus::Error);
                }
                StatusCode::FORBIDDEN
            }
        };
        let router: Router = Router::new()
            .route("/api/v1/telemetry/logs", get(refuse(true)))
            .route("/api/v1/telemetry/traces", get(refuse(false)))
            .layer(from_fn_with_state((spans, "http"), record));
        for table in ["logs", "traces"] {
            let request = http::Request::get(format!("/api/v1/telemetry/{table}"));
            let request = request.body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.status(), StatusCode::FORBIDDEN);
        }
        let (part, whole) = (recorded.try_recv().unwrap(), recorded.try_recv().unwrap());
        assert!(recorded.try_recv().is_err());
        assert_eq!(whole.span_name, "GET /api/v1/telemetry/logs");
        assert_eq!(part.parent_span_id, Some(whole.span_id));
        assert_eq!(whole.attributes.get("http.response.status_code"), Some(&403.into()));
    }
}
