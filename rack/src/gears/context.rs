//! What a gear can do: speak, make messages, send them, learn that it shall stop.
//!
//! # Invariants
//!
//! - Every message that leaves a gear passes [`GearContext::send`]: hops are counted and both limits are kept there. What is refused for
//!   a limit and came, or would leave, by a guaranteed wire becomes a dead letter, unless its sender hears of it.
//! - Every message has one span for each gear that made or handled it ([`span`]), named `<type> <gear>`; sampling is decided where
//!   the trace begins and carried along.
//! - What a gear sends while it handles a message leaves the Rack together with the word that the message was taken, or not at
//!   all. Sent at another time it is durable before [`GearContext::send`] returns.
//! - What is logged while a message is handled is that signal's ([`super::trace_context`]).
//! - Refusals are reported once for each reason and reporting interval, with the number of others like it.

mod commits;
mod sending;
mod span;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use model::message::Message;
use model::trace_context::RemoteContext;
use model::{Attributes, Entropy, FluxId, Level, MessageId, SpanId, Token, TraceId};
use parking_lot::Mutex;
use serde_json::Value;

use super::GearError;
use super::exec::ProgramAllowList;
use super::gear_counters::GearCounters;
use super::shutdown::GearShutdown;
use super::stall_watchdog::CurrentWork;
use super::trace_context::TraceContext;
use crate::gears::{OutputWires, WiredGear};
use crate::message_limits::{MessageLimits, PayloadLimit};
use crate::outbox::{DeliveryHistory, MessageOutbox};
use crate::policy::RackPolicy;
use crate::tap::TapPoint;
use crate::telemetry::TelemetryRecorder;

pub(crate) use span::OpenSpan;

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
    pub(crate) policy: RackPolicy,
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
    pub(crate) fn new(spec: &WiredGear, mut parts: ContextParts) -> Self {
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

    /// Says that this Rack records nothing, to a gear that has nothing to do then.
    pub(crate) fn check_recording(&self) -> Result<(), GearError> {
        if self.recorder().is_enabled() {
            return Ok(());
        }
        let off = "observability.enabled is false on this Rack, which records nothing then: set it to true or remove this gear";
        Err(GearError::Config(off.to_owned()))
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

    /// What gears may ask of this Rack.
    pub(crate) const fn policy(&self) -> &RackPolicy {
        &self.parts.policy
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
    pub(crate) fn make(&self, caller: Option<&RemoteContext>, meta: Attributes, raw: Vec<u8>) -> Message {
        let flux = self.entropy10();
        let span_id = self.new_span_id();
        let (trace_id, sampled) = caller.map_or_else(
            || {
                let trace_id = TraceId::from_entropy(self.parts.entropy.bytes());
                (trace_id, self.parts.recorder.sample(&trace_id))
            },
            |caller| (caller.parent.trace_id, caller.parent.sampled),
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
            trace_state: caller.and_then(|caller| caller.state.clone()),
        }
    }

    /// A message made of another one, to be sent on: an id of its own, the same signal, trace and facts.
    pub(crate) fn child(&self, of: &Message) -> Message {
        let ts = self.parts.recorder.now();
        of.child(MessageId::at(ts, self.entropy10()), ts)
    }

    pub(super) fn entropy10(&self) -> [u8; 10] {
        let [ten @ .., _, _, _, _, _, _, _, _] = self.parts.entropy.bytes::<18>();
        ten
    }

    pub(super) fn new_span_id(&self) -> SpanId {
        SpanId::from_entropy(self.parts.entropy.bytes())
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
