//! Publishes what a spool holds, oldest first: batches of telemetry, or the messages of the outbox.
//!
//! # Invariants
//!
//! - The bus's acknowledgement trims nothing: only the Mixer's durable floor does. If the Mixer speaks but has no more on its
//!   disk for a while although everything was acknowledged, everything above the floor is sent again under the same ids; the
//!   bus and the Mixer drop what they have. Each fruitless round doubles the wait, up to [`MAX_STALL`].
//! - An acknowledgement that does not come says nothing: the same batch is sent again under the same id.
//! - Every sequence is published in the end. In place of a batch that cannot be sent (larger than the bus takes, or damaged
//!   in the spool) goes a log record that says so, under its sequence; in place of a message that is too large, a dead letter with
//!   what can be sent of it.
//! - Messages that the bus would not take are refused where they are sent, as soon as it is connected ([`Limits::bus_takes`]).
//! - Of the outbox, a number of a port is said to have landed when the bus has accepted it and all before it. What follows a
//!   refused message waits until that has landed, the last message of a port for all before it, so that in the end one says that
//!   they have landed. A stream that is another one, or is on a bus that began anew and so may have lost what it accepted last, gets
//!   everything above the floor again, in order, before anything new.
//! - At most [`WINDOW`] batches and [`WINDOW_BYTES`] bytes are in flight.

use std::collections::VecDeque;
use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_nats::header::HeaderMap;
use async_nats::jetstream::context::PublishAckFuture;
use bytes::Bytes;
use chassis::bus::{Bus, BusState};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use model::wire::{self, BatchId, Encoding};
use model::{Attributes, Clock, Level, LogRecord, Record as _, Table, subject};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Counters;
use super::mark::Marks;
use super::on_way::{KnownStream, OnWay};
use crate::identity::Identity;
use crate::lane::{Lane, Letter};
use crate::limits::Limits;
use crate::spool::{Cursor, Kept, Outgoing, Reader, Run, SpoolHandle};

/// Batches on their way at once. More does not make the bus faster; it hides a round trip of some milliseconds.
const WINDOW: usize = 64;
/// Their bytes.
const WINDOW_BYTES: usize = 8 << 20;
/// How much is read from the spool at once.
const READ_BYTES: usize = 1 << 20;
/// How long an acknowledgement may take.
const ACK_WITHIN: Duration = Duration::from_secs(10);
/// How long to wait after a refused or unanswered batch.
const HOLD: Duration = Duration::from_millis(500);
/// How often floors and the connection are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// The longest wait between two rounds of sending again.
const MAX_STALL: Duration = Duration::from_secs(600);
/// What headers may take of the bus's largest message.
const HEADER_ROOM: usize = 2048;

/// What the sender works with.
pub(crate) struct SenderParts {
    pub(crate) spool: SpoolHandle,
    pub(crate) bus: Bus,
    pub(crate) identity: watch::Receiver<Option<Identity>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) marks: Marks,
    pub(crate) clock: Clock,
    /// The lane, where the spool is its outbox, and the limits of what goes into it.
    pub(crate) lane: Option<(Lane, Limits)>,
    /// How long the Mixer may have no more before everything above it is sent again.
    pub(crate) stall: Duration,
    pub(crate) cancel: CancellationToken,
}

/// A batch, and where in the stream it is.
type Landed = (Kept, Result<u64, String>);

/// The task between the spool and the bus.
pub(crate) struct Sender {
    parts: SenderParts,
    reader: Reader,
    cursor: Cursor,
    ready: VecDeque<Kept>,
    flight: FuturesUnordered<BoxFuture<'static, Landed>>,
    flight_bytes: usize,
    on_way: OnWay,
    /// The first of the outbox that the bus did not take.
    refused: Option<(Run, u64)>,
    stream: KnownStream,
    hold_until: Option<Instant>,
    stall: Stall,
    failing: bool,
}

