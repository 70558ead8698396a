//! Settings of the engine.
//!
//! # Not here
//!
//! Configuration files: the Mixer resolves its keys into these values.

mod remote;
mod retention;
mod spec_files;

use std::path::PathBuf;
use std::time::Duration;

use model::ByteSize;
use serde::{Deserialize, Serialize};

use crate::Error;
pub use remote::{AckDurability, RemoteMode, RemoteSettings, S3ClientSettings};
pub use retention::{RetentionPolicy, RetentionSettings};
pub use spec_files::{AllSpecFiles, SpecFiles};

const MIB: u64 = 1 << 20;

/// What data files are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageFormat {
    /// Parquet: sorted, pruned, small.
    #[default]
    Parquet,
    /// A JSON object per line, for whoever reads nothing else.
    Json,
}

/// The page compression of data files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompressionCodec {
    /// zstd level 1: the smallest files.
    #[default]
    Zstd,
    /// Snappy: cheaper to write, larger.
    Snappy,
    /// None.
    None,
}

/// How long a partition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionBy {
    /// An hour of event time, UTC.
    #[default]
    Hour,
    /// A day of event time, UTC.
    Day,
}

/// The Parquet type of JSON columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JsonType {
    /// The logical type JSON.
    #[default]
    Json,
    /// Plain UTF-8, for readers that do not know JSON.
    String,
}

/// What becomes of logs, traces and metrics beside being made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExportMode {
    /// They are stored.
    #[default]
    Off,
    /// They are stored, and stay in the log until an exporter has settled them ([`crate::LogFollower`]).
    Copy,
    /// They stay in the log until an exporter has settled them, and are kept nowhere else.
    Only,
}

/// How a store is laid out and bounded.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The store's own folder: log, catalogue, staging.
    pub store_dir: PathBuf,
    /// The tree of finished data files.
    pub data_dir: PathBuf,
    /// The tree of finished data files of business messages.
    pub messages_dir: PathBuf,
    /// The tick on which appended rows are published into Parquet.
    pub flush_interval: Duration,
    /// What new data files are made of.
    pub format: StorageFormat,
    /// The compression of data files: of pages, or of frames of lines.
    pub compression: CompressionCodec,
    /// How long a partition is.
    pub partition_by: PartitionBy,
    /// The Parquet type of JSON columns.
    pub json_type: JsonType,
    /// An open data file is sealed when it reaches this size.
    pub segment_size: ByteSize,
    /// The log's cap: at it, appends wait.
    pub wal_max: ByteSize,
    /// Appends wait while less is free on the store's disks; by default a 64th of the smaller one, of 2 MiB to 2 GiB. Half
    /// of it, 32 MiB at most, is kept in reserve beside that, for publishing and rotation on a full disk.
    pub min_free: Option<ByteSize>,
    /// The cap of rows in memory that are in no data file yet: at it, appends wait; at a half of it, rows are published early.
    /// A share of the memory budget, see [`Settings::with_memory`].
    pub hot_max: ByteSize,
    /// What bodies and messages on their way to appends may take, a half each, and as much again what is decoded of bodies, see
    /// [`crate::InboundShares`]. Another share of the budget.
    pub inbound_max: ByteSize,
    /// The rows, in bytes before encoding, that become one row group at most. Another share of the budget.
    pub group_max: ByteSize,
    /// What the row groups of an open file may cost the merge that seals it: at it, the file takes no more of them. Another
    /// share of the budget.
    pub merge_max: ByteSize,
    /// Rows older than this on arrival go to the partition of their arrival. Rotation by age removes what is older.
    pub max_age: Duration,
    /// Partitions that have an open data file at once, at most; beyond, the least recently used are sealed early, and rows that
    /// come late to many partitions wait longer and become sealed files at once.
    pub open_max: usize,
    /// When old data goes.
    pub rotation: RetentionSettings,
    /// A commit group is closed at this size.
    pub group_bytes: ByteSize,
    /// A commit group waits at most this long for companions.
    pub group_linger: Duration,
    /// The time between two passes that read sealed files again and compare checksums.
    pub scrub_interval: Duration,
    /// A past partition is sealed when nothing came for it this long, counted from its end or its last row.
    pub seal_grace: Duration,
    /// The empty files that stand in for an expired partition stay until no reader from outside opened anything there for so
    /// long: one that listed the tree before opens its files later. Zero takes the partition away at once.
    pub reader_rest: Duration,
    /// Whether files are indexed. Answers are the same without; lookups of ids read more.
    pub index: bool,
    /// Memory for indexes: half of it for small ones that are kept whole, so that looking an id up in them reads nothing, half for those
    /// of open files.
    pub index_memory: ByteSize,
    /// Memory for rows that are kept for followers, of each table that has any: see [`crate::TailFollower`].
    pub tail_max: ByteSize,
    /// Whether telemetry is exported. The log then holds what is not, [`Settings::wal_max`] bounds it.
    pub export: ExportMode,
    /// The object store that sealed files are uploaded to, or read from.
    pub remote: Option<RemoteSettings>,
    /// How files of specs are made, until [`crate::Engine::set_specs`] says something else.
    pub specs: AllSpecFiles,
}

