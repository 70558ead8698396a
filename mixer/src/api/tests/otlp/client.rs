//! A client of OTLP over HTTP/1.1 and gRPC, and a Mixer that it asks.

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tower::ServiceExt;

use super::*;

/// The signals, their paths, and the services of gRPC that export them.
pub(super) const SIGNALS: [(Table, &str, &str); 3] = [
    (
        Table::Logs,
        "/v1/logs",
        "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    ),
    (
        Table::Traces,
        "/v1/traces",
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    ),
    (
        Table::Metrics,
        "/v1/metrics",
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    ),
];
/// Quotas that nobody here meets.
pub(super) const QUOTAS: CallerQuotas = CallerQuotas {
    requests: 0,
    queries: 100,
    scanned: model::ByteSize::bytes(0),
    ingest: model::ByteSize::bytes(0),
    stored: model::ByteSize::bytes(0),
};

/// How a request comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExportWay {
    Protobuf,
    Json,
    Grpc,
}

impl ExportWay {
    pub(super) const ALL: [Self; 3] = [Self::Protobuf, Self::Json, Self::Grpc];

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
            Self::Grpc => "application/grpc",
        }
    }

    /// The header that says how a message is packed.
    pub(super) const fn encoding_header(self) -> &'static str {
        match self {
            Self::Protobuf | Self::Json => "content-encoding",
            Self::Grpc => "grpc-encoding",
        }
    }

    /// A message as it is sent.
    pub(super) fn framed(self, is_packed: bool, message: &[u8]) -> Bytes {
        match self {
            Self::Protobuf | Self::Json => Bytes::copy_from_slice(message),
            Self::Grpc => {
                let length = u32::try_from(message.len()).unwrap().to_be_bytes();
                [&[u8::from(is_packed)][..], &length[..], message].concat().into()
            }
        }
    }
}

/// An answer, and where gRPC has its status.
#[derive(Debug)]
pub(super) struct ExportAnswer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) trailers: HeaderMap,
}

impl ExportAnswer {
    pub(super) async fn of(answer: http::Response<Incoming>) -> Self {
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap();
        let trailers = body.trailers().cloned().unwrap_or_default();
        Self {
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
            trailers,
        }
    }

    /// The status of gRPC, which is in the trailers of an answer with a message and in the headers of a refusal.
    pub(super) fn code(&self) -> u8 {
        let place = if self.trailers.is_empty() {
            &self.headers
        } else {
            &self.trailers
        };
        let code = place
            .get("grpc-status")
            .unwrap_or_else(|| panic!("no status: {self:?}"));
        code.to_str().unwrap().parse().unwrap()
    }

    pub(super) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    /// The message of an answer that is good.
    pub(super) fn message(&self, way: ExportWay) -> &[u8] {
        assert_eq!(self.status, StatusCode::OK, "{self:?}");
        assert_eq!(self.header("content-type"), way.content_type(), "{self:?}");
        if way != ExportWay::Grpc {
            return &self.body;
        }
        assert_eq!(self.code(), 0, "{self:?}");
        assert!(self.trailers.contains_key("grpc-status"), "{self:?}");
        let (head, message) = self.body.split_at(5);
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        assert_eq!(head, [&[0][..], &length[..]].concat(), "{self:?}");
        message
    }

    /// The seconds after which to try again, of an answer that says so as its protocol does.
    pub(super) fn retry_seconds(&self, way: ExportWay) -> u64 {
        if way != ExportWay::Grpc {
            assert_eq!(self.status, StatusCode::SERVICE_UNAVAILABLE, "{self:?}");
            return self.header("retry-after").parse().unwrap();
        }
        assert_eq!((self.status, self.code()), (StatusCode::OK, 14), "{self:?}");
        let details = STANDARD_NO_PAD.decode(self.header("grpc-status-details-bin")).unwrap();
        let kind = b"type.googleapis.com/google.rpc.RetryInfo";
        let at = details.windows(kind.len()).position(|window| window == kind).unwrap();
        // Behind its kind its value: a delay, which has seconds.
        let [0x12, _, 0x0a, _, 0x08, seconds @ ..] = &details[at + kind.len()..] else {
            panic!("{details:?}");
        };
        seconds
            .iter()
            .rev()
            .fold(0, |all, byte| all << 7 | u64::from(byte & 0x7f))
    }
}

/// A Mixer behind tokens that receives OTLP, and a token that may send.
pub(super) struct OtlpApi {
    mixer: Mixer,
    pub(super) api: GuardedApi,
    pub(super) server: ApiServer,
    pub(super) sender: ApiToken,
    pub(super) reader: ApiToken,
    _folder: tempfile::TempDir,
}

