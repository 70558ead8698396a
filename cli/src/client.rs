//! HTTP client of the Mixer's REST API. Problem documents become [`Error::Refused`].

use std::io::Read;
use std::time::{Duration, Instant};

use chassis::config::without_credentials;
use chrono::{DateTime, Utc};
use model::filter::ANY_KEY;
use model::{HumanDuration, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value};
use ureq::config::ConfigBuilder;
use ureq::http::{HeaderValue, Request};
use ureq::middleware::MiddlewareNext;
use ureq::tls::TlsConfig;
use ureq::typestate::AgentScope;
use ureq::{SendBody, Timeout};

use crate::api_tls::ApiTlsFiles;
use crate::args::ApiArgs;
use crate::error::Error;
use crate::login::{ApiCredentials, is_loopback};
use crate::progress::ProgressLine;

/// The longest one answer may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest a connection may take to be there.
const CONNECT: Duration = Duration::from_secs(10);
/// A stream says something at least every 15 s.
const SILENCE: Duration = Duration::from_secs(45);
/// The pause between two questions while a command waits for rows.
const AGAIN: Duration = Duration::from_millis(200);
/// The largest answer that is read, in bytes as they are sent.
const LARGEST: u64 = 512 << 20;

/// A row under the specification's column names.
pub(crate) type Row = Map<String, Value>;

pub(crate) struct ApiClient {
    /// Or why there is none.
    base: Result<String, String>,
    agent: ureq::Agent,
    largest: u64,
}

/// One page of rows.
pub(crate) struct ResultPage {
    pub(crate) rows: Vec<Row>,
    pub(crate) next_cursor: Option<String>,
    pub(crate) partial: Option<String>,
}

impl ApiClient {
    pub(crate) fn new(api: &ApiArgs) -> Self {
        Self::within(api, TIMEOUT)
    }

    /// One that waits no longer than this for an answer.
    pub(crate) fn within(api: &ApiArgs, timeout: Duration) -> Self {
        Self::asking(ApiCredentials::of(api.api_url.as_deref()), answered_within(timeout))
    }

    /// One that asks a Mixer with a token that is not kept yet.
    pub(crate) fn with_token(url: &str, token: String, tls: ApiTlsFiles) -> Self {
        let credentials = ApiCredentials {
            url: url.to_owned(),
            token: Some(token),
            tls,
        };
        Self::asking(Ok(credentials), answered_within(TIMEOUT))
    }

