//! The receiving end of a wire: pulls from its durable consumer and hands on in order, each message once.
//!
//! # Invariants
//!
//! - The bus hears that a message was taken after that is durable here ([`super::Outbox::commit`]), never before.
//! - What waits here or at the gear is said to be in work, so that the bus does not send it again meanwhile.
//! - A consumer that is not there yet, or a bus that is away, is waited for.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use async_nats::Subject;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{self, AckKind};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use model::Token;
use model::letter::Way;
use model::message::Message;
use model::wire;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::order::{Came, Place, Source};
use super::{Lane, Past, Taken};
use crate::telemetry::NotRecorded;
use crate::wires::{Arrival, Inbox, Receipt, Unreadable};

/// Messages asked for at once.
const PULL: usize = 128;
/// Messages that may wait for earlier ones.
const MOST_WAITING: usize = 1024;
/// How often the bus hears what is in work.
const IN_WORK: Duration = Duration::from_secs(10);
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
    sources: BTreeMap<String, Source<Held>>,
    /// What may go to the gear.
    ready: VecDeque<Ready>,
    /// What is with the gear.
    ackers: BTreeMap<u64, jetstream::message::Acker>,
    outstanding: FuturesUnordered<BoxFuture<'static, (u64, bool)>>,
    /// Whether it was said that nothing comes.
    told: bool,
}

/// A message that waits for the ones before it.
struct Held {
    sequence: u64,
    subject: Subject,
    body: Bytes,
}

struct Ready {
    held: Held,
    taken: Taken,
}

/// Why pulling ended.
enum Ended {
    Stopped,
    Failed(String),
}

