//! Unit tests of scenarios as files: what is given to gears, and what is expected of them.
//!
//! ```yaml
//! scenario: flow.yaml
//! cases:
//!   - name: a hot reading is an alarm
//!     given:
//!       - { from: readings.out, messages: [ { data: { celsius: 91 } } ] }
//!     expect:
//!       - { from: alarm.out, messages: [ { data: { celsius: 91 } } ] }
//!       - { from: alarm.rest, count: 0 }
//! ```
//!
//! # Invariants
//!
//! - Unknown keys are errors. All that is wrong is named at once, each with line and column.
//!
//! # Not here
//!
//! Running cases (`rack`), judging and printing what came (`cli`).

use std::collections::BTreeSet;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::scenario::GearPort;
pub use crate::yaml::SourceDiagnostic;
use crate::yaml::{self, YamlEntry, YamlNode};
use crate::{HumanDuration, Token};

/// How long the messages of a case may take that does not say it.
const TIMEOUT: HumanDuration = HumanDuration::from_secs(2);

/// A whole file.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioTestFile {
    /// The scenario that is tested.
    pub scenario: ScenarioSource,
    /// Its cases.
    pub cases: Vec<ScenarioTestCase>,
}

/// Where the scenario is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScenarioSource {
    /// In a file, seen from this one.
    Path(String),
    /// In this file; as JSON.
    Inline(String),
}

/// One case: what is given, and what comes of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioTestCase {
    /// What it shows.
    pub name: String,
    /// Where it stands in the file.
    pub place: (u64, u64),
    /// How long its messages may take.
    pub timeout: HumanDuration,
    /// In the order in which it is given.
    pub given: Vec<GivenMessages>,
    /// All of it must come true.
    pub expect: Vec<ExpectedMessages>,
}

/// A side of a gear.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScenarioTestPort {
    /// The gear.
    pub gear: Token,
    /// Its port.
    pub port: Token,
    /// Whether messages go in there.
    pub is_input: bool,
}

impl std::fmt::Display for ScenarioTestPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.gear, self.port)
    }
}

/// Messages for a port.
#[derive(Debug, Clone, PartialEq)]
pub struct GivenMessages {
    /// An input, or an output of a gear that is not started.
    pub port: ScenarioTestPort,
    /// In their order.
    pub messages: Vec<MessagePattern>,
}

/// What passes a port.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedMessages {
    /// An output, or an input of a gear that is not started.
    pub port: ScenarioTestPort,
    /// These, in their order and no others.
    pub messages: Option<Vec<MessagePattern>>,
    /// So many.
    pub count: Option<usize>,
    /// An expression that is true for each of them.
    pub condition: Option<String>,
    /// Whether objects have no other keys than those that are named.
    pub exactly: bool,
}

impl ExpectedMessages {
    /// How many messages must pass at least.
    #[must_use]
    pub fn least(&self) -> usize {
        let named = self.messages.as_ref().map(Vec::len);
        named.or(self.count).unwrap_or(1)
    }
}

/// A message as it is given, or what is expected of one.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MessagePattern {
    /// The body as a value; `null` is one.
    #[serde(deserialize_with = "named")]
    pub data: Option<Value>,
    /// The body's bytes as text.
    pub text: Option<String>,
    /// The body's bytes in hexadecimal, instead of `text`.
    pub hex: Option<HexBytes>,
    /// Facts.
    pub meta: Map<String, Value>,
}

fn named<'de, D: Deserializer<'de>>(data: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(data).map(Some)
}

impl MessagePattern {
    /// The body's bytes, if it says them.
    #[must_use]
    pub fn raw(&self) -> Option<&[u8]> {
        let hex = self.hex.as_ref().map(|HexBytes(bytes)| bytes.as_slice());
        hex.or(self.text.as_ref().map(String::as_bytes))
    }
}

/// Bytes that are written in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct HexBytes(pub Vec<u8>);

