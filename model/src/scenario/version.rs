//! The version of a scenario, as it stands in references (`name:version`) and in addresses.
//!
//! # Invariants
//!
//! - A [`ScenarioVersion`] is `[A-Za-z0-9._-]{1,64}`. A dot stands between two other characters, so that no version is a folder or ends a
//!   path, and a version does not end as a scenario file does: `demo:1.yaml` is a file.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Token;

/// A version: any word, `1`, `1.10` and `1.2.0-rc1` among them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ScenarioVersion(String);

plain_schema!(ScenarioVersion, { "type": "string" });

/// A text that cannot be a [`ScenarioVersion`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a version: use 1 to 64 letters, digits, '_', '-', and '.' between two of them, with another end than .yaml \
     and .yml"
)]
pub struct BadVersion(pub String);

impl ScenarioVersion {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ScenarioVersion {
    type Err = BadVersion;
    fn from_str(text: &str) -> Result<Self, BadVersion> {
        let is_short = text.len() <= Token::MAX_LEN;
        let ends_as_file = [".yaml", ".yml"].iter().any(|end| text.ends_with(end));
        if is_short && !ends_as_file && text.split('.').all(|part| part.parse::<Token>().is_ok()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadVersion(text.to_owned()))
        }
    }
}

impl TryFrom<String> for ScenarioVersion {
    type Error = BadVersion;
    fn try_from(text: String) -> Result<Self, BadVersion> {
        text.parse()
    }
}

impl From<ScenarioVersion> for String {
    fn from(version: ScenarioVersion) -> Self {
        version.0
    }
}

impl fmt::Display for ScenarioVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_dots_inside_and_is_neither_a_folder_nor_a_file() {
        for good in ["1", "1.10", "1.2.0", "v1.2.0-rc1_x", "latest", &"x".repeat(64)] {
            assert_eq!(
                good.parse::<ScenarioVersion>().map(|version| version.to_string()),
                Ok(good.to_owned())
            );
        }
        for bad in [
            "",
            ".",
            "..",
            ".1",
            "1.",
            "1..2",
            "a/b",
            "../x",
            "1:2",
            "1 2",
            "é",
            "*",
            "1.yaml",
            "1.2.yml",
            &"1.".repeat(33),
            &"x".repeat(65),
        ] {
            assert!(bad.parse::<ScenarioVersion>().is_err(), "{bad}");
        }
    }
}
