//! The receiving end of a wire: pulls from its durable consumer and hands on in order, each message once.
//!
//! # Invariants
//!
//! - The bus hears that a message was taken after that is durable here ([`super::Outbox::commit`]), never before.
//! - What waits here or at the gear is said to be in work, so that the bus does not send it again meanwhile.
//! - A consumer that is not there yet, or a bus that is away, is waited for.
//! - An acknowledgement belongs to the consumer that delivered the message: those for another one, or for another stream, are
//!   forgotten. Every time that the connection was away is the end of a pull, since the bus may be another one then.
//! - It takes messages as long as the gear has little to do, however many wait for earlier ones: those may lie behind them in the
//!   stream. What is with the gear and what waits is bounded in bytes ([`AT_ONCE_BYTES`], [`super::sources`]).
//! - A foreign message is known by its stream and its number there, so its source is that of one stream's life.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{self, stream};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use model::Token;
use model::letter::Way;
use model::message::Message;
use model::wire;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::acks::Acks;
use super::order::{Place, Waiting};
use super::proof::Proof;
use super::sources::{Due, Held, Sources};
use super::{Lane, Past, Taken};
use crate::telemetry::NotRecorded;
use crate::wires::{Arrival, Inbox, Receipt, Unreadable};

/// Messages asked for at once.
const PULL: usize = 128;
/// Their bytes.
const PULL_BYTES: usize = 8 << 20;
/// What the bus counts of a message beside what it limits.
const PULL_ROOM: usize = 64 << 10;
/// Messages that may be with the gear, or on their way to it.
const AT_ONCE: usize = 512;
/// Their bytes.
const AT_ONCE_BYTES: usize = 16 << 20;
/// How often the bus hears what is in work.
const IN_WORK: Duration = Duration::from_secs(10);
/// How often the bus is asked whether it still has what is missing.
const ASK: Duration = Duration::from_secs(2);
/// After so long without a message the bus is asked whether it keeps one back that is larger than a pull may bring.
const QUIET: Duration = Duration::from_secs(15);
/// The pause before a consumer is looked for again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long one pull waits for messages, and how often the server says that it still does.
const PULL_WITHIN: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(5));

/// A wire that ends at this Rack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InletSpec {
    /// The durable consumer's name.
    pub(crate) consumer: String,
    pub(crate) gear: Token,
    pub(crate) port: &'static str,
}

/// See the module.
pub(crate) struct Inlet {
    spec: InletSpec,
    lane: Lane,
    inbox: Inbox,
    stop: CancellationToken,
    sources: Sources,
    /// What may go to the gear.
    ready: VecDeque<Due>,
    /// For everything that is with us: what waits here, and what is with the gear.
    acks: Acks,
    outstanding: FuturesUnordered<BoxFuture<'static, Settled>>,
    /// Of what may go to the gear, and of what is there.
    bytes: usize,
    proof: Proof,
    /// When the stream and the consumer were made that we pull from.
    life: Option<Life>,
    /// What the stream had when this pull began; more than any number once a stream was lost.
    began_at: u64,
    /// Sources that sent numbers again which were taken.
    went_back: BTreeSet<String>,
    /// Whether it was said that nothing comes.
    told: bool,
    /// Whether it was said that something is left with the bus.
    told_left: bool,
    /// Whether the next message is larger than a pull may bring: it was sent when the bus took larger ones.
    next_is_large: bool,
}

/// A message that the gear is done with.
struct Settled {
    taken: Taken,
    is_durable: bool,
    bytes: usize,
}

/// When a stream and a consumer of it were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Life {
    stream: i128,
    consumer: i128,
}

/// Why pulling ended.
enum Ended {
    Stopped,
    /// Another kind of pull is needed.
    Again,
    Failed(String),
}

impl Inlet {
    pub(crate) fn new(spec: InletSpec, lane: Lane, inbox: Inbox, stop: CancellationToken) -> Self {
        Self {
            spec,
            lane,
            inbox,
            stop,
            sources: Sources::default(),
            ready: VecDeque::new(),
            acks: Acks::default(),
            outstanding: FuturesUnordered::new(),
            bytes: 0,
            proof: Proof::default(),
            life: None,
            began_at: 0,
            went_back: BTreeSet::new(),
            told: false,
            told_left: false,
            next_is_large: false,
        }
    }

