//! The body of a batch: messages written one behind the other.
//!
//! | format | body | content type |
//! |---|---|---|
//! | `ndjson` | a line of JSON for each message | `application/x-ndjson` |
//! | `json_array` | a JSON array of the messages | `application/json` |
//! | `concatenated` | the bodies with the separator between | that of the first message |

use model::message::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Fault;

/// How the messages are written into one body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::gears) enum Format {
    /// A line of JSON for each message: its value, or its text as a JSON string.
    #[default]
    Ndjson,
    /// A JSON array of the same.
    JsonArray,
    /// The bodies as they are, values as JSON.
    Concatenated,
}

impl Format {
    /// A message as a part of a batch.
    pub(super) fn part(self, message: &Message) -> Result<Vec<u8>, Fault> {
        if self == Self::Concatenated || !message.data.is_null() {
            return Ok(message.body().into_owned());
        }
        let text = std::str::from_utf8(&message.raw).map_err(|_| {
            let why =
                "the body is neither a value nor UTF-8 text: put a codec before this gear, or use format concatenated";
            Fault::Rejected(why.into())
        })?;
        Ok(serde_json::Value::from(text).to_string().into_bytes())
    }
}

/// See the module.
pub(super) struct BatchBody {
    format: Format,
    separator: Vec<u8>,
    bytes: Vec<u8>,
    count: u32,
}

impl BatchBody {
    pub(super) fn new(format: Format, separator: &str) -> Self {
        Self {
            format,
            separator: separator.as_bytes().to_vec(),
            bytes: Vec::new(),
            count: 0,
        }
    }

    /// How many messages it has.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    pub(super) const fn len(&self) -> usize {
        // An array is to be closed.
        self.bytes.len() + matches!(self.format, Format::JsonArray) as usize
    }

    /// How many bytes it would have with one more message.
    pub(super) const fn len_with(&self, part: &[u8]) -> usize {
        self.len()
            + part.len()
            + if matches!(self.format, Format::Concatenated) {
                self.separator.len()
            } else {
                1
            }
    }

    pub(super) fn add(&mut self, part: &[u8]) {
        match (self.format, self.count) {
            (Format::JsonArray, 0) => self.bytes.push(b'['),
            (Format::JsonArray, _) => self.bytes.push(b','),
            (Format::Ndjson, _) | (Format::Concatenated, 0) => {}
            (Format::Concatenated, _) => self.bytes.extend_from_slice(&self.separator),
        }
        self.bytes.extend_from_slice(part);
        if self.format == Format::Ndjson {
            self.bytes.push(b'\n');
        }
        self.count += 1;
    }

    pub(super) const fn content_type(&self) -> Option<&'static str> {
        match self.format {
            Format::Ndjson => Some("application/x-ndjson"),
            Format::JsonArray => Some("application/json"),
            Format::Concatenated => None,
        }
    }

    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        if self.format == Format::JsonArray {
            self.bytes.push(b']');
        }
        self.bytes
    }
}
