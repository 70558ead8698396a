//! The durable consumer of the telemetry stream: opened, pulled, and opened again after whatever happens to the bus.
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
use crate::pipeline::Settings;

/// The consumer's durable name on the stream.
const NAME: &str = "ingest";

/// The open consumer and the stream's incarnation: when it was created, in µs.
pub(crate) struct Opened {
    pub(crate) consumer: PullConsumer,
    pub(crate) incarnation: i64,
}

fn bus_error<E: std::fmt::Display>(action: &'static str) -> impl Fn(E) -> Error {
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

pub(crate) async fn open(js: &Context, settings: &Settings) -> Result<Opened, Error> {
    let mut stream: BusStream = js
        .get_stream(subject::TELEMETRY_STREAM)
        .await
        .map_err(bus_error("find the stream flux-telemetry"))?;
    let created = stream
        .info()
        .await
        .map_err(bus_error("ask for the stream flux-telemetry"))?
        .created;
    let incarnation = i64::try_from(created.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX);
    let wanted = pull::Config {
        durable_name: Some(NAME.to_owned()),
        description: Some("stores telemetry".to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: ack_wait(settings.flush_interval),
        deliver_policy: DeliverPolicy::All,
        max_deliver: -1,
        max_ack_pending: i64::from(settings.buffer_size),
        filter_subject: subject::TELEMETRY_ALL.to_owned(),
        ..Default::default()
    };
    let consumer = stream
        .create_consumer(wanted)
        .await
        .map_err(bus_error("open the consumer ingest"))?;
    Ok(Opened { consumer, incarnation })
}
