//! `route` as data: its manifest and its configuration.

use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::expression::CelExpression;

/// The port of what no route wants.
pub const ELSE: &str = "else";

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "route",
    summary: "sends each message to the port of the expression that is true for it",
    inputs: &["in"],
    outputs: &["a", "b", "c", "d", "e", "f", "g", "h", ELSE],
    doc: "A type's ports are fixed, so they are called `a` to `h`; `else` has what no route wants, and where it is not wired that ends \
          here and is counted as dropped. Expressions are [CEL](https://cel.dev): `data`, `text`, `meta`, `hops`, `ts` and `flux_id` are the \
          message's. There is no type that merges: wire several outputs to one input.",
    example: include_str!("../../examples/gears/route.yaml"),
    schema: gear_manifest::schema::<RouteConfig>,
    check: gear_manifest::check::<RouteConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `route`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// The routes in the order in which they are asked, 64 at most.
    routes: Vec<RouteRule>,
    /// Whether a message goes to the first route that wants it, or to all of them.
    #[serde(default)]
    pub mode: RouteMode,
}

/// One route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteRule {
    /// The expression that is true for the messages of this route.
    when: String,
    /// The port by which they leave, `a` to `h`. Several routes may share one.
    to: RoutePort,
}

/// How many routes a message goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RouteMode {
    /// Only the first.
    #[default]
    First,
    /// Every one.
    All,
}

/// An output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(
    missing_docs,
    reason = "a letter says what it is; a description would be part of the JSON Schema"
)]
pub enum RoutePort {
    A,
    B,
    C,
    D,
    E,
    F,
    G,
    H,
}

impl RoutePort {
    /// What a scenario calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
            Self::G => "g",
            Self::H => "h",
        }
    }
}

/// The most routes.
const MAX_ROUTES: usize = 64;

impl RouteConfig {
    /// Its expressions, compiled.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn compile(&self) -> Result<Vec<(CelExpression, RoutePort)>, String> {
        let routes = self.routes.iter().enumerate();
        let compiled = routes.map(|(index, RouteRule { when, to })| {
            let expression = CelExpression::compile(&format!("routes[{index}].when"), when)?;
            Ok((expression, *to))
        });
        compiled.collect()
    }
}

impl GearConfig for RouteConfig {
    fn validate(&self) -> Result<(), String> {
        if self.routes.is_empty() || self.routes.len() > MAX_ROUTES {
            return Err(format!(
                "routes must have 1 to {MAX_ROUTES} entries, it has {}",
                self.routes.len()
            ));
        }
        self.compile().map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_route_that_cannot_be_gone_is_refused() {
        for (config, says) in [
            (json!({"routes": []}), "routes must have 1 to 64 entries, it has 0"),
            (json!({"routes": [{"when": "true", "to": "z"}]}), "unknown variant `z`"),
            (
                json!({"routes": [{"when": "true", "to": "a"}, {"when": "a", "to": "b"}]}),
                "routes[1].when: at 1:1",
            ),
            (
                json!({"routes": [{"when": "true", "to": "a"}], "mode": "some"}),
                "unknown variant `some`",
            ),
        ] {
            let error = (MANIFEST.check)(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }
}
