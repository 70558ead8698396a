//! The accept loop: bounded connections, bounded header time, a graceful end.
//!
//! # Invariants
//!
//! - At [`MAX_CONNECTIONS`] no more are accepted until one ends; the system's queue holds the others.
//! - A connection whose TLS handshake, or whose request's head, is not there in [`HEAD_TIME`] is closed.
//! - An answer that comes before all of a body was read reaches who still sends ([`chassis::lingering_close`]), and says that the connection ends
//!   with it, so that the next request goes elsewhere.
//! - A connection to which nothing can be written for [`SlowClientLimits::silence`] is closed, and so is one that takes the bytes of an answer
//!   with an end more slowly than [`SlowClientLimits::byte_time`], by so much on the whole: however slow clients are, memory that answers hold comes back.
//! - A connection of HTTP/2 that has no request for [`IDLE_TIME`] is closed, one that is only refused, after [`HEAD_TIME`]
//!   ([`chassis::connection_activity`]).
//! - [`ApiServer::close`] ends tails, lets running requests finish for [`GRACE`], then drops them; it returns when all are gone.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use axum::{Extension, Router};
use chassis::connection_activity::ConnectionActivity;
use chassis::lingering_close::{LingeringStream, TrackedBody, UnreadBodyFlag};
use chassis::tls_server::{ServerStream, ServerTls};
use chassis::write_timeout::{MinimumRate, WriteTimeoutStream};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::authorization::ClientConnection;
use super::counted_status::CountedStatus;
use super::self_probe::ApiProbe;
use super::tail::is_events;
use crate::authentication::ConnectionEnds;

pub(crate) const MAX_CONNECTIONS: usize = 512;
const HEAD_TIME: Duration = Duration::from_secs(15);
const GRACE: Duration = Duration::from_secs(3);
/// After an error that is not a connection's own (no file descriptors left), accepting rests this long.
const REST: Duration = Duration::from_millis(100);
/// The largest head of a request.
const MAX_HEAD: usize = 64 << 10;

/// Requests of one HTTP/2 connection that are answered at once.
const MAX_STREAMS: u32 = 64;
/// The largest head of a request of HTTP/2, in bytes.
const MAX_HEAD_LIST: u32 = 64 << 10;
/// What a client may send of a request, and of all of a connection, before it is read.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 512 << 10;
/// How long a connection of HTTP/2 may have no request.
const IDLE_TIME: Duration = Duration::from_secs(600);

/// How slowly a client may take its answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlowClientLimits {
    /// How long it may take nothing.
    pub(crate) silence: Duration,
    /// How long it may take for a byte of an answer that has an end.
    pub(crate) byte_time: Duration,
}

impl Default for SlowClientLimits {
    /// 30 s, and 64 KiB a second.
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(30),
            byte_time: Duration::from_nanos(1_000_000_000 / (64 << 10)),
        }
    }
}

/// For answers that have no end of their own.
#[derive(Debug, Clone)]
pub(crate) struct ShutdownToken(pub(crate) CancellationToken);

/// The running API.
#[derive(Debug)]
pub struct ApiServer {
    addr: SocketAddr,
    others: Vec<SocketAddr>,
    /// Those of connections to the listener of all of it.
    places: Arc<Semaphore>,
    stop: CancellationToken,
    accepting: Vec<JoinHandle<()>>,
    connections: TaskTracker,
    changes: TaskTracker,
}

impl ApiServer {
    /// Where all of it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where its other listeners listen, in their order.
    #[must_use]
    pub fn others(&self) -> &[SocketAddr] {
        &self.others
    }

    /// What asks it for a sign of life.
    pub(crate) fn probe(&self) -> ApiProbe {
        ApiProbe::new(self.addr, Arc::clone(&self.places))
    }

    /// Stops accepting, lets running requests finish, returns when every connection and every change begun is gone.
    pub async fn close(self) {
        self.stop.cancel();
        for accepting in self.accepting {
            if let Err(error) = accepting.await {
                tracing::error!(%error, "an accept loop failed");
            }
        }
        self.connections.close();
        self.connections.wait().await;
        self.changes.close();
        self.changes.wait().await;
    }
}

/// Which HTTP a listener speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    Http1,
    /// With prior knowledge, or agreed on in TLS.
    Http2,
}

