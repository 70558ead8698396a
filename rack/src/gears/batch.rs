//! `batch`: collects messages and sends them as one.
//!
//! ```text
//! message ─▶ [open batch of its key] ── max_messages, max_bytes, max_age, no room, stop ─▶ out
//! ```
//!
//! # Invariants
//!
//! - A message is in one batch, in the order of arrival. One that does not fit closes the batch before it; one larger than a batch
//!   may be leaves alone.
//! - No message of a guaranteed wire counts as taken before its batch is durable: both are one write of the outbox
//!   ([`Context::later_together`]). Until then it is held, and comes again after a crash.
//! - Messages of a guaranteed wire are taken in their order, so a batch of one key waits for older ones that are open. Where
//!   [`HELD_MESSAGES`] or [`HELD_BYTES`] are held, all batches with such messages leave: a gear that holds as many as the supervisor
//!   and the inlet let it hold would get no more, and wait for `max_age` each time.
//! - At most `max_keys` batches are open; the oldest makes room and leaves.
//!
//! # Not here
//!
//! The body of a batch ([`body`]).

mod body;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use model::gear::{self, GearConfig, Manifest};
use model::message::Message;
use model::{HumanDuration, MessageId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::expression::{Expression, compile_if_any, key_or_one};
use super::gathering::Handled;
use super::recent_keys::RecentKeys;
use super::supervisor::SETTLE_AT;
use super::{Config, Context, Fault, Gear, Passive, Work};
use crate::wires::Delivery;
use body::{BatchBody, Format};

/// Messages of guaranteed wires that are held in open batches, before these leave.
const HELD_MESSAGES: usize = SETTLE_AT;
/// Their bytes: half of what an inlet lets a gear hold.
const HELD_BYTES: usize = 8 << 20;
/// What the facts of a batch add to a message, about.
const FACTS: usize = 512;

/// What the type is.
pub(super) const MANIFEST: Manifest = Manifest {
    kind: "batch",
    summary: "collects messages and sends them as one",
    inputs: &["in"],
    outputs: &["out"],
    doc: "A batch leaves when it has `max_messages` or `max_bytes`, when it is `max_age` old, and when the gear stops, whichever comes \
          first; a message larger than that leaves alone. It goes on in the signal and the trace of its first message, with that one's facts, \
          and `batch.messages` (how many), `batch.first_ts` and `batch.last_ts` (the earliest and the latest of their times), `batch.key` where there \
          is a `key`. On a guaranteed wire a message counts as taken when its batch is durable, and comes again after a crash; up to 512 messages \
          or 8 MiB wait so in all open batches, then these leave before they are full. Messages of hot wires that wait when the Rack is killed are lost.",
    example: include_str!("../../../examples/gears/batch.yaml"),
    schema: gear::schema::<Batch>,
    check: gear::check::<Batch>,
    passes_on: gear::never,
};

pub(super) fn build(config: &Config) -> Result<Gear, String> {
    let config: Batch = gear::config(config)?;
    Ok(Gear::Passive(Box::new(Collector {
        key: config.compile()?,
        config,
        open: RecentKeys::default(),
        closed: Vec::new(),
        held: HeldTotal::default(),
    })))
}

struct Collector {
    config: Batch,
    key: Option<Expression>,
    open: RecentKeys<OpenBatch>,
    /// What leaves next.
    closed: Vec<OpenBatch>,
    held: HeldTotal,
}

/// Messages of guaranteed wires since no open batch had any.
#[derive(Default)]
struct HeldTotal {
    messages: usize,
    bytes: usize,
}

struct OpenBatch {
    key: String,
    /// The first message, without its body.
    first: Message,
    hops: u32,
    times: (Timestamp, Timestamp),
    body: BatchBody,
    /// The most bytes of the body.
    most: usize,
    until: Instant,
    held: Option<HeldSpan>,
}

/// The messages of a batch that come again if the gear fails.
#[derive(Clone, Copy)]
struct HeldSpan {
    first: MessageId,
    last: MessageId,
    /// How many were held before the first one.
    before: usize,
}

/// A message as a part of a batch.
struct Part {
    message: Message,
    bytes: Vec<u8>,
    handled: Handled,
}

impl Passive for Collector {
    fn process<'a>(&'a mut self, cx: &'a Arc<Context>, delivery: Delivery) -> Work<'a> {
        async move {
            let message = delivery.message;
            let key = key_or_one(self.key.as_ref(), &message)?;
            let bytes = self.config.format.part(&message)?;
            let handled = Handled::now();
            self.add(
                cx,
                key,
                Part {
                    message,
                    bytes,
                    handled,
                },
                Instant::now(),
            );
            self.leave_unheld(cx).await;
            Ok(())
        }
        .boxed()
    }

    fn holds_back(&self) -> bool {
        true
    }

    fn flush<'a>(&'a mut self, cx: &'a Arc<Context>) -> Work<'a> {
        async move {
            if cx.is_draining() {
                self.close_where(|_| true);
            }
            for batch in std::mem::take(&mut self.closed) {
                match batch.held {
                    Some(held) => cx.later_together((held.first, held.last), batch.leave(cx)).await,
                    None => batch.leave(cx).await,
                }
            }
            if self.unfinished().is_none() {
                self.held = HeldTotal::default();
            }
            Ok(())
        }
        .boxed()
    }

    fn unfinished(&self) -> Option<MessageId> {
        let held = self.open.values().filter_map(|batch| batch.held);
        held.min_by_key(|held| held.before).map(|held| held.first)
    }

    fn wake_at(&self) -> Option<Instant> {
        // All become equally old.
        self.open.values().next().map(|batch| batch.until)
    }

    fn wake<'a>(&'a mut self, cx: &'a Arc<Context>) -> Work<'a> {
        async move {
            let now = Instant::now();
            self.close_where(|batch| batch.until <= now);
            self.leave_unheld(cx).await;
            Ok(())
        }
        .boxed()
    }
}

impl Collector {
    /// Puts a message into the open batch of its key, and closes what must make room or is full.
    fn add(&mut self, cx: &Context, key: String, part: Part, now: Instant) {
        let is_full = |batch: &OpenBatch| batch.body.len_with(&part.bytes) > batch.most;
        if self.open.get(&key).is_some_and(is_full) {
            self.close(&key);
        }
        if self.open.get(&key).is_none() {
            while self.open.len() >= self.config.max_keys as usize {
                self.closed.extend(self.open.pop_oldest());
            }
            let begun = self.begin(cx, key.clone(), &part.message, now);
            self.open.set(&key, begun);
        }
        let is_held = part.handled == Handled::Again;
        let before = self.held.messages;
        if is_held {
            self.held.messages += 1;
            self.held.bytes += part.bytes.len();
        }
        let max_messages = self.config.max_messages;
        let is_full = self.open.get_mut(&key).is_some_and(|batch| {
            batch.add(&part, is_held.then_some(before));
            batch.body.count() >= max_messages || batch.body.len() >= batch.most
        });
        if is_full {
            self.close(&key);
        }
        if self.held.messages >= HELD_MESSAGES || self.held.bytes >= HELD_BYTES {
            self.close_where(|batch| batch.held.is_some());
        }
    }

    fn begin(&self, cx: &Context, key: String, of: &Message, now: Instant) -> OpenBatch {
        let first = Message {
            raw: Vec::new(),
            data: Value::Null,
            ..of.clone()
        };
        let payload = cx.limits().most(cx.is_published("out")).bytes;
        let room = payload.saturating_sub(first.size() + key.len() + FACTS);
        OpenBatch {
            key,
            hops: first.hops,
            times: (first.ts, first.ts),
            first,
            body: BatchBody::new(self.config.format, &self.config.separator),
            most: room.min(self.config.max_bytes as usize),
            until: now + self.config.max_age.get(),
            held: None,
        }
    }

    fn close(&mut self, key: &str) {
        self.closed.extend(self.open.remove(key));
    }

    fn close_where(&mut self, is_due: impl Fn(&OpenBatch) -> bool) {
        let due = self.open.values().filter(|batch| is_due(batch));
        let keys: Vec<_> = due.map(|batch| batch.key.clone()).collect();
        keys.iter().for_each(|key| self.close(key));
    }

    /// Sends what is closed and has only messages that do not come again; the rest leaves with the next flush.
    async fn leave_unheld(&mut self, cx: &Context) {
        let unheld: Vec<_> = self.closed.extract_if(.., |batch| batch.held.is_none()).collect();
        for batch in unheld {
            batch.leave(cx).await;
        }
    }
}

impl OpenBatch {
    /// Adds a message; `before` says how many are held before it, if it is held.
    fn add(&mut self, part: &Part, before: Option<usize>) {
        let Message { id, ts, hops, .. } = part.message;
        self.body.add(&part.bytes);
        self.hops = self.hops.max(hops);
        self.times = (self.times.0.min(ts), self.times.1.max(ts));
        let Some(before) = before else { return };
        let begun = HeldSpan {
            first: id,
            last: id,
            before,
        };
        self.held.get_or_insert(begun).last = id;
    }

    async fn leave(self, cx: &Context) {
        let mut message = cx.child(&self.first);
        message.hops = self.hops;
        let facts = &mut message.meta;
        facts.set("batch.messages", self.body.count());
        facts.set("batch.first_ts", self.times.0.to_string());
        facts.set("batch.last_ts", self.times.1.to_string());
        if !self.key.is_empty() {
            facts.set("batch.key", self.key);
        }
        if let Some(content_type) = self.body.content_type() {
            facts.set("content_type", content_type);
        }
        message.raw = self.body.into_bytes();
        // A refusal has been counted and reported.
        cx.send("out", message).await.ok();
    }
}

/// Configuration of `batch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Batch {
    /// How the messages are written into one body.
    #[serde(default)]
    format: Format,
    /// What stands between two messages of `concatenated`, such as `"\n"`.
    #[serde(default)]
    separator: String,
    /// The most messages of a batch, 1 to 100000.
    #[serde(default = "default_max_messages")]
    max_messages: u32,
    /// The most bytes of a batch's body, 1 to 16777216; what `max_payload_size` allows, if that is less.
    #[serde(default = "default_max_bytes")]
    max_bytes: u32,
    /// How long a batch waits for more after its first message, 1ms to 24h.
    #[serde(default = "default_max_age")]
    max_age: HumanDuration,
    /// The expression of a key, a text, a number or a bool: each key has a batch of its own. Without it there is one for all messages.
    #[serde(default)]
    key: Option<String>,
    /// The most batches that are open at a time, 1 to 10000; the oldest one makes room and leaves.
    #[serde(default = "default_max_keys")]
    max_keys: u32,
}

