//! Rack plan: this Rack's part of a scenario, checked.
//!
//! ```text
//! gear a ── OutputWires["out"] ──┬──▶ inbox of gear b (bounded) ──▶ gear b
//!                                ├──▶ inbox of gear c (bounded) ──▶ gear c
//!                                └──▶ outbox ─▶ bus                (lane guaranteed)
//!                 wire consumer ───▶ inbox of gear d ─────────▶ gear d
//! ```
//!
//! # Invariants
//!
//! - A [`RackPlan`] is valid: types are known, configurations parse, every wire connects an output to an input of this Rack.
//! - Lane guaranteed: a port that leaves by the outbox leaves once for all its wires; each wire has a consumer where it ends.
//!
//! # Not here
//!
//! Inboxes ([`crate::inbox`]), the outbox ([`crate::outbox`]) and the consumers ([`crate::wire_consumer`]).

mod destinations;

use std::collections::{BTreeMap, BTreeSet};

use model::Token;
use model::control::{PortCredit, ScenarioPush};
use model::scenario::{GearPort, Lane, Wire};

use crate::gears::{self, WireTarget, WiredGear};
use crate::outbox::PortDestinations;
use crate::policy::{PolicyRefusal, RackPolicy};
use crate::wire_consumer::WireConsumerSpec;

/// This Rack's part of a scenario, checked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RackPlan {
    pub(crate) reference: String,
    pub(crate) hash: String,
    pub(crate) gears: BTreeMap<Token, WiredGear>,
    /// The wires of lane guaranteed that end here, by consumer.
    pub(crate) inlets: BTreeMap<String, WireConsumerSpec>,
    /// Where those lead that begin here. A gear that only sends to somebody else is the same running gear.
    pub(crate) destinations: PortDestinations,
    /// The gears that a guaranteed wire leads to, over hot wires as well: who takes from the bus waits for them.
    pub(crate) consumers: BTreeSet<Token>,
    /// What ports may have on their way that the Mixer says nothing else of.
    pub(crate) credits: Vec<PortCredit>,
}

impl RackPlan {
    /// Whether any of it goes over the bus.
    pub(crate) fn needs_lane(&self) -> bool {
        !self.inlets.is_empty() || self.gears.values().any(|spec| !spec.published.is_empty())
    }

    /// Refuses a gear that asks for more than this Rack allows.
    pub(crate) fn check_policy(&self, policy: &RackPolicy) -> Result<(), ScenarioApplyError> {
        self.gears.values().try_for_each(|spec| {
            let checked = policy.check(spec.kind.name(), &spec.config);
            checked.map_err(|refusal| ScenarioApplyError::Policy {
                gear: spec.name.clone(),
                kind: spec.kind.name(),
                refusal,
            })
        })
    }
}

/// Why a scenario does not run on this Rack. The last good one goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ScenarioApplyError {
    /// The type is not known here.
    #[error("gear {gear} has the unknown type {kind:?}; this Rack knows {known}")]
    UnknownType {
        /// The gear.
        gear: Token,
        /// Its type.
        kind: String,
        /// The types of this program.
        known: String,
    },
    /// A name twice.
    #[error("two gears are called {0}; give one of them another name")]
    TwoGears(Token),
    /// The configuration does not fit the type.
    #[error("config of gear {gear} ({kind}): {reason}")]
    Config {
        /// The gear.
        gear: Token,
        /// Its type.
        kind: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// It asks for more than this Rack allows.
    #[error("gear {gear} ({kind}): {refusal}")]
    Policy {
        /// The gear.
        gear: Token,
        /// Its type.
        kind: &'static str,
        /// What it asks for, and who allows it where.
        refusal: PolicyRefusal,
    },
    /// A wire that ends here and whose consumer is not named.
    #[error("wire {wire}: the Mixer did not say where its messages come from; its version is older than this Rack's")]
    NoConsumer {
        /// The wire.
        wire: String,
    },
    /// No bus.
    #[error("wires of lane guaranteed need the bus")]
    NoLane,
    /// A wire to or from another Rack.
    #[error(
        "wire {wire}: gear {gear} does not run on this Rack; lane hot does not leave a Rack: use lane guaranteed, or deploy \
         both gears to the same Rack"
    )]
    CrossesRacks {
        /// The wire.
        wire: String,
        /// The gear that is elsewhere.
        gear: Token,
    },
    /// A port that the type does not have.
    #[error("wire {wire}: {gear} ({kind}) has no {direction} {port}; it has {}", list(ports))]
    NoPort {
        /// The wire.
        wire: String,
        /// The gear.
        gear: Token,
        /// Its type.
        kind: &'static str,
        /// `output` or `input`.
        direction: &'static str,
        /// The port that is missing.
        port: String,
        /// The ports there are.
        ports: &'static [&'static str],
    },
    /// A gear could not get what it needs.
    #[error("gear {gear} ({kind}) cannot start: {reason}")]
    Init {
        /// The gear.
        gear: Token,
        /// Its type.
        kind: &'static str,
        /// What failed.
        reason: String,
    },
}

