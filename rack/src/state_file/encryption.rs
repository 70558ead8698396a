//! The state file at rest under a key of the operator: ChaCha20-Poly1305 over the whole bundle, passport and secret key.
//!
//! ```text
//! CBOR { version: 2, nonce: 12 bytes, sealed: ciphertext of the bundle's bytes, 16 bytes of tag }
//! ```
//!
//! # Invariants
//!
//! - Nothing of a sealed file is read before its tag was checked.
//! - Each writing has a fresh random nonce. A Rack writes it when it enrols: far below the number at which nonces meet.
//!
//! # Not here
//!
//! Where the key comes from ([`crate::config`]); what is in the bundle ([`model::passport`]).

use std::path::Path;

use chassis::secret_file::read_secret;
use model::{BadSignature, Entropy, signed};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::Error;
use crate::config::BaseConfig;
use crate::seal_error::{SEALED_VERSION, SealError};

/// The largest key file.
const LARGEST: u64 = 4096;
/// What the tag vouches for beside the content: that it is a state file of ours.
const CONTEXT: &[u8] = b"platform/state/2";

/// The key.
pub(crate) struct StateKey(LessSafeKey);

impl std::fmt::Debug for StateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StateKey")
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedBundle {
    version: u16,
    #[serde(with = "model::signed::bytes_form")]
    nonce: Vec<u8>,
    #[serde(with = "model::signed::bytes_form")]
    sealed: Vec<u8>,
}

/// Whether these bytes are of the sealed form.
pub(super) fn is_sealed(bytes: &[u8]) -> bool {
    signed::decode_strict::<SealedBundle>(bytes).is_ok()
}

impl StateKey {
    /// The one that the configuration gives, if any.
    pub(crate) fn of(base: &BaseConfig) -> Result<Option<Self>, Error> {
        let (key, text) = match (&base.state_key, &base.state_key_file) {
            (Some(secret), _) => ("base.state_key", Zeroizing::new(secret.expose().to_owned())),
            (None, Some(path)) => ("base.state_key_file", read(path)?),
            (None, None) => return Ok(None),
        };
        let bad = |reason: String| Error::StateKey { key, reason };
        let bytes = model::hex::decode(text.trim()).and_then(|bytes| bytes.try_into().ok());
        let bytes = bytes.ok_or_else(|| {
            bad("it is not a key: 64 hexadecimal digits are, as `openssl rand -hex 32` makes them".to_owned())
        })?;
        Self::new(&bytes).map(Some).map_err(|reason| bad(reason.to_string()))
    }

    /// Of 32 bytes.
    pub(crate) fn new(bytes: &[u8; 32]) -> Result<Self, SealError> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, bytes).map_err(|_| SealError::Cipher)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// The sealed form of a bundle's bytes.
    pub(super) fn seal(&self, mut bytes: Vec<u8>, entropy: &Entropy) -> Result<Vec<u8>, SealError> {
        let nonce: [u8; NONCE_LEN] = entropy.bytes();
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(CONTEXT), &mut bytes)
            .map_err(|_| SealError::Cipher)?;
        let sealed = SealedBundle {
            version: SEALED_VERSION,
            nonce: nonce.to_vec(),
            sealed: bytes,
        };
        signed::encode(&sealed).map_err(|_: BadSignature| SealError::Cipher)
    }

    /// The bundle's bytes of a sealed form.
    pub(super) fn open(&self, bytes: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut file: SealedBundle = signed::decode_strict(bytes).map_err(|_| SealError::Key)?;
        if file.version != SEALED_VERSION {
            return Err(SealError::Version { found: file.version });
        }
        let nonce = Nonce::try_assume_unique_for_key(&file.nonce).map_err(|_| SealError::Key)?;
        let opened = self.0.open_in_place(nonce, Aad::from(CONTEXT), &mut file.sealed);
        opened.map(|bytes| bytes.to_vec()).map_err(|_| SealError::Key)
    }
}

/// The target: a sealed state file. What opens is what was sealed.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz_sealed() -> model::fuzz::FuzzTarget {
    const BUNDLE: &[u8] = b"the bytes of a bundle";
    let key = StateKey::new(&[7; 32]);
    let sealed = key
        .as_ref()
        .ok()
        .and_then(|key| key.seal(BUNDLE.to_vec(), &Entropy::new(|bytes| bytes.fill(5))).ok());
    model::fuzz::FuzzTarget::new("disk.state_file", Vec::from_iter(sealed), move |bytes| {
        let opened = key.as_ref().ok().and_then(|key| key.open(bytes).ok());
        opened.is_some_and(|opened| {
            assert!(is_sealed(bytes) && opened == BUNDLE, "it opens what nobody sealed");
            true
        })
    })
}

/// The text of a key file that only we may read.
fn read(path: &Path) -> Result<Zeroizing<String>, Error> {
    read_secret(path, LARGEST).map_err(|error| Error::StateKey {
        key: "base.state_key_file",
        reason: format!("{}: {error}", path.display()),
    })
}
