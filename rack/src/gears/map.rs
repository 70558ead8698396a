//! `map`: makes a message of each message: another value, other facts.
//!
//! # Invariants
//!
//! - The message that leaves is a child of the one that came: an id of its own, the same signal and trace.
//! - All expressions see the message that came, none sees what another one made.
//! - A new value is the body: the bytes that it was made of are left out. Where only facts change, the body stays as it is.

use std::sync::Arc;

use futures::FutureExt;
use gear_spec::expression::MessageVariables;
use gear_spec::map::{MapConfig, MapExpressions};
use model::message::Message;
use model::{Attributes, gear_manifest};
use serde_json::{Map as Object, Value};

use super::{Gear, GearContext, GearError, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: MapConfig = gear_manifest::config(config)?;
    Ok(Gear::Passive(Box::new(MessageMapper(config.compile()?))))
}

/// The configuration, compiled.
struct MessageMapper(MapExpressions);

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
        if let Some(data) = &self.0.data {
            let mut data = data.value(scope)?;
            if let Value::Object(object) = &mut data {
                self.0.drop.iter().for_each(|field| drop(object.remove(field)));
            }
            return Ok(Some(data));
        }
        if self.0.set.is_empty() && self.0.drop.is_empty() {
            return Ok(None);
        }
        let mut object = match &of.data {
            Value::Object(object) => object.clone(),
            Value::Null => Object::new(),
            other => {
                let kind = kind_of(other);
                return Err(GearError::Rejected(format!(
                    "set and drop need an object, data is {kind}; use data"
                )));
            }
        };
        for (field, expression) in &self.0.set {
            object.insert(field.clone(), expression.value(scope)?);
        }
        self.0.drop.iter().for_each(|field| drop(object.remove(field)));
        Ok(Some(Value::Object(object)))
    }

    fn facts(&self, of: &Message, scope: &MessageVariables<'_>) -> Result<Attributes, GearError> {
        if self.0.meta.is_empty() {
            return Ok(of.meta.clone());
        }
        let mut facts = of.meta.as_map().clone();
        for (key, expression) in &self.0.meta {
            match expression.value(scope)? {
                Value::Null => drop(facts.remove(key)),
                list @ (Value::Array(_) | Value::Object(_)) => {
                    let kind = kind_of(&list);
                    return Err(GearError::Rejected(format!(
                        "meta.{key}: a value is a text, a number or a bool, not {kind}"
                    )));
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::super::testing::Flow;

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
        assert_eq!(
            (&facts["kept"], &facts["kind"], facts.get("gone")),
            (&json!(2), &json!("n2"), None)
        );
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
