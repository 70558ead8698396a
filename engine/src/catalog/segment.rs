//! One version of one data file, as a view names it.
//!
//! Publishing keeps every earlier version readable under the same name: it is a prefix of the later file. Sealing gives the
//! name away; the bytes of the versions before then stay under a name among the retired files until nobody holds one of
//! them. A file that expired keeps its name until then.
//!
//! # Not here
//!
//! Reading rows: `query` does that with the file and the footer from here.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::{Table, Timestamp};
use parquet::file::metadata::ParquetMetaData;

use super::footers::Footers;
use super::state::FileEntry;
use crate::Error;
use crate::layout::{Layout, Partition};
use crate::segment::{FileAt, Run, footer_crc, read_metadata};

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
    /// Whether it will never change again; then it is sorted by `ts` descending, as a whole or run by run.
    pub sealed: bool,
    /// Its row groups, each sorted by `ts` descending, if it is sealed and not sorted as a whole. Empty otherwise.
    pub runs: Vec<Run>,
    key: (Partition, u32),
    footer_crc: u32,
    lineage: Arc<Lineage>,
    footers: Arc<Footers>,
}

/// What all versions of a segment share that lie in one file, and what becomes of that file.
#[derive(Debug)]
pub(crate) struct Lineage {
    retired: PathBuf,
    displaced: AtomicBool,
}

impl Lineage {
    pub(crate) fn new(retired: PathBuf) -> Self {
        Self {
            retired,
            displaced: AtomicBool::new(false),
        }
    }

    /// Where the file's bytes are found once its name was given away.
    pub(crate) const fn retired(&self) -> &PathBuf {
        &self.retired
    }

    /// The name was given away: the retired file goes with the last holder.
    pub(crate) fn displace(&self) {
        self.displaced.store(true, Ordering::Release);
    }
}

impl Drop for Lineage {
    fn drop(&mut self) {
        if *self.displaced.get_mut() {
            // Staging is emptied at the next start: a failure costs space until then.
            let _ = std::fs::remove_file(&self.retired);
        }
    }
}

/// What a segment is made from, beside its catalogue entry.
#[derive(Debug)]
pub(crate) struct SegmentParts<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) footers: &'a Arc<Footers>,
    pub(crate) lineage: Arc<Lineage>,
}

impl Segment {
    pub(crate) fn new(entry: &FileEntry, parts: SegmentParts<'_>) -> Self {
        Self {
            id: entry.id,
            version: entry.version,
            table: entry.table,
            path: parts.layout.file(entry.table, entry.partition, entry.number),
            size: entry.size,
            rows: entry.rows,
            min_ts: entry.min_ts(),
            max_ts: entry.max_ts(),
            sealed: entry.sealed,
            runs: entry.runs.clone(),
            key: (entry.partition, entry.number),
            footer_crc: entry.footer_crc,
            lineage: parts.lineage,
            footers: Arc::clone(parts.footers),
        }
    }

    /// Its place among its table's files.
    pub(crate) const fn key(&self) -> (Partition, u32) {
        self.key
    }

    pub(crate) const fn lineage(&self) -> &Arc<Lineage> {
        &self.lineage
    }

    /// The file with this version's bytes, which are its first [`Segment::size`] bytes.
    ///
    /// # Errors
    /// If the file is missing or is not this version.
    pub fn open(&self) -> Result<File, Error> {
        match self.try_open(&self.path) {
            Ok(file) => Ok(file),
            Err(under_its_name) => self.try_open(&self.lineage.retired).map_err(|_| under_its_name),
        }
    }

    fn try_open(&self, path: &PathBuf) -> Result<File, Error> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let ours = FileAt::new(file.try_clone().map_err(Error::io("open", path))?, self.size);
        let found = footer_crc(&ours).map_err(Error::io("read", path))?;
        if found == Some(self.footer_crc) {
            return Ok(file);
        }
        let found = found.map_or_else(|| "no footer".to_owned(), |crc| format!("footer {crc:08x}"));
        Err(Error::Stale {
            path: path.clone(),
            id: self.id,
            version: self.version,
            reason: format!("{found} at {} instead of {:08x}", self.size, self.footer_crc),
        })
    }

    /// The footer, from the cache or the file; with the page index for sealed files.
    ///
    /// # Errors
    /// If the file cannot be opened or its footer is damaged.
    pub fn metadata(&self) -> Result<Arc<ParquetMetaData>, Error> {
        self.footers.get((self.id, self.version), || {
            let file = FileAt::new(self.open()?, self.size);
            read_metadata(&file, &self.path, self.sealed)
        })
    }
}
