//! Overflow of a wire: its oldest messages become dead letters of the receiving gear where more wait than may, or longer than they may.
//!
//! ```text
//! ack floor ──▶ read up to 16 MiB ──▶ dead letter of each message ──▶ on the stream's disk ──▶ consumer reset behind them
//! ```
//!
//! # Invariants
//!
//! - A message is a dead letter on the stream, and on the disk of a bus that is ours, before its wire moves past it. A crash between
//!   leaves both; a letter that is sent again within the bus's window of duplicates is known by its message id, later it is there twice.
//! - Nobody else can say a letter's message id before it is sent: a Rack that could would have it taken for a duplicate.
//! - What the receiver has in hand when its wire moves (its inbox, and what it has begun) may be handled as well as be a dead letter,
//!   and so may what it takes meanwhile (16 MiB at most); nothing is neither. A wire is asked again where it is before the first
//!   message is read: what its receiver took since the look counts.
//! - Nothing is dropped for an estimate: what waits since before this process counts when it is looked at, not before. Where nothing is
//!   archived, no size is known, and messages count as large as the stream's mean.
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
use ingest::SyncBus;
use model::dead_letter::PortSide;
use model::message::MessageSequence;
use model::scenario::{GearPort, OverflowPolicy};
use model::{EntityId, HumanDuration, Token, subject, telemetry_codec};
use tokio::time::{Instant, timeout};

use super::backlog::WireBacklog;
use super::flow_control::waiting;
use super::text;
use crate::bus_server::MixerBus;
use crate::cluster::Cluster;
use crate::registry::{ClusterRegistry, RegistryError, RegistryTransaction, WireRow};

/// Bus messages of one request.
const FETCH: usize = 256;
/// Their bytes.
const FETCH_BYTES: usize = 4 << 20;
/// How long the next message may take.
const FETCH_WITHIN: Duration = Duration::from_secs(10);
/// The most bytes that leave a wire at a time: letters need room on the stream until they are archived.
const MOST_BYTES: u64 = 16 << 20;
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
pub(super) struct SequenceHistory {
    /// Of which stream ([`WireRow::life`]).
    life: i64,
    moments: VecDeque<(Instant, u64)>,
}

impl SequenceHistory {
    /// Adds a moment of a stream; another one starts afresh.
    pub(super) fn record(&mut self, life: i64, now: Instant, last: u64) {
        if self.life != life {
            (self.life, self.moments) = (life, VecDeque::new());
        }
        self.moments.push_back((now, last));
        if self.moments.len() > MOST_MOMENTS {
            let mut nth = 0_usize;
            self.moments.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
        }
    }

    /// The last sequence that is at least this old; 0 if none is known to be.
    fn older_than(&self, age: Duration, now: Instant) -> u64 {
        let old = self
            .moments
            .partition_point(|(at, _)| now.saturating_duration_since(*at) >= age);
        old.checked_sub(1).map_or(0, |last| self.moments[last].1)
    }
}

/// What is to leave a wire.
#[derive(Debug, Clone)]
pub(super) struct OverflowRequest {
    name: String,
    consumer: String,
    filter: String,
    rack: Token,
    to: GearPort,
    /// Of the stream that it was found on.
    life: i64,
    /// Up to here by its age.
    aged: u64,
    /// How many bytes may wait; beyond, the oldest leave.
    limit: u64,
    /// The bus messages that waited at the look, and their bytes.
    waited: (u64, u64),
    max_age: HumanDuration,
}

/// What has left a wire.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OverflowResult {
    pub(super) letters: u64,
    /// The first message that is too young to leave, where one was seen.
    pub(super) young: Option<u64>,
}

