//! A handle of one version of a data file, as a snapshot names it.
//!
//! Publishing keeps every earlier version readable under the same name, because it is a prefix of the later file. Sealing gives
//! the name to another file. The bytes of the earlier versions then keep a name among the retired files until nobody holds one of
//! these versions. A file that expired keeps its name until then.
//!
//! # Checked once
//!
//! The Parquet reader answers from a flipped bit without an error, so the first [`DataFileHandle::open`] of a version compares the
//! file with the checksum in the catalogue. Versions of one file are prefixes of each other, so of a later version only the
//! added part is read. A sealed file is read whole, once per process.
//!
//! A file that differs, in two readings, leaves the view, and the view reports that it is partial from then on. Whoever opened the
//! file takes a new view. The scrubber, the flusher and the sealer find bits that flip later.
//!
//! # Not here
//!
//! Reading rows: `query` does that with the file and the footer from here. Indexes: [`crate::index`].

mod index_lookup;

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use model::{Table, Timestamp};
use parquet::file::metadata::ParquetMetaData;

use crate::datafile::{
    FileFormat, FilePrefix, NdjsonReader, SortedRun, compare_crc, file_crc, footer_crc, read_metadata,
};
use crate::index::SidecarIndex;
use crate::layout::{FileVersionKey, StoreLayout, TimePartition};
use crate::manifest::{FileEntry, FileLineage};
use crate::object_storage::read_cache::RemoteFileCache;
use crate::open_file_cache::OpenFileCache;
use crate::{Error, SpecName, WeightedCache};

/// Footers of data files, kept by bytes.
pub(crate) type FooterCache = WeightedCache<FileVersionKey, Arc<ParquetMetaData>>;

/// How often a file is fetched at most to be opened once.
const FETCHES: u32 = 8;

/// One version of a data file. Its rows never change; the name may be given to a later version while this one is held.
#[derive(Debug)]
pub struct DataFileHandle {
    /// The segment's number, unique in the store, kept over all versions.
    pub id: u64,
    /// Grows with every publish into the segment and with its seal. Cache by (`id`, `version`), never by path or size.
    pub version: u32,
    /// The table.
    pub table: Table,
    /// Its name in the tree. Open it with [`DataFileHandle::open`], which knows whether the name still means this version.
    pub path: PathBuf,
    /// This version's length: a file under the same name may be longer, its footer is found at this length.
    pub size: u64,
    /// Its rows.
    pub rows: u64,
    /// Their earliest `ts`.
    pub min_ts: Timestamp,
    /// Their latest `ts`.
    pub max_ts: Timestamp,
    /// Whether it takes no more row groups; then it is sorted by `ts` descending, as a whole or run by run.
    pub sealed: bool,
    /// Its row groups, each sorted by `ts` descending, if it is sealed and not sorted as a whole. Empty otherwise.
    pub runs: Vec<SortedRun>,
    key: (TimePartition, u32),
    crc: u32,
    form: FileFormat,
    footer_crc: u32,
    lineage: Arc<FileLineage>,
    context: Arc<DataFileContext>,
    /// What was made from it, if it is there.
    index: ArcSwapOption<SidecarIndex>,
}

/// What all data files of a store share.
#[derive(Debug)]
pub(crate) struct DataFileContext {
    pub(crate) layout: StoreLayout,
    pub(crate) footers: FooterCache,
    pub(crate) files: OpenFileCache,
    /// Where their bytes are too, if there is an object store.
    pub(crate) cache: Option<Arc<RemoteFileCache>>,
    pub(crate) owner: Weak<dyn DataFileOwner>,
}

/// The store whose views name data files.
pub(crate) trait DataFileOwner: Send + Sync {
    /// A query found a file damaged: views taken from now on do not have it.
    fn report_damage(&self, file: &DataFileHandle, reason: &str);
    /// Whether views that are taken now have the file that this is a version of.
    fn is_in_views(&self, file: &DataFileHandle) -> bool;
    /// So many bytes were compared with their checksum.
    fn count_checked(&self, bytes: u64);
}

