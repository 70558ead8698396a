//! `otlp_in`: takes OTLP over HTTP and gRPC; what comes becomes rows in the Rack's spool.
//!
//! | case | HTTP | gRPC |
//! |---|---|---|
//! | on the Rack's disk, or a repetition of what is | 200 | `OK` |
//! | some records refused | 200 with `partial_success` | `OK` with the same |
//! | malformed, too large, an unknown encoding | 400, 413, 415 | `INVALID_ARGUMENT` |
//! | spool full, no memory, the same request under way, the gear stops | 503 with `Retry-After` | `UNAVAILABLE` with `RetryInfo` |
//! | no token; a page of another site | 401; 403, 421 | `UNAUTHENTICATED`; `PERMISSION_DENIED` |
//! | another path or method | 404, 405 | `UNIMPLEMENTED` |
//!
//! # Invariants
//!
//! - An answer that says stored comes after the rows are on disk; from there they reach the Mixer once, by the spool's sequence.
//! - At most [`MAX_CONNECTIONS`] connections at each address, [`MAX_STREAMS`] requests on one of HTTP/2, and a bounded memory for all of them
//!   ([`request_room`]).
//! - A connection that asks for nothing ends, over HTTP/2 as well ([`chassis::connection_activity`]).
//! - Every connection's task, and every request that has begun to be stored, is joined before the gear ends.
//!
//! # Not here
//!
//! What becomes of a record's fields (`protocols::otlp`); which request is another one's repetition ([`request_window`]).

mod export_refusal;
mod export_store;
mod request_body;
mod request_room;
mod request_window;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method, Request, StatusCode};
use axum::response::Response;
use chassis::connection_activity::ConnectionActivity;
use chassis::host_guard::{HostGuard, protect_answer};
use chassis::lingering_close::{LingeringStream, TrackedBody, UnreadBodyFlag};
use futures::FutureExt;
use gear_spec::otlp_in::OtlpInConfig;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use model::{Table, gear_manifest};
use protocols::grpc;
use protocols::otlp::{self, JSON, OtlpEncoding, PROTOBUF, SIGNALS};
use tokio_util::sync::CancellationToken;

use super::request_authentication::RequestAuthentication;
use super::tcp_listener::{GearListener, IncomingStream, ListenerAddress, WRITE_TIMEOUT};
use super::{ActiveGear, Gear, GearContext, GearError, GearFuture, RawConfig};
use export_refusal::ExportRefusal;
use export_store::{ExportStore, ReceivedRequest, StoredExport};
use request_body::{BodyPacking, grpc_message};
use request_room::RequestMemory;

/// The most connections at a time at an address; more wait in the listener's backlog.
const MAX_CONNECTIONS: usize = 256;
/// The most requests at a time on a connection of HTTP/2.
const MAX_STREAMS: u32 = 32;
/// The most bytes of a request's headers.
const MAX_HEAD: u32 = 16 << 10;
/// How long a request's head may take, and how long a connection may be idle; of HTTP/2, how long its first request may take to come.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a connection of HTTP/2 may be without a request after its first one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a connection of HTTP/2 may be silent before it is asked whether it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: OtlpInConfig = gear_manifest::config(config)?;
    Ok(Gear::Active(Box::new(OtlpReceiver {
        config,
        authentication: Arc::new(RequestAuthentication::Nothing),
        doors: Vec::new(),
    })))
}

struct OtlpReceiver {
    config: OtlpInConfig,
    /// What requests must show, once the gear begins.
    authentication: Arc<RequestAuthentication>,
    doors: Vec<OtlpDoor>,
}

/// An address that is listened on.
struct OtlpDoor {
    listener: GearListener,
    version: ServedVersion,
    guard: Arc<HostGuard>,
}

/// What is spoken at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServedVersion {
    Http1,
    /// gRPC's.
    Http2,
}

impl OtlpReceiver {
    async fn open(&self, cx: &GearContext, listen: SocketAddr, version: ServedVersion) -> Result<OtlpDoor, GearError> {
        let (schemes, path) = match version {
            ServedVersion::Http1 => (["http", "https"], "/v1/"),
            ServedVersion::Http2 => (["grpc", "grpcs"], "/"),
        };
        let tls = self.config.tls.as_ref();
        let address = ListenerAddress {
            listen,
            tls,
            schemes,
            path,
        };
        let hosts = self.config.allowed_hosts().map_err(GearError::Config)?;
        Ok(OtlpDoor {
            listener: GearListener::bind(cx, address).await?,
            version,
            guard: Arc::new(HostGuard::new(listen, hosts)),
        })
    }
}

