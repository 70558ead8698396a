//! The process's own clock and entropy. Only `main` calls these; everything below receives the values.

use std::cell::RefCell;
use std::time::SystemTime;

use model::{Clock, Entropy};

/// The operating system's wall clock.
#[must_use]
pub fn system_clock() -> Clock {
    Clock::new(|| SystemTime::now().into())
}

/// The operating system's random bytes, read ahead by each thread: a call of the system costs more than the id of a span is worth.
#[must_use]
pub fn os_entropy() -> Entropy {
    thread_local! {
        /// Each byte is given once; those behind the position are unused.
        static AHEAD: RefCell<([u8; 512], usize)> = const { RefCell::new(([0; 512], 512)) };
    }
    Entropy::new(|bytes| {
        AHEAD.with_borrow_mut(|(ahead, at)| {
            if *at + bytes.len() > ahead.len() {
                fill(ahead);
                *at = 0;
            }
            if let Some(unused) = ahead.get_mut(*at..*at + bytes.len()) {
                bytes.copy_from_slice(unused);
                unused.fill(0);
                *at += bytes.len();
            } else {
                fill(bytes);
            }
        });
    })
}

fn fill(bytes: &mut [u8]) {
    if getrandom::fill(bytes).is_err() {
        // Guessable ids and keys would be worse than no process.
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_random_bytes_come_twice() {
        let entropy = os_entropy();
        let small: BTreeSet<[u8; 10]> = (0..1_000).map(|_| entropy.bytes()).collect();
        assert_eq!(small.len(), 1_000);
        let large: BTreeSet<[u8; 600]> = (0..10).map(|_| entropy.bytes()).collect();
        assert_eq!(large.len(), 10);
        assert!(!small.contains(&[0; 10]));
    }
}
