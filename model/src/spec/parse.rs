//! Parses a spec file into a [`Spec`], or all of its faults.

use std::collections::BTreeSet;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::columns::{SpecColumn, field_id};
use super::{BadSpec, MOST_FIELDS, MatchRule, PatternSet, Spec, SpecField};
use crate::yaml::{self, SourceDiagnostic, YamlEntry};
use crate::{SpecName, Table};

/// The longest name of a field, in bytes.
const LONGEST_NAME: usize = 63;
/// The longest path, in bytes.
const LONGEST_PATH: usize = 512;
/// Names that readers of files give to columns of their own.
const TAKEN: [&str; 1] = ["filename"];

/// The keys of a spec that are no list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecHeader {
    name: SpecName,
    #[serde(deserialize_with = "number")]
    version: u32,
    #[serde(default)]
    description: String,
    #[serde(default, deserialize_with = "number")]
    priority: i32,
    #[serde(rename = "match")]
    _rule: Value,
    #[serde(default)]
    prefix: Option<SpecName>,
    #[serde(default, rename = "fields")]
    _fields: Value,
}

/// A whole number that is written as a text.
fn number<'de, D: Deserializer<'de>, T: std::str::FromStr>(from: D) -> Result<T, D::Error> {
    let text = String::deserialize(from)?;
    let number = text.parse();
    number.map_err(|_| D::Error::custom(format!("{text} is not a whole number, or too large")))
}

impl TryFrom<Value> for PatternSet {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let one = |value: Value| match value {
            Value::String(text) => Ok(text),
            other => Err(format!("{other} is not a text")),
        };
        let texts = match value {
            Value::Array(list) => list.into_iter().map(one).collect::<Result<Vec<_>, _>>()?,
            other => vec![one(other)?],
        };
        if texts.is_empty() {
            return Err("an empty list matches nothing: leave the key out".to_owned());
        }
        for text in &texts {
            let star = text.find('*');
            if text.is_empty() || text == "*" {
                return Err(format!("{text:?} says nothing: leave the key out"));
            }
            if star.is_some_and(|at| at + 1 < text.len()) {
                return Err(format!("{text:?} has a * before its end, which stands for nothing"));
            }
        }
        Ok(Self(texts))
    }
}

impl From<PatternSet> for Value {
    fn from(patterns: PatternSet) -> Self {
        match <[String; 1]>::try_from(patterns.0) {
            Ok([one]) => Self::String(one),
            Err(several) => several.into(),
        }
    }
}

pub(super) fn spec(text: &str) -> Result<Spec, BadSpec> {
    let text = yaml::strip_bom(text);
    let root = yaml::nodes(text).map_err(|fault| BadSpec(vec![fault]))?;
    let mut faults = Vec::new();
    let head = yaml::read_entry::<SpecHeader>(&root, "the spec", &["match", "fields"], text, &mut faults);
    let rule = yaml::get(&root, "match").and_then(|node| {
        let rule = yaml::read_entry::<MatchRule>(node, "match", &[], text, &mut faults)?;
        if rule == MatchRule::default() {
            let says = "match has no condition: name msg_type, rack, gear, port or meta";
            faults.push(yaml::at(node, says));
        }
        Some(rule)
    });
    let is_empty = |node: &yaml::YamlNode| matches!(node.value, yaml::YamlValue::Scalar(Value::Null));
    let (fields, _) = if yaml::get(&root, "fields").is_some_and(is_empty) {
        (Vec::new(), BTreeSet::new())
    } else {
        yaml::read_entries::<SpecField>(&root, "fields", &[], text, &mut faults)
    };
    if let Some(node) = yaml::get(&root, "version").filter(|_| head.as_ref().is_some_and(|head| head.version == 0)) {
        faults.push(yaml::at(node, "versions count from 1"));
    }
    check(&fields, &mut faults);
    match (head, rule) {
        (Some(head), Some(rule)) if faults.is_empty() => Ok(Spec {
            prefix: head.prefix.unwrap_or(head.name),
            name: head.name,
            version: head.version,
            description: head.description,
            priority: head.priority,
            rule,
            fields: fields.into_iter().map(|field| field.value).collect(),
        }),
        _ => Err(BadSpec(yaml::limit_diagnostics(faults))),
    }
}

fn check(fields: &[YamlEntry<'_, SpecField>], faults: &mut Vec<SourceDiagnostic>) {
    let base = Table::Messages.columns();
    let (mut names, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for (count, field) in fields.iter().enumerate() {
        let name = field.value.name.as_str();
        if count == MOST_FIELDS {
            faults.push(field.at("name", format!("a spec has at most {MOST_FIELDS} fields")));
            return;
        }
        let what = || format!("field {}", name.chars().take(LONGEST_NAME).collect::<String>());
        if !is_name(name) {
            let says = "use a small letter, then small letters, digits or _, 63 at most";
            faults.push(field.at("name", format!("{} is not a column name: {says}", what())));
        } else if base.iter().any(|column| column.name == name) || TAKEN.contains(&name) {
            let says = "is a column that every message has: give it another name";
            faults.push(field.at("name", format!("{} {says}", what())));
        } else if !names.insert(name) {
            faults.push(field.at("name", format!("two fields are called {name}")));
        } else if !ids.insert(field_id(&SpecColumn::of(&field.value))) {
            let says = "has the number of another field of this spec in files: give it another name";
            faults.push(field.at("name", format!("{} {says}", what())));
        }
        if let Err(reason) = check_path(&field.value.path) {
            faults.push(field.at("path", format!("{}: {reason}", what())));
        }
    }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase());
    let rest = bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    first && rest && name.len() <= LONGEST_NAME
}

fn check_path(path: &str) -> Result<(), String> {
    if path.len() > LONGEST_PATH {
        return Err(format!("its path has {} bytes, {LONGEST_PATH} at most", path.len()));
    }
    if !path.starts_with('/') {
        let says = "is not a JSON Pointer: it begins with /, as in /items/0/price";
        return Err(format!("{path:?} {says}"));
    }
    let escapes = path.split('~').skip(1);
    if escapes.into_iter().any(|after| !after.starts_with(['0', '1'])) {
        return Err(format!(
            "{path:?} is not a JSON Pointer: ~ is written ~0, and / within a key ~1"
        ));
    }
    Ok(())
}
