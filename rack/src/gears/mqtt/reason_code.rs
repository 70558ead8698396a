//! Why a broker refuses: the reason codes of version 5, and those of a connection in version 3.1.1.

use std::fmt;

/// The longest text of a broker that is quoted.
const MAX_QUOTED: usize = 200;

/// What a broker refused and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokerRefusal {
    pub(crate) code: u8,
    /// The broker's own words, if it has any.
    pub(crate) text: Option<String>,
}

impl fmt::Display for BrokerRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (reason code 0x{:02x})", reason_text(self.code), self.code)?;
        let Some(text) = &self.text else { return Ok(()) };
        let quoted: String = text.chars().take(MAX_QUOTED).collect();
        write!(f, ", it says {quoted:?}")
    }
}

impl BrokerRefusal {
    /// Whether the same message may be taken later.
    pub(crate) const fn is_temporary(&self) -> bool {
        // Unspecified, specific to the broker, busy, identifier in use, receive maximum exceeded, message rate, quota.
        matches!(self.code, 0x80 | 0x83 | 0x89 | 0x91 | 0x93 | 0x96 | 0x97)
    }

    /// Whether a message may be why a broker ends the connection.
    pub(crate) const fn blames_message(&self) -> bool {
        // Malformed packet, protocol error, topic name invalid, packet too large, payload format invalid.
        matches!(self.code, 0x81 | 0x82 | 0x90 | 0x95 | 0x99)
    }
}

/// Whether a reason code refuses.
pub(crate) const fn is_refusal(code: u8) -> bool {
    code >= 0x80
}

/// A reason code in words.
const fn reason_text(code: u8) -> &'static str {
    match code {
        0x01 => "unacceptable protocol version: set version to the one that the broker speaks",
        0x02 | 0x85 => "client identifier not valid",
        0x03 | 0x88 => "server unavailable",
        0x04 | 0x86 => "bad user name or password",
        0x05 | 0x87 => "not authorized",
        0x81 => "malformed packet",
        0x82 => "protocol error",
        0x83 => "the broker's own reason",
        0x84 => "unsupported protocol version: set version to the one that the broker speaks",
        0x89 => "server busy",
        0x8a => "banned",
        0x8b => "server shutting down",
        0x8c => "bad authentication method",
        0x8d => "keep alive timeout",
        0x8e => "session taken over: another client has the same client_id",
        0x8f => "topic filter invalid",
        0x90 => "topic name invalid",
        0x91 => "packet identifier in use",
        0x92 => "packet identifier not found",
        0x93 => "receive maximum exceeded",
        0x94 => "topic alias invalid",
        0x95 => "packet too large",
        0x96 => "message rate too high",
        0x97 => "quota exceeded",
        0x98 => "administrative action",
        0x99 => "payload format invalid",
        0x9a => "retain not supported",
        0x9b => "QoS not supported",
        0x9c => "use another server",
        0x9d => "server moved",
        0x9e => "shared subscriptions not supported",
        0x9f => "connection rate exceeded",
        0xa0 => "maximum connect time",
        0xa1 => "subscription identifiers not supported",
        0xa2 => "wildcard subscriptions not supported",
        _ => "refused",
    }
}
