//! Overflow of a wire: its oldest messages become dead letters of the receiving gear where more wait than may, or longer than they may.
//!
//! ```text
//! ack floor ──▶ read ──▶ dead letter of each message ──▶ on the stream ──▶ consumer reset behind them
//! ```
//!
//! # Invariants
//!
//! - A message is a dead letter on the stream before its wire moves past it. A crash between leaves both; the letter has the same message
//!   id when it is sent again, by which the bus knows it.
//! - What the receiver has in hand while its wire moves may be taken as well as be a dead letter; nothing is neither.
//! - How long a message waits is measured by the monotonic clock of this process: a jump of the wall clock ages nothing, and a restart
//!   begins anew.
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
use model::{Token, subject, wire};
use tokio::time::Instant;

use super::backlog::WireBacklog;
use super::text;
use crate::bus_server::Bus;
use crate::registry::{Change, Registry, RegistryError, WireRow};

/// Bus messages of one request.
const FETCH: usize = 256;
/// The most dead letters of one wire at a time.
const MOST_LETTERS: u64 = 65_536;
/// Dead letters on their way to the stream.
const IN_FLIGHT: usize = 256;
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
pub(super) struct WireTrim {
    name: String,
    consumer: String,
    filter: String,
    rack: Token,
    to: Endpoint,
    /// What the receiver has.
    floor: u64,
    /// Up to here by its age.
    aged: u64,
    /// And so many bytes, since more wait than may.
    excess: u64,
    /// How many bytes may wait.
    limit: u64,
    max_age: Duration,
}

impl WireTrim {
    /// What is to leave a wire whose consumer stands there, if anything.
    pub(super) fn of(
        (name, row): (&str, &WireRow),
        backlog: &WireBacklog,
        info: &Info,
        history: &SequenceHistory,
    ) -> Option<Self> {
        let floor = info.ack_floor.stream_sequence;
        let max_age = row.bounds.max_age.map(model::HumanDuration::get);
        let aged = max_age.map_or(0, |age| history.older_than(age, Instant::now()));
        let limit = backlog.limit_bytes.unwrap_or(u64::MAX);
        let is_over = row.bounds.overflow == Overflow::DropOldestToDlq && backlog.waiting_bytes > limit;
        // Not a message at a time.
        let excess = if is_over {
            backlog.waiting_bytes - limit / 4 * 3
        } else {
            0
        };
        let is_due = backlog.waiting_bytes > 0 && (excess > 0 || aged > floor);
        is_due.then_some(())?;
        Some(Self {
            name: name.to_owned(),
            consumer: row.consumer(name).to_owned(),
            filter: row.filter.clone(),
            rack: row.rack.clone()?,
            to: row.to.clone()?,
            floor,
            aged,
            excess,
            limit,
            max_age: max_age.unwrap_or_default(),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Moves the wire; how many messages became dead letters.
    pub(super) async fn carry_out(&self, bus: &Bus, stream: &Stream, registry: &Arc<Registry>) -> Result<u64, String> {
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
        let moved = self.move_letters(bus, &reader).await;
        if let Err(error) = stream.delete_consumer(&reader.cached_info().name).await {
            tracing::debug!(%error, "a reader of what overflows goes by itself");
        }
        let (letters, through) = moved?;
        if through > self.floor {
            self.move_consumer(stream, registry, through).await?;
        }
        Ok(letters)
    }

    /// Makes dead letters of what is to leave; how many, and up to which sequence.
    async fn move_letters(&self, bus: &Bus, reader: &PullConsumer) -> Result<(u64, u64), String> {
        let (mut letters, mut bytes, mut through) = (0, 0, self.floor);
        let mut in_flight = VecDeque::new();
        'all: loop {
            let mut fetched = reader.fetch().max_messages(FETCH).messages().await.map_err(text)?;
            let before = through;
            while let Some(message) = fetched.next().await {
                let message = message.map_err(text)?;
                let sequence = message.info().map_err(text)?.stream_sequence;
                let is_old = sequence <= self.aged;
                if !is_old && bytes >= self.excess || letters >= MOST_LETTERS {
                    break 'all;
                }
                bytes += message.length as u64;
                for (number, body) in bodies(&message).into_iter().enumerate() {
                    let id = format!("overflow.{}.{sequence}.{number}", self.name);
                    in_flight.push_back(self.send(bus, (&message, body), &id, is_old).await?);
                    letters += 1;
                    if in_flight.len() >= IN_FLIGHT {
                        confirm(in_flight.pop_front()).await?;
                    }
                }
                through = sequence;
            }
            if through == before {
                break;
            }
        }
        for sent in in_flight {
            confirm(Some(sent)).await?;
        }
        Ok((letters, through))
    }

    /// Sends the dead letter of a message.
    async fn send(
        &self,
        bus: &Bus,
        (message, body): (&BusMessage, Bytes),
        id: &str,
        is_old: bool,
    ) -> Result<PublishAckFuture, String> {
        let reason = if is_old {
            format!(
                "it waited for its receiver longer than max_age of the wire ({:?})",
                self.max_age
            )
        } else {
            format!(
                "more than {} bytes waited for its receiver, and the wire drops the oldest",
                self.limit
            )
        };
        let mut headers = HeaderMap::new();
        headers.insert(wire::DEAD_REASON, reason.as_str());
        headers.insert(wire::DEAD_PORT, self.to.port.as_str());
        headers.insert(wire::DEAD_WAY, Way::In.as_str());
        headers.insert(wire::DEAD_ATTEMPTS, "0");
        headers.insert(wire::DEAD_FROM, message.subject.as_str());
        let letter = PublishMessage::build().headers(headers).message_id(id).payload(body);
        let to = subject::gear(&self.rack, &self.to.gear);
        bus.jetstream().send_publish(to, letter).await.map_err(text)
    }

    /// The wire goes on behind this sequence, whatever becomes of its consumer.
    async fn move_consumer(&self, stream: &Stream, registry: &Arc<Registry>, through: u64) -> Result<(), String> {
        let name = self.name.clone();
        let put = move |change: &Change<'_>| change.move_wire(&name, through + 1);
        registry.commit::<_, RegistryError>(put).await.map_err(text)?;
        let mut consumer: PullConsumer = stream.get_consumer(&self.consumer).await.map_err(text)?;
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
