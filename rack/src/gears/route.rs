//! `route`: sends each message to the port of the expression that is true for it.
//!
//! # Invariants
//!
//! - A message leaves unchanged, with its id, by every port at most once.
//! - A message on which an expression fails leaves by no port: it is rejected with the reason.

use std::sync::Arc;

use futures::FutureExt;
use model::gear_manifest::{self, GearConfig, GearManifest};
use model::message::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expression::{CelExpression, MessageVariables};
use super::{RawConfig, GearContext, GearError, Gear, PassiveGear, GearFuture};
use crate::inbox::InputMessage;

/// The port of what no route wants.
const ELSE: &str = "else";

/// What the type is.
pub(super) const MANIFEST: GearManifest = GearManifest {
    kind: "route",
    summary: "sends each message to the port of the expression that is true for it",
    inputs: &["in"],
    outputs: &["a", "b", "c", "d", "e", "f", "g", "h", ELSE],
    doc: "A type's ports are fixed, so they are called `a` to `h`; `else` has what no route wants, and where it is not wired that ends \
          here and is counted as dropped. Expressions are [CEL](https://cel.dev): `data`, `text`, `meta`, `hops`, `ts` and `flux_id` are the \
          message's. There is no type that merges: wire several outputs to one input.",
    example: include_str!("../../../examples/gears/route.yaml"),
    schema: gear_manifest::schema::<RouteConfig>,
    check: gear_manifest::check::<RouteConfig>,
    passes_on: gear_manifest::never,
};

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: RouteConfig = gear_manifest::config(config)?;
    Ok(Gear::Passive(Box::new(MessageRouter {
        mode: config.mode,
        routes: config.compile()?,
    })))
}

struct MessageRouter {
    mode: RouteMode,
    routes: Vec<(CelExpression, RoutePort)>,
}

impl PassiveGear for MessageRouter {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let message = delivery.message;
            let ports = self.ports(&message)?;
            let Some((last, others)) = ports.split_last() else {
                cx.send_if_wired(ELSE, message).await;
                return Ok(());
            };
            // A refusal has been counted and reported; another port may take the message.
            for port in others {
                cx.send(port.name(), message.clone()).await.ok();
            }
            cx.send(last.name(), message).await.ok();
            Ok(())
        }
        .boxed()
    }
}

impl MessageRouter {
    /// The ports of a message, each once.
    fn ports(&self, message: &Message) -> Result<Vec<RoutePort>, GearError> {
        let scope = MessageVariables::of(message);
        let mut ports = Vec::new();
        for (when, to) in &self.routes {
            if ports.contains(to) || !when.is_true(&scope)? {
                continue;
            }
            ports.push(*to);
            if self.mode == RouteMode::First {
                break;
            }
        }
        Ok(ports)
    }
}

/// Configuration of `route`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteConfig {
    /// The routes in the order in which they are asked, 64 at most.
    pub(super) routes: Vec<RouteRule>,
    /// Whether a message goes to the first route that wants it, or to all of them.
    #[serde(default)]
    pub(super) mode: RouteMode,
}

/// One route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteRule {
    /// The expression that is true for the messages of this route.
    when: String,
    /// The port by which they leave, `a` to `h`. Several routes may share one.
    to: RoutePort,
}

/// How many routes a message goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RouteMode {
    /// Only the first.
    #[default]
    First,
    /// Every one.
    All,
}

/// An output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum RoutePort {
    A,
    B,
    C,
    D,
    E,
    F,
    G,
    H,
}

impl RoutePort {
    const fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
            Self::G => "g",
            Self::H => "h",
        }
    }
}

/// The most routes.
const MAX_ROUTES: usize = 64;

impl RouteConfig {
    fn compile(&self) -> Result<Vec<(CelExpression, RoutePort)>, String> {
        let routes = self.routes.iter().enumerate();
        let compiled = routes.map(|(index, RouteRule { when, to })| {
            let expression = CelExpression::compile(&format!("routes[{index}].when"), when)?;
            Ok((expression, *to))
        });
        compiled.collect()
    }
}

impl GearConfig for RouteConfig {
    fn validate(&self) -> Result<(), String> {
        if self.routes.is_empty() || self.routes.len() > MAX_ROUTES {
            return Err(format!("routes must have 1 to {MAX_ROUTES} entries, it has {}", self.routes.len()));
        }
        self.compile().map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::super::testing::Flow;
    use super::*;

    #[test]
    fn a_route_that_cannot_be_gone_is_refused() {
        for (config, says) in [
            (json!({"routes": []}), "routes must have 1 to 64 entries, it has 0"),
            (json!({"routes": [{"when": "true", "to": "z"}]}), "unknown variant `z`"),
            (json!({"routes": [{"when": "true", "to": "a"}, {"when": "a", "to": "b"}]}), "routes[1].when: at 1:1"),
            (json!({"routes": [{"when": "true", "to": "a"}], "mode": "some"}), "unknown variant `some`"),
        ] {
            let error = (MANIFEST.check)(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }

    fn gears(mode: &str) -> String {
        format!(
            "
  - {{ name: feed, type: test_feed, deploy: rack-a, config: {{ messages: [ {{ data: 1 }}, {{ data: 5 }}, {{ data: 9 }}, {{ data: -1 }}, {{ data: x }} ] }} }}
  - {{ name: route, type: route, deploy: rack-a, config: {{ mode: {mode}, routes: [
      {{ when: 'data > 7', to: a }}, {{ when: 'data > 3', to: h }}, {{ when: 'data > 8', to: a }}, {{ when: 'data > 0', to: b }} ] }} }}
  - {{ name: a, type: log_sink, deploy: rack-a }}
  - {{ name: bh, type: log_sink, deploy: rack-a }}
  - {{ name: rest, type: log_sink, deploy: rack-a }}"
        )
    }

    const WIRES: &str = "{ from: feed.out, to: route.in }, { from: route.a, to: a.in }, { from: route.b, to: bh.in }, \
                         { from: route.h, to: bh.in }, { from: route.else, to: rest.in }";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_message_goes_to_the_first_route_that_wants_it_or_to_else() {
        let flow = Flow::run(&gears("first"), WIRES).await;
        assert_eq!(flow.texts("a"), ["9"]);
        assert_eq!(flow.texts("bh"), ["1", "5"]);
        assert_eq!(flow.texts("rest"), ["-1"]);
        assert!(flow.says("route", "a message was refused: routes[0].when: "));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_message_goes_to_all_routes_that_want_it_and_once_to_each_port() {
        let flow = Flow::run(&gears("all"), WIRES).await;
        assert_eq!(flow.texts("a"), ["9"]);
        assert_eq!(flow.texts("bh"), ["1", "5", "5", "9", "9"]);
        let unwired = WIRES.replace(", { from: route.else, to: rest.in }", "");
        let flow = Flow::run(&gears("all"), &unwired).await;
        assert_eq!(flow.counter("route", "gear.messages.dropped"), 2.0);
        assert_eq!(flow.counter("route", "gear.errors"), 1.0);
    }
}
