//! The HTTP client of gears: connections, TLS, answers.
//!
//! # Invariants
//!
//! - Connections are used again; TLS is that of [`super::tls`].
//! - The address that is connected to is one that the policy of the Rack allows; redirects are not followed.
//! - At most a given number of bytes of an answer are kept.
//! - What is shown of an address is without its query: there may be a secret in it.
//!
//! # Not here
//!
//! Headers and secrets of a scenario ([`gear_spec::http_headers`]), TLS ([`super::tls`]), requests (the gears).

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{HeaderMap, Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::tls::{self, DefaultTrust};
use crate::policy::{CheckedResolver, RackPolicy};

/// How long a connection is kept without a request.
const IDLE: Duration = Duration::from_secs(60);
/// The longest value of an answer's header that goes into the meta of a message.
const MAX_KEPT_HEADER: usize = 1024;
/// What a server learns of who asks.
pub(super) const AGENT: &str = concat!("platform/", env!("CARGO_PKG_VERSION"));

/// A client with its connections.
pub(super) type HttpClient = Client<HttpsConnector<HttpConnector<CheckedResolver>>, Full<Bytes>>;

/// What a server answered.
#[derive(Debug)]
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// Whether the body was longer.
    pub(super) truncated: bool,
}

impl HttpResponse {
    /// The text of a header that is not too long for the meta of a message.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let text = self.headers.get(name)?.to_str().ok()?;
        (text.len() <= MAX_KEPT_HEADER).then_some(text)
    }
}

/// An address as people may see it.
pub(super) fn shown(url: &Uri) -> String {
    let (scheme, authority) = (url.scheme_str(), url.authority());
    let authority = authority.map(ToString::to_string).unwrap_or_default();
    format!("{}://{authority}{}", scheme.unwrap_or_default(), url.path())
}

/// Sends a request and reads its answer, within a time, as far as it may be kept; in words why there is none.
pub(super) async fn exchange(
    client: &HttpClient,
    request: Request<Full<Bytes>>,
    bounds: (Duration, usize),
) -> Result<HttpResponse, String> {
    exchange_within(client, request, bounds, |_| Ok(())).await
}

/// The same, where bytes of the answer's body are admitted before they are kept.
pub(super) async fn exchange_within(
    client: &HttpClient,
    request: Request<Full<Bytes>>,
    (timeout, max): (Duration, usize),
    admit: impl FnMut(usize) -> Result<(), String>,
) -> Result<HttpResponse, String> {
    let exchange = async {
        let response = client.request(request).await.map_err(|error| text(&error))?;
        read(response, max, admit).await
    };
    let answered = tokio::time::timeout(timeout, exchange).await;
    answered.unwrap_or_else(|_| Err(format!("no answer within {timeout:?}")))
}

async fn read(
    response: Response<Incoming>,
    max: usize,
    mut admit: impl FnMut(usize) -> Result<(), String>,
) -> Result<HttpResponse, String> {
    let (head, mut incoming) = response.into_parts();
    let mut answer = HttpResponse {
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
        admit(bytes.len().min(room))?;
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

/// A client for this one address, as far as the policy of the Rack allows it. It reads files.
pub(super) fn client(
    policy: &RackPolicy,
    url: &Uri,
    ca_file: Option<&PathBuf>,
    connections: usize,
) -> Result<HttpClient, String> {
    // Without TLS nothing is trusted, and the machine's authorities need not be there.
    let (trust, usual) = if url.scheme_str() == Some("https") {
        (DefaultTrust::Machine, 443)
    } else {
        (DefaultTrust::Nobody, 80)
    };
    let port = url.port_u16().unwrap_or(usual);
    // The connector resolves names only: an address is checked here.
    let target = policy.check_target(url.host().unwrap_or_default(), port);
    target.map_err(|refusal| refusal.to_string())?;
    let policy = policy.clone();
    let config = tls::client_config(policy.readable(), ca_file.map(PathBuf::as_path), trust, None)?;
    let mut http = HttpConnector::new_with_resolver(CheckedResolver { policy, port });
    http.enforce_http(false);
    http.set_nodelay(true);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_http1()
        .wrap_connector(http);
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(connections)
        .build(connector))
}
