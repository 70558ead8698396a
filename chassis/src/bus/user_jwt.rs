//! Authentication at a bus server in operator mode: a user's JWT beside the signature of its key.
//!
//! # Invariants
//!
//! - What is shown is what is held when a connection is made: a JWT that replaces another one needs no new client.
//! - In the second in which a JWT expires a server refuses it with an error of its own, which the client reports as one of the network. So when [`FRUITLESS`] attempts in a row
//!   that showed a JWT led to no connection, one counts as refused: its holder asks for another one. No clock is needed for that.
//!
//! # Not here
//!
//! Who issues a JWT, and keeps it (`mixer`, `rack`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::{Auth, AuthError};
use nkeys::KeyPair;

use super::BusOptions;

/// Attempts to connect that led to no connection.
const FRUITLESS: u32 = 3;

/// The JWT that a connection shows; clones share it. Without one it shows its key alone.
#[derive(Clone, Default)]
pub struct UserJwt(Arc<Mutex<JwtPresentation>>);

#[derive(Default)]
struct JwtPresentation {
    jwt: Option<String>,
    /// How often it was shown since the last connection.
    shown: u32,
}

impl std::fmt::Debug for UserJwt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserJwt")
    }
}

impl From<Option<String>> for UserJwt {
    fn from(jwt: Option<String>) -> Self {
        Self(Arc::new(Mutex::new(JwtPresentation { jwt, shown: 0 })))
    }
}

impl UserJwt {
    /// Shows this one from the next connection on.
    pub fn replace(&self, jwt: String) {
        *self.presentation() = JwtPresentation {
            jwt: Some(jwt),
            shown: 0,
        };
    }

    /// A connection was made.
    pub(super) fn accepted(&self) {
        self.presentation().shown = 0;
    }

    /// The one to show now.
    fn present(&self) -> Result<Option<String>, AuthError> {
        let mut held = self.presentation();
        if held.jwt.is_some() && held.shown >= FRUITLESS {
            held.shown = 0;
            return Err(AuthError::new("the bus does not accept the JWT: it has expired"));
        }
        held.shown += 1;
        Ok(held.jwt.clone())
    }

    fn presentation(&self) -> MutexGuard<'_, JwtPresentation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is shown to a server that greets with this nonce.
pub(super) fn authenticate(options: &BusOptions, seed: &str, nonce: &[u8]) -> Result<Auth, AuthError> {
    let key = KeyPair::from_seed(seed).map_err(AuthError::new)?;
    let mut auth = Auth::new();
    auth.jwt = options.jwt.present()?;
    auth.nkey = Some(key.public_key());
    auth.signature = Some(key.sign(nonce).map_err(AuthError::new)?);
    auth.token = options.token.as_ref().map(|token| token.expose().to_owned());
    Ok(auth)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_jwt_that_led_to_no_connection_counts_as_refused_every_few_attempts() {
        let jwt = UserJwt::from(Some("old".to_owned()));
        let attempts = || -> Vec<bool> { (0..8).map(|_| jwt.present().is_ok()).collect() };
        assert_eq!(attempts(), [true, true, true, false, true, true, true, false]);
        jwt.present().unwrap();
        jwt.accepted();
        assert_eq!(attempts()[..4], [true, true, true, false]);
        jwt.replace("new".to_owned());
        assert_eq!(jwt.present().unwrap().as_deref(), Some("new"));
        let none = UserJwt::default();
        assert!((0..8).all(|_| none.present().is_ok_and(|jwt| jwt.is_none())));
    }
}
