//! Tokens: names that become bus subjects, folders and addresses.
//!
//! # Invariants
//!
//! - A [`Token`] is `[A-Za-z0-9_-]{1,64}`: no dot, no wildcard, no space, no slash. Anything else is refused where
//!   it enters, never pasted.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A name of 1 to 64 letters, digits, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Token(String);

plain_schema!(Token, { "type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$" });

/// A text that cannot be a [`Token`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a name: use 1 to 64 letters, digits, '_' and '-'")]
pub struct BadToken(pub String);

impl Token {
    /// The longest token, in bytes.
    pub const MAX_LEN: usize = 64;

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The nearest token to any text: foreign characters become `-`, the rest is cut. For host names.
    #[must_use]
    pub fn nearest(text: &str) -> Self {
        let clean: String = text
            .chars()
            .take(Self::MAX_LEN)
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
                    c
                } else {
                    '-'
                }
            })
            .collect();
        Self(if clean.is_empty() { "-".to_owned() } else { clean })
    }
}

impl FromStr for Token {
    type Err = BadToken;
    fn from_str(text: &str) -> Result<Self, BadToken> {
        let good = (1..=Self::MAX_LEN).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if good {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadToken(text.to_owned()))
        }
    }
}

impl TryFrom<String> for Token {
    type Error = BadToken;
    fn try_from(text: String) -> Result<Self, BadToken> {
        text.parse()
    }
}

impl From<Token> for String {
    fn from(token: Token) -> Self {
        token.0
    }
}

impl AsRef<str> for Token {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_folders_and_wildcards_cannot_be_smuggled_in() {
        for bad in ["", "a.b", "*", ">", "a b", "../x", "a/b", "é", &"x".repeat(65)] {
            assert!(bad.parse::<Token>().is_err(), "{bad}");
        }
        assert_eq!(Token::nearest("web.example.org").as_str(), "web-example-org");
        assert_eq!(Token::nearest("").as_str(), "-");
    }
}
