//! What requests to a gear must show: a bearer token, or a signature of the body, as senders of webhooks make it.
//!
//! # Invariants
//!
//! - A secret never stands in a scenario: it comes from the environment of the Rack or from a file.

use std::fmt;
use std::path::PathBuf;

use http::header::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::secret_references::{self, ValueSecrecy};

/// What a request must show: one of a token and a signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpAuthConfig {
    /// A token that requests have as `Authorization: Bearer TOKEN`: a `${NAME}` reference to the environment of the Rack. At least 16 bytes.
    #[serde(default)]
    #[schemars(extend("x-access" = "references"))]
    token: Option<String>,
    /// A file that has the token, instead of `token`; an end of line after it does not count.
    #[serde(default)]
    #[schemars(extend("x-access" = "read"))]
    pub token_file: Option<PathBuf>,
    /// The secret with which senders sign bodies (HMAC-SHA-256, in hexadecimal digits, also behind `sha256=`), instead of a token: a `${NAME}`
    /// reference. At least 16 bytes. Who hears a request can send it again.
    #[serde(default)]
    #[schemars(extend("x-access" = "references"))]
    hmac_secret: Option<String>,
    /// The header that has the signature.
    #[serde(default = "default_hmac_header")]
    hmac_header: String,
}

/// Where what requests show comes from, with its references resolved.
#[derive(Clone, PartialEq, Eq)]
pub enum HttpCredential {
    /// This token.
    Token(String),
    /// The token in this file.
    TokenFile(PathBuf),
    /// A signature of the body.
    Signature {
        /// What it is made with.
        secret: String,
        /// The header that has it.
        header: HeaderName,
    },
}

impl fmt::Debug for HttpCredential {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("HttpCredential(…)")
    }
}

fn default_hmac_header() -> String {
    "x-hub-signature-256".to_owned()
}

impl HttpAuthConfig {
    /// Says what the fields alone cannot.
    pub(crate) fn validate(&self) -> Result<(), String> {
        self.credential(|_| Some(String::new())).map(drop)
    }

    /// What requests must show.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn credential(&self, env: impl Fn(&str) -> Option<String>) -> Result<HttpCredential, String> {
        let secret = |key: &str, text: &str| secret_references::resolved(key, text, ValueSecrecy::Secret, &env);
        match (&self.token, &self.token_file, &self.hmac_secret) {
            (Some(token), None, None) => Ok(HttpCredential::Token(secret("auth.token", token)?)),
            (None, Some(path), None) => Ok(HttpCredential::TokenFile(path.clone())),
            (None, None, Some(text)) => Ok(HttpCredential::Signature {
                secret: secret("auth.hmac_secret", text)?,
                header: self
                    .hmac_header
                    .parse()
                    .map_err(|_| format!("auth.hmac_header {:?} is not the name of a header", self.hmac_header))?,
            }),
            _ => Err("auth must have one of token, token_file and hmac_secret".into()),
        }
    }
}
