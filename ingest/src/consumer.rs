//! The durable consumers of the telemetry stream and of the business stream: opened, pulled, and opened again after whatever happens to the bus.
//!
//! # Invariants
//!
//! - `max_deliver` is unlimited: a message that cannot be decoded ends as a dead letter, so nothing loops.
//! - The acknowledgement wait covers two flush intervals and a slow disk; longer waits send progress.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::{Context, stream::Stream as BusStream};
use model::subject;

use crate::error::Error;
use crate::pipeline::{Messages, Settings};

/// What a consumer reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Feed {
    /// Telemetry batches.
    Telemetry,
    /// Business messages.
    Messages(Messages),
}

impl Feed {
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
    pub(crate) const fn what(&self) -> &'static str {
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

/// The open consumer and the stream's incarnation: when it was created, in µs.
pub(crate) struct Opened {
    pub(crate) consumer: PullConsumer,
    pub(crate) incarnation: i64,
}

fn bus_error<E: std::fmt::Display>(action: &'static str, name: &str) -> impl FnOnce(E) -> Error {
    let action = format!("{action} {name}");
    move |error| Error::Bus {
        action,
        reason: error.to_string(),
    }
}

/// How long the bus waits for an acknowledgement before it sends a message again: work that goes on tells it so at every
/// interval, so this is what a Mixer that was killed makes its last batches wait.
pub(crate) fn ack_wait(flush_interval: Duration) -> Duration {
    flush_interval * 2 + Duration::from_secs(10)
}

pub(crate) async fn open(js: &Context, feed: &Feed, settings: &Settings) -> Result<Opened, Error> {
    let mut stream: BusStream = js
        .get_stream(feed.stream())
        .await
        .map_err(bus_error("find the stream", feed.stream()))?;
    let created = stream
        .info()
        .await
        .map_err(bus_error("ask for the stream", feed.stream()))?
        .created;
    let incarnation = i64::try_from(created.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX);
    let mut wanted = pull::Config {
        durable_name: Some(feed.name().to_owned()),
        description: Some(format!("stores {}", feed.what())),
        ack_policy: AckPolicy::Explicit,
        ack_wait: ack_wait(settings.flush_interval),
        deliver_policy: DeliverPolicy::All,
        max_deliver: -1,
        max_ack_pending: i64::from(settings.buffer_size),
        ..Default::default()
    };
    match feed.subjects().as_slice() {
        [one] => wanted.filter_subject.clone_from(one),
        several => wanted.filter_subjects = several.to_vec(),
    }
    let consumer = stream
        .create_consumer(wanted)
        .await
        .map_err(bus_error("open the consumer", feed.name()))?;
    Ok(Opened { consumer, incarnation })
}
