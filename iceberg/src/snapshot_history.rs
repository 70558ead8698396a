//! Which snapshots a table keeps, and what is said of each.
//!
//! # Invariants
//!
//! - The current snapshot is kept. An earlier one is kept for a time that begins when the next one took its place: who planned a
//!   scan of it a moment before has all of that time.
//! - What is kept follows from the metadata and the time alone.

use std::collections::BTreeMap;
use std::time::Duration;

use model::Timestamp;

use crate::day_manifests::FileChanges;
use crate::table_files::TableFiles;
use crate::table_metadata::{TOTAL_FILES, TOTAL_ROWS, TableSnapshot};

/// Snapshots of a table, at most.
pub(crate) const KEPT_SNAPSHOTS: usize = 100;
/// Earlier versions of the metadata that the newest one names.
pub(crate) const KEPT_VERSIONS: usize = 10;
/// What a snapshot's summary has as the latest `ts` of its rows.
pub(crate) const NEWEST_ROW: &str = "platform.newest-row";

/// What it has as the number of the list of files that it was made of.
pub(crate) const LIST_NUMBER: &str = "platform.number";

const OPERATION: &str = "operation";
/// The operation of a snapshot that has all files of the one before.
const APPEND: &str = "append";

/// Those of `snapshots`, which are the oldest first, that are kept at `now`.
pub(crate) fn kept(snapshots: &[TableSnapshot], age: Duration, now: Timestamp) -> &[TableSnapshot] {
    let since = milliseconds(now.minus(age));
    let is_kept = |pair: &[TableSnapshot]| pair.last().is_some_and(|next| next.timestamp_ms > since);
    let last = snapshots.len().saturating_sub(1);
    let first = snapshots.windows(2).position(is_kept).unwrap_or(last);
    newest(snapshots.get(first..).unwrap_or_default(), KEPT_SNAPSHOTS)
}

/// The last of `all`, at most so many.
pub(crate) fn newest<T>(all: &[T], most: usize) -> &[T] {
    all.get(all.len().saturating_sub(most)..).unwrap_or_default()
}

/// As metadata has times.
pub(crate) fn milliseconds(at: Timestamp) -> i64 {
    at.micros().div_euclid(1_000)
}

/// What a snapshot's summary says.
pub(crate) fn summary(changes: &FileChanges, files: &TableFiles, number: u64) -> BTreeMap<String, String> {
    let operation = match (changes.added_files, changes.deleted_files) {
        (_, 0) => APPEND,
        (0, _) => "delete",
        _ => "overwrite",
    };
    let counts = [
        ("added-data-files", changes.added_files),
        ("deleted-data-files", changes.deleted_files),
        ("added-records", changes.added_rows),
        ("deleted-records", changes.deleted_rows),
        (TOTAL_ROWS, files.rows()),
        (TOTAL_FILES, files.all().len() as u64),
        ("total-files-size", files.bytes()),
        (LIST_NUMBER, number),
    ];
    let counts = counts.map(|(key, count)| (key.to_owned(), count.to_string()));
    let newest = files
        .newest_row()
        .map(|newest| (NEWEST_ROW.to_owned(), newest.to_string()));
    let operation = (OPERATION.to_owned(), operation.to_owned());
    counts.into_iter().chain(newest).chain([operation]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshots(minutes: &[i64]) -> Vec<TableSnapshot> {
        let snapshot = |(minute, number): (&i64, i64)| TableSnapshot {
            snapshot_id: number,
            parent_snapshot_id: None,
            sequence_number: number,
            timestamp_ms: minute * 60_000,
            manifest_list: String::new(),
            summary: BTreeMap::new(),
            schema_id: 0,
        };
        minutes.iter().zip(1..).map(snapshot).collect()
    }

    #[test]
    fn a_snapshot_is_kept_for_its_age_after_the_next_one_took_its_place() {
        let kept_at = |minutes: &[i64], now: i64| -> Vec<i64> {
            let now = Timestamp::from_micros(now * 60_000_000);
            let all = snapshots(minutes);
            let kept = kept(&all, Duration::from_secs(3_600), now);
            kept.iter().map(|snapshot| snapshot.sequence_number).collect()
        };
        assert_eq!(kept_at(&[], 9), [] as [i64; 0]);
        assert_eq!(kept_at(&[0], 1_000), [1]);
        assert_eq!(kept_at(&[0, 100], 101), [1, 2]);
        assert_eq!(kept_at(&[0, 100], 159), [1, 2]);
        assert_eq!(kept_at(&[0, 100], 160), [2]);
        assert_eq!(kept_at(&[0, 10, 80, 90], 100), [2, 3, 4]);
        // A clock that went back keeps more.
        assert_eq!(kept_at(&[0, 10, 80, 90], 0), [1, 2, 3, 4]);
    }

    #[test]
    fn no_more_than_a_hundred_are_kept_however_young() {
        let all = snapshots(&(0..250).collect::<Vec<_>>());
        let kept = kept(&all, Duration::from_secs(1 << 30), Timestamp::from_micros(0));
        assert_eq!((kept.len(), kept[0].sequence_number), (100, 151));
    }
}
