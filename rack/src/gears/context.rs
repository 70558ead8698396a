//! What a gear can do: speak, make messages, send them, learn that it shall stop.
//!
//! # Invariants
//!
//! - Every message that leaves a gear passes [`GearContext::send`]: hops are counted and both limits are kept there. What is refused for
//!   a limit and came, or would leave, by a guaranteed wire becomes a dead letter, unless its sender hears of it.
//! - Every message has one span for each gear that made or handled it, named `<type> <gear>`; sampling is decided where
//!   the trace begins and carried along.
//! - What a gear sends while it handles a message leaves the Rack together with the word that the message was taken, or not at
//!   all. Sent at another time it is durable before [`GearContext::send`] returns.
//! - What is logged while a message is handled is that signal's ([`super::trace_context`]).
//! - Refusals are reported once for each reason and reporting interval, with the number of others like it.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use model::dead_letter::PortSide;
use model::message::Message;
use model::{Attributes, Entropy, FluxId, Level, MessageId, SpanId, SpanStatus, Token, TraceId};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;

use super::GearError;
use super::exec::ProgramAllowList;
use super::gear_counters::GearCounters;
use super::output_transaction::{DeferredOutput, DeliveryGuarantee, GearOutput, add_output, collect_output};
use super::shutdown::GearShutdown;
use super::stall_watchdog::{BackpressureSource, CurrentWork, WorkGuard, is_watched};
use super::trace_context::TraceContext;
use super::traceparent::TraceParent;
use crate::gears::{GearSpec, OutputWires};
use crate::message_limits::{MessageLimits, PayloadLimit};
use crate::outbox::{
    CreditDemand, DeliveryHistory, MessageOutbox, OutboxDeadLetter, OutboxPermit, OutboxTransaction, OutgoingMessage,
};
use crate::spool::SourceCheckpoint;
use crate::spool::{AdmissionClass, DurabilityNotifier};
use crate::tap::TapPoint;
use crate::telemetry::{SpanRow, TelemetryRecorder};

/// Why a message did not leave the gear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GearSendError {
    /// Too many gears.
    #[error("the message has passed {max} gears, the most that max_hops allows: is there a loop in the wires?")]
    Hops { max: u32 },
    /// Too many bytes.
    #[error("the message has {size} bytes; {} allows {}", most.whose, most.bytes)]
    Size { size: usize, most: PayloadLimit },
    /// It could not be kept for the guaranteed lane.
    #[error("the message could not be kept: the Rack is stopping")]
    NotKept,
    /// Nobody listens.
    #[error("no wire leads from port {port}: wire it to a gear, or remove this gear")]
    Unwired { port: &'static str },
}

impl GearSendError {
    const fn kind(self) -> usize {
        match self {
            Self::Hops { .. } => 0,
            Self::Size { .. } => 1,
            Self::Unwired { .. } => 2,
            Self::NotKept => 3,
        }
    }
}

/// What counts the messages that a gear rejected, behind the kinds of [`GearSendError`].
const REJECTED: usize = 4;
/// What counts those that were lost before it had them.
const LOST: usize = 5;

/// What a context is made of.
pub(crate) struct ContextParts {
    pub(crate) recorder: TelemetryRecorder,
    pub(crate) entropy: Entropy,
    pub(crate) limits: MessageLimits,
    pub(crate) programs: ProgramAllowList,
    pub(crate) outlets: OutputWires,
    /// Where messages of the guaranteed lane leave; none in a Rack without a bus.
    pub(crate) outbox: Option<Arc<MessageOutbox>>,
    pub(crate) shutdown: GearShutdown,
    /// Where what it sends is shown to who watches.
    pub(crate) tap: Arc<TapPoint>,
}

