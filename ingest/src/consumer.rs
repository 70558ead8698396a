//! The durable consumers of the telemetry stream and of the business stream: opened, pulled, and opened again after whatever happens to the bus.
//!
//! # Invariants
//!
//! - What is sent before it is taken is bounded in bytes: one request brings a sixteenth of [`engine::Settings::inbound_max`] at most, or one
//!   message of the largest size that the bus takes, and at most four are open at once. The next one is made when half of the messages
//!   or bytes of one are taken, so that there are two; where nothing is taken for minutes, two more are made.
//! - `max_deliver` is unlimited: a message that cannot be decoded ends as a dead letter, so nothing loops.
//! - What was delivered and is not in the store (its machine is lost, or an older state was restored) is read again when a
//!   process begins, acknowledged or not, as far as the bus still has it; the durable consumer is opened when that is stored.
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

/// Messages asked for at once.
const PULL: usize = 256;
/// Their share of the bytes that may be in flight.
const PULL_SHARE: u64 = 16;
/// What the bus counts of a message beside what it limits.
const PULL_ROOM: usize = 64 << 10;
/// So long after its last reader the bus forgets the consumer of what is read again.
const AGAIN_IDLE: Duration = Duration::from_secs(60);
/// How often the bus says that it is still there.
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

    /// What it reads, in words.
    pub(crate) const fn description(&self) -> &'static str {
        match self {
            Self::Telemetry => "telemetry",
            Self::Messages(_) => "business messages",
        }
    }

    fn subjects(&self) -> Vec<String> {
        match self {
            Self::Telemetry => vec![subject::TELEMETRY_ALL.to_owned()],
            Self::Messages(messages) => messages.subjects.clone(),
        }
    }
}

/// The open consumer, and how far it took its stream.
pub(crate) struct StreamConsumer {
    consumer: PullConsumer,
    stream: BusStream,
    /// Which connection the stream was compared on last.
    connection: u64,
    pub(crate) known: KnownStream,
    /// The highest sequence that was delivered for the first time.
    delivered: u64,
    /// What is read again ends there, without an acknowledgement; none for the durable consumer.
    pub(crate) through: Option<u64>,
}

/// How messages are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PullLimit {
    /// So many that have so many bytes together.
    Several { messages: usize, bytes: usize },
    /// One, however large it is.
    One,
}

impl PullLimit {
    /// What has room here, at least one message of the largest size that the bus takes now.
    pub(crate) fn several(settings: &IngestSettings, inbound: ByteSize, client: &Client) -> Self {
        let share = usize::try_from(inbound.get() / PULL_SHARE).unwrap_or(usize::MAX);
        let most = client.server_info().max_payload.saturating_add(PULL_ROOM);
        Self::Several {
            messages: (settings.buffer_size as usize).clamp(1, PULL),
            bytes: share.max(most),
        }
    }

    /// Whether it could bring a message of this size.
    pub(crate) const fn brings(self, size: usize) -> bool {
        match self {
            Self::Several { bytes, .. } => size <= bytes,
            Self::One => true,
        }
    }
}

impl StreamConsumer {
    /// The messages, asked for again and again.
    pub(crate) async fn messages(&self, ask: PullLimit) -> Result<pull::Stream, Error> {
        let stream = self.consumer.stream().heartbeat(HEARTBEAT);
        let stream = match ask {
            PullLimit::Several { messages, bytes } => {
                stream.max_messages_per_batch(messages).max_bytes_per_batch(bytes)
            }
            PullLimit::One => stream.max_messages_per_batch(1),
        };
        let name = &self.consumer.cached_info().name;
        stream.messages().await.map_err(bus_error("pull from", name))
    }

    /// Whether a message is of the history that its stream was compared with. A connection that is new, or a sequence that came
    /// before, has it compared once more.
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

    /// Tells the engine up to where the bus delivers nothing any more. Not of a stream that has lost its end, whose consumer may
    /// say what was acknowledged before; nor above the highest sequence that is known here.
    pub(crate) async fn raise_floor(&self, engine: &Engine) {
        let incarnation = self.known.tail.incarnation;
        if incarnation == self.known.created
            && self.through.is_none()
            && let Ok(said) = self.consumer.get_info().await
        {
            let floor = said.ack_floor.stream_sequence.min(self.known.tail.last);
            engine.raise_stream_floor(&said.stream_name, incarnation, floor);
        }
    }

    /// Whether the bus has nothing more to read again. Where it does not answer nothing is known.
    pub(crate) async fn is_reread_complete(&self) -> bool {
        let said = self.consumer.get_info().await;
        said.is_ok_and(|said| said.num_pending == 0)
    }

    /// Whether the bus has something for us beside so many messages that are with us. Where it does not answer nothing is known.
    pub(crate) async fn has_withheld_messages(&self, with_us: usize) -> bool {
        let said = self.consumer.get_info().await;
        said.is_ok_and(|said| said.num_pending > 0 || said.num_ack_pending > with_us)
    }
}

/// How long the bus waits for an acknowledgement before it sends a message again: work that goes on tells it so at every
/// interval, so this is what a Mixer that was killed makes its last batches wait.
pub(crate) fn ack_wait(flush_interval: Duration) -> Duration {
    flush_interval * 2 + Duration::from_secs(10)
}

/// The first message up to a sequence that the store does not know and the bus still has.
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

/// What a process that begins reads again: from the first message that the bus delivered, that the store lacks and that the bus
/// still has, through the last one that it delivered. Behind the acknowledgement floor, too, some may be acknowledged.
async fn find_unstored_range(
    stream: &BusStream,
    source: &IngestSource,
    engine: &Engine,
    known: &KnownStream,
) -> Result<Option<(u64, u64)>, Error> {
    let said = match stream.consumer_info(source.name()).await {
        Ok(said) => said,
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
    let through = said.delivered.stream_sequence;
    let first = first_unstored(stream, source, engine, known, through).await?;
    Ok(first.map(|first| (first, through)))
}

/// Opens the consumer of a stream that was taken so far in this process; where the process begins and the store lacks what was
/// delivered, one for that first.
pub(crate) async fn open(
    js: &Context,
    source: &IngestSource,
    settings: &IngestSettings,
    engine: &Engine,
    taken: Option<KnownStream>,
    begins: bool,
) -> Result<StreamConsumer, Error> {
    let connection = connections(&js.client());
    let stream: BusStream = js
        .get_stream(source.stream())
        .await
        .map_err(bus_error("find the stream", source.stream()))?;
    let known = check_regression(&stream, engine, taken).await?;
    let again = match begins {
        true => find_unstored_range(&stream, source, engine, &known).await?,
        false => None,
    };
    let mut wanted = pull::Config {
        description: Some(format!("stores {}", source.description())),
        ..Default::default()
    };
    if let Some((start_sequence, through)) = again {
        info!(
            stream = source.stream(),
            start_sequence, through, "reading messages again that were delivered but not stored"
        );
        wanted.ack_policy = AckPolicy::None;
        wanted.deliver_policy = DeliverPolicy::ByStartSequence { start_sequence };
        wanted.memory_storage = true;
        wanted.inactive_threshold = AGAIN_IDLE;
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
        through: again.map(|(_, through)| through),
    };
    opened.raise_floor(engine).await;
    Ok(opened)
}
