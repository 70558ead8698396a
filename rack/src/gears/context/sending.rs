//! Sending messages: every message that leaves a gear passes here, and is admitted or refused.
//!
//! # Invariants
//!
//! - Hops and both limits are kept here. What is refused for a limit and came, or would leave, by a guaranteed wire becomes a dead letter,
//!   unless its sender hears of it.
//! - Refusals are reported once for each reason and reporting interval.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use model::SpanId;
use model::dead_letter::PortSide;
use model::message::Message;
use tokio::sync::oneshot;

use super::{GearContext, GearSendError, LOST, REJECTED};
use crate::gears::output_transaction::{DeliveryGuarantee, add_output};
use crate::gears::stall_watchdog::{BackpressureSource, WorkGuard, is_watched};
use crate::gears::trace_context::TraceContext;
use crate::outbox::{OutboxTransaction, OutgoingMessage};

impl GearContext {
    /// Sends a message that [`make`](Self::make) made, under a span that began at `began`.
    pub(crate) async fn emit(
        &self,
        port: &'static str,
        message: Message,
        parent: Option<SpanId>,
        began: Instant,
    ) -> Result<(), GearSendError> {
        let span = self.open_span(&message, parent, began);
        let sent = span.scope(self.send(port, message)).await;
        span.set_outcome(&sent);
        sent
    }

    /// Sends a message on for a caller who hears of a refusal: nothing is kept of what was refused.
    pub(crate) async fn send_for_caller(&self, port: &'static str, message: Message) -> Result<(), GearSendError> {
        match self.pass(port, message).await {
            Ok(()) => Ok(()),
            Err(refused) => {
                let (message, why) = *refused;
                self.refuse(&message, why)
            }
        }
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
    pub(super) async fn pass(
        &self,
        port: &'static str,
        mut message: Message,
    ) -> Result<(), Box<(Message, GearSendError)>> {
        message.hops = message.hops.saturating_add(1);
        let body = match self.admit(port, &message) {
            Ok(body) => body,
            Err(why) => return Err(Box::new((message, why))),
        };
        if let Some(body) = body {
            self.mark_published(port);
            if !self.send_to_outbox(port, body).await {
                return Err(Box::new((message, GearSendError::NotKept)));
            }
        }
        self.parts.tap.show(port, &message, || self.parts.recorder.now());
        let waiting = self.begin_wait(BackpressureSource::Port(port));
        self.parts.outlets.send(port, message).await;
        drop(waiting);
        self.meter.sent();
        Ok(())
    }

    /// Says that what is in hand may wait for room.
    pub(super) fn begin_wait(&self, behind: BackpressureSource) -> Option<WorkGuard<'_>> {
        is_watched().then(|| self.in_hand.begin_wait(behind))
    }

    /// Whether a message may go by a port; encoded if it leaves the Rack there.
    pub(super) fn admit(&self, port: &'static str, message: &Message) -> Result<Option<Vec<u8>>, GearSendError> {
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
    pub(super) async fn send_to_outbox(&self, port: &'static str, body: Vec<u8>) -> bool {
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

    pub(super) fn refuse(&self, message: &Message, why: GearSendError) -> Result<(), GearSendError> {
        TraceContext::of(message).in_scope(|| self.report_first(why.kind(), || why.to_string()));
        Err(why)
    }

    /// A message that arrived cannot be handled.
    pub(crate) fn reject(&self, reason: &str) {
        self.report_first(REJECTED, || reason.to_owned());
    }

    pub(super) fn report_first(&self, kind: usize, why: impl Fn() -> String) {
        self.meter.dropped();
        if self.refusals[kind].fetch_add(1, Relaxed) == 0 {
            self.error(format!("a message was refused: {}", why()));
        }
    }
}