impl Settings {
    /// The defaults for a store at `store_dir`, with its data files in `telemetry/` below it.
    #[must_use]
    pub fn new(store_dir: impl Into<PathBuf>) -> Self {
        let store_dir = store_dir.into();
        Self {
            data_dir: store_dir.join("telemetry"),
            messages_dir: store_dir.join("messages"),
            store_dir,
            flush_interval: Duration::from_secs(5),
            format: StorageFormat::default(),
            compression: CompressionCodec::default(),
            partition_by: PartitionBy::default(),
            json_type: JsonType::default(),
            segment_size: ByteSize::mib(128),
            wal_max: ByteSize::mib(512),
            min_free: None,
            hot_max: ByteSize::mib(192),
            inbound_max: ByteSize::mib(64),
            group_max: ByteSize::mib(64),
            merge_max: ByteSize::mib(64),
            max_age: Duration::from_secs(30 * 86_400),
            open_max: 64,
            rotation: RetentionSettings::default(),
            group_bytes: ByteSize::mib(1),
            group_linger: Duration::from_millis(2),
            scrub_interval: Duration::from_secs(86_400),
            seal_grace: Duration::from_secs(300),
            reader_rest: Duration::from_secs(60),
            index: true,
            index_memory: ByteSize::mib(32),
            tail_max: ByteSize::mib(24),
            export: ExportMode::Off,
            remote: None,
            specs: AllSpecFiles::new(),
        }
    }

    /// Divides a memory budget among everything that holds rows or their encoded bytes:
    ///
    /// | share | who | at its cap |
    /// |---|---|---|
    /// | 3/8 | hot rows: appends on their way, replayed rows, rows not yet published | appends wait; replay publishes |
    /// | 1/16 | bodies on their way here: [`crate::Engine::inbound`] | whoever reads from a socket waits |
    /// | 1/16 | messages on their way here | whoever reads from the bus waits |
    /// | 1/8 | what is decoded of bodies | the next body waits |
    /// | 1/8 | encoding a row group, whose rows are hot still: groups of 1/8, of 64 MiB at most | more row groups |
    /// | 1/8 | the merge that seals a file | the file is sealed with fewer row groups |
    /// | 1/8 | indexing a file, in less than 32 MiB and up to 64 more for each column of ids, and the program itself | |
    ///
    /// The last three never wait for memory, so hot rows leave, and then what waits for their room goes on. One batch that is larger
    /// than a share still passes, alone.
    #[must_use]
    pub fn with_memory(self, budget: ByteSize) -> Self {
        let eighths = |number: u64, most: u64| ByteSize::bytes((budget.get() / 8 * number).clamp(MIB, most));
        Self {
            hot_max: eighths(3, u64::MAX),
            inbound_max: eighths(1, u64::MAX),
            group_max: eighths(1, 64 * MIB),
            merge_max: eighths(1, 64 * MIB),
            ..self
        }
    }

    /// The same, in a folder of its own for one that only reads: what is there are copies.
    pub(crate) fn of_mode(mut self) -> Self {
        let reads = |remote: &RemoteSettings| remote.mode == RemoteMode::Read;
        if self.remote.as_ref().is_some_and(reads) {
            self.store_dir = self.store_dir.join("replica");
            self.data_dir = self.store_dir.join("telemetry");
            self.messages_dir = self.store_dir.join("messages");
        }
        self
    }

    /// Refuses values with which no store could work.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bad = |key, value: String, reason: &str| {
            Err(Error::Setting {
                key,
                value,
                reason: reason.to_owned(),
            })
        };
        if self.rotation.check_interval.is_zero() {
            return bad("rotation.check_interval", "0s".to_owned(), "give a duration such as 1h");
        }
        if self.flush_interval.is_zero() {
            return bad("flush_interval", "0s".to_owned(), "give a duration such as 5s");
        }
        for (key, size, least) in [
            ("segment_size", self.segment_size, 64 << 10),
            ("wal_max_size", self.wal_max, 1 << 20),
            ("hot_max", self.hot_max, 1 << 20),
            ("inbound_max", self.inbound_max, 1 << 20),
            ("group_max", self.group_max, 64 << 10),
            ("merge_max", self.merge_max, 64 << 10),
            ("group_bytes", self.group_bytes, 1),
        ] {
            if size.get() < least {
                let least = format!("give at least {}", ByteSize::bytes(least));
                return bad(key, size.to_string(), &least);
            }
        }
        if self.export != ExportMode::Off && self.remote.is_some() {
            let reason = "what waits for its export is on this machine only: an object store cannot be used beside it";
            return bad("export", format!("{:?}", self.export), reason);
        }
        if self.open_max == 0 {
            return bad("open_max", "0".to_owned(), "give at least 1");
        }
        for (key, dir) in [("data_dir", &self.data_dir), ("messages_dir", &self.messages_dir)] {
            if ["wal", "meta", "iceberg"]
                .map(|name| self.store_dir.join(name))
                .iter()
                .any(|own| dir.starts_with(own))
            {
                let reason = "the data files must not lie in the log's, the catalogue's or Iceberg's folder";
                return bad(key, dir.display().to_string(), reason);
            }
            if self.store_dir.starts_with(dir) {
                let reason = "the store's own folder must not lie in the tree of data files";
                return bad(key, dir.display().to_string(), reason);
            }
        }
        if self.data_dir.starts_with(&self.messages_dir) || self.messages_dir.starts_with(&self.data_dir) {
            let reason = "telemetry and messages need a tree each, one must not lie in the other";
            return bad("messages_dir", self.messages_dir.display().to_string(), reason);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_a_budget_are_not_more_than_seven_eighths_of_it() {
        for budget in [16, 64, 512, 513, 1 << 20].map(ByteSize::mib) {
            let shared = Settings::new("store").with_memory(budget);
            let inbound = 2 * shared.inbound_max.get();
            let all = shared.hot_max.get() + inbound + shared.group_max.get() + shared.merge_max.get();
            assert!(all <= budget.get() / 8 * 7, "{all} of {budget}");
        }
    }
}
