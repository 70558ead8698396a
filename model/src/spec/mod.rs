//! Specs of business messages: which messages are of one kind, and what of their data becomes columns.
//!
//! ```yaml
//! name: order
//! version: 1
//! match: { msg_type: order }
//! prefix: order
//! fields:
//!   - { name: amount, path: /amount, type: float }
//! ```
//!
//! # Invariants
//!
//! - Unknown keys are errors. All that is wrong is named at once, each with line and column.
//! - A message is of at most one spec: of those that take it the one of the greatest priority, of these the first by name.
//! - What is promoted is in a form that [`columns`] gives back as it is: a value that is not of its field's type is nothing, and
//!   counted.
//! - A change is of a greater version, and no field changes its type but from `int` to `float`: what is stored stays readable.
//!
//! # Not here
//!
//! Which specs there are now, and their files (`mixer`); where rows of a spec lie (`engine`).

pub mod columns;
mod parse;
mod promote;
mod schema_evolution;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use columns::SpecColumn;
pub use promote::{MOST_TEXT, PromotionResult};
pub use schema_evolution::{FieldHistory, SpecHistory};

pub use crate::yaml::SourceDiagnostic;
use crate::{Attributes, SpecName, Table};

/// Fields of one spec, at most.
pub const MOST_FIELDS: usize = 40;
/// The longest file that is read, in bytes.
pub const MAX_FILE: u64 = 256 << 10;

/// A whole spec file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Spec {
    /// Its name, its folder's and its table's.
    pub name: SpecName,
    /// Grows with every change.
    pub version: u32,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Of specs that take a message the one with the greatest has it.
    pub priority: i32,
    /// Which messages it takes.
    #[serde(rename = "match")]
    pub rule: MatchRule,
    /// What names of its data files begin with.
    pub prefix: SpecName,
    /// What is promoted, in the order of its columns.
    pub fields: Vec<SpecField>,
}

/// A promoted field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpecField {
    /// The column.
    pub name: String,
    /// Where its value is in a message's data: a JSON Pointer, RFC 6901.
    pub path: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: FieldType,
}

/// What a promoted value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    /// A text.
    String,
    /// A whole number of 64 bits.
    Int,
    /// A number.
    Float,
    /// True or false.
    Bool,
    /// A moment, as RFC 3339.
    Timestamp,
    /// A UUID.
    Uuid,
}

impl FieldType {
    /// Its name in a spec.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Int => "int",
            Self::Float => "float",
            Self::Bool => "bool",
            Self::Timestamp => "timestamp",
            Self::Uuid => "uuid",
        }
    }

    /// Whether every value of `self` is one of `wider`.
    #[must_use]
    pub const fn widens_to(self, wider: Self) -> bool {
        matches!(
            (self, wider),
            (Self::Int, Self::Int | Self::Float)
                | (Self::String, Self::String)
                | (Self::Float, Self::Float)
                | (Self::Bool, Self::Bool)
                | (Self::Timestamp, Self::Timestamp)
                | (Self::Uuid, Self::Uuid)
        )
    }
}

/// Which messages a spec takes: those that meet every condition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatchRule {
    /// The message's type: its metadata `msg.type`, else the port that it left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub msg_type: Option<PatternSet>,
    /// The Rack that sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<PatternSet>,
    /// The gear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gear: Option<PatternSet>,
    /// The gear's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<PatternSet>,
    /// Facts of the message.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, PatternSet>,
}

/// Texts of which one must be met; `*` at a text's end stands for anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "serde_json::Value", into = "serde_json::Value")]
pub struct PatternSet(Vec<String>);

impl PatternSet {
    fn meet(&self, text: &str) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => text.starts_with(start),
            None => text == pattern,
        })
    }
}

/// What of a message decides about its spec.
#[derive(Debug, Clone, Copy)]
pub struct MessageFacts<'a> {
    /// Its type.
    pub msg_type: &'a str,
    /// The Rack that sent it.
    pub rack: &'a str,
    /// The gear.
    pub gear: &'a str,
    /// The gear's port.
    pub port: &'a str,
    /// Its metadata.
    pub meta: &'a Attributes,
}

impl MatchRule {
    /// Whether a message meets every condition.
    #[must_use]
    pub fn takes(&self, facts: MessageFacts<'_>) -> bool {
        let met = |condition: &Option<PatternSet>, text: &str| condition.as_ref().is_none_or(|asked| asked.meet(text));
        let fact = |(key, asked): (&String, &PatternSet)| match facts.meta.get(key) {
            Some(serde_json::Value::String(text)) => asked.meet(text),
            Some(serde_json::Value::Null) | None => false,
            Some(other) => asked.meet(&other.to_string()),
        };
        met(&self.msg_type, facts.msg_type)
            && met(&self.rack, facts.rack)
            && met(&self.gear, facts.gear)
            && met(&self.port, facts.port)
            && self.meta.iter().all(fact)
    }
}

/// Everything that is wrong with a spec file, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(SourceDiagnostic::to_string).collect::<Vec<_>>().join("; "))]
pub struct BadSpec(pub Vec<SourceDiagnostic>);

/// Reads a spec file and checks it.
///
/// # Errors
/// [`BadSpec`]: every fault at once.
pub fn parse(yaml: &str) -> Result<Spec, BadSpec> {
    parse::spec(yaml)
}

/// The table of a spec's messages, in statements and views.
#[must_use]
pub fn table_name(spec: &SpecName) -> String {
    format!("{}_{spec}", Table::Messages)
}

/// Specs in the order in which they are asked for a message: the greatest priority first, then by name.
pub fn in_order(specs: &mut [Spec]) {
    specs.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(&b.name)));
}