    /// One for answers that have no end. A Mixer that says nothing for [`SILENCE`] is not there any more.
    pub(crate) fn streaming(api: &ApiArgs) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(TIMEOUT))
            .timeout_per_read(Some(SILENCE));
        Self::asking(ApiCredentials::of(api.api_url.as_deref()), config)
    }

    fn asking(credentials: Result<ApiCredentials, Error>, config: ConfigBuilder<AgentScope>) -> Self {
        let prepared = credentials.and_then(|ApiCredentials { url, token, tls }| {
            let tls = url.starts_with("https:").then(|| tls.config()).transpose()?;
            Ok((url, token, tls.unwrap_or_default()))
        });
        let (base, token, tls) = match prepared {
            Ok((url, token, tls)) => (Ok(url), token, tls),
            Err(error) => (Err(error.to_string()), None, TlsConfig::default()),
        };
        // What goes to this machine goes through no proxy, whatever the environment says of proxies.
        let config = match &base {
            Ok(url) if is_loopback(url) => config.proxy(None),
            _ => config,
        };
        let bearer = token.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
        let config = config.tls_config(tls).http_status_as_error(false).middleware(
            move |mut request: Request<SendBody<'_>>, next: MiddlewareNext<'_>| {
                if let Some(bearer) = &bearer {
                    request.headers_mut().insert("authorization", bearer.clone());
                }
                next.handle(request)
            },
        );
        Self {
            base,
            agent: config.build().into(),
            largest: LARGEST,
        }
    }

    /// The address of a path at the Mixer.
    fn url(&self, path: &str) -> Result<String, Error> {
        Ok(format!("{}{path}", self.base()?))
    }

    /// The Mixer's address.
    pub(crate) fn base(&self) -> Result<&str, Error> {
        self.base.as_deref().map_err(|reason| Error::Usage(reason.clone()))
    }

    /// Breaks off whatever is waited for, by another thread; nothing can be asked any more.
    pub(crate) fn close(&self) {
        self.agent.clone().shutdown();
    }

    /// GET of a stream of events, from behind the one with the id `last` on.
    pub(crate) fn stream<F: Serialize>(
        &self,
        path: &str,
        filter: &F,
        last: Option<&str>,
    ) -> Result<impl Read + use<F>, Error> {
        let mut request = self.agent.get(self.url(path)?);
        for (name, value) in parameters(filter)? {
            request = request.query(name, value);
        }
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let sent = request.header("accept", "text/event-stream").call();
        let response = match sent {
            Ok(response) if response.status().as_u16() == 200 => response,
            other => {
                self.receive("GET", path, other, &ProgressLine::start())?
                    .into_success()?;
                return Err(Error::Answer("it is not an event stream".to_owned()));
            }
        };
        Ok(response.into_body().into_with_config().limit(u64::MAX).reader())
    }

    /// GET with a filter as the query string.
    pub(crate) fn get<F: Serialize>(&self, path: &str, filter: &F) -> Result<Value, Error> {
        self.ask(path, filter, &ProgressLine::start())
    }

    fn ask<F: Serialize>(&self, path: &str, filter: &F, progress: &ProgressLine) -> Result<Value, Error> {
        let mut request = self.agent.get(self.url(path)?);
        for (name, value) in parameters(filter)? {
            request = request.query(name, value);
        }
        let heard = self.receive("GET", path, request.call(), progress)?;
        heard.into_success()
    }

    /// GET, whatever the answer's status is.
    pub(crate) fn get_any_status(&self, path: &str) -> Result<ApiResponse, Error> {
        let progress = ProgressLine::start();
        let request = self.agent.get(self.url(path)?);
        self.receive("GET", path, request.call(), &progress)
    }

    /// GET of a page of rows.
    pub(crate) fn page<F: Serialize>(&self, path: &str, filter: &F) -> Result<ResultPage, Error> {
        page(self.get(path, filter)?)
    }

    /// The same; waits at most `wait` for a Mixer that is ready and for the first row.
    pub(crate) fn page_within<F: Serialize>(
        &self,
        path: &str,
        filter: &F,
        wait: Option<HumanDuration>,
    ) -> Result<ResultPage, Error> {
        let within = wait.map_or(Duration::ZERO, HumanDuration::get);
        let (start, progress) = (Instant::now(), ProgressLine::start());
        loop {
            let page = self.ask(path, filter, &progress).and_then(page);
            let may_come = match &page {
                Ok(page) => page.rows.is_empty(),
                Err(error) => error.is_unavailable(),
            };
            if !may_come || start.elapsed() >= within {
                return page;
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// POST of a JSON body.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, Error> {
        self.post_with(path, &(), body)
    }

    /// POST of a JSON body with a filter as the query string.
    pub(crate) fn post_with<F: Serialize>(&self, path: &str, filter: &F, body: &Value) -> Result<Value, Error> {
        self.send(path, filter, "application/json", body.to_string().as_bytes())
    }

    /// PATCH with a JSON body.
    pub(crate) fn patch(&self, path: &str, body: &Value) -> Result<Value, Error> {
        let progress = ProgressLine::start();
        let request = self.agent.patch(self.url(path)?);
        let request = request.header("content-type", "application/json");
        self.receive("PATCH", path, request.send(body.to_string()), &progress)?
            .into_success()
    }

    /// POST of any body.
    pub(crate) fn send<F: Serialize>(
        &self,
        path: &str,
        filter: &F,
        content_type: &str,
        body: &[u8],
    ) -> Result<Value, Error> {
        let progress = ProgressLine::start();
        let mut request = self.agent.post(self.url(path)?);
        for (name, value) in parameters(filter)? {
            request = request.query(name, value);
        }
        let request = request.header("content-type", content_type);
        self.receive("POST", path, request.send(body), &progress)?
            .into_success()
    }

    fn receive(
        &self,
        method: &str,
        path: &str,
        sent: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
        progress: &ProgressLine,
    ) -> Result<ApiResponse, Error> {
        let url = without_credentials(self.base()?);
        let failed = |error: ureq::Error| {
            tracing::debug!(method, api = url, path, %error, "a request to the API got no answer");
            no_answer_error(url.clone(), error)
        };
        let mut response = sent.map_err(failed)?;
        let status = response.status().as_u16();
        tracing::debug!(method, api = url, path, status, "request answered");
        let date = response.headers().get("date").and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok());
        let mut body = Vec::new();
        let reader = response.body_mut().with_config().limit(self.largest).reader();
        progress
            .counted(reader)
            .read_to_end(&mut body)
            .map_err(|error| failed(error.into()))?;
        Ok(ApiResponse {
            status,
            date: date.map(|date| date.with_timezone(&Utc).into()),
            body: serde_json::from_slice(&body).map_err(|error| error.to_string()),
        })
    }
}

