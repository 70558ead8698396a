//! The inlet: the receiving end of a wire. Pulls from the wire's durable consumer and delivers to the gear in stream order, each
//! message once.
//!
//! ```text
//! reset to the ack floor ─▶ pull ─▶ seen before? ──no──▶ inbox of the gear ─▶ taken, durable ─▶ acknowledge everything up to it
//!           ▲                            └──yes──▶ pending until that is durable ─────────────────▲
//!           └──── gap in the deliveries, connection lost, the gear dropped a message
//! ```
//!
//! # Invariants
//!
//! - A bus message carries one message, or a batch of a Rack's; places, receipts and checkpoints are each message's own.
//! - The stream has the messages of a port in the order of their places or not at all (the sender's fast batches), and a consumer
//!   delivers in stream order. A place after the last one is therefore next; what is missing between never comes.
//! - An acknowledgement covers everything delivered before it ([`AckPolicy::All`]). It is sent for a message once that and everything
//!   before it is durable in the outbox ([`crate::outbox::MessageOutbox::commit`]), never earlier.
//! - Whoever starts to pull resets the consumer to its ack floor first, and again when deliveries are not numbered 1, 2, 3, …: one went
//!   to a reader that is gone.
//! - Delivered messages, redeliveries included, are bounded in messages and bytes ([`MAX_PENDING`], [`MAX_PENDING_BYTES`]).
//! - A consumer that does not exist yet, or a bus that is away, is waited for.
//! - A foreign message is known by its stream and its sequence there, within one life of the stream.
//!
//! [`AckPolicy::All`]: async_nats::jetstream::consumer::AckPolicy::All

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_nats::Subject;
use async_nats::jetstream;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::Stream as Messages;
use async_nats::jetstream::message::Acker;
use bytes::Bytes;
use futures::stream::StreamExt as _;
use model::Token;
use model::dead_letter::PortSide;
use model::message::{Message, MessageSequence};
use model::telemetry_codec;
use tokio::sync::mpsc::Permit;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::deadline::sleep_until_deadline;
use crate::inbox::{DeliveryReceipt, GearInbox, InboxMessage, UndecodableMessage};
use crate::outbox::{ConsumerOffset, DeliveryHistory, GuaranteedLane, PortSequenceNumber, TAKEN};
use crate::spool::RecordingError;

/// Messages of one pull request.
const PULL: usize = 512;
/// Their bytes.
const PULL_BYTES: usize = 8 << 20;
/// What the server counts of a message beyond its payload.
const PULL_OVERHEAD: usize = 64 << 10;
/// Delivered and unacknowledged messages, before the next bus message is taken.
const MAX_PENDING: usize = 4096;
/// Their bytes.
const MAX_PENDING_BYTES: usize = 16 << 20;
/// Memory of a message beyond its body, about.
const MESSAGE_OVERHEAD: usize = 512;
/// After this long without a message the consumer is checked for one that went elsewhere or exceeds a pull's bytes: first, longest.
const QUIET: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// The first and the longest pause before the next pull after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Expiry and idle heartbeat of a pull request.
const PULL_WITHIN: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(5));
/// Acknowledgements are coalesced up to so many messages, or so long.
const ACK_AT: (usize, Duration) = (256, Duration::from_millis(100));

/// A wire that ends at this Rack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WireConsumerSpec {
    /// The durable consumer's name.
    pub(crate) consumer: String,
    pub(crate) gear: Token,
    pub(crate) port: &'static str,
}

/// See the module.
pub(crate) struct WireConsumer {
    spec: WireConsumerSpec,
    lane: GuaranteedLane,
    inbox: GearInbox,
    stop: CancellationToken,
    /// By subject.
    sources: HashMap<String, SourceState>,
    /// Delivered to this inlet, and next for the inbox.
    ready: VecDeque<InboxMessage>,
    pending: PendingAcks,
    acks: AckBatcher,
    /// The consumer sequence of the last delivery.
    last_delivery: u64,
    /// When the stream was created, in ns.
    stream_created: i128,
    retry: PullRetry,
    /// Whether the next message exceeds a pull's bytes: it was published when the server accepted larger ones.
    next_is_large: bool,
}

