//! One puller for each stream: takes its messages from the bus, as far as there is room, and has each one stored.
//!
//! # Invariants
//!
//! - What was sent and is not taken yet is bounded by what is asked for ([`PullLimit`]).
//! - A message that is larger than what is asked for, from when the bus took larger ones, comes all the same, alone.

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
use crate::stats::IngestStats;
use crate::stream_regression::StreamPoint;

/// How long a stop waits for the engine to take what is in flight.
const DRAIN: Duration = Duration::from_secs(10);
/// So long without a message, twice, and the bus is asked whether it keeps one back that is larger than what is asked for.
const QUIET: Duration = Duration::from_secs(3);
/// After so many messages, or [`QUIET`], the engine is told how far the bus is done.
const FLOOR_EVERY: u32 = 1 << 10;

/// See the module.
pub(crate) struct StreamPuller {
    pub(crate) source: IngestSource,
    pub(crate) shared: Arc<MessageProcessor>,
    pub(crate) js: Context,
    pub(crate) batches: Arc<Semaphore>,
    /// The stream's incarnation.
    pub(crate) incarnation: Arc<AtomicI64>,
}

/// Why messages are not asked for any more as they were.
enum PullOutcome {
    /// Another way is needed.
    Otherwise(PullLimit),
    /// The bus broke.
    Broken,
    /// There is nothing more to do.
    Ended(Result<(), Error>),
}

impl StreamPuller {
    /// Another one, in the same room.
    pub(crate) fn for_source(&self, source: IngestSource) -> Self {
        Self {
            source,
            shared: Arc::clone(&self.shared),
            js: self.js.clone(),
            batches: Arc::clone(&self.batches),
            incarnation: Arc::default(),
        }
    }

    /// Opens the consumer again and again until stopped or until the engine is gone.
    pub(crate) async fn run(self) -> Result<(), Error> {
        let mut wait = Duration::from_millis(100);
        let mut storing = JoinSet::new();
        let (mut taken, mut begins) = (None, true);
        let ended = loop {
            let (settings, engine) = (&self.shared.settings, &self.shared.engine);
            let opened = tokio::select! {
                () = self.shared.stop.cancelled() => break Ok(()),
                opened = consumer::open(&self.js, &self.source, settings, engine, taken, begins) => opened,
            };
            match opened {
                Ok(mut opened) => {
                    wait = Duration::from_millis(100);
                    let incarnation = opened.known.tail.incarnation;
                    self.incarnation.store(incarnation, Ordering::Relaxed);
                    info!(incarnation, of = self.source.description(), "consumer is open");
                    let reads_again = opened.through.is_some();
                    if let Some(end) = self.pull(&mut opened, &mut storing).await {
                        break end;
                    }
                    if matches!(self.source, IngestSource::Messages(_)) {
                        self.shared.floors.reset();
                    }
                    // Only then may the acknowledgement floor of the durable consumer count as stored.
                    if reads_again && let Some(end) = self.all_stored(&mut storing).await {
                        break end;
                    }
                    begins = opened.through.is_some();
                    taken = Some(opened.known);
                }
                Err(error) => warn!(%error, of = self.source.description(), "cannot read from the bus; retrying"),
            }
            IngestStats::add(&self.shared.stats.resubscribed, 1);
            tokio::select! {
                () = self.shared.stop.cancelled() => break Ok(()),
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(Duration::from_secs(5)),
            }
        };
        let drained = drain(&mut storing).await;
        ended.and(drained)
    }

    /// Pulls until the bus breaks (`None`), or until the end (`Some`).
    async fn pull(
        &self,
        opened: &mut StreamConsumer,
        storing: &mut JoinSet<Result<(), Error>>,
    ) -> Option<Result<(), Error>> {
        let mut ask = self.pull_limit();
        let end = loop {
            match self.pull_as(ask, opened, storing).await {
                PullOutcome::Otherwise(other) => ask = other,
                PullOutcome::Broken => break None,
                PullOutcome::Ended(end) => break Some(end),
            }
        };
        self.set_pulling(false);
        end
    }

    /// Waits until everything is stored; the end if there is one.
    async fn all_stored(&self, storing: &mut JoinSet<Result<(), Error>>) -> Option<Result<(), Error>> {
        loop {
            match self.unless_stopped(storing.join_next()).await {
                None => return Some(Ok(())),
                Some(None) => return None,
                Some(Some(done)) => match flatten(done) {
                    Ok(()) => {}
                    Err(error) => return Some(Err(error)),
                },
            }
        }
    }

