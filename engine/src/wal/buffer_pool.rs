//! Buffer pool for whole segments: to allocate and clear 64 MiB for each one costs as much as to check them.
//!
//! # Invariants
//!
//! - Bytes that are lent out do not change until the last of their holders lets go.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

/// Free buffers.
#[derive(Debug, Default)]
pub(super) struct BufferPool(Arc<Mutex<Vec<Vec<u8>>>>);

impl BufferPool {
    /// At least `len` bytes, whatever is in them.
    pub(super) fn take(&self, len: usize) -> Vec<u8> {
        let used = self.0.lock().pop().filter(|used| used.len() >= len);
        used.unwrap_or_else(|| vec![0; len])
    }

    /// Gives back what nobody holds.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    /// The first `len` bytes of a buffer, to be held by many; the buffer comes back when none does.
    pub(super) fn lend(&self, buffer: Vec<u8>, len: usize) -> Bytes {
        let home = Arc::downgrade(&self.0);
        Bytes::from_owner(PooledBuffer { buffer, len, home })
    }
}

struct PooledBuffer {
    buffer: Vec<u8>,
    len: usize,
    home: Weak<Mutex<Vec<Vec<u8>>>>,
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.lock().push(std::mem::take(&mut self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_with_the_last_of_its_holders() {
        let pool = BufferPool::default();
        let buffer = pool.take(100);
        let at = buffer.as_ptr();
        let whole = pool.lend(buffer, 60);
        let part = whole.slice(10..20);
        assert_eq!((whole.len(), pool.0.lock().len()), (60, 0));
        drop(whole);
        assert_eq!(pool.0.lock().len(), 0, "a part of it is held");
        drop(part);
        let again = pool.take(50);
        assert_eq!(again.as_ptr(), at);
        assert_eq!(pool.take(50).len(), 50, "nothing is left");
        drop(pool.lend(vec![0; 10], 10));
        assert!(pool.take(11).len() >= 11, "the one that came back is too small");
    }
}
