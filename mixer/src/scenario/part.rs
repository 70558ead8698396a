//! One Rack's part of a scenario: the gears deployed to it, and the wires between them.

use std::collections::{BTreeMap, BTreeSet};

use model::Token;
use model::scenario::{Gear, Scenario, Wire};

/// The gears and wires of a Rack with this name and these labels of its own.
pub(super) fn part(scenario: &Scenario, name: &Token, labels: &BTreeMap<String, String>) -> (Vec<Gear>, Vec<Wire>) {
    let targets = targets(scenario, name, labels);
    let gears: Vec<Gear> = scenario
        .gears
        .iter()
        .filter(|gear| targets.contains(&gear.deploy))
        .cloned()
        .collect();
    let here: BTreeSet<&Token> = gears.iter().map(|gear| &gear.name).collect();
    let wires = scenario.wires.iter();
    let wires = wires.filter(|wire| here.contains(&wire.from.gear) && here.contains(&wire.to.gear));
    let wires = wires.cloned().collect();
    (gears, wires)
}

/// The deploy targets that mean this Rack: its name, and every group whose labels it has. A group without labels is everyone.
fn targets<'s>(scenario: &'s Scenario, name: &Token, labels: &BTreeMap<String, String>) -> BTreeSet<&'s Token> {
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

/// The wires whose ends are deployed to different targets.
pub(super) fn crossing(scenario: &Scenario) -> Vec<&Wire> {
    let deploy: BTreeMap<&Token, &Token> = scenario.gears.iter().map(|gear| (&gear.name, &gear.deploy)).collect();
    let wires = scenario.wires.iter();
    wires
        .filter(|wire| deploy.get(&wire.from.gear) != deploy.get(&wire.to.gear))
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
    fn a_rack_gets_its_gears_its_groups_gears_and_only_the_wires_between_them() {
        let scenario = model::scenario::parse(YAML, rack::manifests()).unwrap();
        let names = |rack: &str, labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let (gears, wires) = part(&scenario, &rack.parse().unwrap(), &labels);
            let gears: Vec<String> = gears.iter().map(|gear| gear.name.to_string()).collect();
            (gears.join(" "), wires.len())
        };
        assert_eq!(names("a", &[]), ("gen sink host every".to_owned(), 1));
        assert_eq!(names("b", &[]), ("far every".to_owned(), 0));
        assert_eq!(names("c", &[("role", "edge")]), ("host every".to_owned(), 0));
        assert_eq!(names("c", &[("role", "core")]), ("every".to_owned(), 0));
        assert_eq!(crossing(&scenario).len(), 1);
    }
}
