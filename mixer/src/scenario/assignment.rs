//! Assignment: one Rack's part of a scenario: the gears deployed to it, and the wires that begin or end at them.
//!
//! # Invariants
//!
//! - Every wire has a lane: hot between gears of one deploy target, guaranteed between others, where nothing is said.
//! - The consumer of a wire at a Rack has the same name in every version of a scenario, so that a message that waits is not
//!   lost by an activation.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::Token;
use model::dead_letter::PortSide;
use model::scenario::{Gear, GearPort, Lane, RackEntry, Scenario, Wire};
use sha2::{Digest as _, Sha256};

use crate::registry::WireBounds;

/// What the names of wires' consumers begin with.
pub(super) const WIRE: &str = "wire-";

/// What a Rack is given.
#[derive(Debug, Default)]
pub(super) struct RackAssignment {
    pub(super) gears: Vec<Gear>,
    pub(super) wires: Vec<Wire>,
    pub(super) flows: Vec<GuaranteedWire>,
}

/// A wire of lane guaranteed that ends at a Rack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GuaranteedWire {
    pub(super) from: GearPort,
    pub(super) to: GearPort,
    /// What it is called, by what it connects; its consumer too, unless the registry has another one ([`crate::registry::WireRow`]).
    pub(super) name: String,
    /// The subject of its messages.
    pub(super) filter: String,
    /// The Rack that it ends at.
    pub(super) rack: Token,
    /// For people.
    pub(super) description: String,
    /// What may wait for it.
    pub(super) bounds: WireBounds,
}

/// A scenario laid out so that a Rack's part is found without a look at everybody's.
#[derive(Debug)]
pub(crate) struct ScenarioIndex<'s> {
    scenario: &'s Scenario,
    /// Where each gear is deployed.
    deploy: HashMap<&'s Token, &'s Token>,
    /// The gears of each deploy target, by their place in the scenario.
    gears: HashMap<&'s Token, Vec<usize>>,
    /// The wires of each gear, by their place.
    wires: HashMap<&'s Token, Vec<usize>>,
    /// The entry of each Rack that is named.
    named: HashMap<&'s Token, &'s RackEntry>,
    groups: Vec<(&'s Token, &'s BTreeMap<String, String>)>,
}

impl<'s> ScenarioIndex<'s> {
    pub(crate) fn of(scenario: &'s Scenario) -> Self {
        let (mut deploy, mut gears, mut wires) = (HashMap::new(), HashMap::new(), HashMap::new());
        for (place, gear) in scenario.gears.iter().enumerate() {
            deploy.entry(&gear.name).or_insert(&gear.deploy);
            let of_target: &mut Vec<usize> = gears.entry(&gear.deploy).or_default();
            of_target.push(place);
        }
        for (place, wire) in scenario.wires.iter().enumerate() {
            let ends = BTreeSet::from([&wire.from.gear, &wire.to.gear]);
            for gear in ends {
                let of_gear: &mut Vec<usize> = wires.entry(gear).or_default();
                of_gear.push(place);
            }
        }
        let (mut named, mut groups) = (HashMap::new(), Vec::new());
        for entry in &scenario.racks {
            match (&entry.name, &entry.group) {
                (Some(name), _) => {
                    named.entry(name).or_insert(entry);
                }
                (None, Some(group)) => groups.push((group, &entry.labels)),
                (None, None) => {}
            }
        }
        Self {
            scenario,
            deploy,
            gears,
            wires,
            named,
            groups,
        }
    }

    /// The part of a Rack with this name and these labels of its own.
    pub(super) fn part(&self, name: &Token, labels: &BTreeMap<String, String>) -> RackAssignment {
        let gears: Vec<&Gear> = self.gears(name, labels).collect();
        let here: BTreeSet<&Token> = gears.iter().map(|gear| &gear.name).collect();
        // What may wait for a wire is the Mixer's business: a Rack's gears go on when only that changes.
        let wires = self.wires(&here).map(|wire| Wire {
            lane: Some(self.lane(wire)),
            max_bytes: None,
            max_age: None,
            overflow: None,
            ..wire.clone()
        });
        RackAssignment {
            wires: wires.collect(),
            flows: self.flows_to(&here, name),
            gears: gears.into_iter().cloned().collect(),
        }
    }

