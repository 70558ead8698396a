//! Pulls messages from a stream of the bus as far as there is room, and spawns a task that stores each one. One puller per stream.
//!
//! # Invariants
//!
//! - Messages that were sent and are not taken yet are bounded by the open pull requests ([`PullLimit`]).
//! - A message that is larger than a pull request (the bus once took larger ones) is pulled all the same, alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::{Context, Message};
use bytes::Bytes;
use engine::BusPosition;
use futures::StreamExt;
use model::telemetry_codec::{self, BatchEncoding};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::{info, warn};

use crate::consumer::{self, IngestSource, PullLimit, StreamConsumer};
use crate::error::Error;
use crate::message_processor::{InFlightPermit, MessagePosition, MessageProcessor};
use crate::stream_regression::StreamPoint;

/// How long a stop waits for the engine to take what is in flight.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// After two intervals without a message, the bus is asked whether it withholds one that is larger than a pull request.
const QUIET_INTERVAL: Duration = Duration::from_secs(3);
/// After so many messages, or a [`QUIET_INTERVAL`], the bus's acknowledgement floor is reported to the engine.
const MESSAGES_PER_FLOOR: u32 = 1 << 10;

/// The puller of one stream.
pub(crate) struct StreamPuller {
    pub(crate) source: IngestSource,
    pub(crate) processor: Arc<MessageProcessor>,
    pub(crate) js: Context,
    pub(crate) batches: Arc<Semaphore>,
    /// The stream's present incarnation.
    pub(crate) incarnation: Arc<AtomicI64>,
}

/// Why pulling with one limit ended.
enum PullOutcome {
    /// Another limit is needed.
    ChangeLimit(PullLimit),
    /// The connection or the consumer failed, or must be opened again.
    Broken,
    /// There is nothing more to do.
    Ended(Result<(), Error>),
}

impl StreamPuller {
    /// A puller of another source that shares this one's memory and services.
    pub(crate) fn for_source(&self, source: IngestSource) -> Self {
        Self {
            source,
            processor: Arc::clone(&self.processor),
            js: self.js.clone(),
            batches: Arc::clone(&self.batches),
            incarnation: Arc::default(),
        }
    }

    /// Opens the consumer again and again until stopped or until the engine is gone.
    pub(crate) async fn run(self) -> Result<(), Error> {
        let mut wait = Duration::from_millis(100);
        let mut store_tasks = JoinSet::new();
        let (mut taken, mut is_first_open) = (None, true);
        let ended = loop {
            let (settings, engine) = (&self.processor.settings, &self.processor.engine);
            let opened = tokio::select! {
                () = self.processor.stop.cancelled() => break Ok(()),
                opened = consumer::open(&self.js, &self.source, settings, engine, taken, is_first_open) => opened,
            };
            match opened {
                Ok(mut opened) => {
                    wait = Duration::from_millis(100);
                    let incarnation = opened.known.tail.incarnation;
                    self.incarnation.store(incarnation, Ordering::Relaxed);
                    info!(incarnation, of = self.source.description(), "consumer is open");
                    let was_rereading = opened.reread_through.is_some();
                    if let Some(end) = self.pull(&mut opened, &mut store_tasks).await {
                        break end;
                    }
                    if matches!(self.source, IngestSource::Messages(_)) {
                        self.processor.floors.reset();
                    }
                    // The acknowledgement floor of the durable consumer counts as stored, so first all that was read again must be.
                    if was_rereading && let Some(end) = self.wait_until_stored(&mut store_tasks).await {
                        break end;
                    }
                    // Unless the second reading reached its end, begin it again.
                    is_first_open = opened.reread_through.is_some();
                    taken = Some(opened.known);
                }
                Err(error) => warn!(%error, of = self.source.description(), "cannot read from the bus; retrying"),
            }
            self.processor.stats.counters.resubscriptions.add(1);
            tokio::select! {
                () = self.processor.stop.cancelled() => break Ok(()),
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(Duration::from_secs(5)),
            }
        };
        let drained = drain(&mut store_tasks).await;
        ended.and(drained)
    }

    /// Pulls until the consumer must be opened again (`None`), or until the pipeline ends (`Some`).
    async fn pull(
        &self,
        opened: &mut StreamConsumer,
        store_tasks: &mut JoinSet<Result<(), Error>>,
    ) -> Option<Result<(), Error>> {
        let mut limit = self.pull_limit();
        let end = loop {
            match self.pull_with_limit(limit, opened, store_tasks).await {
                PullOutcome::ChangeLimit(other) => limit = other,
                PullOutcome::Broken => break None,
                PullOutcome::Ended(end) => break Some(end),
            }
        };
        self.set_pulling(false);
        end
    }

