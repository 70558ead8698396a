//! `http_out`: sends each message as an HTTP request; the answer becomes a message.
//!
//! | the target | what becomes of the message |
//! |---|---|
//! | answers 2xx | done; the answer leaves on port `reply` |
//! | answers 429, 5xx, or not at all | tried again after a growing pause, or after what `Retry-After` says |
//! | does so once more than `retry.count` times | [`Fault::Outside`]: the gear begins anew |
//! | answers anything else | rejected |
//!
//! # Invariants
//!
//! - With `in_flight: 1` messages are sent in their order, the next one after the answer to the one before.
//! - A target may get a message more than once: an answer that is lost is no answer. `Idempotency-Key`, the message's id, is the same
//!   then, unless the configuration says another.
//! - With more than one request under way, what comes of a message is known later than it is taken ([`flight`]).
//! - The circuit breaker ([`breaker`]) counts attempts that had no answer or a 5xx, over all lives of the gear.
//!
//! # Not here
//!
//! One request ([`target`]), headers and secrets ([`headers`]). Redirects are not followed.

mod breaker;
mod flight;
mod headers;
mod target;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use hyper::header::RETRY_AFTER;
use hyper::{HeaderMap, Method, StatusCode, Uri};
use model::gear::{self, GearConfig, Manifest};
use model::message::Message;
use model::{HumanDuration, Level, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::traceparent::TraceParent;
use super::{Config, Context, Fault, Gear, Passive, Work};
use crate::wires::Delivery;
use flight::{Flight, Kept};
use target::{Answer, Sent, Target};

/// The longest that a target's `Retry-After` is obeyed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// The headers of an answer that go into the meta of the message on `reply`.
const KEPT_HEADERS: [&str; 4] = ["content-type", "etag", "location", "x-request-id"];
/// The longest value of such a header.
const MAX_KEPT_HEADER: usize = 1024;

/// What the type is.
pub(super) const MANIFEST: Manifest = Manifest {
    kind: "http_out",
    summary: "sends each message as an HTTP request; the answer becomes a message",
    inputs: &["in"],
    outputs: &["reply"],
    doc: "2xx is done, 429 and 5xx and no answer are tried again, other answers reject the message. The answer's message has the facts of the one that was sent, \
          with `http.response.status_code` and `http.response.header.<name>`. `traceparent` and `Idempotency-Key`, the id of the message, are sent along. Values of secret headers are `${NAME}` references to the environment of the Rack.",
    example: include_str!("../../../../examples/gears/http_out.yaml"),
    schema: gear::schema::<HttpOut>,
    check: gear::check::<HttpOut>,
};

pub(super) fn build(config: &Config) -> Result<Gear, String> {
    Ok(Gear::Passive(Box::new(Out {
        config: gear::config(config)?,
        sender: None,
        flight: Flight::default(),
    })))
}

struct Out {
    config: HttpOut,
    sender: Option<Arc<Sender>>,
    /// Requests, where more than one may be under way.
    flight: Flight,
}

impl Passive for Out {
    fn init<'a>(&'a mut self, cx: &'a Arc<Context>) -> Work<'a> {
        async move {
            let config = self.config.clone();
            let target = tokio::task::spawn_blocking(move || config.target()).await?;
            let kept: Arc<Kept> = cx.kept();
            self.flight = Flight::new(Arc::clone(&kept));
            self.sender = Some(Arc::new(Sender {
                target: target.map_err(Fault::Config)?,
                retry: self.config.retry,
                rules: self.config.breaker.rules(),
                when_open: self.config.breaker.when_open,
                kept,
                cx: Arc::clone(cx),
            }));
            Ok(())
        }
        .boxed()
    }

    fn process<'a>(&'a mut self, cx: &'a Arc<Context>, delivery: Delivery) -> Work<'a> {
        async move {
            let Some(sender) = self.sender.clone() else {
                return Ok(());
            };
            let in_flight = usize::from(self.config.in_flight);
            if in_flight == 1 {
                let reply = sender.deliver(&delivery.message).await?;
                send_reply(cx, reply).await;
            } else {
                self.flight.begin(cx, sender, delivery, in_flight).await;
            }
            Ok(())
        }
        .boxed()
    }

    fn flush<'a>(&'a mut self, cx: &'a Arc<Context>) -> Work<'a> {
        self.flight.flush(cx).boxed()
    }

    fn wake_at(&self) -> Option<Instant> {
        self.flight.is_failing().then(Instant::now)
    }

    fn wake<'a>(&'a mut self, cx: &'a Arc<Context>) -> Work<'a> {
        self.flight.flush(cx).boxed()
    }
}

async fn send_reply(cx: &Context, reply: Option<Box<Message>>) {
    if let Some(reply) = reply {
        // A refusal has been counted and reported; the message was delivered all the same.
        cx.send("reply", *reply).await.ok();
    }
}

/// What a message is sent with.
struct Sender {
    target: Target,
    retry: Retry,
    rules: breaker::Rules,
    when_open: WhenOpen,
    kept: Arc<Kept>,
    cx: Arc<Context>,
}

impl Sender {
    /// Delivers a message; what the target answered, if anybody wants it.
    async fn deliver(&self, message: &Message) -> Result<Option<Box<Message>>, Fault> {
        let content_type = match message.meta.get("content_type").and_then(Value::as_str) {
            None if !message.data.is_null() => Some("application/json"),
            known => known,
        };
        let (trace_id, span_id, sampled) = (message.trace_id, message.span_id, message.sampled);
        let trace = TraceParent {
            trace_id,
            span_id,
            sampled,
        };
        let sent = Sent {
            body: Bytes::from(message.body().into_owned()),
            content_type,
            trace: trace.to_string(),
            id: message.id.to_string(),
        };
        let (mut pause, mut left) = (self.retry.first.get(), self.retry.count);
        loop {
            self.pass_breaker().await?;
            let tried = self.target.attempt(&sent).await;
            let trouble = match self.judge(tried) {
                Verdict::Done(answer) => return Ok(self.reply(message, answer)),
                Verdict::Rejected(reason) => return Err(Fault::Rejected(reason)),
                Verdict::Again(trouble) => trouble,
            };
            if left == 0 {
                let attempts = u64::from(self.retry.count) + 1;
                return Err(self.outside(&format!("{}, {attempts} times", trouble.what)));
            }
            left -= 1;
            tokio::select! {
                () = tokio::time::sleep(trouble.wait.unwrap_or(pause)) => {}
                () = self.cx.stopping() => return Err(self.outside(&trouble.what)),
            }
            pause = (pause * 2).min(self.retry.longest.get());
        }
    }

    /// Returns when an attempt may begin.
    async fn pass_breaker(&self) -> Result<(), Fault> {
        let refused = |left: Duration| {
            let left = HumanDuration::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
            format!(
                "{} failed {} times in a row; nothing is sent to it for {left}",
                self.target.shown(),
                self.rules.failures
            )
        };
        match (self.kept.breaker.admit(self.rules, Instant::now()), self.when_open) {
            (Ok(()), _) => Ok(()),
            (Err(left), WhenOpen::Reject) => Err(Fault::Rejected(refused(left))),
            (Err(left), WhenOpen::Wait) => tokio::select! {
                () = self.kept.breaker.wait(self.rules) => Ok(()),
                () = self.cx.stopping() => Err(self.outside(&refused(left))),
            },
        }
    }

    /// What an attempt came to, for the message and for the breaker.
    fn judge(&self, tried: Result<Answer, String>) -> Verdict {
        let verdict = match tried {
            Ok(answer) => verdict(answer, self.cx.recorder().now()),
            Err(what) => Verdict::Again(Trouble {
                what,
                wait: None,
                is_failure: true,
            }),
        };
        let shown = || self.target.shown();
        if matches!(&verdict, Verdict::Again(trouble) if trouble.is_failure) {
            if self.kept.breaker.failed(self.rules, Instant::now()) {
                let (failures, open_for) = (self.rules.failures, HumanDuration::from(self.rules.open_for));
                self.cx.error(format!(
                    "{} failed {failures} times in a row: nothing is sent to it for {open_for}, then one message",
                    shown()
                ));
            }
        } else if self.kept.breaker.succeeded() {
            self.cx.log(Level::Info, format!("{} answers again", shown()));
        }
        verdict
    }

    fn reply(&self, to: &Message, answer: Answer) -> Option<Box<Message>> {
        if !self.cx.is_wired("reply") {
            return None;
        }
        let mut reply = Box::new(self.cx.child(to));
        reply.data = Value::Null;
        reply.raw = answer.body;
        reply.meta.set("http.response.status_code", answer.status.as_u16());
        for name in KEPT_HEADERS {
            let value = answer.headers.get(name).and_then(|value| value.to_str().ok());
            if let Some(value) = value.filter(|value| value.len() <= MAX_KEPT_HEADER) {
                reply.meta.set(&format!("http.response.header.{name}"), value);
            }
        }
        let content_type = answer.headers.get("content-type").and_then(|value| value.to_str().ok());
        // What the request had is not what the answer has.
        reply.meta.set(
            "content_type",
            content_type
                .filter(|value| value.len() <= MAX_KEPT_HEADER)
                .unwrap_or_default(),
        );
        if answer.truncated {
            reply.meta.set("truncated", true);
        }
        Some(reply)
    }

    fn outside(&self, reason: &str) -> Fault {
        Fault::Outside {
            what: format!("send a message to {}", self.target.shown()),
            reason: io::Error::other(reason.to_owned()),
        }
    }
}

/// What an attempt means for its message.
enum Verdict {
    Done(Answer),
    Again(Trouble),
    Rejected(String),
}

struct Trouble {
    what: String,
    /// How long the target wants to be left alone.
    wait: Option<Duration>,
    /// Whether it counts for the breaker.
    is_failure: bool,
}

fn verdict(answer: Answer, now: Timestamp) -> Verdict {
    let status = answer.status;
    if status.is_success() {
        return Verdict::Done(answer);
    }
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return Verdict::Again(Trouble {
            what: format!("it answered {status}"),
            wait: retry_after(&answer.headers, now),
            is_failure: status.is_server_error(),
        });
    }
    let hint = if status.is_redirection() {
        ": redirects are not followed; set url to where it leads"
    } else {
        ""
    };
    Verdict::Rejected(format!("the target answered {status}{hint}"))
}