/// A text as one segment of a path.
pub(crate) fn path_segment(text: &str) -> String {
    let mut segment = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            segment.push(byte.into());
        } else {
            segment.push_str(&format!("%{byte:02X}"));
        }
    }
    segment
}

fn answered_within(timeout: Duration) -> ConfigBuilder<AgentScope> {
    ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .timeout_connect(Some(CONNECT.min(timeout)))
}

/// Why there is no answer: nobody is there, or who is there takes too long or says too much.
fn no_answer_error(url: String, error: ureq::Error) -> Error {
    let reason = error.to_string();
    match error {
        ureq::Error::BodyExceedsLimit(most) => Error::Answer(format!(
            "it has more than {} MiB: ask for fewer rows or a shorter time range",
            most >> 20
        )),
        ureq::Error::Timeout(at) if !matches!(at, Timeout::Resolve | Timeout::Connect) => Error::Slow { url, reason },
        _ => Error::Unreachable { url, reason },
    }
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    /// What the Mixer's clock said, in whole seconds.
    pub(crate) date: Option<Timestamp>,
    /// JSON, or why it is none.
    pub(crate) body: Result<Value, String>,
}

impl ApiResponse {
    /// The body, if the answer is what was asked for, and is not that it waits for a second person.
    pub(crate) fn into_success(self) -> Result<Value, Error> {
        if self.status == 202 {
            let waits = one(self.body.map_err(Error::Answer)?, "it does not say what waits")?;
            return Err(Error::SecondPerson {
                id: waits.get("id").and_then(Value::as_u64).unwrap_or_default(),
                until: waits
                    .get("until")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned(),
            });
        }
        if self.status < 300 {
            return self.body.map_err(Error::Answer);
        }
        Err(problem_error(self.status, &self.body.unwrap_or(Value::Null)))
    }
}

/// A problem document as an error.
pub(crate) fn problem_error(status: u16, problem: &Value) -> Error {
    let part = |key: &str| problem.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let count = |key: &str| usize::try_from(problem.get("position")?.get(key)?.as_u64()?).ok();
    Error::Refused {
        status,
        title: non_empty(part("title"), status),
        detail: part("detail"),
        position: count("line").zip(count("column")),
    }
}

fn page(mut answer: Value) -> Result<ResultPage, Error> {
    let rows = rows(&mut answer)?;
    let text = |key: &str| answer.get(key).and_then(Value::as_str).map(str::to_owned);
    Ok(ResultPage {
        next_cursor: text("next_cursor"),
        partial: text("partial"),
        rows,
    })
}

/// Takes the rows of a list out of its answer.
pub(crate) fn rows(answer: &mut Value) -> Result<Vec<Row>, Error> {
    match answer.get_mut("data").map(Value::take) {
        Some(Value::Array(rows)) => Ok(rows.into_iter().filter_map(object).collect()),
        _ => Err(Error::Answer("it has no list named data".to_owned())),
    }
}

/// The one thing that an answer is about; `lack` says what is wrong with one that has none.
pub(crate) fn one(mut answer: Value, lack: &str) -> Result<Row, Error> {
    let data = answer.get_mut("data").map(Value::take);
    data.and_then(object).ok_or_else(|| Error::Answer(lack.to_owned()))
}

fn non_empty(title: String, status: u16) -> String {
    if title.is_empty() {
        format!("the Mixer answered {status}")
    } else {
        title
    }
}

fn object(value: Value) -> Option<Row> {
    match value {
        Value::Object(row) => Some(row),
        _ => None,
    }
}

/// A filter's fields as query parameters, the same struct that the API parses: of a family's field, a parameter for each entry,
/// and of a list one for each value.
fn parameters<F: Serialize>(filter: &F) -> Result<Vec<(String, String)>, Error> {
    let fields = serde_json::to_value(filter).map_err(|error| Error::Usage(error.to_string()))?;
    let Value::Object(fields) = fields else {
        return Ok(Vec::new());
    };
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let of_each = |name: &str, value: Value| -> Vec<(String, String)> {
        let values = match value {
            Value::Null => Vec::new(),
            Value::Array(values) => values,
            value => vec![value],
        };
        values.into_iter().map(|value| (name.to_owned(), text(value))).collect()
    };
    let parameters = |(name, value): (String, Value)| match value {
        Value::Object(entries) => {
            let entry = |(key, value): (String, Value)| of_each(&name.replace(ANY_KEY, &key), value);
            entries.into_iter().flat_map(entry).collect()
        }
        value => of_each(&name, value),
    };
    Ok(fields.into_iter().flat_map(parameters).collect())
}

#[cfg(test)]
mod tests;
