//! Rate limiter of the log lines about what a collector refuses or warns of, for one signal.

use std::time::Duration;

use model::Timestamp;

/// Dead letters are told of so often at most.
const PAUSE: Duration = Duration::from_secs(60);

/// What was said, and what was not.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    said: Option<Timestamp>,
    unsaid: u64,
    warning: String,
}

impl RefusalLog {
    /// Counts a dead letter; how many there were since the last line, if it is time for the next.
    pub(super) fn count_letter(&mut self, now: Timestamp) -> Option<u64> {
        self.unsaid += 1;
        // Also after the clock was set back.
        if self.said.is_some_and(|at| now >= at && now.since(at) < PAUSE) {
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }

    /// Whether a warning that came with an acceptance is another one than the last.
    pub(super) fn is_news(&mut self, warning: &str) -> bool {
        let is_news = !warning.is_empty() && self.warning != warning;
        if is_news {
            warning.clone_into(&mut self.warning);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letters_are_told_of_once_a_minute_with_their_number() {
        let (mut log, begin) = (RefusalLog::default(), Timestamp::from_micros(1_800_000_000_000_000));
        let told: Vec<_> = [0, 1, 59, 60, 61, 200]
            .into_iter()
            .map(|seconds| log.count_letter(begin.plus(Duration::from_secs(seconds))))
            .collect();
        assert_eq!(told, [Some(1), None, None, Some(3), None, Some(2)]);
        assert_eq!(log.count_letter(begin), Some(1), "the clock was set back");
    }

    #[test]
    fn a_warning_is_told_when_its_text_changes() {
        let mut log = RefusalLog::default();
        let told = ["", "old", "old", "", "old", "new"].map(|warning| log.is_news(warning));
        assert_eq!(told, [false, true, false, false, false, true]);
    }
}