    /// The gears of a Rack, in their order.
    pub(super) fn gears(&self, name: &Token, labels: &BTreeMap<String, String>) -> impl Iterator<Item = &'s Gear> {
        let targets = self.targets(name, labels);
        let places = targets.iter().filter_map(|target| self.gears.get(target));
        let places: BTreeSet<usize> = places.flatten().copied().collect();
        let scenario = self.scenario;
        places.into_iter().filter_map(|place| scenario.gears.get(place))
    }

    /// The wires of lane guaranteed that end at a Rack.
    pub(super) fn flows(&self, name: &Token, labels: &BTreeMap<String, String>) -> Vec<GuaranteedWire> {
        self.flows_to(&self.gears(name, labels).map(|gear| &gear.name).collect(), name)
    }

    fn flows_to(&self, here: &BTreeSet<&Token>, name: &Token) -> Vec<GuaranteedWire> {
        self.wires(here)
            .filter(|wire| here.contains(&wire.to.gear) && self.lane(wire) == Lane::Guaranteed)
            .filter_map(|wire| self.flow(wire, name))
            .collect()
    }

    /// The wires that begin or end at these gears, in their order.
    fn wires(&self, gears: &BTreeSet<&Token>) -> impl Iterator<Item = &'s Wire> {
        let places = gears.iter().filter_map(|gear| self.wires.get(gear));
        let places: BTreeSet<usize> = places.flatten().copied().collect();
        let scenario = self.scenario;
        places.into_iter().filter_map(|place| scenario.wires.get(place))
    }

    /// The wires of lane guaranteed that end at a Rack with this name and these labels.
    pub(crate) fn inlets(&self, name: &Token, labels: &BTreeMap<String, String>) -> Vec<String> {
        let flows = self.flows(name, labels);
        flows.into_iter().map(|flow| flow.name).collect()
    }

    /// The deploy targets that mean this Rack: its name, and every group whose labels it has. A group without labels is everyone.
    pub(super) fn targets(&self, name: &Token, labels: &BTreeMap<String, String>) -> BTreeSet<&'s Token> {
        let entry = self.named.get_key_value(name);
        let given = |key: &String| {
            let of_scenario = entry.and_then(|(_, entry)| entry.labels.get(key));
            of_scenario.or_else(|| labels.get(key))
        };
        let is_member = |wanted: &BTreeMap<String, String>| wanted.iter().all(|(key, value)| given(key) == Some(value));
        let groups = self.groups.iter().filter(|(_, wanted)| is_member(wanted));
        let mut targets: BTreeSet<&'s Token> = groups.map(|(group, _)| *group).collect();
        targets.extend(entry.map(|(name, _)| *name));
        targets
    }

    /// How messages travel along a wire.
    pub(super) fn lane(&self, wire: &Wire) -> Lane {
        wire.lane.unwrap_or_else(|| {
            let ends = (self.deploy.get(&wire.from.gear), self.deploy.get(&wire.to.gear));
            if ends.0 == ends.1 { Lane::Hot } else { Lane::Guaranteed }
        })
    }

    /// The consumer of a wire that ends at a Rack.
    fn flow(&self, wire: &Wire, rack: &Token) -> Option<GuaranteedWire> {
        let (from, to) = (self.deploy.get(&wire.from.gear)?, self.deploy.get(&wire.to.gear)?);
        let source = if from == to {
            rack.as_str()
        } else if self.named.contains_key(from) {
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
        Some(GuaranteedWire {
            from: wire.from.clone(),
            to: wire.to.clone(),
            name: format!("{WIRE}{name}"),
            rack: rack.clone(),
            description: format!("{filter} -> {rack}.{}.{}", wire.to.gear, wire.to.port),
            filter,
            bounds: WireBounds {
                max_bytes: wire.max_bytes,
                max_age: wire.max_age,
                overflow: wire.overflow.unwrap_or_default(),
            },
        })
    }
}

/// The part of a Rack with this name and these labels of its own.
pub(super) fn part(scenario: &Scenario, name: &Token, labels: &BTreeMap<String, String>) -> RackAssignment {
    ScenarioIndex::of(scenario).part(name, labels)
}

/// Every consumer that a scenario needs for the Racks that are known: those that it names, and these.
pub(super) fn flows<'a>(
    scenario: &'a Scenario,
    known: impl Iterator<Item = (&'a Token, &'a BTreeMap<String, String>)>,
) -> Vec<GuaranteedWire> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    let layout = ScenarioIndex::of(scenario);
    let mut racks: BTreeMap<&Token, &BTreeMap<String, String>> =
        layout.named.keys().map(|name| (*name, &NONE)).collect();
    racks.extend(known);
    let flows = racks.into_iter().map(|(name, labels)| layout.flows(name, labels));
    flows.flatten().collect()
}

/// Where a message failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FailurePoint<'a> {
    pub(crate) gear: &'a Token,
    pub(crate) port: &'a Token,
    pub(crate) way: PortSide,
    /// The subject that it came by, if it came by a wire over the bus.
    pub(crate) from: Option<&'a str>,
}

