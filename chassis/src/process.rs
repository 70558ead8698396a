//! The process's own clock and entropy. Only `main` calls these; everything below receives the values.

use std::time::SystemTime;

use model::{Clock, Entropy};

/// The operating system's wall clock.
#[must_use]
pub fn system_clock() -> Clock {
    Clock::new(|| SystemTime::now().into())
}

/// The operating system's random bytes.
#[must_use]
pub fn os_entropy() -> Entropy {
    Entropy::new(|bytes| {
        if getrandom::fill(bytes).is_err() {
            // Guessable ids and keys would be worse than no process.
            std::process::abort();
        }
    })
}
