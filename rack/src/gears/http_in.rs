//! `http_in`: listens on HTTP/1.1; the body of each POST becomes a message.
//!
//! | answer | when |
//! |---|---|
//! | 202 `{"flux_id": …, "trace_id": …}` | every wired inbox has taken the message |
//! | 404, 405 | another path; another method than POST |
//! | 408 | the body did not arrive within [`BODY_TIMEOUT`] |
//! | 413 | the message would be larger than `max_payload_size` |
//! | 503 | no wire leads from this gear |
//!
//! Every other answer than 202 is an RFC 9457 problem.
//!
//! # Invariants
//!
//! - A full inbox keeps the request waiting: 202 is never an answer for a message that was dropped.
//! - At most [`MAX_CONNECTIONS`] connections; a slow head is cut off after [`HEADER_TIMEOUT`].
//! - Every connection's task is joined before the gear ends.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use model::gear::{self, GearConfig, Manifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use model::Attributes;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::listener::Listener;
use super::traceparent::TraceParent;
use super::{Active, Config, Context, Gear, Refused, Work};

/// The most connections at a time; more wait in the listener's backlog.
const MAX_CONNECTIONS: usize = 256;
/// How long a request's head may take, and how long a connection may be idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request's body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest `Content-Type` that is carried along.
const MAX_CONTENT_TYPE: usize = 256;

/// What the type is.
pub(super) const MANIFEST: Manifest = Manifest {
    kind: "http_in",
    summary: "listens on HTTP; the body of each POST becomes a message",
    inputs: &[],
    outputs: &["out"],
    doc: "202 says that every wired inbox has the message; a full inbox keeps the request waiting. `traceparent` is obeyed.",
    example: include_str!("../../../examples/gears/http_in.yaml"),
    schema: gear::schema::<HttpIn>,
    check: gear::check::<HttpIn>,
};

pub(super) fn build(config: &Config) -> Result<Gear, String> {
    Ok(Gear::Active(Box::new(Door {
        config: gear::config(config)?,
        listener: None,
    })))
}

struct Door {
    config: HttpIn,
    listener: Option<Listener>,
}

impl Active for Door {
    fn init<'a>(&'a mut self, cx: &'a Arc<Context>) -> Work<'a> {
        async move {
            self.listener = Some(Listener::bind(cx, self.config.listen, "http", &self.config.path).await?);
            Ok(())
        }
        .boxed()
    }

    fn run<'a>(&'a mut self, cx: &'a Arc<Context>) -> Work<'a> {
        async move {
            let Some(listener) = self.listener.take() else {
                return Ok(());
            };
            let path: Arc<str> = self.config.path.as_str().into();
            let serve = |stream, peer, stop| {
                let (cx, path) = (Arc::clone(cx), Arc::clone(&path));
                serve(stream, Entry { cx, path, peer }, stop)
            };
            listener.serve(cx, MAX_CONNECTIONS, serve).await;
            Ok(())
        }
        .boxed()
    }
}

/// Serves one connection until its peer leaves or the gear stops.
async fn serve(stream: TcpStream, entry: Entry, stop: CancellationToken) {
    let limit = DefaultBodyLimit::max(entry.cx.limits().max_payload_size());
    let router: axum::Router = axum::Router::new()
        .fallback(move |request: Request| entry.clone().answer(request))
        .layer(limit);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    // How a connection ends is its peer's affair: resets and half requests are not faults of this gear.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await.ok();
}

/// What a request meets.
#[derive(Clone)]
struct Entry {
    cx: Arc<Context>,
    path: Arc<str>,
    peer: SocketAddr,
}

impl Entry {
    async fn answer(self, request: Request) -> Response {
        let began = Instant::now();
        if request.uri().path() != &*self.path {
            let detail = format!("messages are taken at {}", self.path);
            return problem(StatusCode::NOT_FOUND, "not_found", &detail);
        }
        if request.method() != Method::POST {
            let problem = problem(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "use POST");
            return ([(header::ALLOW, "POST")], problem).into_response();
        }
        if !self.cx.is_wired("out") {
            return refused(Refused::Unwired { port: "out" });
        }
        let headers = request.headers().clone();
        let body = match tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, &())).await {
            Ok(Ok(body)) => body,
            Ok(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                let max = self.cx.limits().max_payload_size();
                let detail = format!("the body has more than {max} bytes, the most that max_payload_size allows");
                return problem(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &detail);
            }
            Ok(Err(rejection)) => return problem(StatusCode::BAD_REQUEST, "bad_body", &rejection.body_text()),
            Err(_) => {
                return problem(
                    StatusCode::REQUEST_TIMEOUT,
                    "timeout",
                    "the body did not arrive in time",
                );
            }
        };
        self.pass_on(&headers, body, began).await
    }

    async fn pass_on(&self, headers: &HeaderMap, body: Bytes, began: Instant) -> Response {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let parent = text("traceparent").and_then(TraceParent::parse);
        let mut meta = Attributes::new().with("client.address", self.peer.ip().to_string());
        if let Some(content_type) = text("content-type").filter(|text| text.len() <= MAX_CONTENT_TYPE) {
            meta.set("content_type", content_type);
        }
        let message = self.cx.make(parent, meta, body.into());
        let (flux_id, trace_id) = (message.flux_id, message.trace_id);
        match self
            .cx
            .emit("out", message, parent.map(|parent| parent.span_id), began)
            .await
        {
            Ok(()) => {
                let ids = json!({ "flux_id": flux_id.to_string(), "trace_id": trace_id.to_string() });
                (StatusCode::ACCEPTED, axum::Json(ids)).into_response()
            }
            Err(why) => refused(why),
        }
    }
}

fn refused(why: Refused) -> Response {
    let (status, code) = match why {
        Refused::Size { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        Refused::Hops { .. } => (StatusCode::SERVICE_UNAVAILABLE, "too_many_hops"),
        Refused::Unwired { .. } => (StatusCode::SERVICE_UNAVAILABLE, "unwired"),
        Refused::NotKept => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
    };
    problem(status, code, &why.to_string())
}

fn problem(status: StatusCode, code: &str, detail: &str) -> Response {
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

/// Configuration of `http_in`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpIn {
    /// Where to listen, `127.0.0.1:0` for any free port.
    pub(super) listen: SocketAddr,
    /// The path that takes messages.
    #[serde(default = "default_path")]
    pub(super) path: String,
}

fn default_path() -> String {
    "/".to_owned()
}

impl GearConfig for HttpIn {
    fn validate(&self) -> Result<(), String> {
        if self.path.starts_with('/') {
            Ok(())
        } else {
            Err("path must begin with /".into())
        }
    }
}