/// Starts accepting at the API's listener and at others; `changes` are what requests leave behind to be finished.
pub(crate) fn start(
    (router, listener): (Router, TcpListener),
    others: Vec<(Router, TcpListener, HttpVersion)>,
    (changes, tls): (TaskTracker, Option<Arc<ServerTls>>),
    patience: SlowClientLimits,
) -> io::Result<ApiServer> {
    let (stop, connections) = (CancellationToken::new(), TaskTracker::new());
    let local = |(_, listener, _): &(Router, TcpListener, HttpVersion)| listener.local_addr();
    let (addr, addresses) = (
        listener.local_addr()?,
        others.iter().map(local).collect::<io::Result<_>>()?,
    );
    let new_places = || Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let (mut accepting, places) = (Vec::new(), new_places());
    let all = (router, listener, HttpVersion::Http1, Arc::clone(&places));
    let others = others
        .into_iter()
        .map(|(router, listener, version)| (router, listener, version, new_places()));
    for (router, listener, version, places) in std::iter::once(all).chain(others) {
        let served = ServedApi {
            router: router.layer(Extension(ShutdownToken(stop.clone()))),
            version,
            patience,
            tls: tls.clone(),
        };
        accepting.push(tokio::spawn(accept(
            (listener, places),
            served,
            stop.clone(),
            connections.clone(),
        )));
    }
    Ok(ApiServer {
        addr,
        others: addresses,
        places,
        stop,
        accepting,
        connections,
        changes,
    })
}

/// What connections are answered by.
#[derive(Clone)]
struct ServedApi {
    router: Router,
    version: HttpVersion,
    patience: SlowClientLimits,
    tls: Option<Arc<ServerTls>>,
}

async fn accept(
    (listener, places): (TcpListener, Arc<Semaphore>),
    served: ServedApi,
    stop: CancellationToken,
    connections: TaskTracker,
) {
    while let Some((stream, place)) = next_connection(&listener, &places, &stop).await {
        connections.spawn(connection(stream, served.clone(), stop.clone(), place));
    }
}

