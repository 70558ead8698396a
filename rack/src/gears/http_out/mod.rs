//! `http_out`: sends each message as an HTTP request; the answer becomes a message.
//!
//! | the target | what becomes of the message |
//! |---|---|
//! | answers 2xx | done; the answer leaves on port `reply` |
//! | answers 429, 5xx, or not at all | tried again after a growing pause, or after what `Retry-After` says |
//! | does so once more than `retry.count` times | [`GearError::Outside`]: the gear begins anew |
//! | answers anything else | rejected |
//!
//! # Invariants
//!
//! - With `in_flight: 1` messages are sent in their order, the next one after the answer to the one before.
//! - A target may get a message more than once: an answer that is lost is no answer. `Idempotency-Key`, the message's id, is the same
//!   then, unless the configuration says another.
//! - With more than one request under way, what comes of a message is known later than it is taken ([`in_flight`]).
//! - The circuit circuit_breaker ([`circuit_breaker`]) counts attempts that had no answer or a 5xx, over all lives of the gear.
//!
//! # Not here
//!
//! What a request has of a message ([`message_encoding`]), one request ([`http_target`]), connections, headers and secrets ([`super::http_client`]), what may be configured ([`gear_spec::http_out`]). Redirects are not followed.

mod circuit_breaker;
mod http_target;
mod in_flight;
mod message_encoding;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use chassis::retry_after::parse_retry_after;
use futures::FutureExt;
use gear_spec::http_out::{HttpOutConfig, HttpRetryConfig, OpenBreakerPolicy};
use hyper::StatusCode;
use model::gear_manifest;
use model::message::Message;
use model::trace_context::{TraceParent, TraceState, baggage_of};
use model::{HumanDuration, Level, SpanStatus};
use serde_json::Value;
use tokio::time::Instant;

use super::http_client::HttpResponse;
use super::{Gear, GearContext, GearError, GearFuture, OpenSpan, PassiveGear, RawConfig};
use crate::inbox::InputMessage;
use http_target::{HttpTarget, OutgoingRequest};
use in_flight::{HttpRestartState, InFlightRequests};
pub(super) use message_encoding::{MessageEncoding, OtlpLogEncoding};

/// The headers of an answer that go into the meta of the message on `reply`.
const KEPT_HEADERS: [&str; 4] = ["content-type", "etag", "location", "x-request-id"];

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    Ok(dispatcher(gear_manifest::config(config)?, MessageEncoding::Body))
}

/// A gear that sends messages so encoded.
pub(super) fn dispatcher(config: HttpOutConfig, encoding: MessageEncoding) -> Gear {
    Gear::Passive(Box::new(HttpDispatcher {
        config,
        encoding: Arc::new(encoding),
        sender: None,
        flight: InFlightRequests::default(),
    }))
}

struct HttpDispatcher {
    config: HttpOutConfig,
    encoding: Arc<MessageEncoding>,
    sender: Option<Arc<RetryingSender>>,
    /// Requests, where more than one may be under way.
    flight: InFlightRequests,
}

impl PassiveGear for HttpDispatcher {
    fn init<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let (config, policy) = (self.config.clone(), cx.policy().clone());
            let target = tokio::task::spawn_blocking(move || HttpTarget::of(&config, &policy)).await?;
            let kept: Arc<HttpRestartState> = cx.restart_state();
            self.flight = InFlightRequests::new(Arc::clone(&kept));
            self.sender = Some(Arc::new(RetryingSender {
                target: target.map_err(GearError::Config)?,
                encoding: Arc::clone(&self.encoding),
                retry: self.config.retry,
                rules: circuit_breaker::BreakerPolicy {
                    failures: self.config.breaker.failures,
                    open_for: self.config.breaker.open_for.get(),
                },
                when_open: self.config.breaker.when_open,
                kept,
                cx: Arc::clone(cx),
            }));
            Ok(())
        }
        .boxed()
    }

    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
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

    fn holds_back(&self) -> bool {
        self.config.in_flight > 1
    }

    fn flush<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        self.flight.flush(cx).boxed()
    }

    fn wake_at(&self) -> Option<Instant> {
        self.flight.is_failing().then(Instant::now)
    }

    fn wake<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        self.flight.flush(cx).boxed()
    }
}

async fn send_reply(cx: &GearContext, reply: Option<Box<Message>>) {
    if let Some(reply) = reply {
        // A refusal has been counted and reported; the message was delivered all the same.
        cx.send("reply", *reply).await.ok();
    }
}

/// What a message is sent with.
struct RetryingSender {
    target: HttpTarget,
    encoding: Arc<MessageEncoding>,
    retry: HttpRetryConfig,
    rules: circuit_breaker::BreakerPolicy,
    when_open: OpenBreakerPolicy,
    kept: Arc<HttpRestartState>,
    cx: Arc<GearContext>,
}

