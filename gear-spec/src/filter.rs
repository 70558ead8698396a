//! `filter` as data: its manifest and its configuration.

use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::expression::CelExpression;

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "filter",
    summary: "passes on the messages for which an expression is true",
    inputs: &["in"],
    outputs: &["out", "rest"],
    doc: "Expressions are [CEL](https://cel.dev): `data`, `text`, `meta`, `hops`, `ts` and `flux_id` are the message's. `rest` has the \
          others; where it is not wired they end here and are counted as dropped.",
    example: include_str!("../../examples/gears/filter.yaml"),
    schema: gear_manifest::schema::<FilterConfig>,
    check: gear_manifest::check::<FilterConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `filter`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterConfig {
    /// The expression that is true for the messages that leave by `out`.
    #[serde(rename = "where")]
    kept: String,
}

impl FilterConfig {
    /// Its expressions, compiled.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn compile(&self) -> Result<CelExpression, String> {
        CelExpression::compile("where", &self.kept)
    }
}

impl GearConfig for FilterConfig {
    fn validate(&self) -> Result<(), String> {
        self.compile().map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_expression_that_cannot_be_compiled_is_refused_with_key_and_place() {
        for (config, says) in [
            (serde_json::json!({"where": "data.a >"}), "where: at 1:9"),
            (
                serde_json::json!({"where": "nothing"}),
                "where: at 1:1: there is no variable nothing",
            ),
            (serde_json::json!({}), "missing field `where`"),
            (
                serde_json::json!({"where": "true", "when": "x"}),
                "unknown field `when`",
            ),
        ] {
            let error = (MANIFEST.check)(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }
}