fn list(ports: &[&str]) -> String {
    if ports.is_empty() {
        "none".to_owned()
    } else {
        ports.join(", ")
    }
}

/// Checks a push and makes the plan of it of the Rack with this name.
pub(crate) fn plan(push: &ScenarioPush, rack: Option<&Token>) -> Result<RackPlan, ScenarioApplyError> {
    let mut gears = BTreeMap::new();
    for gear in &push.gears {
        let kind = gears::find(&gear.kind).ok_or_else(|| ScenarioApplyError::UnknownType {
            gear: gear.name.clone(),
            kind: gear.kind.clone(),
            known: model::gear_manifest::names(gear_spec::manifests()),
        })?;
        kind.check(&gear.config).map_err(|reason| ScenarioApplyError::Config {
            gear: gear.name.clone(),
            kind: kind.name(),
            reason,
        })?;
        let spec = WiredGear {
            name: gear.name.clone(),
            kind,
            config: gear.config.clone(),
            targets: Vec::new(),
            published: BTreeSet::new(),
        };
        if gears.insert(gear.name.clone(), spec).is_some() {
            return Err(ScenarioApplyError::TwoGears(gear.name.clone()));
        }
    }
    let mut inlets = BTreeMap::new();
    for wire in &push.wires {
        if wire.lane == Some(Lane::Guaranteed) {
            let inlet = connect_guaranteed(wire, push, &mut gears)?;
            inlets.extend(inlet.map(|inlet| (inlet.consumer.clone(), inlet)));
        } else {
            connect(wire, push, &mut gears)?;
        }
    }
    for spec in gears.values_mut() {
        spec.targets.sort();
        spec.targets.dedup();
    }
    Ok(RackPlan {
        reference: push.reference.clone(),
        hash: push.hash.clone(),
        destinations: destinations::of(&gears, push, rack),
        consumers: consumers(&gears, &inlets),
        credits: push.credits.clone(),
        gears,
        inlets,
    })
}

fn consumers(gears: &BTreeMap<Token, WiredGear>, inlets: &BTreeMap<String, WireConsumerSpec>) -> BTreeSet<Token> {
    let mut consumers = BTreeSet::new();
    let mut reached: Vec<&Token> = inlets.values().map(|inlet| &inlet.gear).collect();
    while let Some(name) = reached.pop() {
        if consumers.insert(name.clone()) {
            let targets = gears.get(name).into_iter().flat_map(|spec| &spec.targets);
            reached.extend(targets.map(|target| &target.gear));
        }
    }
    consumers
}

fn connect(wire: &Wire, push: &ScenarioPush, gears: &mut BTreeMap<Token, WiredGear>) -> Result<(), ScenarioApplyError> {
    for end in [&wire.from, &wire.to] {
        if !runs_here(end, push) {
            return Err(ScenarioApplyError::CrossesRacks {
                wire: describe(wire),
                gear: end.gear.clone(),
            });
        }
    }
    let from = port(wire, &wire.from, "output", gears)?;
    let to = port(wire, &wire.to, "input", gears)?;
    if let Some(spec) = gears.get_mut(&wire.from.gear) {
        spec.targets.push(WireTarget {
            from,
            gear: wire.to.gear.clone(),
            to,
        });
    }
    Ok(())
}

/// A wire over the bus: what of it is here.
fn connect_guaranteed(
    wire: &Wire,
    push: &ScenarioPush,
    gears: &mut BTreeMap<Token, WiredGear>,
) -> Result<Option<WireConsumerSpec>, ScenarioApplyError> {
    if runs_here(&wire.from, push) {
        let from = port(wire, &wire.from, "output", gears)?;
        if let Some(spec) = gears.get_mut(&wire.from.gear) {
            spec.published.insert(from);
        }
    }
    if !runs_here(&wire.to, push) {
        return Ok(None);
    }
    let to = port(wire, &wire.to, "input", gears)?;
    let mut inlets = push.inlets.iter();
    let inlet = inlets.find(|inlet| inlet.from == wire.from && inlet.to == wire.to);
    let inlet = inlet.ok_or_else(|| ScenarioApplyError::NoConsumer { wire: describe(wire) })?;
    Ok(Some(WireConsumerSpec {
        consumer: inlet.consumer.clone(),
        gear: wire.to.gear.clone(),
        port: to,
    }))
}

