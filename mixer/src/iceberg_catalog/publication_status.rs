//! How the publication of the catalogue goes, for `/metrics` and whoever asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use iceberg::TableOverview;
use parking_lot::Mutex;

/// What the publisher's thread tells others.
#[derive(Debug, Default)]
pub(crate) struct PublicationStatus {
    failures: AtomicU64,
    state: Mutex<PublicationState>,
}

#[derive(Debug, Default)]
struct PublicationState {
    has_published: bool,
    /// Why the last attempt failed; none if it did not.
    issue: Option<String>,
    /// What was published last.
    tables: Arc<[TableOverview]>,
}

impl PublicationStatus {
    /// Attempts that failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Whether an attempt succeeded since the Mixer started.
    pub(crate) fn has_published(&self) -> bool {
        self.state.lock().has_published
    }

    /// Why the last attempt failed, if it did.
    pub(crate) fn issue(&self) -> Option<String> {
        self.state.lock().issue.clone()
    }

    /// What was published last.
    pub(crate) fn tables(&self) -> Arc<[TableOverview]> {
        Arc::clone(&self.state.lock().tables)
    }

    pub(super) fn succeed(&self, tables: Vec<TableOverview>) {
        *self.state.lock() = PublicationState {
            has_published: true,
            issue: None,
            tables: tables.into(),
        };
    }

    /// Counts an attempt that failed. Whether it is the first since one that did not.
    pub(super) fn fail(&self, reason: String) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.state.lock().issue.replace(reason).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_are_told_once_and_counted_each() {
        let status = PublicationStatus::default();
        assert!(!status.has_published());
        assert_eq!(
            ["away", "away", "gone"].map(|reason| status.fail(reason.to_owned())),
            [true, false, false]
        );
        assert_eq!((status.failures(), status.issue().as_deref()), (3, Some("gone")));
        status.succeed(Vec::new());
        assert_eq!(
            (status.failures(), status.issue(), status.has_published()),
            (3, None, true)
        );
        assert!(status.fail("away again".to_owned()));
    }
}
