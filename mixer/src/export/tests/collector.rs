//! A collector that answers as it is told to, and remembers what it was sent.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::ready;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::batch::row_json;
use model::telemetry_codec::{BodyRecordReader, PublisherIdentity};
use model::{EntityId, Table, Timestamp};
use parking_lot::Mutex;
use protocols::SenderSettings;
use protocols::otlp::{OtlpEncoding, export_response, request};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use super::super::endpoint::CollectorProtocol;
use protocols::grpc::{self, code, frame};

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptedAnswer {
    Accept,
    /// Accepted, but for so many records.
    Partial(u64),
    /// A status of HTTP.
    Status(u16),
    /// A code of gRPC.
    Code(u8),
    /// Taken, and never answered.
    Silence,
    /// Taken, and the connection ends.
    Cut,
    /// Not taken, and the connection ends.
    Lose,
    /// Accepted, but for so many records, with a text that is longer than any answer that is read.
    LongPartial(u8),
}

/// How a signal is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalRefusal {
    /// It has no path here.
    NoPath,
    /// Something of it is wrong.
    Invalid,
    /// It is accepted, but for all of its records.
    AllRejected,
    /// However small it is.
    TooLarge,
    /// Not now.
    Busy,
}

/// A request that came.
#[derive(Debug, Clone)]
pub(super) struct ReceivedExport {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    /// As it came.
    pub(super) body: Bytes,
    /// The texts of its log records.
    pub(super) rows: Vec<String>,
    pub(super) answer: ScriptedAnswer,
}

#[derive(Debug, Default)]
struct CollectorState {
    received: Mutex<Vec<ReceivedExport>>,
    script: Mutex<VecDeque<ScriptedAnswer>>,
    /// Requests with a row of this text are lost.
    poison: Mutex<Option<String>>,
    /// Every request is lost.
    is_away: AtomicBool,
    /// Signals that are not taken, and how that is said.
    refused: Mutex<Option<(SignalRefusal, Vec<Table>)>>,
}

/// Accepts everything that neither its faults nor its script say something else of.
#[derive(Debug)]
pub(super) struct TestCollector {
    pub(super) protocol: CollectorProtocol,
    pub(super) address: SocketAddr,
    state: Arc<CollectorState>,
    _serving: AbortOnDropHandle<()>,
}

impl TestCollector {
    pub(super) async fn start(protocol: CollectorProtocol, script: &[ScriptedAnswer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(CollectorState {
            script: Mutex::new(script.iter().copied().collect()),
            ..CollectorState::default()
        });
        let shared = Arc::clone(&state);
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(protocol, stream, Arc::clone(&shared)));
            }
        });
        Self {
            protocol,
            address,
            state,
            _serving: AbortOnDropHandle::new(serving),
        }
    }

    /// From now on it dies of requests with a row of this text.
    pub(super) fn poison(&self, text: &str) {
        *self.state.poison.lock() = Some(text.to_owned());
    }

    /// Whether it takes connections and nothing else.
    pub(super) fn set_away(&self, is_away: bool) {
        self.state.is_away.store(is_away, Ordering::Relaxed);
    }

    /// It takes these signals no more, and all others.
    pub(super) fn refuse(&self, refusal: SignalRefusal, signals: &[Table]) {
        *self.state.refused.lock() = Some((refusal, signals.to_vec()));
    }

    pub(super) fn received(&self) -> Vec<ReceivedExport> {
        self.state.received.lock().clone()
    }

    /// The rows of all requests that were accepted, whether or not that could be said.
    pub(super) fn accepted(&self) -> Vec<String> {
        let is_accepted = |export: &ReceivedExport| {
            matches!(
                export.answer,
                ScriptedAnswer::Accept
                    | ScriptedAnswer::Partial(_)
                    | ScriptedAnswer::LongPartial(_)
                    | ScriptedAnswer::Silence
                    | ScriptedAnswer::Cut
            )
        };
        let received = self.received();
        let accepted = received.into_iter().filter(is_accepted);
        accepted.flat_map(|export| export.rows).collect()
    }
}

async fn serve(protocol: CollectorProtocol, stream: TcpStream, state: Arc<CollectorState>) {
    let service = service_fn(move |request| answer(protocol, Arc::clone(&state), request));
    let io = TokioIo::new(stream);
    // A connection that ends is what some tests are about.
    let _ = match protocol {
        CollectorProtocol::Http => http1::Builder::new().serve_connection(io, service).await,
        CollectorProtocol::Grpc => {
            http2::Builder::new(TokioExecutor::new())
                .serve_connection(io, service)
                .await
        }
    };
}

