//! Scenarios: which gears run on which Racks, and how they are wired.
//!
//! ```yaml
//! meta: { name: demo, version: "1" }
//! racks:
//!   - { name: rack-a, labels: { site: lab } }
//!   - { group: edge, labels: { role: edge } }
//! gears:
//!   - { name: numbers, type: generator, deploy: rack-a, config: { rate: 10 } }
//!   - { name: sink, type: log_sink, deploy: rack-a }
//! wires:
//!   - { from: numbers.out, to: sink.in, lane: hot }
//! ```
//!
//! # Invariants
//!
//! - Unknown keys are errors, with line and column.
//! - A [`Scenario`] that [`parse`] returns is valid: types, ports, configs, deploy targets and wires were checked.
//!
//! # Not here
//!
//! Storage and activation (`mixer`), running (`rack`), gear types ([`crate::gear`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::gear::{self, Manifest, Manifests};
use crate::{BadToken, Token};

/// A whole scenario file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name and version.
    pub meta: Meta,
    /// The Racks and groups that gears may be deployed to.
    #[serde(default)]
    pub racks: Vec<RackEntry>,
    /// The gears.
    pub gears: Vec<Gear>,
    /// The wires.
    #[serde(default)]
    pub wires: Vec<Wire>,
}

/// A scenario's name and version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// The name.
    pub name: Token,
    /// The version, any token.
    pub version: Token,
    /// For people.
    #[serde(default)]
    pub description: String,
}

/// A Rack by name, or a group of Racks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RackEntry {
    /// One Rack's name.
    #[serde(default)]
    pub name: Option<Token>,
    /// A group's name.
    #[serde(default)]
    pub group: Option<Token>,
    /// A Rack's labels, or the labels that a group's members have.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// One gear.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gear {
    /// Its name, unique in the scenario.
    pub name: Token,
    /// Its type, one of [`Manifests`].
    #[serde(rename = "type")]
    pub kind: String,
    /// The Rack or group it runs on.
    pub deploy: Token,
    /// Its configuration, checked against the type's manifest.
    #[serde(default)]
    pub config: serde_json::Map<String, serde_json::Value>,
}

/// A connection between two gears' ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    /// `gear.port` or `rack.gear.port`, an output.
    pub from: Endpoint,
    /// `gear.port` or `rack.gear.port`, an input.
    pub to: Endpoint,
    /// How messages travel.
    #[serde(default)]
    pub lane: Option<Lane>,
}

/// How messages travel along a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// In memory, at most once, bounded.
    Hot,
    /// Over the bus, at least once, with dead letters.
    Guaranteed,
}

/// `gear.port` or `rack.gear.port`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Endpoint {
    /// The Rack, where named.
    pub rack: Option<Token>,
    /// The gear.
    pub gear: Token,
    /// The port.
    pub port: Token,
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(rack) = &self.rack {
            write!(f, "{rack}.")?;
        }
        write!(f, "{}.{}", self.gear, self.port)
    }
}

impl TryFrom<String> for Endpoint {
    type Error = BadToken;
    fn try_from(text: String) -> Result<Self, BadToken> {
        let parts: Vec<&str> = text.split('.').collect();
        match parts.as_slice() {
            [gear, port] => Ok(Self {
                rack: None,
                gear: gear.parse()?,
                port: port.parse()?,
            }),
            [rack, gear, port] => Ok(Self {
                rack: Some(rack.parse()?),
                gear: gear.parse()?,
                port: port.parse()?,
            }),
            _ => Err(BadToken(text)),
        }
    }
}

impl From<Endpoint> for String {
    fn from(endpoint: Endpoint) -> Self {
        endpoint.to_string()
    }
}

/// What is wrong with a scenario.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadScenario {
    /// Not the form; carries line and column.
    #[error("{0}")]
    Form(String),
    /// Everything that does not fit together, one sentence each.
    #[error("{}", .0.join("; "))]
    Meaning(Vec<String>),
}

/// Reads a scenario file and checks it against the types there are.
///
/// # Errors
/// [`BadScenario`]: the form with line and column, or every contradiction at once.
pub fn parse(yaml: &str, types: &Manifests) -> Result<Scenario, BadScenario> {
    let scenario: Scenario = serde_saphyr::from_str(yaml).map_err(|error| BadScenario::Form(error.to_string()))?;
    let faults = check(&scenario, types);
    if faults.is_empty() {
        Ok(scenario)
    } else {
        Err(BadScenario::Meaning(faults))
    }
}

