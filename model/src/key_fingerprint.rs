//! Fingerprints of keys and certificates, as people compare them: `SHA256:` and 43 characters of Base64, as OpenSSH writes them.
//!
//! Not here: what a key that has the right fingerprint may do.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::signed::bytes_form;

/// What every fingerprint begins with.
const HEAD: &str = "SHA256:";

/// The SHA-256 of a public key (its 32 bytes) or of a certificate (its DER form).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyFingerprint([u8; 32]);

/// A text that is no fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a fingerprint: {HEAD} and 43 characters, as the Rack or the Mixer prints it")]
pub struct BadFingerprint(String);

impl KeyFingerprint {
    /// The fingerprint of a key or a certificate.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The bytes of the hash.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for KeyFingerprint {
    type Err = BadFingerprint;

    fn from_str(text: &str) -> Result<Self, BadFingerprint> {
        let bad = || BadFingerprint(text.to_owned());
        let bytes = STANDARD_NO_PAD.decode(text.strip_prefix(HEAD).ok_or_else(bad)?);
        let bytes = bytes.ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(bad)
    }
}

impl std::fmt::Display for KeyFingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{HEAD}{}", STANDARD_NO_PAD.encode(self.0))
    }
}

impl std::fmt::Debug for KeyFingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for KeyFingerprint {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            to.collect_str(self)
        } else {
            bytes_form::serialize(&self.0, to)
        }
    }
}

impl<'de> Deserialize<'de> for KeyFingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        if from.is_human_readable() {
            String::deserialize(from)?.parse().map_err(D::Error::custom)
        } else {
            let bytes = bytes_form::deserialize(from)?.try_into();
            bytes
                .map(Self)
                .map_err(|_| D::Error::custom("a fingerprint has 32 bytes"))
        }
    }
}

impl schemars::JsonSchema for KeyFingerprint {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "KeyFingerprint".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^SHA256:[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]$" })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_is_written_and_nothing_else_is() {
        let fingerprint = KeyFingerprint::of(b"key");
        let text = fingerprint.to_string();
        assert_eq!(text.parse(), Ok(fingerprint));
        assert_eq!(serde_json::to_value(fingerprint).unwrap(), text.as_str());
        let bytes = crate::signed::encode(&fingerprint).unwrap();
        assert_eq!(crate::signed::decode_strict::<KeyFingerprint>(&bytes), Ok(fingerprint));
        for bad in ["", "SHA256:", &text[1..], &text[..text.len() - 1], &format!("{text}A")] {
            assert!(bad.parse::<KeyFingerprint>().is_err(), "{bad}");
        }
    }
}
