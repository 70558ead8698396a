//! Sealed replies: an answer that only who asked can read, although others share its inbox (NaCl box: X25519, XSalsa20 and Poly1305).
//!
//! ```text
//! the sender's public key, an xkey of 56 letters ‖ the box, as nkeys writes it
//! ```
//!
//! # Invariants
//!
//! - A question has a key of its own, and so has an answer: neither is used twice.
//!
//! Not here: who signed the answer ([`model::signed_reply`]); anybody can seal one.

use model::Entropy;
use nkeys::XKey;

/// The length of a public key as text.
const KEY: usize = 56;

/// The key of one question.
pub struct ReplyKey(XKey);

impl std::fmt::Debug for ReplyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReplyKey(***)")
    }
}

impl ReplyKey {
    /// A new one.
    #[must_use]
    pub fn new(entropy: &Entropy) -> Self {
        Self(XKey::new_from_raw(entropy.bytes()))
    }

    /// What the question tells of it.
    #[must_use]
    pub fn public(&self) -> String {
        self.0.public_key()
    }

    /// What was sealed for it; none for anything else.
    #[must_use]
    pub fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (sender, sealed) = sealed.split_at_checked(KEY)?;
        let sender = XKey::from_public_key(std::str::from_utf8(sender).ok()?).ok()?;
        self.0.open(sealed, &sender).ok()
    }
}

/// Seals an answer for who asked; none if the key is none.
#[must_use]
pub fn seal(answer: &[u8], for_key: &str, entropy: &Entropy) -> Option<Vec<u8>> {
    let (sender, recipient) = (
        XKey::new_from_raw(entropy.bytes()),
        XKey::from_public_key(for_key).ok()?,
    );
    let sealed = sender.seal(answer, &recipient).ok()?;
    Some([sender.public_key().into_bytes(), sealed].concat())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn only_who_asked_reads_an_answer_and_no_changed_one_passes() {
        let entropy = crate::os_entropy();
        let (asked, other) = (ReplyKey::new(&entropy), ReplyKey::new(&entropy));
        let sealed = seal(b"who you are", &asked.public(), &entropy).unwrap();
        assert_eq!(asked.open(&sealed).unwrap(), b"who you are");
        assert_eq!(other.open(&sealed), None);
        assert!(!sealed.windows(3).any(|window| window == b"who"));
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert_eq!(asked.open(&bad), None, "byte {at}");
            assert_eq!(asked.open(&sealed[..at]), None, "cut at {at}");
        }
        assert_eq!(seal(b"x", "no key", &entropy), None);
    }
}
