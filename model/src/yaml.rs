//! YAML as values that know where they stand, and entries of them read one by one: for files that people write.
//!
//! ```text
//!  YAML ─▶ nodes, each with line and column ─▶ entries of a mapping or a list, one by one ─▶ values and findings
//! ```
//!
//! # Invariants
//!
//! - An entry that is wrong does not hide what is wrong with others: entries are read one by one.
//! - A scalar is a text as it is written, `version: 1.10` is not 1.1, except where a value is asked for.
//!
//! # Not here
//!
//! What entries mean: scenarios, specs.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_saphyr::{MessageFormatter, Spanned, UserMessageFormatter};

/// The most faults that are reported.
pub(crate) const MOST: usize = 100;
/// An entry of more values times keys than this is not searched for the key that is wrong.
const SEARCHED: usize = 20_000;
/// How deep lists and mappings may lie in each other.
const MAX_DEPTH: usize = 24;

/// A value of the file, with its place.
pub(crate) type YamlNode = Spanned<YamlValue>;

/// What a value is made of.
#[derive(Debug)]
pub(crate) enum YamlValue {
    Scalar(Value),
    List(Vec<YamlNode>),
    Map(Vec<(Spanned<String>, YamlNode)>),
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlValueVisitor)
    }
}

struct YamlValueVisitor;

impl<'de> Visitor<'de> for YamlValueVisitor {
    type Value = YamlValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, true, false, a list or a mapping")
    }

    fn visit_bool<E>(self, value: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<YamlValue, E> {
        let number = serde_json::Number::from_f64(value).ok_or_else(|| E::custom("numbers are finite"))?;
        Ok(YamlValue::Scalar(number.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<YamlValue, A::Error> {
        let mut list = Vec::new();
        while let Some(node) = seq.next_element()? {
            list.push(node);
        }
        Ok(YamlValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<YamlValue, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry::<Spanned<String>, YamlNode>()? {
            entries.push(entry);
        }
        Ok(YamlValue::Map(entries))
    }
}

/// The file as nodes.
pub(crate) fn nodes(yaml: &str) -> Result<YamlNode, SourceDiagnostic> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH },
    };
    serde_saphyr::from_str_with_options(yaml, options).map_err(|error| {
        let error = error.without_snippet();
        let at = error.location();
        let text = UserMessageFormatter.format_message(error);
        SourceDiagnostic {
            line: at.map_or(1, |at| at.line().max(1)),
            column: at.map_or(1, |at| at.column().max(1)),
            text: text.lines().collect::<Vec<_>>().join(" "),
        }
    })
}

/// A sentence about the place of a node.
pub(crate) fn at<T>(node: &Spanned<T>, text: impl Into<String>) -> SourceDiagnostic {
    SourceDiagnostic {
        line: node.referenced.line().max(1),
        column: node.referenced.column().max(1),
        text: text.into(),
    }
}

/// The entries of a mapping; none of anything else.
fn entries(node: &YamlNode) -> &[(Spanned<String>, YamlNode)] {
    match &node.value {
        YamlValue::Map(entries) => entries,
        _ => &[],
    }
}

pub(crate) fn get<'n>(node: &'n YamlNode, key: &str) -> Option<&'n YamlNode> {
    let mut entries = entries(node).iter();
    entries.find(|(name, _)| name.value == key).map(|(_, value)| value)
}

/// A node as JSON.
fn json(node: &YamlNode) -> Value {
    match &node.value {
        YamlValue::Scalar(value) => value.clone(),
        YamlValue::List(list) => list.iter().map(json).collect(),
        YamlValue::Map(entries) => entries
            .iter()
            .map(|(key, value)| (key.value.clone(), json(value)))
            .collect(),
    }
}