    fn pull_limit(&self) -> PullLimit {
        let inbound = self.shared.engine.settings().inbound_max;
        PullLimit::several(&self.shared.settings, inbound, &self.js.client())
    }

    /// Pulls in one way.
    async fn pull_as(
        &self,
        ask: PullLimit,
        opened: &mut StreamConsumer,
        storing: &mut JoinSet<Result<(), Error>>,
    ) -> PullOutcome {
        let mut messages = match opened.messages(ask).await {
            Ok(messages) => messages,
            Err(error) => {
                warn!(%error, of = self.source.description(), "the consumer cannot be pulled");
                return PullOutcome::Broken;
            }
        };
        self.set_pulling(true);
        let stop = &self.shared.stop;
        let mut quiet = interval_at(Instant::now() + QUIET, QUIET);
        quiet.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let client = self.js.client();
        let (mut came, mut is_suspected, mut since_floor) = (false, false, 0);
        loop {
            let message = tokio::select! {
                biased;
                () = stop.cancelled() => return PullOutcome::Ended(Ok(())),
                Some(done) = storing.join_next() => match flatten(done) {
                    Ok(()) => continue,
                    Err(error) => return PullOutcome::Ended(Err(error)),
                },
                message = messages.next() => message,
                _ = quiet.tick(), if ask != PullLimit::One => {
                    if opened.through.is_some() && !came && self.unless_stopped(opened.is_reread_complete()).await == Some(true) {
                        opened.through = None;
                        return PullOutcome::Broken;
                    }
                    if std::mem::take(&mut since_floor) > 0 {
                        self.unless_stopped(opened.raise_floor(&self.shared.engine)).await;
                    }
                    // What is on its way just now has come by the second time.
                    let is_held = !std::mem::take(&mut came) && self.unless_stopped(opened.has_withheld_messages(storing.len())).await == Some(true);
                    if std::mem::replace(&mut is_suspected, is_held) && is_held {
                        return PullOutcome::Otherwise(PullLimit::One);
                    }
                    continue;
                }
            };
            match message {
                Some(Ok(message)) => {
                    let size = message.length;
                    let point = StreamPoint::of(&message);
                    let is_last = opened
                        .through
                        .is_some_and(|last| point.as_ref().is_ok_and(|point| point.seq >= last));
                    if let Ok(point) = &point {
                        let has = opened.check_history(*point, &client, &self.shared.engine);
                        match self.unless_stopped(has).await {
                            None => return PullOutcome::Ended(Ok(())),
                            Some(Ok(true)) => {}
                            // It stays on the bus, if the bus has it.
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
                    if !self.spawn_store(message, placed, storing).await {
                        return PullOutcome::Ended(Ok(()));
                    }
                    if is_last {
                        opened.through = None;
                        return PullOutcome::Broken;
                    }
                    since_floor += 1;
                    if since_floor == FLOOR_EVERY {
                        since_floor = 0;
                        self.unless_stopped(opened.raise_floor(&self.shared.engine)).await;
                    }
                    if ask == PullLimit::One && self.pull_limit().brings(size) {
                        return PullOutcome::Otherwise(self.pull_limit());
                    }
                    came = true;
                }
                Some(Err(error)) => {
                    warn!(%error, of = self.source.description(), "pulling was interrupted");
                    return PullOutcome::Broken;
                }
                None => return PullOutcome::Broken,
            }
        }
    }

    /// What the bus answers; `None` when stopped meanwhile.
    async fn unless_stopped<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            () = self.shared.stop.cancelled() => None,
            answer = answer => Some(answer),
        }
    }

    /// Has a message stored once there is room for it; false when stopped meanwhile.
    async fn spawn_store(
        &self,
        mut message: Message,
        position: MessagePosition,
        storing: &mut JoinSet<Result<(), Error>>,
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
        // It is a slice of what was read from the bus, all of which it would keep alive: as long as its rows where they share it.
        message.message.payload = Bytes::copy_from_slice(&message.payload);
        let (shared, feed) = (Arc::clone(&self.shared), self.source.clone());
        storing.spawn(async move { shared.store(&feed, message, position, room).await });
        true
    }

    /// Telemetry tells whether ingest is ready.
    fn set_pulling(&self, pulling: bool) {
        if self.source == IngestSource::Telemetry {
            self.shared.stats.pulling.send_replace(pulling);
        }
    }