/// Seconds or a date, within bounds.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = chrono::DateTime::parse_from_rfc2822(text).ok()?;
            Timestamp::from(at.to_utc()).since(now)
        }
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

/// Configuration of `http_out`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpOut {
    /// Where requests go, `http://` or `https://`.
    url: String,
    /// The method.
    #[serde(default = "default_method")]
    method: String,
    /// More headers. `${NAME}` is the variable NAME in the environment of the Rack; the values of headers whose names have authorization, cookie,
    /// credential, key, password, secret or token in them must be such references.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// How long one attempt may take, its answer included.
    #[serde(default = "default_timeout")]
    timeout: HumanDuration,
    /// How often and when a message is tried again.
    #[serde(default)]
    retry: Retry,
    /// When a target that keeps failing is left alone.
    #[serde(default)]
    breaker: BreakerConfig,
    /// How many requests may be under way at a time; with more than 1, messages may overtake each other.
    #[serde(default = "default_in_flight")]
    in_flight: u8,
    /// The most bytes of an answer's body that are kept; the rest is cut and the message on `reply` marked `truncated`.
    #[serde(default = "default_max_answer")]
    max_answer: u32,
    /// A file of certificate authorities in PEM form that are trusted instead of the machine's.
    #[serde(default)]
    ca_file: Option<PathBuf>,
}