/// A node as JSON in which numbers and the like are the texts that the file has.
fn texts(node: &YamlNode, yaml: &str) -> Value {
    match &node.value {
        YamlValue::Scalar(Value::Number(_) | Value::Bool(_)) => written(node, yaml).unwrap_or_else(|| json(node)),
        YamlValue::Scalar(value) => value.clone(),
        YamlValue::List(list) => list.iter().map(|node| texts(node, yaml)).collect(),
        YamlValue::Map(entries) => entries
            .iter()
            .map(|(key, value)| (key.value.clone(), texts(value, yaml)))
            .collect(),
    }
}

fn written(node: &YamlNode, yaml: &str) -> Option<Value> {
    let span = node.defined.span();
    let from = usize::try_from(span.byte_offset()?).ok()?;
    let to = from + usize::try_from(span.byte_len()?).ok()?;
    Some(yaml.get(from..to)?.trim().into())
}

/// An entry with its place.
#[derive(Debug)]
pub(crate) struct YamlEntry<'n, T> {
    pub(crate) value: T,
    node: &'n YamlNode,
}

impl<T> YamlEntry<'_, T> {
    /// A sentence about the entry's value of a key.
    pub(crate) fn at(&self, key: &str, text: impl Into<String>) -> SourceDiagnostic {
        at(get(self.node, key).unwrap_or(self.node), text)
    }

    /// Sentences about the keys of the entry's mapping `inside` that a check does not accept.
    pub(crate) fn refused(
        &self,
        inside: &str,
        map: &Map<String, Value>,
        check: impl Fn(&Map<String, Value>) -> Result<(), String>,
        faults: &mut Vec<SourceDiagnostic>,
        what: &str,
    ) {
        let node = get(self.node, inside).unwrap_or(self.node);
        refused(node, map.clone(), check, faults, what);
    }
}

/// Something about one place of a file that somebody wrote.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct SourceDiagnostic {
    /// The line, from 1.
    pub line: u64,
    /// The column, from 1, in characters.
    pub column: u64,
    /// A sentence.
    pub text: String,
}

impl std::fmt::Display for SourceDiagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.text)
    }
}

/// Without the byte order mark, which columns do not count.
pub(crate) fn strip_bom(yaml: &str) -> &str {
    yaml.strip_prefix('\u{feff}').unwrap_or(yaml)
}

/// Faults in the order of the file, no more than are worth reading.
pub(crate) fn limit_diagnostics(mut faults: Vec<SourceDiagnostic>) -> Vec<SourceDiagnostic> {
    faults.sort();
    let more = faults.len().saturating_sub(MOST);
    faults.truncate(MOST);
    if let Some(last) = faults.last().filter(|_| more > 0) {
        let text = format!("{more} more faults");
        faults.push(SourceDiagnostic { text, ..last.clone() });
    }
    faults
}

/// Entries of a list, and the names of those that cannot be read.
pub(crate) type YamlEntries<'n, T> = (Vec<YamlEntry<'n, T>>, BTreeSet<Option<String>>);

/// The entries of a list, and the names of those that cannot be read.
pub(crate) fn read_entries<'n, T: DeserializeOwned>(
    root: &'n YamlNode,
    section: &str,
    as_values: &[&str],
    yaml: &str,
    faults: &mut Vec<SourceDiagnostic>,
) -> YamlEntries<'n, T> {
    let (mut good, mut unread) = (Vec::new(), BTreeSet::new());
    let nodes = match get(root, section).map(|node| (node, &node.value)) {
        None => return (good, unread),
        Some((_, YamlValue::List(nodes))) => nodes,
        Some((node, _)) => {
            faults.push(at(node, format!("{section} is not a list")));
            unread.insert(None);
            return (good, unread);
        }
    };
    for node in nodes {
        let name = ["name", "group"].iter().find_map(|key| get(node, key));
        let name = name.and_then(|node| texts(node, yaml).as_str().map(str::to_owned));
        let kind = section.strip_suffix('s').unwrap_or(section);
        let what = name
            .as_ref()
            .map_or_else(|| kind.to_owned(), |name| format!("{kind} {name}"));
        match read_entry(node, &what, as_values, yaml, faults) {
            Some(value) => good.push(YamlEntry { value, node }),
            None => {
                unread.insert(name);
            }
        }
    }
    (good, unread)
}