async fn answer(
    protocol: CollectorProtocol,
    state: Arc<CollectorState>,
    request: Request<Incoming>,
) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, std::io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let table = table(head.uri.path());
    let rows = rows(table, unpacked(protocol, &head.headers, &body));
    let is_poison = state.poison.lock().as_ref().is_some_and(|text| rows.contains(text));
    let refused = state.refused.lock().clone();
    let refusal = refused.filter(|(_, signals)| signals.contains(&table));
    let answer = if is_poison || state.is_away.load(Ordering::Relaxed) {
        ScriptedAnswer::Lose
    } else {
        match (refusal.map(|(refusal, _)| refusal), protocol) {
            (None, _) => state.script.lock().pop_front().unwrap_or(ScriptedAnswer::Accept),
            (Some(SignalRefusal::NoPath), CollectorProtocol::Grpc) => ScriptedAnswer::Code(code::UNIMPLEMENTED),
            (Some(SignalRefusal::NoPath), CollectorProtocol::Http) => ScriptedAnswer::Status(404),
            (Some(SignalRefusal::Invalid), CollectorProtocol::Grpc) => ScriptedAnswer::Code(code::INVALID_ARGUMENT),
            (Some(SignalRefusal::Invalid), CollectorProtocol::Http) => ScriptedAnswer::Status(400),
            (Some(SignalRefusal::TooLarge), CollectorProtocol::Grpc) => ScriptedAnswer::Code(code::RESOURCE_EXHAUSTED),
            (Some(SignalRefusal::TooLarge), CollectorProtocol::Http) => ScriptedAnswer::Status(413),
            (Some(SignalRefusal::Busy), CollectorProtocol::Grpc) => ScriptedAnswer::Code(code::UNAVAILABLE),
            (Some(SignalRefusal::Busy), CollectorProtocol::Http) => ScriptedAnswer::Status(503),
            (Some(SignalRefusal::AllRejected), _) => ScriptedAnswer::Partial(rows.len() as u64),
        }
    };
    state.received.lock().push(ReceivedExport {
        path: head.uri.path().to_owned(),
        rows,
        headers: head.headers,
        body,
        answer,
    });
    let (status, code, message) = match answer {
        ScriptedAnswer::Silence => std::future::pending().await,
        ScriptedAnswer::Cut | ScriptedAnswer::Lose => return Err(std::io::Error::other("cut")),
        ScriptedAnswer::Accept => (200, 0, Vec::new()),
        ScriptedAnswer::Partial(rejected) => {
            let message = export_response(OtlpEncoding::Protobuf, table, rejected, "too old");
            (200, 0, message)
        }
        // 70,006 bytes, of which the text has 70,000.
        ScriptedAnswer::LongPartial(rejected) => {
            let head = [0x0a, 0xf6, 0xa2, 0x04, 0x08, rejected, 0x12, 0xf0, 0xa2, 0x04];
            (200, 0, [&head[..], &[b'x'; 70_000][..]].concat())
        }
        ScriptedAnswer::Status(status) => (status, 0, b"scripted".to_vec()),
        ScriptedAnswer::Code(code) => (200, code, Vec::new()),
    };
    let is_grpc = protocol == CollectorProtocol::Grpc;
    let message = if is_grpc && code == 0 {
        frame(false, &message)
    } else {
        message.into()
    };
    let said = if code == code::RESOURCE_EXHAUSTED {
        "grpc: received message larger than max"
    } else {
        ""
    };
    let status_trailers = [
        ("grpc-status", HeaderValue::from(u16::from(code))),
        ("grpc-message", HeaderValue::from_static(said)),
    ];
    let status_trailers = status_trailers.map(|(name, value)| (HeaderName::from_static(name), value));
    let trailers = is_grpc.then(|| Ok(HeaderMap::from_iter(status_trailers)));
    let body = Full::new(message).with_trailers(ready(trailers)).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    if status != 200 {
        let plain = HeaderValue::from_static("text/plain");
        response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
    }
    Ok(response)
}

fn table(path: &str) -> Table {
    let path = path.to_ascii_lowercase();
    let named = [Table::Logs, Table::Traces, Table::Metrics].into_iter();
    let mut named = named.filter(|table| path.contains(table.name().trim_end_matches('s')));
    named.next().unwrap()
}

fn unpacked(protocol: CollectorProtocol, headers: &HeaderMap, body: &Bytes) -> Bytes {
    let (is_packed, message) = match protocol {
        CollectorProtocol::Grpc => {
            let framed = grpc::message(body).unwrap();
            (framed.is_packed, framed.message)
        }
        CollectorProtocol::Http => (headers.contains_key("content-encoding"), body.clone()),
    };
    if !is_packed {
        return message;
    }
    let mut plain = Vec::new();
    GzDecoder::new(&message[..]).read_to_end(&mut plain).unwrap();
    plain.into()
}

/// The texts of log records; of other signals nothing.
fn rows(table: Table, message: Bytes) -> Vec<String> {
    let publisher = PublisherIdentity {
        entity_id: EntityId::for_name("nobody"),
        entity_name: "nobody".to_owned(),
    };
    let settings = SenderSettings {
        entity: ["host.name".to_owned()].into(),
        fallback: publisher.clone(),
        now: Timestamp::default(),
    };
    let found = request(table, OtlpEncoding::Protobuf, message, settings).unwrap();
    let mut reader = BodyRecordReader::of_format(table, found.records, found.body, publisher);
    let mut rows = Vec::new();
    while let Some(part) = reader.next_part(16 << 20).unwrap() {
        let texts = (0..part.batch.num_rows()).map(|row| row_json(&part.batch, row));
        rows.extend(texts.filter_map(|row| Some(row.get("message")?.as_str()?.to_owned())));
    }
    rows
}
