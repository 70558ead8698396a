//! What the engine needs to know before it opens a store.
//!
//! # Not here
//!
//! Configuration files: the Mixer resolves its keys into these values.

use std::path::PathBuf;
use std::time::Duration;

use model::ByteSize;
use serde::{Deserialize, Serialize};

use crate::{Error, Rotation};

/// The page compression of data files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
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

/// How a store is laid out and bounded.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The store's own folder: log, catalogue, staging.
    pub store_dir: PathBuf,
    /// The tree of finished data files.
    pub data_dir: PathBuf,
    /// The tick on which appended rows are published into Parquet.
    pub flush_interval: Duration,
    /// The page compression of data files.
    pub compression: Compression,
    /// How long a partition is.
    pub partition_by: PartitionBy,
    /// The Parquet type of JSON columns.
    pub json_type: JsonType,
    /// An open data file is sealed when it reaches this size.
    pub segment_size: ByteSize,
    /// The log's cap: at it, appends wait.
    pub wal_max: ByteSize,
    /// The cap of rows in memory that are in no data file yet: at it, appends wait; at a half of it, rows are published early.
    pub hot_max: ByteSize,
    /// Rows older than this on arrival go to the partition of their arrival. Rotation by age removes what is older.
    pub max_age: Duration,
    /// When old data goes.
    pub rotation: Rotation,
    /// A commit group is closed at this size.
    pub group_bytes: ByteSize,
    /// A commit group waits at most this long for companions.
    pub group_linger: Duration,
    /// The time between two passes that read sealed files again and compare checksums.
    pub scrub_interval: Duration,
    /// A past partition is sealed when nothing came for it this long, counted from its end or its last row.
    pub seal_grace: Duration,
}

impl Settings {
    /// The defaults for a store at `store_dir`, with its data files in `telemetry/` below it.
    #[must_use]
    pub fn new(store_dir: impl Into<PathBuf>) -> Self {
        let store_dir = store_dir.into();
        Self {
            data_dir: store_dir.join("telemetry"),
            store_dir,
            flush_interval: Duration::from_secs(5),
            compression: Compression::default(),
            partition_by: PartitionBy::default(),
            json_type: JsonType::default(),
            segment_size: ByteSize::mib(128),
            wal_max: ByteSize::mib(512),
            hot_max: ByteSize::mib(256),
            max_age: Duration::from_secs(30 * 86_400),
            rotation: Rotation::default(),
            group_bytes: ByteSize::mib(1),
            group_linger: Duration::from_millis(2),
            scrub_interval: Duration::from_secs(86_400),
            seal_grace: Duration::from_secs(300),
        }
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
            ("group_bytes", self.group_bytes, 1),
        ] {
            if size.get() < least {
                let least = format!("give at least {}", ByteSize::bytes(least));
                return bad(key, size.to_string(), &least);
            }
        }
        if self.data_dir.starts_with(self.store_dir.join("wal"))
            || self.data_dir.starts_with(self.store_dir.join("meta"))
        {
            let reason = "the data files must not lie in the log's or the catalogue's folder";
            return bad("data_dir", self.data_dir.display().to_string(), reason);
        }
        if self.store_dir.starts_with(&self.data_dir) {
            let reason = "the store's own folder must not lie in the tree of data files";
            return bad("data_dir", self.data_dir.display().to_string(), reason);
        }
        Ok(())
    }
}
