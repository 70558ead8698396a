//! `http_get`: polls an address over HTTP; each answer that is new becomes a message.
//!
//! | the server | what becomes of it |
//! |---|---|
//! | answers 2xx | a message, unless its `ETag` is that of the answer before |
//! | answers 304 to a request with a validator | nothing: the answer before still holds |
//! | answers anything else, too much, or not at all | an error is counted; it is asked again after a growing pause, or after what `Retry-After` says |
//!
//! # Invariants
//!
//! - `If-None-Match` and `If-Modified-Since` say which answer became a message last; where that leaves the Rack, it is durable then.
//! - A `Last-Modified` less than a second before `Date` is not asked with: the answer may have changed in the same second (RFC 9110, 8.8.2.2).
//! - One request at a time; a poll that is late is not made up for.
//!
//! # Not here
//!
//! Connections, TLS, headers and secrets ([`super::http_client`]). Redirects are not followed.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chassis::retry_after::parse_retry_after;
use chrono::{DateTime, TimeDelta};
use futures::FutureExt;
use gear_spec::http_get::{HttpGetConfig, VALIDATORS};
use gear_spec::{http_headers, parse_url};
use http_body_util::Full;
use hyper::header::{DATE, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH, LAST_MODIFIED, USER_AGENT};
use hyper::{HeaderMap, Request, StatusCode, Uri};
use model::{Attributes, HumanDuration, Level, gear_manifest};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::http_client::{self, AGENT, HttpClient, HttpResponse};
use super::poll_schedule::PollSchedule;
use super::{ActiveGear, Gear, GearContext, GearError, GearFuture, GearSendError, RawConfig};
use crate::policy::RackPolicy;

/// The longest pause after failures, unless the interval is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(900);

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    Ok(Gear::Active(Box::new(HttpPoller {
        config: gear_manifest::config(config)?,
        source: None,
    })))
}

struct HttpPoller {
    config: HttpGetConfig,
    source: Option<PollSource>,
}

impl ActiveGear for HttpPoller {
    fn init<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let (config, policy) = (self.config.clone(), cx.policy().clone());
            let source = tokio::task::spawn_blocking(move || poll_source(&config, &policy)).await?;
            self.source = Some(source.map_err(GearError::Config)?);
            Ok(())
        }
        .boxed()
    }

    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let Some(source) = &self.source else {
                return Ok(());
            };
            let every = self.config.every.get();
            let (mut schedule, mut failures) = (PollSchedule::new(every, Instant::now()), 0);
            loop {
                let polling = async {
                    tokio::time::sleep_until(schedule.due()).await;
                    source.poll(&cx.restart_state::<KnownAnswer>()).await
                };
                let polled = tokio::select! {
                    biased;
                    () = cx.stopping() => return Ok(()),
                    polled = polling => polled,
                };
                schedule.advance(Instant::now());
                match polled {
                    Ok(answer) => {
                        if failures > 0 {
                            cx.log(Level::Info, format!("{} answers again", source.shown()));
                        }
                        failures = 0;
                        if let Some(answer) = answer {
                            pass_on(cx, answer).await;
                        }
                    }
                    Err(failure) => {
                        failures += 1;
                        let wait = failure
                            .answer
                            .and_then(|answer| parse_retry_after(&answer.headers, cx.recorder().now()));
                        let pause = pause_after(failures, every, wait);
                        let (shown, again) = (source.shown(), HumanDuration::from(pause));
                        cx.error(format!("cannot poll {shown}: {}; retrying in {again}", failure.what));
                        schedule.postpone(Instant::now() + pause);
                    }
                }
            }
        }
        .boxed()
    }
}

/// How long a server is left alone after so many failures in a row.
fn pause_after(failures: u32, every: Duration, wait: Option<Duration>) -> Duration {
    let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let pause = every.saturating_mul(factor.max(1)).min(LONGEST_PAUSE.max(every));
    wait.map_or(pause, |wait| wait.max(every))
}