    /// Waits for room; `None` when stopped meanwhile.
    async fn acquire_permit(&self, bytes: u64) -> Option<InFlightPermit> {
        tokio::select! {
            () = self.shared.stop.cancelled() => None,
            room = async {
                let _batch = Arc::clone(&self.batches).acquire_owned().await.ok()?;
                let mut room = self.shared.engine.inbound().messages.room();
                room.grow(bytes).await;
                Some(InFlightPermit { _batch, bytes: room })
            } => room,
        }
    }
}

/// The bytes to make room for before a message is decoded, a copy of what was read.
fn estimate_memory(source: &IngestSource, headers: Option<&HeaderMap>, payload: &[u8]) -> u64 {
    let length = payload.len() as u64;
    // The message, a row of about its bytes, and the row as it is logged: a business message, or what becomes a dead letter.
    let row = length.saturating_mul(3);
    let said = headers.and_then(|headers| headers.get(telemetry_codec::CONTENT_TYPE));
    match (
        source,
        said.and_then(|said| said.as_str().parse::<BatchEncoding>().ok()),
    ) {
        // Whatever it is called: its values are read, each of them many times its bytes.
        (IngestSource::Messages(_), _) => row.saturating_add(telemetry_codec::value_bytes(payload)),
        // Rows and what is logged share its bytes, unless it becomes a dead letter or is written anew.
        (IngestSource::Telemetry, Some(BatchEncoding::Arrow)) => {
            let unpacked = telemetry_codec::decoded_bytes(BatchEncoding::Arrow, payload).saturating_sub(length);
            row.saturating_add(unpacked)
        }
        // The message, its rows, and they as they are logged.
        (IngestSource::Telemetry, Some(encoding)) => {
            let decoded = telemetry_codec::decoded_bytes(encoding, payload).saturating_mul(2);
            length.saturating_add(decoded)
        }
        (IngestSource::Telemetry, None) => row,
    }
}

fn flatten(done: Result<Result<(), Error>, JoinError>) -> Result<(), Error> {
    done?
}

/// Waits for what is being stored. What the engine still makes wait after [`DRAIN`] stays unacknowledged on the bus.
async fn drain(storing: &mut JoinSet<Result<(), Error>>) -> Result<(), Error> {
    let mut first = Ok(());
    let all = async {
        while let Some(done) = storing.join_next().await {
            first = std::mem::replace(&mut first, Ok(())).and(flatten(done));
        }
    };
    if tokio::time::timeout(DRAIN, all).await.is_err() {
        warn!(
            batches = storing.len(),
            "not everything was stored before the stop; the bus keeps the rest"
        );
        storing.shutdown().await;
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ArchiveSource;

    fn of_kind(content_type: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(telemetry_codec::CONTENT_TYPE, content_type);
        headers
    }

    #[test]
    fn a_message_has_room_for_its_values_whatever_it_is_called_and_telemetry_for_what_may_become_of_it() {
        let messages = IngestSource::Messages(ArchiveSource {
            stream: "flux".to_owned(),
            subjects: Vec::new(),
        });
        // As Racks send them, and as others do.
        let cbor = of_kind(BatchEncoding::Cbor.content_type());
        let objects = [&[0x99, 0x27, 0x10][..], &[0xa0; 10_000]].concat();
        for headers in [Some(&cbor), None] {
            let weight = estimate_memory(&messages, headers, &objects);
            assert!(
                weight >= 3 * 10_003 + telemetry_codec::value_bytes(&objects),
                "{weight}"
            );
        }
        let usual = [&[0x79, 0x03, 0xe8][..], &[b'x'; 1_000]].concat();
        let few = estimate_memory(&messages, Some(&cbor), &usual);
        assert!(few < 4 * usual.len() as u64, "{few}");

        let as_telemetry = |encoding: BatchEncoding| {
            estimate_memory(
                &IngestSource::Telemetry,
                Some(&of_kind(encoding.content_type())),
                &usual,
            )
        };
        let length = usual.len() as u64;
        assert_eq!(
            as_telemetry(BatchEncoding::Arrow),
            3 * length,
            "nothing in it is compressed"
        );
        let rows = telemetry_codec::decoded_bytes(BatchEncoding::Cbor, &usual);
        assert_eq!(as_telemetry(BatchEncoding::Cbor), length + 2 * rows);
    }
}