/// Letters of one request.
#[derive(Debug, Default)]
struct OverflowProgress {
    letters: u64,
    /// Up to here all are on the stream.
    through: Option<u64>,
    young: Option<u64>,
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
        let drops = row.bounds.overflow == OverflowPolicy::DropOldestToDlq;
        let limit = backlog.limit_bytes.filter(|_| drops).unwrap_or(u64::MAX);
        let is_aged = aged > floor && aged >= young;
        let is_due = backlog.waiting_bytes > 0 && (backlog.known_bytes > limit || is_aged);
        is_due.then_some(())?;
        Some(Self {
            name: name.to_owned(),
            consumer: row.consumer(name).to_owned(),
            filter: row.filter.clone(),
            rack: row.rack.clone()?,
            to: row.to.clone()?,
            life: row.stream,
            aged,
            limit,
            waited: (waiting(info), backlog.known_bytes),
            max_age: max_age.unwrap_or(HumanDuration::from_secs(0)),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// How many bytes are to leave, where so many bus messages wait by now: not one at a time.
    fn excess(&self, waiting: u64) -> u64 {
        let (waited, bytes) = self.waited;
        let left = u128::from(bytes) * u128::from(waiting.min(waited)) / u128::from(waited.max(1));
        let left = u64::try_from(left).unwrap_or(u64::MAX);
        if left > self.limit {
            left - self.limit / 4 * 3
        } else {
            0
        }
    }

    /// Moves the wire; which letters were made is told also where it fails.
    pub(super) async fn carry_out(
        &self,
        (bus, stream): (&MixerBus, &Stream),
        (registry, cluster): (&Arc<ClusterRegistry>, &Cluster),
        sync: Option<&SyncBus>,
        done: &mut OverflowResult,
    ) -> Result<(), String> {
        // Where that fails, letters would be made again and again and the wire never move.
        synced(sync).await?;
        let consumer: PullConsumer = stream.get_consumer(&self.consumer).await.map_err(text)?;
        let (floor, excess) = {
            let info = consumer.cached_info();
            (info.ack_floor.stream_sequence, self.excess(waiting(info)))
        };
        if self.aged <= floor && excess == 0 {
            return Ok(());
        }
        let entity = registry.rack_named(&self.rack).map_err(text)?.map(|row| row.entity_id);
        let reader = stream.create_consumer(pull::Config {
            description: Some(READER.to_owned()),
            filter_subject: self.filter.clone(),
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: floor + 1,
            },
            ack_policy: AckPolicy::None,
            memory_storage: true,
            inactive_threshold: READER_AGE,
            ..Default::default()
        });
        let reader = reader.await.map_err(text)?;
        let mut made = OverflowProgress::default();
        let read = self
            .make_letters((bus, cluster), (&reader, entity), excess, &mut made)
            .await;
        if let Err(error) = stream.delete_consumer(&reader.cached_info().name).await {
            tracing::debug!(%error, "a reader of what overflows goes by itself");
        }
        *done = OverflowResult {
            letters: made.letters,
            young: made.young,
        };
        if let Some(through) = made.through {
            synced(sync).await?;
            self.move_wire(stream, registry, through).await?;
        }
        read
    }

    /// Makes letters of what is to leave, by its age or of so many bytes.
    async fn make_letters(
        &self,
        (bus, cluster): (&MixerBus, &Cluster),
        (reader, entity): (&PullConsumer, Option<EntityId>),
        excess: u64,
        made: &mut OverflowProgress,
    ) -> Result<(), String> {
        let mut waiting = reader.cached_info().num_pending;
        let (mut bytes, mut delivered, mut is_large) = (0, 0, false);
        'fetch: while waiting > 0 && made.young.is_none() && bytes < MOST_BYTES {
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
                let info = message.info().map_err(text)?;
                let sequence = info.stream_sequence;
                delivered += 1;
                if info.consumer_sequence != delivered {
                    return Err(format!(
                        "delivery {} came in place of {delivered}",
                        info.consumer_sequence
                    ));
                }
                waiting = waiting.saturating_sub(1);
                if sequence > self.aged && bytes >= excess {
                    made.young = Some(sequence);
                    break;
                }
                bytes += message.length as u64;
                for (number, body) in bodies(&message).into_iter().enumerate() {
                    // A wire that takes over goes on with the same consumer.
                    let letter = (&self.consumer, self.life, sequence, number);
                    let id = cluster.message_id(&letter).map_err(text)?;
                    in_flight.push_back(self.send(bus, (&message, body), (&id, entity), sequence).await?);
                    if in_flight.len() >= IN_FLIGHT {
                        made.letters += confirm(in_flight.pop_front()).await?;
                    }
                }
                through = Some(sequence);
            }
            for sent in in_flight {
                made.letters += confirm(Some(sent)).await?;
            }
            // What was counted has left the stream.
            let Some(through) = through else { break };
            made.through = Some(through);
        }
        Ok(())
    }

    /// Sends the dead letter of a message.
    async fn send(
        &self,
        bus: &MixerBus,
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
        let most = bus
            .client()
            .server_info()
            .max_payload
            .saturating_sub(telemetry_codec::HEADER_ROOM);
        if body.len() > most {
            reason = format!(
                "{reason}; it has {} bytes, and of them only the first {most} could be kept",
                body.len()
            );
            body.truncate(most);
        }
        let mut headers = HeaderMap::new();
        headers.insert(telemetry_codec::DEAD_REASON, reason.as_str());
        headers.insert(telemetry_codec::DEAD_PORT, self.to.port.as_str());
        headers.insert(telemetry_codec::DEAD_WAY, PortSide::In.as_str());
        headers.insert(telemetry_codec::DEAD_ATTEMPTS, "0");
        headers.insert(telemetry_codec::DEAD_FROM, message.subject.as_str());
        if let Some(entity) = entity {
            headers.insert(telemetry_codec::ENTITY_ID, entity.to_string());
        }
        let letter = PublishMessage::build().headers(headers).message_id(id).payload(body);
        let to = subject::gear(&self.rack, &self.to.gear);
        bus.jetstream().send_publish(to, letter).await.map_err(text)
    }

    /// The wire goes on behind this sequence, whatever becomes of its consumer.
    async fn move_wire(&self, stream: &Stream, registry: &Arc<ClusterRegistry>, through: u64) -> Result<(), String> {
        let mut consumer: PullConsumer = stream.get_consumer(&self.consumer).await.map_err(text)?;
        if consumer.cached_info().ack_floor.stream_sequence >= through {
            // Its receiver has taken it meanwhile.
            return Ok(());
        }
        let (name, before) = (self.name.clone(), (self.life, self.consumer.clone()));
        let put = move |change: &RegistryTransaction<'_>| change.move_wire(&name, &before, through + 1);
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
        .is_some_and(|headers| headers.get(telemetry_codec::PLACE).is_some());
    if is_of_a_rack {
        MessageSequence::new(message.payload.clone())
            .map(|(body, _)| body)
            .collect()
    } else {
        vec![message.payload.clone()]
    }
}

/// Has what the bus took on its disk.
async fn synced(sync: Option<&SyncBus>) -> Result<(), String> {
    let Some(sync) = sync.cloned() else { return Ok(()) };
    let synced = tokio::task::spawn_blocking(move || sync()).await;
    synced
        .map_err(text)?
        .map_err(|error| format!("the bus's files cannot be synced: {error}"))
}

/// Waits until a letter is on the stream, and counts it unless it was there.
async fn confirm(sent: Option<PublishAckFuture>) -> Result<u64, String> {
    match sent {
        Some(sent) => sent.await.map(|ack| u64::from(!ack.duplicate)).map_err(text),
        None => Ok(0),
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
            history.record(7, at(second), 100 + second);
        }
        assert!(history.moments.len() <= MOST_MOMENTS);
        let old = history.older_than(Duration::from_secs(5_000), at(10_000));
        assert!((5_092..=5_100).contains(&old), "{old}");
        assert_eq!(history.older_than(Duration::from_secs(20_000), at(10_000)), 0);
        history.record(8, at(10_000), 30_000);
        assert_eq!(history.older_than(Duration::from_secs(5), at(10_004)), 0);
        assert_eq!(history.older_than(Duration::from_secs(5), at(10_005)), 30_000);
    }
}
