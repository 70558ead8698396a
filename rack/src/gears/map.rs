//! `map`: makes a message of each message: another value, other facts.
//!
//! # Invariants
//!
//! - The message that leaves is a child of the one that came: an id of its own, the same signal and trace.
//! - All expressions see the message that came, none sees what another one made.
//! - A new value is the body: the bytes that it was made of are left out. Where only facts change, the body stays as it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use model::Attributes;
use model::gear_manifest::{self, GearConfig, GearManifest};
use model::message::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map as Object, Value};

use super::expression::{CelExpression, MessageVariables};
use super::{RawConfig, GearContext, GearError, Gear, PassiveGear, GearFuture};
use crate::inbox::InputMessage;

/// What the type is.
pub(super) const MANIFEST: GearManifest = GearManifest {
    kind: "map",
    summary: "changes the value and the metadata of each message",
    inputs: &["in"],
    outputs: &["out"],
    doc: "Expressions are [CEL](https://cel.dev): `data`, `text`, `meta`, `hops`, `ts` and `flux_id` are those of the message that came. \
          First `data` or the fields of `set`, then `drop`.",
    example: include_str!("../../../examples/gears/map.yaml"),
    schema: gear_manifest::schema::<MapConfig>,
    check: gear_manifest::check::<MapConfig>,
    passes_on: gear_manifest::never,
};

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: MapConfig = gear_manifest::config(config)?;
    Ok(Gear::Passive(Box::new(config.compile()?)))
}

/// The configuration, compiled.
struct MessageMapper {
    data: Option<CelExpression>,
    set: Vec<(String, CelExpression)>,
    meta: Vec<(String, CelExpression)>,
    drop: Vec<String>,
}

impl PassiveGear for MessageMapper {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let message = self.make(cx, &delivery.message)?;
            // A refusal has been counted and reported.
            cx.send("out", message).await.ok();
            Ok(())
        }
        .boxed()
    }
}

impl MessageMapper {
    fn make(&self, cx: &GearContext, of: &Message) -> Result<Message, GearError> {
        let scope = MessageVariables::of(of);
        let data = self.data(of, &scope)?;
        let meta = self.facts(of, &scope)?;
        let mut message = cx.child(of);
        if let Some(data) = data {
            message.data = data;
            message.raw = Vec::new();
        }
        message.meta = meta;
        Ok(message)
    }

    /// The new value, if the value changes.
    fn data(&self, of: &Message, scope: &MessageVariables<'_>) -> Result<Option<Value>, GearError> {
        if let Some(data) = &self.data {
            let mut data = data.value(scope)?;
            if let Value::Object(object) = &mut data {
                self.drop.iter().for_each(|field| drop(object.remove(field)));
            }
            return Ok(Some(data));
        }
        if self.set.is_empty() && self.drop.is_empty() {
            return Ok(None);
        }
        let mut object = match &of.data {
            Value::Object(object) => object.clone(),
            Value::Null => Object::new(),
            other => {
                let kind = kind_of(other);
                return Err(GearError::Rejected(format!("set and drop need an object, data is {kind}; use data")));
            }
        };
        for (field, expression) in &self.set {
            object.insert(field.clone(), expression.value(scope)?);
        }
        self.drop.iter().for_each(|field| drop(object.remove(field)));
        Ok(Some(Value::Object(object)))
    }

    fn facts(&self, of: &Message, scope: &MessageVariables<'_>) -> Result<Attributes, GearError> {
        if self.meta.is_empty() {
            return Ok(of.meta.clone());
        }
        let mut facts = of.meta.as_map().clone();
        for (key, expression) in &self.meta {
            match expression.value(scope)? {
                Value::Null => drop(facts.remove(key)),
                list @ (Value::Array(_) | Value::Object(_)) => {
                    let kind = kind_of(&list);
                    return Err(GearError::Rejected(format!("meta.{key}: a value is a text, a number or a bool, not {kind}")));
                }
                fact => drop(facts.insert(key.clone(), fact)),
            }
        }
        Ok(facts.into())
    }
}

const fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Configuration of `map`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MapConfig {
    /// The expression of the whole new value. Not together with `set`.
    #[serde(default)]
    pub(super) data: Option<String>,
    /// Fields of the value to set, each with its expression. The value must be an object, or there must be none.
    #[serde(default)]
    pub(super) set: BTreeMap<String, String>,
    /// Facts to set, each with its expression; null removes one.
    #[serde(default)]
    pub(super) meta: BTreeMap<String, String>,
    /// Fields of the value to leave out.
    #[serde(default)]
    pub(super) drop: Vec<String>,
}

