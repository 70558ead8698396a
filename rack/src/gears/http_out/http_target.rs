//! What requests go to: one attempt at a time, each within its time.
//!
//! # Invariants
//!
//! - At most `max_answer` bytes of an answer are kept.
//!
//! # Not here
//!
//! Connections and TLS ([`super::super::http_client`]).

use std::time::Duration;

use bytes::Bytes;
use gear_spec::http_headers::{self, FLUX_ID, FLUX_PARENT};
use gear_spec::http_out::HttpOutConfig;
use gear_spec::parse_url;
use http_body_util::Full;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{HeaderMap, Method, Request, Uri};
use model::Attributes;
use model::trace_context::{BAGGAGE, TRACEPARENT, TRACESTATE};

use super::super::http_client::{self, AGENT, HttpClient, HttpResponse};
use super::message_encoding::EncodedMessage;
use crate::policy::RackPolicy;

/// The header that says which requests are the same one again.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Where requests go and how.
#[derive(Debug)]
pub(super) struct HttpTarget {
    pub(super) client: HttpClient,
    pub(super) url: Uri,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) timeout: Duration,
    pub(super) max_answer: usize,
}

/// What is sent of a message, the same in every attempt.
#[derive(Debug)]
pub(super) struct OutgoingRequest<'a> {
    pub(super) encoded: EncodedMessage<'a>,
    /// The `traceparent`.
    pub(super) trace: String,
    /// The `tracestate`, if there is any.
    pub(super) trace_state: Option<&'a str>,
    /// The `baggage`.
    pub(super) baggage: String,
    /// The message's id, by which a target knows a repetition.
    pub(super) id: String,
    /// Its business signal.
    pub(super) flux_id: String,
}

impl HttpTarget {
    /// What requests go to; reads the environment and files.
    pub(super) fn of(config: &HttpOutConfig, policy: &RackPolicy) -> Result<Self, String> {
        let url = parse_url(&config.url)?;
        Ok(Self {
            client: http_client::client(policy, &url, config.ca_file.as_ref(), usize::from(config.in_flight))?,
            url,
            method: config.method()?,
            headers: http_headers::resolved(&config.headers, |name| policy.variable(name))?,
            timeout: config.timeout.get(),
            max_answer: config.max_answer as usize,
        })
    }

    /// The address as people may see it.
    pub(super) fn shown(&self) -> String {
        http_client::shown(&self.url)
    }

    /// What the span of a request says of it; the query may have a secret in it.
    pub(super) fn facts(&self) -> Attributes {
        let mut facts = Attributes::new()
            .with("http.request.method", self.method.as_str())
            .with("url.full", self.shown())
            .with("network.protocol.version", "1.1");
        if let Some(host) = self.url.host() {
            let usual = if self.url.scheme_str() == Some("https") {
                443
            } else {
                80
            };
            facts.set("server.address", host);
            facts.set("server.port", self.url.port_u16().unwrap_or(usual));
        }
        facts
    }

    /// Sends one request and reads its answer; in words why there is none.
    pub(super) async fn attempt(&self, sent: &OutgoingRequest<'_>) -> Result<HttpResponse, String> {
        let request = self.request(sent)?;
        http_client::exchange(&self.client, request, (self.timeout, self.max_answer)).await
    }

    fn request(&self, sent: &OutgoingRequest<'_>) -> Result<Request<Full<Bytes>>, String> {
        let has_body = !matches!(self.method, Method::GET | Method::HEAD);
        let body = if has_body {
            sent.encoded.body.clone()
        } else {
            Bytes::new()
        };
        let request = Request::builder().method(&self.method).uri(&self.url);
        let mut request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        if let Some(packing) = sent.encoded.content_encoding {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(packing));
        }
        // A fact that cannot be a header is left out: the configured headers count.
        if let Some(value) = sent
            .encoded
            .content_type
            .filter(|_| has_body)
            .and_then(|text| text.parse().ok())
        {
            headers.insert(CONTENT_TYPE, value);
        }
        headers.insert(
            IDEMPOTENCY_KEY,
            sent.id.parse().map_err(|_| IDEMPOTENCY_KEY.to_owned())?,
        );
        headers.extend(self.headers.clone());
        let state = sent.trace_state.map(|state| (TRACESTATE, state));
        for (name, value) in [
            (TRACEPARENT, sent.trace.as_str()),
            (BAGGAGE, sent.baggage.as_str()),
            (FLUX_ID, sent.flux_id.as_str()),
            (FLUX_PARENT, sent.id.as_str()),
        ]
        .into_iter()
        .chain(state)
        {
            headers.insert(name, value.parse().map_err(|_| name.to_owned())?);
        }
        Ok(request)
    }
}
