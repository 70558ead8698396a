//! The REST API as a user calls it.

use std::time::Duration;

use serde_json::{Map, Value};
use ureq::SendBody;
use ureq::http::{HeaderValue, Request};
use ureq::middleware::MiddlewareNext;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::Failure;

/// A client of one Mixer.
#[derive(Debug, Clone)]
pub struct Api {
    /// `http://127.0.0.1:port`.
    pub base: String,
    agent: ureq::Agent,
}

/// An answer: its status and its body.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The `Content-Type`.
    pub content_type: String,
    /// The body, parsed; `Null` if it is not JSON.
    pub json: Value,
    /// The body as text.
    pub text: String,
}

/// The rows of one page, and the cursor of the next one if there is one.
pub type Page = (Vec<Map<String, Value>>, Option<String>);

impl Api {
    /// A client for a base address.
    #[must_use]
    pub fn new(base: &str) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(60)))
            .http_status_as_error(false)
            .build();
        Self {
            base: base.to_owned(),
            agent: config.into(),
        }
    }

    /// The same for a Mixer that asks for a token, and of this certificate (PEM) if it speaks TLS.
    ///
    /// # Errors
    /// If the certificate or the token cannot be used.
    pub fn guarded(base: &str, token: &str, certificate: Option<&str>) -> Result<Self, Failure> {
        let bearer = HeaderValue::try_from(format!("Bearer {token}"))?;
        let mut tls = TlsConfig::builder();
        if let Some(pem) = certificate {
            let root = Certificate::from_pem(std::fs::read_to_string(pem)?.as_bytes())?;
            tls = tls.root_certs(RootCerts::new_with_certs(&[root]));
        }
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(60)))
            .http_status_as_error(false)
            .tls_config(tls.build())
            .middleware(move |mut request: Request<SendBody<'_>>, next: MiddlewareNext<'_>| {
                request.headers_mut().insert("authorization", bearer.clone());
                next.handle(request)
            })
            .build();
        Ok(Self {
            base: base.to_owned(),
            agent: config.into(),
        })
    }

    /// GET, whatever the status.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn get(&self, path: &str) -> Result<Answer, Failure> {
        Self::answer(self.agent.get(format!("{}{path}", self.base)).call()?)
    }

    /// GET of a content type that the client accepts, whatever the status.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn get_as(&self, path: &str, accept: &str) -> Result<Answer, Failure> {
        let request = self.agent.get(format!("{}{path}", self.base));
        Self::answer(request.header("accept", accept).call()?)
    }

    /// POST of a JSON body, whatever the status.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn post(&self, path: &str, body: &Value) -> Result<Answer, Failure> {
        let request = self
            .agent
            .post(format!("{}{path}", self.base))
            .header("content-type", "application/json");
        Self::answer(request.send(body.to_string())?)
    }

    /// PUT of a JSON body, whatever the status.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn put(&self, path: &str, body: &Value) -> Result<Answer, Failure> {
        let request = self
            .agent
            .put(format!("{}{path}", self.base))
            .header("content-type", "application/json");
        Self::answer(request.send(body.to_string())?)
    }

    /// PATCH with a JSON body, whatever the status.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn patch(&self, path: &str, body: &Value) -> Result<Answer, Failure> {
        let request = self
            .agent
            .patch(format!("{}{path}", self.base))
            .header("content-type", "application/json");
        Self::answer(request.send(body.to_string())?)
    }

    /// POST of any body with these headers, whatever the status.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn send(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Answer, Failure> {
        let request = self.agent.post(format!("{}{path}", self.base));
        let request = headers
            .iter()
            .fold(request, |request, (name, value)| request.header(*name, *value));
        Self::answer(request.send(body)?)
    }

    fn answer(mut response: ureq::http::Response<ureq::Body>) -> Result<Answer, Failure> {
        let header = response
            .headers()
            .get("content-type")
            .and_then(|value| value.to_str().ok());
        let content_type = header.unwrap_or_default().to_owned();
        let text = response.body_mut().with_config().limit(256 << 20).read_to_string()?;
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Answer {
            status: response.status().as_u16(),
            content_type,
            json,
            text,
        })
    }

    /// The rows of one page.
    ///
    /// # Errors
    /// If the answer is not 200 with `data`.
    pub fn rows(&self, path: &str) -> Result<Vec<Map<String, Value>>, Failure> {
        Ok(self.page(path)?.0)
    }

    /// The rows of one page and the cursor of the next.
    ///
    /// # Errors
    /// If the answer is not 200 with `data`.
    pub fn page(&self, path: &str) -> Result<Page, Failure> {
        let answer = self.get(path)?;
        let data = answer.json.get("data").and_then(Value::as_array);
        let (200, Some(data)) = (answer.status, data) else {
            return Err(format!("GET {path}: {} {}", answer.status, answer.text).into());
        };
        let cursor = answer
            .json
            .get("next_cursor")
            .and_then(Value::as_str)
            .map(str::to_owned);
        Ok((data.iter().filter_map(|row| row.as_object().cloned()).collect(), cursor))
    }

    /// Every row, page by page.
    ///
    /// # Errors
    /// If a page is not 200 with `data`.
    pub fn all_rows(&self, path: &str) -> Result<Vec<Map<String, Value>>, Failure> {
        let (mut rows, mut cursor) = self.page(&format!("{path}&limit=10000"))?;
        while let Some(next) = cursor {
            let (more, after) = self.page(&format!("{path}&limit=10000&cursor={next}"))?;
            rows.extend(more);
            cursor = after;
        }
        Ok(rows)
    }

    /// The value of a counter or gauge without labels; none if it is not reported.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        let text = self.get("/metrics").ok()?.text;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    }
}
