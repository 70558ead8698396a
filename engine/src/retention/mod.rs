//! Retention: whole closed partitions are removed, oldest first, by age or by the store's total size.
//!
//! ```text
//! plan (pure) ─> one catalogue record ─> swap the view ─> wait for the last view that holds a file
//!      ─> empty files take the place of the partition's, in one step ─> unlink
//!      ─> wait until readers from outside have passed on ─> the empty files out of the tree, empty folders
//! ```
//!
//! # Invariants
//!
//! - A partition goes whole: all its files in one record. It is closed: it has ended, and no row of it waits in memory.
//! - The record comes first. Whatever a crash leaves, in the tree or out of it, is unlinked at the next start; it is in no view.
//! - A view that holds a file finds it under its name. Rotation makes no query fail, and no reader from outside that lists
//!   the tree and opens what it found: see [`pending_delete`].
//! - A clock that jumped deletes nothing: see [`clock_guard`]. By age at most a quarter of the partitions go in one check.
//! - Watermarks and file numbers stay: what is gone is not stored again, and its names are not used again.
//!
//! # Not here
//!
//! Deciding when: the flusher asks at its ticks, because it knows which files are open.

pub(crate) mod clock_guard;
pub(crate) mod external_readers;
pub(crate) mod pending_delete;
mod preview;
#[cfg(test)]
mod tests;

use std::time::Duration;

use model::{Table, Timestamp};
use serde::Serialize;

use crate::manifest::FileEntry;
use crate::memtable::PartitionKey;
use crate::{ExportMode, RetentionPolicy, Settings};
pub use preview::{RetentionPreview, preview_rotation};
use std::collections::BTreeMap;

/// Why a partition goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RetentionReason {
    /// It ended longer than the greatest age ago.
    Age,
    /// The store is larger than allowed, and it is the oldest.
    Size,
}

/// A partition that went, or would go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartitionRemoval {
    /// Its table.
    pub table: Table,
    /// Its folder below the table's.
    pub partition: String,
    /// The first moment after it.
    pub end: Timestamp,
    /// Its data files.
    pub files: u64,
    /// Their rows.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Why.
    pub reason: RetentionReason,
}

/// What a check did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RetentionRun {
    /// When, by the clock.
    pub at: Timestamp,
    /// What went.
    pub removed: Vec<PartitionRemoval>,
    /// More is too old, and waits for the next check.
    pub more: bool,
    /// Why nothing goes by the clock's word just now.
    pub held: Option<String>,
}

/// What rotation did since the store was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RetentionHistory {
    /// The last check.
    pub last: Option<RetentionRun>,
    /// The last check by which something went.
    pub last_removal: Option<RetentionRun>,
}

/// A partition in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RetentionCandidate {
    pub(crate) place: PartitionKey,
    pub(crate) ids: Vec<u64>,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// Bytes of the indexes of its files, which go with them.
    pub(crate) index_bytes: u64,
    /// Whether it takes no more rows and no thread works on its files.
    pub(crate) closed: bool,
}

impl RetentionCandidate {
    const fn all_bytes(&self) -> u64 {
        self.bytes + self.index_bytes
    }

    pub(crate) fn removal(&self, reason: RetentionReason) -> PartitionRemoval {
        PartitionRemoval {
            table: self.place.0,
            partition: self.place.1.to_string(),
            end: self.place.1.end(),
            files: self.ids.len() as u64,
            rows: self.rows,
            bytes: self.bytes,
            reason,
        }
    }
}

/// The partitions that go, oldest first. `now` is a time that can be relied on; `other_bytes` count against the size too and
/// do not go.
pub(crate) fn plan(
    mut all: Vec<RetentionCandidate>,
    settings: &Settings,
    now: Timestamp,
    other_bytes: u64,
) -> Vec<(RetentionCandidate, RetentionReason)> {
    let by_age = settings.rotation.policy != RetentionPolicy::Size;
    let by_size = settings.rotation.policy != RetentionPolicy::Time;
    let mut total = other_bytes.saturating_add(all.iter().map(RetentionCandidate::all_bytes).sum());
    all.retain(|candidate| candidate.closed);
    all.sort_by_key(|candidate| (candidate.place.1.end(), candidate.place));
    let mut gone = Vec::new();
    for candidate in all {
        let reason = if by_age && candidate.place.1.end().plus(settings.max_age) <= now {
            RetentionReason::Age
        } else if by_size && total > settings.rotation.max_size.get() {
            RetentionReason::Size
        } else {
            continue;
        };
        total = total.saturating_sub(candidate.all_bytes());
        gone.push((candidate, reason));
    }
    gone
}

/// What a log of so many bytes counts by size. As the queue of an export it counts nothing: it has a bound of its own, and a
/// collector that is away must not cost what is stored.
pub(crate) const fn counted_log(settings: &Settings, bytes: u64) -> u64 {
    if matches!(settings.export, ExportMode::Off) {
        bytes
    } else {
        0
    }
}

/// Keeps of what goes by age only the oldest, at most a quarter of `partitions` and at least one. Whether that was less.
pub(crate) fn cap(planned: &mut Vec<(RetentionCandidate, RetentionReason)>, partitions: usize) -> bool {
    let most = partitions.div_ceil(4).max(1);
    let before = planned.len();
    let mut aged = 0;
    planned.retain(|(_, reason)| {
        aged += usize::from(*reason == RetentionReason::Age);
        *reason == RetentionReason::Size || aged <= most
    });
    planned.len() < before
}

/// The partitions of these files. One is closed when it has ended, its files are not in work, and it has no rows waiting.
/// `about` says of a file whether somebody works on it, and the bytes of its index.
pub(crate) fn gather(
    entries: &[FileEntry],
    now: Timestamp,
    grace: Duration,
    about: impl Fn(&FileEntry) -> (bool, u64),
    has_rows: impl Fn(PartitionKey) -> bool,
) -> Vec<RetentionCandidate> {
    let mut places: BTreeMap<PartitionKey, RetentionCandidate> = BTreeMap::new();
    for entry in entries {
        let place = entry.place();
        let candidate = places.entry(place).or_insert_with(|| RetentionCandidate {
            place,
            ids: Vec::new(),
            rows: 0,
            bytes: 0,
            index_bytes: 0,
            closed: place.1.end().plus(grace) <= now && !has_rows(place),
        });
        candidate.ids.push(entry.id);
        candidate.rows += entry.rows;
        candidate.bytes += entry.size;
        let (in_work, index_bytes) = about(entry);
        candidate.index_bytes += index_bytes;
        candidate.closed &= !in_work;
    }
    places.into_values().collect()
}
