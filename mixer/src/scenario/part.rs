//! One Rack's part of a scenario: the gears deployed to it, and the wires that begin or end at them.
//!
//! # Invariants
//!
//! - Every wire has a lane: hot between gears of one deploy target, guaranteed between others, where nothing is said.
//! - The consumer of a wire at a Rack has the same name in every version of a scenario, so that a message that waits is not
//!   lost by an activation.

use std::collections::{BTreeMap, BTreeSet};

use model::Token;
use model::letter::Way;
use model::scenario::{Endpoint, Gear, Lane, Scenario, Wire};
use sha2::{Digest as _, Sha256};

/// What the names of wires' consumers begin with.
pub(super) const WIRE: &str = "wire-";

/// What a Rack is given.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) gears: Vec<Gear>,
    pub(super) wires: Vec<Wire>,
    pub(super) flows: Vec<Flow>,
}

/// A wire of lane guaranteed that ends at a Rack: its consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) from: Endpoint,
    pub(super) to: Endpoint,
    /// The durable consumer's name.
    pub(super) consumer: String,
    /// The subject of its messages.
    pub(super) filter: String,
    /// For people.
    pub(super) description: String,
}

/// The part of a Rack with this name and these labels of its own.
pub(super) fn part(scenario: &Scenario, name: &Token, labels: &BTreeMap<String, String>) -> Part {
    let targets = targets(scenario, name, labels);
    let gears: Vec<Gear> = scenario
        .gears
        .iter()
        .filter(|gear| targets.contains(&gear.deploy))
        .cloned()
        .collect();
    let here: BTreeSet<&Token> = gears.iter().map(|gear| &gear.name).collect();
    let (mut wires, mut flows) = (Vec::new(), Vec::new());
    for wire in &scenario.wires {
        let lane = lane(scenario, wire);
        let (begins, ends) = (here.contains(&wire.from.gear), here.contains(&wire.to.gear));
        if !(begins || ends) {
            continue;
        }
        wires.push(Wire {
            lane: Some(lane),
            ..wire.clone()
        });
        if lane == Lane::Guaranteed && ends {
            flows.extend(flow(scenario, wire, name));
        }
    }
    Part { gears, wires, flows }
}

/// The consumers that a Rack with this name and these labels pulls from.
pub(crate) fn inlets(scenario: &Scenario, name: &Token, labels: &BTreeMap<String, String>) -> Vec<String> {
    let flows = part(scenario, name, labels).flows;
    flows.into_iter().map(|flow| flow.consumer).collect()
}

/// Every consumer that a scenario needs for the Racks that are known: those that it names, and these.
pub(super) fn flows<'a>(
    scenario: &'a Scenario,
    known: impl Iterator<Item = (&'a Token, &'a BTreeMap<String, String>)>,
) -> Vec<Flow> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    let named = scenario.racks.iter().filter_map(|entry| entry.name.as_ref());
    let mut racks: BTreeMap<&Token, &BTreeMap<String, String>> = named.map(|name| (name, &NONE)).collect();
    racks.extend(known);
    let parts = racks.into_iter().map(|(name, labels)| part(scenario, name, labels));
    parts.flat_map(|part| part.flows).collect()
}

fn lane(scenario: &Scenario, wire: &Wire) -> Lane {
    wire.lane.unwrap_or_else(|| {
        let ends = (deploy(scenario, &wire.from), deploy(scenario, &wire.to));
        if ends.0 == ends.1 { Lane::Hot } else { Lane::Guaranteed }
    })
}

fn deploy<'s>(scenario: &'s Scenario, end: &Endpoint) -> Option<&'s Token> {
    let gear = scenario.gears.iter().find(|gear| gear.name == end.gear);
    gear.map(|gear| &gear.deploy)
}

/// The consumer of a wire that ends at a Rack.
fn flow(scenario: &Scenario, wire: &Wire, rack: &Token) -> Option<Flow> {
    let (from, to) = (deploy(scenario, &wire.from)?, deploy(scenario, &wire.to)?);
    let is_named = scenario.racks.iter().any(|entry| entry.name.as_ref() == Some(from));
    let source = if from == to {
        rack.as_str()
    } else if is_named {
        from.as_str()
    } else {
        // Whoever is in the group, now and later.
        "*"
    };
    let filter = format!("flux.msg.{source}.{}.{}", wire.from.gear, wire.from.port);
    let wire_at = format!("{rack} {filter} {}.{}", wire.to.gear, wire.to.port);
    let name: String = Sha256::digest(wire_at.as_bytes())
        .iter()
        .take(12)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Some(Flow {
        from: wire.from.clone(),
        to: wire.to.clone(),
        consumer: format!("{WIRE}{name}"),
        description: format!("{filter} -> {rack}.{}.{}", wire.to.gear, wire.to.port),
        filter,
    })
}