impl TryFrom<String> for HexBytes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digit = |byte: &u8| {
            char::from(*byte)
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        };
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(digit(high)? * 16 + digit(low)?),
            _ => None,
        };
        let bytes = text.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>();
        bytes
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not hexadecimal: two digits for each byte"))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileDraft {
    scenario: Value,
    #[serde(default)]
    timeout: Option<HumanDuration>,
    /// They are read one by one.
    #[serde(rename = "cases")]
    _cases: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseDraft {
    name: String,
    #[serde(default)]
    timeout: Option<HumanDuration>,
    #[serde(default)]
    given: Vec<GivenDraft>,
    expect: Vec<ExpectedDraft>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenDraft {
    #[serde(default)]
    to: Option<GearPort>,
    #[serde(default)]
    from: Option<GearPort>,
    messages: Vec<MessagePattern>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedDraft {
    #[serde(default)]
    to: Option<GearPort>,
    #[serde(default)]
    from: Option<GearPort>,
    #[serde(default)]
    messages: Option<Vec<MessagePattern>>,
    #[serde(default)]
    count: Option<usize>,
    #[serde(default, rename = "where")]
    condition: Option<String>,
    #[serde(default)]
    exactly: bool,
}

/// Reads a file.
///
/// # Errors
/// Every fault at once.
pub fn parse(yaml: &str) -> Result<ScenarioTestFile, Vec<SourceDiagnostic>> {
    let yaml = yaml::strip_bom(yaml);
    let root = yaml::nodes(yaml).map_err(|fault| vec![fault])?;
    let mut faults = Vec::new();
    let file: Option<FileDraft> = yaml::read_entry(&root, "the file", &["scenario", "cases"], yaml, &mut faults);
    let (drafts, _) = yaml::read_entries::<CaseDraft>(&root, "cases", &["given", "expect"], yaml, &mut faults);
    let timeout = file.as_ref().and_then(|file| file.timeout).unwrap_or(TIMEOUT);
    let mut names = BTreeSet::new();
    let mut cases = Vec::new();
    for draft in drafts {
        if !names.insert(draft.value.name.clone()) {
            faults.push(draft.at("name", format!("two cases are called {:?}", draft.value.name)));
        }
        cases.extend(case(draft, timeout, &mut faults));
    }
    let scenario = file.and_then(|file| scenario(&file, &root, &mut faults));
    if cases.is_empty() && faults.is_empty() {
        faults.push(yaml::at(&root, "there are no cases"));
    }
    match scenario {
        Some(scenario) if faults.is_empty() => Ok(ScenarioTestFile { scenario, cases }),
        _ => Err(yaml::limit_diagnostics(faults)),
    }
}

fn scenario(file: &FileDraft, root: &YamlNode, faults: &mut Vec<SourceDiagnostic>) -> Option<ScenarioSource> {
    match &file.scenario {
        Value::String(path) => Some(ScenarioSource::Path(path.clone())),
        Value::Object(_) => Some(ScenarioSource::Inline(file.scenario.to_string())),
        _ => {
            let node = yaml::get(root, "scenario").unwrap_or(root);
            faults.push(yaml::at(node, "scenario is neither the path of a file nor a scenario"));
            None
        }
    }
}

fn case(
    draft: YamlEntry<'_, CaseDraft>,
    timeout: HumanDuration,
    faults: &mut Vec<SourceDiagnostic>,
) -> Option<ScenarioTestCase> {
    let before = faults.len();
    let SourceDiagnostic { line, column, .. } = draft.at("name", "");
    if draft.value.expect.is_empty() {
        faults.push(draft.at("expect", "expect says nothing: an empty case is always right"));
    }
    for (number, given) in draft.value.given.iter().enumerate() {
        let wrong = given.messages.iter().find_map(two_bodies);
        for reason in [port(&given.to, &given.from).err(), wrong].into_iter().flatten() {
            faults.push(draft.at("given", format!("given {}: {reason}", number + 1)));
        }
    }
    for (number, expected) in draft.value.expect.iter().enumerate() {
        let wrong = expected.messages.iter().flatten().find_map(two_bodies);
        for reason in [port(&expected.to, &expected.from).err(), asks(expected).err(), wrong]
            .into_iter()
            .flatten()
        {
            faults.push(draft.at("expect", format!("expect {}: {reason}", number + 1)));
        }
    }
    if faults.len() > before {
        return None;
    }
    let CaseDraft {
        name,
        timeout: own,
        given,
        expect,
    } = draft.value;
    Some(ScenarioTestCase {
        name,
        place: (line, column),
        timeout: own.unwrap_or(timeout),
        given: given.into_iter().filter_map(GivenDraft::finish).collect(),
        expect: expect.into_iter().filter_map(ExpectedDraft::finish).collect(),
    })
}

fn two_bodies(message: &MessagePattern) -> Option<String> {
    let has_two = message.text.is_some() && message.hex.is_some();
    has_two.then(|| "a message has text or hex, not both".to_owned())
}

/// The port that one of them names.
fn port(to: &Option<GearPort>, from: &Option<GearPort>) -> Result<ScenarioTestPort, String> {
    let (end, is_input) = match (to, from) {
        (Some(end), None) => (end, true),
        (None, Some(end)) => (end, false),
        _ => return Err("it says either `to: gear.port` or `from: gear.port`".to_owned()),
    };
    if end.rack.is_some() {
        return Err(format!("{end} names a Rack, and all gears run here: gear.port"));
    }
    Ok(ScenarioTestPort {
        gear: end.gear.clone(),
        port: end.port.clone(),
        is_input,
    })
}

/// Whether something is asked, and only once.
fn asks(expected: &ExpectedDraft) -> Result<(), String> {
    match (&expected.messages, expected.count, &expected.condition) {
        (None, None, None) => Err("it says nothing: messages, count or where".to_owned()),
        (Some(messages), Some(count), _) if messages.len() != count => {
            Err(format!("count is {count}, and {} messages are named", messages.len()))
        }
        _ if expected.exactly && expected.messages.is_none() => {
            Err("exactly is about messages, and none is named".to_owned())
        }
        _ => Ok(()),
    }
}

impl GivenDraft {
    fn finish(self) -> Option<GivenMessages> {
        Some(GivenMessages {
            port: port(&self.to, &self.from).ok()?,
            messages: self.messages,
        })
    }
}

impl ExpectedDraft {
    fn finish(self) -> Option<ExpectedMessages> {
        Some(ExpectedMessages {
            port: port(&self.to, &self.from).ok()?,
            messages: self.messages,
            count: self.count,
            condition: self.condition,
            exactly: self.exactly,
        })
    }
}

#[cfg(test)]
mod tests;