/// How often and when a message is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Retry {
    /// How many more attempts follow the first one.
    count: u32,
    /// The pause before the second attempt; every next one is twice as long.
    first: HumanDuration,
    /// The longest pause, unless the target asks for a longer one.
    longest: HumanDuration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            count: 3,
            first: HumanDuration::from_millis(200),
            longest: HumanDuration::from_secs(30),
        }
    }
}

/// When a target that keeps failing is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BreakerConfig {
    /// After how many failures in a row.
    failures: u32,
    /// For how long, before one attempt is let through.
    open_for: HumanDuration,
    /// What becomes of messages meanwhile.
    when_open: WhenOpen,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures: 10,
            open_for: HumanDuration::from_secs(30),
            when_open: WhenOpen::Wait,
        }
    }
}

impl BreakerConfig {
    const fn rules(&self) -> breaker::Rules {
        breaker::Rules {
            failures: self.failures,
            open_for: self.open_for.get(),
        }
    }
}

/// What becomes of messages for a target that is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum WhenOpen {
    /// They wait.
    #[default]
    Wait,
    /// They are rejected.
    Reject,
}

fn default_method() -> String {
    "POST".to_owned()
}

const fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(10)
}

const fn default_in_flight() -> u8 {
    1
}

const fn default_max_answer() -> u32 {
    1024 * 1024
}

impl HttpOut {
    fn uri(&self) -> Result<Uri, String> {
        let url: Uri = self.url.parse().map_err(|error| format!("url: {error}"))?;
        let authority = url.authority().map(hyper::http::uri::Authority::as_str);
        match (url.scheme_str(), authority) {
            (Some("http" | "https"), Some(host)) if host.contains('@') => {
                Err("url must not have a user or password: set the header authorization to a ${NAME} reference".into())
            }
            (Some("http" | "https"), Some(_)) => Ok(url),
            _ => Err(format!(
                "url {:?} must begin with http:// or https:// and a host",
                self.url
            )),
        }
    }

    fn method(&self) -> Result<Method, String> {
        let known = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::GET];
        let found = known.into_iter().find(|known| known.as_str() == self.method);
        found.ok_or_else(|| format!("method {:?} must be POST, PUT, PATCH, DELETE or GET", self.method))
    }

    /// What requests go to; reads the environment and files.
    fn target(&self) -> Result<Target, String> {
        let url = self.uri()?;
        Ok(Target {
            client: target::client(&url, self.ca_file.as_ref(), usize::from(self.in_flight))?,
            url,
            method: self.method()?,
            headers: headers::resolved(&self.headers, |name| std::env::var(name).ok())?,
            timeout: self.timeout.get(),
            max_answer: self.max_answer as usize,
        })
    }
}

impl GearConfig for HttpOut {
    fn validate(&self) -> Result<(), String> {
        self.uri()?;
        self.method()?;
        headers::validate(&self.headers)?;
        for (key, value) in [
            ("timeout", self.timeout),
            ("retry.first", self.retry.first),
            ("breaker.open_for", self.breaker.open_for),
        ] {
            if value.get().is_zero() {
                return Err(format!("{key} must be more than zero"));
            }
        }
        if self.retry.longest < self.retry.first {
            return Err("retry.longest must not be shorter than retry.first".into());
        }
        if self.breaker.failures == 0 {
            return Err("breaker.failures must be at least 1".into());
        }
        if self.in_flight == 0 {
            return Err("in_flight must be between 1 and 255".into());
        }
        Ok(())
    }
}
