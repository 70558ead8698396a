//! How the publication of the catalogue goes, for `/metrics` and whoever asks.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// What the publisher's thread tells others.
#[derive(Debug, Default)]
pub(crate) struct PublicationStatus {
    failures: AtomicU64,
    /// Why the last attempt failed; none if it did not.
    issue: Mutex<Option<String>>,
}

impl PublicationStatus {
    /// Attempts that failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Why the last attempt failed, if it did.
    pub(crate) fn issue(&self) -> Option<String> {
        self.issue.lock().clone()
    }

    pub(super) fn succeed(&self) {
        *self.issue.lock() = None;
    }

    /// Counts an attempt that failed. Whether the one before did not, or failed for another reason.
    pub(super) fn fail(&self, reason: &str) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let before = self.issue.lock().replace(reason.to_owned());
        before.as_deref() != Some(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_of_failures_in_a_row_is_told_once_and_each_failure_counted() {
        let status = PublicationStatus::default();
        assert_eq!(
            ["away", "away", "gone", "gone"].map(|reason| status.fail(reason)),
            [true, false, true, false]
        );
        assert_eq!((status.failures(), status.issue().as_deref()), (4, Some("gone")));
        status.succeed();
        assert_eq!((status.failures(), status.issue()), (4, None));
        assert!(status.fail("gone"));
    }
}