/// A gear's surroundings.
pub(crate) struct GearContext {
    name: Token,
    span_name: String,
    /// Whether what arrives are answers to its own requests.
    answers: bool,
    parts: ContextParts,
    meter: GearCounters,
    in_hand: CurrentWork,
    /// Refusals of each kind since the last report.
    refusals: [AtomicU64; LOST + 1],
    /// The messages in work that were letters before.
    letters: Mutex<BTreeMap<MessageId, DeliveryHistory>>,
    /// What outlives the gear's lives.
    kept: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl GearContext {
    pub(crate) fn new(spec: &GearSpec, mut parts: ContextParts) -> Self {
        parts.recorder = parts.recorder.for_gear(&spec.name, spec.kind.name());
        Self {
            name: spec.name.clone(),
            span_name: format!("{} {}", spec.kind.name(), spec.name),
            answers: spec.kind.answers(),
            parts,
            meter: GearCounters::default(),
            in_hand: CurrentWork::default(),
            refusals: Default::default(),
            letters: Mutex::default(),
            kept: OnceLock::new(),
        }
    }

    /// The gear's name.
    pub(crate) fn name(&self) -> &Token {
        &self.name
    }

    /// This Rack's name, once it has one.
    pub(crate) fn rack(&self) -> Option<Token> {
        self.parts.outbox.as_ref()?.rack()
    }

    /// Where the gear's rows go.
    pub(crate) fn recorder(&self) -> &TelemetryRecorder {
        &self.parts.recorder
    }

    /// What the gear is at.
    pub(crate) const fn in_hand(&self) -> &CurrentWork {
        &self.in_hand
    }

    /// What messages may be.
    pub(crate) const fn limits(&self) -> &MessageLimits {
        &self.parts.limits
    }

    /// What gears may run on this Rack.
    pub(crate) const fn programs(&self) -> &ProgramAllowList {
        &self.parts.programs
    }

    /// Resolves when the gear shall stop.
    pub(crate) async fn stopping(&self) {
        self.parts.shutdown.stop.cancelled().await;
    }

    /// Whether the gear shall stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.parts.shutdown.stop.is_cancelled()
    }

    /// Resolves when what is in the inbox is the last that comes.
    pub(crate) async fn draining(&self) {
        self.stopping().await;
        if self.answers {
            self.parts.shutdown.unfed.cancelled().await;
            self.parts.shutdown.quiet.cancelled().await;
        }
    }

    /// Whether what is in the inbox is the last that comes.
    pub(crate) fn is_draining(&self) -> bool {
        let GearShutdown { unfed, quiet, .. } = &self.parts.shutdown;
        self.is_stopping() && (!self.answers || unfed.is_cancelled() && quiet.is_cancelled())
    }

    /// Whether another gear takes over what waits in the inbox.
    pub(crate) fn has_successor(&self) -> bool {
        !self.answers && self.parts.shutdown.successor.is_cancelled()
    }

    /// The gear sends nothing of its own any more.
    pub(crate) fn mark_quiet(&self) {
        self.parts.shutdown.quiet.cancel();
    }

    /// Whether anything listens to an output.
    pub(crate) fn is_wired(&self, port: &str) -> bool {
        self.parts.outlets.is_wired(port)
    }

    /// Whether an output leaves the Rack.
    pub(crate) fn is_published(&self, port: &str) -> bool {
        self.parts.outlets.is_published(port)
    }

    /// A note that the outbox has.
    pub(crate) fn note(&self, key: &str) -> Option<Vec<u8>> {
        self.parts.outbox.as_ref()?.spool().checkpoint(key)
    }

    /// How many bytes of messages that are taken together a gear may hold: so many, or what the outbox admits of consumers in any case.
    pub(crate) fn most_held(&self, most: usize) -> usize {
        let outbox = self.parts.outbox.as_ref();
        outbox.map_or(most, |outbox| outbox.max_transaction_bytes().min(most))
    }

    /// Rejects a message of which nothing could be sent on: beside others it would take their result along.
    pub(crate) fn check_hops(&self, message: &Message) -> Result<(), GearError> {
        let max = self.limits().max_hops();
        if message.hops < max {
            return Ok(());
        }
        Err(GearError::Rejected(GearSendError::Hops { max }.to_string()))
    }

    /// Waits until what this gear, or one before it, has handed to the outbox is durable; false if the Rack is stopping.
    pub(crate) async fn wait_until_durable(&self) -> bool {
        match &self.parts.outbox {
            Some(outbox) => outbox.flush().await.is_ok(),
            None => true,
        }
    }

