//! Published files: the data files that outside readers may rely on at one moment, as a table catalogue lists them.
//!
//! | the store | what is listed | what keeps it in its place |
//! |---|---|---|
//! | in a folder | sealed files of the snapshot | its handle: retention waits for whoever holds one; or a link of its own ([`PublishedFiles::pinned`]) |
//! | in an object store | what the last record names: sealed files, and pieces of open ones | the grace for which an object outlives its record |
//!
//! # Invariants
//!
//! - No row is in two files of a list. In an object store each row through the LSN of its last record is in one.
//! - The number is another one whenever the list is another, but for a file that is found damaged; rows of files that are still open
//!   on the disk do not change it.
//! - What is found missing or damaged is in no later list of this process, as it is in no later view; an object only once its footer
//!   was read twice.
//! - With an object store no handle is held: the read cache evicts what it has to, whoever holds a list.
//!
//! # Limits
//!
//! - What a list names is the same file only if segment, version and URI are: in an object store a sealed file that takes the
//!   place of an earlier version has a URI of its own at first, and that of the earlier one after the grace.
//! - In a folder a small sealed file may be rewritten with late rows under its name: a URI in the tree means the later version from
//!   then on. That of a link does not.

mod folder_list;
mod pinned_files;

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{Table, Timestamp};
use parquet::file::metadata::ParquetMetaData;

use crate::data_file_handle::DataFileHandle;
use crate::datafile::{FilePrefix, read_metadata};
use crate::layout::{StoreLayout, canonical, file_uri};
use crate::object_storage::RemoteLink;
use crate::object_storage::object_format::object_uri;
use crate::object_storage::remote_footer::read_footer;
use crate::object_storage::state::RemoteFile;
use crate::{Engine, Error, PartitionBy, ReadView, SpecName};
pub use folder_list::published_files_of;
pub use pinned_files::PinnedFiles;

/// What outside readers may rely on at one moment: Parquet files only.
#[derive(Debug, Clone, Default)]
pub struct PublishedFiles {
    /// Another one whenever the list is another, within this process; in an object store not for a file that was found damaged.
    pub number: u64,
    /// Whether a later list of the store has a greater one, whoever made it: so of what is in an object store.
    pub is_ordered: bool,
    /// The files, in no order.
    pub files: Vec<PublishedFile>,
}

/// A file that stays under its URI, as the module says, while this is held. A clone is cheap but for its URI.
#[derive(Debug, Clone)]
pub struct PublishedFile {
    /// Its table.
    pub table: Table,
    /// The spec that its messages are of.
    pub spec: Option<SpecName>,
    /// The length of its partition.
    pub partition_by: PartitionBy,
    /// The number of its partition since the epoch, in its own length.
    pub partition: i64,
    /// Its number: that of the segment, or a piece's own. Never given to another file of the store.
    pub segment: u64,
    /// Grows with the versions of a segment.
    pub version: u32,
    /// `file:///…` or `s3://bucket/…`, as it stands: nothing in it is percent-encoded.
    pub uri: String,
    /// Its length.
    pub size: u64,
    /// Its rows.
    pub rows: u64,
    /// Their earliest `ts`.
    pub min_ts: Timestamp,
    /// Their latest `ts`.
    pub max_ts: Timestamp,
    /// Whether it has a part of the rows of a file that is open yet.
    pub is_piece: bool,
    source: PublishedSource,
}

/// Where its footer is read, and what is held for it.
#[derive(Clone)]
enum PublishedSource {
    Tree(Arc<DataFileHandle>),
    Object(Arc<RemoteLink>, Arc<RemoteFile>),
    /// A link, or a file of a store that this process does not have open.
    Path(PathBuf),
}

impl fmt::Debug for PublishedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tree(_) => "Tree",
            Self::Object(..) => "Object",
            Self::Path(_) => "Path",
        })
    }
}

impl PublishedFile {
    fn in_tree(handle: &Arc<DataFileHandle>, uri: String) -> Self {
        let (partition, partition_by, spec) = handle.key().0.parts();
        Self {
            table: handle.table,
            spec,
            partition_by,
            partition,
            segment: handle.id,
            version: handle.version,
            uri,
            size: handle.size,
            rows: handle.rows,
            min_ts: handle.min_ts,
            max_ts: handle.max_ts,
            is_piece: false,
            source: PublishedSource::Tree(Arc::clone(handle)),
        }
    }

    fn of_object(link: &Arc<RemoteLink>, file: Arc<RemoteFile>) -> Self {
        let entry = &file.entry;
        let (partition, partition_by, spec) = entry.partition.parts();
        Self {
            table: entry.table,
            spec,
            partition_by,
            partition,
            segment: entry.id,
            version: entry.version,
            uri: object_uri(&link.settings.url, &link.names.object(&file.key)),
            size: entry.size,
            rows: entry.rows,
            min_ts: entry.min_ts(),
            max_ts: entry.max_ts(),
            is_piece: file.piece_of.is_some(),
            source: PublishedSource::Object(Arc::clone(link), file),
        }
    }

