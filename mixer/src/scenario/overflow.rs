//! Overflow of a wire: its oldest messages become dead letters of the receiving gear where more wait than may, or longer than they may.
//!
//! ```text
//! ack floor ──▶ read some ──▶ dead letter of each message ──▶ on the stream ──▶ consumer reset behind them ──▶ read some …
//! ```
//!
//! # Invariants
//!
//! - A message is a dead letter on the stream before its wire moves past it. A crash between leaves both; a letter that is sent again
//!   within the bus's window of duplicates is known by its message id, later it is there twice.
//! - What the receiver has in hand while its wire moves (4,096 messages or 16 MiB at most) may be taken as well as be a dead letter;
//!   nothing is neither.
//! - Nothing is dropped for an estimate: what waits since before this process counts when it is looked at, not before.
//! - How long a message waits is measured by the monotonic clock of this process: a jump of the wall clock ages nothing, and a restart
//!   begins anew.
//! - A wire that changed meanwhile, or whose stream was made anew, is not moved.
//!
//! # Not here
//!
//! How much may wait ([`super::backlog`]), and when that is looked at ([`super::flow_control`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::Message as BusMessage;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, Info, PullConsumer, pull};
use async_nats::jetstream::context::PublishAckFuture;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Stream;
use bytes::Bytes;
use futures::StreamExt as _;
use model::letter::Way;
use model::message::MessageSequence;
use model::scenario::{Endpoint, Overflow};
use model::{EntityId, HumanDuration, Token, subject, wire};
use tokio::time::{Instant, timeout};

use super::backlog::WireBacklog;
use super::text;
use crate::bus_server::Bus;
use crate::registry::{Change, Registry, RegistryError, WireRow};

/// Bus messages of one request, after each of which the wire moves.
const FETCH: usize = 256;
/// Their bytes.
const FETCH_BYTES: usize = 4 << 20;
/// How long the next message may take.
const FETCH_WITHIN: Duration = Duration::from_secs(10);
/// The most bytes that leave a wire at a time: letters need room on the stream until they are archived.
const MOST_BYTES: u64 = 16 << 20;
/// Dead letters on their way to the stream.
const IN_FLIGHT: usize = 256;
/// What the headers of a letter may need of a bus message.
const LETTER_HEADERS: usize = 4 << 10;
/// The most moments that are remembered; beyond, every second one is forgotten.
const MOST_MOMENTS: usize = 4_096;
/// A reader that a crash left behind goes after this.
const READER_AGE: Duration = Duration::from_secs(30);
/// What a reader of this module says it is for.
const READER: &str = "overflow of a wire";

/// Whether a consumer is one that reads what overflows.
pub(super) fn is_reader(info: &Info) -> bool {
    info.config.description.as_deref() == Some(READER)
}

/// The last sequences of the stream at earlier moments of this process.
#[derive(Debug, Default)]
pub(super) struct SequenceHistory(VecDeque<(Instant, u64)>);

impl SequenceHistory {
    /// Adds a moment.
    pub(super) fn record(&mut self, now: Instant, last: u64) {
        if self.0.back().is_some_and(|(_, before)| *before > last) {
            // Another stream.
            self.0.clear();
        }
        self.0.push_back((now, last));
        if self.0.len() > MOST_MOMENTS {
            let mut nth = 0_usize;
            self.0.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
        }
    }

    /// The last sequence that is at least this old; 0 if none is known to be.
    fn older_than(&self, age: Duration, now: Instant) -> u64 {
        let old = self
            .0
            .partition_point(|(at, _)| now.saturating_duration_since(*at) >= age);
        old.checked_sub(1).map_or(0, |last| self.0[last].1)
    }
}

/// What is to leave a wire.
#[derive(Debug, Clone)]
pub(super) struct OverflowRequest {
    name: String,
    consumer: String,
    filter: String,
    rack: Token,
    to: Endpoint,
    /// Of the stream that it was found on.
    life: i64,
    /// What the receiver has.
    floor: u64,
    /// Up to here by its age.
    aged: u64,
    /// And so many bytes, since more wait than may.
    excess: u64,
    /// How many bytes may wait.
    limit: u64,
    max_age: HumanDuration,
}

