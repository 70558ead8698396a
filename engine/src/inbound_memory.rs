//! Admission control: limits the memory of incoming bodies and messages, shared by everything that receives them.
//!
//! ```text
//! body ──▶ its decoded rows ──▶ hot rows ──▶ flusher      each stage waits only for those to its right
//! message, decoded ────────────▶                the disk alone
//! ```
//!
//! # Invariants
//!
//! - No stage waits for one to its left. Publishing, sealing and indexing take none of this memory, so hot rows leave, appends
//!   continue, and whatever is on its way finishes.
//! - Bodies take nothing from the share of bus messages: clients that send slowly do not delay a Rack's telemetry.
//! - Several holders that each wait for more of a share would deadlock. So one of them at a time may exceed the share without
//!   waiting, until it needs no more than what it holds within the share. In this way a request that is larger than the share
//!   passes, alone. What one holder has within the share may be bounded, too ([`InboundMemory::with_each`]): then no one fills it.
//! - Together they hold at most the share, plus what that one holder takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory is counted in this unit.
const UNIT: u64 = 1 << 10;

/// The shares of those who take in what is to be appended.
#[derive(Debug)]
pub struct InboundShares {
    /// For bodies over HTTP.
    pub bodies: InboundMemory,
    /// For messages from the bus, by what they take once decoded.
    pub messages: InboundMemory,
    /// For what is decoded of bodies, part by part.
    pub decoding: InboundMemory,
}

impl InboundShares {
    /// A half of it for bodies and a half for messages, and as much again for what is decoded.
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            bodies: InboundMemory::with_each(bytes / 2, bytes / 4),
            messages: InboundMemory::new(bytes / 2),
            decoding: InboundMemory::new(bytes),
        }
    }

    /// What all hold now.
    pub(crate) fn held(&self) -> u64 {
        self.bodies.held() + self.messages.held() + self.decoding.held()
    }
}

/// Memory that many take some of, in bytes.
#[derive(Debug, Clone)]
pub struct InboundMemory {
    share: Arc<Semaphore>,
    units: u32,
    /// Of the share one holder has at most so many.
    each: u32,
    beyond: Arc<Semaphore>,
    held: Arc<AtomicU64>,
}

/// What a body or a message holds; given back when it is dropped.
#[derive(Debug)]
pub struct InboundRoom {
    memory: InboundMemory,
    bytes: u64,
    share: Option<OwnedSemaphorePermit>,
    beyond: Option<OwnedSemaphorePermit>,
}

impl InboundMemory {
    /// All of it free.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self::with_each(bytes, bytes)
    }

    /// All of it free; one holder has at most so many bytes within the share.
    #[must_use]
    pub fn with_each(bytes: u64, each: u64) -> Self {
        let units_of = |bytes| units(bytes).min(u32::MAX >> 3);
        let units = units_of(bytes);
        Self {
            share: Arc::new(Semaphore::new(units as usize)),
            units,
            each: units_of(each),
            beyond: Arc::new(Semaphore::new(1)),
            held: Arc::default(),
        }
    }

    /// Nothing yet.
    #[must_use]
    pub fn room(&self) -> InboundRoom {
        InboundRoom {
            memory: self.clone(),
            bytes: 0,
            share: None,
            beyond: None,
        }
    }

    /// Another one, with three eighths of this one's share: for one of those who share it. With a holder beyond it, who has half of the share at
    /// most, it leaves an eighth to others.
    #[must_use]
    pub fn part(&self) -> Self {
        Self::new(u64::from(self.units) * UNIT / 8 * 3)
    }

    /// What all hold now.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

