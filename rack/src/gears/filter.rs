//! `filter`: passes on the messages for which an expression is true.
//!
//! # Invariants
//!
//! - A message leaves unchanged, with its id: by `out` or by `rest`, never by both.
//! - A message on which the expression fails is neither: it is rejected with the reason.

use std::sync::Arc;

use futures::FutureExt;
use gear_spec::expression::{CelExpression, MessageVariables};
use gear_spec::filter::FilterConfig;
use model::gear_manifest;

use super::{Gear, GearContext, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: FilterConfig = gear_manifest::config(config)?;
    Ok(Gear::Passive(Box::new(ExpressionFilter {
        kept: config.compile()?,
    })))
}

struct ExpressionFilter {
    kept: CelExpression,
}

impl PassiveGear for ExpressionFilter {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            if self.kept.is_true(&MessageVariables::of(&delivery.message))? {
                // A refusal has been counted and reported.
                cx.send("out", delivery.message).await.ok();
            } else {
                cx.send_if_wired("rest", delivery.message).await;
            }
            Ok(())
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::testing::Flow;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn messages_leave_by_out_or_by_rest_and_those_it_fails_on_are_rejected() {
        let flow = Flow::run(
            "
  - { name: feed, type: test_feed, deploy: rack-a, config: { messages: [ { data: { n: 1 } }, { data: { n: 5 } }, { data: { m: 1 } }, { data: { n: 7 } } ] } }
  - { name: big, type: filter, deploy: rack-a, config: { where: 'data.n > 3' } }
  - { name: again, type: filter, deploy: rack-a, config: { where: 'data.n > 5' } }
  - { name: kept, type: log_sink, deploy: rack-a }
  - { name: rest, type: log_sink, deploy: rack-a }",
            "{ from: feed.out, to: big.in }, { from: big.out, to: again.in }, { from: big.rest, to: rest.in }, { from: again.out, to: kept.in }",
        )
        .await;
        assert_eq!(flow.texts("kept"), [r#"{"n":7}"#]);
        assert_eq!(flow.texts("rest"), [r#"{"n":1}"#]);
        assert!(flow.says("big", "a message was refused: where: No such key: n"));
        assert!(!flow.says("again", "refused"));
        assert_eq!(
            (
                flow.counter("again", "gear.messages.dropped"),
                flow.counter("again", "gear.errors")
            ),
            (1.0, 0.0)
        );
        assert_eq!(
            (
                flow.counter("big", "gear.messages.dropped"),
                flow.counter("big", "gear.errors")
            ),
            (1.0, 1.0)
        );
    }
}
