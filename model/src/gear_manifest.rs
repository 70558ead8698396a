//! Gear types as data: what each is called, its ports, its configuration. `gear_spec` has the table of types, with which
//! scenarios are checked.
//!
//! # Invariants
//!
//! - A configuration is a struct that refuses unknown keys; its JSON Schema is made from the same struct.
//!
//! # Not here
//!
//! The types (`gear_spec`), and what they do (`rack::gears`).

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// What a gear type is.
#[derive(Debug, Clone, Copy)]
pub struct GearManifest {
    /// The type's name in a scenario.
    pub kind: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// Ports that take messages.
    pub inputs: &'static [&'static str],
    /// Ports that give messages.
    pub outputs: &'static [&'static str],
    /// What else people should know, in Markdown.
    pub doc: &'static str,
    /// A scenario that runs.
    pub example: &'static str,
    /// The JSON Schema of a configuration.
    pub schema: fn() -> Value,
    /// Parses a configuration, to say what is wrong with it.
    pub check: fn(&Map<String, Value>) -> Result<(), String>,
    /// Whether a gear with this configuration sends every message that it takes by each of its outputs, or refuses it: none is dropped, kept,
    /// or sent only by some.
    pub passes_on: fn(&Map<String, Value>) -> bool,
}

/// The types that a scenario may name.
pub type GearManifests = [&'static GearManifest];

/// The configuration of a type.
pub trait GearConfig: DeserializeOwned + JsonSchema {
    /// What the fields alone cannot say.
    ///
    /// # Errors
    /// A sentence that names the key.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Reads a gear's configuration.
///
/// # Errors
/// A sentence that names the key.
pub fn config<T: GearConfig>(config: &Map<String, Value>) -> Result<T, String> {
    let config: T = serde_json::from_value(Value::Object(config.clone())).map_err(|error| error.to_string())?;
    config.validate()?;
    Ok(config)
}

/// [`GearManifest::check`] of a type with this configuration.
///
/// # Errors
/// A sentence that names the key.
pub fn check<T: GearConfig>(map: &Map<String, Value>) -> Result<(), String> {
    config::<T>(map).map(drop)
}

/// [`GearManifest::schema`] of a type with this configuration.
#[must_use]
pub fn schema<T: GearConfig>() -> Value {
    schemars::schema_for!(T).into()
}

/// [`GearManifest::passes_on`] of a type that passes on every message.
#[must_use]
pub const fn always(_: &Map<String, Value>) -> bool {
    true
}

/// [`GearManifest::passes_on`] of a type that may choose among messages, or ends them.
#[must_use]
pub const fn never(_: &Map<String, Value>) -> bool {
    false
}

/// The manifest of a type.
#[must_use]
pub fn manifest(types: &GearManifests, kind: &str) -> Option<&'static GearManifest> {
    types.iter().copied().find(|manifest| manifest.kind == kind)
}

/// The names of all types, as a list for people.
#[must_use]
pub fn names(types: &GearManifests) -> String {
    let names: Vec<_> = types.iter().map(|manifest| manifest.kind).collect();
    names.join(", ")
}
