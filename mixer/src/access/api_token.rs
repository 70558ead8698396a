//! API tokens as texts: `plt_` and 64 hexadecimal digits of 256 random bits.
//!
//! # Invariants
//!
//! - A token is shown by [`ApiToken::expose`] alone; `Debug` says nothing of it.
//! - [`TokenDigest`] is the SHA-256 of the text. 256 random bits need no salt and no slow hash; a token is looked up by it, so that comparing takes
//!   the same time for all.
//!
//! Not here: what a token may do (`token_store`).

use std::str::FromStr;

use model::Entropy;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// What every token begins with, so that scanners of leaked secrets find it.
const HEAD: &str = "plt_";
const HEX_DIGITS: usize = 64;

/// A bearer token.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ApiToken(Zeroizing<String>);

/// A text that is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a token is {HEAD} and {HEX_DIGITS} hexadecimal digits")]
pub struct BadToken;

impl ApiToken {
    /// A new one.
    #[must_use]
    pub fn generate(entropy: &Entropy) -> Self {
        let secret = Zeroizing::new(entropy.bytes::<32>());
        Self(Zeroizing::new(format!("{HEAD}{}", model::hex::encode(&*secret))))
    }

    /// The text, to be shown to who asked for it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    #[must_use]
    pub fn digest(&self) -> TokenDigest {
        TokenDigest(Sha256::digest(self.0.as_bytes()).into())
    }
}

impl FromStr for ApiToken {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Self, BadToken> {
        let digits = text.strip_prefix(HEAD).ok_or(BadToken)?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != HEX_DIGITS || !digits.bytes().all(is_digit) {
            return Err(BadToken);
        }
        Ok(Self(Zeroizing::new(text.to_owned())))
    }
}

impl TryFrom<String> for ApiToken {
    type Error = BadToken;

    fn try_from(text: String) -> Result<Self, BadToken> {
        Zeroizing::new(text).parse()
    }
}

impl std::fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiToken(***)")
    }
}

/// The SHA-256 of a token's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TokenDigest(pub [u8; 32]);

impl TokenDigest {
    /// The token's id in lists and in the audit log: the beginning of the digest.
    #[must_use]
    pub fn id(&self) -> String {
        let (beginning, _) = self.0.split_at(6);
        model::hex::encode(beginning)
    }
}
