//! Where things lie: partitions of event time, names of data files, the store's folders.
//!
//! ```text
//! <data_dir>/<table>/YYYY/MM/DD[/HH]/<table>_NNN.parquet     finished data files, nothing else ever
//! <store_dir>/wal/            the log
//! <store_dir>/meta/           catalogue, store id, LOCK
//! <store_dir>/.staging/       files on their way into the tree, and out of it
//! <store_dir>/quarantine/     what was found damaged
//! ```
//!
//! Staging must share a file system with the tree, because files are exchanged by name: where `data_dir` does not lie
//! below `store_dir`, staging lies beside it, as `.staging/<its name>/`.
//!
//! # Invariants
//!
//! - A partition is a half-open interval of UTC event time; its folder is a pure function of it.
//! - `NNN` has at least three digits and is never used twice within a partition.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, Datelike, Timelike, Utc};
use model::{Table, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{PartitionBy, Settings};

/// An interval of event time whose rows share a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Partition {
    /// The interval's number since the epoch, in its own length.
    index: i64,
    by: PartitionBy,
}

const fn length_micros(by: PartitionBy) -> i64 {
    match by {
        PartitionBy::Hour => 3_600_000_000,
        PartitionBy::Day => 86_400_000_000,
    }
}

impl Partition {
    /// The partition that `at` falls into. Moments outside the years 0001 to 9999 count as the nearest one inside.
    pub(crate) fn of(at: Timestamp, by: PartitionBy) -> Self {
        let at = at.clamp(Timestamp::MIN, Timestamp::MAX);
        Self {
            index: at.micros().div_euclid(length_micros(by)),
            by,
        }
    }

    /// Its first moment.
    pub(crate) const fn start(self) -> Timestamp {
        Timestamp::from_micros(self.index.saturating_mul(length_micros(self.by)))
    }

    /// The first moment after it.
    pub(crate) const fn end(self) -> Timestamp {
        Timestamp::from_micros(self.index.saturating_add(1).saturating_mul(length_micros(self.by)))
    }

    /// Its folder below the table's.
    pub(crate) fn folder(self) -> PathBuf {
        let start: DateTime<Utc> = self.start().to_datetime().unwrap_or_default();
        let mut folder = PathBuf::from(format!("{:04}", start.year()));
        folder.push(format!("{:02}", start.month()));
        folder.push(format!("{:02}", start.day()));
        if self.by == PartitionBy::Hour {
            folder.push(format!("{:02}", start.hour()));
        }
        folder
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.folder().display().fmt(f)
    }
}

/// The folders and names of one store.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// The tree of data files.
    pub(crate) data: PathBuf,
    /// The log.
    pub(crate) wal: PathBuf,
    /// The catalogue, the store's id, the lock.
    pub(crate) meta: PathBuf,
    /// Files on their way.
    pub(crate) staging: PathBuf,
    /// Displaced versions of data files that a view may still hold.
    pub(crate) retired: PathBuf,
    /// What was found damaged.
    pub(crate) quarantine: PathBuf,
}

impl Layout {
    pub(crate) fn new(settings: &Settings) -> Self {
        let store = &settings.store_dir;
        let data = &settings.data_dir;
        let staging = match (data.parent(), data.file_name()) {
            (Some(parent), Some(name)) if !data.starts_with(store) => parent.join(".staging").join(name),
            _ => store.join(".staging"),
        };
        Self {
            data: settings.data_dir.clone(),
            wal: store.join("wal"),
            meta: store.join("meta"),
            retired: staging.join("retired"),
            staging,
            quarantine: store.join("quarantine"),
        }
    }

    /// The data file `number` of a partition.
    pub(crate) fn file(&self, table: Table, partition: Partition, number: u32) -> PathBuf {
        let name = format!("{table}_{number:03}.parquet");
        self.data.join(table.name()).join(partition.folder()).join(name)
    }

    /// Where the bytes of segment `id` are written before they are exchanged into the tree.
    pub(crate) fn twin(&self, id: u64) -> PathBuf {
        self.staging.join(format!("segment_{id:020}.twin"))
    }