impl DataFileHandle {
    /// What a catalogue entry describes.
    pub(crate) fn new(entry: &FileEntry, context: &Arc<DataFileContext>, lineage: Arc<FileLineage>) -> Self {
        let mut path = entry.path(&context.layout);
        // There may be a hundred thousand.
        path.shrink_to_fit();
        Self {
            id: entry.id,
            version: entry.version,
            table: entry.table,
            path,
            form: entry.form,
            size: entry.size,
            rows: entry.rows,
            min_ts: entry.min_ts(),
            max_ts: entry.max_ts(),
            sealed: entry.sealed,
            runs: entry.runs.clone(),
            key: (entry.partition, entry.number),
            crc: entry.crc,
            footer_crc: entry.footer_crc,
            lineage,
            context: Arc::clone(context),
            index: ArcSwapOption::empty(),
        }
    }

    pub(crate) const fn cache_key(&self) -> FileVersionKey {
        (self.id, self.version)
    }

    /// The spec that its messages are of.
    #[must_use]
    pub const fn spec(&self) -> Option<SpecName> {
        self.key.0.parts().2
    }

    /// Its place among its table's files.
    pub(crate) const fn key(&self) -> (TimePartition, u32) {
        self.key
    }

    pub(crate) const fn lineage(&self) -> &Arc<FileLineage> {
        &self.lineage
    }

    /// The CRC-32C of its bytes.
    pub(crate) const fn crc(&self) -> u32 {
        self.crc
    }

    /// What is known of its rows without reading them, if there is an index of it: of sealed Parquet files it is made when they are
    /// sealed, or in the background.
    #[must_use]
    pub fn index(&self) -> Option<Arc<SidecarIndex>> {
        self.index.load_full()
    }

    pub(crate) fn set_index(&self, index: Option<Arc<SidecarIndex>>) {
        if index.is_some() {
            self.lineage.live.store(Arc::default());
        }
        self.index.store(index);
    }

    /// The file with this version's bytes, which are its first [`DataFileHandle::size`] bytes. Opened for the first time it is
    /// read, and compared with its checksum. One that is in the object store, and not whole here, is fetched first: this
    /// blocks.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is not what was written, or was found so by somebody else and put aside: no view taken from now
    /// on has it. If the file is missing, or cannot
    /// be fetched.
    pub fn open(&self) -> Result<File, Error> {
        let opened = match (self.open_here(), &self.context.cache) {
            (Err(_), Some(cache)) if self.is_uploaded() => self.fetch(cache),
            (opened, _) => opened,
        };
        if let (Err(Error::Damaged { reason, .. }), Some(store)) = (&opened, self.context.owner.upgrade()) {
            store.report_damage(self, reason);
        }
        opened.map_err(|error| self.explain(error))
    }

    /// A file may be missing because somebody else found it damaged since the view was taken.
    fn explain(&self, error: Error) -> Error {
        match self.context.owner.upgrade().filter(|_| error.is_not_found()) {
            Some(store) if !store.is_in_views(self) => Error::damaged(&self.path, "it was quarantined"),
            _ => error,
        }
    }

    /// As [`DataFileHandle::open`], by a handle that others read from too: read at positions only. One that is kept costs nothing.
    ///
    /// # Errors
    /// As [`DataFileHandle::open`].
    pub fn open_shared(&self) -> Result<Arc<File>, Error> {
        if let Some(file) = self.context.files.get(self.cache_key()) {
            return Ok(file);
        }
        let file = Arc::new(self.open()?);
        // Beside an object store, local copies are taken away to make room: a handle would keep their space.
        if self.context.cache.is_none() {
            self.context.files.put(self.cache_key(), Arc::clone(&file), 1);
        }
        Ok(file)
    }

    /// As [`DataFileHandle::open`], of what is in the tree alone.
    pub(crate) fn open_here(&self) -> Result<File, Error> {
        match self.find() {
            Ok(file) => self.check(&file).map(|()| file),
            Err(Error::Stale { path, reason, .. }) => Err(Error::Damaged { path, reason }),
            other => other,
        }
    }

    /// Brings the file here. Where the cache is too small it may be evicted before it is opened: it is fetched again then,
    /// [`FETCHES`] times at most.
    fn fetch(&self, cache: &RemoteFileCache) -> Result<File, Error> {
        let mut fetches = 1;
        loop {
            match self.fetch_once(cache) {
                Err(error) if error.is_not_found() && fetches < FETCHES => fetches += 1,
                fetched => return fetched,
            }
        }
    }

