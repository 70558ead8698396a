//! `api.tokens_file`: tokens that whoever installs the Mixer provides, as TOML.
//!
//! ```toml
//! [[token]]
//! name = "grafana"
//! token = "plt_…"                # as `platform token generate` prints it
//! roles = ["reader"]
//! expires = "2027-01-01T00:00:00Z"
//! [token.scope]
//! tables = ["logs", "metrics"]
//! [token.quotas]
//! requests = 10
//! ```
//!
//! # Invariants
//!
//! - The file has secrets: one that others may read is refused.
//! - It is read whole or not at all: a fault in one token leaves those of before in force.
//!
//! Not here: when it is read anew (`token_store`).

use std::path::{Path, PathBuf};

use chassis::secret_file::{SecretFileError, read_secret};
use model::{Timestamp, Token};
use serde::Deserialize;

use super::token_store::check_name;
use crate::access::{AccessRole, AccessScope, ApiToken};
use crate::quotas::QuotaOverrides;

/// The largest file that is read.
const LARGEST: u64 = 1 << 20;

/// Why the tokens of a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It cannot be read.
    #[error("api.tokens_file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Others may read it.
    #[error("api.tokens_file {} has mode {mode:o}: others may read its tokens; chmod 600 {}", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// What is in it cannot be used.
    #[error("api.tokens_file {}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TokenFile {
    token: Vec<ProvidedToken>,
}

/// A token of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProvidedToken {
    pub(super) name: Token,
    pub(super) token: ApiToken,
    pub(super) roles: Vec<AccessRole>,
    #[serde(default)]
    pub(super) expires: Option<Timestamp>,
    #[serde(default)]
    pub(super) scope: AccessScope,
    #[serde(default)]
    pub(super) quotas: QuotaOverrides,
}

impl ProvidedToken {
    fn checked(self) -> Result<Self, String> {
        if self.roles.is_empty() {
            return Err(format!("token {}: it has no roles", self.name));
        }
        check_name(&self.name)
            .and_then(|()| self.scope.check())
            .and_then(|()| self.quotas.check())
            .map_err(|reason| format!("token {}: {reason}", self.name))?;
        Ok(self)
    }
}

/// The tokens of a file.
///
/// # Errors
/// [`TokenFileError`].
pub(super) fn read(path: &Path) -> Result<Vec<ProvidedToken>, TokenFileError> {
    let malformed = |reason: String| TokenFileError::Malformed {
        path: path.to_owned(),
        reason,
    };
    let text = read_secret(path, LARGEST).map_err(|error| match error {
        SecretFileError::Unreadable(source) => TokenFileError::Unreadable {
            path: path.to_owned(),
            source,
        },
        SecretFileError::Exposed(mode) => TokenFileError::Exposed {
            path: path.to_owned(),
            mode,
        },
        SecretFileError::TooLarge(_) => malformed(error.to_string()),
    })?;
    tokens_in(&text).map_err(malformed)
}

/// The tokens of a file's text.
fn tokens_in(text: &str) -> Result<Vec<ProvidedToken>, String> {
    // The error of a parser shows the line, which may be the one with the secret.
    let file: TokenFile = toml_edit::de::from_str(text).map_err(|error| error.message().to_owned())?;
    let tokens: Vec<_> = file
        .token
        .into_iter()
        .map(ProvidedToken::checked)
        .collect::<Result<_, _>>()?;
    let mut names: Vec<&Token> = tokens.iter().map(|token| &token.name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| matches!(pair, [a, b] if a == b)) {
        Some([twice, ..]) => Err(format!("two tokens are called {twice}")),
        _ => Ok(tokens),
    }
}

/// The target: the text of a file. Its tokens have the form of tokens, roles, and names of their own.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz_token_file() -> model::fuzz::FuzzTarget {
    let sample = format!(
        "[[token]]\nname = \"grafana\"\ntoken = \"plt_{}\"\nroles = [\"reader\"]\nexpires = \"2027-01-01T00:00:00Z\"\n\
         [token.scope]\ntables = [\"logs\", \"metrics\"]\n[token.quotas]\nrequests = 10\n",
        "5f".repeat(32)
    );
    model::fuzz::FuzzTarget::of_text("tokens.file", &[&sample], |text| {
        tokens_in(text).is_ok_and(|tokens| {
            let is_whole =
                |token: &ProvidedToken| !token.roles.is_empty() && token.token.expose().parse::<ApiToken>().is_ok();
            assert!(tokens.iter().all(is_whole), "a token has no role, or is none");
            !tokens.is_empty()
        })
    })
}