/// The messages of one port of one outbox, or the foreign ones of a subject.
struct SourceState {
    outbox: Uuid,
    /// Its checkpoint in the outbox.
    key: Arc<str>,
    /// The last place that is ready or was delivered to the gear, by this inlet or an earlier one.
    last: Option<PortSequenceNumber>,
}

/// The pause before the next pull after a failure.
struct PullRetry {
    backoff: Duration,
    has_warned: bool,
}

/// Delivered and unacknowledged, in order of delivery.
#[derive(Default)]
struct PendingAcks {
    messages: VecDeque<PendingAck>,
    bytes: usize,
}

/// A message that is not acknowledged yet.
struct PendingAck {
    taken: ConsumerOffset,
    /// Of the last message of a bus message.
    acker: Option<Acker>,
    bytes: usize,
    done: AckCondition,
}

/// What tells that a message was taken and is durable.
enum AckCondition {
    /// The receipt that went to the gear with it.
    Receipt(oneshot::Receiver<Result<(), RecordingError>>),
    /// The outbox's checkpoint: an earlier inlet delivered it.
    Checkpoint,
    /// Nothing: the gear dropped its receipt.
    Dropped,
}

/// Coalesces acknowledgements.
#[derive(Default)]
struct AckBatcher {
    last: Option<Acker>,
    count: usize,
    at: Option<Instant>,
}

/// Why a pull ended.
enum PullEnd {
    Stopped,
    /// To begin another one at once.
    Restart,
    Failed(String),
}

impl WireConsumer {
    pub(crate) fn new(spec: WireConsumerSpec, lane: GuaranteedLane, inbox: GearInbox, stop: CancellationToken) -> Self {
        Self {
            spec,
            lane,
            inbox,
            stop,
            sources: HashMap::new(),
            ready: VecDeque::new(),
            pending: PendingAcks::default(),
            acks: AckBatcher::default(),
            last_delivery: 0,
            stream_created: 0,
            retry: PullRetry {
                backoff: BACKOFF.0,
                has_warned: false,
            },
            next_is_large: false,
        }
    }

