//! One field of a flat JSON object, without reading the others: what a condition on an attribute compares, and what an index
//! of it holds. And its keys, without reading its values.

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// One field of a flat JSON object as text: a string as it is, another scalar or an array as JSON, null as nothing.
#[must_use]
pub fn field_text(object: &str, key: &str) -> Option<String> {
    value_text(field(object, key)?)
}

/// A field's value as text, as [`field_text`] has it.
#[must_use]
pub fn value_text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Null => None,
        other => Some(other.to_string()),
    }
}

/// One field of a JSON object as JSON.
#[must_use]
pub fn field_json(object: &str, key: &str) -> Option<String> {
    field(object, key).map(|value| value.to_string())
}

fn field(object: &str, key: &str) -> Option<Value> {
    // An escaped key contains a backslash; anything else that lacks the key's letters lacks the key.
    if !object.contains(key) && !object.contains('\\') {
        return None;
    }
    let mut json = serde_json::Deserializer::from_str(object);
    FieldSeed(key).deserialize(&mut json).ok()?
}

/// Calls with each key of a JSON object, as often as it is there. Whether it is an object to its end; what is none may have keys before
/// that shows.
pub fn each_key(object: &str, each: impl FnMut(&str)) -> bool {
    let mut json = serde_json::Deserializer::from_str(object);
    EachKeySeed(each).deserialize(&mut json).is_ok() && json.end().is_ok()
}

/// Reads the keys of an object and skips its values.
struct EachKeySeed<F>(F);

impl<'de, F: FnMut(&str)> DeserializeSeed<'de> for EachKeySeed<F> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, F: FnMut(&str)> Visitor<'de> for EachKeySeed<F> {
    type Value = ();
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }
    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            (self.0)(&key);
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Reads one field of an object and skips the others.
struct FieldSeed<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for FieldSeed<'_> {
    type Value = Option<Value>;
    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FieldSeed<'_> {
    type Value = Option<Value>;
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            if key == self.0 {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_exact_key_however_it_is_written() {
        let object = r#"{"a":"x","gear.id":"tail","n":5,"z":null,"l":[1,"b"]}"#;
        assert_eq!(field_text(object, "gear.id").as_deref(), Some("tail"));
        assert_eq!(field_text(object, "n").as_deref(), Some("5"));
        assert_eq!(field_text(object, "l").as_deref(), Some(r#"[1,"b"]"#));
        assert_eq!(field_text(object, "z"), None);
        assert_eq!(field_text(object, "gear"), None);
        assert_eq!(field_text(r#"{"x":"gear.id"}"#, "gear.id"), None);
        assert_eq!(
            field_text(r#"{"gear\u002eid":"t\"1"}"#, "gear.id").as_deref(),
            Some("t\"1")
        );
        assert_eq!(field_text("no json gear.id", "gear.id"), None);
    }

    #[test]
    fn keys_are_those_of_the_object_alone() {
        let keys = |object: &str| {
            let mut keys = Vec::new();
            let is_object = each_key(object, |key| keys.push(key.to_owned()));
            (is_object, keys.join(" "))
        };
        assert_eq!(
            keys(r#"{"b":{"x":1},"a\u0062":[{"y":2}],"c":null,"b":0}"#),
            (true, "b ab c b".to_owned())
        );
        assert_eq!(keys("{}"), (true, String::new()));
        for other in ["", "[1]", "5", r#"{"a":1"#, "{} x"] {
            assert!(!keys(other).0, "{other}");
        }
    }
}