async fn pass_on(cx: &GearContext, answer: HttpResponse) {
    let began = std::time::Instant::now();
    let mut meta = Attributes::new().with("http.response.status_code", answer.status.as_u16());
    for (fact, header) in [
        ("content_type", "content-type"),
        ("http.response.header.etag", "etag"),
        ("http.response.header.last-modified", "last-modified"),
    ] {
        if let Some(value) = answer.header(header) {
            meta.set(fact, value);
        }
    }
    let known = KnownAnswer::validators_of(&answer);
    let message = cx.make(None, meta, answer.body);
    // Any other refusal has been counted and reported, and would come again.
    if cx.emit("out", message, None, began).await != Err(GearSendError::NotKept) {
        *cx.restart_state::<KnownAnswer>().validators.lock() = known;
    }
}

/// The answer that became a message last, over all lives of the gear.
#[derive(Debug, Default)]
struct KnownAnswer {
    /// What the next request has of it.
    validators: Mutex<HeaderMap>,
}

impl KnownAnswer {
    fn validators_of(answer: &HttpResponse) -> HeaderMap {
        let known = VALIDATORS.into_iter().filter_map(|(name, asked)| {
            answer.header(name.as_str())?;
            if name == LAST_MODIFIED && !is_settled(answer)? {
                return None;
            }
            Some((asked, answer.headers.get(name)?.clone()))
        });
        known.collect()
    }

    /// Whether this is the same answer once more, from a server that does not care what it is asked.
    fn matches(&self, answer: &HttpResponse) -> bool {
        let known = self.validators.lock();
        let etag = known.get(IF_NONE_MATCH);
        etag.is_some() && etag == answer.headers.get(ETAG)
    }
}

/// Whether an answer was made at least a second after what it has was modified.
fn is_settled(answer: &HttpResponse) -> Option<bool> {
    let time = |header: HeaderName| DateTime::parse_from_rfc2822(answer.header(header.as_str())?).ok();
    Some(time(DATE)? - time(LAST_MODIFIED)? >= TimeDelta::seconds(1))
}

/// What is polled, and how.
#[derive(Debug)]
struct PollSource {
    client: HttpClient,
    url: Uri,
    headers: HeaderMap,
    timeout: Duration,
    max_body: usize,
}

/// Why a poll came to nothing.
struct PollFailure {
    what: String,
    answer: Option<HttpResponse>,
}

impl PollSource {
    fn shown(&self) -> String {
        http_client::shown(&self.url)
    }

    /// The answer, if it is new.
    async fn poll(&self, known: &KnownAnswer) -> Result<Option<HttpResponse>, PollFailure> {
        let failed = |what| PollFailure { what, answer: None };
        let request = self.request(known).map_err(|error| failed(error.to_string()))?;
        let is_conditional = VALIDATORS
            .iter()
            .any(|(_, asked)| request.headers().contains_key(asked));
        let answer = http_client::exchange(&self.client, request, (self.timeout, self.max_body)).await;
        let answer = answer.map_err(failed)?;
        let status = answer.status;
        let what = match status {
            StatusCode::NOT_MODIFIED if is_conditional => return Ok(None),
            StatusCode::NOT_MODIFIED => format!("it answered {status}, though no answer is known that it could mean"),
            _ if status.is_redirection() => {
                format!("it answered {status}: redirects are not followed; set url to where it leads")
            }
            _ if !status.is_success() => format!("it answered {status}"),
            _ if answer.truncated => {
                let max = self.max_body;
                format!("its answer has more than {max} bytes; raise max_body")
            }
            _ if known.matches(&answer) => return Ok(None),
            _ => return Ok(Some(answer)),
        };
        Err(PollFailure {
            what,
            answer: Some(answer),
        })
    }

    fn request(&self, known: &KnownAnswer) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let mut request = Request::get(&self.url).body(Full::new(Bytes::new()))?;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.extend(self.headers.clone());
        headers.extend(known.validators.lock().clone());
        Ok(request)
    }
}

/// What is polled; reads the environment and files.
fn poll_source(config: &HttpGetConfig, policy: &RackPolicy) -> Result<PollSource, String> {
    let url = parse_url(&config.url)?;
    Ok(PollSource {
        client: http_client::client(policy, &url, config.ca_file.as_ref(), 1)?,
        url,
        headers: http_headers::resolved(&config.headers, |name| policy.variable(name))?,
        timeout: config.timeout.get(),
        max_body: config.max_body as usize,
    })
}
