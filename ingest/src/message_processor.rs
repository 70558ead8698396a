//! One message of the bus: decoded, appended to the engine, acknowledged; a dead letter where it cannot be stored.
//!
//! # Invariants
//!
//! - A message is acknowledged after its rows are durable, never before; what can never be stored is told to the bus as given up.
//! - A batch that still waits for the engine is reported as in progress every flush interval.
//!
//! # Not here
//!
//! Reading the bus (`puller`), what a message holds (`decode`, `archive`).

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::{AckKind, Message};
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

/// What a dead letter keeps of a message that is too large for the store.
const CUT: usize = 64 << 10;

/// What the tasks share.
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

/// Where a message is in its stream.
pub(crate) struct MessagePosition {
    /// Unless the bus does not say it.
    pub(crate) position: Option<BusPosition>,
    /// The stream's incarnation now.
    pub(crate) current: Arc<AtomicI64>,
}

/// Room for one batch; given back when it is durable and acknowledged.
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
        IngestStats::add(&self.stats.received, 1);
        IngestStats::add(&self.stats.received_bytes, message.payload.len() as u64);
        if matches!(source, IngestSource::Messages(_)) {
            self.stats.volumes.add(&message.subject, message.length as u64);
        }
        let incarnation = position.position.as_ref().map(|position| position.incarnation);
        let incoming = incoming(&message, position.position);
        IngestStats::add(&self.stats.in_flight, 1);
        let outcome = self.make_durable(source, &incoming, &message, &mut room).await;
        self.stats.in_flight.fetch_sub(1, Ordering::Relaxed);
        let (kind, batch) = match outcome? {
            MessageOutcome::Durable(batch) => (AckKind::Ack, batch),
            MessageOutcome::GivenUp => {
                IngestStats::add(&self.stats.given_up, 1);
                (AckKind::Term, None)
            }
        };
        // In another incarnation its sequence is another message's.
        let is_current = incarnation.is_none_or(|incarnation| incarnation == position.current.load(Ordering::Relaxed));
        if is_current && let Err(error) = message.ack_with(kind).await {
            warn!(%error, "a batch was not acknowledged; the bus will send it again");
        }
        if let Some(id) = batch {
            if is_current {
                // The engine's own floor bounds whatever it says.
                self.floors.record_received(id, origin(&incoming).0.settled);
            }
            // A full channel or a closed one only delays the floor until the next heartbeat.
            let _ = self.durable.try_send(id);
        }
        Ok(())
    }

    /// Makes the message's rows durable; where they cannot be stored, a dead letter, cut if it is too large itself.
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
            let taken = if batch.payload.as_ptr() == incoming.payload.as_ptr() {
                // An Arrow body is logged as it came, and shared by its rows.
                telemetry_codec::decoded_bytes(telemetry_codec::BatchEncoding::Arrow, incoming.payload)
            } else {
                let rows: usize = batch.rows.iter().map(model::batch::slice_bytes).sum();
                (incoming.payload.len() + batch.payload.len() + rows) as u64
            };
            room.bytes.shrink_to(taken);
        }
        let mut cuts = [
            PayloadTruncation::Whole,
            PayloadTruncation::Head(CUT),
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
            if dead.is_some() && cuts.len() == 3 {
                // It is the whole letter already.
                cuts.next();
            }
            let origin = batch.origin.clone();
            let names = specs
                .iter()
                .map(|taken| taken.as_ref().map(PendingSpecCounts::name))
                .collect();
            let error = match self.append(batch, names, message).await {
                Ok(appended) => {
                    if matches!(appended, AppendOutcome::Stored { .. }) {
                        specs.iter().flatten().for_each(PendingSpecCounts::count);
                    }
                    self.count(appended, dead.as_deref(), incoming.subject);
                    return Ok(MessageOutcome::Durable(origin.producer));
                }
                Err(error) if error.kind() == ErrorKind::Input => error,
                Err(error) => return Err(error.into()),
            };
            let reason = dead.unwrap_or_else(|| error.to_string());
            next = match cuts.next() {
                Some(keep) => dead_letter(incoming, origin, reason, now, keep),
                None => Err(error.to_string()),
            };
        }
    }

    /// The batch that a message carries; a dead letter if it carries none, or speaks for another than who sent it.
    fn decode_message(
        &self,
        source: &IngestSource,
        incoming: &InboundMessage<'_>,
        now: Timestamp,
    ) -> Result<DecodedBatch, String> {
        let letter = |reason, origin| dead_letter(incoming, origin, reason, now, PayloadTruncation::Whole);
        // Without the producer's key: it is another's.
        let foreign = || BatchOrigin {
            bus: incoming.position.clone(),
            ..BatchOrigin::default()
        };
        let owner =
            match publisher_identity::verify_publisher(self.directory.as_ref(), incoming.subject, incoming.headers) {
                Ok(owner) => owner,
                Err(PublisherMismatch { reason, is_of_removed }) => {
                    // Of a removed Rack its number counts, and not what it says of others.
                    let of_removed = || BatchOrigin {
                        settled: 0,
                        ..origin(incoming).0
                    };
                    return letter(reason, if is_of_removed { of_removed() } else { foreign() });
                }
            };
        let mut decoded = match source {
            IngestSource::Telemetry => decode(incoming, now, self.settings.max_payload),
            IngestSource::Messages(_) => archive(incoming, now, self.settings.max_payload, &self.specs),
        }?;
        let Some(owner) = owner.filter(|_| decoded.dead.is_none()) else {
            return Ok(decoded);
        };
        if let Some(reason) = owner.find_foreign_row(&decoded.batch.rows) {
            return letter(reason, foreign());
        }
        owner.set_entity_name(&mut decoded)?;
        Ok(decoded)
    }

    fn count(&self, appended: AppendOutcome, dead: Option<&str>, subject: &str) {
        match appended {
            AppendOutcome::Stored { rows } => {
                IngestStats::add(&self.stats.stored_rows, rows as u64);
                if let Some(reason) = dead {
                    IngestStats::add(&self.stats.dead_letters, 1);
                    warn!(subject, reason, "stored telemetry as a dead letter");
                }
            }
            AppendOutcome::Duplicate => IngestStats::add(&self.stats.duplicates, 1),
        }
    }

    /// Appends; while the engine makes us wait, tells the bus every flush interval that work goes on.
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
                    IngestStats::add(&self.stats.stalls, 1);
                    if let Err(error) = message.ack_with(AckKind::Progress).await {
                        warn!(%error, "could not extend the acknowledgement deadline of a waiting batch");
                    }
                }
            }
        }
    }
}

fn incoming(message: &Message, position: Option<BusPosition>) -> InboundMessage<'_> {
    static NONE: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
    InboundMessage {
        subject: &message.subject,
        headers: message.headers.as_ref().unwrap_or(&NONE),
        payload: &message.payload,
        position,
    }
}
