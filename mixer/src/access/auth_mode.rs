//! Whether callers must have a token: `api.auth`.
//!
//! Not here: how a caller is told apart ([`crate::authentication`]).

/// Whose word is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    /// The Mixer's own user and root need no token over loopback.
    Auto,
    /// Everybody needs a token.
    Tokens,
    /// Nobody does; over loopback only.
    Off,
}

impl AuthMode {
    /// Its word in the configuration.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tokens => "tokens",
            Self::Off => "off",
        }
    }
}
