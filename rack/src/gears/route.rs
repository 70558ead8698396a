//! `route`: sends each message to the port of the expression that is true for it.
//!
//! # Invariants
//!
//! - A message leaves unchanged, with its id, by every port at most once.
//! - A message on which an expression fails leaves by no port: it is rejected with the reason.

use std::sync::Arc;

use futures::FutureExt;
use gear_spec::expression::{CelExpression, MessageVariables};
use gear_spec::route::{ELSE, RouteConfig, RouteMode, RoutePort};
use model::gear_manifest;
use model::message::Message;

use super::{Gear, GearContext, GearError, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::testing::Flow;

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
