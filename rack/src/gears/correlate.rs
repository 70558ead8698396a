//! `correlate`: finds the request of each reply by a key, and gives the reply the request's context.
//!
//! ```text
//! request ─▶ [park a copy under its key] ─▶ out        the request, with the key in its facts
//! reply   ─▶ [look the key up] ─┬─ found ─▶ matched    the reply, with the signal, the trace and the facts of the request
//!                               └─ none ──▶ unmatched  the reply as it came
//!            ttl over, or no room ────────▶ expired    the request that was parked
//! ```
//!
//! # Invariants
//!
//! - A request is parked before it leaves by `out`: no reply to it comes too early. It has one reply; the next one is unmatched.
//! - At most `max_parked` requests and `max_parked_bytes` bytes are parked. Where there is no room, and where a key comes again, the
//!   older request leaves by `expired` at once: the fact `correlate.expired` says `full` or `replaced`, else `ttl`.
//! - The oldest request sets the timer; nothing is polled.
//! - Replies that come back within the Rack close a circle of bounded queues: where requests come faster than they are answered
//!   for so long that every inbox of the circle is full, it stands still. A `throttle` in front, slower than the answers, keeps it going.
//! - What is parked is in memory: a gear that begins anew, or is replaced, has forgotten it, and replies are unmatched.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use model::gear_manifest::{self, GearConfig, GearManifest};
use model::message::Message;
use model::HumanDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::expression::CelExpression;
use super::recent_keys::RecentKeys;
use super::{RawConfig, GearContext, GearError, Gear, PassiveGear, GearFuture};
use crate::inbox::InputMessage;

/// The input of requests; what else arrives is a reply.
const REQUEST: &str = "request";
/// The fact that holds the key.
const KEY: &str = "correlate.key";
/// The fact that says why a request has expired.
const EXPIRED: &str = "correlate.expired";

/// What the type is.
pub(super) const MANIFEST: GearManifest = GearManifest {
    kind: "correlate",
    summary: "finds the request of each reply by a key and restores its context",
    inputs: &[REQUEST, "reply"],
    outputs: &["out", "matched", "expired", "unmatched"],
    doc: "Requests pass by `out`. A reply with the key of one leaves by `matched` with the request's signal and trace, and its metadata \
          as `request.…`; other replies by `unmatched`. A request without a reply within `ttl` leaves by `expired`, earlier where there is no \
          room. Outputs that are not wired are counted as dropped. Requests are parked in memory. Where they may come faster than they are \
          answered, put a `throttle` in front that is slower: a circle whose inboxes are all full stands still. Expressions are \
          [CEL](https://cel.dev): `data`, `text`, `meta`, `hops`, `ts` and `flux_id` are the message's.",
    example: include_str!("../../../examples/gears/correlate.yaml"),
    schema: gear_manifest::schema::<CorrelateConfig>,
    check: gear_manifest::check::<CorrelateConfig>,
    passes_on: gear_manifest::never,
};

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: CorrelateConfig = gear_manifest::config(config)?;
    let (request_key, reply_key) = config.compile()?;
    Ok(Gear::Passive(Box::new(ReplyCorrelator {
        request_key,
        reply_key,
        parked: ParkedRequests::new(&config),
    })))
}

struct ReplyCorrelator {
    request_key: CelExpression,
    reply_key: CelExpression,
    parked: ParkedRequests,
}

impl PassiveGear for ReplyCorrelator {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let message = delivery.message;
            if delivery.port == REQUEST {
                self.request(cx, message).await
            } else {
                self.reply(cx, message).await
            }
        }
        .boxed()
    }

    fn wake_at(&self) -> Option<Instant> {
        self.parked.next()
    }

    fn wake<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let now = Instant::now();
            while let Some(message) = self.parked.due(now) {
                expire(cx, message, "ttl").await;
            }
            Ok(())
        }
        .boxed()
    }
}

impl ReplyCorrelator {
    async fn request(&mut self, cx: &GearContext, mut message: Message) -> Result<(), GearError> {
        let key = self.request_key.key_of(&message)?;
        message.meta.set(KEY, key.as_str());
        for (older, why) in self.parked.park(key, message.clone(), Instant::now())? {
            expire(cx, older, why).await;
        }
        cx.send_if_wired("out", message).await;
        Ok(())
    }

    async fn reply(&mut self, cx: &GearContext, message: Message) -> Result<(), GearError> {
        match self.parked.take(&self.reply_key.key_of(&message)?) {
            Some(request) => cx.send_if_wired("matched", joined(cx, &message, request)).await,
            None => cx.send_if_wired("unmatched", message).await,
        }
        Ok(())
    }
}

async fn expire(cx: &GearContext, mut message: Message, why: &str) {
    message.meta.set(EXPIRED, why);
    cx.send_if_wired("expired", message).await;
}