/// The next connection, when there is a place for it; `None` at the stop. Errors of accepting are outlived.
pub(crate) async fn next_connection(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    stop: &CancellationToken,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    loop {
        let next = async {
            let place = Arc::clone(places).acquire_owned().await.ok()?;
            Some((place, listener.accept().await))
        };
        let (place, accepted) = tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            next = next => next?,
        };
        match accepted {
            Ok((stream, _)) => return Some((stream, place)),
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, address = ?listener.local_addr().ok(), "cannot accept connections at the \
                                                                               moment");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// Whether an error of accepting is that of the connection that came.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn connection(
    stream: TcpStream,
    ServedApi {
        router,
        version,
        patience,
        tls,
    }: ServedApi,
    stop: CancellationToken,
    _place: OwnedSemaphorePermit,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection has gone already");
        return;
    }
    let client = ConnectionEnds::of(&stream).ok().map(ClientConnection::new);
    // Below TLS: what that keeps for a client that reads nothing is bounded, too.
    let rate = MinimumRate::default();
    let stream = WriteTimeoutStream::new(stream, patience.silence).with_minimum_rate(rate.clone());
    let stream = match tls {
        None => ServerStream::Right(stream),
        Some(tls) => tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = tls.accept_protocol(stream, HEAD_TIME, version.alpn()) => match accepted {
                Ok(stream) => ServerStream::Left(stream),
                Err(error) => {
                    tracing::debug!(%error, "a TLS handshake failed");
                    return;
                }
            },
        },
    };
    let unread = UnreadBodyFlag::default();
    let stream = LingeringStream::new(stream, unread.clone());
    let router = tower::ServiceExt::<http::Request<TrackedBody<Incoming>>>::map_err(router, |never: Infallible| never);
    let of_request = unread.clone();
    let activity = Arc::new(ConnectionActivity::default());
    let (seen, used) = (Arc::clone(&activity), Arc::clone(&activity));
    let answered = move |mut response: Response| {
        used.count_answer(CountedStatus::of(&response));
        let has_end = !is_events(response.headers());
        rate.set(has_end.then_some(patience.byte_time));
        // HTTP/2 ends a request alone.
        if version == HttpVersion::Http1 {
            of_request.announce_close(response.headers_mut());
        }
        response
    };
    let router = tower::ServiceExt::<http::Request<TrackedBody<Incoming>>>::map_response(router, answered);
    let service = TowerToHyperService::new(tower::ServiceExt::map_request(
        router,
        move |mut request: http::Request<Incoming>| {
            if let Some(client) = &client {
                request.extensions_mut().insert(client.clone());
            }
            request.extensions_mut().insert(seen.begin());
            request.map(|body| unread.track(body))
        },
    ));
    let stream = TokioIo::new(stream);
    let ended = match version {
        HttpVersion::Http1 => {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .max_buf_size(MAX_HEAD);
            // It has a timeout of its own, and is never idle here.
            let _open = activity.begin();
            until_idle(http.serve_connection(stream, service), &stop, &activity).await
        }
        HttpVersion::Http2 => {
            let mut http = http2::Builder::new(TokioExecutor::new());
            http.timer(TokioTimer::new())
                .max_concurrent_streams(MAX_STREAMS)
                .max_header_list_size(MAX_HEAD_LIST)
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .keep_alive_interval(Some(patience.silence))
                .keep_alive_timeout(patience.silence);
            until_idle(http.serve_connection(stream, service), &stop, &activity).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Serves a connection to its end, which begins at the stop or when it is idle: a request that begins as that is said is answered all the
/// same.
async fn until_idle<C>(served: C, stop: &CancellationToken, activity: &ConnectionActivity) -> hyper::Result<()>
where
    C: GracefulConnection<Error = hyper::Error>,
{
    let mut served = pin!(served);
    tokio::select! {
        ended = served.as_mut() => return ended,
        () = stop.cancelled() => {}
        () = activity.wait_idle(HEAD_TIME, IDLE_TIME) => {
            served.as_mut().graceful_shutdown();
            tokio::select! {
                ended = served.as_mut() => return ended,
                () = stop.cancelled() => {}
                () = activity.wait_idle(GRACE, GRACE) => return Ok(()),
            }
        }
    }
    served.as_mut().graceful_shutdown();
    tokio::time::timeout(GRACE, served).await.unwrap_or(Ok(()))
}

impl HttpVersion {
    /// What is agreed on in TLS; HTTP/1.1 is what is spoken without an agreement.
    const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"",
            Self::Http2 => b"h2",
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::PermissionsExt;

    use axum::body::Body;
    use axum::extract::Path;
    use axum::routing::get;
    use chassis::tls_server::ServerTlsFiles;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpSocket;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    use super::*;
    use crate::testing::eventually;

    #[tokio::test(start_paused = true)]
    async fn a_request_that_begins_as_an_idle_connection_ends_is_answered() {
        let (client, server) = tokio::io::duplex(64 << 10);
        let (activity, stop) = (Arc::new(ConnectionActivity::default()), CancellationToken::new());
        let requests = Arc::clone(&activity);
        let service = hyper::service::service_fn(move |_: http::Request<Incoming>| {
            let requests = Arc::clone(&requests);
            async move {
                // The connection is given up before this one is known.
                tokio::time::sleep(HEAD_TIME + GRACE / 2).await;
                let _open = requests.begin();
                tokio::time::sleep(GRACE * 10).await;
                Ok::<_, Infallible>(Response::new(Body::empty()))
            }
        });
        let serving = tokio::spawn(async move {
            let served = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(server), service);
            until_idle(served, &stop, &activity).await
        });
        let connected = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client)).await;
        let (mut sender, connection) = connected.unwrap();
        let connection = tokio::spawn(connection);
        let request = http::Request::get("http://localhost/").body(Body::empty()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), http::StatusCode::OK);
        drop(answer);
        // It ends although its client holds it.
        serving.await.unwrap().ok();
        connection.await.unwrap().ok();
        drop(sender);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_never_reads_an_answer_over_tls_holds_no_connection_however_much_of_it_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let files = ServerTlsFiles {
            certificate: dir.path().join("cert.pem"),
            key: dir.path().join("key.pem"),
            client_ca: None,
        };
        std::fs::write(&files.certificate, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let tls = Arc::new(ServerTls::open(files).unwrap());
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let trusting = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let connector = TlsConnector::from(Arc::new(
            trusting.unwrap().with_root_certificates(roots).with_no_client_auth(),
        ));
        let router = Router::new().route(
            "/{kib}",
            get(|Path(kib): Path<usize>| async move { vec![0_u8; kib << 10] }),
        );
        // Connections inherit how little the system keeps of what is sent.
        let listener = TcpSocket::new_v4().unwrap();
        listener.set_send_buffer_size(4_096).unwrap();
        listener.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let listener = listener.listen(64).unwrap();
        let limits = SlowClientLimits {
            silence: Duration::from_millis(200),
            ..SlowClientLimits::default()
        };
        let api = start((router, listener), Vec::new(), (TaskTracker::new(), Some(tls)), limits).unwrap();
        // Some of these answers leave less than TLS keeps of its own when the sockets are full.
        let mut silent = Vec::new();
        for kib in (16..=1_024).step_by(48) {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4_096).unwrap();
            let stream = socket.connect(api.addr()).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let mut stream = connector.connect(name, stream).await.unwrap();
            let request = format!("GET /{kib} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            silent.push(stream);
        }
        eventually("the end of every connection", || async {
            api.connections.is_empty().then_some(())
        })
        .await;
        drop(silent);
        api.close().await;
    }
}