fn describe(wire: &Wire) -> String {
    format!("{} -> {}", wire.from, wire.to)
}

fn runs_here(end: &GearPort, push: &ScenarioPush) -> bool {
    push.gears
        .iter()
        .any(|gear| gear.name == end.gear && end.rack.as_ref().is_none_or(|rack| *rack == gear.deploy))
}

fn port(
    wire: &Wire,
    end: &GearPort,
    direction: &'static str,
    gears: &BTreeMap<Token, WiredGear>,
) -> Result<&'static str, ScenarioApplyError> {
    let kind = gears.get(&end.gear).map(|spec| spec.kind);
    let ports = kind.map_or(&[][..], |kind| {
        if direction == "output" {
            kind.outputs()
        } else {
            kind.inputs()
        }
    });
    let found = ports.iter().copied().find(|name| *name == end.port.as_str());
    found.ok_or_else(|| ScenarioApplyError::NoPort {
        wire: describe(wire),
        gear: end.gear.clone(),
        kind: kind.map_or("unknown", |kind| kind.name()),
        direction,
        port: end.port.to_string(),
        ports,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::gears::testing::push;

    #[test]
    fn a_wire_that_cannot_be_kept_is_refused_with_the_way_out() {
        let gears = "
  - { name: numbers, type: generator, deploy: rack-a }
  - { name: sink, type: log_sink, deploy: rack-a }";
        for (wire, says) in [
            (
                "{ from: numbers.out, to: sink.in, lane: guaranteed }",
                "did not say where its messages come from",
            ),
            ("{ from: numbers.out, to: rack-b.sink.in }", "does not run on this Rack"),
            (
                "{ from: numbers.out, to: other.in }",
                "gear other does not run on this Rack",
            ),
            ("{ from: numbers.oops, to: sink.in }", "has no output oops; it has out"),
            ("{ from: sink.out, to: sink.in }", "has no output out; it has none"),
            ("{ from: numbers.out, to: numbers.in }", "has no input in; it has none"),
        ] {
            let error = plan(&push("h", gears, wire), None).unwrap_err().to_string();
            assert!(error.contains(says), "{wire}: {error}");
        }
        assert!(
            plan(
                &push("h", gears, "{ from: rack-a.numbers.out, to: sink.in, lane: hot }"),
                None
            )
            .is_ok()
        );
    }

    #[test]
    fn gears_that_a_guaranteed_wire_leads_to_are_consumers_over_hot_wires_too() {
        let gears = ["a", "b", "c", "d"]
            .map(|name| format!("\n  - {{ name: {name}, type: throttle, deploy: rack-a, config: {{ rate: 1 }} }}"));
        let gears = format!(
            "{}\n  - {{ name: numbers, type: generator, deploy: rack-a }}",
            gears.concat()
        );
        let wires = [
            "{ from: numbers.out, to: a.in, lane: guaranteed }",
            "{ from: a.out, to: b.in, lane: hot }",
            "{ from: b.out, to: c.in, lane: hot }",
            "{ from: c.out, to: a.in, lane: hot }",
            "{ from: numbers.out, to: d.in, lane: hot }",
        ];
        let mut push = push("h", &gears, &wires.join(", "));
        let (from, to) = (push.wires[0].from.clone(), push.wires[0].to.clone());
        let consumer = "wire-1".to_owned();
        push.inlets.push(model::control::ConsumerBinding { from, to, consumer });
        let plan = plan(&push, None).unwrap();
        let names: Vec<_> = plan.consumers.iter().map(Token::as_str).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn gears_that_cannot_run_are_named() {
        for (gears, says) in [
            (
                "\n  - { name: a, type: teleport, deploy: rack-a }",
                "unknown type \"teleport\"",
            ),
            (
                "\n  - { name: a, type: generator, deploy: rack-a, config: { rat: 1 } }",
                "rat",
            ),
            (
                "\n  - { name: a, type: generator, deploy: rack-a, config: { rate: 0 } }",
                "rate must be",
            ),
            (
                "\n  - { name: a, type: log_sink, deploy: rack-a }\n  - { name: a, type: log_sink, deploy: rack-a }",
                "two gears are called a",
            ),
        ] {
            let error = plan(&push("h", gears, ""), None).unwrap_err().to_string();
            assert!(error.contains(says), "{gears}: {error}");
        }
    }
}
