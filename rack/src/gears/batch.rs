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
//!   ([`GearContext::group_commit`]). Until then it is held, and comes again after a crash.
//! - Messages of a guaranteed wire are taken in their order, so a batch of one key waits for older ones that are open. Where as many
//!   are held as may be ([`PassiveGear::finish_all`]), all batches with such messages leave.
//! - At most `max_keys` batches are open; the oldest makes room and leaves.
//!
//! # Not here
//!
//! The batch_body of a batch ([`batch_body`]).

mod batch_body;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use model::gear_manifest::{self, GearConfig, GearManifest};
use model::message::Message;
use model::{HumanDuration, MessageId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::expression::{CelExpression, compile_if_any, key_or_one};
use super::output_transaction::DeliveryGuarantee;
use super::recent_keys::RecentKeys;
use super::{RawConfig, GearContext, GearError, Gear, PassiveGear, GearFuture};
use crate::inbox::InputMessage;
use batch_body::{BatchBody, BatchFormat};

/// What the facts of a batch add to a message, about.
const FACTS: usize = 512;

/// What the type is.
pub(super) const MANIFEST: GearManifest = GearManifest {
    kind: "batch",
    summary: "collects messages and sends them as one",
    inputs: &["in"],
    outputs: &["out"],
    doc: "A batch leaves when it has `max_messages` or `max_bytes`, when it is `max_age` old, and when the gear stops, whichever comes \
          first; a message larger than that leaves alone. It goes on in the signal and the trace of its first message, with its metadata, and \
          `batch.messages` (how many), `batch.first_ts` and `batch.last_ts` (the earliest and the latest of their times), `batch.key` where there \
          is a `key`. On a guaranteed wire a message counts as taken when its batch is durable, and comes again after a crash; up to 1,024 messages \
          or 8 MiB (a sixteenth of the outbox, if that is less) wait so, rejected ones between them included, then all open batches leave before \
          they are full. Messages of hot wires that wait when the Rack is killed are lost.",
    example: include_str!("../../../examples/gears/batch.yaml"),
    schema: gear_manifest::schema::<BatchConfig>,
    check: gear_manifest::check::<BatchConfig>,
    passes_on: gear_manifest::never,
};

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: BatchConfig = gear_manifest::config(config)?;
    Ok(Gear::Passive(Box::new(MessageBatcher {
        key: config.compile()?,
        config,
        open: RecentKeys::default(),
        closed: Vec::new(),
        count: 0,
    })))
}

struct MessageBatcher {
    config: BatchConfig,
    key: Option<CelExpression>,
    open: RecentKeys<UnsentBatch>,
    /// What leaves next.
    closed: Vec<UnsentBatch>,
    /// How many messages came.
    count: u64,
}

struct UnsentBatch {
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
    /// Which message of all that came was the first one.
    number: u64,
}

/// A message as a part of a batch.
struct BatchPart {
    /// Without its body.
    message: Message,
    bytes: Vec<u8>,
    handled: DeliveryGuarantee,
}

impl PassiveGear for MessageBatcher {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let mut message = delivery.message;
            cx.check_hops(&message)?;
            let key = key_or_one(self.key.as_ref(), &message)?;
            let bytes = self.config.format.part(&message)?;
            let handled = DeliveryGuarantee::current();
            (message.raw, message.data) = (Vec::new(), Value::Null);
            self.add(
                cx,
                key,
                BatchPart {
                    message,
                    bytes,
                    handled,
                },
                Instant::now(),
            );
            self.send_unheld(cx).await;
            Ok(())
        }
        .boxed()
    }

    fn holds_back(&self) -> bool {
        true
    }

    fn flush<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            if cx.is_draining() {
                self.close_where(|_| true);
            }
            for batch in std::mem::take(&mut self.closed) {
                match batch.held {
                    Some(held) => cx.group_commit((held.first, held.last), batch.send(cx)).await,
                    None => batch.send(cx).await,
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn unfinished(&self) -> Option<MessageId> {
        let held = self.open.values().filter_map(|batch| batch.held);
        held.min_by_key(|held| held.number).map(|held| held.first)
    }

    fn finish_all(&mut self) {
        self.close_where(|batch| batch.held.is_some());
    }

    fn wake_at(&self) -> Option<Instant> {
        // All become equally old.
        self.open.values().next().map(|batch| batch.until)
    }

    fn wake<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let now = Instant::now();
            self.close_where(|batch| batch.until <= now);
            self.send_unheld(cx).await;
            Ok(())
        }
        .boxed()
    }
}

impl MessageBatcher {
    /// Puts a message into the open batch of its key, and closes what must make room or is full.
    fn add(&mut self, cx: &GearContext, key: String, part: BatchPart, now: Instant) {
        let is_full = |batch: &UnsentBatch| batch.body.len_with(&part.bytes) > batch.most;
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
        let is_held = part.handled == DeliveryGuarantee::Again;
        self.count += 1;
        let number = self.count;
        let max_messages = self.config.max_messages;
        let is_full = self.open.get_mut(&key).is_some_and(|batch| {
            batch.add(&part, is_held.then_some(number));
            batch.body.count() >= max_messages || batch.body.len() >= batch.most
        });
        if is_full {
            self.close(&key);
        }
    }

    fn begin(&self, cx: &GearContext, key: String, of: &Message, now: Instant) -> UnsentBatch {
        let first = of.clone();
        let payload = cx.limits().payload_limit(cx.is_published("out")).bytes;
        let room = payload.saturating_sub(first.size() + key.len() + FACTS);
        UnsentBatch {
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

    fn close_where(&mut self, is_due: impl Fn(&UnsentBatch) -> bool) {
        let due = self.open.values().filter(|batch| is_due(batch));
        let keys: Vec<_> = due.map(|batch| batch.key.clone()).collect();
        keys.iter().for_each(|key| self.close(key));
    }

    /// Sends what is closed and has only messages that do not come again; the rest leaves with the next flush.
    async fn send_unheld(&mut self, cx: &GearContext) {
        let unheld: Vec<_> = self.closed.extract_if(.., |batch| batch.held.is_none()).collect();
        for batch in unheld {
            batch.send(cx).await;
        }
    }
}

impl UnsentBatch {
    /// Adds a message; with its number, if it is held.
    fn add(&mut self, part: &BatchPart, number: Option<u64>) {
        let Message { id, ts, hops, .. } = part.message;
        self.body.add(&part.bytes);
        self.hops = self.hops.max(hops);
        self.times = (self.times.0.min(ts), self.times.1.max(ts));
        let Some(number) = number else { return };
        let begun = HeldSpan {
            first: id,
            last: id,
            number,
        };
        self.held.get_or_insert(begun).last = id;
    }

    async fn send(self, cx: &GearContext) {
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
pub(super) struct BatchConfig {
    /// How the messages are written into one body.
    #[serde(default)]
    format: BatchFormat,
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

/// The most bytes of the bodies of all open batches; beside them each has the facts of its first message.
const MAX_OPEN_BYTES: u64 = 1 << 30;
/// The longest separator.
const MAX_SEPARATOR: usize = 256;

impl BatchConfig {
    fn compile(&self) -> Result<Option<CelExpression>, String> {
        compile_if_any("key", self.key.as_ref())
    }
}

impl GearConfig for BatchConfig {
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
        if !self.separator.is_empty() && self.format != BatchFormat::Concatenated {
            return Err("separator belongs to format concatenated; the other formats have their own".into());
        }
        if self.separator.len() > MAX_SEPARATOR {
            return Err(format!("separator must have at most {MAX_SEPARATOR} bytes"));
        }
        self.compile().map(drop)
    }
}