    /// What a life of this gear leaves to the next one after a failure: the same thing in each of them, of one type for each
    /// type of gear. A new scenario begins with nothing.
    pub(crate) fn restart_state<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let kept = self.kept.get_or_init(|| Arc::<T>::default());
        Arc::clone(kept).downcast().unwrap_or_default()
    }

    /// A log line about the gear itself, or about the message that is being handled.
    pub(crate) fn log(&self, level: Level, message: impl Into<String>) {
        let (attributes, flux_id) = TraceContext::record_fields();
        self.parts.recorder.log(level, message, attributes, flux_id);
    }

    /// Something failed: counted and logged.
    pub(crate) fn error(&self, message: impl Into<String>) {
        self.meter.error();
        self.log(Level::Error, message);
    }

    /// A message of the gear's own making, in a trace of its own or in the caller's.
    pub(crate) fn make(&self, parent: Option<TraceParent>, meta: Attributes, raw: Vec<u8>) -> Message {
        let flux = self.entropy10();
        let span_id = self.new_span_id();
        let (trace_id, sampled) = parent.map_or_else(
            || {
                let trace_id = TraceId::from_entropy(self.parts.entropy.bytes());
                (trace_id, self.parts.recorder.sample(&trace_id))
            },
            |parent| (parent.trace_id, parent.sampled),
        );
        let ts = self.parts.recorder.now();
        Message {
            id: MessageId::at(ts, self.entropy10()),
            ts,
            raw,
            data: Value::Null,
            hops: 0,
            meta,
            parent: None,
            flux_id: FluxId::at(ts, flux),
            sampled,
            span_id,
            trace_id,
        }
    }

    /// A message made of another one, to be sent on: an id of its own, the same signal, trace and facts.
    pub(crate) fn child(&self, of: &Message) -> Message {
        let ts = self.parts.recorder.now();
        of.child(MessageId::at(ts, self.entropy10()), ts)
    }

    fn entropy10(&self) -> [u8; 10] {
        let [ten @ .., _, _, _, _, _, _, _, _] = self.parts.entropy.bytes::<18>();
        ten
    }

    fn new_span_id(&self) -> SpanId {
        SpanId::from_entropy(self.parts.entropy.bytes())
    }

    /// Sends a message that [`make`](Self::make) made, under a span that began at `began`.
    pub(crate) async fn emit(
        &self,
        port: &'static str,
        message: Message,
        parent: Option<SpanId>,
        began: Instant,
    ) -> Result<(), GearSendError> {
        let mut span = OpenSpan::of(self, &message, parent, began);
        let sent = self.send(port, message).await;
        span.ok = sent.is_ok();
        sent
    }

    /// The same for a caller who hears of a refusal: nothing is kept of what was refused.
    pub(crate) async fn emit_for_caller(
        &self,
        port: &'static str,
        message: Message,
        parent: Option<SpanId>,
        began: Instant,
    ) -> Result<(), GearSendError> {
        let mut span = OpenSpan::of(self, &message, parent, began);
        let sent = match self.pass(port, message).await {
            Ok(()) => Ok(()),
            Err(refused) => {
                let (message, why) = *refused;
                self.refuse(&message, why)
            }
        };
        span.ok = sent.is_ok();
        sent
    }

    /// Sends a message on: one more hop, within the limits, to every wire of the port, waiting where it is full.
    pub(crate) async fn send(&self, port: &'static str, message: Message) -> Result<(), GearSendError> {
        let Err(refused) = self.pass(port, message).await else {
            return Ok(());
        };
        let (message, why) = *refused;
        let is_kept = match why {
            GearSendError::Hops { .. } => true,
            GearSendError::Size { .. } => {
                DeliveryGuarantee::current() == DeliveryGuarantee::Again || self.is_published(port)
            }
            GearSendError::NotKept | GearSendError::Unwired { .. } => false,
        };
        if is_kept {
            self.dead_letter((port, PortSide::Out), &message, (why.to_string(), 1))
                .await;
        }
        self.refuse(&message, why)
    }

    /// Sends a message on, or gives it back as it was refused.
    async fn pass(&self, port: &'static str, mut message: Message) -> Result<(), Box<(Message, GearSendError)>> {
        message.hops = message.hops.saturating_add(1);
        let body = match self.admit(port, &message) {
            Ok(body) => body,
            Err(why) => return Err(Box::new((message, why))),
        };
        if let Some(body) = body
            && !self.send_to_outbox(port, body).await
        {
            return Err(Box::new((message, GearSendError::NotKept)));
        }
        self.parts.tap.show(port, &message, || self.parts.recorder.now());
        let waiting = self.begin_wait(BackpressureSource::Port(port));
        self.parts.outlets.send(port, message).await;
        drop(waiting);
        self.meter.sent();
        Ok(())
    }

    /// Says that what is in hand may wait for room.
    fn begin_wait(&self, behind: BackpressureSource) -> Option<WorkGuard<'_>> {
        is_watched().then(|| self.in_hand.begin_wait(behind))
    }

    /// Whether a message may go by a port; encoded if it leaves the Rack there.
    fn admit(&self, port: &'static str, message: &Message) -> Result<Option<Vec<u8>>, GearSendError> {
        let max_hops = self.limits().max_hops();
        if message.hops > max_hops {
            return Err(GearSendError::Hops { max: max_hops });
        }
        // What leaves is encoded anyhow; of the rest only the size is wanted.
        let leaves = self.is_published(port);
        let body = leaves.then(|| message.to_cbor()).transpose();
        let body = body.map_err(|_| GearSendError::NotKept)?;
        let size = body.as_ref().map_or_else(|| message.size(), Vec::len);
        let most = self.limits().payload_limit(leaves);
        if size > most.bytes {
            return Err(GearSendError::Size { size, most });
        }
        if !self.is_wired(port) {
            return Err(GearSendError::Unwired { port });
        }
        Ok(body)
    }

    /// Lets a message leave the Rack: with what the message before it made, or at once, and then it waits until it is durable.
    async fn send_to_outbox(&self, port: &'static str, body: Vec<u8>) -> bool {
        let leaving = OutgoingMessage {
            gear: self.name.clone(),
            port,
            body,
        };
        let mut leaving = vec![leaving];
        if add_output(|gathered| gathered.transaction.leaving.append(&mut leaving)) {
            return true;
        }
        let transaction = OutboxTransaction {
            leaving,
            ..OutboxTransaction::default()
        };
        let (done, durable) = oneshot::channel();
        if !self.commit_by(self.source_class(), transaction, Some(done)).await {
            return false;
        }
        let _waiting = self.begin_wait(BackpressureSource::Outbox);
        matches!(durable.await, Ok(Ok(())))
    }

    /// A message was a letter before: if it becomes one again until it [has been handled](Self::untrack_replay), that one knows.
    pub(crate) fn track_replay(&self, message: MessageId, past: &DeliveryHistory) {
        self.letters.lock().insert(message, past.clone());
    }

    /// The end of [`track_replay`](Self::track_replay).
    pub(crate) fn untrack_replay(&self, message: MessageId) {
        self.letters.lock().remove(&message);
    }

    /// Keeps a message that goes no further, where somebody can find it: why, and after how many attempts.
    pub(crate) async fn dead_letter(
        &self,
        (port, way): (&str, PortSide),
        message: &Message,
        (reason, attempts): (String, u32),
    ) {
        let past = self.letters.lock().get(&message.id).cloned();
        let dead = OutboxDeadLetter {
            gear: self.name.clone(),
            port: port.to_owned(),
            way,
            reason,
            attempts,
            past: past.unwrap_or_default(),
            body: message.to_cbor().unwrap_or_default(),
        };
        let mut dead = vec![dead];
        if add_output(|gathered| gathered.transaction.dead.append(&mut dead)) {
            return;
        }
        let transaction = OutboxTransaction {
            dead,
            ..OutboxTransaction::default()
        };
        self.commit(transaction, None).await;
    }

    /// Does work whose messages leave together, with a note; true once they are durable, or if there is nothing to keep.
    pub(crate) async fn commit_together(&self, note: Option<SourceCheckpoint>, work: impl Future<Output = ()>) -> bool {
        let ((), gathered) = collect_output(DeliveryGuarantee::Once, work).await;
        let transaction = OutboxTransaction {
            notes: note.into_iter().collect(),
            ..gathered.transaction
        };
        if transaction.is_empty() {
            return true;
        }
        let (done, durable) = oneshot::channel();
        self.commit_by(self.source_class(), transaction, Some(done)).await && matches!(durable.await, Ok(Ok(())))
    }

    /// Does work that sends by a port what one read has brought, with a note: with one sync. If the port has hot wires too, each message
    /// is durable before it goes there, and the note after them. True once all is durable, or if there is nothing to keep.
    pub(crate) async fn commit_received(
        &self,
        port: &str,
        note: Option<SourceCheckpoint>,
        work: impl Future<Output = ()>,
    ) -> bool {
        if self.parts.outlets.is_hot(port) {
            work.await;
            self.commit_together(note, std::future::ready(())).await
        } else {
            self.commit_together(note, work).await
        }
    }

    /// Does work for a message of a guaranteed wire whose handling began before, while the gear flushes: what is sent leaves
    /// together with the word that the message was taken.
    pub(crate) async fn commit_for(&self, of: MessageId, work: impl Future<Output = ()>) {
        self.group_commit((of, of), work).await;
    }

    /// The same for several messages of which the gear makes one thing: all from the first to the last one are taken together.
    pub(crate) async fn group_commit(&self, (first, last): (MessageId, MessageId), work: impl Future<Output = ()>) {
        let ((), GearOutput { transaction, .. }) = collect_output(DeliveryGuarantee::Again, work).await;
        let mut later = vec![DeferredOutput {
            first,
            last,
            transaction,
        }];
        if !add_output(|gathered| gathered.later.append(&mut later)) {
            for DeferredOutput { transaction, .. } in later {
                self.commit(transaction, None).await;
            }
        }
    }

    /// Keeps notes together with what the work sends in which it is called.
    pub(crate) fn add_notes(&self, mut notes: Vec<SourceCheckpoint>) {
        let is_gathered = add_output(|gathered| gathered.transaction.notes.append(&mut notes));
        debug_assert!(is_gathered, "notes belong to what is gathered");
    }

    /// Does work for a message that does not come again, beside the one that is being handled: what is sent leaves at once.
    pub(crate) async fn commit_immediately(&self, work: impl Future<Output = ()>) {
        let ((), made) = collect_output(DeliveryGuarantee::Once, work).await;
        if !made.transaction.is_empty() {
            self.commit(made.transaction, None).await;
        }
    }

    /// Room at the outbox for what a whole asks for; none if the Rack is stopping, or has no outbox.
    pub(crate) async fn room(&self, demand: CreditDemand) -> Option<OutboxPermit<'_>> {
        self.room_by(self.class(), demand).await
    }

    async fn room_by(&self, class: AdmissionClass, demand: CreditDemand) -> Option<OutboxPermit<'_>> {
        let _waiting = self.begin_wait(BackpressureSource::Outbox);
        self.parts.outbox.as_ref()?.acquire_permit(demand, class).await.ok()
    }

    /// Hands a whole to the outbox; false if the Rack is stopping, or has none.
    pub(crate) async fn commit(
        &self,
        transaction: OutboxTransaction,
        done: impl IntoIterator<Item = DurabilityNotifier>,
    ) -> bool {
        self.commit_by(self.class(), transaction, done).await
    }

    async fn commit_by(
        &self,
        class: AdmissionClass,
        transaction: OutboxTransaction,
        done: impl IntoIterator<Item = DurabilityNotifier>,
    ) -> bool {
        let room = self.room_by(class, transaction.demand()).await;
        room.is_some_and(|room| room.commit(transaction, done).is_ok())
    }

    /// By which share of the outbox the gear's messages leave.
    fn class(&self) -> AdmissionClass {
        let outbox = self.parts.outbox.as_ref();
        outbox.map_or(AdmissionClass::Producer, |outbox| outbox.admission_class(&self.name))
    }

    /// The same of what it sends by itself: of a gear that takes replies, that is what others ask.
    fn source_class(&self) -> AdmissionClass {
        if self.answers {
            AdmissionClass::Producer
        } else {
            self.class()
        }
    }

    /// Sends a message to an output that need not be wired: where nobody listens it ends here, counted as dropped.
    pub(crate) async fn send_if_wired(&self, port: &'static str, message: Message) {
        if self.is_wired(port) {
            // A refusal has been counted and reported.
            self.send(port, message).await.ok();
        } else {
            self.count_dropped();
        }
    }

    /// A message ends here as the configuration wants it: counted as dropped, not reported.
    pub(crate) fn count_dropped(&self) {
        self.meter.dropped();
    }

    /// So many messages were lost before they were taken.
    pub(crate) fn count_lost(&self, count: u64, why: &str) {
        self.meter.lost(count);
        if self.refusals[LOST].fetch_add(count, Relaxed) == 0 {
            self.error(format!("messages are lost: {why}"));
        }
    }

    fn refuse(&self, message: &Message, why: GearSendError) -> Result<(), GearSendError> {
        TraceContext::of(message).in_scope(|| self.report_first(why.kind(), || why.to_string()));
        Err(why)
    }

    /// A message that arrived cannot be handled.
    pub(crate) fn reject(&self, reason: &str) {
        self.report_first(REJECTED, || reason.to_owned());
    }

    fn report_first(&self, kind: usize, why: impl Fn() -> String) {
        self.meter.dropped();
        if self.refusals[kind].fetch_add(1, Relaxed) == 0 {
            self.error(format!("a message was refused: {}", why()));
        }
    }

    /// Begins this gear's span over a message that arrived: the message's sender becomes the parent.
    pub(crate) fn arrive(&self, message: &mut Message) -> OpenSpan<'_> {
        self.meter.received();
        let parent = std::mem::replace(&mut message.span_id, self.new_span_id());
        let mut span = OpenSpan::of(self, message, Some(parent), Instant::now());
        if let Some(row) = &mut span.row {
            row.ts = self.parts.recorder.now();
        }
        span
    }

    /// Records the counters, and how many refusals were not logged one by one.
    pub(crate) fn report(&self) {
        for refusals in &self.refusals {
            let count = refusals.swap(0, Relaxed);
            if count > 1 {
                self.log(
                    Level::Error,
                    format!("{} more messages were refused for the same reason", count - 1),
                );
            }
        }
        self.meter.report(&self.parts.recorder);
    }
}