/// Says why a message cannot go back to where it failed on a Rack, if it cannot: its gear, its port or its wire is gone.
pub(crate) fn check_failure_point(
    scenario: &Scenario,
    name: &Token,
    labels: &BTreeMap<String, String>,
    spot: FailurePoint<'_>,
) -> Result<(), String> {
    let RackAssignment { gears, flows, .. } = part(scenario, name, labels);
    let meta = &scenario.meta;
    let reference = format!("{}:{}", meta.name, meta.version);
    let Some(gear) = gears.iter().find(|gear| gear.name == *spot.gear) else {
        return Err(format!("{reference} has no gear {} on the Rack {name}", spot.gear));
    };
    let manifest = model::gear_manifest::manifest(gear_spec::manifests(), &gear.kind);
    let ports = manifest.map_or(&[][..], |manifest| match spot.way {
        PortSide::In => manifest.inputs,
        PortSide::Out => manifest.outputs,
    });
    if !ports.contains(&spot.port.as_str()) {
        return Err(format!(
            "gear {} is of type {} in {reference}, which has no port {}",
            spot.gear, gear.kind, spot.port
        ));
    }
    let Some(from) = spot.from else { return Ok(()) };
    let leads_here =
        |flow: &GuaranteedWire| flow.to.gear == *spot.gear && flow.to.port == *spot.port && carries(&flow.filter, from);
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
        let scenario = model::scenario::parse(YAML, gear_spec::manifests()).unwrap();
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

    /// A scenario of so many Racks, each with three gears and a wire to the next one.
    fn fleet(racks: usize) -> Scenario {
        let mut yaml = "meta: { name: fleet, version: '1' }\nracks:\n".to_owned();
        let mut gears = String::new();
        let mut wires = String::new();
        for rack in 0..racks {
            yaml += &format!("  - {{ name: r{rack} }}\n");
            for gear in ["gen", "mid", "end"] {
                let kind = if gear == "gen" { "generator" } else { "log_sink" };
                gears += &format!("  - {{ name: {gear}{rack}, type: {kind}, deploy: r{rack} }}\n");
            }
            wires += &format!("  - {{ from: gen{rack}.out, to: mid{rack}.in }}\n");
            wires += &format!("  - {{ from: gen{rack}.out, to: end{}.in }}\n", (rack + 1) % racks);
        }
        yaml += &format!("gears:\n{gears}wires:\n{wires}");
        model::scenario::parse(&yaml, gear_spec::manifests()).unwrap()
    }

    #[test]
    fn the_parts_of_five_hundred_racks_are_found_without_a_look_at_everybodys_gears() {
        // How long the quickest of some looks takes, each as often as a list of the bus's users asks: of one scenario and sixteen
        // before it.
        let took = |racks: usize| {
            let scenario = fleet(racks);
            let look = |_| {
                let began = std::time::Instant::now();
                for _ in 0..17 {
                    assert_eq!(flows(&scenario, std::iter::empty()).len(), racks);
                }
                began.elapsed()
            };
            (0..7).map(look).min().unwrap()
        };
        let (few, many) = (took(25), took(500));
        // Twenty times as many; four hundred times as many looks if each Rack looked at the gears of all.
        assert!(many < few * 60, "{few:?}, {many:?}");
    }

    #[test]
    fn a_message_goes_back_to_where_it_failed_as_long_as_gear_port_and_wire_are_there() {
        let scenario = model::scenario::parse(YAML, gear_spec::manifests()).unwrap();
        let token = |text: &str| text.parse::<Token>().unwrap();
        let look = |rack: &str, gear: &str, port: &str, way, from| {
            let (rack, gear, port) = (token(rack), token(gear), token(port));
            let spot = FailurePoint {
                gear: &gear,
                port: &port,
                way,
                from,
            };
            check_failure_point(&scenario, &rack, &BTreeMap::new(), spot).err()
        };
        let wire = Some("flux.msg.a.gen.out");
        assert_eq!(look("b", "far", "in", PortSide::In, wire), None);
        assert_eq!(look("b", "far", "in", PortSide::In, None), None);
        assert_eq!(look("a", "gen", "out", PortSide::Out, None), None);
        for (rack, gear, port, way, from, says) in [
            (
                "b",
                "near",
                "in",
                PortSide::In,
                None,
                "plant:1 has no gear near on the Rack b",
            ),
            ("a", "far", "in", PortSide::In, None, "no gear far on the Rack a"),
            ("b", "far", "out", PortSide::Out, None, "has no port out"),
            ("b", "far", "on", PortSide::In, None, "has no port on"),
            (
                "b",
                "far",
                "in",
                PortSide::In,
                Some("flux.msg.b.gen.out"),
                "no wire of lane guaranteed",
            ),
            ("a", "sink", "in", PortSide::In, wire, "no wire of lane guaranteed"),
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
        let scenario = model::scenario::parse(yaml, gear_spec::manifests()).unwrap();
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
        let names: BTreeSet<_> = all.iter().map(|flow| &flow.name).collect();
        assert_eq!(names.len(), 5);
        let next =
            model::scenario::parse(&yaml.replace("version: '1'", "version: '2'"), gear_spec::manifests()).unwrap();
        assert_eq!(flows(&next, [(&one, &edge), (&two, &edge)].into_iter()), all);
    }
}
