//! SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side: how PostgreSQL clients prove that they have a token without sending it.
//!
//! ```text
//!  client: n,,n=,r=CLIENT                       server: r=CLIENT+SERVER,s=SALT,i=ROUNDS
//!  client: c=biws,r=CLIENT+SERVER,p=PROOF       server: v=SIGNATURE
//! ```
//!
//! # Invariants
//!
//! - What is kept ([`ScramVerifier`]) checks a proof and cannot make one.
//! - A name that nobody has goes through the same steps and fails at the proof: as long as the process runs, the exchange does not tell which names
//!   there are.
//! - Every text of the client's is read as bytes that may be anything: what does not fit is [`BadExchange`].
//!
//! Not here: channel binding (`SCRAM-SHA-256-PLUS` is not offered); PostgreSQL's frames (`postgres::startup`).

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::Entropy;
use ring::{digest, hmac, pbkdf2};
use serde::{Deserialize, Serialize};

use super::ApiToken;

/// The least that RFC 7677 allows: a token is random, so there is nothing to be guessed.
const ROUNDS: NonZeroU32 = NonZeroU32::new(4096).unwrap();
const NONCE_BYTES: usize = 18;

/// What is kept to check proofs of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScramVerifier {
    salt: Vec<u8>,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

impl ScramVerifier {
    pub(crate) fn new(token: &ApiToken, entropy: &Entropy) -> Self {
        let salt = entropy.bytes::<16>().to_vec();
        let mut salted = zeroize::Zeroizing::new([0; 32]);
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            ROUNDS,
            &salt,
            token.expose().as_bytes(),
            &mut *salted,
        );
        let client_key = sign(&*salted, b"Client Key");
        Self {
            salt,
            stored_key: digest::digest(&digest::SHA256, client_key.as_ref()).as_ref().to_vec(),
            server_key: sign(&*salted, b"Server Key").as_ref().to_vec(),
        }
    }

    /// One that no proof fits, the same for the same name as long as the process runs.
    pub(crate) fn unknown(name: &str, secret: &[u8]) -> Self {
        let of = |what: &str| sign(secret, format!("{what} {name}").as_bytes()).as_ref().to_vec();
        Self {
            salt: of("salt").into_iter().take(16).collect(),
            stored_key: of("stored key"),
            server_key: of("server key"),
        }
    }
}

fn sign(key: &[u8], message: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message)
}

