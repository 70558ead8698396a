//! Exponential back-off with jitter, as long as something is tried again, and waits that end with the process.

use std::time::Duration;

use model::Entropy;
use tokio_util::sync::CancellationToken;

/// The longest wait of our own accord.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Waits that double up to [`MAX_PAUSE`], each by chance a half shorter at most.
#[derive(Debug)]
pub(super) struct RetryPause {
    next: Duration,
}

impl RetryPause {
    pub(super) const fn beginning_with(first: Duration) -> Self {
        Self { next: first }
    }

    pub(super) fn next(&mut self, entropy: &Entropy) -> Duration {
        let full = self.next.min(MAX_PAUSE);
        self.next = full.saturating_mul(2);
        let [by_chance] = entropy.bytes::<1>();
        full - full / 2 * u32::from(by_chance) / 255
    }
}

/// The process ends.
#[derive(Debug)]
pub(super) struct ExportStopped;

/// Waits, unless the process ends.
pub(super) async fn wait(pause: Duration, stop: &CancellationToken) -> Result<(), ExportStopped> {
    tokio::select! {
        () = stop.cancelled() => Err(ExportStopped),
        () = tokio::time::sleep(pause) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_and_are_a_half_shorter_at_most() {
        for (byte, wanted) in [
            (0, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]),
            (255, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]),
        ] {
            let entropy = Entropy::new(move |bytes| bytes.fill(byte));
            let mut pause = RetryPause::beginning_with(Duration::from_secs(1));
            assert_eq!(wanted.map(|_| pause.next(&entropy).as_millis()), wanted);
        }
    }
}
