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

use futures::FutureExt;
use gear_spec::batch::BatchConfig;
use gear_spec::expression::{CelExpression, key_or_one};
use model::gear_manifest;
use model::message::Message;
use model::{MessageId, Timestamp};
use serde_json::Value;
use tokio::time::Instant;

use super::output_transaction::DeliveryGuarantee;
use super::recent_keys::RecentKeys;
use super::{Gear, GearContext, GearError, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;
use batch_body::{BatchBody, part_of};

/// What the facts of a batch add to a message, about.
const FACTS: usize = 512;

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
            let bytes = part_of(self.config.format, &message)?;
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