/// A reply in the context of its request.
fn joined(cx: &GearContext, reply: &Message, request: Message) -> Message {
    let mut message = cx.child(reply);
    for (name, value) in request.meta.as_map() {
        message.meta.set(&format!("request.{name}"), value.clone());
    }
    message.flux_id = request.flux_id;
    message.trace_id = request.trace_id;
    message.span_id = request.span_id;
    message.sampled = request.sampled;
    message
}

/// The requests that wait, in the order in which they came, which is the order in which they expire.
struct ParkedRequests {
    ttl: Duration,
    most: usize,
    most_bytes: usize,
    bytes: usize,
    waiting: RecentKeys<ParkedRequest>,
}

struct ParkedRequest {
    message: Message,
    size: usize,
    until: Instant,
}

impl ParkedRequests {
    fn new(config: &CorrelateConfig) -> Self {
        Self {
            ttl: config.ttl.get(),
            most: config.max_parked as usize,
            most_bytes: usize::try_from(config.max_parked_bytes).unwrap_or(usize::MAX),
            bytes: 0,
            waiting: RecentKeys::default(),
        }
    }

    /// Parks a request and gives back those that make room for it, each with the reason.
    fn park(&mut self, key: String, message: Message, now: Instant) -> Result<Vec<(Message, &'static str)>, GearError> {
        let size = message.size() + 2 * key.len();
        if size > self.most_bytes {
            let most = self.most_bytes;
            return Err(GearError::Rejected(format!("the request has {size} bytes; max_parked_bytes allows {most}")));
        }
        let mut out: Vec<_> = self.take(&key).map(|older| (older, "replaced")).into_iter().collect();
        while self.waiting.len() >= self.most || self.bytes + size > self.most_bytes {
            let Some(oldest) = self.take_oldest() else { break };
            out.push((oldest, "full"));
        }
        self.bytes += size;
        let until = now + self.ttl;
        self.waiting.set(&key, ParkedRequest { message, size, until });
        Ok(out)
    }

    fn take(&mut self, key: &str) -> Option<Message> {
        let waiting = self.waiting.remove(key);
        self.release_bytes(waiting)
    }

    fn take_oldest(&mut self) -> Option<Message> {
        let oldest = self.waiting.pop_oldest();
        self.release_bytes(oldest)
    }

    fn release_bytes(&mut self, waiting: Option<ParkedRequest>) -> Option<Message> {
        let waiting = waiting?;
        self.bytes -= waiting.size;
        Some(waiting.message)
    }

    /// When the oldest one expires.
    fn next(&self) -> Option<Instant> {
        self.waiting.values().next().map(|waiting| waiting.until)
    }

    /// The oldest one, if it has expired.
    fn due(&mut self, now: Instant) -> Option<Message> {
        self.next().filter(|until| *until <= now)?;
        self.take_oldest()
    }
}

/// Configuration of `correlate`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CorrelateConfig {
    /// The expression of a request's key: a text, a number or a bool.
    pub(super) request_key: String,
    /// The expression of a reply's key; equal keys belong together.
    pub(super) reply_key: String,
    /// How long a request waits for its reply.
    #[serde(default = "default_ttl")]
    pub(super) ttl: HumanDuration,
    /// The most requests that wait. The oldest one makes room for a new one and leaves by `expired`.
    #[serde(default = "default_max_parked")]
    pub(super) max_parked: u32,
    /// The most bytes of requests that wait; the oldest ones make room.
    #[serde(default = "default_max_parked_bytes")]
    pub(super) max_parked_bytes: u64,
}

const fn default_ttl() -> HumanDuration {
    HumanDuration::from_secs(30)
}

const fn default_max_parked() -> u32 {
    10_000
}

const fn default_max_parked_bytes() -> u64 {
    64 * 1024 * 1024
}

impl CorrelateConfig {
    fn compile(&self) -> Result<(CelExpression, CelExpression), String> {
        let request = CelExpression::compile("request_key", &self.request_key)?;
        Ok((request, CelExpression::compile("reply_key", &self.reply_key)?))
    }
}

impl GearConfig for CorrelateConfig {
    fn validate(&self) -> Result<(), String> {
        if self.ttl.get() < Duration::from_millis(1) || self.ttl.get() > Duration::from_secs(7 * 86_400) {
            return Err("ttl must be 1ms to 168h".into());
        }
        if self.max_parked == 0 || self.max_parked > 1_000_000 {
            return Err("max_parked must be 1 to 1000000".into());
        }
        if self.max_parked_bytes < 4096 || self.max_parked_bytes > 4 << 30 {
            return Err("max_parked_bytes must be 4096 to 4294967296".into());
        }
        self.compile().map(drop)
    }
}

#[cfg(test)]
mod tests;
