//! Monotonic issue times of commands, whatever the clock does.
//!
//! A Rack refuses a command that is older than the last one of its kind. Was that one sent while the Mixer's clock was a day
//! ahead, every command of the next day would be refused.
//!
//! # Invariants
//!
//! - No two commands have one time, and none has an earlier one than any before it, over restarts too: the registry has a mark
//!   that no time given out is behind.
//! - Times are the clock's while that grows; a mark is [`AHEAD`] of it, so that not every command is a write.

use std::sync::Arc;
use std::time::Duration;

use model::{Clock, Timestamp};
use tokio::sync::Mutex;

use crate::registry::{ClusterRegistry, RegistryError};

/// How far a mark is ahead of the time that made it necessary.
const AHEAD: Duration = Duration::from_secs(10);

/// Gives out times of commands.
#[derive(Debug)]
pub(crate) struct CommandClock {
    registry: Arc<ClusterRegistry>,
    clock: Clock,
    watermarks: Mutex<ClockWatermarks>,
}

#[derive(Debug)]
struct ClockWatermarks {
    last: Timestamp,
    durable: Timestamp,
}

impl CommandClock {
    pub(crate) fn open(registry: Arc<ClusterRegistry>, clock: Clock) -> Result<Self, RegistryError> {
        let mark = registry.issued()?.unwrap_or(Timestamp::from_micros(0));
        Ok(Self {
            registry,
            clock,
            watermarks: Mutex::new(ClockWatermarks {
                last: mark,
                durable: mark,
            }),
        })
    }

    /// The time of the next command.
    pub(crate) async fn next(&self) -> Result<Timestamp, RegistryError> {
        let mut marks = self.watermarks.lock().await;
        let next = self.clock.now().max(marks.last.plus(Duration::from_micros(1)));
        if next > marks.durable {
            let mark = next.plus(AHEAD);
            self.registry.commit(move |change| change.set_issued(mark)).await?;
            marks.durable = mark;
        }
        marks.last = next;
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::testing::Hand;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[tokio::test]
    async fn command_times_grow_over_a_clock_step_back_and_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Arc::new(ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap());
        let ahead = Hand::new();
        ahead.forward(DAY);
        let mut last = Timestamp::from_micros(0);
        for hand in [ahead, Hand::new(), Hand::new()] {
            let issuer = CommandClock::open(Arc::clone(&registry), hand.clock()).unwrap();
            for _ in 0..100 {
                let next = issuer.next().await.unwrap();
                assert!(next > last, "{next} after {last}");
                last = next;
            }
            assert!(
                last < hand.clock().now().plus(DAY + AHEAD * 3),
                "no further ahead than it must be"
            );
        }
        let right = Hand::new();
        right.forward(DAY * 2);
        let issuer = CommandClock::open(registry, right.clock()).unwrap();
        assert_eq!(
            issuer.next().await.unwrap(),
            right.clock().now(),
            "the clock's own where it may be"
        );
    }
}
