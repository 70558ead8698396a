//! `filter`: passes on the messages for which an expression is true.
//!
//! # Invariants
//!
//! - A message leaves unchanged, with its id: by `out` or by `rest`, never by both.
//! - A message on which the expression fails is neither: it is rejected with the reason.

use std::sync::Arc;

use futures::FutureExt;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expression::{CelExpression, MessageVariables};
use super::{RawConfig, GearContext, Gear, PassiveGear, GearFuture};
use crate::inbox::InputMessage;

/// What the type is.
pub(super) const MANIFEST: GearManifest = GearManifest {
    kind: "filter",
    summary: "passes on the messages for which an expression is true",
    inputs: &["in"],
    outputs: &["out", "rest"],
    doc: "Expressions are [CEL](https://cel.dev): `data`, `text`, `meta`, `hops`, `ts` and `flux_id` are the message's. `rest` has the \
          others; where it is not wired they end here and are counted as dropped.",
    example: include_str!("../../../examples/gears/filter.yaml"),
    schema: gear_manifest::schema::<FilterConfig>,
    check: gear_manifest::check::<FilterConfig>,
    passes_on: gear_manifest::never,
};

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

/// Configuration of `filter`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FilterConfig {
    /// The expression that is true for the messages that leave by `out`.
    #[serde(rename = "where")]
    pub(super) kept: String,
}

impl FilterConfig {
    fn compile(&self) -> Result<CelExpression, String> {
        CelExpression::compile("where", &self.kept)
    }
}

impl GearConfig for FilterConfig {
    fn validate(&self) -> Result<(), String> {
        self.compile().map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::testing::Flow;
    use super::*;

    #[test]
    fn an_expression_that_cannot_be_compiled_is_refused_with_key_and_place() {
        for (config, says) in [
            (serde_json::json!({"where": "data.a >"}), "where: at 1:9"),
            (serde_json::json!({"where": "nothing"}), "where: at 1:1: there is no variable nothing"),
            (serde_json::json!({}), "missing field `where`"),
            (serde_json::json!({"where": "true", "when": "x"}), "unknown field `when`"),
        ] {
            let error = (MANIFEST.check)(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }

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
        assert_eq!((flow.counter("again", "gear.messages.dropped"), flow.counter("again", "gear.errors")), (1.0, 0.0));
        assert_eq!((flow.counter("big", "gear.messages.dropped"), flow.counter("big", "gear.errors")), (1.0, 1.0));
    }
}
