//! Authentication of requests: a bearer token, or an HMAC-SHA-256 signature of the body, as senders of webhooks make it.
//!
//! # Invariants
//!
//! - What a request shows is compared in constant time, and is in no log and no answer.
//! - A secret that is short enough to be guessed is refused at the start.
//!
//! # Not here
//!
//! Where secrets come from in a configuration ([`gear_spec::http_auth`]). Repetition: who hears a signed request can send it again.

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use gear_spec::http_auth::{HttpAuthConfig, HttpCredential};
use ring::hmac;
use ring::rand::SystemRandom;

use super::secret_file::read_secret;
use crate::policy::RackPolicy;

/// The fewest bytes of a secret.
const MIN_SECRET: usize = 16;

/// What requests must show.
#[derive(Debug)]
pub(super) enum RequestAuthentication {
    Nothing,
    /// A token, known by its code under a key that only this life of the gear has.
    Bearer {
        key: hmac::Key,
        token: hmac::Tag,
    },
    Signature {
        key: hmac::Key,
        header: HeaderName,
    },
}

/// A request that does not show what it must.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(super) struct AuthenticationRefusal {
    reason: String,
    /// What `WWW-Authenticate` says.
    pub(super) challenge: HeaderValue,
}

impl RequestAuthentication {
    /// What a configuration means on this Rack; reads the environment and a file.
    pub(super) fn of(config: Option<&HttpAuthConfig>, policy: &RackPolicy) -> Result<Self, String> {
        let Some(config) = config else {
            return Ok(Self::Nothing);
        };
        let (name, token) = match config.credential(|name| policy.variable(name))? {
            HttpCredential::Signature { secret, header } => {
                check_length("auth.hmac_secret", &secret)?;
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
                return Ok(Self::Signature { key, header });
            }
            HttpCredential::Token(token) => ("auth.token", token),
            HttpCredential::TokenFile(path) => {
                let name = "auth.token_file";
                (name, read_secret(policy.readable(), name, &path)?)
            }
        };
        check_length(name, &token)?;
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.map_err(|_| "the system gives no random bytes".to_owned())?;
        let token = hmac::sign(&key, token.as_bytes());
        Ok(Self::Bearer { key, token })
    }

    /// Checks what can be told before the body is there.
    pub(super) fn check_headers(&self, headers: &HeaderMap) -> Result<(), AuthenticationRefusal> {
        match self {
            Self::Nothing => Ok(()),
            Self::Bearer { key, token } => {
                let shown = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
                let is_right = shown.is_some_and(|shown| hmac::verify(key, shown, token.as_ref()).is_ok());
                if is_right {
                    Ok(())
                } else {
                    Err(unauthenticated(
                        "send the header Authorization: Bearer and the token",
                        "Bearer",
                    ))
                }
            }
            Self::Signature { header, .. } if headers.contains_key(header) => Ok(()),
            Self::Signature { header, .. } => Err(unsigned(header)),
        }
    }

    /// Checks what the body is needed for.
    pub(super) fn check_body(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), AuthenticationRefusal> {
        let Self::Signature { key, header } = self else {
            return Ok(());
        };
        let shown = headers.get(header).and_then(|value| signature(value.as_bytes()));
        let is_right = shown.is_some_and(|shown| hmac::verify(key, body, &shown).is_ok());
        if is_right { Ok(()) } else { Err(unsigned(header)) }
    }
}

fn check_length(key: &str, secret: &str) -> Result<(), String> {
    if secret.len() >= MIN_SECRET {
        return Ok(());
    }
    Err(format!(
        "{key} has {} bytes, and fewer than {MIN_SECRET} can be guessed: make one with openssl rand -hex 32",
        secret.len()
    ))
}

/// The token of a header; the name of the scheme is in any case.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// The bytes of a signature in hexadecimal digits.
fn signature(value: &[u8]) -> Option<Vec<u8>> {
    let digits = value.strip_prefix(b"sha256=").unwrap_or(value);
    model::hex::decode(std::str::from_utf8(digits).ok()?)
}

fn unsigned(header: &HeaderName) -> AuthenticationRefusal {
    let reason = format!("send the header {header} with the HMAC-SHA-256 of the body in hexadecimal digits");
    unauthenticated(&reason, "HMAC-SHA256")
}