    /// Runs until it is stopped.
    pub(crate) async fn run(mut self) {
        let stop = self.stop.clone();
        loop {
            let ended = tokio::select! {
                () = stop.cancelled() => PullEnd::Stopped,
                ended = self.pull() => ended,
            };
            self.acks.send().await;
            let reason = match ended {
                PullEnd::Stopped => return,
                PullEnd::Restart => continue,
                PullEnd::Failed(reason) => reason,
            };
            if !std::mem::replace(&mut self.retry.has_warned, true) {
                tracing::warn!(consumer = self.spec.consumer, gear.id = %self.spec.gear, reason, "a wire delivers nothing at the moment; it is retried");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.retry.backoff) => self.retry.backoff = (self.retry.backoff * 2).min(BACKOFF.1),
            }
        }
    }

    async fn pull(&mut self) -> PullEnd {
        let mut connection = self.lane.bus.state();
        self.lane.bus.wait_connected().await;
        connection.mark_unchanged();
        let is_large = std::mem::take(&mut self.next_is_large);
        let (consumer, mut messages) = match self.begin(is_large).await {
            Ok(begun) => begun,
            Err(reason) => return PullEnd::Failed(reason),
        };
        let (mut quiet, mut quiet_at) = (QUIET.0, Instant::now() + QUIET.0);
        let mut is_suspect = false;
        let sender = self.inbox.sender().clone();
        loop {
            let is_crowded = self.pending.messages.len() >= MAX_PENDING || self.pending.bytes >= MAX_PENDING_BYTES;
            let is_ready = !self.ready.is_empty();
            let takes_more = !is_ready && !is_crowded;
            tokio::select! {
                biased;
                _ = connection.changed() => return PullEnd::Failed("the connection was lost".to_owned()),
                is_durable = oldest_done(&mut self.pending.messages, &self.lane) => {
                    if !is_durable {
                        return PullEnd::Failed("the gear dropped a message".to_owned());
                    }
                    self.acknowledge().await;
                }
                () = sleep_until_deadline(self.acks.at) => self.acks.send().await,
                free = sender.reserve(), if is_ready => match free {
                    Ok(permit) => {
                        self.hand_over(permit);
                        while !self.ready.is_empty() && let Ok(permit) = sender.try_reserve() {
                            self.hand_over(permit);
                        }
                    }
                    Err(_) => return PullEnd::Stopped,
                },
                message = messages.next(), if takes_more => match message {
                    Some(Ok(message)) => {
                        let is_small = message.payload.len() < PULL_BYTES;
                        if let Err(reason) = self.register_delivery(message) {
                            return PullEnd::Failed(reason);
                        }
                        (quiet, quiet_at) = (QUIET.0, Instant::now() + QUIET.0);
                        is_suspect = false;
                        if is_large && is_small {
                            return PullEnd::Restart;
                        }
                    }
                    Some(Err(error)) => return PullEnd::Failed(error.to_string()),
                    None => return PullEnd::Failed("the consumer ended".to_owned()),
                },
                () = tokio::time::sleep_until(quiet_at), if takes_more => {
                    match self.check_drained(&consumer).await {
                        Ok(true) => {
                            quiet = (quiet * 2).min(QUIET.1);
                            is_suspect = false;
                        }
                        // What is in transit arrives before the next check.
                        Ok(false) if !std::mem::replace(&mut is_suspect, true) => quiet = QUIET.0,
                        Ok(false) => return PullEnd::Restart,
                        Err(reason) => return PullEnd::Failed(reason),
                    }
                    quiet_at = Instant::now() + quiet;
                }
            }
        }
    }

    /// Resets the consumer to its ack floor and starts to pull.
    async fn begin(&mut self, is_large: bool) -> Result<(PullConsumer, Messages), String> {
        let js = &self.lane.bus.js;
        let stream = js.get_stream(&self.lane.stream).await.map_err(text)?;
        let created = stream.cached_info().created.unix_timestamp_nanos();
        if std::mem::replace(&mut self.stream_created, created) != created {
            // The sources of foreign messages end with the stream.
            self.sources.retain(|_, source| !source.outbox.is_nil());
        }
        let consumer = js
            .get_consumer_from_stream(&self.spec.consumer, &self.lane.stream)
            .await;
        let mut consumer: PullConsumer = consumer.map_err(text)?;
        consumer.reset(None).await.map_err(text)?;
        // Everything delivered before is delivered again.
        self.pending.messages.clear();
        self.pending.bytes = 0;
        self.last_delivery = 0;
        let (expires, heartbeat) = PULL_WITHIN;
        // One message always fits.
        let most = self
            .lane
            .bus
            .client
            .server_info()
            .max_payload
            .saturating_add(PULL_OVERHEAD);
        let pulled = consumer.stream().expires(expires).heartbeat(heartbeat);
        let pulled = if is_large {
            pulled.max_messages_per_batch(1)
        } else {
            pulled
                .max_messages_per_batch(PULL)
                .max_bytes_per_batch(PULL_BYTES.max(most))
        };
        let messages = pulled.messages().await.map_err(text)?;
        Ok((consumer, messages))
    }

    /// Whether nothing is to come: no delivery went elsewhere, no message exceeds the pull's bytes, no acknowledgement was lost.
    async fn check_drained(&mut self, consumer: &PullConsumer) -> Result<bool, String> {
        let info = consumer.get_info().await.map_err(text)?;
        self.next_is_large = info.num_pending > 0;
        let is_acknowledged = info.num_ack_pending == 0 || !self.pending.messages.is_empty() || self.acks.count > 0;
        Ok(is_acknowledged && info.num_pending == 0 && info.delivered.consumer_sequence == self.last_delivery)
    }

    /// Registers a delivery: what the gear does not have yet is ready for it.
    fn register_delivery(&mut self, message: jetstream::Message) -> Result<(), String> {
        let info = message.info().map_err(text)?;
        let (sequence, delivery) = (info.stream_sequence, info.consumer_sequence);
        if delivery != self.last_delivery + 1 {
            return Err(format!("delivery {delivery} followed {}", self.last_delivery));
        }
        self.last_delivery = delivery;
        self.retry.has_warned = false;
        self.retry.backoff = BACKOFF.0;
        let mut place = place_of(&message, sequence);
        let (message, acker) = message.split();
        let source = self.source(&message.subject, place);
        let (key, mut last) = (Arc::clone(&source.key), source.last);
        for (body, read) in messages_of(place, message.payload) {
            let taken = ConsumerOffset {
                key: Arc::clone(&key),
                place,
            };
            let bytes = body.len() + MESSAGE_OVERHEAD;
            let mut done = AckCondition::Checkpoint;
            if !last.is_some_and(|last| place.is_behind(last)) {
                if let Some(missing) = last.map(|last| place.gap_since(last)).filter(|missing| *missing > 0) {
                    self.report_missing(&taken, missing);
                }
                last = Some(place);
                let (tell, durable) = oneshot::channel();
                done = AckCondition::Receipt(durable);
                let subject = message.subject.clone();
                self.ready
                    .push_back(self.arrival(taken.clone(), tell, subject, (body, read)));
            }
            self.pending.bytes += bytes;
            self.pending.messages.push_back(PendingAck {
                taken,
                acker: None,
                bytes,
                done,
            });
            place.number = place.number.saturating_add(1);
        }
        self.source(&message.subject, place).last = last;
        if let Some(pending) = self.pending.messages.back_mut() {
            pending.acker = Some(acker);
        }
        Ok(())
    }

    fn report_missing(&self, next: &ConsumerOffset, missing: u64) {
        tracing::error!(
            consumer = self.spec.consumer,
            source = &*next.key,
            missing,
            next = next.place.number,
            "skipping messages that cannot arrive: they became dead letters, left the stream before this wire took \
             them, or were damaged in their Rack's outbox"
        );
    }

    /// The next ready message goes to the gear.
    fn hand_over(&mut self, permit: Permit<'_, InboxMessage>) {
        let Some(arrival) = self.ready.pop_front() else { return };
        if let Some(receipt) = &arrival.receipt {
            self.inbox.delivered().set(&receipt.taken);
        }
        permit.send(arrival);
    }

    /// The source of a message, with the last place that the gear has of it.
    fn source(&mut self, subject: &Subject, place: PortSequenceNumber) -> &mut SourceState {
        let (lane, inbox, created, consumer) = (&self.lane, &self.inbox, self.stream_created, &self.spec.consumer);
        let open = || {
            let key = if place.outbox.is_nil() {
                format!("{TAKEN}{consumer} {subject} stream-{created}")
            } else {
                format!("{TAKEN}{consumer} {subject} {}", place.outbox)
            };
            let last = inbox.delivered().last(&key);
            SourceState {
                outbox: place.outbox,
                // Another gear may have gone on with the consumer meanwhile.
                last: last.max(lane.outbox.submitted_offset(&key)),
                key: key.into(),
            }
        };
        let source = self.sources.entry(subject.to_string()).or_insert_with(open);
        if source.outbox != place.outbox {
            *source = open();
        }
        source
    }

    /// A message as the gear gets it.
    fn arrival(
        &self,
        taken: ConsumerOffset,
        done: oneshot::Sender<Result<(), RecordingError>>,
        subject: Subject,
        (body, read): (Bytes, Result<Message, String>),
    ) -> InboxMessage {
        let message = read.map_err(|reason| UndecodableMessage {
            reason: format!("not a message: {reason}"),
            body,
        });
        let past = DeliveryHistory {
            from: Some(subject),
            ..DeliveryHistory::default()
        };
        InboxMessage {
            port: self.spec.port,
            message,
            receipt: Some(DeliveryReceipt {
                taken,
                done,
                way: PortSide::In,
                past,
            }),
        }
    }

    /// The oldest pending message is durable: acknowledges it with all that follow and are durable too.
    async fn acknowledge(&mut self) {
        loop {
            let Some(pending) = self.pending.messages.pop_front() else {
                break;
            };
            self.pending.bytes = self.pending.bytes.saturating_sub(pending.bytes);
            if let Some(acker) = pending.acker {
                self.acks.add(acker);
            }
            if !self
                .pending
                .messages
                .front_mut()
                .is_some_and(|next| next.poll_done(&self.lane))
            {
                break;
            }
        }
        if self.acks.count >= ACK_AT.0 {
            self.acks.send().await;
        }
    }
}

