//! `http_in`: listens on HTTP/1.1; the body of each POST becomes a message, and a message on port `reply` its answer.
//!
//! | answer | when |
//! |---|---|
//! | 202 `{"flux_id": …, "trace_id": …}` | every wired inbox has taken the message, and no replies are awaited |
//! | the reply's body, 200 or the status that it names | `reply_within` is set: the reply has come |
//! | 504 | no reply has come within `reply_within`; the message was taken all the same |
//! | 400 | `trust_flux_id` holds and `Flux-Id` or `Flux-Parent` is no id ([`naming`](super::flux_headers)); `Idempotency-Key` is too long |
//! | 401 | `auth` is set, and the request does not show what it must ([`request_authentication`](super::request_authentication)) |
//! | 403, 421 | a browser sends it for a page of another site ([`chassis::host_guard`]) |
//! | 404, 405 | another path; another method than POST |
//! | 408 | the body did not arrive within [`BODY_TIMEOUT`] |
//! | 413 | the message would be larger than `max_payload_size`, or than the bus takes |
//! | 503 | no wire leads from this gear |
//!
//! Every other answer is an RFC 9457 problem.
//!
//! # Invariants
//!
//! - A full inbox keeps the request waiting: 202 is never an answer for a message that was dropped.
//! - At most [`MAX_CONNECTIONS`] connections; a slow head is cut off after [`HEADER_TIMEOUT`], and a peer that takes nothing of its answer
//!   after [`WRITE_TIMEOUT`](super::tcp_listener::WRITE_TIMEOUT).
//! - An answer that comes before all of a body was read reaches who still sends it.
//! - Every connection's task is joined before the gear ends.
//!
//! # Not here
//!
//! Which reply belongs to which request ([`pending_replies`]), which request is another one's repetition ([`idempotency`]), what answers are
//! made of ([`answers`]).

mod answers;
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod idempotency;
mod pending_replies;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "fuzz"))]
pub(super) use fuzz::fuzz_targets;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use chassis::host_guard::{HostGuard, protect_answer};
use chassis::lingering_close::{LingeringStream, UnreadBodyFlag};
use futures::FutureExt;
use gear_spec::http_in::HttpInConfig;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use model::gear_manifest;
use model::trace_context::RemoteContext;
use model::{Attributes, Level};

use super::flux_headers::FluxHeaders;
use super::request_authentication::RequestAuthentication;
use super::tcp_listener::{GearListener, IncomingStream, ListenerAddress};
use super::{ActiveGear, Gear, GearContext, GearError, GearFuture, GearSendError, OpenSpan, RawConfig};
use answers::{error_response, error_status, problem, set_answer, taken_response, unauthenticated};
use idempotency::{IdempotencyCache, SignalIds};
use pending_replies::{HttpReplyHandler, PendingHttpReplies, REQUEST};

/// The most connections at a time; more wait in the listener's backlog.
const MAX_CONNECTIONS: usize = 256;
/// How long a request's head may take, and how long a connection may be idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request's body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest `Content-Type` that is carried along.
const MAX_CONTENT_TYPE: usize = 256;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: HttpInConfig = gear_manifest::config(config)?;
    let waiting = config
        .reply_within
        .map(|within| Arc::new(PendingHttpReplies::new(within.get())));
    let replies = HttpReplyHandler(waiting.clone());
    let door = HttpReceiver {
        guard: Arc::new(HostGuard::new(config.listen, config.allowed_hosts()?)),
        config,
        waiting,
        keys: Arc::new(IdempotencyCache::new(MAX_CONNECTIONS)),
        authentication: Arc::new(RequestAuthentication::Nothing),
        listener: None,
    };
    Ok(Gear::Duplex(Box::new(door), Box::new(replies)))
}

struct HttpReceiver {
    config: HttpInConfig,
    guard: Arc<HostGuard>,
    /// Who waits for replies, if anybody does.
    waiting: Option<Arc<PendingHttpReplies>>,
    keys: Arc<IdempotencyCache>,
    /// What requests must show, once the gear begins.
    authentication: Arc<RequestAuthentication>,
    listener: Option<GearListener>,
}

