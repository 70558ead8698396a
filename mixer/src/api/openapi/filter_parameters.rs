//! Parameters that are fields of filters, made of the JSON Schema of each filter: its names, types, bounds and documentation.

use model::filter::{
    ANY_KEY, AuditFilter, FluxFilter, HistogramFilter, LetterFilter, LogFilter, MessageFilter, MetricFilter,
    SeriesFilter, TraceFilter,
};
use model::inline_schema;
use serde_json::{Value, json};

/// Fields whose defaults and bounds depend on the path: the table of routes has them.
const OF_PATHS: [&str; 6] = ["since", "until", "order", "limit", "offset", "cursor"];

/// The fields of a filter that are parameters of a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilterParameters {
    schema: fn() -> Value,
    /// A field that the path itself names, or that is a parameter of its own.
    without: &'static str,
}

const fn all(schema: fn() -> Value) -> FilterParameters {
    FilterParameters { schema, without: "" }
}

pub(super) const LOGS: FilterParameters = all(inline_schema::<LogFilter>);
pub(super) const TRACES: FilterParameters = all(inline_schema::<TraceFilter>);
pub(super) const METRICS: FilterParameters = FilterParameters {
    without: "name",
    ..all(inline_schema::<MetricFilter>)
};
pub(super) const MESSAGES: FilterParameters = FilterParameters {
    without: "flux_id",
    ..all(inline_schema::<MessageFilter>)
};
pub(super) const SIGNAL: FilterParameters = all(inline_schema::<FluxFilter>);
pub(super) const HISTOGRAM: FilterParameters = all(inline_schema::<HistogramFilter>);
pub(super) const SERIES: FilterParameters = all(inline_schema::<SeriesFilter>);
pub(super) const LETTERS: FilterParameters = all(inline_schema::<LetterFilter>);
pub(super) const AUDIT: FilterParameters = all(inline_schema::<AuditFilter>);

impl FilterParameters {
    /// As OpenAPI says them.
    pub(super) fn document(&self) -> Vec<Value> {
        let schema = (self.schema)();
        let fields = schema["properties"].as_object().into_iter().flatten();
        let own = fields.filter(|(name, _)| *name != self.without && !OF_PATHS.contains(&name.as_str()));
        own.map(|(name, field)| parameter(name, field)).collect()
    }
}

fn parameter(name: &str, field: &Value) -> Value {
    let says = field["description"].as_str().unwrap_or_default().replace('\n', " ");
    let Some(prefix) = name.strip_suffix(ANY_KEY) else {
        return json!({ "name": name, "in": "query", "required": false, "description": says, "schema": given(field) });
    };
    let pattern = format!("^{}[\\s\\S]", prefix.replace('.', "\\."));
    json!({
        "name": family_name(prefix), "in": "query", "required": false, "description": says, "style": "form", "explode": true,
        "schema": {
            "type": "object",
            "patternProperties": { pattern: { "type": ["string", "number", "boolean"] } },
            "additionalProperties": false,
        },
    })
}

/// What a family of parameters is called as one.
fn family_name(prefix: &str) -> &str {
    match prefix {
        "attr." => "attributes",
        prefix => prefix.trim_end_matches('.'),
    }
}

/// What a field may be where it is given: without `null`, and words as one `enum`.
fn given(field: &Value) -> Value {
    let mut given = field.pointer("/anyOf/0").unwrap_or(field).clone();
    if let Some(words) = given["oneOf"].as_array() {
        let words: Vec<_> = words.iter().map(|word| &word["const"]).collect();
        return json!({ "type": "string", "enum": words });
    }
    if let Some(kind) = field.pointer("/type/0") {
        given["type"] = kind.clone();
    }
    if let Some(given) = given.as_object_mut() {
        given.remove("description");
        given.remove("default");
        if let Some(words) = given.get_mut("enum").and_then(Value::as_array_mut) {
            words.retain(|word| !word.is_null());
        }
    }
    given
}