impl PendingAck {
    /// Whether it was taken and is durable.
    fn poll_done(&mut self, lane: &GuaranteedLane) -> bool {
        let told = match &mut self.done {
            AckCondition::Receipt(done) => done.try_recv(),
            AckCondition::Checkpoint => return self.is_noted(lane),
            AckCondition::Dropped => return false,
        };
        match told {
            Ok(Ok(())) => true,
            Err(TryRecvError::Empty) => false,
            Ok(Err(_)) | Err(TryRecvError::Closed) => {
                self.done = AckCondition::Dropped;
                false
            }
        }
    }

    fn is_noted(&self, lane: &GuaranteedLane) -> bool {
        let noted = lane.outbox.committed_offset(&self.taken.key);
        noted.is_some_and(|noted| self.taken.place.is_behind(noted))
    }
}

/// Waits until the oldest pending message is durable; false if it never will be. Cancel safe.
async fn oldest_done(pending: &mut VecDeque<PendingAck>, lane: &GuaranteedLane) -> bool {
    let Some(first) = pending.front_mut() else {
        return std::future::pending().await;
    };
    match &mut first.done {
        AckCondition::Receipt(done) => return matches!(done.await, Ok(Ok(()))),
        AckCondition::Dropped => return false,
        AckCondition::Checkpoint => {}
    }
    let mut changed = lane.outbox.spool().changed();
    loop {
        if first.is_noted(lane) {
            return true;
        }
        if changed.changed().await.is_err() {
            return false;
        }
    }
}

