//! The body of a batch: messages written one behind the other.
//!
//! | format | body | content type |
//! |---|---|---|
//! | `ndjson` | a line of JSON for each message | `application/x-ndjson` |
//! | `json_array` | a JSON array of the messages | `application/json` |
//! | `concatenated` | the bodies with the separator between | that of the first message |

use gear_spec::batch::BatchFormat;
use model::message::Message;

use super::GearError;

/// A message as a part of a batch.
pub(super) fn part_of(format: BatchFormat, message: &Message) -> Result<Vec<u8>, GearError> {
    if format == BatchFormat::Concatenated || !message.data.is_null() {
        return Ok(message.body().into_owned());
    }
    let text = std::str::from_utf8(&message.raw).map_err(|_| {
        let why =
            "the body is neither a value nor UTF-8 text: put a codec before this gear, or use format concatenated";
        GearError::Rejected(why.into())
    })?;
    Ok(serde_json::Value::from(text).to_string().into_bytes())
}

/// See the module.
pub(super) struct BatchBody {
    format: BatchFormat,
    separator: Vec<u8>,
    bytes: Vec<u8>,
    count: u32,
}

impl BatchBody {
    pub(super) fn new(format: BatchFormat, separator: &str) -> Self {
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
        self.bytes.len() + matches!(self.format, BatchFormat::JsonArray) as usize
    }

    /// How many bytes it would have with one more message.
    pub(super) const fn len_with(&self, part: &[u8]) -> usize {
        self.len()
            + part.len()
            + if matches!(self.format, BatchFormat::Concatenated) {
                self.separator.len()
            } else {
                1
            }
    }

    pub(super) fn add(&mut self, part: &[u8]) {
        match (self.format, self.count) {
            (BatchFormat::JsonArray, 0) => self.bytes.push(b'['),
            (BatchFormat::JsonArray, _) => self.bytes.push(b','),
            (BatchFormat::Ndjson, _) | (BatchFormat::Concatenated, 0) => {}
            (BatchFormat::Concatenated, _) => self.bytes.extend_from_slice(&self.separator),
        }
        self.bytes.extend_from_slice(part);
        if self.format == BatchFormat::Ndjson {
            self.bytes.push(b'\n');
        }
        self.count += 1;
    }

    pub(super) const fn content_type(&self) -> Option<&'static str> {
        match self.format {
            BatchFormat::Ndjson => Some("application/x-ndjson"),
            BatchFormat::JsonArray => Some("application/json"),
            BatchFormat::Concatenated => None,
        }
    }

    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        if self.format == BatchFormat::JsonArray {
            self.bytes.push(b']');
        }
        self.bytes
    }
}