const fn default_max_messages() -> u32 {
    500
}

const fn default_max_bytes() -> u32 {
    256 * 1024
}

const fn default_max_age() -> HumanDuration {
    HumanDuration::from_secs(1)
}

const fn default_max_keys() -> u32 {
    100
}

/// The most bytes of all open batches.
const MAX_OPEN_BYTES: u64 = 1 << 30;
/// The longest separator.
const MAX_SEPARATOR: usize = 256;

impl Batch {
    fn compile(&self) -> Result<Option<Expression>, String> {
        compile_if_any("key", self.key.as_ref())
    }
}

impl GearConfig for Batch {
    fn validate(&self) -> Result<(), String> {
        if !(1..=100_000).contains(&self.max_messages) {
            return Err("max_messages must be 1 to 100000".into());
        }
        if !(1..=16 << 20).contains(&self.max_bytes) {
            return Err("max_bytes must be 1 to 16777216".into());
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&self.max_age.get()) {
            return Err("max_age must be 1ms to 24h".into());
        }
        if !(1..=10_000).contains(&self.max_keys) {
            return Err("max_keys must be 1 to 10000".into());
        }
        if self.key.is_some() && u64::from(self.max_keys) * u64::from(self.max_bytes) > MAX_OPEN_BYTES {
            return Err("max_keys times max_bytes must be at most 1073741824: set one of them lower".into());
        }
        if !self.separator.is_empty() && self.format != Format::Concatenated {
            return Err("separator belongs to format concatenated; the other formats have their own".into());
        }
        if self.separator.len() > MAX_SEPARATOR {
            return Err(format!("separator must have at most {MAX_SEPARATOR} bytes"));
        }
        self.compile().map(drop)
    }
}