/// What has left a wire.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Overflowed {
    pub(super) letters: u64,
    /// The first message that is too young to leave, where one was seen.
    pub(super) young: Option<u64>,
}

impl OverflowRequest {
    /// What is to leave a wire whose consumer stands there, if anything; of what was seen to be too young last time.
    pub(super) fn of(
        (name, row): (&str, &WireRow),
        backlog: &WireBacklog,
        info: &Info,
        (history, young): (&SequenceHistory, u64),
    ) -> Option<Self> {
        let floor = info.ack_floor.stream_sequence;
        let max_age = row.bounds.max_age;
        let aged = max_age.map_or(0, |age| history.older_than(age.get(), Instant::now()));
        let limit = backlog.limit_bytes.unwrap_or(u64::MAX);
        let is_over = row.bounds.overflow == Overflow::DropOldestToDlq && backlog.known_bytes > limit;
        // Not a message at a time.
        let excess = if is_over {
            backlog.known_bytes - limit / 4 * 3
        } else {
            0
        };
        let is_aged = aged > floor && aged >= young;
        let is_due = backlog.waiting_bytes > 0 && (excess > 0 || is_aged);
        is_due.then_some(())?;
        Some(Self {
            name: name.to_owned(),
            consumer: row.consumer(name).to_owned(),
            filter: row.filter.clone(),
            rack: row.rack.clone()?,
            to: row.to.clone()?,
            life: row.stream,
            floor,
            aged,
            excess,
            limit,
            max_age: max_age.unwrap_or(HumanDuration::from_secs(0)),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Moves the wire, some messages at a time; what was done is told also where it fails.
    pub(super) async fn carry_out(
        &self,
        bus: &Bus,
        stream: &Stream,
        registry: &Arc<Registry>,
        done: &mut Overflowed,
    ) -> Result<(), String> {
        let entity = registry.rack_named(&self.rack).map_err(text)?.map(|row| row.entity_id);
        let reader = stream.create_consumer(pull::Config {
            description: Some(READER.to_owned()),
            filter_subject: self.filter.clone(),
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: self.floor + 1,
            },
            ack_policy: AckPolicy::None,
            memory_storage: true,
            inactive_threshold: READER_AGE,
            ..Default::default()
        });
        let reader = reader.await.map_err(text)?;
        let moved = self.move_all(bus, stream, registry, (&reader, entity), done).await;
        if let Err(error) = stream.delete_consumer(&reader.cached_info().name).await {
            tracing::debug!(%error, "a reader of what overflows goes by itself");
        }
        moved
    }

    async fn move_all(
        &self,
        bus: &Bus,
        stream: &Stream,
        registry: &Arc<Registry>,
        (reader, entity): (&PullConsumer, Option<EntityId>),
        done: &mut Overflowed,
    ) -> Result<(), String> {
        let mut waiting = reader.cached_info().num_pending;
        let (mut bytes, mut is_large) = (0, false);
        'fetch: while waiting > 0 && done.young.is_none() && bytes < MOST_BYTES {
            let most = usize::try_from(waiting).unwrap_or(FETCH).min(FETCH);
            let fetch = reader.fetch();
            let is_single = std::mem::take(&mut is_large);
            let fetch = if is_single {
                fetch.max_messages(1)
            } else {
                fetch.max_messages(most).max_bytes(FETCH_BYTES)
            };
            let mut fetched = fetch.messages().await.map_err(text)?;
            let (mut through, mut in_flight) = (None, VecDeque::new());
            while let Some(message) = timeout(FETCH_WITHIN, fetched.next()).await.map_err(text)? {
                let message = match message {
                    Ok(message) => message,
                    // The next one does not fit into what is left of the bytes.
                    Err(_) if through.is_some() => break,
                    Err(_) if !is_single => {
                        is_large = true;
                        continue 'fetch;
                    }
                    Err(error) => return Err(text(error)),
                };
                let sequence = message.info().map_err(text)?.stream_sequence;
                waiting = waiting.saturating_sub(1);
                if sequence > self.aged && bytes >= self.excess {
                    done.young = Some(sequence);
                    break;
                }
                bytes += message.length as u64;
                for (number, body) in bodies(&message).into_iter().enumerate() {
                    let id = format!("overflow.{}.{sequence}.{number}", self.name);
                    in_flight.push_back(self.send(bus, (&message, body), (&id, entity), sequence).await?);
                    done.letters += 1;
                    if in_flight.len() >= IN_FLIGHT {
                        confirm(in_flight.pop_front()).await?;
                    }
                }
                through = Some(sequence);
            }
            for sent in in_flight {
                confirm(Some(sent)).await?;
            }
            match through {
                Some(through) => self.move_wire(stream, registry, through).await?,
                // What was counted has left the stream.
                None => break,
            }
        }
        Ok(())
    }

    /// Sends the dead letter of a message.
    async fn send(
        &self,
        bus: &Bus,
        (message, mut body): (&BusMessage, Bytes),
        (id, entity): (&str, Option<EntityId>),
        sequence: u64,
    ) -> Result<PublishAckFuture, String> {
        let mut reason = if sequence <= self.aged {
            format!(
                "it waited for its receiver longer than max_age of the wire ({})",
                self.max_age
            )
        } else {
            format!(
                "more than {} bytes waited for its receiver, and the wire drops the oldest",
                self.limit
            )
        };
        let most = bus.client().server_info().max_payload.saturating_sub(LETTER_HEADERS);
        if body.len() > most {
            reason = format!(
                "{reason}; it has {} bytes, and of them only the first {most} could be kept",
                body.len()
            );
            body.truncate(most);
        }
        let mut headers = HeaderMap::new();
        headers.insert(wire::DEAD_REASON, reason.as_str());
        headers.insert(wire::DEAD_PORT, self.to.port.as_str());
        headers.insert(wire::DEAD_WAY, Way::In.as_str());
        headers.insert(wire::DEAD_ATTEMPTS, "0");
        headers.insert(wire::DEAD_FROM, message.subject.as_str());
        if let Some(entity) = entity {
            headers.insert(wire::ENTITY_ID, entity.to_string());
        }
        let letter = PublishMessage::build().headers(headers).message_id(id).payload(body);
        let to = subject::gear(&self.rack, &self.to.gear);
        bus.jetstream().send_publish(to, letter).await.map_err(text)
    }

    /// The wire goes on behind this sequence, whatever becomes of its consumer.
    async fn move_wire(&self, stream: &Stream, registry: &Arc<Registry>, through: u64) -> Result<(), String> {
        let mut consumer: PullConsumer = stream.get_consumer(&self.consumer).await.map_err(text)?;
        let (name, before) = (self.name.clone(), (self.life, self.consumer.clone()));
        let put = move |change: &Change<'_>| change.move_wire(&name, &before, through + 1);
        if !registry.commit::<_, RegistryError>(put).await.map_err(text)? {
            return Err("the wire changed meanwhile".to_owned());
        }
        // One that has come further meanwhile is told again what it has.
        consumer.reset(Some(through + 1)).await.map(drop).map_err(text)
    }
}

/// The messages of a bus message: a foreign one has one.
fn bodies(message: &BusMessage) -> Vec<Bytes> {
    let is_of_a_rack = message
        .headers
        .as_ref()
        .is_some_and(|headers| headers.get(wire::PLACE).is_some());
    if is_of_a_rack {
        MessageSequence::new(message.payload.clone())
            .map(|(body, _)| body)
            .collect()
    } else {
        vec![message.payload.clone()]
    }
}

async fn confirm(sent: Option<PublishAckFuture>) -> Result<(), String> {
    match sent {
        Some(sent) => sent.await.map(drop).map_err(text),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sequence_of_an_age_is_known_and_another_stream_has_none() {
        let (start, mut history) = (Instant::now(), SequenceHistory::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..10_000 {
            history.record(at(second), 100 + second);
        }
        assert!(history.0.len() <= MOST_MOMENTS);
        let old = history.older_than(Duration::from_secs(5_000), at(10_000));
        assert!((5_092..=5_100).contains(&old), "{old}");
        assert_eq!(history.older_than(Duration::from_secs(20_000), at(10_000)), 0);
        history.record(at(10_000), 3);
        assert_eq!(history.older_than(Duration::from_secs(5), at(10_004)), 0);
        assert_eq!(history.older_than(Duration::from_secs(5), at(10_005)), 3);
    }
}
