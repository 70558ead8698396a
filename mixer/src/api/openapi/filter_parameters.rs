//! Parameters that are fields of filters, made of the JSON Schema of each filter: its names, types, bounds and documentation.

use model::filter::{ANY_KEY, MAX_CONDITIONS};
use serde_json::{Value, json};

/// Fields whose names, defaults or bounds depend on the path: the table of routes has them.
const OF_PATHS: [&str; 7] = ["since", "until", "order", "limit", "offset", "cursor", "name"];

/// The fields of a filter's schema as OpenAPI says parameters.
pub(super) fn of(filter: &Value) -> Vec<Value> {
    let fields = filter["properties"].as_object().into_iter().flatten();
    let own = fields.filter(|(name, _)| !OF_PATHS.contains(&name.as_str()));
    own.map(|(name, field)| parameter(name, field)).collect()
}

fn parameter(name: &str, field: &Value) -> Value {
    let says = &field["description"];
    let Some(prefix) = name.strip_suffix(ANY_KEY) else {
        return json!({ "name": name, "in": "query", "required": false, "description": says, "schema": given(field) });
    };
    let pattern = format!("^{}[\\s\\S]", prefix.replace('.', "\\."));
    let one = json!({ "type": ["string", "number", "boolean"] });
    let value = match field["additionalProperties"]["type"].as_str() {
        Some("array") => json!({ "type": "array", "items": one, "maxItems": MAX_CONDITIONS }),
        _ => one,
    };
    json!({
        "name": family_name(prefix), "in": "query", "required": false, "description": says, "style": "form", "explode": true,
        "schema": {
            "type": "object",
            "patternProperties": { pattern: value },
            "additionalProperties": false,
            "maxProperties": MAX_CONDITIONS,
        },
    })
}

/// What a family of parameters is called as one.
fn family_name(prefix: &str) -> &str {
    match prefix {
        "attr." => "attributes",
        "not.attr." => "not.attributes",
        prefix => prefix.trim_end_matches('.'),
    }
}

/// What a field may be where it is given: without `null`.
fn given(field: &Value) -> Value {
    let mut given = field.pointer("/anyOf/0").unwrap_or(field).clone();
    if let Some(kind) = field.pointer("/type/0") {
        given["type"] = kind.clone();
    }
    if let Some(given) = given.as_object_mut() {
        given.remove("description");
        given.remove("default");
        // What is given twice counts once.
        if given.remove("uniqueItems").is_some() {
            given.insert("maxItems".to_owned(), MAX_CONDITIONS.into());
        }
        if let Some(words) = given.get_mut("enum").and_then(Value::as_array_mut) {
            words.retain(|word| !word.is_null());
        }
    }
    given
}
