//! What requests go to: one attempt at a time, each within its time.
//!
//! # Invariants
//!
//! - Connections are used again.
//! - At most `max_answer` bytes of an answer are kept.
//! - What is shown of the address is without its query: there may be a secret in it.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::super::naming::{FLUX_ID, FLUX_PARENT};
use super::super::tls::{self, Trust};

/// The header that says which requests are the same one again.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// How long a connection is kept without a request.
const IDLE: Duration = Duration::from_secs(60);

/// Where requests go and how.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    pub(super) url: Uri,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) timeout: Duration,
    pub(super) max_answer: usize,
}

/// What is sent of a message, the same in every attempt.
#[derive(Debug)]
pub(super) struct Sent<'a> {
    pub(super) body: Bytes,
    pub(super) content_type: Option<&'a str>,
    /// The `traceparent`.
    pub(super) trace: String,
    /// The message's id, by which a target knows a repetition.
    pub(super) id: String,
    /// Its business signal.
    pub(super) flux_id: String,
}

/// What a target answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// Whether the body was longer.
    pub(super) truncated: bool,
}

impl Target {
    /// The address as people may see it.
    pub(super) fn shown(&self) -> String {
        let (scheme, authority) = (self.url.scheme_str(), self.url.authority());
        let authority = authority.map(ToString::to_string).unwrap_or_default();
        format!("{}://{authority}{}", scheme.unwrap_or_default(), self.url.path())
    }

    /// Sends one request and reads its answer; in words why there is none.
    pub(super) async fn attempt(&self, sent: &Sent<'_>) -> Result<Answer, String> {
        let request = self.request(sent)?;
        let exchange = async {
            let response = self.client.request(request).await.map_err(|error| text(&error))?;
            read(response, self.max_answer).await
        };
        let answered = tokio::time::timeout(self.timeout, exchange).await;
        answered.unwrap_or_else(|_| Err(format!("no answer within {:?}", self.timeout)))
    }

    fn request(&self, sent: &Sent<'_>) -> Result<Request<Full<Bytes>>, String> {
        let has_body = !matches!(self.method, Method::GET | Method::HEAD);
        let body = if has_body { sent.body.clone() } else { Bytes::new() };
        let request = Request::builder().method(&self.method).uri(&self.url);
        let mut request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
        let headers = request.headers_mut();
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("platform/", env!("CARGO_PKG_VERSION"))),
        );
        // A fact that cannot be a header is left out: the configured headers count.
        if let Some(value) = sent.content_type.filter(|_| has_body).and_then(|text| text.parse().ok()) {
            headers.insert(CONTENT_TYPE, value);
        }
        headers.insert(IDEMPOTENCY_KEY, sent.id.parse().map_err(|_| IDEMPOTENCY_KEY.to_owned())?);
        headers.extend(self.headers.clone());
        for (name, value) in [
            ("traceparent", &sent.trace),
            (FLUX_ID, &sent.flux_id),
            (FLUX_PARENT, &sent.id),
        ] {
            headers.insert(name, value.parse().map_err(|_| name.to_owned())?);
        }
        Ok(request)
    }
}

async fn read(response: Response<Incoming>, max: usize) -> Result<Answer, String> {
    let (head, mut incoming) = response.into_parts();
    let mut answer = Answer {
        status: head.status,
        headers: head.headers,
        body: Vec::new(),
        truncated: false,
    };
    while let Some(frame) = incoming.frame().await {
        let Ok(bytes) = frame.map_err(|error| text(&error))?.into_data() else {
            continue;
        };
        let room = max - answer.body.len();
        answer.body.extend(bytes.iter().take(room));
        if bytes.len() > room {
            answer.truncated = true;
            break;
        }
    }
    Ok(answer)
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

/// A client for this kind of address. It reads files.
pub(super) fn client(
    url: &Uri,
    ca_file: Option<&PathBuf>,
    connections: usize,
) -> Result<Client<HttpsConnector<HttpConnector>, Full<Bytes>>, String> {
    // Without TLS nothing is trusted, and the machine's authorities need not be there.
    let trust = if url.scheme_str() == Some("https") { Trust::Machine } else { Trust::Nobody };
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls::client_config(ca_file.map(PathBuf::as_path), trust, None)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(http);
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(connections)
        .build(connector))
}
