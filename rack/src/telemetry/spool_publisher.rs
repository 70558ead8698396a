//! Spool publisher: publishes what a spool holds, oldest first, in fast batches ([`chassis::bus::fast_batch`]).
//!
//! It serves both spools of a Rack: telemetry, and the outbox of the guaranteed lane.
//!
//! # Invariants
//!
//! - The stream has the entries of a spool in the spool's order, each at least once. Whatever was not acknowledged when a batch closes,
//!   is abandoned or loses its connection is sent again from there; the Mixer and the inlets drop duplicates by their sequences and places.
//! - A batch of the outbox starts only if the stream still ends with the last acknowledged message. A stream that does not has lost
//!   messages: it gets everything above the Mixer's durable floor again before anything new.
//! - A batch is within one stream: a log record that stands for a message of the outbox has a batch of its own.
//! - Acknowledgements of the bus trim nothing, the Mixer's durable floor does. A floor that stands still although the bus has
//!   acknowledged more ([`FloorStallDetector`]) makes everything above it go out again.
//! - Every sequence is published in the end: lost, undecodable and oversized entries have substitutes ([`EntryEncoder`]).
//! - A rejection is judged by its error code. What may be accepted later is retried with back-off and holds up what is behind it; what
//!   never will be is substituted; a batch of messages, which every bus of ours accepts, waits for the operator instead.
//! - At most [`WINDOW`] entries and [`WINDOW_BYTES`] bytes are unacknowledged.

mod entry_encoder;
mod floor_stall;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_nats::Subject;
use async_nats::jetstream::stream::DirectGetErrorKind;
use chassis::bus::fast_batch::{BatchRejection, BatchReply, ExpectedSequence, FastBatch, error_code};
use chassis::bus::{BusConnection, BusState};
use model::{Clock, Table, telemetry_codec};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::entry_encoder::{BusMessage, EntryEncoder};
use self::floor_stall::{FloorObservation, FloorStallDetector};
use super::TelemetryCounters;
use crate::deadline::sleep_until_deadline;
use crate::identity::RackIdentity;
use crate::message_limits::MessageLimits;
use crate::outbox::{GuaranteedLane, PortSequenceNumber};
use crate::spool::{ProducerRun, SpoolCursor, SpoolEntry, SpoolHandle, SpoolItem, SpoolReader};

/// Unacknowledged entries: a round trip of 50 ms at 80,000 entries a second. A stream of the server queues 10,000.
const WINDOW: usize = 4096;
/// Unacknowledged bytes.
const WINDOW_BYTES: usize = 8 << 20;
/// The server acknowledges at least every so many entries.
const FLOW: u16 = 128;
/// Entries of a batch, at most: the server keeps the reply subject of each for a Rack with an account of its own.
const MAX_BATCH: u64 = 65_536;
/// Entries of a batch that are pipelined before its first reply.
const PIPELINED_AT_START: u64 = 64;
/// Bytes read from the spool at once.
const READ_BYTES: usize = 1 << 20;
/// How long the server may take to close a batch.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// A batch is committed after this long without an entry.
const IDLE_COMMIT: Duration = Duration::from_millis(250);
/// A batch is committed when its oldest unacknowledged entry is this old: too slow a trickle for flow acknowledgements.
const OLD_COMMIT: Duration = Duration::from_secs(2);
/// The first and the longest pause after a rejection or failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Another reason is told so much later.
const WARN_AGAIN: Duration = Duration::from_secs(10);
/// How often the floor is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// What the sender works with.
pub(crate) struct SpoolPublisherParts {
    pub(crate) spool: SpoolHandle,
    pub(crate) bus: BusConnection,
    pub(crate) identity: watch::Receiver<Option<RackIdentity>>,
    pub(crate) counters: Arc<TelemetryCounters>,
    pub(crate) clock: Clock,
    /// The lane, where the spool is its outbox, and the limits of what goes into it.
    pub(crate) lane: Option<(GuaranteedLane, MessageLimits)>,
    /// How long the floor may stand still before everything above it is sent again.
    pub(crate) stall: Duration,
    pub(crate) cancel: CancellationToken,
}

