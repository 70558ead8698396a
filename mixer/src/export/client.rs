//! The collector's client: one request, one answer, over HTTP/1.1 or gRPC on HTTP/2.
//!
//! # Invariants
//!
//! - Connections are used again. Redirects are not followed.
//! - A connection of gRPC on which an answer did not come in time is not used again: it may be dead. There are no pings of HTTP/2:
//!   libraries of gRPC close the connection of a client that sends more than one in five minutes.
//! - Of an answer [`MAX_ANSWER`] bytes are kept, and over HTTP no more are read.
//! - Who cannot be reached is [`ExportAnswer::Later`]; a request that went out and has no answer is [`ExportAnswer::Unanswered`].
//!
//! # Not here
//!
//! What an answer means ([`super::answer`]), trying again ([`super::signal_exporter`]).

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use model::Clock;
use parking_lot::Mutex;
use protocols::otlp::PROTOBUF;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_util::sync::CancellationToken;

use super::answer::{CollectorResponse, ExportAnswer, MAX_ANSWER};
use super::endpoint::{CollectorProtocol, CollectorTarget};
use super::pack::PackedRequest;
use super::retry_pause::ExportStopped;
use super::{ExportCompression, ExportSettings};
use protocols::grpc::{ENCODING, GRPC};

/// How long a connection is kept without a request.
const IDLE: Duration = Duration::from_secs(60);
/// After so long without a byte, TCP asks.
const TCP_PAUSE: Duration = Duration::from_secs(30);
/// How long an answer is waited for when the process ends: what was accepted is not to be sent again.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// What a collector learns of who sends.
const AGENT: &str = concat!("platform-mixer/", env!("CARGO_PKG_VERSION"));
/// How long gRPC lets the collector take.
const GRPC_TIMEOUT: &str = "grpc-timeout";
/// How answers of gRPC may be packed.
const ACCEPTED: &str = "grpc-accept-encoding";

/// A client with its connections; clones share them.
type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A client, and how many were there before it.
#[derive(Debug, Clone)]
struct ClientGeneration {
    client: HttpClient,
    number: u64,
}

/// Sends requests to one collector.
#[derive(Debug)]
pub(super) struct CollectorClient {
    client: Mutex<ClientGeneration>,
    connector: HttpsConnector<HttpConnector>,
    settings: ExportSettings,
    clock: Clock,
}

impl CollectorClient {
    /// A client without connections.
    pub(super) fn new(settings: ExportSettings, clock: Clock) -> Result<Self, String> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        // Less than the request has: who cannot be reached is told from who does not answer.
        http.set_connect_timeout(Some(settings.timeout / 2));
        http.set_keepalive(Some(TCP_PAUSE));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(&settings.target)?)
            .https_or_http();
        let is_grpc = settings.target.protocol == CollectorProtocol::Grpc;
        let connector = if is_grpc {
            connector.enable_http2().wrap_connector(http)
        } else {
            connector.enable_http1().wrap_connector(http)
        };
        Ok(Self {
            client: Mutex::new(ClientGeneration {
                client: without_connections(connector.clone(), is_grpc),
                number: 0,
            }),
            connector,
            settings,
            clock,
        })
    }

    pub(super) const fn compression(&self) -> ExportCompression {
        self.settings.compression
    }

    pub(super) const fn protocol(&self) -> CollectorProtocol {
        self.settings.target.protocol
    }

    pub(super) const fn first_pause(&self) -> Duration {
        self.settings.first_pause
    }

    /// Sends a request once.
    async fn send(&self, request: &PackedRequest) -> ExportAnswer {
        let built = match self.request(request) {
            Ok(built) => built,
            Err(error) => {
                let reason = format!("the request cannot be made: {error}");
                return ExportAnswer::Refused { reason };
            }
        };
        let ClientGeneration { client, number } = self.client.lock().clone();
        let exchange = async {
            let answered = client.request(built).await.map_err(|error| {
                let (reason, wait) = (text(&error), None);
                if error.is_connect() {
                    ExportAnswer::Later { reason, wait }
                } else {
                    ExportAnswer::Unanswered { reason, wait }
                }
            });
            read(answered?, self.protocol())
                .await
                .map_err(|reason| ExportAnswer::Unanswered { reason, wait: None })
        };
        let timeout = self.settings.timeout;
        match tokio::time::timeout(timeout, exchange).await {
            Ok(Ok(response)) => response.judge(self.protocol(), self.clock.now()),
            Ok(Err(failed)) => failed,
            Err(_) => {
                if self.protocol() == CollectorProtocol::Grpc {
                    self.give_up(number);
                }
                ExportAnswer::Unanswered {
                    reason: format!("no answer within {timeout:?}"),
                    wait: None,
                }
            }
        }
    }

    /// Sends a request once and has its answer, also when the process is about to end.
    pub(super) async fn send_to_the_end(
        &self,
        request: &PackedRequest,
        stop: &CancellationToken,
    ) -> Result<ExportAnswer, ExportStopped> {
        let sending = self.send(request);
        tokio::pin!(sending);
        tokio::select! {
            answer = &mut sending => Ok(answer),
            () = stop.cancelled() => {
                let last = LAST_ANSWER.min(self.settings.timeout);
                tokio::time::timeout(last, sending).await.map_err(|_| ExportStopped)
            }
        }
    }

    /// All requests share a connection, which may be dead: the next one begins with its own, unless that was seen to before.
    fn give_up(&self, number: u64) {
        let mut current = self.client.lock();
        if current.number == number {
            *current = ClientGeneration {
                client: without_connections(self.connector.clone(), true),
                number: number + 1,
            };
        }
    }

    fn request(&self, request: &PackedRequest) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut built = Request::new(Full::new(request.body.clone()));
        *built.method_mut() = Method::POST;
        *built.uri_mut() = self.settings.target.uri(request.signal)?;
        let headers = built.headers_mut();
        headers.clone_from(&self.settings.headers);
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let is_packed = self.compression() == ExportCompression::Gzip;
        if self.protocol() == CollectorProtocol::Grpc {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
            headers.insert(TE, HeaderValue::from_static("trailers"));
            headers.insert(
                HeaderName::from_static(ACCEPTED),
                HeaderValue::from_static("identity,gzip"),
            );
            let millis = self.settings.timeout.as_millis().min(99_999_999);
            let timeout = HeaderValue::try_from(format!("{millis}m"))?;
            headers.insert(HeaderName::from_static(GRPC_TIMEOUT), timeout);
            if is_packed {
                headers.insert(HeaderName::from_static(ENCODING), HeaderValue::from_static("gzip"));
            }
        } else {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
            if is_packed {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
        }
        Ok(built)
    }
}

