//! Destinations of the messages of a Rack's ports, as its part of a scenario says.
//!
//! # Invariants
//!
//! - A port is internal only if that is certain: its wires end at this Rack whoever else is in a group.

use std::collections::{BTreeMap, BTreeSet};

use model::control::ScenarioPush;
use model::scenario::{GearPort, Lane, Wire};
use model::{MessageDestination, Token};

use crate::gears::WiredGear;
use crate::outbox::PortDestinations;

/// Where the messages go of every port that leaves by the outbox.
pub(super) fn of(gears: &BTreeMap<Token, WiredGear>, push: &ScenarioPush, rack: Option<&Token>) -> PortDestinations {
    let of_port = |spec: &WiredGear, port: &'static str| {
        let guaranteed = push.wires.iter().filter(|wire| wire.lane == Some(Lane::Guaranteed));
        let wires: Vec<&Wire> = guaranteed
            .filter(|wire| wire.from.gear == spec.name && wire.from.port.as_str() == port)
            .collect();
        let receivers: BTreeSet<&Token> = wires.iter().map(|wire| &wire.to.gear).collect();
        let only = receivers.first().filter(|_| receivers.len() == 1);
        let is_internal = wires.iter().all(|wire| stays_here(wire, push, rack));
        (port, MessageDestination::new(is_internal, only.copied().cloned()))
    };
    let of_gear = |spec: &WiredGear| spec.published.iter().map(|port| of_port(spec, port)).collect();
    gears.values().map(|spec| (spec.name.clone(), of_gear(spec))).collect()
}

/// Whether a wire that begins here ends here and nowhere else: it does within one deploy target, and at a gear that is deployed to
/// this very Rack. Another group may have other Racks.
fn stays_here(wire: &Wire, push: &ScenarioPush, rack: Option<&Token>) -> bool {
    let deploy = |end: &GearPort| {
        let gear = push.gears.iter().find(|gear| gear.name == end.gear);
        gear.map(|gear| &gear.deploy)
    };
    let to = deploy(&wire.to);
    to.is_some() && (to == deploy(&wire.from) || to == rack)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;
    use crate::gears::testing::push;
    use crate::rack_plan::plan;

    #[test]
    fn a_port_leads_to_the_gear_of_all_its_guaranteed_wires_and_over_the_edge_if_one_may_end_at_another_rack() {
        let gears = "
  - { name: from, type: route, deploy: edge, config: { routes: [ { when: 'true', to: a } ] } }
  - { name: near, type: correlate, deploy: edge, config: { request_key: data.id, reply_key: data.id, ttl: 1h } }
  - { name: own, type: log_sink, deploy: rack-a }
  - { name: group, type: log_sink, deploy: others }";
        for (wires, wanted) in [
            (&["near.request"][..], "internal near"),
            (&["near.request", "near.reply"], "internal near"),
            (&["near.request", "own.in"], "internal"),
            (&["own.in"], "internal own"),
            (&["group.in"], "outbound group"),
            (&["far.in"], "outbound far"),
            (&["far.in", "far.more"], "outbound far"),
            (&["near.request", "far.in"], "outbound"),
        ] {
            let hot = "{ from: from.b, to: near.request, lane: hot }".to_owned();
            let wire = |to: &&str| format!("{{ from: from.a, to: {to}, lane: guaranteed }}");
            let wires: Vec<String> = wires.iter().map(wire).chain([hot]).collect();
            let mut push = push("h", gears, &wires.join(", "));
            push.inlets = push.wires.iter().map(inlet).collect();
            let plan = plan(&push, Some(&"rack-a".parse().unwrap())).unwrap();
            let ports = &plan.destinations[&"from".parse::<Token>().unwrap()];
            assert_eq!(ports.len(), 1, "{wires:?}");
            assert_eq!(ports["a"].to_string(), wanted, "{wires:?}");
        }
    }

    fn inlet(wire: &Wire) -> model::control::ConsumerBinding {
        model::control::ConsumerBinding {
            from: wire.from.clone(),
            to: wire.to.clone(),
            consumer: wire.to.to_string(),
        }
    }
}
