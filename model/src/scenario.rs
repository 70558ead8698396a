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
//! - Unknown keys are errors. All that is wrong is named at once, each with line and column.
//! - A [`Scenario`] that [`parse()`] returns is valid: types, ports, configs, deploy targets and wires were checked.
//! - Wires may make a circle: hops end what goes round in it. It is a warning, as is a group that may be empty, unless it is certain to
//!   be wrong (`wire_cycles`).
//!
//! # Not here
//!
//! Storage and activation (`mixer`), running (`rack`), gear types ([`crate::gear_manifest`]).

mod layers;
mod parse;
#[cfg(test)]
mod tests;
mod validate;
mod version;
mod wire_cycles;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::gear_manifest::GearManifests;
pub use version::{BadVersion, ScenarioVersion};

pub use crate::yaml::SourceDiagnostic;
use crate::yaml::{self, MOST};
use crate::{BadToken, HumanDuration, Token};

/// A whole scenario file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name and version.
    pub meta: ScenarioMeta,
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
pub struct ScenarioMeta {
    /// The name.
    pub name: Token,
    /// The version.
    pub version: ScenarioVersion,
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
    /// Its type, one of [`GearManifests`].
    #[serde(rename = "type")]
    pub kind: String,
    /// The Rack or group it runs on.
    pub deploy: Token,
    /// Its configuration, checked against the type's manifest.
    #[serde(default)]
    pub config: serde_json::Map<String, serde_json::Value>,
}

/// A connection between two gears' ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    /// `gear.port` or `rack.gear.port`, an output.
    pub from: GearPort,
    /// `gear.port` or `rack.gear.port`, an input.
    pub to: GearPort,
    /// How messages travel.
    #[serde(default)]
    pub lane: Option<Lane>,
    /// Of lane guaranteed: the most bytes that wait for the receiver; its share of the stream where nothing is said, and never more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Of lane guaranteed: how long a message waits for the receiver before it becomes a dead letter; without end where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<HumanDuration>,
    /// Of lane guaranteed: what happens when as much waits as may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow: Option<OverflowPolicy>,
}

/// What happens when as much waits for the receiver of a wire as may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OverflowPolicy {
    /// Its senders wait.
    #[default]
    Block,
    /// The oldest messages become dead letters of the receiving gear.
    DropOldestToDlq,
}

/// How messages travel along a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
pub struct GearPort {
    /// The Rack, where named.
    pub rack: Option<Token>,
    /// The gear.
    pub gear: Token,
    /// The port.
    pub port: Token,
}

plain_schema!(GearPort, { "type": "string" });

impl std::fmt::Display for GearPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(rack) = &self.rack {
            write!(f, "{rack}.")?;
        }
        write!(f, "{}.{}", self.gear, self.port)
    }
}

impl TryFrom<String> for GearPort {
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

impl From<GearPort> for String {
    fn from(endpoint: GearPort) -> Self {
        endpoint.to_string()
    }
}

/// Everything that is wrong with a scenario, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(SourceDiagnostic::to_string).collect::<Vec<_>>().join("; "))]
pub struct BadScenario(pub Vec<SourceDiagnostic>);

/// A valid scenario, and what its author should know about it.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioReview {
    /// The scenario.
    pub scenario: Scenario,
    /// What may not be meant so, in the order of the file.
    pub warnings: Vec<SourceDiagnostic>,
    /// Those of them that say that a group may be empty: who knows the Racks and their labels knows better.
    pub open_groups: Vec<SourceDiagnostic>,
}

/// Reads a scenario file and checks it against the types there are: whether it can run. What was stored once is read with this.
///
/// # Errors
/// [`BadScenario`]: every fault at once.
pub fn parse(yaml: &str, types: &GearManifests) -> Result<Scenario, BadScenario> {
    validate(yaml, types, ValidationLevel::Runs).map(|reviewed| reviewed.scenario)
}

/// The same, with warnings, for what is to be stored: also whether it makes sense.
///
/// # Errors
/// [`BadScenario`]: every fault at once.
pub fn review(yaml: &str, types: &GearManifests) -> Result<ScenarioReview, BadScenario> {
    validate(yaml, types, ValidationLevel::MakesSense { max_hops: None })
}

/// The same for Racks that let a message leave `max_hops` gears.
///
/// # Errors
/// [`BadScenario`]: every fault at once.
pub fn review_within(yaml: &str, types: &GearManifests, max_hops: u32) -> Result<ScenarioReview, BadScenario> {
    let max_hops = Some(max_hops);
    validate(yaml, types, ValidationLevel::MakesSense { max_hops })
}

/// What is asked of a scenario. Rules that come with a new version are of the second kind: what runs stays readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValidationLevel {
    /// That it can run.
    Runs,
    /// Also that its author can mean it so, where Racks let a message leave so many gears.
    MakesSense { max_hops: Option<u32> },
}

fn validate(yaml: &str, types: &GearManifests, asked: ValidationLevel) -> Result<ScenarioReview, BadScenario> {
    let yaml = yaml::strip_bom(yaml);
    let root = yaml::nodes(yaml).map_err(|fault| BadScenario(vec![fault]))?;
    let mut faults = Vec::new();
    let draft = parse::draft(&root, yaml, asked, &mut faults);
    validate::check(&draft, types, asked, &mut faults);
    match draft.finish() {
        Some(scenario) if faults.is_empty() => {
            let open_groups = validate::open_groups(&draft);
            let mut warnings = [open_groups.clone(), validate::warnings(&draft)].concat();
            warnings.sort();
            warnings.truncate(MOST);
            Ok(ScenarioReview {
                scenario,
                warnings,
                open_groups,
            })
        }
        _ => Err(BadScenario(yaml::limit_diagnostics(faults))),
    }
}

/// The content hash of a scenario file: SHA-256, hex.
#[must_use]
pub fn content_hash(yaml: &str) -> String {
    Sha256::digest(yaml.as_bytes())
        .iter()
        .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}