impl ActiveGear for OtlpReceiver {
    fn init<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            cx.check_recording()?;
            let (auth, policy) = (self.config.auth.clone(), cx.policy().clone());
            let authentication =
                tokio::task::spawn_blocking(move || RequestAuthentication::of(auth.as_ref(), &policy)).await?;
            self.authentication = Arc::new(authentication.map_err(GearError::Config)?);
            for (listen, version) in [
                (self.config.listen, ServedVersion::Http1),
                (self.config.listen_grpc, ServedVersion::Http2),
            ] {
                if let Some(listen) = listen {
                    let door = self.open(cx, listen, version).await?;
                    self.doors.push(door);
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let store = Arc::new(ExportStore::new(cx));
            let _ends = store.end_with();
            let memory = RequestMemory::new();
            let served = self.doors.iter().map(|door| {
                let handler = ExportHandler {
                    guard: Arc::clone(&door.guard),
                    authentication: Arc::clone(&self.authentication),
                    store: Arc::clone(&store),
                    memory: memory.clone(),
                };
                let version = door.version;
                door.listener.serve(cx, MAX_CONNECTIONS, move |incoming| {
                    serve(incoming, handler.clone(), version)
                })
            });
            futures::future::join_all(served).await;
            store.close().await;
            Ok(())
        }
        .boxed()
    }
}

/// Serves one connection until its peer leaves or the gear stops.
async fn serve(incoming: IncomingStream, handler: ExportHandler, version: ServedVersion) {
    let stop = incoming.stop.clone();
    let protocol: &[u8] = match version {
        ServedVersion::Http1 => b"",
        ServedVersion::Http2 => b"h2",
    };
    let Some(stream) = incoming.accept_protocol(protocol).await else {
        return;
    };
    let unread = UnreadBodyFlag::default();
    let stream = TokioIo::new(LingeringStream::new(stream, unread.clone()));
    let activity = Arc::new(ConnectionActivity::default());
    let requests = Arc::clone(&activity);
    let service = service_fn(move |request: Request<Incoming>| {
        let (handler, unread, requests) = (handler.clone(), unread.clone(), Arc::clone(&requests));
        let open = requests.begin();
        async move {
            let _open = open;
            let request = request.map(|body| unread.track(body));
            let (status, mut response) = handler.answer(request).await;
            requests.count_answer(status);
            // HTTP/2 ends a request alone.
            if version == ServedVersion::Http1 {
                unread.announce_close(response.headers_mut());
            }
            Ok::<_, Infallible>(response)
        }
    });
    match version {
        ServedVersion::Http1 => {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(MAX_HEAD as usize);
            // It has a timeout of its own, and is never idle here.
            let _open = activity.begin();
            until_idle(http.serve_connection(stream, service), &stop, &activity).await;
        }
        ServedVersion::Http2 => {
            let mut http = http2::Builder::new(TokioExecutor::new());
            http.timer(TokioTimer::new())
                .max_concurrent_streams(MAX_STREAMS)
                .max_header_list_size(MAX_HEAD)
                .keep_alive_interval(Some(KEEP_ALIVE))
                .keep_alive_timeout(WRITE_TIMEOUT);
            until_idle(http.serve_connection(stream, service), &stop, &activity).await;
        }
    }
}

/// Serves a connection to its end, which begins at the stop or when it is idle. How it ends is its peer's affair.
async fn until_idle<C: GracefulConnection>(served: C, stop: &CancellationToken, activity: &ConnectionActivity) {
    let mut served = pin!(served);
    tokio::select! {
        _ = served.as_mut() => return,
        () = stop.cancelled() => {}
        () = activity.wait_idle(HEADER_TIMEOUT, IDLE_TIMEOUT) => {}
    }
    // Without a request there is nothing to end, and perhaps no preface, which a graceful end would wait for.
    if activity.has_begun() {
        served.as_mut().graceful_shutdown();
        tokio::select! {
            _ = served => {}
            // A request that begins meanwhile is answered all the same.
            () = activity.wait_idle(HEADER_TIMEOUT, HEADER_TIMEOUT) => {}
        }
    }
}