impl RetryingSender {
    /// Delivers a message; what the target answered, if anybody wants it.
    async fn deliver(&self, message: &Message) -> Result<Option<Box<Message>>, GearError> {
        let span = OpenSpan::current();
        span.set_http("client", || self.target.facts());
        let mut last = LastAttempt::default();
        let delivered = self.try_to_deliver(message, &mut last).await;
        match last.status {
            Some(status) if status.is_success() => span.set_answer(status.as_u16(), SpanStatus::Ok),
            Some(status) => span.set_answer(status.as_u16(), SpanStatus::Error),
            None => span.set_no_answer(),
        }
        if last.number > 1 {
            span.set_resends(last.number - 1);
        }
        delivered
    }

    async fn try_to_deliver(
        &self,
        message: &Message,
        last: &mut LastAttempt,
    ) -> Result<Option<Box<Message>>, GearError> {
        let (trace_id, span_id, sampled) = (message.trace_id, message.span_id, message.sampled);
        let trace = TraceParent {
            trace_id,
            span_id,
            sampled,
        };
        let sent = OutgoingRequest {
            encoded: self.encoding.encode(&self.cx, message),
            trace: trace.to_string(),
            trace_state: message.trace_state.as_ref().map(TraceState::as_str),
            baggage: baggage_of(message.flux_id),
            id: message.id.to_string(),
            flux_id: message.flux_id.to_string(),
        };
        let (mut pause, mut left) = (self.retry.first.get(), self.retry.count);
        loop {
            self.pass_breaker().await?;
            let tried = self.target.attempt(&sent).await;
            last.number += 1;
            last.status = tried.as_ref().ok().map(|answer| answer.status);
            let trouble = match self.record_attempt(tried) {
                AttemptResult::Done(answer) => return Ok(self.reply(message, answer)),
                AttemptResult::Rejected(reason) => return Err(GearError::Rejected(reason)),
                AttemptResult::Again(trouble) => trouble,
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
    async fn pass_breaker(&self) -> Result<(), GearError> {
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
            (Err(left), OpenBreakerPolicy::Reject) => Err(GearError::Rejected(refused(left))),
            (Err(left), OpenBreakerPolicy::Wait) => tokio::select! {
                () = self.kept.breaker.wait(self.rules) => Ok(()),
                () = self.cx.stopping() => Err(self.outside(&refused(left))),
            },
        }
    }

    /// What an attempt came to, for the message and for the breaker.
    fn record_attempt(&self, tried: Result<HttpResponse, String>) -> AttemptResult {
        // Also where another attempt is not worth it: the target is in trouble.
        let is_failure = tried.as_ref().map_or(true, |answer| answer.status.is_server_error());
        let verdict = match tried {
            Ok(answer) => self.verdict(answer),
            Err(what) => AttemptResult::Again(AttemptFailure { what, wait: None }),
        };
        let shown = || self.target.shown();
        if is_failure {
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

    fn verdict(&self, answer: HttpResponse) -> AttemptResult {
        let status = answer.status;
        if status.is_success() {
            let refusal = self.encoding.refusal(&answer);
            return refusal.map_or(AttemptResult::Done(answer), AttemptResult::Rejected);
        }
        if self.encoding.is_retriable(status) {
            return AttemptResult::Again(AttemptFailure {
                what: format!("it answered {status}"),
                wait: parse_retry_after(&answer.headers, self.cx.recorder().now()),
            });
        }
        let hint = if status.is_redirection() {
            ": redirects are not followed; set url to where it leads"
        } else {
            ""
        };
        AttemptResult::Rejected(format!("the target answered {status}{hint}"))
    }

    fn reply(&self, to: &Message, answer: HttpResponse) -> Option<Box<Message>> {
        if !self.cx.is_wired("reply") {
            return None;
        }
        let mut reply = Box::new(self.cx.child(to));
        reply.data = Value::Null;
        reply.meta.set("http.response.status_code", answer.status.as_u16());
        for name in KEPT_HEADERS {
            if let Some(value) = answer.header(name) {
                reply.meta.set(&format!("http.response.header.{name}"), value);
            }
        }
        // What the request had is not what the answer has.
        reply
            .meta
            .set("content_type", answer.header("content-type").unwrap_or_default());
        if answer.truncated {
            reply.meta.set("truncated", true);
        }
        reply.raw = answer.body;
        Some(reply)
    }

    fn outside(&self, reason: &str) -> GearError {
        GearError::Outside {
            what: format!("send a message to {}", self.target.shown()),
            reason: io::Error::other(reason.to_owned()),
        }
    }
}

/// The last attempt at a message.
#[derive(Default)]
struct LastAttempt {
    /// Counted from 1; 0 before the first.
    number: u32,
    /// What it was answered, if it was.
    status: Option<StatusCode>,
}

/// What an attempt means for its message.
enum AttemptResult {
    Done(HttpResponse),
    Again(AttemptFailure),
    Rejected(String),
}

struct AttemptFailure {
    what: String,
    /// How long the target wants to be left alone.
    wait: Option<Duration>,
}