/// The task between a spool and the bus.
pub(crate) struct SpoolPublisher {
    parts: SpoolPublisherParts,
    encoder: EntryEncoder,
    reader: SpoolReader,
    cursor: SpoolCursor,
    connection: watch::Receiver<BusState>,
    /// Read from the spool and to be sent next, in order.
    queue: VecDeque<SpoolEntry>,
    in_flight: InFlightEntries,
    batch: Option<PublishBatch>,
    acked: AckedPosition,
    backoff: RetryBackoff,
    floor: FloorStallDetector,
    /// What was logged last of why the bus rejects, and when.
    warned: Option<(String, Instant)>,
}

/// Sent in the open batch and unacknowledged, in order.
#[derive(Default)]
struct InFlightEntries {
    entries: VecDeque<InFlightEntry>,
    bytes: usize,
}

/// How far the bus has acknowledged.
#[derive(Default)]
struct AckedPosition {
    /// The last entry.
    entry: Option<(ProducerRun, u64)>,
    /// The last message of the outbox.
    message: Option<StoredMessage>,
}

struct InFlightEntry {
    kept: SpoolEntry,
    subject: Subject,
    /// `None` for dead letters and telemetry.
    place: Option<PortSequenceNumber>,
    sent: Instant,
}

struct PublishBatch {
    batch: FastBatch,
    /// Whether it goes to the stream of messages: a batch is within one stream.
    is_of_messages: bool,
    stored: u64,
    has_reply: bool,
    committed: Option<Instant>,
    rejection: Option<BatchRejection>,
    last_sent: Instant,
    last_heard: Instant,
}

impl PublishBatch {
    fn accepts_no_more(&self) -> bool {
        self.waits_for_reply() || self.committed.is_some() || self.rejection.is_some()
    }

    fn waits_for_reply(&self) -> bool {
        !self.has_reply && self.batch.sent() >= PIPELINED_AT_START
    }
}

/// A message of the outbox that the stream has acknowledged.
struct StoredMessage {
    subject: Subject,
    place: PortSequenceNumber,
    /// Its spool entry.
    entry: (ProducerRun, u64),
    /// Its sequence in the stream, once known.
    sequence: Option<u64>,
    /// Whether nothing was acknowledged after it.
    is_latest: bool,
}

struct RetryBackoff {
    until: Option<Instant>,
    next: Duration,
}

impl SpoolPublisher {
    pub(crate) fn new(parts: SpoolPublisherParts) -> Self {
        let outbox = parts.lane.as_ref().map(|(lane, _)| Arc::clone(&lane.outbox));
        Self {
            encoder: EntryEncoder {
                identity: parts.identity.clone(),
                clock: parts.clock.clone(),
                outbox,
            },
            reader: parts.spool.reader(),
            cursor: SpoolCursor::default(),
            connection: parts.bus.state(),
            queue: VecDeque::new(),
            in_flight: InFlightEntries::default(),
            batch: None,
            acked: AckedPosition::default(),
            backoff: RetryBackoff {
                until: None,
                next: BACKOFF.0,
            },
            floor: FloorStallDetector::new(parts.stall),
            warned: None,
            parts,
        }
    }