/// What a request meets.
#[derive(Clone)]
struct ExportHandler {
    guard: Arc<HostGuard>,
    authentication: Arc<RequestAuthentication>,
    store: Arc<ExportStore>,
    memory: RequestMemory,
}

/// A request over HTTP or gRPC, as it is to be read and answered.
#[derive(Debug, Clone, Copy)]
struct ExportForm {
    is_grpc: bool,
    encoding: OtlpEncoding,
}

impl ExportHandler {
    /// The answer, and its status over HTTP, which gRPC does not show.
    async fn answer(self, request: Request<TrackedBody<Incoming>>) -> (StatusCode, Response) {
        let headers = request.headers();
        let is_grpc = grpc::is_grpc(headers);
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let said = OtlpEncoding::of_content_type(kind.unwrap_or_default());
        let form = ExportForm {
            is_grpc,
            encoding: match said {
                _ if is_grpc => OtlpEncoding::Protobuf,
                Some(encoding) => encoding,
                None => OtlpEncoding::Json,
            },
        };
        let exported = if is_grpc || said.is_some() || request.method() != Method::POST {
            self.export(form, request).await
        } else {
            let kind = kind.unwrap_or_default();
            let detail = format!("Content-Type {kind:?} is none of OTLP's: known are {PROTOBUF} and {JSON}");
            Err(ExportRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
        };
        let status = exported
            .as_ref()
            .map_or_else(|refused| refused.status, |_| StatusCode::OK);
        let mut response = match exported {
            Ok((table, stored)) => answer_stored(form, table, &stored),
            Err(refused) if is_grpc => refused.into_grpc(),
            Err(refused) => refused.into_http(form.encoding),
        };
        protect_answer(response.headers_mut());
        (status, response)
    }

    async fn export(
        self,
        form: ExportForm,
        request: Request<TrackedBody<Incoming>>,
    ) -> Result<(Table, StoredExport), ExportRefusal> {
        let table = self.admit(form, &request)?;
        let packing = BodyPacking::of(request.headers(), form.is_grpc)?;
        let mut room = self.memory.room();
        let body = request_body::read(request.into_body(), &mut room).await?;
        let (packing, body) = if form.is_grpc {
            grpc_message(packing, &body)?
        } else {
            (packing, body)
        };
        let received = ReceivedRequest {
            table,
            encoding: form.encoding,
            packing,
            body,
            room,
        };
        let stored = self.store.store(received).await?;
        Ok((table, stored))
    }

    /// The table of a request that may be read.
    fn admit(&self, form: ExportForm, request: &Request<TrackedBody<Incoming>>) -> Result<Table, ExportRefusal> {
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        let foreign = self.guard.check(method, uri, headers, "allowed_hosts");
        foreign.map_err(|foreign| ExportRefusal::new(foreign.status(), foreign.to_string()))?;
        if let Err(refused) = self.authentication.check_headers(headers) {
            let mut refusal = ExportRefusal::new(StatusCode::UNAUTHORIZED, refused.to_string());
            refusal.headers.insert(WWW_AUTHENTICATE, refused.challenge);
            return Err(refusal);
        }
        let path_of = |(_, path, service): &(Table, &'static str, &'static str)| {
            if form.is_grpc { *service } else { *path }
        };
        let signal = SIGNALS.iter().find(|signal| path_of(signal) == uri.path());
        let Some((table, ..)) = signal else {
            let known: Vec<_> = SIGNALS.iter().map(path_of).collect();
            let detail = format!("signals of OTLP are taken at {}", known.join(", "));
            return Err(ExportRefusal::new(StatusCode::NOT_FOUND, detail));
        };
        if method != Method::POST {
            let mut refusal = ExportRefusal::new(StatusCode::METHOD_NOT_ALLOWED, "use POST");
            refusal.headers.insert(ALLOW, HeaderValue::from_static("POST"));
            return Err(refusal);
        }
        Ok(*table)
    }
}

fn answer_stored(form: ExportForm, table: Table, stored: &StoredExport) -> Response {
    let message = otlp::export_response(form.encoding, table, stored.refused, &stored.reason);
    if form.is_grpc {
        return grpc::answer(&message).map(Body::new);
    }
    let mut response = Response::new(Body::from(message));
    let kind = HeaderValue::from_static(form.encoding.content_type());
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
