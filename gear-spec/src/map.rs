//! `map` as data: its manifest and its configuration.

use std::collections::BTreeMap;

use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::expression::CelExpression;

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "map",
    summary: "changes the value and the metadata of each message",
    inputs: &["in"],
    outputs: &["out"],
    doc: "Expressions are [CEL](https://cel.dev): `data`, `text`, `meta`, `hops`, `ts` and `flux_id` are those of the message that came. \
          First `data` or the fields of `set`, then `drop`.",
    example: include_str!("../../examples/gears/map.yaml"),
    schema: gear_manifest::schema::<MapConfig>,
    check: gear_manifest::check::<MapConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `map`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MapConfig {
    /// The expression of the whole new value. Not together with `set`.
    #[serde(default)]
    data: Option<String>,
    /// Fields of the value to set, each with its expression. The value must be an object, or there must be none.
    #[serde(default)]
    set: BTreeMap<String, String>,
    /// Facts to set, each with its expression; null removes one.
    #[serde(default)]
    meta: BTreeMap<String, String>,
    /// Fields of the value to leave out.
    #[serde(default)]
    drop: Vec<String>,
}

impl MapConfig {
    /// What it says, compiled.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn compile(&self) -> Result<MapExpressions, String> {
        let all = |key: &str, expressions: &BTreeMap<String, String>| {
            let compiled = expressions.iter().map(|(name, text)| {
                let expression = CelExpression::compile(&format!("{key}.{name}"), text)?;
                Ok((name.clone(), expression))
            });
            compiled.collect::<Result<Vec<_>, String>>()
        };
        let data = self.data.as_deref().map(|text| CelExpression::compile("data", text));
        Ok(MapExpressions {
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

/// The configuration, compiled.
#[derive(Debug)]
pub struct MapExpressions {
    /// The expression of the whole new value.
    pub data: Option<CelExpression>,
    /// Fields of the value to set.
    pub set: Vec<(String, CelExpression)>,
    /// Facts to set.
    pub meta: Vec<(String, CelExpression)>,
    /// Fields of the value to leave out.
    pub drop: Vec<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

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
}