    /// Runs until it is stopped.
    pub(crate) async fn run(mut self) {
        let stop = self.stop.clone();
        loop {
            let ended = tokio::select! {
                () = stop.cancelled() => Ended::Stopped,
                ended = self.pull() => ended,
            };
            let reason = match ended {
                Ended::Stopped => return,
                Ended::Again => continue,
                Ended::Failed(reason) => reason,
            };
            if !std::mem::replace(&mut self.told, true) {
                tracing::warn!(consumer = self.spec.consumer, gear.id = %self.spec.gear, reason, "a wire gives nothing for now; it is tried again");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    async fn pull(&mut self) -> Ended {
        let mut connection = self.lane.bus.state();
        self.lane.bus.connected().await;
        connection.mark_unchanged();
        let is_large = std::mem::take(&mut self.next_is_large);
        let begun = async {
            let consumer = self.look().await?;
            let (expires, heartbeat) = PULL_WITHIN;
            // One message is always let through.
            let most = self.lane.bus.client.server_info().max_payload.saturating_add(PULL_ROOM);
            let pulled = consumer.stream().expires(expires).heartbeat(heartbeat);
            let pulled = if is_large {
                pulled.max_messages_per_batch(1)
            } else {
                pulled
                    .max_messages_per_batch(PULL)
                    .max_bytes_per_batch(PULL_BYTES.max(most))
            };
            pulled.messages().await.map_err(|error| error.to_string())
        };
        let mut messages = match begun.await {
            Ok(messages) => messages,
            Err(reason) => return Ended::Failed(reason),
        };
        self.told = false;
        let mut in_work = tokio::time::interval_at(Instant::now() + IN_WORK, IN_WORK);
        let mut ask = tokio::time::interval_at(Instant::now() + ASK, ASK);
        ask.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut quiet = tokio::time::interval_at(Instant::now() + QUIET, QUIET);
        let mut came = false;
        self.advance().await;
        loop {
            let room = self.ready.len() + self.outstanding.len() < AT_ONCE && self.bytes < AT_ONCE_BYTES;
            let sender = self.inbox.sender().clone();
            tokio::select! {
                biased;
                _ = connection.changed() => return Ended::Failed("the connection was lost".to_owned()),
                Some(settled) = self.outstanding.next(), if !self.outstanding.is_empty() => {
                    self.bytes = self.bytes.saturating_sub(settled.bytes);
                    self.settle(&settled.taken, settled.is_durable).await;
                }
                _ = in_work.tick() => self.say_in_work().await,
                _ = ask.tick(), if self.is_in_doubt() => if let Err(reason) = self.ask().await {
                    return Ended::Failed(reason);
                },
                _ = quiet.tick() => if !std::mem::take(&mut came) && room {
                    match self.consumer().await {
                        Ok((consumer, ..)) if consumer.cached_info().num_pending > 0 => {
                            self.next_is_large = true;
                            return Ended::Again;
                        }
                        Ok(_) => {}
                        Err(reason) => return Ended::Failed(reason),
                    }
                },
                permit = sender.reserve(), if !self.ready.is_empty() => match permit {
                    Ok(permit) => if let Some(arrival) = self.arrival() {
                        permit.send(arrival);
                    },
                    Err(_) => return Ended::Stopped,
                },
                message = messages.next(), if room => match message {
                    Some(Ok(message)) => {
                        came = true;
                        let is_small = message.payload.len() < PULL_BYTES;
                        if let Err(reason) = self.take(message).await {
                            tracing::warn!(consumer = self.spec.consumer, reason, "a message is left for later");
                        }
                        if is_large && is_small {
                            return Ended::Again;
                        }
                    }
                    Some(Err(error)) => return Ended::Failed(error.to_string()),
                    None => return Ended::Failed("the consumer ended".to_owned()),
                },
            }
        }
    }

    /// The consumer with what it says, when both were made, and what the stream has.
    async fn consumer(&mut self) -> Result<(PullConsumer, Life, stream::State), String> {
        let js = &self.lane.bus.js;
        let consumer = js
            .get_consumer_from_stream(&self.spec.consumer, &self.lane.stream)
            .await;
        let consumer: PullConsumer = consumer.map_err(|error| error.to_string())?;
        // Later than the consumer: what the stream has then, it had before.
        let stream = js.get_stream(&self.lane.stream).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let life = Life {
            stream: stream.cached_info().created.unix_timestamp_nanos(),
            consumer: consumer.cached_info().created.unix_timestamp_nanos(),
        };
        Ok((consumer, life, stream.cached_info().state.clone()))
    }

    /// Looks for the consumer, from which nothing is on its way to us, and takes what it says.
    async fn look(&mut self) -> Result<PullConsumer, String> {
        let (consumer, life, stream) = self.consumer().await?;
        let said = consumer.cached_info();
        let delivered = said.delivered.consumer_sequence;
        let known = self.life.replace(life);
        // A bus that was killed may have forgotten its last deliveries; then it delivers them again.
        let kept = if known == Some(life) { delivered } else { 0 };
        let is_lost = known.is_some_and(|known| known.stream != life.stream);
        self.acks.forget_after(kept);
        for taken in self.sources.forget_after(kept) {
            self.acks.remove(&taken);
        }
        if is_lost {
            self.sources.stream_is_lost();
        }
        self.forget_left_before(stream.first_sequence);
        // What a stream lost may honestly be sent again.
        self.began_at = if is_lost {
            u64::MAX
        } else {
            self.began_at.max(stream.last_sequence)
        };
        self.proof = Proof::begin(delivered, said.num_ack_pending, self.acks.count(stream.first_sequence));
        Ok(consumer)
    }

    /// Asks the bus what it waits for. Nothing is taken or acknowledged meanwhile.
    async fn ask(&mut self) -> Result<(), String> {
        let (consumer, life, stream) = self.consumer().await?;
        let said = consumer.cached_info();
        let delivered = said.delivered.consumer_sequence;
        if self.life != Some(life) || delivered < self.proof.seen() {
            return Err("the consumer is another one".to_owned());
        }
        self.forget_left_before(stream.first_sequence);
        self.proof
            .told(delivered, said.num_ack_pending, self.acks.count(stream.first_sequence));
        self.advance().await;
        Ok(())
    }

    /// What was left with the bus and is in the stream no more does not come.
    fn forget_left_before(&mut self, first: u64) {
        for taken in self.acks.before(first) {
            if self.sources.forget_left(&taken) {
                self.acks.remove(&taken);
            }
        }
    }

    /// Whether something waits for earlier messages that somebody else may have, or for the bus to send it again.
    fn is_in_doubt(&self) -> bool {
        self.sources.has_left() || (self.proof.sure().is_none() && self.sources.is_waiting())
    }

    /// Takes a message from the bus: it waits for its turn, or was taken before.
    async fn take(&mut self, message: jetstream::Message) -> Result<(), String> {
        let info = message.info().map_err(|error| error.to_string())?;
        let (sequence, delivery, times) = (info.stream_sequence, info.consumer_sequence, info.delivered);
        let (place, landed) = place_of(&message, sequence);
        let key = self.key(&message.subject, place);
        let (message, acker) = message.split();
        self.proof.came(delivery, !self.acks.has(sequence));
        let noted = self.noted(&key, place);
        if noted.is_some_and(|noted| place.number <= noted) {
            if times == 1 && sequence > self.began_at {
                self.tell_that_it_went_back(&key, place);
            }
            self.advance().await;
            return acker.ack().await.map_err(|error| error.to_string());
        }
        let held = Held {
            subject: message.subject,
            body: message.payload,
        };
        let waiting = Waiting {
            item: held,
            delivery: Some(delivery),
            landed,
        };
        let taken = Taken { key, place };
        let (inbox, outbox) = (&self.inbox, &self.lane.outbox);
        self.sources.came(&taken, waiting, || {
            let delivered = inbox.delivered().0.lock().get(&taken.key).copied();
            let last = delivered.or_else(|| outbox.handed_over(&taken.key));
            last.map(|last| last.number).or(noted)
        });
        // What the gear has already and is not durable so far is with us as well.
        self.acks.add(taken, (sequence, delivery), acker);
        self.advance().await;
        Ok(())
    }

    /// A number was taken long ago, and a message with it was published now.
    fn tell_that_it_went_back(&mut self, key: &str, place: Place) {
        if self.went_back.insert(key.to_owned()) {
            tracing::error!(
                consumer = self.spec.consumer,
                source = key,
                number = place.number,
                "new messages have numbers that were taken before and are dropped: their Rack sends again what the archive did not have \
                 when the bus began anew, which does no harm; only if the Rack's state_dir was restored from a copy, stop it, remove its \
                 folder outbox, and start it"
            );
        }
    }

    /// The name of a message's source.
    fn key(&self, subject: &str, place: Place) -> String {
        let consumer = &self.spec.consumer;
        if place.outbox.is_nil() {
            let stream = self.life.map_or(0, |life| life.stream);
            format!("taken {consumer} {subject} stream-{stream}")
        } else {
            format!("taken {consumer} {subject} {}", place.outbox)
        }
    }

    /// The last number of a source that is known to be taken.
    fn noted(&self, key: &str, place: Place) -> Option<u64> {
        let outbox = &self.lane.outbox;
        let noted = outbox.taken(key).or_else(|| {
            // A note without the outbox in its name.
            let (before, _) = key.rsplit_once(' ')?;
            outbox.taken(before).filter(|noted| noted.outbox == place.outbox)
        });
        noted.map(|noted| noted.number)
    }

    /// Moves what is next to where the gear gets it from, asks the bus for what is next and left with it, and leaves what there is no
    /// memory for.
    async fn advance(&mut self) {
        for due in self.sources.due(self.proof.sure()) {
            if due.missing > 0 {
                tracing::error!(
                    consumer = self.spec.consumer,
                    source = due.taken.key,
                    missing = due.missing,
                    next = due.taken.place.number,
                    "messages never come: the stream does not keep them any more, or their Rack lost them"
                );
            }
            self.bytes += due.held.bytes();
            self.ready.push_back(due);
        }
        for taken in self.sources.ask_for(self.proof.sure()) {
            self.acks.ask_for(&taken).await;
        }
        if self.sources.leave() && !std::mem::replace(&mut self.told_left, true) {
            tracing::warn!(
                consumer = self.spec.consumer,
                gear.id = %self.spec.gear,
                "more messages wait for earlier ones than there is memory for; the bus keeps the last of them until their turn comes"
            );
        }
    }

    /// The next message for the gear. From now on it is the gear's.
    fn arrival(&mut self) -> Option<Arrival> {
        let Due { held, taken, .. } = self.ready.pop_front()?;
        let bytes = held.bytes();
        self.inbox.delivered().0.lock().insert(taken.key.clone(), taken.place);
        let (done, durable) = oneshot::channel::<Result<(), NotRecorded>>();
        let Held { subject, body } = held;
        let settled = taken.clone();
        self.outstanding.push(Box::pin(async move {
            Settled {
                is_durable: matches!(durable.await, Ok(Ok(()))),
                taken: settled,
                bytes,
            }
        }));
        let message = Message::from_cbor(&body).map_err(|reason| Unreadable {
            reason: format!("not a message: {reason}"),
            body,
        });
        let past = Past {
            from: Some(subject),
            ..Past::default()
        };
        Some(Arrival {
            port: self.spec.port,
            message,
            receipt: Some(Receipt {
                taken,
                done,
                way: Way::In,
                past,
            }),
        })
    }

    async fn settle(&mut self, taken: &Taken, is_durable: bool) {
        let ackers = self.acks.remove(taken);
        if !is_durable {
            return;
        }
        for acker in ackers {
            // An acknowledgement that is lost means that the bus sends the message again, and that it is known here.
            if let Err(error) = acker.ack().await {
                tracing::debug!(%error, "an acknowledgement could not be sent");
            }
        }
    }

    /// Says what is in work. What a gear had from an earlier inlet and is durable now is acknowledged.
    async fn say_in_work(&mut self) {
        let outbox = &self.lane.outbox;
        let is_durable = |taken: &Taken| {
            outbox
                .taken(&taken.key)
                .is_some_and(|last| taken.place.number <= last.number)
        };
        let done: Vec<Taken> = self.acks.all().filter(|taken| is_durable(taken)).cloned().collect();
        for taken in done {
            self.settle(&taken, true).await;
        }
        self.acks.say_in_work().await;
    }
}

/// Where a message stands, and up to where everything before it had been accepted.
fn place_of(message: &jetstream::Message, sequence: u64) -> (Place, u64) {
    let header = |name| message.headers.as_ref().and_then(|headers| headers.get(name));
    let place = header(wire::PLACE).and_then(|place| Place::parse(place.as_str()));
    let landed = header(wire::LANDED).and_then(|landed| landed.as_str().parse().ok());
    match place {
        Some(place) => (place, landed.unwrap_or(place.number - 1)),
        None => {
            let place = Place {
                outbox: Uuid::nil(),
                number: sequence,
            };
            (place, sequence.saturating_sub(1))
        }
    }
}
