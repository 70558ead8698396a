//! A snapshot: an immutable view of the rows in memory and the data files, as a query reads it.
//!
//! ```text
//! committer ──┐                          ┌─> ReadView of query A (holds its snapshot to its end)
//! flusher ────┴─> Snapshot, swapped whole ┴─> ReadView of query B
//! ```
//!
//! # Invariants
//!
//! - Every acknowledged row is in a snapshot exactly once: in a hot batch or in a file, never in both.
//! - A snapshot never changes. The files that it names stay readable in the versions that it names, for as long as it is held.
//!
//! # Not here
//!
//! How the bytes of a version are found after its name was given to another file: [`crate::data_file_handle`].

use std::fmt;
use std::sync::Arc;

use model::Table;

use crate::HotBatch;
use crate::data_file_handle::DataFileHandle;

/// Why answers are partial. It is sent with every answer: the first reason and how many more there are, however many files
/// are damaged.
#[derive(Debug, Default)]
pub(crate) struct PartialReason {
    first: Option<Arc<str>>,
    more: u64,
    text: Option<Arc<str>>,
}

impl PartialReason {
    pub(crate) fn add(&mut self, reason: &str) {
        let text = if let Some(first) = &self.first {
            self.more += 1;
            format!("{first}; and {} more, see the log", self.more).into()
        } else {
            let first = Arc::<str>::from(reason);
            self.first = Some(Arc::clone(&first));
            first
        };
        self.text = Some(text);
    }

    pub(crate) fn text(&self) -> Option<Arc<str>> {
        self.text.clone()
    }
}

impl<'a> FromIterator<&'a String> for PartialReason {
    fn from_iter<I: IntoIterator<Item = &'a String>>(reasons: I) -> Self {
        let mut all = Self::default();
        reasons.into_iter().for_each(|reason| all.add(reason));
        all
    }
}

/// One state of the store, as queries see it.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreSnapshot {
    pub(crate) version: u64,
    /// Grows with every change of the set of sealed files, and with nothing else.
    pub(crate) sealed_changes: u64,
    pub(crate) hot: [Arc<Vec<Arc<HotBatch>>>; Table::ALL.len()],
    pub(crate) files: [Arc<Vec<Arc<DataFileHandle>>>; Table::ALL.len()],
    pub(crate) partial: Option<Arc<str>>,
}

/// A table's place in arrays over all tables.
pub(crate) const fn table_index(table: Table) -> usize {
    table.number() as usize - 1
}

/// An immutable snapshot of the store; a clone is the same snapshot. Hold one from a query's start to its end, not longer:
/// it keeps memory and displaced files alive.
#[derive(Clone)]
pub struct ReadView(Arc<StoreSnapshot>);

impl ReadView {
    pub(crate) const fn new(snapshot: Arc<StoreSnapshot>) -> Self {
        Self(snapshot)
    }

    /// The rows of `table` that are in no data file yet, in no order.
    #[must_use]
    pub fn hot(&self, table: Table) -> &[Arc<HotBatch>] {
        &self.0.hot[table_index(table)]
    }

    /// The data files of `table`, ordered by partition and number.
    #[must_use]
    pub fn files(&self, table: Table) -> &[Arc<DataFileHandle>] {
        &self.0.files[table_index(table)]
    }

    /// Grows with every change of the store's content.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.version
    }

    pub(crate) fn sealed_changes(&self) -> u64 {
        self.0.sealed_changes
    }

    /// Why answers from this view lack rows, if they do: a file was found damaged and quarantined.
    #[must_use]
    pub fn partial(&self) -> Option<&str> {
        self.0.partial.as_deref()
    }
}

impl fmt::Debug for ReadView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadView")
            .field("version", &self.0.version)
            .field("files", &Table::ALL.map(|table| self.files(table).len()))
            .finish_non_exhaustive()
    }
}