impl OtlpApi {
    pub(super) async fn new() -> Self {
        Self::with(QUOTAS, ("api.port", "0")).await
    }

    pub(super) async fn with(quotas: CallerQuotas, setting: (&str, &str)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mixer = whole_mixer_with(folder.path(), setting).await;
        let (api, server) = GuardedApi::serve(&mixer, folder.path(), quotas).await;
        let everything = AccessScope::default();
        let sender = api.token("sender", &[AccessRole::Ingester], everything.clone()).await;
        let reader = api.token("reader", &[AccessRole::Reader], everything).await;
        Self {
            mixer,
            api,
            server,
            sender,
            reader,
            _folder: folder,
        }
    }

    pub(super) fn address(&self, way: ExportWay) -> SocketAddr {
        let [http, grpc] = *self.server.others() else {
            panic!("two listeners beside that of the API");
        };
        if way == ExportWay::Grpc { grpc } else { http }
    }

    /// The beginning of a request, without a token.
    pub(super) fn bare_request(&self, way: ExportWay, path: &str) -> Builder {
        let address = self.address(way);
        let request = Request::builder()
            .method(Method::POST)
            .header(header::CONTENT_TYPE, way.content_type());
        match way {
            ExportWay::Grpc => request
                .uri(format!("http://{address}{path}"))
                .header(header::TE, "trailers"),
            _ => request.uri(path).header(header::HOST, address.to_string()),
        }
    }

    /// The beginning of a request of the token that may send.
    pub(super) fn request(&self, way: ExportWay, table: Table) -> Builder {
        let signal = SIGNALS.iter().find(|(signal, ..)| *signal == table);
        let (_, path, service) = signal.unwrap();
        let path = if way == ExportWay::Grpc { service } else { path };
        with_token(self.bare_request(way, path), &self.sender)
    }

    /// The answer to a request over a connection of its own.
    pub(super) async fn ask(&self, way: ExportWay, request: Builder, body: Bytes) -> ExportAnswer {
        ask_at(self.address(way), way, request, body).await
    }

    /// The answer to a message that is not packed.
    pub(super) async fn export(&self, way: ExportWay, table: Table, message: &[u8]) -> ExportAnswer {
        self.ask(way, self.request(way, table), way.framed(false, message))
            .await
    }

    /// The rows of a statement.
    pub(super) async fn select(&self, statement: &str) -> Value {
        let request = Request::post("/api/v1/sql").header(header::CONTENT_TYPE, "application/sql");
        self.read(request, statement).await
    }

    /// The dead letters.
    pub(super) async fn letters(&self) -> Vec<Value> {
        let path = "/api/v1/telemetry/dead_letters?since=2020-01-01T00:00:00Z&until=2100-01-01T00:00:00Z&limit=1000";
        let letters = self.read(Request::get(path), "").await;
        letters.as_array().unwrap().clone()
    }

    /// The rows of an answer to the token that may read.
    async fn read(&self, request: Builder, body: &str) -> Value {
        let request = with_token(request, &self.reader).header(header::HOST, "localhost");
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let answer = self.api.router.clone().oneshot(request).await.unwrap();
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        let mut answer: Value = serde_json::from_slice(&body).unwrap();
        assert!(answer["data"].is_array(), "{answer}");
        answer["data"].take()
    }

    pub(super) async fn count(&self, table: Table) -> u64 {
        if table == Table::DeadLetters {
            return self.letters().await.len() as u64;
        }
        let rows = self.select(&format!("SELECT count(*) AS n FROM {table}")).await;
        rows[0]["n"].as_u64().unwrap()
    }

    pub(super) async fn close(self) {
        self.server.close().await;
        self.mixer.close().await;
    }
}

pub(super) fn with_token(request: Builder, token: &ApiToken) -> Builder {
    request.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()))
}

pub(super) async fn ask_at(address: SocketAddr, way: ExportWay, request: Builder, body: Bytes) -> ExportAnswer {
    let request = request.body(Full::new(body)).unwrap();
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    if way == ExportWay::Grpc {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        let driven = tokio::spawn(connection);
        let answer = ExportAnswer::of(sender.send_request(request).await.unwrap()).await;
        driven.abort();
        return answer;
    }
    let (mut sender, connection) = http1::handshake(stream).await.unwrap();
    let driven = tokio::spawn(connection);
    let answer = ExportAnswer::of(sender.send_request(request).await.unwrap()).await;
    driven.abort();
    answer
}