impl AckBatcher {
    fn add(&mut self, acker: Acker) {
        self.last = Some(acker);
        self.count += 1;
        self.at.get_or_insert_with(|| Instant::now() + ACK_AT.1);
    }

    async fn send(&mut self) {
        let Self { last, .. } = std::mem::take(self);
        // A lost acknowledgement means redelivery, which is recognised.
        if let Some(Err(error)) = async { Some(last?.ack().await) }.await {
            tracing::debug!(%error, "could not send an acknowledgement");
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The messages of a bus message, of which the first is at this place: a foreign one has one.
fn messages_of(place: PortSequenceNumber, payload: Bytes) -> Vec<(Bytes, Result<Message, String>)> {
    if place.outbox.is_nil() {
        let read = Message::from_cbor(&payload);
        vec![(payload, read)]
    } else {
        MessageSequence::new(payload).collect()
    }
}

/// The place of a bus message's first message; a foreign one has the stream's sequence.
fn place_of(message: &jetstream::Message, sequence: u64) -> PortSequenceNumber {
    let place = message
        .headers
        .as_ref()
        .and_then(|headers| headers.get(telemetry_codec::PLACE));
    place
        .and_then(|place| PortSequenceNumber::parse(place.as_str()))
        .unwrap_or(PortSequenceNumber {
            outbox: Uuid::nil(),
            run: 0,
            number: sequence,
        })
}
