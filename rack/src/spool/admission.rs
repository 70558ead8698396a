//! Admission control of the spool: producers reserve bytes before they hand something over. Where the spool may drop, only those do that
//! can be told to come again.
//!
//! # Invariants
//!
//! - Checkpoints alone reserve nothing and are always admitted: consumption never waits for production.
//! - Producers are admitted up to seven eighths of the bound, consumers up to all of it: gears that take from the bus do not wait behind
//!   sources. What a source sends through such a gear has their share as well.
//! - Letters about records of senders are admitted while what waits is at most an eighth with them: what strangers send wrong takes no room
//!   from messages.
//! - What is larger than its share is admitted alone, unless it is such letters.
//! - Within a class, whoever waits first is admitted first.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

/// Who hands something over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdmissionClass {
    /// A gear that no guaranteed wire leads to: a source, and what only sources feed.
    Producer,
    /// A gear that one leads to, over hot wires as well.
    Consumer,
    /// Letters about what a sender of telemetry gave, which nobody waits with.
    SenderLetters,
}

/// See the module.
#[derive(Debug)]
pub(super) struct AdmissionControl {
    max_bytes: u64,
    /// Reserved, and not yet on disk.
    reserved: Mutex<u64>,
    producers: AsyncMutex<()>,
    consumers: AsyncMutex<()>,
    has_warned: AtomicBool,
}

impl AdmissionControl {
    pub(super) fn new(max_bytes: u64) -> Self {
        Self {
            max_bytes,
            reserved: Mutex::default(),
            producers: AsyncMutex::default(),
            consumers: AsyncMutex::default(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// A producer waits: logged once until there is room again.
    pub(super) fn warn_full(&self) {
        if !self.has_warned.swap(true, Relaxed) {
            tracing::warn!("the spool is full and may not drop: gears wait until the Mixer has stored more of it");
        }
    }

    /// Somebody was admitted: logged if it was full before.
    pub(super) fn reset_full_warning(&self) {
        if self.has_warned.swap(false, Relaxed) {
            tracing::info!("the spool has room again");
        }
    }

    /// The queue of a class.
    pub(super) const fn queue(&self, class: AdmissionClass) -> &AsyncMutex<()> {
        match class {
            AdmissionClass::Producer | AdmissionClass::SenderLetters => &self.producers,
            AdmissionClass::Consumer => &self.consumers,
        }
    }

    /// Reserves bytes beside those on disk that the Mixer does not have.
    pub(super) fn try_reserve(&self, bytes: u64, on_disk: impl FnOnce() -> u64, class: AdmissionClass) -> bool {
        let mut reserved = self.reserved.lock();
        let used = on_disk() + *reserved;
        let is_admitted = used + bytes <= self.limit(class) || (used == 0 && class != AdmissionClass::SenderLetters);
        if is_admitted {
            *reserved += bytes;
        }
        is_admitted
    }

    /// The share of a class, in bytes.
    pub(super) const fn limit(&self, class: AdmissionClass) -> u64 {
        match class {
            AdmissionClass::Producer => self.max_bytes / 8 * 7,
            AdmissionClass::Consumer => self.max_bytes,
            AdmissionClass::SenderLetters => self.max_bytes / 8,
        }
    }

    /// Gives bytes back: they are on disk, or never will be.
    pub(super) fn release(&self, bytes: u64) {
        let mut reserved = self.reserved.lock();
        *reserved = reserved.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producers_leave_a_share_to_consumers_and_what_is_too_large_is_admitted_alone() {
        let control = AdmissionControl::new(800);
        let admits = |bytes, on_disk, class| {
            let is_admitted = control.try_reserve(bytes, || on_disk, class);
            if is_admitted {
                control.release(bytes);
            }
            is_admitted
        };
        assert!(admits(700, 0, AdmissionClass::Producer) && admits(100, 600, AdmissionClass::Producer));
        assert!(!admits(101, 600, AdmissionClass::Producer) && admits(200, 600, AdmissionClass::Consumer));
        assert!(!admits(201, 600, AdmissionClass::Consumer));
        assert!(admits(60, 40, AdmissionClass::SenderLetters) && !admits(60, 41, AdmissionClass::SenderLetters));
        assert!(!admits(101, 0, AdmissionClass::SenderLetters));
        assert!(admits(5_000, 0, AdmissionClass::Producer) && !admits(5_000, 1, AdmissionClass::Consumer));
        assert!(control.try_reserve(300, || 0, AdmissionClass::Producer));
        assert!(!admits(401, 0, AdmissionClass::Producer), "what is reserved counts");
    }
}
