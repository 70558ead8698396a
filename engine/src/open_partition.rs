//! An open partition: its open data file, and the rows that become the next row group of that file.
//!
//! # Invariants
//!
//! - A [`FlushedGroup`] is durable under its name when it is returned, and is valid once the catalogue records it.
//!
//! # Not here
//!
//! When to publish, and how to handle failures: [`crate::flusher`].

use std::sync::Arc;

use model::{Clock, Timestamp};

use crate::datafile::{FileFormat, FileVersion, FooterFacts, OpenDataFile, WriteOptions};
use crate::file_templates::FileTemplate;
use crate::io_pacing::IoPriority;
use crate::layout::DataFileName;
use crate::manifest::{FileEntry, FileLineage};
use crate::memtable::{FrozenRows, OriginRanges, PartitionKey};
use crate::{Error, Settings};

/// The open file of a partition.
#[derive(Debug)]
pub(crate) struct OpenPartition {
    pub(crate) place: PartitionKey,
    pub(crate) segment: OpenDataFile,
    pub(crate) named: DataFileName,
    /// The last version that was published.
    pub(crate) version: u32,
    pub(crate) first: u64,
    pub(crate) origins: OriginRanges,
    pub(crate) lineage: Arc<FileLineage>,
    pub(crate) published: Timestamp,
    /// Ticks since its rows began to wait.
    pub(crate) waited: u32,
    /// Whether it was published into since the last tick.
    pub(crate) touched: bool,
    /// Ticks since it was published into.
    pub(crate) idle: u32,
}

impl OpenPartition {
    /// Whether a file that is begun now would be like this one. Files of lines have the table's columns alone.
    pub(crate) fn is_of(&self, form: &FileTemplate) -> bool {
        let same_columns = !self.segment.form().is_parquet() || self.segment.promoted() == form.promoted.as_ref();
        self.named.prefix == form.prefix && same_columns
    }

    /// The entry of a version of it, or of its sealed form.
    pub(crate) fn entry(&self, file: &FileVersion) -> FileEntry {
        let id = self.segment.identity().segment;
        FileEntry::new(id, self.place, self.named, self.published.micros(), file)
    }
}

/// A publish whose record is not written yet.
#[derive(Debug)]
pub(crate) struct FlushedGroup {
    pub(crate) place: PartitionKey,
    pub(crate) entry: FileEntry,
    pub(crate) lineage: Arc<FileLineage>,
    /// Of the sealed file whose name it took.
    pub(crate) displaced: Option<Arc<FileLineage>>,
    pub(crate) through: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

/// How this store's files are written.
pub(crate) fn write_options(settings: &Settings) -> WriteOptions {
    WriteOptions {
        form: FileFormat::of(settings.format, settings.compression),
        compression: settings.compression,
        json: settings.json_type,
        merge_max: settings.merge_max.get(),
        group_max: usize::try_from(settings.group_max.get()).unwrap_or(usize::MAX),
        ..WriteOptions::default()
    }
}

/// Appends rows to an open file.
pub(crate) fn append(
    clock: &Clock,
    slot: &mut OpenPartition,
    frozen: &FrozenRows,
    haste: IoPriority,
) -> Result<FlushedGroup, Error> {
    let group = slot.segment.encode(&frozen.rows, haste)?;
    let mut origins = slot.origins.clone();
    origins.join(&frozen.origins);
    let facts = FooterFacts {
        version: slot.version + 1,
        first_lsn: slot.first,
        last_lsn: frozen.through,
        origins: origins.to_text(),
    };
    let (published, bytes) = slot.segment.publish(&group, facts)?;
    slot.version += 1;
    slot.origins = origins;
    slot.published = clock.now();
    slot.waited = 0;
    slot.touched = true;
    slot.idle = 0;
    Ok(FlushedGroup {
        place: slot.place,
        entry: slot.entry(&published),
        lineage: Arc::clone(&slot.lineage),
        displaced: None,
        through: frozen.through,
        rows: group.rows(),
        bytes,
    })
}

/// Whether a new file's name was taken, by somebody else: nothing happened, another number will do.
pub(crate) fn is_taken(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists)
}