    /// Where the sealed form of segment `id` is written.
    pub(crate) fn sealing(&self, id: u64) -> PathBuf {
        self.staging.join(format!("segment_{id:020}.sealing"))
    }

    /// Where a damaged data file is kept: its path in the tree as one name.
    pub(crate) fn quarantined(&self, path: &Path) -> PathBuf {
        let name = path
            .strip_prefix(&self.data)
            .unwrap_or(path)
            .to_string_lossy()
            .replace('/', "_");
        self.quarantine.join(name)
    }

    /// Where the open file of segment `id` goes when its sealed form takes its name.
    pub(crate) fn retired(&self, id: u64) -> PathBuf {
        self.retired.join(format!("segment_{id:020}.parquet"))
    }
}

/// The place and number that a path of a data file means, if it is one that the layout makes.
pub(crate) fn parse(layout: &Layout, table: Table, path: &Path, min_ts: Timestamp) -> Option<(Partition, u32)> {
    let number = file_number(table, path)?;
    [PartitionBy::Hour, PartitionBy::Day]
        .map(|by| Partition::of(min_ts, by))
        .into_iter()
        .find(|partition| layout.file(table, *partition, number) == path)
        .map(|partition| (partition, number))
}

/// The number in a data file's name, if it is one of `table`'s names.
pub(crate) fn file_number(table: Table, path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let digits = name
        .strip_prefix(table.name())?
        .strip_prefix('_')?
        .strip_suffix(".parquet")?;
    let canonical = digits.len() >= 3 && digits.bytes().all(|b| b.is_ascii_digit());
    canonical.then(|| digits.parse().ok()).flatten()
}

/// How far a row's time may lie ahead of its arrival.
pub(crate) const MAX_FUTURE: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_partition_holds_its_start_and_not_its_end() {
        for by in [PartitionBy::Hour, PartitionBy::Day] {
            for text in [
                "2026-11-21T10:59:59.999999Z",
                "1969-12-31T23:30:00Z",
                "0001-01-01T00:00:00Z",
            ] {
                let part = Partition::of(at(text), by);
                assert!(part.start() <= at(text) && at(text) < part.end());
                assert_eq!(Partition::of(part.start(), by), part);
                assert_ne!(Partition::of(part.end(), by), part);
            }
        }
    }

    #[test]
    fn folders_are_dates_and_absurd_times_stay_within_four_digit_years() {
        let ten = at("2026-03-02T10:59:59Z");
        assert_eq!(Partition::of(ten, PartitionBy::Hour).to_string(), "2026/03/02/10");
        assert_eq!(Partition::of(ten, PartitionBy::Day).to_string(), "2026/03/02");
        let absurd = Timestamp::from_micros(i64::MAX);
        assert_eq!(Partition::of(absurd, PartitionBy::Hour).to_string(), "9999/12/31/23");
        let absurd = Timestamp::from_micros(i64::MIN);
        assert_eq!(Partition::of(absurd, PartitionBy::Day).to_string(), "0001/01/01");
    }

    #[test]
    fn staging_lies_beside_a_tree_outside_of_the_store_and_never_in_it() {
        let mut settings = Settings::new("/store");
        assert_eq!(Layout::new(&settings).staging, Path::new("/store/.staging"));
        settings.data_dir = "/other/disk/telemetry".into();
        assert_eq!(
            Layout::new(&settings).staging,
            Path::new("/other/disk/.staging/telemetry")
        );
    }

    #[test]
    fn a_file_name_gives_its_number_back() {
        let layout = Layout::new(&Settings::new("/store"));
        let part = Partition::of(at("2026-03-02T10:00:00Z"), PartitionBy::Hour);
        for number in [1, 42, 999, 1000, 123_456] {
            let path = layout.file(Table::Logs, part, number);
            assert_eq!(file_number(Table::Logs, &path), Some(number));
        }
        for bad in [
            "logs_1.parquet",
            "logs_abc.parquet",
            "traces_001.parquet",
            ".logs_001.parquet",
            "logs_001.tmp",
        ] {
            assert_eq!(file_number(Table::Logs, Path::new(bad)), None, "{bad}");
        }
    }
}
