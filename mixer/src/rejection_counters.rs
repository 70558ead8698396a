//! Counters of refused handshakes and heartbeats, by reason, for `/metrics`.
//!
//! # Invariants
//!
//! - The reasons are a fixed list, every one present from the start: what strangers send cannot make the list grow.
//!
//! # Not here
//!
//! The log lines, which name who was refused and why (`enrollment`, `heartbeat`, `agent_rpc`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use model::control::RefusalCode;

/// Refusals by reason.
pub(crate) type ReasonCounts = BTreeMap<&'static str, u64>;

/// Every reason with its name in `/metrics`.
const REASONS: [(RefusalCode, &str); 10] = [
    (RefusalCode::Protocol, "protocol"),
    (RefusalCode::Malformed, "malformed"),
    (RefusalCode::Nonce, "nonce"),
    (RefusalCode::Signature, "signature"),
    (RefusalCode::NameTaken, "name_taken"),
    (RefusalCode::Removed, "removed"),
    (RefusalCode::StalePassport, "stale_passport"),
    (RefusalCode::Invite, "invite"),
    (RefusalCode::Unknown, "unknown"),
    (RefusalCode::Internal, "internal"),
];
/// The reason of requests that are not answered, because their answer should have gone elsewhere.
const ELSEWHERE: &str = "answer_elsewhere";

/// Counts of one kind of request.
#[derive(Debug, Default)]
pub(crate) struct RequestRejections {
    by_code: [AtomicU64; REASONS.len()],
    elsewhere: AtomicU64,
}

impl RequestRejections {
    /// One was refused.
    pub(crate) fn count_rejection(&self, code: RefusalCode) {
        let counts = REASONS.iter().zip(&self.by_code);
        for (_, count) in counts.filter(|((known, _), _)| *known == code) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One was not answered: its answer should have gone elsewhere than to who asked.
    pub(crate) fn count_misrouted(&self) {
        self.elsewhere.fetch_add(1, Ordering::Relaxed);
    }

    fn all(&self) -> ReasonCounts {
        let counts = REASONS.iter().zip(&self.by_code);
        let mut all: ReasonCounts = counts
            .map(|((_, name), count)| (*name, count.load(Ordering::Relaxed)))
            .collect();
        all.insert(ELSEWHERE, self.elsewhere.load(Ordering::Relaxed));
        all
    }
}

/// What was refused since the Mixer started.
#[derive(Debug, Default)]
pub(crate) struct RejectionCounters {
    pub(crate) handshakes: RequestRejections,
    pub(crate) heartbeats: RequestRejections,
}

impl RejectionCounters {
    /// Handshakes and heartbeats, every reason present.
    pub(crate) fn all(&self) -> (ReasonCounts, ReasonCounts) {
        (self.handshakes.all(), self.heartbeats.all())
    }
}
