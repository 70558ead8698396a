//! What the outbox keeps of a message until it is on the bus.
//!
//! ```text
//! letter = kind u8 | number u64 | attempts u32 | gear len u16 | gear | port len u16 | port | reason len u16 | reason | body
//! ```
//!
//! Numbers are little endian.
//!
//! # Invariants
//!
//! - Reading never panics; what is no letter is `None`.

use async_nats::HeaderMap;
use bytes::Bytes;
use model::{Token, subject, wire};
use uuid::Uuid;

use super::order::Place;
use super::{Dead, Leaving};

/// The longest reason that is sent along.
const MAX_REASON: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Message,
    Dead,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Letter {
    kind: Kind,
    number: u64,
    attempts: u32,
    gear: String,
    port: String,
    reason: String,
    body: Bytes,
}

impl Letter {
    pub(super) fn message(leaving: Leaving, number: u64) -> Self {
        Self {
            kind: Kind::Message,
            number,
            attempts: 0,
            gear: leaving.gear.to_string(),
            port: leaving.port.to_owned(),
            reason: String::new(),
            body: leaving.body.into(),
        }
    }

    pub(super) fn dead(dead: Dead) -> Self {
        // A header is one line.
        let reason: String = dead
            .reason
            .chars()
            .map(|char| if char.is_control() { ' ' } else { char })
            .take(MAX_REASON / 4)
            .collect();
        Self {
            kind: Kind::Dead,
            number: 0,
            attempts: dead.attempts,
            gear: dead.gear.to_string(),
            port: dead.port,
            reason,
            body: dead.body.into(),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.body.len());
        out.push(match self.kind {
            Kind::Message => 1,
            Kind::Dead => 2,
        });
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.attempts.to_le_bytes());
        for text in [&self.gear, &self.port, &self.reason] {
            let len = u16::try_from(text.len()).unwrap_or(0);
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(text.as_bytes().get(..len.into()).unwrap_or_default());
        }
        out.extend_from_slice(&self.body);
        out
    }

    /// What was encoded.
    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let mut rest = bytes.clone();
        let mut take = |len: usize| (len <= rest.len()).then(|| rest.split_to(len));
        let kind = match take(1)?.first()? {
            1 => Kind::Message,
            2 => Kind::Dead,
            _ => return None,
        };
        let number = u64::from_le_bytes(take(8)?.as_ref().try_into().ok()?);
        let attempts = u32::from_le_bytes(take(4)?.as_ref().try_into().ok()?);
        let mut text = || {
            let len = u16::from_le_bytes(take(2)?.as_ref().try_into().ok()?);
            String::from_utf8(take(len.into())?.to_vec()).ok()
        };
        let (gear, port, reason) = (text()?, text()?, text()?);
        Some(Self {
            kind,
            number,
            attempts,
            gear,
            port,
            reason,
            body: rest,
        })
    }

    /// The subject it goes to, from a Rack; none if a name in it is no token.
    pub(crate) fn subject(&self, rack: &Token) -> Option<String> {
        let gear: Token = self.gear.parse().ok()?;
        match self.kind {
            Kind::Message => Some(subject::message(rack, &gear, &self.port.parse().ok()?)),
            Kind::Dead => Some(subject::gear(rack, &gear)),
        }
    }

    /// Adds what its receiver must know.
    pub(crate) fn head(&self, outbox: Uuid, headers: &mut HeaderMap) {
        match self.kind {
            Kind::Message => {
                let place = Place {
                    outbox,
                    number: self.number,
                };
                headers.insert(wire::PLACE, place.to_string());
            }
            Kind::Dead => {
                headers.insert(wire::DEAD_REASON, self.reason.as_str());
                headers.insert(wire::DEAD_PORT, self.port.as_str());
                headers.insert(wire::DEAD_ATTEMPTS, self.attempts.to_string());
            }
        }
    }

    /// The message as it travels.
    pub(crate) const fn body(&self) -> &Bytes {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_letter_comes_back_and_no_part_of_one_panics() {
        let leaving = Leaving {
            gear: "parse".parse().unwrap(),
            port: "out",
            body: vec![1, 2, 3],
        };
        let rack: Token = "rack-a".parse().unwrap();
        let message = Letter::message(leaving, 7);
        let dead = Letter::dead(Dead {
            gear: "parse".parse().unwrap(),
            port: "in".to_owned(),
            reason: "line\none".repeat(500),
            attempts: 5,
            body: vec![9; 10],
        });
        assert!(dead.reason.len() <= MAX_REASON && !dead.reason.contains('\n'));
        for (letter, subject) in [(message, "flux.msg.rack-a.parse.out"), (dead, "flux.gear.rack-a.parse")] {
            let bytes = Bytes::from(letter.encode());
            assert_eq!(Letter::decode(&bytes), Some(letter.clone()));
            assert_eq!(letter.subject(&rack).as_deref(), Some(subject));
            for end in 0..bytes.len() - letter.body.len() {
                assert_eq!(Letter::decode(&bytes.slice(..end)), None, "{end}");
            }
        }
    }
}
