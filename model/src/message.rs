//! The message: what travels along wires from gear to gear.
//!
//! # Invariants
//!
//! - `hops` grows by one at every gear; a message over `max_hops` goes no further.
//! - The trace context is W3C: every gear that handles a message adds a span whose parent is `span_id`.

use serde::{Deserialize, Serialize};

use crate::signed::bytes_form;
use crate::{Attributes, FluxId, SpanId, Timestamp, TraceId};

/// Which way a message crossed the edge of its Rack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// It came in.
    Inbound,
    /// It left.
    Outbound,
    /// It did not cross it.
    Internal,
}

impl Direction {
    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inbound => "inbound",
            Self::Outbound => "outbound",
            Self::Internal => "internal",
        }
    }
}

/// A business message. On the bus it is this struct in CBOR.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// The business signal.
    pub flux_id: FluxId,
    /// The trace that all its spans share.
    pub trace_id: TraceId,
    /// The span that sent it: the parent of the next one.
    pub span_id: SpanId,
    /// Whether the trace is sampled; decided once, where the trace begins.
    pub sampled: bool,
    /// When it was made.
    pub ts: Timestamp,
    /// How many gears have handled it.
    pub hops: u32,
    /// Facts about the message: where it came from, its content type.
    pub meta: Attributes,
    /// The body.
    #[serde(with = "bytes_form")]
    pub data: Vec<u8>,
}

impl Message {
    /// As it travels.
    ///
    /// # Errors
    /// Only if the encoder fails, a defect.
    pub fn to_cbor(&self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::with_capacity(self.size() + 256);
        ciborium::into_writer(self, &mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    /// From what travelled; nothing may follow it.
    ///
    /// # Errors
    /// If it is not a message, in words.
    pub fn from_cbor(bytes: &[u8]) -> Result<Self, String> {
        let mut rest = bytes;
        let message =
            ciborium::de::from_reader_with_recursion_limit(&mut rest, 16).map_err(|error| error.to_string())?;
        if rest.is_empty() {
            Ok(message)
        } else {
            Err(format!("{} bytes follow it", rest.len()))
        }
    }

    /// The bytes that count against `max_payload_size`: body, facts and ids.
    #[must_use]
    pub fn size(&self) -> usize {
        self.data.len() + self.meta.to_json().len() + 64
    }
}