/// The content hash of a scenario file: SHA-256, hex.
#[must_use]
pub fn content_hash(yaml: &str) -> String {
    Sha256::digest(yaml.as_bytes())
        .iter()
        .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

fn check(scenario: &Scenario, types: &Manifests) -> Vec<String> {
    let mut faults = Vec::new();
    let targets = check_racks(scenario, &mut faults);
    let mut gears: BTreeMap<&Token, (&Gear, &'static Manifest)> = BTreeMap::new();
    for gear in &scenario.gears {
        if !targets.contains(&gear.deploy) {
            faults.push(format!(
                "gear {} is deployed to {}, which racks does not list",
                gear.name, gear.deploy
            ));
        }
        match gear::manifest(types, &gear.kind) {
            None => faults.push(format!(
                "gear {} has the unknown type {:?}; known types: {}",
                gear.name,
                gear.kind,
                gear::names(types)
            )),
            Some(manifest) => {
                if let Err(reason) = (manifest.check)(&gear.config) {
                    faults.push(format!("config of gear {} ({}): {reason}", gear.name, gear.kind));
                }
                if gears.insert(&gear.name, (gear, manifest)).is_some() {
                    faults.push(format!("two gears are called {}", gear.name));
                }
            }
        }
    }
    for wire in &scenario.wires {
        check_wire(wire, &gears, scenario, &mut faults);
    }
    faults
}

fn check_racks<'a>(scenario: &'a Scenario, faults: &mut Vec<String>) -> BTreeSet<&'a Token> {
    let mut targets = BTreeSet::new();
    for entry in &scenario.racks {
        match (&entry.name, &entry.group) {
            (Some(name), None) | (None, Some(name)) => {
                if !targets.insert(name) {
                    faults.push(format!("racks lists {name} twice"));
                }
            }
            _ => faults.push("an entry of racks needs either name or group".to_owned()),
        }
    }
    targets
}

fn check_wire(
    wire: &Wire,
    gears: &BTreeMap<&Token, (&Gear, &'static Manifest)>,
    scenario: &Scenario,
    faults: &mut Vec<String>,
) {
    let mut end = |endpoint: &Endpoint, output: bool| -> Option<Token> {
        let Some((gear, manifest)) = gears.get(&endpoint.gear) else {
            if !scenario.gears.iter().any(|gear| gear.name == endpoint.gear) {
                faults.push(format!(
                    "wire {} -> {}: there is no gear {}",
                    wire.from, wire.to, endpoint.gear
                ));
            }
            return None;
        };
        let ports = if output { manifest.outputs } else { manifest.inputs };
        if !ports.contains(&endpoint.port.as_str()) {
            let kind = if output { "output" } else { "input" };
            let has = if ports.is_empty() {
                "none".to_owned()
            } else {
                ports.join(", ")
            };
            faults.push(format!(
                "wire {} -> {}: {} ({}) has no {kind} {}; it has {has}",
                wire.from, wire.to, endpoint.gear, gear.kind, endpoint.port
            ));
        }
        if endpoint.rack.as_ref().is_some_and(|rack| *rack != gear.deploy) {
            faults.push(format!(
                "wire {} -> {}: {} is deployed to {}",
                wire.from, wire.to, endpoint.gear, gear.deploy
            ));
        }
        Some(gear.deploy.clone())
    };
    let (from, to) = (end(&wire.from, true), end(&wire.to, false));
    if let (Some(from), Some(to)) = (from, to)
        && from != to
        && wire.lane == Some(Lane::Hot)
    {
        faults.push(format!(
            "wire {} -> {}: lane hot does not cross Racks ({from} -> {to})",
            wire.from, wire.to
        ));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Numbers {
        #[serde(default, rename = "rate")]
        _rate: f64,
    }

    impl gear::GearConfig for Numbers {}

    const fn manifest(
        kind: &'static str,
        inputs: &'static [&'static str],
        outputs: &'static [&'static str],
    ) -> Manifest {
        Manifest {
            kind,
            summary: "",
            inputs,
            outputs,
            doc: "",
            example: "",
            schema: gear::schema::<Numbers>,
            check: gear::check::<Numbers>,
        }
    }

    const TYPES: &Manifests = &[
        &manifest("generator", &[], &["out"]),
        &manifest("log_sink", &["in"], &[]),
    ];

    const GOOD: &str = "
meta: { name: demo, version: '1' }
racks: [ { name: rack-a } ]
gears:
  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 10 } }
  - { name: sink, type: log_sink, deploy: rack-a }
wires:
  - { from: numbers.out, to: sink.in }
";

    #[test]
    fn a_good_scenario_is_read_and_every_mistake_is_named() {
        assert_eq!(parse(GOOD, TYPES).unwrap().gears.len(), 2);
        for (from, to, says) in [
            ("generator", "genrator", "genrator"),
            ("numbers.out", "numbers.oops", "no output oops"),
            ("sink.in", "sunk.in", "no gear sunk"),
            ("rate: 10", "rat: 10", "rat"),
            ("deploy: rack-a }", "deploy: rack-b }", "rack-b"),
            ("wires:", "wirez:", "wirez"),
            ("name: sink", "name: numbers", "two gears"),
            ("numbers.out", "a.b.c.d", "a.b.c.d"),
        ] {
            let error = parse(&GOOD.replace(from, to), TYPES).unwrap_err().to_string();
            assert!(error.contains(says), "{says}: {error}");
        }
    }
}
