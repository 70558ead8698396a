//! What the codecs share: a body as bytes becomes a body as a value, or the other way round.
//!
//! # Invariants
//!
//! - The message that leaves is a child of the one that came. It has one body: the value, with the bytes only where they are to be
//!   kept; or the bytes alone.
//! - A body that cannot be read rejects its message, with the reason and the place. Nothing of it leaves.

use model::message::Message;
use serde_json::Value;

use super::{GearContext, GearError};

/// The deepest nesting that is read.
pub(super) const MAX_DEPTH: usize = 128;

/// The bytes to read.
pub(super) fn raw(message: &Message) -> Result<&[u8], GearError> {
    if message.raw.is_empty() {
        let why = if message.data.is_null() {
            "the body is empty"
        } else {
            "the body is a value already"
        };
        return Err(GearError::Rejected(format!("nothing to decode: {why}")));
    }
    Ok(&message.raw)
}

/// The value to write.
pub(super) fn data(message: &Message) -> Result<&Value, GearError> {
    if message.data.is_null() {
        return Err(GearError::Rejected(
            "nothing to encode: the message has no value; decode it or make one with map".into(),
        ));
    }
    Ok(&message.data)
}

/// A message with a value in place of the bytes.
pub(super) fn decoded(cx: &GearContext, of: &Message, data: Value, keep_raw: bool) -> Message {
    let mut message = cx.child(of);
    message.data = data;
    if !keep_raw {
        message.raw = Vec::new();
    }
    message
}

/// A message with bytes in place of the value.
pub(super) fn encoded(cx: &GearContext, of: &Message, raw: Vec<u8>, content_type: &str) -> Message {
    let mut message = cx.child(of);
    message.data = Value::Null;
    message.raw = raw;
    message.meta.set("content_type", content_type);
    message
}
