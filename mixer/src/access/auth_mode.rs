//! Whether callers must have a token: `api.auth`.
//!
//! Not here: how a caller is told apart ([`crate::authentication`]).

/// Whose word is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    /// The Mixer's own user and root need no token over loopback.
    Auto,
    /// The Mixer's own user alone needs none: where something of root's forwards connections of others (`kubectl port-forward`).
    Own,
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
            Self::Own => "own",
            Self::Tokens => "tokens",
            Self::Off => "off",
        }
    }

    /// Whether a user of this machine needs no token over loopback; `own` is the Mixer's.
    pub(crate) const fn trusts_user(self, uid: u32, own: u32) -> bool {
        match self {
            Self::Auto => uid == own || uid == 0,
            Self::Own => uid == own,
            Self::Tokens | Self::Off => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_trusted_beside_the_own_user_or_not_as_the_mode_says() {
        const MIXER: u32 = 65_532;
        let trusted = |mode: AuthMode| [0, MIXER, 1_000].map(|uid| mode.trusts_user(uid, MIXER));
        assert_eq!(trusted(AuthMode::Auto), [true, true, false]);
        assert_eq!(trusted(AuthMode::Own), [false, true, false]);
        assert_eq!(trusted(AuthMode::Tokens), [false; 3]);
        assert!(AuthMode::Own.trusts_user(0, 0), "a Mixer that runs as root");
    }
}