    /// What comes is compared with its checksum before it has its name.
    fn fetch_once(&self, cache: &RemoteFileCache) -> Result<File, Error> {
        match cache.fetch((self.table, self.id), &self.path, || self.open_here().is_ok()) {
            Ok(()) => *self.lineage.checked.lock() = (self.size, self.crc),
            Err(error @ Error::Remote { trouble, .. }) if cache.is_damage(trouble) => {
                return Err(Error::damaged(&self.path, error.to_string()));
            }
            Err(error) => return Err(error),
        }
        match self.find() {
            // A later version has the name by now.
            Err(Error::Stale { path, reason, .. }) => Err(Error::Damaged { path, reason }),
            found => found,
        }
    }

    /// Whether the object store has it.
    #[must_use]
    pub fn is_uploaded(&self) -> bool {
        let has = |cache: &Arc<RemoteFileCache>| cache.has(self.id, self.version);
        self.context.cache.as_ref().is_some_and(has)
    }

    /// Compares what was not compared yet. Others who open it meanwhile wait for the outcome.
    fn check(&self, file: &File) -> Result<(), Error> {
        let mut checked = self.lineage.checked.lock();
        let (size, crc) = *checked;
        if size >= self.size {
            return Ok(());
        }
        let found = self.crc_of(file, size, crc)?;
        if found != self.crc {
            // Memory and buses flip bits too, but rarely the same twice.
            let again = self.crc_of(&self.find()?, 0, 0)?;
            compare_crc(&self.path, again, self.crc)?;
        }
        *checked = (self.size, self.crc);
        if let Some(store) = self.context.owner.upgrade() {
            store.count_checked(self.size - size);
        }
        Ok(())
    }

    /// Compares all of its bytes with the checksum that was recorded.
    ///
    /// # Errors
    /// [`Error::Damaged`] if they differ.
    pub(crate) fn compare(&self, file: &FilePrefix) -> Result<(), Error> {
        let found = file_crc(file, 0, 0).map_err(Error::io("read", &self.path))?;
        compare_crc(&self.path, found, self.crc)
    }

    fn crc_of(&self, file: &File, from: u64, crc: u32) -> Result<u32, Error> {
        let file = file.try_clone().map_err(Error::io("open", &self.path))?;
        file_crc(&FilePrefix::new(file, self.size), from, crc).map_err(Error::io("read", &self.path))
    }

    /// The file with this version's bytes by its footer; the rest is not looked at.
    ///
    /// # Errors
    /// If the file is missing or is not this version.
    pub(crate) fn find(&self) -> Result<File, Error> {
        let found = match self.try_open(&self.path) {
            Ok(file) => Ok(file),
            Err(under_its_name) => self.try_open(&self.lineage.retired()).map_err(|_| under_its_name),
        };
        if let (Ok(_), Some(cache)) = (&found, &self.context.cache) {
            cache.touch(self.id);
        }
        found
    }

    fn try_open(&self, path: &PathBuf) -> Result<File, Error> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let ours = FilePrefix::new(file.try_clone().map_err(Error::io("open", path))?, self.size);
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

    /// Whether it is Parquet. Else it is made of lines: [`DataFileHandle::lines`].
    #[must_use]
    pub const fn is_parquet(&self) -> bool {
        self.form.is_parquet()
    }

    /// The rows of a file of lines, in no order.
    ///
    /// # Errors
    /// If the file cannot be opened. What is damaged in it is an error of the iterator.
    pub fn lines(&self) -> Result<NdjsonReader, Error> {
        let file = FilePrefix::new(self.open()?, self.size);
        NdjsonReader::new(self.table, &self.path, self.form, &file, self.rows)
    }

    /// The footer of a Parquet file, from the cache or the file; with the page index for sealed files.
    ///
    /// # Errors
    /// If the file cannot be opened or its footer is damaged.
    pub fn metadata(&self) -> Result<Arc<ParquetMetaData>, Error> {
        self.context.footers.get_or(self.cache_key(), || {
            // The page index lies outside the footer.
            let file = if self.sealed || self.is_uploaded() {
                self.open()?
            } else {
                self.find().map_err(|error| self.explain(error))?
            };
            let footer = read_metadata(&FilePrefix::new(file, self.size), &self.path, self.sealed)?;
            let weight = footer.memory_size();
            Ok((Arc::new(footer), weight))
        })
    }

    /// The footer if it is at hand: never waits for the disk.
    #[must_use]
    pub fn metadata_cached(&self) -> Option<Arc<ParquetMetaData>> {
        self.context.footers.get(self.cache_key())
    }
}

impl Drop for DataFileHandle {
    fn drop(&mut self) {
        self.context.files.forget(self.cache_key());
        self.context.footers.forget(self.cache_key());
    }
}
