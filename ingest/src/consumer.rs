//! Durable consumers of the telemetry stream and of the stream of business messages, opened again whenever the bus breaks off.
//!
//! # Invariants
//!
//! - Messages that were delivered but not taken are bounded in bytes. One pull request asks for a sixteenth of
//!   [`engine::Settings::inbound_max`], or for one message of the largest size that the bus takes; usually two requests are open, at most
//!   four. The next one is made when half of the messages or bytes of a request are taken; if none is taken for minutes, two more are made.
//! - `max_deliver` is unlimited: a message that cannot be decoded ends as a dead letter, so no message is redelivered for ever.
//! - Messages that were delivered but are not in the store (its machine was lost, or an older state was restored) are read again when
//!   the process starts, acknowledged or not, as far as the bus still has them. The durable consumer is opened once they are stored.
//! - The acknowledgement wait covers two flush intervals and a slow disk; longer waits send progress.

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{ConsumerInfoErrorKind, Context};
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream as BusStream};
use engine::Engine;
use model::{ByteSize, subject};
use tracing::{info, warn};

use crate::error::{Error, bus_error};
use crate::settings::{ArchiveSource, IngestSettings};
use crate::stream_regression::{KnownStream, StreamPoint, check_regression, connections};

/// The most messages of one pull request.
const PULL_MESSAGES: usize = 256;
/// A pull request asks for this fraction (one sixteenth) of the bytes that may be in flight.
const PULL_SHARE: u64 = 16;
/// What the bus counts of a message in addition to its payload, which alone has a limit.
const PULL_OVERHEAD: usize = 64 << 10;
/// The bus deletes the temporary consumer of a second reading when nobody has read from it for this long.
const REREAD_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the bus sends a heartbeat for an open pull request.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// What a consumer reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IngestSource {
    /// Telemetry batches.
    Telemetry,
    /// Business messages.
    Messages(ArchiveSource),
}

impl IngestSource {
    /// The stream's name.
    pub(crate) fn stream(&self) -> &str {
        match self {
            Self::Telemetry => subject::TELEMETRY_STREAM,
            Self::Messages(messages) => &messages.stream,
        }
    }

    /// The consumer's durable name on the stream.
    const fn name(&self) -> &'static str {
        match self {
            Self::Telemetry => "ingest",
            Self::Messages(_) => "archive",
        }
    }

    /// What it reads, for log messages.
    pub(crate) const fn description(&self) -> &'static str {
        match self {
            Self::Telemetry => "telemetry",
            Self::Messages(_) => "business messages",
        }
    }

    /// Whether the rows that it reads are stored.
    pub(crate) const fn keeps_rows(&self) -> bool {
        match self {
            Self::Telemetry => true,
            Self::Messages(messages) => messages.keeps_messages,
        }
    }

    fn subjects(&self) -> Vec<String> {
        match self {
            Self::Telemetry => vec![subject::TELEMETRY_ALL.to_owned()],
            Self::Messages(messages) => messages.subjects.clone(),
        }
    }
}

/// An open consumer, and how far it has read its stream.
pub(crate) struct StreamConsumer {
    consumer: PullConsumer,
    stream: BusStream,
    /// The number of the connection on which the stream was last checked for regression.
    connection: u64,
    pub(crate) known: KnownStream,
    /// The highest sequence that was delivered for the first time.
    delivered: u64,
    /// The last sequence of a second reading, which acknowledges nothing; none for the durable consumer.
    pub(crate) reread_through: Option<u64>,
}

/// How much one pull request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PullLimit {
    /// At most so many messages, of at most so many bytes together.
    Several { messages: usize, bytes: usize },
    /// One message, however large it is.
    One,
}

impl PullLimit {
    /// As much as there is room for, but at least one message of the largest size that the bus takes now.
    pub(crate) fn several(settings: &IngestSettings, inbound: ByteSize, client: &Client) -> Self {
        let share = usize::try_from(inbound.get() / PULL_SHARE).unwrap_or(usize::MAX);
        let largest = client.server_info().max_payload.saturating_add(PULL_OVERHEAD);
        Self::Several {
            messages: (settings.buffer_size as usize).clamp(1, PULL_MESSAGES),
            bytes: share.max(largest),
        }
    }

    /// Whether a message of this size fits into one request.
    pub(crate) const fn fits(self, size: usize) -> bool {
        match self {
            Self::Several { bytes, .. } => size <= bytes,
            Self::One => true,
        }
    }
}

impl StreamConsumer {
    /// The messages of consecutive pull requests.
    pub(crate) async fn messages(&self, limit: PullLimit) -> Result<pull::Stream, Error> {
        let stream = self.consumer.stream().heartbeat(HEARTBEAT);
        let stream = match limit {
            PullLimit::Several { messages, bytes } => {
                stream.max_messages_per_batch(messages).max_bytes_per_batch(bytes)
            }
            PullLimit::One => stream.max_messages_per_batch(1),
        };
        let name = &self.consumer.cached_info().name;
        stream.messages().await.map_err(bus_error("pull from", name))
    }

    /// Whether a message belongs to the history that the stream was checked against. On a new connection, or if a sequence comes
    /// twice as a first delivery, the stream is checked again.
    pub(crate) async fn check_history(
        &mut self,
        point: StreamPoint,
        client: &Client,
        engine: &Engine,
    ) -> Result<bool, Error> {
        let connection = connections(client);
        if connection != self.connection || (point.is_first && point.seq <= self.delivered) {
            let known = check_regression(&self.stream, engine, Some(self.known)).await?;
            if known.tail.incarnation != self.known.tail.incarnation {
                return Ok(false);
            }
            self.connection = connection;
        }
        if point.is_first {
            self.delivered = point.seq;
        }
        self.known.advance(point);
        Ok(true)
    }