/// One entry; `as_values` are the keys whose values are not texts.
pub(crate) fn read_entry<T: DeserializeOwned>(
    node: &YamlNode,
    what: &str,
    as_values: &[&str],
    yaml: &str,
    faults: &mut Vec<SourceDiagnostic>,
) -> Option<T> {
    let YamlValue::Map(entries) = &node.value else {
        faults.push(at(node, format!("{what} is not a mapping")));
        return None;
    };
    let value = |(key, node): &(Spanned<String>, YamlNode)| {
        let is_value = as_values.contains(&key.value.as_str());
        let value = if is_value { json(node) } else { texts(node, yaml) };
        (key.value.clone(), value)
    };
    let map: Map<String, Value> = entries.iter().map(value).collect();
    let read = |map: &Map<String, Value>| serde_json::from_value::<T>(map.clone().into());
    match read(&map) {
        Ok(value) => Some(value),
        Err(_) => {
            let check = |map: &Map<String, Value>| read(map).map(drop).map_err(|error| error.to_string());
            refused(node, map, check, faults, what);
            None
        }
    }
}

/// A sentence for each key of a mapping that a check does not accept. What a check complains about is the key without which it
/// says something else.
fn refused(
    node: &YamlNode,
    mut map: Map<String, Value>,
    check: impl Fn(&Map<String, Value>) -> Result<(), String>,
    faults: &mut Vec<SourceDiagnostic>,
    what: &str,
) {
    let mut found: Vec<String> = Vec::new();
    let may_search = map.len().saturating_mul(map.values().map(weight).sum()) <= SEARCHED;
    while faults.len() <= MOST
        && let Err(reason) = check(&map)
    {
        let lacks = |key: &String| reason.contains(&format!("missing field `{key}`"));
        if found.iter().any(lacks) {
            return;
        }
        let key = if may_search {
            culprit(&map, &reason, &check)
        } else {
            None
        };
        let Some(key) = key else {
            faults.push(at(node, format!("{what}: {reason}")));
            return;
        };
        let says_key = reason.contains(&key);
        let text = if says_key {
            format!("{what}: {reason}")
        } else {
            format!("{what}: {key}: {reason}")
        };
        let entry = entries(node).iter().find(|(name, _)| name.value == key);
        faults.push(match entry {
            Some((name, _)) if reason.starts_with("unknown field") => at(name, text),
            Some((_, value)) => at(value, text),
            None => at(node, text),
        });
        map.remove(&key);
        found.push(key);
    }
}

/// What copying a value costs.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => 1 + text.len() / 64,
        Value::Array(list) => 1 + list.iter().map(weight).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(weight).sum::<usize>(),
        _ => 1,
    }
}

/// Without a key of this certainty a check has nothing to say, or something that is not the key's absence.
const CERTAIN: u8 = 3;

/// The key that a check complains about.
fn culprit(
    map: &Map<String, Value>,
    reason: &str,
    check: impl Fn(&Map<String, Value>) -> Result<(), String>,
) -> Option<String> {
    let mut without = map.clone();
    let mut best: Option<(u8, &String)> = None;
    for (key, value) in map {
        without.remove(key);
        let certainty = match check(&without) {
            Err(other) if other == reason => 0,
            Err(other) if other.contains(&format!("missing field `{key}`")) => {
                1 + u8::from(reason.contains(key.as_str()))
            }
            _ => CERTAIN + u8::from(reason.contains(key.as_str())),
        };
        without.insert(key.clone(), value.clone());
        if certainty > best.map_or(0, |(most, _)| most) {
            best = Some((certainty, key));
        }
    }
    let least = if reason.starts_with("missing field") {
        CERTAIN
    } else {
        1
    };
    best.filter(|(certainty, _)| *certainty >= least)
        .map(|(_, key)| key.clone())
}
