//! Outstanding challenges: bounded in number and time, valid once.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use model::Timestamp;
use model::control::EnrollChallenge;

/// How long a challenge may be answered.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// How many may be out. Beyond that the oldest goes: under a flood, those who answer at once still get in.
const MOST: usize = 4096;

/// The challenges that are out.
#[derive(Debug, Default)]
pub(super) struct ChallengeStore {
    out: HashMap<Vec<u8>, IssuedChallenge>,
    order: VecDeque<Vec<u8>>,
}

#[derive(Debug)]
struct IssuedChallenge {
    challenge: EnrollChallenge,
    rack_key: Vec<u8>,
    at: Timestamp,
}

impl ChallengeStore {
    /// Remembers a challenge and for whom it is.
    pub(super) fn issue(&mut self, challenge: EnrollChallenge, rack_key: Vec<u8>, at: Timestamp) {
        while self.order.len() >= MOST {
            if let Some(oldest) = self.order.pop_front() {
                self.out.remove(&oldest);
            }
        }
        self.order.push_back(challenge.nonce.clone());
        let nonce = challenge.nonce.clone();
        self.out.insert(
            nonce,
            IssuedChallenge {
                challenge,
                rack_key,
                at,
            },
        );
    }

    /// Whether this very challenge is out for this key; it is not afterwards.
    pub(super) fn redeem(&mut self, challenge: &EnrollChallenge, rack_key: &[u8], now: Timestamp) -> bool {
        let good = self.out.get(&challenge.nonce).is_some_and(|issued| {
            let age = now.since(issued.at).max(issued.at.since(now));
            issued.challenge == *challenge && issued.rack_key == rack_key && age <= GOOD_FOR
        });
        if good {
            self.out.remove(&challenge.nonce);
            self.order.retain(|nonce| *nonce != challenge.nonce);
        }
        good
    }
}