    /// Reports the bus's acknowledgement floor, below which it redelivers nothing, to the engine. Not for a stream that has lost its
    /// end, because its consumer may report what was acknowledged before; and never above the highest sequence that is known here.
    pub(crate) async fn report_ack_floor(&self, engine: &Engine) {
        let incarnation = self.known.tail.incarnation;
        if incarnation == self.known.created
            && self.reread_through.is_none()
            && let Ok(consumer_info) = self.consumer.get_info().await
        {
            let floor = consumer_info.ack_floor.stream_sequence.min(self.known.tail.last);
            engine.raise_stream_floor(&consumer_info.stream_name, incarnation, floor);
        }
    }

    /// Whether the second reading has reached its end. False if the bus does not answer.
    pub(crate) async fn is_reread_complete(&self) -> bool {
        let consumer_info = self.consumer.get_info().await;
        consumer_info.is_ok_and(|consumer_info| consumer_info.num_pending == 0)
    }

    /// Whether the bus has more messages for us than the `in_flight` ones that are being stored. False if the bus does not answer.
    pub(crate) async fn has_withheld_messages(&self, in_flight: usize) -> bool {
        let consumer_info = self.consumer.get_info().await;
        consumer_info
            .is_ok_and(|consumer_info| consumer_info.num_pending > 0 || consumer_info.num_ack_pending > in_flight)
    }
}

/// How long the bus waits for an acknowledgement before it sends a message again. Work in progress extends it at every interval,
/// so this is how long the last batches of a killed Mixer wait for their redelivery.
pub(crate) fn ack_wait(flush_interval: Duration) -> Duration {
    flush_interval * 2 + Duration::from_secs(10)
}

/// The first message, up to the sequence `through`, that is not stored and that the bus still has.
async fn first_unstored(
    stream: &BusStream,
    source: &IngestSource,
    engine: &Engine,
    known: &KnownStream,
    through: u64,
) -> Result<Option<u64>, Error> {
    let (name, incarnation) = (source.stream(), known.tail.incarnation);
    let mut from = engine.first_missing(name, incarnation, 1);
    while from <= through {
        let mut next = u64::MAX;
        for subject in source.subjects() {
            match stream.get_first_raw_message_by_subject(subject, from).await {
                Ok(found) => next = next.min(found.sequence),
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {}
                Err(error) => return Err(bus_error("look for what is not stored of", name)(error)),
            }
        }
        from = engine.first_missing(name, incarnation, next);
        if from == next {
            return Ok(Some(next).filter(|next| *next <= through));
        }
    }
    Ok(None)
}

/// The range of sequences that a starting process reads again: from the first message that was delivered, is not stored and is
/// still on the bus, through the last one that was delivered. Some of them may be acknowledged, even above the acknowledgement floor.
async fn find_unstored_range(
    stream: &BusStream,
    source: &IngestSource,
    engine: &Engine,
    known: &KnownStream,
) -> Result<Option<(u64, u64)>, Error> {
    let consumer_info = match stream.consumer_info(source.name()).await {
        Ok(consumer_info) => consumer_info,
        Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(bus_error("ask for the consumer", source.name())(error)),
    };
    if known.tail.incarnation != known.created {
        warn!(
            stream = source.stream(),
            "the stream once lost its last messages: acknowledged messages that were not stored are not read again"
        );
        return Ok(None);
    }
    let through = consumer_info.delivered.stream_sequence;
    let first = first_unstored(stream, source, engine, known, through).await?;
    Ok(first.map(|first| (first, through)))
}

/// Opens the consumer of a stream. `taken` is how far this process has read it. At the start of a process, if delivered messages are
/// not stored, this opens a temporary consumer that reads those first.
pub(crate) async fn open(
    js: &Context,
    source: &IngestSource,
    settings: &IngestSettings,
    engine: &Engine,
    taken: Option<KnownStream>,
    is_first_open: bool,
) -> Result<StreamConsumer, Error> {
    let connection = connections(&js.client());
    let stream: BusStream = js
        .get_stream(source.stream())
        .await
        .map_err(bus_error("find the stream", source.stream()))?;
    let known = check_regression(&stream, engine, taken).await?;
    let reread_range = match is_first_open {
        true => find_unstored_range(&stream, source, engine, &known).await?,
        false => None,
    };
    let mut wanted = pull::Config {
        description: Some(format!("stores {}", source.description())),
        ..Default::default()
    };
    if let Some((start_sequence, through)) = reread_range {
        info!(
            stream = source.stream(),
            start_sequence, through, "reading messages again that were delivered but not stored"
        );
        wanted.ack_policy = AckPolicy::None;
        wanted.deliver_policy = DeliverPolicy::ByStartSequence { start_sequence };
        wanted.memory_storage = true;
        wanted.inactive_threshold = REREAD_IDLE_TIMEOUT;
    } else {
        wanted.durable_name = Some(source.name().to_owned());
        wanted.ack_policy = AckPolicy::Explicit;
        wanted.ack_wait = ack_wait(settings.flush_interval);
        wanted.deliver_policy = DeliverPolicy::All;
        wanted.max_deliver = -1;
        wanted.max_ack_pending = i64::from(settings.buffer_size);
    }
    match source.subjects().as_slice() {
        [one] => wanted.filter_subject.clone_from(one),
        several => wanted.filter_subjects = several.to_vec(),
    }
    let consumer = stream
        .create_consumer(wanted)
        .await
        .map_err(bus_error("open the consumer", source.name()))?;
    let opened = StreamConsumer {
        consumer,
        stream,
        connection,
        known,
        delivered: 0,
        reread_through: reread_range.map(|(_, through)| through),
    };
    opened.report_ack_floor(engine).await;
    Ok(opened)
}
