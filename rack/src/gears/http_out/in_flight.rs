//! Several requests under way at a time: what came of each, until the gear flushes.
//!
//! ```text
//! begin ─▶ request ─┬─ delivered ─▶ waits for the flush; its reply leaves with the word that its message was taken
//!                   ├─ rejected  ─▶ the same, with a dead letter
//!                   └─ failed    ─▶ counted for this message; the gear begins anew, and the message is sent again
//! ```
//!
//! # Invariants
//!
//! - A failure counts for the message that failed. After [`ATTEMPTS`] of them it becomes a dead letter, and the others go on.
//! - What has ended well is known over the lives of the gear until a flush has succeeded: it is not sent again, and its reply leaves
//!   once.
//! - Messages that do not come again wait for nothing: their replies leave at once.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use model::MessageId;
use model::dead_letter::PortSide;
use model::message::Message;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::super::output_transaction::DeliveryGuarantee;
use super::super::supervisor::ATTEMPTS;
use super::super::trace_context::TraceContext;
use super::super::{GearContext, GearError, OpenSpan};
use super::circuit_breaker::CircuitBreaker;
use super::{RetryingSender, send_reply};
use crate::inbox::InputMessage;

/// What outlives the gear's lives.
#[derive(Default)]
pub(super) struct HttpRestartState {
    pub(super) breaker: CircuitBreaker,
    unsettled: Mutex<UnflushedOutcomes>,
}

/// Messages that come again, since the last flush.
#[derive(Default)]
struct UnflushedOutcomes {
    ended: Vec<(MessageId, RequestOutcome)>,
    /// How often each failed.
    failures: HashMap<MessageId, u32>,
}

/// How a message ended.
enum RequestOutcome {
    Delivered(Option<Box<Message>>),
    Dead(Box<Message>, &'static str, (String, u32)),
}

impl RequestOutcome {
    async fn send(self, cx: &GearContext) {
        match self {
            Self::Delivered(reply) => send_reply(cx, reply).await,
            Self::Dead(message, port, why) => cx.dead_letter((port, PortSide::In), &message, why).await,
        }
    }
}

struct FinishedRequest {
    message: Box<Message>,
    port: &'static str,
    handled: DeliveryGuarantee,
    result: Result<Option<Box<Message>>, GearError>,
}

/// The requests of one life.
#[derive(Default)]
pub(super) struct InFlightRequests {
    kept: Arc<HttpRestartState>,
    under_way: JoinSet<FinishedRequest>,
    /// What ended well in a life before and comes again.
    inherited: HashSet<MessageId>,
    /// Why this life must end.
    fault: Option<GearError>,
}

impl InFlightRequests {
    pub(super) fn new(kept: Arc<HttpRestartState>) -> Self {
        let inherited = kept.unsettled.lock().ended.iter().map(|(id, _)| *id).collect();
        Self {
            kept,
            inherited,
            ..Self::default()
        }
    }

    /// Whether it ends as soon as what is under way has.
    pub(super) const fn is_failing(&self) -> bool {
        self.fault.is_some()
    }

    /// Begins a request, as soon as fewer than `most` are under way.
    pub(super) async fn begin(
        &mut self,
        cx: &Arc<GearContext>,
        sender: Arc<RetryingSender>,
        delivery: InputMessage,
        most: usize,
    ) {
        let handled = DeliveryGuarantee::current();
        if handled == DeliveryGuarantee::Again && self.inherited.remove(&delivery.message.id) {
            return;
        }
        while self.under_way.len() >= most {
            self.join_one(cx).await;
        }
        let (port, message) = (delivery.port, Box::new(delivery.message));
        let (signal, span) = (TraceContext::of(&message), OpenSpan::current());
        let sending = async move {
            let delivered = AssertUnwindSafe(sender.deliver(&message)).catch_unwind().await;
            let result = delivered.unwrap_or_else(|_| Err(sender.outside("the request panicked")));
            FinishedRequest {
                message,
                port,
                handled,
                result,
            }
        };
        self.under_way
            .spawn(async move { span.scope(signal.scope(sending)).await });
    }

    /// Waits for what is under way. If all of it ended well since the last flush, lets leave what that made.
    pub(super) async fn flush(&mut self, cx: &GearContext) -> Result<(), GearError> {
        while !self.under_way.is_empty() {
            self.join_one(cx).await;
        }
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let unsettled = std::mem::take(&mut *self.kept.unsettled.lock());
        self.inherited.clear();
        for (id, outcome) in unsettled.ended {
            cx.commit_for(id, outcome.send(cx)).await;
        }
        Ok(())
    }

    async fn join_one(&mut self, cx: &GearContext) {
        match self.under_way.join_next().await {
            Some(Ok(answered)) => self.end(cx, answered).await,
            Some(Err(cut_off)) => self.fault = Some(cut_off.into()),
            None => {}
        }
    }

    async fn end(&mut self, cx: &GearContext, answered: FinishedRequest) {
        let FinishedRequest {
            message,
            port,
            handled,
            result,
        } = answered;
        let id = message.id;
        let outcome = match result {
            Ok(reply) => RequestOutcome::Delivered(reply),
            Err(GearError::Rejected(reason)) => {
                TraceContext::of(&message).in_scope(|| cx.reject(&reason));
                RequestOutcome::Dead(message, port, (reason, 1))
            }
            Err(fault) => match self.failed(cx, id, handled) {
                Some(attempts) => {
                    let said = format!("a message became a dead letter: {fault}");
                    TraceContext::of(&message).in_scope(|| cx.error(said));
                    RequestOutcome::Dead(message, port, (fault.to_string(), attempts))
                }
                None => {
                    if handled == DeliveryGuarantee::Once {
                        // It does not come again.
                        cx.count_dropped();
                    }
                    self.fault = Some(fault);
                    return;
                }
            },
        };
        match handled {
            DeliveryGuarantee::Again => self.kept.unsettled.lock().ended.push((id, outcome)),
            DeliveryGuarantee::Once => cx.commit_immediately(outcome.send(cx)).await,
        }
    }

    /// Counts a failure; how many there were, if that is too many.
    fn failed(&self, cx: &GearContext, id: MessageId, handled: DeliveryGuarantee) -> Option<u32> {
        // What is cut short by a stop was no attempt.
        if handled == DeliveryGuarantee::Once || cx.is_stopping() {
            return None;
        }
        let mut unsettled = self.kept.unsettled.lock();
        let failures = unsettled.failures.entry(id).or_default();
        *failures += 1;
        (*failures >= ATTEMPTS).then_some(*failures)
    }
}
