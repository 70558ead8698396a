//! Processes one message of the bus: decodes it, appends it to the engine, acknowledges it; stores a dead letter if that fails.
//!
//! # Invariants
//!
//! - A message is acknowledged after its rows are durable, never before. If nothing of it can ever be stored, the bus is told to end
//!   its delivery.
//! - While a batch waits for the engine, the bus is told at every flush interval that it is in progress.
//!
//! # Not here
//!
//! Reading the bus (`puller`), decoding messages (`decode`, `archive`).

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::{AckKind, Message};
use bytes::Bytes;
use engine::{AppendBatch, AppendOutcome, BatchOrigin, BusPosition, Engine, ErrorKind, InboundRoom, SpecName};
use model::telemetry_codec::{self, BatchId};
use model::{Clock, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::archive::archive;
use crate::consumer::IngestSource;
use crate::decode::{DecodedBatch, InboundMessage, PayloadTruncation, dead_letter, decode, origin};
use crate::durable_floors::DurableFloorTracker;
use crate::error::Error;
use crate::publisher_identity::{self, PublisherMismatch, RackDirectory};
use crate::settings::IngestSettings;
use crate::spec_matcher::{PendingSpecCounts, SpecMatcher};
use crate::stats::IngestStats;

/// How many bytes a dead letter keeps of a message that is too large for the store.
const TRUNCATED_PAYLOAD: usize = 64 << 10;

/// Stores messages. All tasks of the pipeline share one.
pub(crate) struct MessageProcessor {
    pub(crate) settings: IngestSettings,
    pub(crate) engine: Arc<Engine>,
    pub(crate) clock: Clock,
    pub(crate) specs: Arc<SpecMatcher>,
    pub(crate) stats: Arc<IngestStats>,
    pub(crate) floors: Arc<DurableFloorTracker>,
    pub(crate) durable: mpsc::Sender<BatchId>,
    pub(crate) directory: Option<RackDirectory>,
    pub(crate) stop: CancellationToken,
}

/// The position of a message in its stream.
pub(crate) struct MessagePosition {
    /// None if the bus does not report it.
    pub(crate) position: Option<BusPosition>,
    /// The stream's incarnation at this moment; it may have changed since the message came.
    pub(crate) current: Arc<AtomicI64>,
}

/// A place and memory for one batch, returned when it is durable and acknowledged.
pub(crate) struct InFlightPermit {
    pub(crate) _batch: OwnedSemaphorePermit,
    pub(crate) bytes: InboundRoom,
}

/// What became of a message.
enum MessageOutcome {
    /// Its rows are durable, or a dead letter in their place; the producer's key, if there is one.
    Durable(Option<BatchId>),
    /// Nothing of it can ever be stored.
    GivenUp,
}

impl MessageProcessor {
    /// Decodes, appends, acknowledges. An error here means that the engine takes no more rows.
    pub(crate) async fn store(
        &self,
        source: &IngestSource,
        message: Message,
        position: MessagePosition,
        mut room: InFlightPermit,
    ) -> Result<(), Error> {
        self.stats.counters.received_messages.add(1);
        self.stats.counters.received_bytes.add(message.payload.len() as u64);
        if matches!(source, IngestSource::Messages(_)) {
            self.stats.volumes.add(&message.subject, message.length as u64);
        }
        let incarnation = position.position.as_ref().map(|position| position.incarnation);
        let incoming = inbound_message(&message, position.position);
        self.stats.counters.in_flight_batches.add(1);
        let outcome = self.make_durable(source, &incoming, &message, &mut room).await;
        self.stats.counters.in_flight_batches.sub(1);
        let (kind, batch) = match outcome? {
            MessageOutcome::Durable(batch) => (AckKind::Ack, batch),
            MessageOutcome::GivenUp => {
                self.stats.counters.lost_messages.add(1);
                (AckKind::Term, None)
            }
        };
        // In another incarnation this sequence number belongs to another message.
        let is_current = incarnation.is_none_or(|incarnation| incarnation == position.current.load(Ordering::Relaxed));
        if is_current && let Err(error) = message.ack_with(kind).await {
            warn!(%error, "a batch was not acknowledged; the bus will send it again");
        }
        if let Some(id) = batch {
            if is_current {
                // The engine's own floor is a limit for whatever `settled` claims.
                self.floors.record_received(id, origin(&incoming).0.settled);
            }
            // If the channel is full or closed, the floor only waits for the next heartbeat.
            let _ = self.durable.try_send(id);
        }
        Ok(())
    }

    /// Makes the message's rows durable. If they cannot be stored, stores a dead letter, truncated if it is too large itself.
    async fn make_durable(
        &self,
        source: &IngestSource,
        incoming: &InboundMessage<'_>,
        message: &Message,
        room: &mut InFlightPermit,
    ) -> Result<MessageOutcome, Error> {
        let now = self.clock.now();
        let mut next = self.decode_message(source, incoming, now);
        if let Ok(DecodedBatch { batch, .. }) = &next {
            let memory_bytes = if batch.payload.as_ptr() == incoming.payload.as_ptr() {
                // An Arrow body is logged as it came, and its rows share its memory.
                telemetry_codec::decoded_bytes(telemetry_codec::BatchEncoding::Arrow, incoming.payload)
            } else {
                let rows: usize = batch.rows.iter().map(model::batch::slice_bytes).sum();
                (incoming.payload.len() + batch.payload.len() + rows) as u64
            };
            room.bytes.shrink_to(memory_bytes);
        }
        let mut truncations = [
            PayloadTruncation::Whole,
            PayloadTruncation::Head(TRUNCATED_PAYLOAD),
            PayloadTruncation::Head(0),
        ]
        .into_iter();
        loop {
            let DecodedBatch { batch, dead, specs } = match next {
                Ok(decoded) => decoded,
                Err(reason) => {
                    error!(subject = %incoming.subject, %reason, "dropping a message that could not be stored even as \
                                                                  a dead letter");
                    return Ok(MessageOutcome::GivenUp);
                }
            };
            if dead.is_some() && truncations.len() == 3 {
                // This batch already is the whole letter.
                truncations.next();
            }
            let origin = batch.origin.clone();
            let names = specs
                .iter()
                .map(|counts| counts.as_ref().map(PendingSpecCounts::name))
                .collect();
            let error = match self.append(batch, names, message).await {
                Ok(appended) => {
                    if matches!(appended, AppendOutcome::Stored { .. }) {
                        specs.iter().flatten().for_each(PendingSpecCounts::count);
                    }
                    self.count_outcome(appended, dead.as_deref(), incoming.subject);
                    return Ok(MessageOutcome::Durable(origin.producer));
                }
                Err(error) if error.kind() == ErrorKind::Input => error,
                Err(error) => return Err(error.into()),
            };
            let reason = dead.unwrap_or_else(|| error.to_string());
            next = match truncations.next() {
                Some(truncation) => dead_letter(incoming, origin, reason, now, truncation),
                None => Err(error.to_string()),
            };
        }
    }

    /// Decodes a message into a batch, or into a dead letter if it cannot be decoded or claims another publisher than its subject's.
    fn decode_message(
        &self,
        source: &IngestSource,
        incoming: &InboundMessage<'_>,
        now: Timestamp,
    ) -> Result<DecodedBatch, String> {
        let letter = |reason, origin| dead_letter(incoming, origin, reason, now, PayloadTruncation::Whole);
        // Without the producer's key, which belongs to another Rack.
        let foreign = || BatchOrigin {
            bus: incoming.position.clone(),
            ..BatchOrigin::default()
        };
        let owner =
            match publisher_identity::verify_publisher(self.directory.as_ref(), incoming.subject, incoming.headers) {
                Ok(owner) => owner,
                Err(PublisherMismatch { reason, is_of_removed }) => {
                    // For a removed Rack its sequence number counts, but not its claim of what is settled.
                    let of_removed = || BatchOrigin {
                        settled: 0,
                        ..origin(incoming).0
                    };
                    return letter(reason, if is_of_removed { of_removed() } else { foreign() });
                }
            };
        if let Some(owner) = &owner {
            let bytes = incoming.payload.len() as u64;
            self.stats.racks.count(&owner.name, incoming.subject, bytes, now);
        }
        let mut decoded = match source {
            IngestSource::Telemetry => decode(incoming, now, self.settings.max_payload),
            IngestSource::Messages(_) => archive(incoming, now, self.settings.max_payload, &self.specs),
        }?;
        if let Some(owner) = owner.filter(|_| decoded.dead.is_none()) {
            if let Some(reason) = owner.find_foreign_row(&decoded.batch.rows) {
                return letter(reason, foreign());
            }
            owner.set_entity_name(&mut decoded)?;
        }
        let is_kept = decoded.dead.is_some() || source.keeps_rows();
        Ok(if is_kept { decoded } else { without_rows(decoded) })
    }

    fn count_outcome(&self, appended: AppendOutcome, dead: Option<&str>, subject: &str) {
        match appended {
            AppendOutcome::Stored { rows } => {
                self.stats.counters.stored_rows.add(rows as u64);
                if let Some(reason) = dead {
                    self.stats.counters.dead_letters.add(1);
                    warn!(subject, reason, "stored a message as a dead letter");
                }
            }
            AppendOutcome::Duplicate => self.stats.counters.duplicate_batches.add(1),
        }
    }

    /// Appends. While the engine makes it wait, tells the bus at every flush interval that the message is in progress.
    async fn append(
        &self,
        batch: AppendBatch,
        specs: Vec<Option<SpecName>>,
        message: &Message,
    ) -> Result<AppendOutcome, engine::Error> {
        let append = async {
            if specs.iter().any(Option::is_some) {
                self.engine.append_of_specs(batch, specs).await
            } else {
                self.engine.append(batch).await
            }
        };
        tokio::pin!(append);
        let every = self.settings.flush_interval.max(Duration::from_millis(10));
        loop {
            tokio::select! {
                appended = &mut append => return appended,
                () = tokio::time::sleep(every) => {
                    self.stats.counters.stalls.add(1);
                    if let Err(error) = message.ack_with(AckKind::Progress).await {
                        warn!(%error, "could not extend the acknowledgement deadline of a waiting batch");
                    }
                }
            }
        }
    }
}

/// A batch that says where it came from, and nothing else.
fn without_rows(decoded: DecodedBatch) -> DecodedBatch {
    DecodedBatch {
        batch: AppendBatch {
            payload: Bytes::new(),
            rows: Vec::new(),
            ..decoded.batch
        },
        dead: None,
        specs: Vec::new(),
    }
}

fn inbound_message(message: &Message, position: Option<BusPosition>) -> InboundMessage<'_> {
    static NONE: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
    InboundMessage {
        subject: &message.subject,
        headers: message.headers.as_ref().unwrap_or(&NONE),
        payload: &message.payload,
        position,
    }
}
