//! `codec_csv` as data: its manifest and its configuration.

use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::codec::{CodecDirection, check_keep_raw};

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "codec_csv",
    summary: "decodes each record of a CSV body to a message, or encodes values as CSV",
    inputs: &["in"],
    outputs: &["out"],
    doc: "Decoding gives an object for each record, with its line in the metadata `csv.line`. Encoding takes an object, or a list of objects for \
          several records, and gives the content type `text/csv`; the columns are those of `header`, or the fields in alphabetical order. \
          A body is refused whose messages would have more than 16 MiB together: each repeats the names of the columns and the metadata.",
    example: include_str!("../../examples/gears/codec_csv.yaml"),
    schema: gear_manifest::schema::<CodecCsvConfig>,
    check: gear_manifest::check::<CodecCsvConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `codec_csv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CodecCsvConfig {
    /// `decode` makes a value of each record, `encode` makes records of the value.
    pub direction: CodecDirection,
    /// Whether the bytes of a record are kept beside the value that was made of it.
    #[serde(default)]
    pub keep_raw: bool,
    /// What separates fields: one ASCII character.
    #[serde(default = "default_delimiter")]
    delimiter: String,
    /// The names of the columns, or `first`: the first line of each body has them.
    #[serde(default = "default_header")]
    pub header: CsvHeader,
    /// Whether fields that look like numbers, `true`, `false` or nothing become such values, or all stay texts.
    #[serde(default)]
    pub types: TypeInference,
    /// The most records of one body.
    #[serde(default = "default_max_records")]
    pub max_records: u32,
}

fn default_delimiter() -> String {
    ",".to_owned()
}

const fn default_header() -> CsvHeader {
    CsvHeader::Word(HeaderKeyword::First)
}

const fn default_max_records() -> u32 {
    10_000
}

/// Where the names of the columns come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "header must be `first` or a list of column names")]
pub enum CsvHeader {
    /// From the body.
    Word(HeaderKeyword),
    /// From here.
    Names(Vec<String>),
}

/// The first line of each body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HeaderKeyword {
    /// It has the names.
    First,
}

/// What fields become.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TypeInference {
    /// Numbers, bools and null where they look like it.
    #[default]
    Infer,
    /// Texts.
    Text,
}

impl CodecCsvConfig {
    /// What separates fields, as a byte.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn delimiter(&self) -> Result<u8, String> {
        match self.delimiter.as_bytes() {
            [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
            _ => Err("delimiter must be one ASCII character, not a quote or the end of a line".into()),
        }
    }
}

impl GearConfig for CodecCsvConfig {
    fn validate(&self) -> Result<(), String> {
        check_keep_raw(self.direction, self.keep_raw)?;
        self.delimiter()?;
        if let CsvHeader::Names(names) = &self.header {
            if names.is_empty() {
                return Err("header has no names; give them, or `first`".into());
            }
            if let Some(name) = duplicate_column(names) {
                return Err(format!("header has {name:?} twice"));
            }
        }
        if self.max_records == 0 || self.max_records > 1_000_000 {
            return Err("max_records must be 1 to 1000000".into());
        }
        Ok(())
    }
}

/// A name that a list of columns has twice.
#[must_use]
pub fn duplicate_column(names: &[String]) -> Option<&String> {
    let mut seen = std::collections::BTreeSet::new();
    names.iter().find(|name| !seen.insert(name.as_str()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_configuration_that_cannot_be_obeyed_is_refused() {
        for (given, says) in [
            (
                json!({"direction": "decode", "delimiter": ";;"}),
                "delimiter must be one ASCII character",
            ),
            (
                json!({"direction": "decode", "delimiter": "\""}),
                "delimiter must be one ASCII character",
            ),
            (json!({"direction": "decode", "header": []}), "header has no names"),
            (
                json!({"direction": "decode", "header": ["a", "a"]}),
                "header has \"a\" twice",
            ),
            (
                json!({"direction": "decode", "header": "last"}),
                "header must be `first` or a list of column names",
            ),
            (
                json!({"direction": "decode", "types": "guess"}),
                "unknown variant `guess`",
            ),
            (
                json!({"direction": "decode", "max_records": 0}),
                "max_records must be 1 to 1000000",
            ),
            (
                json!({"direction": "encode", "keep_raw": true}),
                "keep_raw belongs to direction decode",
            ),
        ] {
            let error = gear_manifest::config::<CodecCsvConfig>(given.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{given}: {error}");
        }
    }
}