impl InboundRoom {
    /// How many it has taken.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes so many bytes more, as soon as there are. A future that is dropped has taken nothing.
    pub async fn grow(&mut self, bytes: u64) {
        let wanted = units(self.bytes + bytes);
        let more = wanted.saturating_sub(self.units());
        if more > 0 && self.beyond.is_none() {
            let memory = &self.memory;
            tokio::select! {
                biased;
                // The semaphores are never closed.
                share = Arc::clone(&memory.share).acquire_many_owned(more), if wanted <= memory.each => {
                    if let Ok(more) = share {
                        self.merge(more);
                    }
                }
                beyond = Arc::clone(&memory.beyond).acquire_owned() => self.beyond = beyond.ok(),
            }
        }
        self.bytes += bytes;
        self.memory.held.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives back what it holds beyond so many bytes.
    pub fn shrink_to(&mut self, bytes: u64) {
        let spare = self.bytes.saturating_sub(bytes);
        self.bytes -= spare;
        self.memory.held.fetch_sub(spare, Ordering::Relaxed);
        let (needed, held) = (units(self.bytes), self.units());
        if needed <= held {
            self.beyond = None;
            let spare = self
                .share
                .as_mut()
                .and_then(|share| share.split((held - needed) as usize));
            drop(spare);
        } else if needed <= self.memory.each
            && let Ok(more) = Arc::clone(&self.memory.share).try_acquire_many_owned(needed - held)
        {
            // What is left of one that went beyond the share finds its place in it: the next one may go.
            self.merge(more);
            self.beyond = None;
        }
    }

    fn merge(&mut self, more: OwnedSemaphorePermit) {
        match &mut self.share {
            Some(held) => held.merge(more),
            none => *none = Some(more),
        }
    }

    /// Units of the share that it holds.
    fn units(&self) -> u32 {
        let held = self.share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        u32::try_from(held).unwrap_or(u32::MAX)
    }
}

impl Drop for InboundRoom {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const SHARE: u64 = 1 << 20;

    /// Whether it need not wait.
    fn takes(room: &mut InboundRoom, bytes: u64) -> bool {
        room.grow(bytes).now_or_never().is_some()
    }

    #[test]
    fn of_those_that_hold_some_and_want_more_one_goes_on_and_then_the_next() {
        let memory = InboundMemory::new(SHARE);
        let mut rooms = [memory.room(), memory.room(), memory.room()];
        for room in &mut rooms {
            assert!(takes(room, SHARE / 4));
        }
        let [first, second, third] = &mut rooms;
        assert!(takes(first, 2 * SHARE), "beyond the share");
        assert!(!takes(second, SHARE / 2) && !takes(third, SHARE / 2));
        first.shrink_to(SHARE / 4);
        assert!(takes(second, SHARE / 2) && !takes(third, SHARE / 2));
        assert_eq!(memory.held(), SHARE / 4 * 5);
        drop(rooms);
        assert_eq!(memory.held(), 0);
        assert!(takes(&mut memory.room(), SHARE));
    }

    #[test]
    fn one_that_is_larger_than_all_of_the_share_passes_alone() {
        let memory = InboundMemory::new(SHARE);
        let (mut large, mut other, mut small) = (memory.room(), memory.room(), memory.room());
        assert!(takes(&mut large, 64 * SHARE) && !takes(&mut other, 64 * SHARE));
        assert!(takes(&mut small, SHARE), "the share is for the others");
        drop(large);
        assert!(takes(&mut other, 64 * SHARE));
    }

    #[test]
    fn no_holder_has_more_than_its_part_of_the_share() {
        let memory = InboundMemory::with_each(SHARE, SHARE / 4);
        let (mut large, mut other) = (memory.room(), memory.room());
        assert!(takes(&mut large, SHARE / 4) && takes(&mut large, SHARE));
        assert!(!takes(&mut other, SHARE / 2), "one at a time goes beyond");
        let mut small = [memory.room(), memory.room(), memory.room()];
        for room in &mut small {
            assert!(takes(room, SHARE / 4), "the rest of the share is for the others");
        }
        large.shrink_to(SHARE);
        assert!(
            !takes(&mut other, SHARE / 2),
            "it does not move into what is free for others"
        );
        large.shrink_to(SHARE / 4);
        assert!(takes(&mut other, SHARE / 2));
    }

    #[test]
    fn an_oversized_request_that_shrank_admits_the_next_one() {
        let memory = InboundMemory::new(SHARE);
        let (mut first, mut next) = (memory.room(), memory.room());
        assert!(takes(&mut first, 4 * SHARE) && !takes(&mut next, 4 * SHARE));
        first.shrink_to(SHARE / 4);
        assert!(takes(&mut next, 4 * SHARE), "the first is within the share");
        assert!(takes(&mut memory.room(), SHARE / 4 * 3) && !takes(&mut memory.room(), SHARE));
        drop(first);
        assert!(takes(&mut memory.room(), SHARE));
    }

    #[test]
    fn what_is_given_back_is_there_for_others_and_a_wait_that_is_given_up_takes_nothing() {
        let memory = InboundMemory::new(SHARE);
        let (mut one, mut beyond, mut other) = (memory.room(), memory.room(), memory.room());
        assert!(takes(&mut one, SHARE) && takes(&mut beyond, SHARE));
        assert!(!takes(&mut other, SHARE / 2));
        assert_eq!(memory.held(), 2 * SHARE);
        one.shrink_to(SHARE / 2);
        assert!(takes(&mut other, SHARE / 2));
    }
}