/// Where a message failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub(crate) gear: &'a Token,
    pub(crate) port: &'a Token,
    pub(crate) way: Way,
    /// The subject that it came by, if it came by a wire over the bus.
    pub(crate) from: Option<&'a str>,
}

/// Says why a message cannot go back to where it failed on a Rack, if it cannot: its gear, its port or its wire is gone.
pub(crate) fn still_there(
    scenario: &Scenario,
    name: &Token,
    labels: &BTreeMap<String, String>,
    spot: Spot<'_>,
) -> Result<(), String> {
    let Part { gears, flows, .. } = part(scenario, name, labels);
    let meta = &scenario.meta;
    let reference = format!("{}:{}", meta.name, meta.version);
    let Some(gear) = gears.iter().find(|gear| gear.name == *spot.gear) else {
        return Err(format!("{reference} has no gear {} on the Rack {name}", spot.gear));
    };
    let manifest = model::gear::manifest(rack::manifests(), &gear.kind);
    let ports = manifest.map_or(&[][..], |manifest| match spot.way {
        Way::In => manifest.inputs,
        Way::Out => manifest.outputs,
    });
    if !ports.contains(&spot.port.as_str()) {
        return Err(format!(
            "gear {} is of type {} in {reference}, which has no port {}",
            spot.gear, gear.kind, spot.port
        ));
    }
    let Some(from) = spot.from else { return Ok(()) };
    let leads_here =
        |flow: &Flow| flow.to.gear == *spot.gear && flow.to.port == *spot.port && carries(&flow.filter, from);
    if flows.iter().any(leads_here) {
        return Ok(());
    }
    Err(format!(
        "no wire of lane guaranteed in {reference} leads from {from} to {name}.{}.{}",
        spot.gear, spot.port
    ))
}

/// Whether a subject is one of a wire's, of which a `*` stands for any word.
fn carries(filter: &str, subject: &str) -> bool {
    let (mut wanted, mut words) = (filter.split('.'), subject.split('.'));
    loop {
        match (wanted.next(), words.next()) {
            (None, None) => return true,
            (Some(wanted), Some(word)) if wanted == "*" || wanted == word => {}
            _ => return false,
        }
    }
}