fn without_connections(connector: HttpsConnector<HttpConnector>, is_grpc: bool) -> HttpClient {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .http2_only(is_grpc)
        .build(connector)
}

/// The whole answer, as far as it is kept. That of gRPC has its status behind it.
async fn read(response: http::Response<Incoming>, protocol: CollectorProtocol) -> Result<CollectorResponse, String> {
    let (head, mut incoming) = response.into_parts();
    let (mut body, mut trailers, mut is_cut) = (BytesMut::new(), HeaderMap::new(), false);
    while let Some(frame) = incoming.frame().await {
        match frame.map_err(|error| text(&error))?.into_data() {
            Ok(bytes) => {
                let room = MAX_ANSWER.saturating_sub(body.len());
                is_cut |= bytes.len() > room;
                body.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
                if is_cut && protocol == CollectorProtocol::Http {
                    break;
                }
            }
            Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
        }
    }
    Ok(CollectorResponse {
        status: head.status,
        headers: head.headers,
        trailers,
        body: body.freeze(),
        is_cut,
    })
}

/// Everything that an error says, its causes included.
fn text(error: &dyn Error) -> String {
    let (mut all, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        all = format!("{all}: {error}");
        cause = error.source();
    }
    all
}

/// TLS as a client. The machine's authorities are read only where they are needed.
fn tls(target: &CollectorTarget) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    if target.is_encrypted() && !target.verifies {
        let verifier = Arc::new(UncheckedCertificates(provider));
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        return Ok(builder.with_no_client_auth());
    }
    let builder = if target.is_encrypted() {
        let roots = builder.with_native_roots();
        roots.map_err(|error| format!("this machine's certificate authorities cannot be read: {error}"))?
    } else {
        builder.with_root_certificates(RootCertStore::empty())
    };
    Ok(builder.with_no_client_auth())
}

/// Takes any certificate: `observability.otlp.insecure` says so. The handshake is still signed by the certificate's key.
#[derive(Debug)]
struct UncheckedCertificates(Arc<CryptoProvider>);

impl ServerCertVerifier for UncheckedCertificates {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use tokio::net::{TcpSocket, TcpStream};

    use super::*;

    fn client(address: &str, timeout: Duration) -> CollectorClient {
        let settings = ExportSettings {
            target: CollectorTarget::grpc(address, true).unwrap(),
            headers: HeaderMap::new(),
            compression: ExportCompression::Gzip,
            timeout,
            first_pause: Duration::from_secs(1),
        };
        CollectorClient::new(settings, crate::testing::Hand::new().clock()).unwrap()
    }

    #[tokio::test]
    async fn connections_that_were_given_up_once_are_not_given_up_again_with_their_successors() {
        let client = client("127.0.0.1:4317", Duration::from_secs(1));
        // Two requests of the first connection end late, one after the other.
        for _ in 0..2 {
            client.give_up(0);
            assert_eq!(client.client.lock().number, 1);
        }
        client.give_up(1);
        assert_eq!(client.client.lock().number, 2);
    }

    #[tokio::test]
    async fn who_takes_no_connection_cannot_be_reached_however_often_that_is_tried() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        // Its queue is full of the first connection: what others send to begin one is dropped.
        let listener = socket.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let _first = TcpStream::connect(address).await.unwrap();
        let client = client(&address.to_string(), Duration::from_millis(500));
        let request = PackedRequest {
            signal: model::Table::Logs,
            message: Bytes::new(),
            body: Bytes::new(),
        };
        for _ in 0..4 {
            let answer = client.send(&request).await;
            assert!(matches!(answer, ExportAnswer::Later { .. }), "{answer:?}");
        }
    }
}
