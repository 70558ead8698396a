//! JSON Schema of the types that JSON and query strings are made of.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// The JSON Schema of a type as it is read, with the schemas of its fields in place.
#[must_use]
pub fn inline_schema<T: JsonSchema>() -> Value {
    schema_by::<T>(SchemaSettings::draft2020_12())
}

/// The JSON Schema of a type as it is written, with the schemas of its fields in place.
#[must_use]
pub fn written_schema<T: JsonSchema>() -> Value {
    schema_by::<T>(SchemaSettings::draft2020_12().for_serialize())
}

fn schema_by<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let settings = settings.with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().subschema_for::<T>();
    simplify(&mut schema);
    schema.into()
}

/// Words that have a description each become one `enum`, which generators of clients know; a description is one line.
fn simplify(schema: &mut Schema) {
    transform_subschemas(&mut simplify, schema);
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    let choices = schema
        .get("oneOf")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let words: Option<Vec<_>> = choices.iter().map(|choice| choice.get("const").cloned()).collect();
    if let Some(words) = words.filter(|words| !words.is_empty()) {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), "string".into());
        schema.insert("enum".to_owned(), words.into());
    }
}

/// Gives a type that does not show how it is written its JSON Schema, beside its parser.
macro_rules! plain_schema {
    ($name:ident, $schema:tt) => {
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}
