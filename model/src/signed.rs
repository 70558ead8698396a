//! Signed bytes: a payload, an Ed25519 signature, and a context that keeps one kind of message from passing as another.
//!
//! The signature covers `"platform/1/" context "\0" payload`.
//!
//! # Invariants
//!
//! - The payload is read only after the signature was checked.
//! - Encoding is deterministic: what does not re-encode to the same bytes is refused ([`decode_strict`]).

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What a signature is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum SigningContext {
    Passport,
    Answer,
    Enroll,
    Heartbeat,
    Command,
    AuditCheckpoint,
    Invite,
    KeySuccession,
}

impl SigningContext {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Passport => "passport",
            Self::Answer => "answer",
            Self::Enroll => "enroll",
            Self::Heartbeat => "heartbeat",
            Self::Command => "command",
            Self::AuditCheckpoint => "audit-checkpoint",
            Self::Invite => "invite",
            Self::KeySuccession => "key-succession",
        }
    }

    fn message(self, payload: &[u8]) -> Vec<u8> {
        let mut message = format!("platform/1/{}\0", self.as_str()).into_bytes();
        message.extend_from_slice(payload);
        message
    }
}

/// A payload and its signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedPayload {
    #[serde(with = "bytes_form")]
    payload: Vec<u8>,
    #[serde(with = "bytes_form")]
    signature: Vec<u8>,
}

/// Why signed bytes are not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSignature {
    /// Not our CBOR, or not in its one deterministic form.
    #[error("not a signed message: {0}")]
    Form(String),
    /// The signature is not the key's.
    #[error("the signature does not match: it was changed, or signed by another key")]
    Signature,
}

impl SignedPayload {
    /// Encodes and signs a value.
    ///
    /// # Errors
    /// If the value cannot be encoded as CBOR.
    pub fn new<T: Serialize>(value: &T, context: SigningContext, key: &SigningKey) -> Result<Self, BadSignature> {
        let payload = encode(value)?;
        let signature = key.sign(&context.message(&payload)).to_bytes().to_vec();
        Ok(Self { payload, signature })
    }

    /// The value, if `key` signed it for this context.
    ///
    /// # Errors
    /// [`BadSignature`] otherwise.
    pub fn open<T: DeserializeOwned + Serialize>(
        &self,
        context: SigningContext,
        key: &VerifyingKey,
    ) -> Result<T, BadSignature> {
        let signature = Signature::from_slice(&self.signature).map_err(|_| BadSignature::Signature)?;
        key.verify_strict(&context.message(&self.payload), &signature)
            .map_err(|_| BadSignature::Signature)?;
        decode_strict(&self.payload)
    }

    /// The value, its signature unchecked: only to learn which key to check it with.
    ///
    /// # Errors
    /// If it is not the value's deterministic CBOR.
    pub fn peek<T: DeserializeOwned + Serialize>(&self) -> Result<T, BadSignature> {
        decode_strict(&self.payload)
    }

    /// The wire form.
    ///
    /// # Errors
    /// Never in practice: two byte strings always encode.
    pub fn to_bytes(&self) -> Result<Vec<u8>, BadSignature> {
        encode(self)
    }

    /// From the wire form.
    ///
    /// # Errors
    /// If it is not in its one deterministic form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadSignature> {
        decode_strict(bytes)
    }
}

/// Deterministic CBOR of a value whose maps are structs (fields in declared order).
///
/// # Errors
/// If the value cannot be encoded.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, BadSignature> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).map_err(|error| BadSignature::Form(error.to_string()))?;
    Ok(bytes)
}

/// Decodes, and refuses anything that would not encode to the same bytes again (trailing bytes, duplicate keys,
/// indefinite lengths, other orders).
///
/// # Errors
/// [`BadSignature::Form`] with the reason.
pub fn decode_strict<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Result<T, BadSignature> {
    let value: T = ciborium::de::from_reader_with_recursion_limit(bytes, 16)
        .map_err(|error| BadSignature::Form(error.to_string()))?;
    if encode(&value)? == bytes {
        Ok(value)
    } else {
        Err(BadSignature::Form("not in its one deterministic form".to_owned()))
    }
}

/// Byte strings as CBOR byte strings (serde's default would write an array of numbers).
pub mod bytes_form {
    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    /// For `#[serde(with)]`.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    /// For `#[serde(with)]`.
    ///
    /// # Errors
    /// The deserializer's.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        struct BytesVisitor;
        impl Visitor<'_> for BytesVisitor {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a byte string")
            }
            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }
            fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(bytes)
            }
        }
        // The decoder lends at most 4 KiB; what it gives away may be longer.
        from.deserialize_byte_buf(BytesVisitor)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn every_flipped_bit_another_key_and_another_context_are_refused() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let signed = SignedPayload::new(&("hello", 3u8), SigningContext::Enroll, &key).unwrap();
        let bytes = signed.to_bytes().unwrap();
        let open = |bytes: &[u8]| {
            SignedPayload::from_bytes(bytes)?.open::<(String, u8)>(SigningContext::Enroll, &key.verifying_key())
        };
        assert_eq!(open(&bytes).unwrap(), ("hello".to_owned(), 3));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&bad).is_err(), "bit {bit}");
        }
        assert!(
            signed
                .open::<(String, u8)>(SigningContext::Passport, &key.verifying_key())
                .is_err()
        );
        let other = SigningKey::from_bytes(&[8; 32]);
        assert!(
            signed
                .open::<(String, u8)>(SigningContext::Enroll, &other.verifying_key())
                .is_err()
        );
    }

    #[test]
    fn what_is_signed_may_be_long() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let scenario = "x".repeat(300_000);
        let bytes = SignedPayload::new(&scenario, SigningContext::Command, &key)
            .unwrap()
            .to_bytes()
            .unwrap();
        let opened: String = SignedPayload::from_bytes(&bytes)
            .unwrap()
            .open(SigningContext::Command, &key.verifying_key())
            .unwrap();
        assert_eq!(opened, scenario);
    }
}
