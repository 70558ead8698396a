//! An HTTP server that answers as a test says, and hears what it is asked.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Barrier, Notify, mpsc};
use tokio_rustls::TlsAcceptor;

/// What a server got.
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) method: Method,
    pub(crate) uri: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// A server that gives its answers one after another, then 200; each may wait for a barrier.
pub(crate) struct Server {
    pub(crate) at: SocketAddr,
    pub(crate) seen: mpsc::UnboundedReceiver<Seen>,
    pub(crate) connections: Arc<AtomicUsize>,
}

#[derive(Default)]
pub(crate) struct Script {
    pub(crate) answers: Mutex<VecDeque<Response<Full>>>,
    pub(crate) barrier: Option<Barrier>,
    /// Holds the answer to the body `0`.
    pub(crate) hold: Option<Arc<Notify>>,
    /// How often the body `bad` is answered with 500.
    pub(crate) bad: AtomicUsize,
    pub(crate) tls: Option<TlsAcceptor>,
}

pub(crate) type Full = http_body_util::Full<Bytes>;

pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Response<Full> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(Full::from(body.to_owned())).unwrap()
}

pub(crate) fn answers(all: Vec<Response<Full>>) -> Script {
    Script {
        answers: Mutex::new(all.into()),
        ..Script::default()
    }
}

impl Server {
    pub(crate) async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (see, seen) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, script) = (Arc::clone(&connections), Arc::new(script));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Relaxed);
                let (script, see) = (Arc::clone(&script), see.clone());
                tokio::spawn(async move {
                    match &script.tls {
                        // A handshake that fails is the client's to report.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &script, see).await;
                            }
                        }
                        None => serve(stream, &script, see).await,
                    }
                });
            }
        });
        Self { at, seen, connections }
    }

    pub(crate) async fn next(&mut self) -> Seen {
        let next = tokio::time::timeout(Duration::from_secs(20), self.seen.recv()).await;
        next.unwrap().unwrap()
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, script: &Arc<Script>, see: mpsc::UnboundedSender<Seen>) {
    let handle = service_fn(|request: Request<Incoming>| {
        let (see, script) = (see.clone(), Arc::clone(script));
        async move {
            let (head, body) = request.into_parts();
            let body = http_body_util::BodyExt::collect(body)
                .await
                .unwrap()
                .to_bytes()
                .to_vec();
            let is_held = body == b"0";
            let is_bad = body == b"bad"
                && script
                    .bad
                    .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
                    .is_ok();
            see.send(Seen {
                at: Instant::now(),
                method: head.method,
                uri: head.uri.to_string(),
                headers: head.headers,
                body,
            })
            .ok();
            match (&script.hold, &script.barrier) {
                (Some(hold), _) if is_held => hold.notified().await,
                (_, Some(barrier)) => {
                    barrier.wait().await;
                }
                _ => {}
            }
            if is_bad {
                return Ok(answer(500, &[], ""));
            }
            let next = script.answers.lock().pop_front();
            Ok::<_, Infallible>(next.unwrap_or_else(|| answer(200, &[], "")))
        }
    });
    http1::Builder::new()
        .serve_connection(TokioIo::new(stream), handle)
        .await
        .ok();
}