impl ActiveGear for HttpReceiver {
    fn init<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let (auth, policy) = (self.config.auth.clone(), cx.policy().clone());
            let authentication =
                tokio::task::spawn_blocking(move || RequestAuthentication::of(auth.as_ref(), &policy)).await?;
            self.authentication = Arc::new(authentication.map_err(GearError::Config)?);
            let address = ListenerAddress {
                listen: self.config.listen,
                tls: self.config.tls.as_ref(),
                schemes: ["http", "https"],
                path: &self.config.path,
            };
            self.listener = Some(GearListener::bind(cx, address).await?);
            Ok(())
        }
        .boxed()
    }

    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let Some(listener) = self.listener.take() else {
                return Ok(());
            };
            let path: Arc<str> = self.config.path.as_str().into();
            if let Some(waiting) = &self.waiting {
                waiting.begin(cx.recorder().now());
            }
            let untrusted = Arc::new(AtomicBool::new(false));
            let serve = |incoming: IncomingStream| {
                let entry = HttpRequestHandler {
                    cx: Arc::clone(cx),
                    path: Arc::clone(&path),
                    scheme: if self.config.tls.is_some() { "https" } else { "http" },
                    guard: Arc::clone(&self.guard),
                    authentication: Arc::clone(&self.authentication),
                    peer: incoming.peer,
                    waiting: self.waiting.clone(),
                    keys: Arc::clone(&self.keys),
                    trusts: self.config.trusts(),
                    obeys_baggage: self.config.obeys_baggage(),
                    untrusted: Arc::clone(&untrusted),
                };
                serve(incoming, entry)
            };
            let _ends = self.keys.end_with();
            listener.serve(cx, MAX_CONNECTIONS, serve).await;
            self.keys.close().await;
            Ok(())
        }
        .boxed()
    }
}