    /// Waits until everything that was pulled is stored. `Some` if the pipeline ends meanwhile.
    async fn wait_until_stored(&self, store_tasks: &mut JoinSet<Result<(), Error>>) -> Option<Result<(), Error>> {
        loop {
            match self.unless_stopped(store_tasks.join_next()).await {
                None => return Some(Ok(())),
                Some(None) => return None,
                Some(Some(done)) => match join_result(done) {
                    Ok(()) => {}
                    Err(error) => return Some(Err(error)),
                },
            }
        }
    }

    fn pull_limit(&self) -> PullLimit {
        let inbound = self.processor.engine.settings().inbound_max;
        PullLimit::several(&self.processor.settings, inbound, &self.js.client())
    }

    /// Pulls with one limit for as long as it fits.
    async fn pull_with_limit(
        &self,
        limit: PullLimit,
        opened: &mut StreamConsumer,
        store_tasks: &mut JoinSet<Result<(), Error>>,
    ) -> PullOutcome {
        let mut messages = match opened.messages(limit).await {
            Ok(messages) => messages,
            Err(error) => {
                warn!(%error, of = self.source.description(), "the consumer cannot be pulled");
                return PullOutcome::Broken;
            }
        };
        self.set_pulling(true);
        let stop = &self.processor.stop;
        let mut quiet = interval_at(Instant::now() + QUIET_INTERVAL, QUIET_INTERVAL);
        quiet.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let client = self.js.client();
        let (mut has_received, mut is_suspected, mut since_floor) = (false, false, 0);
        loop {
            let message = tokio::select! {
                biased;
                () = stop.cancelled() => return PullOutcome::Ended(Ok(())),
                Some(done) = store_tasks.join_next() => match join_result(done) {
                    Ok(()) => continue,
                    Err(error) => return PullOutcome::Ended(Err(error)),
                },
                message = messages.next() => message,
                _ = quiet.tick(), if limit != PullLimit::One => {
                    if opened.reread_through.is_some()
                        && !has_received
                        && self.unless_stopped(opened.is_reread_complete()).await == Some(true)
                    {
                        opened.reread_through = None;
                        return PullOutcome::Broken;
                    }
                    if std::mem::take(&mut since_floor) > 0 {
                        self.unless_stopped(opened.report_ack_floor(&self.processor.engine)).await;
                    }
                    // A message that is on its way now will have come by the second look.
                    let is_held = !std::mem::take(&mut has_received)
                        && self.unless_stopped(opened.has_withheld_messages(store_tasks.len())).await == Some(true);
                    if std::mem::replace(&mut is_suspected, is_held) && is_held {
                        return PullOutcome::ChangeLimit(PullLimit::One);
                    }
                    continue;
                }
            };
            match message {
                Some(Ok(message)) => {
                    let size = message.length;
                    let point = StreamPoint::of(&message);
                    let is_last = opened
                        .reread_through
                        .is_some_and(|last| point.as_ref().is_ok_and(|point| point.seq >= last));
                    if let Ok(point) = &point {
                        let is_same_history = opened.check_history(*point, &client, &self.processor.engine);
                        match self.unless_stopped(is_same_history).await {
                            None => return PullOutcome::Ended(Ok(())),
                            Some(Ok(true)) => {}
                            // The message stays on the bus, if the bus still has it.
                            Some(Ok(false)) => return PullOutcome::Broken,
                            Some(Err(error)) => {
                                warn!(%error, of = self.source.description(), "pulling was interrupted");
                                return PullOutcome::Broken;
                            }
                        }
                    }
                    let placed = MessagePosition {
                        position: point.ok().map(|point| BusPosition {
                            stream: self.source.stream().to_owned(),
                            incarnation: opened.known.tail.incarnation,
                            seq: point.seq,
                            identity: point.identity,
                        }),
                        current: Arc::clone(&self.incarnation),
                    };
                    if !self.spawn_store(message, placed, store_tasks).await {
                        return PullOutcome::Ended(Ok(()));
                    }
                    if is_last {
                        opened.reread_through = None;
                        return PullOutcome::Broken;
                    }
                    since_floor += 1;
                    if since_floor == MESSAGES_PER_FLOOR {
                        since_floor = 0;
                        self.unless_stopped(opened.report_ack_floor(&self.processor.engine))
                            .await;
                    }
                    if limit == PullLimit::One && self.pull_limit().fits(size) {
                        return PullOutcome::ChangeLimit(self.pull_limit());
                    }
                    has_received = true;
                }
                Some(Err(error)) => {
                    warn!(%error, of = self.source.description(), "pulling was interrupted");
                    return PullOutcome::Broken;
                }
                None => return PullOutcome::Broken,
            }
        }
    }