impl MapConfig {
    fn compile(&self) -> Result<MessageMapper, String> {
        let all = |key: &str, expressions: &BTreeMap<String, String>| {
            let compiled = expressions.iter().map(|(name, text)| {
                let expression = CelExpression::compile(&format!("{key}.{name}"), text)?;
                Ok((name.clone(), expression))
            });
            compiled.collect::<Result<Vec<_>, String>>()
        };
        let data = self.data.as_deref().map(|text| CelExpression::compile("data", text));
        Ok(MessageMapper {
            data: data.transpose()?,
            set: all("set", &self.set)?,
            meta: all("meta", &self.meta)?,
            drop: self.drop.clone(),
        })
    }
}

impl GearConfig for MapConfig {
    fn validate(&self) -> Result<(), String> {
        if self.data.is_some() && !self.set.is_empty() {
            return Err("data is the whole new value and set changes fields of the old one: use one of them".into());
        }
        if self.data.is_none() && self.set.is_empty() && self.meta.is_empty() && self.drop.is_empty() {
            return Err("nothing to do: give data, set, meta or drop".into());
        }
        self.compile().map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::super::testing::Flow;
    use super::*;

    #[test]
    fn a_configuration_that_cannot_be_obeyed_is_refused() {
        for (config, says) in [
            (json!({"data": "1", "set": {"a": "1"}}), "use one of them"),
            (json!({}), "give data, set, meta or drop"),
            (json!({"set": {"a": "1", "b.c": "1 +"}}), "set.b.c: at 1:4"),
            (json!({"meta": {"k": "x"}}), "meta.k: at 1:1: there is no variable x"),
        ] {
            let error = (MANIFEST.check)(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn fields_and_metadata_are_set_and_dropped_and_the_trace_is_kept() {
        let flow = Flow::run(
            "
  - { name: feed, type: test_feed, deploy: rack-a, config: { messages: [ { data: { a: 1, b: 2, secret: x }, raw: old, meta: { gone: 1, kept: 2 } } ] } }
  - { name: map, type: map, deploy: rack-a, config: { set: { a: 'data.a + 10', was: 'data.a' }, drop: [ secret ], meta: { gone: 'null', kind: '\"n\" + string(data.b)' } } }
  - { name: sink, type: log_sink, deploy: rack-a }",
            "{ from: feed.out, to: map.in }, { from: map.out, to: sink.in }",
        )
        .await;
        let row = flow.rows("sink").remove(0);
        assert_eq!(row["message"], r#"{"a":11,"b":2,"was":1}"#);
        let facts = row["attributes"].as_object().unwrap();
        assert_eq!((&facts["kept"], &facts["kind"], facts.get("gone")), (&json!(2), &json!("n2"), None));
        let spans = flow.spans(row["flux_id"].as_str().unwrap());
        assert_eq!(spans, ["test_feed feed", "map map", "log_sink sink"]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_whole_new_value_replaces_the_body_and_set_needs_an_object() {
        let flow = Flow::run(
            "
  - { name: feed, type: test_feed, deploy: rack-a, config: { messages: [ { raw: 'a;b' }, { data: [ 1 ] } ] } }
  - { name: whole, type: map, deploy: rack-a, config: { data: '{\"parts\": text.split(\";\"), \"old\": 1}', drop: [ old ] } }
  - { name: field, type: map, deploy: rack-a, config: { set: { size: 'size(data)' } } }
  - { name: facts, type: map, deploy: rack-a, config: { meta: { size: 'size(data)' } } }
  - { name: w, type: log_sink, deploy: rack-a }
  - { name: f, type: log_sink, deploy: rack-a }
  - { name: m, type: log_sink, deploy: rack-a }",
            "{ from: feed.out, to: whole.in }, { from: feed.out, to: field.in }, { from: feed.out, to: facts.in }, \
             { from: whole.out, to: w.in }, { from: field.out, to: f.in }, { from: facts.out, to: m.in }",
        )
        .await;
        assert_eq!(flow.texts("w"), [r#"{"parts":[""]}"#, r#"{"parts":["a","b"]}"#]);
        assert_eq!(flow.texts("f"), [r#"{"size":3}"#]);
        assert_eq!(flow.texts("m"), ["[1]", "a;b"]);
        assert!(flow.says("field", "set and drop need an object, data is a list; use data"));
    }
}