/// Serves one connection until its peer leaves or the gear stops.
async fn serve(incoming: IncomingStream, entry: HttpRequestHandler) {
    let stop = incoming.stop.clone();
    let Some(stream) = incoming.accept().await else {
        return;
    };
    let limit = DefaultBodyLimit::max(entry.cx.limits().max_payload_size());
    let unread = UnreadBodyFlag::default();
    let of_request = unread.clone();
    let answered = move |mut response: Response| {
        of_request.announce_close(response.headers_mut());
        response
    };
    let router: axum::Router = axum::Router::new()
        .fallback(move |request: Request| entry.clone().answer(request))
        .layer(limit)
        .layer(tower::util::MapResponseLayer::new(answered));
    let stream = LingeringStream::new(stream, unread.clone());
    let watched = move |request: hyper::Request<Incoming>| request.map(|body| unread.track(body));
    let service = tower::ServiceExt::map_request(router, watched);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
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
struct HttpRequestHandler {
    cx: Arc<GearContext>,
    path: Arc<str>,
    scheme: &'static str,
    /// Which requests are for this server.
    guard: Arc<HostGuard>,
    authentication: Arc<RequestAuthentication>,
    peer: SocketAddr,
    waiting: Option<Arc<PendingHttpReplies>>,
    keys: Arc<IdempotencyCache>,
    /// Whether what a request says of its signal is obeyed.
    trusts: bool,
    /// Whether that holds of `baggage`.
    obeys_baggage: bool,
    /// Whether it was told that it is not.
    untrusted: Arc<AtomicBool>,
}

impl HttpRequestHandler {
    async fn answer(self, request: Request) -> Response {
        let (method, uri) = (request.method(), request.uri());
        let checked = self.guard.check(method, uri, request.headers(), "allowed_hosts");
        let mut response = match checked {
            Ok(()) => self.take(request).await,
            Err(foreign) => problem(foreign.status(), "foreign_request", &foreign.to_string()),
        };
        protect_answer(response.headers_mut());
        response
    }

    async fn take(self, request: Request) -> Response {
        let began = Instant::now();
        if let Err(refused) = self.authentication.check_headers(request.headers()) {
            return unauthenticated(refused);
        }
        if request.uri().path() != &*self.path {
            let detail = format!("messages are taken at {}", self.path);
            return problem(StatusCode::NOT_FOUND, "not_found", &detail);
        }
        if request.method() != Method::POST {
            let problem = problem(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "use POST");
            return ([(header::ALLOW, "POST")], problem).into_response();
        }
        if !self.cx.is_wired("out") {
            return error_response(GearSendError::Unwired { port: "out" });
        }
        let (headers, version) = (request.headers().clone(), request.version());
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
        if let Err(refused) = self.authentication.check_body(&headers, &body) {
            return unauthenticated(refused);
        }
        self.pass_on((&headers, version), body, began).await
    }

    /// Whose message a request carries, as far as its sender is trusted.
    fn named(&self, headers: &HeaderMap) -> Result<Option<FluxHeaders>, String> {
        if self.trusts {
            return FluxHeaders::read(headers, self.obeys_baggage);
        }
        if FluxHeaders::are_in(headers) && !self.untrusted.swap(true, Relaxed) {
            let said = "a request names a business signal in Flux-Id or baggage, which is ignored here: its message begins a signal of its own; set \
                        trust_flux_id to true if only trusted senders reach this address";
            self.cx.log(Level::Warn, said);
        }
        Ok(None)
    }

    /// What the span of a request says of it.
    fn facts(&self, (headers, version): (&HeaderMap, Version)) -> Attributes {
        let mut facts = Attributes::new()
            .with("http.request.method", "POST")
            .with("http.route", &*self.path)
            .with("url.path", &*self.path)
            .with("url.scheme", self.scheme)
            .with("client.address", self.peer.ip().to_string())
            .with(
                "network.protocol.version",
                if version == Version::HTTP_10 { "1.0" } else { "1.1" },
            );
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        if let Some(host) = host.and_then(|host| host.parse::<Authority>().ok()) {
            facts.set("server.address", host.host());
            if let Some(port) = host.port_u16() {
                facts.set("server.port", port);
            }
        }
        facts
    }

    async fn pass_on(&self, (headers, version): (&HeaderMap, Version), body: Bytes, began: Instant) -> Response {
        let named = match self.named(headers) {
            Ok(named) => named,
            Err(why) => return problem(StatusCode::BAD_REQUEST, "bad_flux_id", &why),
        };
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let key = headers.get(idempotency::HEADER).map(HeaderValue::as_bytes);
        let key = key.filter(|key| !key.is_empty() && self.waiting.is_none());
        if key.is_some_and(|key| key.len() > idempotency::MAX_KEY) {
            let detail = format!("Idempotency-Key has more than {} bytes", idempotency::MAX_KEY);
            return problem(StatusCode::BAD_REQUEST, "bad_key", &detail);
        }
        let request = key.map(|key| idempotency::digest(self.peer.ip(), key, &body));
        let caller = RemoteContext::read(|name| headers.get_all(name).iter().map(HeaderValue::as_bytes));
        let mut meta = Attributes::new().with("client.address", self.peer.ip().to_string());
        if let Some(content_type) = text("content-type").filter(|text| text.len() <= MAX_CONTENT_TYPE) {
            meta.set("content_type", content_type);
        }
        // Registered before the message leaves: its reply may be back before the send returns.
        let awaited = self.waiting.as_ref().map(PendingHttpReplies::expect);
        if let Some(awaited) = &awaited {
            meta.set(REQUEST, awaited.id());
        }
        let mut message = self.cx.make(caller.as_ref(), meta, body.into());
        if let Some(named) = named {
            named.apply_to(&mut message);
        }
        let ids = SignalIds {
            flux_id: message.flux_id.to_string(),
            trace_id: message.trace_id.to_string(),
        };
        let facts = message.sampled.then(|| self.facts((headers, version)));
        let (cx, parent) = (Arc::clone(&self.cx), caller.map(|caller| caller.parent.span_id));
        let pass_on = async move {
            let span = cx.open_span(&message, parent, began);
            span.set_http("server", || facts.unwrap_or_default());
            let passed = span.scope(cx.send_for_caller("out", message)).await;
            span.set_outcome(&passed);
            (passed.map(|()| ids), span)
        };
        let mut span = OpenSpan::default();
        let passed = match request {
            Some(request) => {
                // A repetition makes no span, as it makes no message.
                let ended = pass_on.map(|(passed, span)| {
                    let status = passed
                        .as_ref()
                        .map_or_else(|why| error_status(*why).0, |_| StatusCode::ACCEPTED);
                    set_answer(&span, status);
                    passed
                });
                self.keys.run_once(request, ended).await
            }
            None => {
                let (passed, open) = pass_on.await;
                span = open;
                passed
            }
        };
        let response = match passed {
            Ok(ids) => taken_response(ids, awaited).await,
            Err(why) => error_response(why),
        };
        set_answer(&span, response.status());
        response
    }
}