    /// The answer; `None` if the pipeline is stopped first.
    async fn unless_stopped<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            () = self.processor.stop.cancelled() => None,
            answer = answer => Some(answer),
        }
    }

    /// Waits for room, then spawns a task that stores the message; false if the pipeline is stopped first.
    async fn spawn_store(
        &self,
        mut message: Message,
        position: MessagePosition,
        store_tasks: &mut JoinSet<Result<(), Error>>,
    ) -> bool {
        let Some(room) = self
            .acquire_permit(estimate_memory(
                &self.source,
                message.headers.as_ref(),
                &message.payload,
            ))
            .await
        else {
            return false;
        };
        // The payload is a slice of the connection's read buffer, and would keep all of that in memory for as long as rows share it.
        message.message.payload = Bytes::copy_from_slice(&message.payload);
        let (processor, source) = (Arc::clone(&self.processor), self.source.clone());
        store_tasks.spawn(async move { processor.store(&source, message, position, room).await });
        true
    }

    /// Reports whether ingest is ready. Only the puller of telemetry decides that.
    fn set_pulling(&self, pulling: bool) {
        if self.source == IngestSource::Telemetry {
            self.processor.stats.pulling.send_replace(pulling);
        }
    }

    /// Waits for room; `None` if the pipeline is stopped first.
    async fn acquire_permit(&self, bytes: u64) -> Option<InFlightPermit> {
        tokio::select! {
            () = self.processor.stop.cancelled() => None,
            room = async {
                let _batch = Arc::clone(&self.batches).acquire_owned().await.ok()?;
                let mut room = self.processor.engine.inbound().messages.room();
                room.grow(bytes).await;
                Some(InFlightPermit { _batch, bytes: room })
            } => room,
        }
    }
}

/// How many bytes to reserve before a message is copied and decoded.
fn estimate_memory(source: &IngestSource, headers: Option<&HeaderMap>, payload: &[u8]) -> u64 {
    let length = payload.len() as u64;
    // The message, a row of about its size, and the row as it is logged. So much takes a business message, and any dead letter.
    let as_row = length.saturating_mul(3);
    let content_type = headers.and_then(|headers| headers.get(telemetry_codec::CONTENT_TYPE));
    match (
        source,
        content_type.and_then(|name| name.as_str().parse::<BatchEncoding>().ok()),
    ) {
        // Whatever its content type: its values are decoded, and each may take many times its bytes.
        (IngestSource::Messages(_), _) => as_row.saturating_add(telemetry_codec::value_bytes(payload)),
        // Its rows and the log share its bytes, unless it becomes a dead letter or is encoded again.
        (IngestSource::Telemetry, Some(BatchEncoding::Arrow)) => {
            let unpacked = telemetry_codec::decoded_bytes(BatchEncoding::Arrow, payload).saturating_sub(length);
            as_row.saturating_add(unpacked)
        }
        // The message, its rows, and its rows as they are logged.
        (IngestSource::Telemetry, Some(encoding)) => {
            let decoded = telemetry_codec::decoded_bytes(encoding, payload).saturating_mul(2);
            length.saturating_add(decoded)
        }
        (IngestSource::Telemetry, None) => as_row,
    }
}

fn join_result(done: Result<Result<(), Error>, JoinError>) -> Result<(), Error> {
    done?
}

/// Waits for the messages that are being stored. Those that still wait for the engine after [`DRAIN_TIMEOUT`] stay on the bus,
/// unacknowledged.
async fn drain(store_tasks: &mut JoinSet<Result<(), Error>>) -> Result<(), Error> {
    let mut first = Ok(());
    let all = async {
        while let Some(done) = store_tasks.join_next().await {
            first = std::mem::replace(&mut first, Ok(())).and(join_result(done));
        }
    };
    if tokio::time::timeout(DRAIN_TIMEOUT, all).await.is_err() {
        warn!(
            batches = store_tasks.len(),
            "not everything was stored before the stop; the bus keeps the rest"
        );
        store_tasks.shutdown().await;
    }
    first
}

#[cfg(test)]
mod tests;
