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
use gear_spec::correlate::{CorrelateConfig, REQUEST};
use gear_spec::expression::CelExpression;
use model::gear_manifest;
use model::message::Message;
use tokio::time::Instant;

use super::recent_keys::RecentKeys;
use super::{Gear, GearContext, GearError, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;

/// The fact that holds the key.
const KEY: &str = "correlate.key";
/// The fact that says why a request has expired.
const EXPIRED: &str = "correlate.expired";

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
            return Err(GearError::Rejected(format!(
                "the request has {size} bytes; max_parked_bytes allows {most}"
            )));
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

#[cfg(test)]
mod tests;
