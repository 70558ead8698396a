//! Invites: one text with which a Rack finds its cluster, knows it, and is admitted under one name, once.
//!
//! ```text
//! plinv1_ base64url( CBOR [RackInvite] ‖ the first 4 bytes of its SHA-256 )
//! ```
//!
//! The secret is the seed of an Ed25519 key. The Mixer keeps the public key alone, and the Rack proves that it has the secret by a signature over the
//! handshake ([`InviteProof`]): neither the registry nor what travels lets anybody else in.
//!
//! # Invariants
//!
//! - A text that was mistyped or cut does not parse.
//! - `Debug` says nothing of the secret.
//!
//! Not here: who made it, until when it is good, and whether it was used (`mixer`).

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::signed::{BadSignature, SignedPayload, SigningContext, bytes_form, decode_strict, encode};
use crate::{KeyFingerprint, Token};

/// What every invite begins with: its kind and its version.
const HEAD: &str = "plinv1_";
/// The bytes that tell a mistyped invite.
const CHECKSUM: usize = 4;

/// What a Rack needs to join a cluster.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RackInvite {
    /// The name under which the Rack is admitted.
    pub name: Token,
    /// Where the bus is; more than one address, comma separated, for a cluster.
    pub url: String,
    /// The certificate of the authority of the bus's server; none for a bus without TLS.
    pub authority: Option<KeyFingerprint>,
    /// The cluster's public key.
    pub cluster: KeyFingerprint,
    #[serde(with = "bytes_form")]
    secret: Vec<u8>,
}

/// Why a text is no invite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadInvite {
    /// Something else.
    #[error("it is no invite of this version: {HEAD} and a text, as `platform racks invite` prints it")]
    Form,
    /// A letter is wrong, or a part is missing.
    #[error("it was mistyped or cut: its checksum does not fit")]
    Checksum,
}

impl RackInvite {
    /// A new one; the secret is 32 random bytes.
    #[must_use]
    pub fn new(
        name: Token,
        url: String,
        authority: Option<KeyFingerprint>,
        cluster: KeyFingerprint,
        secret: [u8; 32],
    ) -> Self {
        Self {
            name,
            url,
            authority,
            cluster,
            secret: secret.to_vec(),
        }
    }

    fn key(&self) -> Option<SigningKey> {
        let seed: &[u8; 32] = self.secret.as_slice().try_into().ok()?;
        Some(SigningKey::from_bytes(seed))
    }

    /// By what the Mixer knows it; none if its secret is none.
    #[must_use]
    pub fn public_key(&self) -> Option<VerifyingKey> {
        self.key().map(|key| key.verifying_key())
    }

    /// Shows that its holder has the secret, in this handshake and for this Rack's key.
    ///
    /// # Errors
    /// Never in practice: an invite that was parsed has a secret.
    pub fn prove(&self, nonce: &[u8], rack_key: &[u8]) -> Result<InviteProof, BadSignature> {
        let key = self.key().ok_or(BadSignature::Signature)?;
        let used = InviteUse {
            nonce: nonce.to_vec(),
            rack_key: rack_key.to_vec(),
        };
        Ok(InviteProof {
            key: key.verifying_key().as_bytes().to_vec(),
            signed: SignedPayload::new(&used, SigningContext::Invite, &key)?,
        })
    }

    /// The text of it.
    ///
    /// # Errors
    /// Never in practice: an invite encodes.
    pub fn to_text(&self) -> Result<String, BadSignature> {
        let mut bytes = encode(self)?;
        let checksum = Sha256::digest(&bytes);
        bytes.extend_from_slice(checksum.get(..CHECKSUM).unwrap_or_default());
        Ok(format!("{HEAD}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }
}

impl FromStr for RackInvite {
    type Err = BadInvite;

    fn from_str(text: &str) -> Result<Self, BadInvite> {
        let text = text.trim().strip_prefix(HEAD).ok_or(BadInvite::Form)?;
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| BadInvite::Checksum)?;
        let (body, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(BadInvite::Checksum)?;
        if !Sha256::digest(body).starts_with(checksum) {
            return Err(BadInvite::Checksum);
        }
        let invite: Self = decode_strict(body).map_err(|_| BadInvite::Form)?;
        invite.key().ok_or(BadInvite::Form)?;
        Ok(invite)
    }
}

impl std::fmt::Debug for RackInvite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invite")
            .field("name", &self.name)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// That the holder of an invite sends a transcript.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InviteProof {
    /// The invite's public key (32 bytes).
    #[serde(with = "bytes_form")]
    pub key: Vec<u8>,
    /// The handshake, signed with its secret.
    signed: SignedPayload,
}

/// The handshake in which an invite is used.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct InviteUse {
    /// The Mixer's nonce.
    #[serde(with = "bytes_form")]
    nonce: Vec<u8>,
    /// The Rack's public key.
    #[serde(with = "bytes_form")]
    rack_key: Vec<u8>,
}

impl InviteProof {
    /// Whether it is for the handshake with this nonce, by the Rack with this key.
    #[must_use]
    pub fn is_for(&self, nonce: &[u8], rack_key: &[u8]) -> bool {
        let key: Result<[u8; 32], _> = self.key.as_slice().try_into();
        let Some(key) = key.ok().and_then(|key| VerifyingKey::from_bytes(&key).ok()) else {
            return false;
        };
        let used = self.signed.open::<InviteUse>(SigningContext::Invite, &key);
        used.is_ok_and(|used| used.nonce == nonce && used.rack_key == rack_key)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn invite() -> RackInvite {
        let authority = Some(KeyFingerprint::of(b"authority"));
        let url = "nats://mixer.example:4222".to_owned();
        RackInvite::new(
            "press-1".parse().unwrap(),
            url,
            authority,
            KeyFingerprint::of(b"cluster"),
            [7; 32],
        )
    }

    #[test]
    fn an_invite_is_read_as_it_is_written_and_a_typing_error_is_named() {
        let text = invite().to_text().unwrap();
        assert_eq!(format!("  {text}\n").parse::<RackInvite>(), Ok(invite()));
        assert!(!format!("{:?}", invite()).contains('7'), "the secret is not shown");
        for at in HEAD.len()..text.len() {
            let other = if text.as_bytes()[at] == b'A' { "B" } else { "A" };
            let typed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
            assert_eq!(typed.parse::<RackInvite>(), Err(BadInvite::Checksum), "letter {at}");
            assert!(text[..at].parse::<RackInvite>().is_err(), "cut at {at}");
        }
        assert_eq!("plt_00".parse::<RackInvite>(), Err(BadInvite::Form));
    }

    #[test]
    fn a_proof_is_for_one_handshake_of_one_key() {
        let proof = invite().prove(&[1; 32], &[2; 32]).unwrap();
        assert!(proof.is_for(&[1; 32], &[2; 32]));
        assert!(!proof.is_for(&[3; 32], &[2; 32]) && !proof.is_for(&[1; 32], &[3; 32]));
        let other = RackInvite {
            secret: vec![8; 32],
            ..invite()
        };
        let forged = InviteProof {
            key: proof.key,
            ..other.prove(&[1; 32], &[2; 32]).unwrap()
        };
        assert!(!forged.is_for(&[1; 32], &[2; 32]));
    }
}