/// A client's message that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the SCRAM message {0}")]
pub(crate) struct BadExchange(&'static str);

/// An exchange after the client's first message.
pub(crate) struct ScramExchange {
    verifier: ScramVerifier,
    /// The `gs2` header as the client repeats it.
    binding: String,
    nonce: String,
    client_first: String,
    server_first: String,
}

impl ScramExchange {
    /// Reads the client's first message.
    ///
    /// # Errors
    /// [`BadExchange`] if it is none, or asks for what is not offered.
    pub(crate) fn begin(verifier: ScramVerifier, message: &[u8], entropy: &Entropy) -> Result<Self, BadExchange> {
        let message = std::str::from_utf8(message).map_err(|_| BadExchange("is not UTF-8"))?;
        let header = message.get(..3).unwrap_or_default();
        if !matches!(header, "n,," | "y,,") {
            return Err(BadExchange(
                "asks for channel binding or for another identity: neither is offered",
            ));
        }
        let bare = message.get(3..).unwrap_or_default();
        let nonce = bare.split(',').find_map(|field| field.strip_prefix("r="));
        let nonce = nonce.filter(|nonce| !nonce.is_empty());
        let nonce = nonce.ok_or(BadExchange("has no nonce"))?;
        let nonce = format!("{nonce}{}", STANDARD.encode(entropy.bytes::<NONCE_BYTES>()));
        Ok(Self {
            server_first: format!("r={nonce},s={},i={ROUNDS}", STANDARD.encode(&verifier.salt)),
            binding: STANDARD.encode(header),
            nonce,
            client_first: bare.to_owned(),
            verifier,
        })
    }

    /// What the server answers to the first message.
    pub(crate) fn challenge(&self) -> &str {
        &self.server_first
    }

    /// Checks the client's last message: what the server answers if its proof fits, `None` if it does not.
    ///
    /// # Errors
    /// [`BadExchange`] if it is no such message.
    pub(crate) fn finish(&self, message: &[u8]) -> Result<Option<String>, BadExchange> {
        let message = std::str::from_utf8(message).map_err(|_| BadExchange("is not UTF-8"))?;
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or(BadExchange("has no proof"))?;
        let field = |name: &str| without_proof.split(',').find_map(|field| field.strip_prefix(name));
        if field("c=") != Some(&self.binding) || field("r=") != Some(&self.nonce) {
            return Err(BadExchange("does not belong to this exchange"));
        }
        let proof = STANDARD
            .decode(proof)
            .map_err(|_| BadExchange("has a proof that is not Base64"))?;
        let signed = format!("{},{},{without_proof}", self.client_first, self.server_first);
        let signature = sign(&self.verifier.stored_key, signed.as_bytes());
        let client_key: Vec<u8> = proof.iter().zip(signature.as_ref()).map(|(a, b)| a ^ b).collect();
        let stored_key = digest::digest(&digest::SHA256, &client_key);
        // Both sides are hashes: where they begin to differ says nothing.
        if proof.len() != signature.as_ref().len() || stored_key.as_ref() != self.verifier.stored_key {
            return Ok(None);
        }
        let signature = sign(&self.verifier.server_key, signed.as_bytes());
        Ok(Some(format!("v={}", STANDARD.encode(signature.as_ref()))))
    }
}

/// The target: the two messages of a login, the first one up to a line feed. Nobody proves a token that has none.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz_exchange() -> model::fuzz::FuzzTarget {
    let entropy = Entropy::new(|bytes| bytes.fill(7));
    let nonce = STANDARD.encode(entropy.bytes::<NONCE_BYTES>());
    let proof = STANDARD.encode([5; 32]);
    let sample = format!("n,,n=ci,r=abc\nc=biws,r=abc{nonce},p={proof}");
    model::fuzz::FuzzTarget::of_text("postgres.login", &[&sample], move |text| {
        let (first, last) = text.split_once('\n').unwrap_or((text, ""));
        let verifier = ScramVerifier::unknown("ci", b"secret");
        let Ok(exchange) = ScramExchange::begin(verifier, first.as_bytes(), &entropy) else {
            return false;
        };
        exchange.finish(last.as_bytes()).is_ok_and(|proved| {
            assert_eq!(proved, None, "it believes a proof without a token");
            true
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// The example of RFC 7677.
    #[test]
    fn the_example_of_the_rfc_is_accepted() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let mut salted = [0; 32];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, &salt, b"pencil", &mut salted);
        let client_key = sign(&salted, b"Client Key");
        let exchange = ScramExchange {
            verifier: ScramVerifier {
                stored_key: digest::digest(&digest::SHA256, client_key.as_ref()).as_ref().to_vec(),
                server_key: sign(&salted, b"Server Key").as_ref().to_vec(),
                salt,
            },
            binding: "biws".to_owned(),
            nonce: "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".to_owned(),
            client_first: "n=user,r=rOprNGfwEbeRWgbNEkqO".to_owned(),
            server_first: "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
                .to_owned(),
        };
        let last = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let answer = exchange.finish(last.as_bytes()).unwrap();
        assert_eq!(
            answer.as_deref(),
            Some("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
        );
        let wrong = last.replace("dHzb", "dHzc");
        assert_eq!(exchange.finish(wrong.as_bytes()), Ok(None));
    }

    #[test]
    fn messages_that_do_not_fit_are_refused() {
        let entropy = Entropy::new(|bytes| bytes.fill(7));
        let verifier = ScramVerifier::unknown("ci", b"secret");
        assert_eq!(verifier, ScramVerifier::unknown("ci", b"secret"));
        for bad in [
            "",
            "n",
            "p=tls-unique,,n=,r=a",
            "n,a=b,n=,r=a",
            "n,,n=",
            "n,,n=,r=",
            "n,é,r=a",
        ] {
            assert!(
                ScramExchange::begin(verifier.clone(), bad.as_bytes(), &entropy).is_err(),
                "{bad:?}"
            );
        }
        assert!(ScramExchange::begin(verifier.clone(), b"n,,n=,r=\xff", &entropy).is_err());
        let exchange = ScramExchange::begin(verifier, b"n,,n=,r=abc", &entropy).unwrap();
        let nonce = exchange.nonce.clone();
        for bad in [
            String::new(),
            "p=".to_owned(),
            format!("c=biws,r={nonce}x,p="),
            format!("c=eSws,r={nonce},p="),
            format!("c=biws,r={nonce},p=*"),
        ] {
            assert!(exchange.finish(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert_eq!(
            exchange.finish(format!("c=biws,r={nonce},p=").as_bytes()),
            Ok(None),
            "a proof of nothing"
        );
    }
}
