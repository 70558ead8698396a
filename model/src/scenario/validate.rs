//! Validates that the parts of a scenario fit together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::parse::ScenarioDraft;
use super::{Gear, GearPort, Lane, RackEntry, SourceDiagnostic, ValidationLevel, Wire, wire_cycles};
use crate::Token;
use crate::gear_manifest::{self, GearManifest, GearManifests};
use crate::yaml::YamlEntry;

/// The least `max_bytes` of a wire: some batches of messages.
const MIN_WAITING_BYTES: u64 = 64 << 10;
/// The least `max_age` of a wire.
const MIN_WAITING_AGE: Duration = Duration::from_secs(1);

/// Adds what does not fit. What could not be read is not complained about a second time.
pub(super) fn check(
    draft: &ScenarioDraft<'_>,
    types: &GearManifests,
    asked: ValidationLevel,
    faults: &mut Vec<SourceDiagnostic>,
) {
    let targets = check_racks(draft, faults);
    let mut gears: BTreeMap<&Token, (&Gear, Option<&'static GearManifest>)> = BTreeMap::new();
    for gear in &draft.gears {
        let Gear { name, kind, deploy, .. } = &gear.value;
        if !targets.contains(deploy) && !unread(&draft.unread_racks, deploy) {
            let text = format!("gear {name} is deployed to {deploy}, which racks does not list");
            faults.push(gear.at("deploy", text));
        }
        let manifest = gear_manifest::manifest(types, kind);
        match manifest {
            None => {
                let known = gear_manifest::names(types);
                let text = format!("gear {name} has the unknown type {kind:?}; known types: {known}");
                faults.push(gear.at("type", text));
            }
            Some(manifest) => {
                let what = format!("config of gear {name} ({kind})");
                gear.refused("config", &gear.value.config, manifest.check, faults, &what);
            }
        }
        if gears.insert(name, (&gear.value, manifest)).is_some() {
            faults.push(gear.at("name", format!("two gears are called {name}")));
        }
    }
    for wire in &draft.wires {
        check_wire(wire, &gears, draft, faults);
    }
    let ValidationLevel::MakesSense { max_hops } = asked else {
        return;
    };
    let passes_on = |name: &Token| {
        let gear = gears.get(name);
        gear.is_some_and(|(gear, manifest)| manifest.is_some_and(|manifest| (manifest.passes_on)(&gear.config)))
    };
    faults.extend(wire_cycles::inescapable_cycles(draft, passes_on));
    faults.extend(
        max_hops
            .into_iter()
            .flat_map(|max_hops| wire_cycles::overlong_cycles(draft, max_hops)),
    );
}

/// Whether a name may be that of an entry that could not be read.
fn unread(unread: &BTreeSet<Option<String>>, name: &Token) -> bool {
    unread.contains(&None) || unread.contains(&Some(name.to_string()))
}

fn check_racks<'d>(draft: &'d ScenarioDraft<'_>, faults: &mut Vec<SourceDiagnostic>) -> BTreeSet<&'d Token> {
    let mut targets = BTreeSet::new();
    for entry in &draft.racks {
        match (&entry.value.name, &entry.value.group) {
            (Some(name), None) | (None, Some(name)) => {
                if !targets.insert(name) {
                    let key = if entry.value.name.is_some() { "name" } else { "group" };
                    faults.push(entry.at(key, format!("racks lists {name} twice")));
                }
            }
            _ => faults.push(entry.at("group", "an entry of racks needs either name or group")),
        }
    }
    targets
}

fn check_wire(
    wire: &YamlEntry<'_, Wire>,
    gears: &BTreeMap<&Token, (&Gear, Option<&'static GearManifest>)>,
    draft: &ScenarioDraft<'_>,
    faults: &mut Vec<SourceDiagnostic>,
) {
    let Wire { from, to, lane, .. } = &wire.value;
    let what = format!("wire {from} -> {to}");
    let mut end = |key: &str, endpoint: &GearPort| -> Option<&Token> {
        let Some((gear, manifest)) = gears.get(&endpoint.gear) else {
            if !unread(&draft.unread_gears, &endpoint.gear) {
                faults.push(wire.at(key, format!("{what}: there is no gear {}", endpoint.gear)));
            }
            return None;
        };
        if let Some(manifest) = manifest {
            let (kind, ports) = match key {
                "from" => ("output", manifest.outputs),
                _ => ("input", manifest.inputs),
            };
            if !ports.contains(&endpoint.port.as_str()) {
                let has = if ports.is_empty() {
                    "none".to_owned()
                } else {
                    ports.join(", ")
                };
                let text = format!(
                    "{what}: {} ({}) has no {kind} {}; it has {has}",
                    endpoint.gear, gear.kind, endpoint.port
                );
                faults.push(wire.at(key, text));
            }
        }
        if endpoint.rack.as_ref().is_some_and(|rack| *rack != gear.deploy) {
            let text = format!("{what}: {} is deployed to {}", endpoint.gear, gear.deploy);
            faults.push(wire.at(key, text));
        }
        Some(&gear.deploy)
    };
    let (from, to) = (end("from", from), end("to", to));
    let Some((from, to)) = from.zip(to) else { return };
    if from != to && *lane == Some(Lane::Hot) {
        let text = format!("{what}: lane hot does not cross Racks ({from} -> {to})");
        faults.push(wire.at("lane", text));
    }
    let is_hot = *lane == Some(Lane::Hot) || (lane.is_none() && from == to);
    faults.extend(check_bounds(wire, &what, is_hot));
}

/// What is wrong with the bounds of a wire.
fn check_bounds(wire: &YamlEntry<'_, Wire>, what: &str, is_hot: bool) -> Option<SourceDiagnostic> {
    let Wire {
        max_bytes,
        max_age,
        overflow,
        ..
    } = &wire.value;
    let given = [
        ("max_bytes", max_bytes.is_some()),
        ("max_age", max_age.is_some()),
        ("overflow", overflow.is_some()),
    ];
    let (key, text) = match given.iter().find(|(_, is_given)| *is_given) {
        Some((key, _)) if is_hot => (*key, format!("{key} needs lane guaranteed: nothing waits on lane hot")),
        _ if max_bytes.is_some_and(|bytes| bytes < MIN_WAITING_BYTES) => {
            ("max_bytes", format!("max_bytes must be at least {MIN_WAITING_BYTES}"))
        }
        _ if max_age.is_some_and(|age| age.get() < MIN_WAITING_AGE) => (
            "max_age",
            format!("max_age must be at least {}s", MIN_WAITING_AGE.as_secs()),
        ),
        _ => return None,
    };
    Some(wire.at(key, format!("{what}: {text}")))
}

/// The groups of a scenario without faults that none of its own Racks is in.
pub(super) fn open_groups(draft: &ScenarioDraft<'_>) -> Vec<SourceDiagnostic> {
    let mut warnings = Vec::new();
    for group in draft.racks.iter().filter(|entry| may_be_empty(&entry.value, draft)) {
        let RackEntry {
            group: Some(name),
            labels,
            ..
        } = &group.value
        else {
            continue;
        };
        let wanted: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let text = format!(
            "no Rack that racks names has the labels of group {name} ({})",
            wanted.join(", ")
        );
        warnings.push(group.at("labels", text));
    }
    warnings
}

/// What else may not be meant so.
pub(super) fn warnings(draft: &ScenarioDraft<'_>) -> Vec<SourceDiagnostic> {
    let mut warnings = Vec::new();
    let mut seen = BTreeSet::new();
    for wire in &draft.wires {
        let (from, to) = (&wire.value.from, &wire.value.to);
        if !seen.insert((&from.gear, &from.port, &to.gear, &to.port)) {
            let text = format!("wire {from} -> {to} is there twice: each message arrives twice");
            warnings.push(wire.at("from", text));
        }
    }
    warnings.extend(wire_cycles::cycle_warnings(draft));
    warnings
}

/// Whether an entry is a group with labels that no named Rack has.
fn may_be_empty(entry: &RackEntry, draft: &ScenarioDraft<'_>) -> bool {
    let has_all = |rack: &RackEntry| {
        entry
            .labels
            .iter()
            .all(|(key, value)| rack.labels.get(key) == Some(value))
    };
    let mut named = draft.racks.iter().filter(|rack| rack.value.name.is_some());
    entry.group.is_some() && !entry.labels.is_empty() && !named.any(|rack| has_all(&rack.value))
}