/// A span that ends when it is dropped: with an error, unless `ok` was set, so that a panic leaves its trace.
pub(crate) struct OpenSpan<'a> {
    cx: &'a GearContext,
    row: Option<SpanRow>,
    began: Instant,
    pub(crate) ok: bool,
}

impl<'a> OpenSpan<'a> {
    fn of(cx: &'a GearContext, message: &Message, parent: Option<SpanId>, began: Instant) -> Self {
        let row = message.sampled.then(|| SpanRow {
            ts: message.ts,
            trace_id: message.trace_id,
            span_id: message.span_id,
            parent_span_id: parent,
            flux_id: Some(message.flux_id),
            span_name: cx.span_name.clone(),
            duration_ms: 0.0,
            status: SpanStatus::Ok,
            attributes: Attributes::new().with("messaging.message.body.size", message.raw.len()),
        });
        Self {
            cx,
            row,
            began,
            ok: false,
        }
    }
}

impl Drop for OpenSpan<'_> {
    fn drop(&mut self) {
        if let Some(mut row) = self.row.take() {
            row.duration_ms = self.began.elapsed().as_secs_f32() * 1_000.0;
            row.status = if self.ok { SpanStatus::Ok } else { SpanStatus::Error };
            self.cx.parts.recorder.span(row);
        }
    }
}