impl Inlet {
    pub(crate) fn new(spec: InletSpec, lane: Lane, inbox: Inbox, stop: CancellationToken) -> Self {
        Self {
            spec,
            lane,
            inbox,
            stop,
            sources: BTreeMap::new(),
            ready: VecDeque::new(),
            ackers: BTreeMap::new(),
            outstanding: FuturesUnordered::new(),
            told: false,
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
            let Ended::Failed(reason) = ended else { return };
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
        let consumer: Result<PullConsumer, String> = async {
            let stream = self.lane.bus.js.get_stream(&self.lane.stream).await;
            let stream = stream.map_err(|error| error.to_string())?;
            stream
                .get_consumer(&self.spec.consumer)
                .await
                .map_err(|error| error.to_string())
        }
        .await;
        let pulled = async {
            let consumer = consumer?;
            let (expires, heartbeat) = PULL_WITHIN;
            let pulled = consumer.stream().max_messages_per_batch(PULL).expires(expires);
            let pulled = pulled.heartbeat(heartbeat).messages().await;
            pulled.map_err(|error| error.to_string())
        };
        let mut messages = match pulled.await {
            Ok(messages) => messages,
            Err(reason) => return Ended::Failed(reason),
        };
        self.told = false;
        let mut in_work = tokio::time::interval_at(Instant::now() + IN_WORK, IN_WORK);
        loop {
            let room = self.waiting() < MOST_WAITING && self.ready.len() < PULL;
            let until = self.sources.values().filter_map(Source::until).min();
            let sender = self.inbox.sender().clone();
            tokio::select! {
                Some((sequence, is_durable)) = self.outstanding.next(), if !self.outstanding.is_empty() => {
                    self.settle(sequence, is_durable).await;
                }
                permit = sender.reserve(), if !self.ready.is_empty() => match permit {
                    Ok(permit) => if let Some(arrival) = self.arrival() {
                        permit.send(arrival);
                    },
                    Err(_) => return Ended::Stopped,
                },
                message = messages.next(), if room => match message {
                    Some(Ok(message)) => if let Err(reason) = self.take(message).await {
                        tracing::warn!(consumer = self.spec.consumer, reason, "a message is left for later");
                    },
                    Some(Err(error)) => return Ended::Failed(error.to_string()),
                    None => return Ended::Failed("the consumer ended".to_owned()),
                },
                () = tokio::time::sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => self.advance(),
                _ = in_work.tick() => self.say_in_work().await,
            }
        }
    }

    fn waiting(&self) -> usize {
        self.sources.values().map(Source::waiting).sum()
    }

    /// Takes a message from the bus: it waits for its turn, or was taken before.
    async fn take(&mut self, message: jetstream::Message) -> Result<(), String> {
        let sequence = message.info().map_err(|error| error.to_string())?.stream_sequence;
        let place = place_of(&message, sequence);
        let key = self.key(&message.subject, place);
        let (message, acker) = message.split();
        let is_taken = self
            .lane
            .outbox
            .taken(&key)
            .is_some_and(|taken| taken.outbox == place.outbox && place.number <= taken.number);
        if is_taken {
            return acker.ack().await.map_err(|error| error.to_string());
        }
        let held = Held {
            sequence,
            subject: message.subject,
            body: message.payload,
        };
        let source = self.sources.entry(key.clone()).or_insert_with(|| {
            let delivered = self.inbox.delivered().0.lock().get(&key).copied();
            Source::new(delivered.or_else(|| self.lane.outbox.taken(&key)))
        });
        for left in source.turn_to(place.outbox) {
            // Nobody holds it any more: not said to be in work, it comes again.
            self.ackers.remove(&left.sequence);
        }
        if source.came(place, held, Instant::now()) == Came::Kept {
            self.ackers.insert(sequence, acker);
            self.advance();
        }
        Ok(())
    }

    fn key(&self, subject: &str, place: Place) -> String {
        let foreign = if place.outbox == Uuid::nil() { " foreign" } else { "" };
        format!("taken {} {subject}{foreign}", self.spec.consumer)
    }

    /// Moves what is next to where the gear gets it from.
    fn advance(&mut self) {
        let now = Instant::now();
        for (key, source) in &mut self.sources {
            while let Some((place, held, missing)) = source.next(now) {
                if missing > 0 {
                    tracing::error!(
                        consumer = self.spec.consumer,
                        source = key,
                        missing,
                        next = place.number,
                        "messages never came: they were older than what the stream keeps, or their Rack lost them"
                    );
                }
                let taken = Taken {
                    key: key.clone(),
                    place,
                };
                self.ready.push_back(Ready { held, taken });
            }
        }
    }

    /// The next message for the gear. From now on it is the gear's.
    fn arrival(&mut self) -> Option<Arrival> {
        let Ready { held, taken } = self.ready.pop_front()?;
        self.inbox.delivered().0.lock().insert(taken.key.clone(), taken.place);
        let (done, durable) = oneshot::channel::<Result<(), NotRecorded>>();
        let Held {
            sequence,
            subject,
            body,
        } = held;
        self.outstanding
            .push(Box::pin(async move { (sequence, matches!(durable.await, Ok(Ok(())))) }));
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

    async fn settle(&mut self, sequence: u64, is_durable: bool) {
        let Some(acker) = self.ackers.remove(&sequence) else {
            return;
        };
        // An acknowledgement that is lost means that the bus sends the message again, and that it is known here.
        if is_durable && let Err(error) = acker.ack().await {
            tracing::debug!(%error, "an acknowledgement could not be sent");
        }
    }

    async fn say_in_work(&mut self) {
        for acker in self.ackers.values() {
            if acker.ack_with(AckKind::Progress).await.is_err() {
                return;
            }
        }
    }
}

fn place_of(message: &jetstream::Message, sequence: u64) -> Place {
    let headers = message.headers.as_ref();
    let named = headers.and_then(|headers| headers.get(wire::PLACE));
    let place = named.and_then(|place| Place::parse(place.as_str()));
    place.unwrap_or(Place {
        outbox: Uuid::nil(),
        number: sequence,
    })
}
