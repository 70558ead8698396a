//! What messages may be on this Rack: its own configuration, narrowed by what the Mixer allows every Rack, and by the bus for what
//! leaves the Rack.
//!
//! # Invariants
//!
//! - The Mixer narrows, it never widens; what it said last holds until it says something else.
//! - What the bus takes holds from the first connection on; without one, nothing is known of it.
//! - Until the first heartbeat of a run is answered, the Rack's own configuration alone holds.
//!
//! # Not here
//!
//! Keeping the limits (`gears::context`); the share of traces that is kept (the recorder).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use model::control;

use crate::config::AgentConfig;

/// The limits in force. Clones share them.
#[derive(Debug, Clone)]
pub struct MessageLimits {
    own: (u32, usize),
    now: Arc<(AtomicU32, AtomicUsize)>,
    bus: Arc<AtomicUsize>,
}

/// The most bytes of a message, and whose limit that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PayloadLimit {
    pub(crate) bytes: usize,
    pub(crate) whose: &'static str,
}

impl MessageLimits {
    /// The Rack's own: the most gears a message may leave, and its most bytes.
    #[must_use]
    pub fn new(max_hops: u32, max_payload_size: usize) -> Self {
        Self {
            own: (max_hops, max_payload_size),
            now: Arc::new((AtomicU32::new(max_hops), AtomicUsize::new(max_payload_size))),
            bus: Arc::new(AtomicUsize::new(usize::MAX)),
        }
    }

    /// Those of a configuration.
    #[must_use]
    pub fn of(config: &AgentConfig) -> Self {
        let max_payload = usize::try_from(config.max_payload.get()).unwrap_or(usize::MAX);
        Self::new(config.max_hops.into(), max_payload)
    }

    /// Obeys the Mixer's as well.
    pub(crate) fn narrow(&self, mixer: &control::RackLimits) {
        let payload = usize::try_from(mixer.max_payload_size).unwrap_or(usize::MAX);
        self.now.0.store(self.own.0.min(mixer.max_hops), Relaxed);
        self.now.1.store(self.own.1.min(payload), Relaxed);
    }

    /// The most gears a message may leave.
    pub(crate) fn max_hops(&self) -> u32 {
        self.now.0.load(Relaxed)
    }

    /// The most bytes of a message, by `Message::size`.
    pub(crate) fn max_payload_size(&self) -> usize {
        self.now.1.load(Relaxed)
    }

    /// Obeys the bus, which takes so many bytes of a message.
    pub(crate) fn set_bus_limit(&self, most: usize) {
        self.bus.store(most, Relaxed);
    }

    /// The most bytes of a message that stays on the Rack, or leaves it.
    pub(crate) fn payload_limit(&self, leaves: bool) -> PayloadLimit {
        let own = PayloadLimit {
            bytes: self.max_payload_size(),
            whose: "max_payload_size",
        };
        let bus = PayloadLimit {
            bytes: self.bus.load(Relaxed),
            whose: "the bus (its max_payload, less a header's room)",
        };
        if leaves && bus.bytes < own.bytes { bus } else { own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mixer_narrows_what_a_message_may_be_and_never_widens_it() {
        let limits = MessageLimits::new(8, 4_096);
        let shared = limits.clone();
        let in_force = || (shared.max_hops(), shared.max_payload_size());
        let told = |max_hops, max_payload_size| {
            limits.narrow(&control::RackLimits {
                max_hops,
                max_payload_size,
                sampling_rate: 1.0,
            });
        };
        told(64, 1_024);
        assert_eq!(in_force(), (8, 1_024));
        told(3, u64::MAX);
        assert_eq!(in_force(), (3, 4_096));
        limits.set_bus_limit(2_000);
        assert_eq!(
            (shared.payload_limit(true).bytes, shared.payload_limit(false).bytes),
            (2_000, 4_096)
        );
        limits.set_bus_limit(5_000);
        assert_eq!(shared.payload_limit(true).bytes, 4_096);
    }
}