/// Watches the floor.
struct Stall {
    waiting: Option<(Run, u64)>,
    since: Instant,
    wait: Duration,
    heard: u64,
}

impl Sender {
    pub(crate) fn new(parts: SenderParts) -> Self {
        let reader = parts.spool.reader();
        Self {
            stall: Stall {
                waiting: None,
                since: Instant::now(),
                wait: parts.stall,
                heard: 0,
            },
            reader,
            cursor: Cursor::default(),
            ready: VecDeque::new(),
            flight: FuturesUnordered::new(),
            flight_bytes: 0,
            on_way: OnWay::new(parts.lane.as_ref().map(|(lane, _)| Arc::clone(&lane.outbox))),
            refused: None,
            stream: KnownStream::new(&parts.bus),
            hold_until: None,
            failing: false,
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
            let more = self.fill().await;
            tokio::select! {
                Some((kept, result)) = self.flight.next(), if !self.flight.is_empty() => self.landed(kept, result),
                gone = changed.changed(), if !more => if gone.is_err() { return },
                _ = look.tick() => self.look(),
            }
        }
    }

    /// Publishes while there is something and room for it; true if it stopped for want of room, not of batches.
    async fn fill(&mut self) -> bool {
        loop {
            let held = self.hold_until.is_some_and(|until| Instant::now() < until);
            if held || !self.is_connected() {
                return true;
            }
            if self.flight.len() >= WINDOW || self.flight_bytes >= WINDOW_BYTES {
                return true;
            }
            if self.ready.is_empty() {
                if self.read().await {
                    continue;
                }
                return false;
            }
            if !self.keeps_order().await {
                return true;
            }
            let Some(kept) = self.ready.pop_front() else { continue };
            if self.reader.is_durable(kept.run, kept.seq) {
                continue;
            }
            if self.on_way.must_wait(&kept, &self.ready) {
                let is_alone = self.ready.is_empty();
                self.ready.push_front(kept);
                if is_alone && self.read().await {
                    continue;
                }
                return true;
            }
            self.publish(kept).await;
        }
    }

    /// Whether the next message of the outbox may be sent now: what was refused first, and to the stream that has those before.
    async fn keeps_order(&mut self) -> bool {
        let Some((lane, _)) = self.parts.lane.clone() else {
            return true;
        };
        let is_in_doubt = self.stream.may_be_another();
        if self.flight.is_empty() {
            let front = self.ready.front().map(|kept| (kept.run, kept.seq));
            self.refused = self.refused.filter(|refused| front == Some(*refused));
        } else if is_in_doubt || self.refused.is_some() {
            return false;
        }
        if !is_in_doubt {
            return true;
        }
        match self.stream.is_another(&lane).await {
            Ok(false) => true,
            Ok(true) => {
                tracing::warn!(
                    stream = lane.stream,
                    "the bus began anew or has lost its stream: what the Mixer does not have is sent again"
                );
                self.parts.counters.resends.fetch_add(1, Relaxed);
                self.ready.clear();
                self.cursor = Cursor::default();
                self.refused = None;
                true
            }
            Err(reason) => {
                self.fail(&reason);
                false
            }
        }
    }

