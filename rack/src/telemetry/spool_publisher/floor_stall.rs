//! Detects a durable floor that stands still although the bus has acknowledged more.
//!
//! # Invariants
//!
//! - Only the Mixer's own words count: while it says nothing, or the bus is away, the floor does not stand still.
//! - Each fruitless resend doubles the wait, up to [`MAX_WAIT`]; any progress resets it.

use std::time::Duration;

use tokio::time::Instant;

use crate::spool::ProducerRun;

/// The longest wait between two resends.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// See the module.
pub(super) struct FloorStallDetector {
    /// The wait before the first resend.
    first_wait: Duration,
    wait: Duration,
    since: Instant,
    heard: u64,
    /// The first run with something above its floor, and the floor.
    waiting: Option<(ProducerRun, u64)>,
}

/// What is known at one look.
pub(super) struct FloorObservation {
    pub(super) is_connected: bool,
    /// How often the Mixer has reported floors.
    pub(super) heard: u64,
    pub(super) waiting: Option<(ProducerRun, u64)>,
    /// The last entry that the bus acknowledged.
    pub(super) acknowledged: Option<(ProducerRun, u64)>,
}

impl FloorObservation {
    fn bus_has_more(&self) -> bool {
        let (Some((waiting, floor)), Some((run, seq))) = (self.waiting, self.acknowledged) else {
            return false;
        };
        run.epoch > waiting.epoch || (run == waiting && seq > floor)
    }
}

impl FloorStallDetector {
    pub(super) fn new(first_wait: Duration) -> Self {
        Self {
            first_wait,
            wait: first_wait,
            since: Instant::now(),
            heard: 0,
            waiting: None,
        }
    }

    /// Whether everything above the floor is to be sent again now.
    pub(super) fn detect_stall(&mut self, now: &FloorObservation) -> bool {
        let is_same = now.waiting == self.waiting && now.is_connected;
        if !is_same {
            self.waiting = now.waiting;
            self.wait = self.first_wait;
        }
        if !is_same || !now.bus_has_more() {
            self.since = Instant::now();
            self.heard = now.heard;
            return false;
        }
        if self.since.elapsed() < self.wait || now.heard == self.heard {
            return false;
        }
        self.since = Instant::now();
        self.heard = now.heard;
        self.wait = (self.wait * 2).min(MAX_WAIT);
        true
    }
}

#[cfg(test)]
mod tests {
    use model::EntityId;

    use super::*;

    fn run(epoch: u64) -> ProducerRun {
        ProducerRun {
            entity: EntityId::for_name("rack-a"),
            epoch,
        }
    }

    const fn state(
        heard: u64,
        waiting: Option<(ProducerRun, u64)>,
        acknowledged: Option<(ProducerRun, u64)>,
    ) -> FloorObservation {
        FloorObservation {
            is_connected: true,
            heard,
            waiting,
            acknowledged,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_floor_that_stands_still_below_what_the_bus_has_stalls_and_ever_more_rarely() {
        let mut watch = FloorStallDetector::new(Duration::from_secs(30));
        let mut stalls = Vec::new();
        for second in 0..400 {
            if watch.detect_stall(&state(second, Some((run(1), 7)), Some((run(1), 9)))) {
                stalls.push(second);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(stalls, [30, 90, 210]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_floor_does_not_stall_while_the_mixer_is_silent_or_the_bus_has_no_more() {
        let mut watch = FloorStallDetector::new(Duration::from_secs(30));
        for (heard, waiting, acknowledged) in [
            (5, Some((run(1), 7)), Some((run(1), 9))),
            (6, Some((run(1), 7)), Some((run(1), 7))),
            (7, Some((run(3), 7)), Some((run(1), 9))),
            (8, None, Some((run(1), 9))),
        ] {
            for _ in 0..100 {
                assert!(!watch.detect_stall(&state(heard, waiting, acknowledged)), "{heard}");
                tokio::time::advance(Duration::from_secs(1)).await;
            }
        }
    }
}