    /// Runs until cancelled.
    pub(crate) async fn run(mut self) {
        let cancel = self.parts.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.send() => {}
        }
    }

    async fn send(&mut self) {
        let mut changed = self.parts.spool.changed();
        if self.parts.identity.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let mut look = tokio::time::interval(LOOK);
        loop {
            if self.connection.has_changed().unwrap_or(true) {
                self.connection.mark_unchanged();
                self.abandon_batch();
            }
            let is_blocked = self.publish_pending().await;
            let (deadline, retry) = (self.batch_deadline(), self.backoff.until);
            tokio::select! {
                reply = next_reply(&mut self.batch) => match reply {
                    Some(reply) => self.handle_reply(reply).await,
                    None => self.abandon_batch(),
                },
                gone = changed.changed(), if !is_blocked => if gone.is_err() { return },
                gone = self.connection.changed() => {
                    if gone.is_err() { return }
                    self.abandon_batch();
                }
                () = sleep_until_deadline(deadline) => self.commit_batch().await,
                () = sleep_until_deadline(retry) => self.backoff.until = None,
                _ = look.tick() => self.check_floor(),
            }
        }
    }

    /// Publishes while there is something to publish and room for it. True if it stopped for want of room.
    async fn publish_pending(&mut self) -> bool {
        loop {
            let is_closing = self.batch.as_ref().is_some_and(PublishBatch::accepts_no_more);
            if self.is_window_full() || is_closing || self.backoff.until.is_some() || !self.is_connected() {
                return true;
            }
            if self.queue.is_empty() {
                if self.read().await {
                    continue;
                }
                return self.backoff.until.is_some();
            }
            if self
                .queue
                .front()
                .is_some_and(|next| self.reader.is_durable(next.run, next.seq))
            {
                self.queue.pop_front();
                continue;
            }
            // This may go back to the floor, so it comes before an entry is taken.
            match self.ensure_batch().await {
                Ok(true) => {}
                Ok(false) => return true,
                Err(reason) => {
                    self.back_off(&reason);
                    return true;
                }
            }
            if let Some(kept) = self.queue.pop_front() {
                self.publish(kept).await;
            }
        }
    }

    fn is_window_full(&self) -> bool {
        self.in_flight.entries.len() >= WINDOW || self.in_flight.bytes >= WINDOW_BYTES
    }

    /// Whether a batch is open that the next entry may go into. One of another stream, or a long one, is committed first.
    async fn ensure_batch(&mut self) -> Result<bool, String> {
        let is_message = self.queue.front().is_some_and(|next| next.table == Table::Messages);
        if let Some(open) = &self.batch {
            let fits = open.is_of_messages == is_message && open.batch.sent() < MAX_BATCH;
            if !fits {
                self.commit_batch().await;
            }
            return Ok(fits);
        }
        self.verify_stream().await?;
        // The window must hold several acknowledgements of entries as large as the first.
        let bytes = self.queue.front().map_or(0, |next| next.payload.len()).max(1);
        let flow = (WINDOW_BYTES / 4 / bytes).clamp(1, FLOW.into());
        let batch = FastBatch::open(&self.parts.bus, u16::try_from(flow).unwrap_or(FLOW)).await;
        self.batch = Some(PublishBatch {
            batch: batch.map_err(|error| error.to_string())?,
            is_of_messages: is_message,
            stored: 0,
            has_reply: false,
            committed: None,
            rejection: None,
            last_sent: Instant::now(),
            last_heard: Instant::now(),
        });
        Ok(true)
    }

    /// Looks up the sequence of the last acknowledged message; a stream that does not have it gets everything again.
    async fn verify_stream(&mut self) -> Result<(), String> {
        let (Some((lane, _)), Some(last)) = (&self.parts.lane, &mut self.acked.message) else {
            return Ok(());
        };
        if last.sequence.is_some() {
            return Ok(());
        }
        let stream = lane.bus.js.get_stream_no_info(&lane.stream).await;
        let stream = stream.map_err(|error| error.to_string())?;
        match stream.direct_get_last_for_subject(last.subject.as_str()).await {
            Ok(found) => {
                let place = found
                    .headers
                    .get(telemetry_codec::PLACE)
                    .map(|place| PortSequenceNumber::parse(place.as_str()));
                let is_there = place.flatten().is_some_and(|place| last.place.is_behind(place));
                last.sequence = is_there.then_some(found.sequence);
            }
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => {}
            Err(error) => return Err(error.to_string()),
        }
        if last.sequence.is_none() {
            let (run, seq) = last.entry;
            if self.reader.is_durable(run, seq) {
                // It may leave the stream then. What follows is above the floor.
                self.acked.message = None;
            } else {
                self.resend_above_floor("the stream does not have the last message that it acknowledged");
            }
        }
        Ok(())
    }

    fn resend_above_floor(&mut self, reason: &str) {
        tracing::warn!(reason, "everything above the Mixer's durable floor is sent again");
        self.parts.counters.resends.fetch_add(1, Relaxed);
        self.abandon_batch();
        self.queue.clear();
        self.cursor = SpoolCursor::default();
        self.acked.entry = None;
        self.acked.message = None;
    }

    /// Reads the next entries from the spool; false if there are none.
    async fn read(&mut self) -> bool {
        let reader = self.reader.clone();
        let mut cursor = std::mem::take(&mut self.cursor);
        let read = tokio::task::spawn_blocking(move || {
            let result = reader.read(&mut cursor, READ_BYTES);
            (cursor, result)
        });
        let Ok((cursor, result)) = read.await else { return false };
        self.cursor = cursor;
        match result {
            Ok(entries) => {
                let any = !entries.is_empty();
                entries.into_iter().for_each(|entry| self.enqueue(entry));
                any
            }
            Err(error) => {
                self.back_off(&error.to_string());
                false
            }
        }
    }

    fn enqueue(&mut self, outgoing: SpoolItem) {
        match outgoing {
            SpoolItem::Batch(kept) => self.queue.push_back(kept),
            SpoolItem::Lost { run, first, last } => {
                tracing::error!(first, last, "batches are lost: their spool segment is damaged");
                for seq in first..=last {
                    let reason = format!(
                        "batch {seq} of this Rack's run {} is lost: its spool segment is damaged",
                        run.epoch
                    );
                    self.parts.counters.replaced.fetch_add(1, Relaxed);
                    self.queue.extend(self.encoder.log_record(run, seq, reason));
                }
            }
        }
    }

    /// The largest body that the server accepts; `None` while that is not known.
    fn max_body(&self) -> Option<usize> {
        let most = self.parts.bus.client.server_info().max_payload;
        most.checked_sub(telemetry_codec::HEADER_ROOM)
            .filter(|most| *most > telemetry_codec::HEADER_ROOM)
    }

    async fn publish(&mut self, kept: SpoolEntry) {
        let settled = self.reader.settled(kept.run);
        let Some(message) = self.encoder.encode(&kept, settled) else {
            let reason = format!("sequence {} of the spool is neither a batch nor a message", kept.seq);
            tracing::error!(seq = kept.seq, "{reason}");
            self.replace_first(self.encoder.log_record(kept.run, kept.seq, reason));
            return;
        };
        if let Some(most) = self.max_body().filter(|most| message.body.len() > *most) {
            if EntryEncoder::is_message_batch(&kept) {
                return self.hold_batch(kept);
            }
            self.replace_first(self.encoder.substitute(&kept, message.body.len(), most));
            return;
        }
        let Some(open) = &mut self.batch else {
            self.queue.push_front(kept);
            return;
        };
        let BusMessage {
            subject,
            place,
            headers,
            body,
        } = message;
        let last = self.acked.message.as_ref().filter(|_| open.is_of_messages);
        let expected = last.and_then(StoredMessage::expected);
        self.parts.counters.sent.fetch_add(1, Relaxed);
        if let Err(error) = open.batch.send(subject.clone(), headers, body, expected.as_ref()).await {
            self.queue.push_front(kept);
            self.abandon_batch();
            self.back_off(&error.to_string());
            return;
        }
        open.last_sent = Instant::now();
        self.in_flight.bytes += kept.payload.len();
        self.in_flight.entries.push_back(InFlightEntry {
            kept,
            subject,
            place,
            sent: open.last_sent,
        });
    }

    /// Queues a substitute for the entry that was to be sent next.
    fn replace_first(&mut self, substitute: Option<SpoolEntry>) {
        self.parts.counters.replaced.fetch_add(1, Relaxed);
        if let Some(substitute) = substitute {
            self.queue.push_front(substitute);
        }
    }

    fn is_connected(&self) -> bool {
        *self.connection.borrow() == BusState::Connected
    }

    /// When the open batch is to be committed; after that, when its close is overdue.
    fn batch_deadline(&self) -> Option<Instant> {
        let open = self.batch.as_ref()?;
        if let Some(since) = open.committed {
            // On a slow link what is in flight comes first; its acknowledgements do, too.
            return Some(since.max(open.last_heard) + CLOSE_TIMEOUT);
        }
        let last = open.last_heard.max(open.last_sent);
        if open.waits_for_reply() {
            return Some(last + CLOSE_TIMEOUT);
        }
        if self.is_window_full() {
            // Full with fewer entries than the server acknowledges at once.
            return Some(last + IDLE_COMMIT);
        }
        let idle = open.last_sent + IDLE_COMMIT;
        let oldest = self
            .in_flight
            .entries
            .front()
            .map(|oldest| oldest.sent.max(open.last_heard) + OLD_COMMIT);
        Some(oldest.map_or(idle, |oldest| idle.min(oldest)))
    }

    /// Commits the open batch; one that was committed and does not close is abandoned.
    async fn commit_batch(&mut self) {
        let Some(open) = &mut self.batch else { return };
        if open.batch.sent() == 0 {
            self.abandon_batch();
        } else if open.committed.replace(Instant::now()).is_some() {
            self.abandon_batch();
            self.back_off("the server did not close a batch in time");
        } else if let Err(error) = open.batch.commit().await {
            self.abandon_batch();
            self.back_off(&error.to_string());
        }
    }

    /// What the open batch has in flight goes back to the front of the queue.
    fn abandon_batch(&mut self) {
        self.batch = None;
        self.in_flight.bytes = 0;
        while let Some(entry) = self.in_flight.entries.pop_back() {
            self.queue.push_front(entry.kept);
        }
    }

    async fn handle_reply(&mut self, reply: BatchReply) {
        let Some(open) = &mut self.batch else { return };
        open.last_heard = Instant::now();
        open.has_reply = true;
        match reply {
            BatchReply::Stored(number) => self.acknowledge(number),
            BatchReply::Closed { count, sequence } => {
                self.acknowledge(count);
                let is_whole = self.in_flight.entries.is_empty();
                if let Some(last) = self.acked.message.as_mut().filter(|last| is_whole && last.is_latest) {
                    last.sequence = Some(sequence);
                }
                self.close_batch().await;
            }
            BatchReply::Rejected(rejection) => {
                let (number, code) = (rejection.number, rejection.code);
                open.rejection.get_or_insert(rejection);
                if number == 1 || number > open.batch.sent() || code == error_code::UNKNOWN_BATCH {
                    self.close_batch().await;
                } else if code == error_code::NO_STREAM && open.committed.is_none() {
                    // The server has not seen this one, so it closes the batch at the gap.
                    self.commit_batch().await;
                }
            }
        }
    }

    /// The stream has the first `number` entries of the open batch.
    fn acknowledge(&mut self, number: u64) {
        let Some(open) = &mut self.batch else { return };
        while open.stored < number
            && let Some(entry) = self.in_flight.entries.pop_front()
        {
            open.stored += 1;
            self.in_flight.bytes = self.in_flight.bytes.saturating_sub(entry.kept.payload.len());
            self.parts.counters.acked.fetch_add(1, Relaxed);
            self.acked.entry = Some((entry.kept.run, entry.kept.seq));
            if let Some(place) = entry.place {
                self.acked.message = Some(StoredMessage {
                    subject: entry.subject,
                    place,
                    entry: (entry.kept.run, entry.kept.seq),
                    sequence: None,
                    is_latest: true,
                });
            } else if let Some(last) = &mut self.acked.message {
                last.is_latest = false;
            }
            self.backoff.next = BACKOFF.0;
            if self.warned.take().is_some() {
                tracing::info!("the bus accepts messages again");
            }
        }
    }

    /// The open batch is closed: what it did not store is next, and the reason is judged.
    async fn close_batch(&mut self) {
        let (rejection, stored) = match &mut self.batch {
            Some(open) => (open.rejection.take(), open.stored),
            None => (None, 0),
        };
        let is_whole = self.in_flight.entries.is_empty();
        self.abandon_batch();
        match rejection {
            None if is_whole => {}
            None => self.back_off("the server stored only a part of a batch"),
            Some(rejection) => match rejection.code {
                error_code::WRONG_LAST_SEQUENCE => {
                    if let Some(last) = &mut self.acked.message {
                        last.sequence = None;
                    }
                    self.back_off(&rejection.reason);
                }
                error_code::MESSAGE_TOO_LARGE if rejection.number == stored + 1 => self.substitute_first().await,
                _ => self.back_off(&rejection.reason),
            },
        }
    }

    /// The stream never accepts the next entry as it is.
    async fn substitute_first(&mut self) {
        let stream = match &self.parts.lane {
            Some((lane, _)) => lane.bus.js.get_stream(&lane.stream).await.ok(),
            None => None,
        };
        let limit = stream.and_then(|stream| usize::try_from(stream.cached_info().config.max_message_size).ok());
        let Some(kept) = self.queue.pop_front() else { return };
        if EntryEncoder::is_message_batch(&kept) {
            return self.hold_batch(kept);
        }
        let bytes = kept.payload.len();
        // Each attempt is smaller, whatever the stream says of its limit.
        let most = limit
            .map_or(bytes, |limit| limit.saturating_sub(telemetry_codec::HEADER_ROOM))
            .min(bytes / 2);
        let substitute = self.encoder.substitute(&kept, bytes, most);
        if substitute
            .as_ref()
            .is_none_or(|substitute| substitute.payload.len() >= bytes)
        {
            self.queue.push_front(kept);
            self.back_off("the stream does not accept even the head of a message");
        } else {
            self.replace_first(substitute);
        }
    }

    /// Each of its messages is small enough: it waits until the bus takes as much as every bus of ours.
    fn hold_batch(&mut self, kept: SpoolEntry) {
        let reason = format!(
            "the bus does not accept {} bytes: its max_payload, and its stream's max_msg_size, must be 64 KiB or more",
            kept.payload.len()
        );
        self.queue.push_front(kept);
        self.back_off(&reason);
    }

    fn back_off(&mut self, reason: &str) {
        self.backoff.until = Some(Instant::now() + self.backoff.next);
        self.backoff.next = (self.backoff.next * 2).min(BACKOFF.1);
        let is_known = |(said, at): &(String, Instant)| said == reason || at.elapsed() < WARN_AGAIN;
        if !self.warned.as_ref().is_some_and(is_known) {
            self.warned = Some((reason.to_owned(), Instant::now()));
            tracing::warn!(
                reason,
                "the bus does not accept messages; they stay in the spool and are retried"
            );
        }
    }

    /// Tells the lane what the bus accepts, and watches the floor.
    fn check_floor(&mut self) {
        let is_connected = self.is_connected();
        if let (true, Some(most), Some((_, limits))) = (is_connected, self.max_body(), &self.parts.lane) {
            limits.set_bus_limit(most);
        }
        let state = FloorObservation {
            is_connected,
            heard: self.parts.spool.floor_updates(),
            waiting: self.reader.first_waiting(),
            acknowledged: self.acked.entry,
        };
        if self.floor.detect_stall(&state) {
            self.resend_above_floor("the Mixer lacks batches that the bus acknowledged");
        }
    }
}

impl StoredMessage {
    fn expected(&self) -> Option<ExpectedSequence> {
        Some(ExpectedSequence {
            subject: self.subject.clone(),
            sequence: self.sequence?,
        })
    }
}

async fn next_reply(batch: &mut Option<PublishBatch>) -> Option<BatchReply> {
    match batch {
        Some(open) => open.batch.next_reply().await,
        None => std::future::pending().await,
    }
}