    /// Reads the next batches from the spool; false if there are none.
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
            Ok(batches) => {
                let any = !batches.is_empty();
                for batch in batches {
                    self.take(batch);
                }
                any
            }
            Err(error) => {
                self.fail(&error.to_string());
                false
            }
        }
    }

    fn take(&mut self, outgoing: Outgoing) {
        match outgoing {
            Outgoing::Batch(kept) => self.ready.push_back(kept),
            Outgoing::Lost { run, first, last } => {
                tracing::error!(first, last, "batches are lost: their spool segment is damaged");
                for seq in first..=last {
                    let reason = format!(
                        "batch {seq} of this Rack's run {} is lost: its spool segment is damaged",
                        run.epoch
                    );
                    self.replace(run, seq, reason);
                }
            }
        }
    }

    /// Queues a log record in place of a batch.
    fn replace(&mut self, run: Run, seq: u64, reason: String) {
        self.parts.counters.replaced.fetch_add(1, Relaxed);
        let owner = self.parts.identity.borrow().clone();
        let Some(owner) = owner else { return };
        let record = LogRecord {
            ts: self.parts.clock.now(),
            entity_id: run.entity,
            entity_name: owner.name.as_str().to_owned(),
            flux_id: None,
            level: Level::Error,
            message: reason,
            attributes: Attributes::new()
                .with("batch.seq", seq)
                .with("batch.boot_epoch", run.epoch),
        };
        let payload = LogRecord::to_batch(&[record]).and_then(|columns| wire::encode_arrow(&[columns]));
        if let Ok(payload) = payload {
            self.ready.push_back(Kept {
                run,
                seq,
                table: Table::Logs,
                payload: payload.into(),
            });
        }
    }

    /// The most bytes of a message that the bus takes beside its headers; none while that is not known.
    fn most(&self) -> Option<usize> {
        let most = self.parts.bus.client.server_info().max_payload;
        most.checked_sub(HEADER_ROOM).filter(|most| *most > HEADER_ROOM)
    }

    /// What takes the place of a batch that the bus does not take: the head of a message, as a dead letter, or a log record.
    fn shorten(&mut self, kept: Kept, bytes: usize, most: usize) {
        let what = kept.table;
        let reason = format!("batch of {what} given up: it has {bytes} bytes and the bus takes {most}");
        tracing::error!(seq = kept.seq, "{reason}");
        let letter = (kept.table == Table::Messages)
            .then(|| Letter::decode(&kept.payload))
            .flatten();
        let Some(letter) = letter else {
            self.replace(kept.run, kept.seq, reason);
            return;
        };
        self.parts.counters.replaced.fetch_add(1, Relaxed);
        let payload = letter.cut(most).encode().into();
        self.ready.push_front(Kept { payload, ..kept });
    }

    async fn publish(&mut self, kept: Kept) {
        let Some((subject, headers, body)) = self.address(&kept) else {
            let reason = format!("sequence {} of the spool is neither a batch nor a message", kept.seq);
            tracing::error!(seq = kept.seq, "{reason}");
            self.replace(kept.run, kept.seq, reason);
            return;
        };
        if let Some(most) = self.most().filter(|most| body.len() > *most) {
            self.shorten(kept, body.len(), most);
            return;
        }
        self.parts.counters.sent.fetch_add(1, Relaxed);
        let size = kept.payload.len();
        match self.parts.bus.js.publish_with_headers(subject, headers, body).await {
            Ok(ack) => {
                self.flight_bytes += size;
                self.on_way.left(&kept);
                let landing = landing(ack, self.parts.bus.state());
                self.flight.push(Box::pin(async move { (kept, landing.await) }));
            }
            Err(error) => {
                self.ready.push_front(kept);
                self.fail(&error.to_string());
            }
        }
    }

    fn is_connected(&self) -> bool {
        *self.parts.bus.state().borrow() == BusState::Connected
    }

    fn address(&self, kept: &Kept) -> Option<(String, HeaderMap, Bytes)> {
        let owner = self.parts.identity.borrow();
        let owner = owner.as_ref()?;
        let letter = match kept.table {
            Table::Messages => Some(Letter::decode(&kept.payload)?),
            _ => None,
        };
        let id = BatchId {
            entity: kept.run.entity,
            boot_epoch: kept.run.epoch,
            seq: kept.seq,
        };
        let mut headers = HeaderMap::new();
        headers.insert(wire::ENTITY_ID, id.entity.to_string());
        headers.insert(wire::ENTITY_NAME, owner.name.as_str());
        headers.insert(wire::BOOT_EPOCH, id.boot_epoch.to_string());
        headers.insert(wire::SEQUENCE, id.seq.to_string());
        headers.insert(
            wire::SETTLED,
            self.reader.settled(kept.run).min(kept.seq - 1).to_string(),
        );
        headers.insert(wire::MESSAGE_ID, self.parts.marks.of(id));
        if let Some(letter) = letter {
            headers.insert(wire::CONTENT_TYPE, Encoding::Cbor.content_type());
            letter.head(self.on_way.place(kept, &letter), &mut headers);
            return Some((letter.subject(&owner.name)?, headers, letter.body().clone()));
        }
        headers.insert(wire::CONTENT_TYPE, Encoding::Arrow.content_type());
        Some((
            subject::telemetry(kept.table, &owner.name)?,
            headers,
            Bytes::clone(&kept.payload),
        ))
    }

    fn landed(&mut self, kept: Kept, result: Result<u64, String>) {
        self.flight_bytes = self.flight_bytes.saturating_sub(kept.payload.len());
        self.on_way.arrived(&kept);
        match result {
            Ok(sequence) => {
                self.stream.accepted(sequence);
                self.refused = self.refused.filter(|refused| *refused != (kept.run, kept.seq));
                self.parts.counters.acked.fetch_add(1, Relaxed);
                if std::mem::take(&mut self.failing) {
                    tracing::info!("the bus takes telemetry again");
                }
            }
            Err(reason) => {
                let is_later =
                    |other: &Kept| other.run.epoch > kept.run.epoch || (other.run == kept.run && other.seq > kept.seq);
                let at = self.ready.iter().position(is_later).unwrap_or(self.ready.len());
                self.ready.insert(at, kept);
                self.refused = self.ready.front().map(|first| (first.run, first.seq));
                self.fail(&reason);
            }
        }
    }

    fn fail(&mut self, reason: &str) {
        self.stream.is_in_doubt = true;
        self.hold_until = Some(Instant::now() + HOLD);
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(
                reason,
                "the bus did not take a batch; it stays in the spool and is sent again"
            );
        }
    }

    /// Tells what the bus takes, which may be another one after a while. Sends everything above the floor again if the Mixer
    /// speaks and has no more of it.
    fn look(&mut self) {
        let waiting = self.reader.first_waiting();
        let connected = self.is_connected();
        if let (true, Some(most), Some((_, limits))) = (connected, self.most(), &self.parts.lane) {
            limits.bus_takes(most);
        }
        if waiting != self.stall.waiting || !connected || waiting.is_none() {
            self.stall = Stall {
                waiting,
                since: Instant::now(),
                wait: self.parts.stall,
                heard: self.parts.spool.heard(),
            };
            return;
        }
        let done = self.flight.is_empty() && self.ready.is_empty();
        let heard = self.parts.spool.heard();
        if done && self.stall.since.elapsed() >= self.stall.wait && heard > self.stall.heard {
            tracing::warn!(waited = ?self.stall.wait, "the Mixer does not have what the bus acknowledged: sending it again");
            self.parts.counters.resends.fetch_add(1, Relaxed);
            self.cursor = Cursor::default();
            self.stall.since = Instant::now();
            self.stall.wait = (self.stall.wait * 2).min(MAX_STALL);
            self.stall.heard = heard;
        }
    }
}

/// Waits for an acknowledgement, as long as the connection lives that it would come by.
async fn landing(ack: PublishAckFuture, mut state: watch::Receiver<BusState>) -> Result<u64, String> {
    let lost = state.wait_for(|state| *state != BusState::Connected);
    tokio::select! {
        ack = tokio::time::timeout(ACK_WITHIN, ack.into_future()) => match ack {
            Ok(Ok(ack)) => Ok(ack.sequence),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no acknowledgement in time".to_owned()),
        },
        _ = lost => Err("the connection was lost".to_owned()),
    }
}