fn unauthenticated(reason: &str, scheme: &'static str) -> AuthenticationRefusal {
    AuthenticationRefusal {
        reason: format!("this gear wants to know who asks: {reason}"),
        challenge: HeaderValue::from_static(scheme),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::gear_manifest;
    use serde_json::{Value, json};

    use super::*;

    const SECRET: &str = env!("CARGO_PKG_DESCRIPTION");

    fn authentication(auth: Value) -> Result<RequestAuthentication, String> {
        let config = json!({ "listen": "127.0.0.1:0", "auth": auth });
        let config: gear_spec::http_in::HttpInConfig = gear_manifest::config(config.as_object().unwrap())?;
        RequestAuthentication::of(config.auth.as_ref(), &RackPolicy::for_tests())
    }

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn the_token_is_asked_for_whole_and_in_its_header() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, format!("{SECRET}\r\n")).unwrap();
        for auth in [
            json!({ "token": "${CARGO_PKG_DESCRIPTION}" }),
            json!({ "token_file": file }),
        ] {
            let auth = authentication(auth).unwrap();
            for (name, value, wanted) in [
                ("authorization", format!("Bearer {SECRET}"), true),
                ("authorization", format!("bearer  {SECRET}"), true),
                ("authorization", format!("Basic {SECRET}"), false),
                ("authorization", SECRET.to_owned(), false),
                ("authorization", format!("Bearer {SECRET}x"), false),
                ("authorization", format!("Bearer {}", &SECRET[1..]), false),
                ("authorization", "Bearer ".to_owned(), false),
                ("x-token", format!("Bearer {SECRET}"), false),
            ] {
                let checked = auth.check_headers(&headers(name, &value));
                assert_eq!(checked.is_ok(), wanted, "{name}: {value}");
            }
            let refused = auth.check_headers(&HeaderMap::new()).unwrap_err();
            assert!(
                refused.challenge == "Bearer" && !refused.to_string().contains(SECRET),
                "{refused}"
            );
            assert!(!format!("{auth:?}").contains(SECRET));
        }
    }

    #[test]
    fn a_body_is_signed_with_the_secret_and_as_it_came() {
        let auth = authentication(json!({ "hmac_secret": "${CARGO_PKG_DESCRIPTION}" })).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
        let digits: String = hmac::sign(&key, b"order")
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        for (value, body, wanted) in [
            (format!("sha256={digits}"), "order", true),
            (digits.to_uppercase(), "order", true),
            (digits.clone(), "orders", false),
            (digits[2..].to_owned(), "order", false),
            (format!("sha1={digits}"), "order", false),
            (String::new(), "order", false),
        ] {
            let headers = headers("x-hub-signature-256", &value);
            auth.check_headers(&headers).unwrap();
            assert_eq!(
                auth.check_body(&headers, body.as_bytes()).is_ok(),
                wanted,
                "{value} {body}"
            );
        }
        assert!(auth.check_headers(&HeaderMap::new()).is_err() && auth.check_body(&HeaderMap::new(), b"").is_err());
    }

    #[test]
    fn a_sign_is_no_digit_of_a_signature() {
        let auth = authentication(json!({ "hmac_secret": "${CARGO_PKG_DESCRIPTION}" })).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
        let zero = |digits: &str| (0..digits.len()).step_by(2).find(|at| digits.as_bytes()[*at] == b'0');
        let (body, digits, at) = (0..)
            .find_map(|number| {
                let body = format!("order {number}");
                let digits = model::hex::encode(hmac::sign(&key, body.as_bytes()).as_ref());
                let at = zero(&digits)?;
                Some((body, digits, at))
            })
            .unwrap();
        let signed = format!("{}+{}", &digits[..at], &digits[at + 1..]);
        for (value, wanted) in [(digits, true), (signed, false)] {
            let checked = auth.check_body(&headers("x-hub-signature-256", &value), body.as_bytes());
            assert_eq!(checked.is_ok(), wanted, "{value}");
        }
    }

    #[test]
    fn what_is_no_secret_is_refused_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "short\n").unwrap();
        for (auth, says) in [
            (json!({}), "auth must have one of token, token_file and hmac_secret"),
            (
                json!({ "token": "${A}", "hmac_secret": "${B}" }),
                "auth must have one of",
            ),
            (
                json!({ "token": "plain text, long enough" }),
                "auth.token is a secret and must not be in a scenario",
            ),
            (json!({ "hmac_secret": "${PLATFORM_X}" }), "is not given away"),
            (
                json!({ "hmac_secret": "${HOME}", "hmac_header": "a b" }),
                "auth.hmac_header \"a b\"",
            ),
            (json!({ "token": "${NO_SUCH_VARIABLE}" }), "which is not set"),
            (json!({ "token_file": file }), "auth.token_file has 5 bytes"),
            (json!({ "token_file": folder.path().join("none") }), "auth.token_file "),
        ] {
            let refused = authentication(auth.clone()).unwrap_err();
            assert!(refused.contains(says), "{auth}: {refused}");
        }
    }
}
