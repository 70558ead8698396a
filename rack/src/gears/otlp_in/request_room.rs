//! Memory budget of requests: what bodies and their rows take, counted before it is held.
//!
//! # Invariants
//!
//! - All requests together hold at most [`TOTAL`] bytes, one at most [`MOST_OF_ONE`].
//! - Who finds no room does not wait for it: many that are here in part would wait for each other.

use std::sync::Arc;

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::export_refusal::ExportRefusal;

/// What all requests may hold.
const TOTAL: usize = 96 << 20;
/// What one request may hold: of the largest body twice its text, which arrives in a buffer that grows; of JSON its protobuf; its rows.
const MOST_OF_ONE: usize = 80 << 20;
/// What is counted at a time.
const UNIT: usize = 1 << 10;

/// The budget of a gear.
#[derive(Debug, Clone)]
pub(super) struct RequestMemory(Arc<Semaphore>);

impl RequestMemory {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(TOTAL / UNIT)))
    }

    /// A room in which nothing is yet.
    pub(super) fn room(&self) -> RequestRoom {
        RequestRoom {
            all: Arc::clone(&self.0),
            bytes: 0,
            held: None,
        }
    }
}

/// What one request holds; given back when it is dropped.
#[derive(Debug)]
pub(super) struct RequestRoom {
    all: Arc<Semaphore>,
    bytes: usize,
    held: Option<OwnedSemaphorePermit>,
}

impl RequestRoom {
    /// Takes room for so many bytes more.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), ExportRefusal> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MOST_OF_ONE {
            let detail =
                format!("the request takes more than {MOST_OF_ONE} bytes of memory: send fewer records at once");
            return Err(ExportRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
        }
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = self.bytes.div_ceil(UNIT).saturating_sub(held);
        if more == 0 {
            return Ok(());
        }
        let taken = Arc::clone(&self.all).try_acquire_many_owned(u32::try_from(more).unwrap_or(u32::MAX));
        let busy =
            |_| ExportRefusal::busy("earlier requests hold the memory for requests; nothing of this one is stored");
        let taken = taken.map_err(busy)?;
        match &mut self.held {
            Some(held) => held.merge(taken),
            None => self.held = Some(taken),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn who_finds_no_room_is_told_to_come_again_and_who_never_will_to_send_less() {
        let memory = RequestMemory::new();
        let (mut first, mut second) = (memory.room(), memory.room());
        first.grow(MOST_OF_ONE).unwrap();
        second.grow(TOTAL - MOST_OF_ONE).unwrap();
        let refused = second.grow(UNIT).unwrap_err();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(first.grow(1).unwrap_err().status, StatusCode::PAYLOAD_TOO_LARGE);
        drop(first);
        second.grow(UNIT).unwrap();
    }

    #[test]
    fn small_pieces_are_counted_by_their_bytes() {
        let memory = RequestMemory::new();
        let mut room = memory.room();
        (0..UNIT * 3).for_each(|_| room.grow(1).unwrap());
        assert_eq!(room.held.as_ref().map(OwnedSemaphorePermit::num_permits), Some(3));
    }
}
