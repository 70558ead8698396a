//! How the configurations of the TCP gears say where a frame ends.
//!
//! # Not here
//!
//! Frames in a stream (`rack::gears::framing`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest delimiter.
const MAX_DELIMITER: usize = 64;

/// How a stream is cut into frames.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StreamFraming {
    /// Every frame ends with the same bytes.
    Delimiter(FrameDelimiter),
    /// Every frame begins with the number of its bytes.
    Length(LengthPrefix),
}

/// The bytes at the end of a frame, which may not be in it. `\n`, `\r`, `\t`, `\0`, `\\` and `\xNN` stand for bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct FrameDelimiter(String);

/// The number in front of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LengthPrefix {
    /// How many bytes the number has: 1, 2 or 4.
    pub bytes: u8,
    /// The order of its bytes.
    #[serde(default)]
    pub order: ByteOrder,
}

/// The order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ByteOrder {
    /// The highest first, as networks have it.
    #[default]
    Big,
    /// The lowest first.
    Little,
}

impl Default for StreamFraming {
    fn default() -> Self {
        Self::Delimiter(FrameDelimiter("\\n".to_owned()))
    }
}

impl StreamFraming {
    /// Says what is wrong with it.
    pub(crate) fn validate(&self) -> Result<(), String> {
        match self {
            Self::Delimiter(delimiter) => delimiter.bytes().map(drop),
            Self::Length(length) => length.check(),
        }
    }
}

impl FrameDelimiter {
    /// The bytes that it stands for.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn bytes(&self) -> Result<Vec<u8>, String> {
        let bytes = unescape(&self.0)?;
        if bytes.is_empty() || bytes.len() > MAX_DELIMITER {
            return Err(format!("framing.delimiter must have 1 to {MAX_DELIMITER} bytes"));
        }
        Ok(bytes)
    }
}

impl LengthPrefix {
    /// Says what is wrong with it.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn check(self) -> Result<(), String> {
        match self.bytes {
            1 | 2 | 4 => Ok(()),
            bytes => Err(format!("framing.length.bytes must be 1, 2 or 4, not {bytes}")),
        }
    }
}

/// Replaces what stands for bytes.
fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let bad = |what: &str| format!("framing.delimiter: {what}; use \\n, \\r, \\t, \\0, \\\\ or \\xNN");
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('\\') {
        out.extend_from_slice(before.as_bytes());
        let mut letters = after.chars();
        out.push(match letters.next() {
            Some('n') => b'\n',
            Some('r') => b'\r',
            Some('t') => b'\t',
            Some('0') => 0,
            Some('\\') => b'\\',
            Some('x') => {
                let digits = letters.as_str().get(..2).ok_or_else(|| bad("\\x needs two digits"))?;
                letters = letters.as_str().get(2..).unwrap_or_default().chars();
                match model::hex::decode(digits).as_deref() {
                    Some([byte]) => *byte,
                    _ => return Err(bad(&format!("\\x{digits} is not a byte"))),
                }
            }
            Some(other) => return Err(bad(&format!("\\{other} stands for nothing"))),
            None => return Err(bad("a single \\ ends it")),
        });
        rest = letters.as_str();
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}
