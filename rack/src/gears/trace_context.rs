//! Which message is being handled: what a gear logs meanwhile is that signal's.
//!
//! # Invariants
//!
//! - Work is done within the signal of its message ([`TraceContext::scope`]); a task that a gear starts for one is not unless it says so.
//! - A log record made meanwhile has the message's `flux_id`, and its trace and span as attributes, so that it is found with them.

use std::future::Future;

use model::message::Message;
use model::{Attributes, FluxId, SpanId, TraceId};

tokio::task_local! {
    static HANDLED: TraceContext;
}

/// What a message and all that is said about it have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceContext {
    flux_id: FluxId,
    trace_id: TraceId,
    span_id: SpanId,
}

impl TraceContext {
    /// That of a message whose span is the gear's.
    pub(crate) const fn of(message: &Message) -> Self {
        Self {
            flux_id: message.flux_id,
            trace_id: message.trace_id,
            span_id: message.span_id,
        }
    }

    /// Does work for the message.
    pub(crate) async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        HANDLED.scope(self, work).await
    }

    /// Says something about the message.
    pub(crate) fn in_scope<T>(self, say: impl FnOnce() -> T) -> T {
        HANDLED.sync_scope(self, say)
    }

    /// What a log record made now belongs to.
    pub(crate) fn record_fields() -> (Attributes, Option<FluxId>) {
        let Ok(signal) = HANDLED.try_with(|signal| *signal) else {
            return (Attributes::new(), None);
        };
        let attributes = Attributes::new()
            .with("trace_id", signal.trace_id.to_string())
            .with("span_id", signal.span_id.to_string());
        (attributes, Some(signal.flux_id))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::testing::Flow;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_gear_says_of_a_message_is_found_under_its_signal_and_what_it_says_of_itself_is_not() {
        let gears = "
  - { name: feed, type: test_feed, deploy: rack-a, config: { messages: [ { raw: seven }, { raw: '8' } ] } }
  - { name: pick, type: filter, deploy: rack-a, config: { where: int(text) > 0 } }
  - { name: sink, type: log_sink, deploy: rack-a }";
        let flow = Flow::run(
            gears,
            "{ from: feed.out, to: pick.in }, { from: pick.out, to: sink.in }",
        )
        .await;
        let said = flow.rows("pick");
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0]["message"].as_str().unwrap().contains("refused"), "{said:?}");
        let spans = flow.spans(said[0]["flux_id"].as_str().unwrap());
        assert_eq!(spans, ["test_feed feed", "filter pick"]);
        assert!(flow.says("pick", "the gear runs"));
    }
}
