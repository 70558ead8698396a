//! Signs of life (PINGREQ) and the watch over the broker's.
//!
//! # Invariants
//!
//! - A broker from which nothing comes for two and a half times what was agreed is given up; time in which the gear does not read does
//!   not count.

use std::time::Duration;

use tokio::time::Instant;

use super::packet_writer;

/// When a sign of life is due, and whether the broker gives any.
#[derive(Debug)]
pub(crate) struct KeepAlive {
    /// Half of what was agreed.
    every: Duration,
    next: Instant,
    /// The signs of life since the broker was heard.
    unheard: u8,
}

/// Signs of life without an answer; when the next one is due, after two and a half times what was agreed, the broker is given up.
const MOST_UNHEARD: u8 = 4;

impl KeepAlive {
    pub(super) fn new(agreed: Duration) -> Self {
        Self {
            every: agreed / 2,
            next: Instant::now() + agreed / 2,
            unheard: 0,
        }
    }

    /// Resolves when a sign of life is due.
    pub(crate) async fn ping_due(&self) {
        tokio::time::sleep_until(self.next).await;
    }

    /// Something came, or nobody listened.
    pub(crate) const fn heard(&mut self) {
        self.unheard = 0;
    }

    /// Writes a sign of life; in words why the broker is given up.
    pub(crate) fn ping(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        self.next = Instant::now() + self.every;
        if self.unheard >= MOST_UNHEARD {
            return Err("the broker does not answer pings".to_owned());
        }
        self.unheard += 1;
        packet_writer::ping(out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_broker_is_given_up_when_it_answers_no_sign_of_life_for_two_and_a_half_times_what_was_agreed() {
        let (mut keep_alive, mut out) = (KeepAlive::new(Duration::from_secs(60)), Vec::new());
        for _ in 0..3 {
            keep_alive.ping(&mut out).unwrap();
        }
        keep_alive.heard();
        for _ in 0..4 {
            keep_alive.ping(&mut out).unwrap();
        }
        assert!(keep_alive.ping(&mut out).is_err());
    }
}
