//! The reference of gear types in Markdown, from their manifests.

use std::fmt::Write;

use model::gear_manifest::{GearManifest, GearManifests};
use serde_json::{Map, Value};

/// How deep configurations are followed.
const DEPTH: usize = 4;

/// Every type.
pub(crate) fn all(types: &GearManifests) -> String {
    types
        .iter()
        .map(|manifest| one(manifest))
        .collect::<Vec<_>>()
        .join("\n")
}

/// One type: what it does, its ports, its configuration, an example.
pub(crate) fn one(manifest: &GearManifest) -> String {
    let mut page = format!(
        "## `{}`\n\n{}.\n",
        manifest.kind,
        capital(manifest.summary.trim_end_matches('.'))
    );
    let ports = |ports: &[&str]| match ports {
        [] => "none".to_owned(),
        ports => ports
            .iter()
            .map(|port| format!("`{port}`"))
            .collect::<Vec<_>>()
            .join(", "),
    };
    let _ = write!(
        page,
        "\nInputs: {}. Outputs: {}.\n",
        ports(manifest.inputs),
        ports(manifest.outputs)
    );
    if !manifest.doc.trim().is_empty() {
        let _ = write!(page, "\n{}\n", manifest.doc.trim());
    }
    let schema = (manifest.schema)();
    let mut rows = Vec::new();
    keys("", &schema, &schema, DEPTH, &mut rows);
    if !rows.is_empty() {
        page.push_str("\n| key | type | default | what it does |\n|---|---|---|---|\n");
        for row in rows {
            let _ = writeln!(page, "| {} |", row.map(|cell| in_cell(&cell)).join(" | "));
        }
    }
    let _ = write!(page, "\n```yaml\n{}\n```\n", manifest.example.trim());
    page
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_uppercase().chain(chars).collect())
        .unwrap_or_default()
}

fn in_cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

/// A schema, or what its `$ref` leads to.
fn resolved<'s>(schema: &'s Value, root: &'s Value) -> &'s Value {
    let place = schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|place| place.strip_prefix('#'));
    place.and_then(|place| root.pointer(place)).unwrap_or(schema)
}

/// The forms of a value that may have several, `null` left out.
fn forms<'s>(schema: &'s Value, root: &'s Value) -> Vec<&'s Value> {
    let schema = resolved(schema, root);
    let several = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(*key)?.as_array());
    let Some(several) = several else {
        return vec![schema];
    };
    let forms = several.iter().map(|form| resolved(form, root));
    forms
        .filter(|form| form.get("type").and_then(Value::as_str) != Some("null"))
        .collect()
}

/// A row for each key: key, type, default, description.
fn keys(prefix: &str, schema: &Value, root: &Value, depth: usize, rows: &mut Vec<[String; 4]>) {
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let required = schema.get("required").and_then(Value::as_array);
    for (key, property) in properties {
        let name = format!("{prefix}{key}");
        let is_required = required.is_some_and(|required| required.iter().any(|name| name == key));
        let default = match property.get("default") {
            _ if is_required => "required".to_owned(),
            None | Some(Value::Null) => "none".to_owned(),
            Some(value) => format!("`{value}`"),
        };
        let described = property
            .get("description")
            .or_else(|| resolved(property, root).get("description"))
            // A form with one key says what the key is.
            .or_else(|| schema.get("description").filter(|_| properties.len() == 1));
        let description = described.and_then(Value::as_str).unwrap_or_default().to_owned();
        rows.push([format!("`{name}`"), kind(property, root), default, description]);
        if depth == 0 {
            continue;
        }
        for form in forms(property, root) {
            match form.get("items") {
                Some(items) => {
                    for item in forms(items, root) {
                        keys(&format!("{name}[]."), item, root, depth - 1, rows);
                    }
                }
                None => keys(&format!("{name}."), form, root, depth - 1, rows),
            }
        }
    }
}

/// What a value may be, in words.
fn kind(schema: &Value, root: &Value) -> String {
    let mut words = Vec::new();
    for form in forms(schema, root) {
        if let Some(word) = form.get("const") {
            words.push(format!(
                "`{}`",
                word.as_str().map_or_else(|| word.to_string(), str::to_owned)
            ));
        } else if let Some(all) = form.get("enum").and_then(Value::as_array) {
            let all = all.iter().filter_map(Value::as_str).map(|word| format!("`{word}`"));
            words.extend(all);
        } else if let Some(items) = form.get("items") {
            words.push(format!("list of {}", kind(items, root)));
        } else {
            words.push(simple(form));
        }
    }
    words.dedup();
    words.join(", ")
}

fn simple(form: &Value) -> String {
    let names: Vec<&str> = match form.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let word = |name: &str| match name {
        "string" => "text",
        "integer" => "whole number",
        "boolean" => "`true`, `false`",
        "object" => "mapping",
        "array" => "list",
        "number" => "number",
        _ => "any value",
    };
    let words: Vec<_> = names
        .iter()
        .filter(|name| **name != "null")
        .map(|name| word(name))
        .collect();
    if words.is_empty() {
        "any value".to_owned()
    } else {
        words.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# Gear types\n\n<!-- Generated from the manifests in the code; a test compares. Regenerate it \
                        with: make docs -->\n\n";

    #[test]
    fn the_reference_page_of_the_gear_types_is_what_their_manifests_say() -> std::io::Result<()> {
        let wanted = format!("{HEAD}{}", all(gear_spec::manifests()));
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/gears.md");
        if std::env::var_os("UPDATE").is_some() {
            return std::fs::write(path, wanted);
        }
        let page = std::fs::read_to_string(path)?;
        assert_eq!(page, wanted, "docs/gears.md is not the generated one: make docs");
        Ok(())
    }

    #[test]
    fn every_key_of_a_configuration_has_a_row_with_a_type_and_a_description() {
        for manifest in gear_spec::manifests() {
            let schema = (manifest.schema)();
            let mut rows = Vec::new();
            keys("", &schema, &schema, DEPTH, &mut rows);
            let top = schema["properties"].as_object().map_or(0, Map::len);
            assert!(rows.len() >= top, "{}", manifest.kind);
            for row in rows {
                assert!(row.iter().all(|cell| !cell.is_empty()), "{}: {row:?}", manifest.kind);
            }
        }
    }
}