    /// Its footer, without the page index; `None` for a piece, unless it is of a spec and so may have other columns than its table.
    /// It is read now and not kept: this blocks.
    ///
    /// # Errors
    /// If the file is gone or damaged, or the disk or the object store refuses. A damaged file is in no later list, nor is an object
    /// that is gone.
    pub fn footer(&self) -> Result<Option<Arc<ParquetMetaData>>, Error> {
        if self.is_piece && self.spec.is_none() {
            return Ok(None);
        }
        let footer = match &self.source {
            PublishedSource::Tree(handle) => {
                if let Some(footer) = handle.metadata_cached() {
                    return Ok(Some(footer));
                }
                // Opening it in full compares it with its checksum, and takes it out of the views if it is damaged.
                let file = handle.find().or_else(|_| handle.open())?;
                read_metadata(&FilePrefix::new(file, handle.size), &handle.path, false)?
            }
            PublishedSource::Object(link, file) => {
                let read = match read_footer(link, file) {
                    // A network flips bits too, but rarely the same twice.
                    Err(error) if is_damage(link, &error) => read_footer(link, file),
                    read => read,
                };
                read.inspect_err(|error| leave_out_damaged(link, file, error))?
            }
            PublishedSource::Path(path) => {
                let file = File::open(path).map_err(Error::io("open", path))?;
                read_metadata(&FilePrefix::new(file, self.size), path, false)?
            }
        };
        Ok(Some(Arc::new(footer)))
    }
}

impl Engine {
    /// Another one whenever [`Engine::published_files`] would list other files, also because one was found damaged; costs nothing.
    #[must_use]
    pub fn published_number(&self) -> u64 {
        match &self.shared.remote {
            Some(link) if link.is_reader() => 0,
            Some(link) => link.recorded.lock().version(),
            None => self.view().sealed_changes(),
        }
    }

    /// The files that outside readers may rely on now; of an engine that only reads, none.
    #[must_use]
    pub fn published_files(&self) -> PublishedFiles {
        match &self.shared.remote {
            Some(link) if link.is_reader() => PublishedFiles::default(),
            Some(link) => recorded_files(link),
            None => sealed_files(&self.view(), &self.shared.store.layout),
        }
    }
}

fn is_damage(link: &RemoteLink, error: &Error) -> bool {
    matches!(error, Error::Remote { trouble, .. } if link.cache.is_damage(*trouble))
}

/// An object that is not what was written would hold up its table for ever: later lists do not have it.
fn leave_out_damaged(link: &RemoteLink, file: &RemoteFile, error: &Error) {
    let entry = &file.entry;
    if is_damage(link, error) && link.recorded.lock().leave_out(entry.id, entry.version) {
        tracing::error!(rows = entry.rows, %error, "an uploaded data file is damaged or missing: lists of published files do not have it");
    }
}

/// What the object store's last record names and what is sound of it, as far as is known.
fn recorded_files(link: &Arc<RemoteLink>) -> PublishedFiles {
    // The uploader's next record waits for the lock: names are put together without it.
    let (number, files): (u64, Vec<Arc<RemoteFile>>) = {
        let recorded = link.recorded.lock();
        (recorded.number, recorded.sound().cloned().collect())
    };
    let files = files.into_iter().filter(|file| file.entry.form.is_parquet());
    PublishedFiles {
        number,
        is_ordered: true,
        files: files.map(|file| PublishedFile::of_object(link, file)).collect(),
    }
}

/// What gives the URIs of files in the trees of a store.
fn uris_in_tree(layout: &StoreLayout) -> impl Fn(&Path) -> String {
    let (data, messages) = (canonical(&layout.data), canonical(&layout.messages));
    move |path: &Path| {
        let root = layout.root_of(path);
        let tree = if root == layout.messages { &messages } else { &data };
        file_uri(&tree.join(path.strip_prefix(root).unwrap_or(path)))
    }
}

/// The sealed files of a view.
fn sealed_files(view: &ReadView, layout: &StoreLayout) -> PublishedFiles {
    let uri = uris_in_tree(layout);
    let files = Table::ALL.iter().flat_map(|table| view.files(*table));
    let files = files.filter(|file| file.sealed && file.is_parquet());
    PublishedFiles {
        number: view.sealed_changes(),
        is_ordered: false,
        files: files
            .map(|file| PublishedFile::in_tree(file, uri(&file.path)))
            .collect(),
    }
}