/// The deploy targets that mean this Rack: its name, and every group whose labels it has. A group without labels is everyone.
pub(super) fn targets<'s>(
    scenario: &'s Scenario,
    name: &Token,
    labels: &BTreeMap<String, String>,
) -> BTreeSet<&'s Token> {
    let mut all = labels.clone();
    let named = scenario.racks.iter().filter(|entry| entry.name.as_ref() == Some(name));
    all.extend(named.flat_map(|entry| entry.labels.clone()));
    let is_member = |wanted: &BTreeMap<String, String>| wanted.iter().all(|(key, value)| all.get(key) == Some(value));
    scenario
        .racks
        .iter()
        .filter_map(|entry| match (&entry.name, &entry.group) {
            (Some(listed), _) if listed == name => Some(listed),
            (None, Some(group)) if is_member(&entry.labels) => Some(group),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const YAML: &str = "
meta: { name: plant, version: '1' }
racks:
  - { name: a, labels: { role: edge } }
  - { name: b }
  - { group: edge, labels: { role: edge } }
  - { group: all }
gears:
  - { name: gen, type: generator, deploy: a }
  - { name: sink, type: log_sink, deploy: a }
  - { name: far, type: log_sink, deploy: b }
  - { name: host, type: host_metrics, deploy: edge }
  - { name: every, type: host_metrics, deploy: all }
wires:
  - { from: gen.out, to: sink.in }
  - { from: gen.out, to: far.in }
";

    #[test]
    fn a_rack_gets_its_gears_its_groups_gears_and_only_the_wires_that_begin_or_end_there() {
        let scenario = model::scenario::parse(YAML, rack::manifests()).unwrap();
        let names = |rack: &str, labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let part = part(&scenario, &rack.parse().unwrap(), &labels);
            let gears: Vec<String> = part.gears.iter().map(|gear| gear.name.to_string()).collect();
            let lanes: Vec<_> = part.wires.iter().map(|wire| wire.lane.unwrap()).collect();
            (gears.join(" "), lanes, part.flows.len())
        };
        let both = vec![Lane::Hot, Lane::Guaranteed];
        assert_eq!(names("a", &[]), ("gen sink host every".to_owned(), both, 0));
        assert_eq!(names("b", &[]), ("far every".to_owned(), vec![Lane::Guaranteed], 1));
        assert_eq!(names("c", &[("role", "edge")]), ("host every".to_owned(), vec![], 0));
        assert_eq!(names("c", &[("role", "core")]), ("every".to_owned(), vec![], 0));
    }

    #[test]
    fn a_message_goes_back_to_where_it_failed_as_long_as_gear_port_and_wire_are_there() {
        let scenario = model::scenario::parse(YAML, rack::manifests()).unwrap();
        let token = |text: &str| text.parse::<Token>().unwrap();
        let look = |rack: &str, gear: &str, port: &str, way, from| {
            let (rack, gear, port) = (token(rack), token(gear), token(port));
            let spot = Spot {
                gear: &gear,
                port: &port,
                way,
                from,
            };
            still_there(&scenario, &rack, &BTreeMap::new(), spot).err()
        };
        let wire = Some("flux.msg.a.gen.out");
        assert_eq!(look("b", "far", "in", Way::In, wire), None);
        assert_eq!(look("b", "far", "in", Way::In, None), None);
        assert_eq!(look("a", "gen", "out", Way::Out, None), None);
        for (rack, gear, port, way, from, says) in [
            (
                "b",
                "near",
                "in",
                Way::In,
                None,
                "plant:1 has no gear near on the Rack b",
            ),
            ("a", "far", "in", Way::In, None, "no gear far on the Rack a"),
            ("b", "far", "out", Way::Out, None, "has no port out"),
            ("b", "far", "on", Way::In, None, "has no port on"),
            (
                "b",
                "far",
                "in",
                Way::In,
                Some("flux.msg.b.gen.out"),
                "no wire of lane guaranteed",
            ),
            ("a", "sink", "in", Way::In, wire, "no wire of lane guaranteed"),
        ] {
            let said = look(rack, gear, port, way, from).unwrap();
            assert!(said.contains(says), "{said}");
        }
        assert!(carries("flux.msg.*.a.b", "flux.msg.r.a.b") && !carries("flux.msg.*.a.b", "flux.msg.r.a"));
    }

    #[test]
    fn a_wire_has_a_consumer_at_each_rack_that_it_ends_at_and_its_name_says_which_wire_it_is() {
        let yaml = "
meta: { name: plant, version: '1' }
racks: [ { name: hub }, { group: edge, labels: { role: edge } } ]
gears:
  - { name: near, type: generator, deploy: edge }
  - { name: own, type: log_sink, deploy: edge }
  - { name: all, type: log_sink, deploy: hub }
  - { name: say, type: generator, deploy: hub }
wires:
  - { from: near.out, to: own.in, lane: guaranteed }
  - { from: near.out, to: all.in }
  - { from: say.out, to: own.in }
";
        let scenario = model::scenario::parse(yaml, rack::manifests()).unwrap();
        let edge = BTreeMap::from([("role".to_owned(), "edge".to_owned())]);
        let (one, two): (Token, Token) = ("one".parse().unwrap(), "two".parse().unwrap());
        let all = flows(&scenario, [(&one, &edge), (&two, &edge)].into_iter());
        let filters: Vec<_> = all.iter().map(|flow| flow.description.as_str()).collect();
        assert_eq!(
            filters,
            [
                "flux.msg.*.near.out -> hub.all.in",
                "flux.msg.one.near.out -> one.own.in",
                "flux.msg.hub.say.out -> one.own.in",
                "flux.msg.two.near.out -> two.own.in",
                "flux.msg.hub.say.out -> two.own.in",
            ]
        );
        let names: BTreeSet<_> = all.iter().map(|flow| &flow.consumer).collect();
        assert_eq!(names.len(), 5);
        let next = model::scenario::parse(&yaml.replace("version: '1'", "version: '2'"), rack::manifests()).unwrap();
        assert_eq!(flows(&next, [(&one, &edge), (&two, &edge)].into_iter()), all);
    }
}
