//! JSON Web Tokens as nats-server reads them: base64url of a header and of claims, and an Ed25519 signature by an nkey.
//!
//! # Not here
//!
//! What the claims say (`account_claims`); whether a token is genuine, which the server checks.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use model::Timestamp;
use nkeys::KeyPair;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const HEADER: &[u8] = br#"{"typ":"JWT","alg":"ed25519-nkey"}"#;

/// What every token says beside its claims.
pub(super) struct JwtSubject<'a> {
    /// The public key that the token is about.
    pub(super) key: &'a str,
    /// For people.
    pub(super) name: &'a str,
    /// The second in which it was issued counts.
    pub(super) issued: Timestamp,
    /// From when on it is worth nothing; none for ever.
    pub(super) expires: Option<Timestamp>,
}

/// A token with these claims, signed by its issuer.
pub(super) fn sign(issuer: &KeyPair, subject: &JwtSubject<'_>, claims: &Value) -> Result<String, nkeys::error::Error> {
    let mut token = json!({
        "iat": seconds(subject.issued),
        "iss": issuer.public_key(),
        "name": subject.name,
        "sub": subject.key,
        "nats": claims,
    });
    if let Some(expires) = subject.expires {
        token["exp"] = seconds(expires).into();
    }
    token["jti"] = model::hex::encode(&Sha256::digest(token.to_string())).into();
    let [header, body] = [HEADER, token.to_string().as_bytes()].map(|part| URL_SAFE_NO_PAD.encode(part));
    let signed = format!("{header}.{body}");
    let signature = URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes())?);
    Ok(format!("{signed}.{signature}"))
}

/// The claims of a token and the second in which it was issued; none if it is none. Nobody's word is taken for it: its signature is not looked at.
pub(super) fn claims(token: &[u8]) -> Option<(Value, i64)> {
    let body = token.split(|byte| *byte == b'.').nth(1)?;
    let mut body: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).ok()?).ok()?;
    let issued = body["iat"].as_i64()?;
    Some((body["nats"].take(), issued))
}

/// A second of a token.
pub(super) fn moment(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds.saturating_mul(1_000_000))
}

/// A moment as tokens have it.
pub(super) fn seconds(moment: Timestamp) -> i64 {
    moment.micros().div_euclid(1_000_000)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_token_has_its_claims_and_the_signature_of_its_issuer() {
        let issuer = KeyPair::new_account();
        let subject = JwtSubject {
            key: "UKEY",
            name: "rack-a",
            issued: Timestamp::from_micros(1_999_999),
            expires: Some(Timestamp::from_micros(9_000_000)),
        };
        let token = sign(&issuer, &subject, &json!({ "type": "user" })).unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        issuer.verify(signed.as_bytes(), &signature).unwrap();
        let (header, body) = signed.split_once('.').unwrap();
        assert_eq!(URL_SAFE_NO_PAD.decode(header).unwrap(), HEADER);
        let body: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).unwrap()).unwrap();
        assert_eq!(
            (&body["iss"], &body["sub"]),
            (&issuer.public_key().into(), &"UKEY".into())
        );
        assert_eq!((&body["iat"], &body["exp"]), (&1.into(), &9.into()));
        assert_eq!(body["nats"], json!({ "type": "user" }));
        assert_eq!(claims(token.as_bytes()), Some((json!({ "type": "user" }), 1)));
        assert_eq!(claims(b""), None);
    }
}
