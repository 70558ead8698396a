//! The published files of a store that this process does not have open, from its catalogue on disk: beside a running Mixer or without one.
//!
//! # Invariants
//!
//! - Nothing is locked, held or written: a file of the list may be gone when it is read.
//!
//! # Not here
//!
//! Stores whose files are in an object store: they are refused.

use uuid::Uuid;

use super::{PublishedFile, PublishedFiles, PublishedSource, uris_in_tree};
use crate::integrity_check::StoreInspector;
use crate::manifest::FileEntry;
use crate::{Error, Settings};

/// The sealed Parquet files of a store in a folder as its catalogue has them now, and the store's id. This blocks.
///
/// # Errors
/// If there is no store, its files are in an object store, or its catalogue cannot be read.
pub fn published_files_of(settings: &Settings) -> Result<(Uuid, PublishedFiles), Error> {
    let store = StoreInspector::open(settings)?;
    let layout = &store.layout;
    let uri = uris_in_tree(layout);
    let published = |entry: &FileEntry| {
        let path = entry.path(layout);
        let (partition, partition_by, spec) = entry.partition.parts();
        PublishedFile {
            table: entry.table,
            spec,
            partition_by,
            partition,
            segment: entry.id,
            version: entry.version,
            uri: uri(&path),
            size: entry.size,
            rows: entry.rows,
            min_ts: entry.min_ts(),
            max_ts: entry.max_ts(),
            is_piece: false,
            source: PublishedSource::Path(path),
        }
    };
    let found = store.read()?;
    let files = found
        .state
        .files()
        .filter(|entry| entry.sealed && entry.form.is_parquet());
    let files = PublishedFiles {
        files: files.map(published).collect(),
        ..PublishedFiles::default()
    };
    Ok((store.id, files))
}
