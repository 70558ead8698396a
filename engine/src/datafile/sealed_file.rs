//! Sealed files: sorted, with large row groups, filters and page index. A version never changes; late rows may make a later one.
//!
//! A file whose rows came in large groups is put together from them ([`super::sorted_runs`]); any other is encoded anew, sorted over
//! all rows.
//!
//! A sealed file is finished in staging, synced, and installed under its name in one step. Where it takes the name of an
//! open file, that one gets a name among the retired first, so that at every moment a holder of the old version finds it
//! under one of the two.
//!
//! # Invariants
//!
//! - The sealed file has exactly the rows of the open one; a different count or a broken checksum is an error.
//! - It takes what its rows need, however long the open file was: nothing lies between its parts.
//! - Memory: the merge's bound plus one row group of at most 64 MiB and the rows that wait for it, whatever the file's size.
//!
//! # Not here
//!
//! When to seal, and when nobody holds the retired file any more: the engine.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use durable_fs::FolderHandles;
use model::Table;
use parquet::file::metadata::ParquetMetaData;

use super::file_prefix::{CHUNK, FilePrefix, compare_crc, file_crc};
use super::footer::{FileIdentity, FileVersion, FooterFacts, RowBounds, inspect_at, key_values, unwritable};
use super::group_writer::GroupWriter;
use super::ndjson;
use super::open_file::{OpenDataFile, OpenFileVersion};
use super::promoted_columns::FileColumns;
use super::row_group::{SortedBatches, times};
use super::row_group_merge::RowGroupMerge;
use super::schema::WriteOptions;
use super::shadow_file::{self, ReplaceMethod};
use super::sort_order::FileSortOrder;
use super::sorted_runs;
use crate::Error;
use crate::io_pacing::PacedWriter;

/// Merges or copies the row groups of an open file into a sealed one at `staged`, with `version` in its footer.
///
/// # Errors
/// If the disk refuses, or the open file is not what was published. The open file stays as it is.
pub(crate) fn seal(
    open: &OpenDataFile,
    staged: &Path,
    version: u32,
    options: &WriteOptions,
) -> Result<FileVersion, Error> {
    let Some(present) = open.present() else {
        return Err(Error::rows(
            open.identity().table,
            format!("nothing was ever flushed to {}", open.path().display()),
        ));
    };
    let facts = FooterFacts {
        version,
        ..present.facts.clone()
    };
    let options = &WriteOptions {
        order: open.order(),
        promoted: open.promoted().cloned(),
        ..options.clone()
    };
    clean_on_error(staged, || {
        let source = verified(open.path(), present)?;
        let Some(pages) = present.pages() else {
            return ndjson::seal(open, present, &source, staged, &facts);
        };
        if sorted_runs::pays(pages) {
            let file = sorted_runs::assemble(open, (present, pages), &source, staged, &facts, options)?;
            return complete(&file, staged);
        }
        let metadata = Arc::new(ParquetMetaData::new(pages.file.clone(), pages.groups.clone()));
        let table = open.identity().table;
        let mut merge = RowGroupMerge::new(
            &FileColumns::new(table, options),
            open.path(),
            &source,
            metadata,
            &present.widths,
            options.order,
        )?;
        let mut output = SealedFileWriter::create(table, present.extent.rows, staged, options)?;
        while let Some(rows) = merge.next_chunk()? {
            output.write(rows)?;
        }
        match output.extent {
            Some(extent) if extent == present.extent => output.finish(open.identity(), &facts),
            found => Err(Error::damaged(
                open.path(),
                format!("its rows are {found:?} instead of {:?}", present.extent),
            )),
        }
    })
}

/// Sorts rows in memory into a sealed file at `staged`.
///
/// # Errors
/// If there are no rows, they are not the table's, or the disk refuses.
pub(crate) fn write_sealed(
    identity: &FileIdentity,
    batches: &[RecordBatch],
    facts: FooterFacts,
    staged: &Path,
    options: &WriteOptions,
) -> Result<FileVersion, Error> {
    if !options.form.is_parquet() {
        return clean_on_error(staged, || {
            ndjson::write_sealed(identity, batches, &facts, staged, options)
        });
    }
    let table = identity.table;
    let options = &WriteOptions {
        order: FileSortOrder::of(table),
        ..options.clone()
    };
    let sorted = SortedBatches::new(&FileColumns::new(table, options), options.order, batches)?;
    clean_on_error(staged, || {
        let mut output = SealedFileWriter::create(table, sorted.extent.rows, staged, options)?;
        for rows in sorted.chunks() {
            let rows = rows.map_err(Error::arrow("sort", table))?;
            output.write(rows)?;
        }
        output.finish(identity, &facts)
    })
}

/// The open file, after its bytes were found to be the published ones: what is re-encoded cannot be checked later.
fn verified(path: &Path, present: &OpenFileVersion) -> Result<FilePrefix, Error> {
    let Some(source) = FilePrefix::open(path)?.prefix(present.bytes.size) else {
        let reason = format!("it is shorter than the {} bytes that were written", present.bytes.size);
        return Err(Error::damaged(path, reason));
    };
    let crc = file_crc(&source, 0, 0).map_err(Error::io("read", path))?;
    compare_crc(path, crc, present.bytes.crc)?;
    Ok(source)
}

/// What of an open file is not as it was published, by reading all of it; `None` where nothing is.
///
/// # Errors
/// If it cannot be read: that is no damage.
pub(crate) fn damage_of(open: &OpenDataFile) -> Result<Option<String>, Error> {
    let Some(present) = open.present() else {
        return Ok(None);
    };
    match verified(open.path(), present) {
        Ok(_) => Ok(None),
        Err(Error::Damaged { reason, .. }) => Ok(Some(reason)),
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(Some("it is not there".to_owned()))
        }
        Err(error) => Err(error),
    }
}

pub(super) fn clean_on_error<T>(staged: &Path, make: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let made = make();
    if made.is_err() {
        // Staging is emptied at every start: a failure here only costs space until then.
        let _ = durable_fs::remove_if_there(staged);
    }
    made
}

/// A sealed file being written.
struct SealedFileWriter {
    table: Table,
    path: PathBuf,
    writer: GroupWriter<BufWriter<PacedWriter>>,
    extent: Option<RowBounds>,
}

impl SealedFileWriter {
    fn create(table: Table, rows: u64, path: &Path, options: &WriteOptions) -> Result<Self, Error> {
        let file = BufWriter::with_capacity(CHUNK, PacedWriter::new(shadow_file::create(path)?, options.haste));
        Ok(Self {
            table,
            path: path.to_owned(),
            writer: GroupWriter::new(FileColumns::new(table, options), options.clone(), rows, file),
            extent: None,
        })
    }

    /// Appends rows that are sorted and come after those before.
    fn write(&mut self, rows: RecordBatch) -> Result<(), Error> {
        let added = RowBounds::of(times(self.table, &rows)?);
        self.extent = [self.extent, added].into_iter().flatten().reduce(RowBounds::and);
        self.writer.write(rows).map_err(unwritable(&self.path))
    }

    /// Ends the file and syncs it.
    fn finish(self, identity: &FileIdentity, facts: &FooterFacts) -> Result<FileVersion, Error> {
        let Some(extent) = self.extent else {
            return Err(Error::rows(self.table, "there are none"));
        };
        let path = self.path;
        let pairs = key_values(identity, facts, &extent, true);
        let buffered = self.writer.into_inner(pairs).map_err(unwritable(&path))?;
        let file = buffered
            .into_inner()
            .map_err(|failed| failed.into_error())
            .map_err(Error::io("write", &path))?;
        complete(&file.into_inner(), &path)
    }
}

/// Syncs a file that has everything, and describes it.
pub(super) fn complete(file: &File, path: &Path) -> Result<FileVersion, Error> {
    durable_fs::sync_file(file, path)?;
    described(path)
}

/// What a file is that has everything.
pub(super) fn described(path: &Path) -> Result<FileVersion, Error> {
    let file = FilePrefix::open(path)?;
    let crc = file_crc(&file, 0, 0).map_err(Error::io("read", path))?;
    Ok(inspect_at(&file, path)?.version(path, crc))
}

impl FileVersion {
    /// Puts the file under the name of the open one, durably. That one keeps the name `retired`.
    ///
    /// # Errors
    /// If the disk refuses. Nothing has changed then, except after [`Error::InDoubt`]: the name means one of the two files,
    /// complete; a restart finds out which.
    pub(crate) fn install(&self, path: &Path, retired: &Path) -> Result<(), Error> {
        let folder = durable_fs::parent_of(retired);
        if !folder.is_dir() {
            durable_fs::create_private_dirs(folder)?;
        }
        let folders = FolderHandles::open([durable_fs::parent_of(path), durable_fs::parent_of(&self.path), folder])?;
        durable_fs::remove_if_there(retired)?;
        let linked = durable_fs::link(path, retired).is_ok();
        if shadow_file::swap_in(&self.path, path, ReplaceMethod::Exchange)? == ReplaceMethod::Exchange {
            if linked {
                // A name too many in staging, which is emptied at every start.
                let _ = durable_fs::remove_if_there(&self.path);
            } else if let Err(error) = durable_fs::rename(&self.path, retired) {
                // Holders of the open file would not find it: the names go back.
                shadow_file::swap_in(&self.path, path, ReplaceMethod::Exchange).map_err(|_| Error::InDoubt {
                    path: path.to_owned(),
                    source: std::io::Error::from(error.kind()),
                })?;
                return Err(Error::io("retire", path)(error.source));
            }
        }
        Ok(folders.sync()?)
    }

    /// Puts the file under a free name, durably.
    ///
    /// # Errors
    /// If the name is taken or the disk refuses. Nothing has changed then, except after [`Error::InDoubt`].
    pub(crate) fn install_new(&self, path: &Path) -> Result<(), Error> {
        let put = || {
            durable_fs::create_dirs(durable_fs::parent_of(path))?;
            let folders = shadow_file::folders_of(&self.path, path)?;
            durable_fs::rename_to_free(&self.path, path)?;
            Ok(folders.sync()?)
        };
        clean_on_error(&self.path, put)
    }
}
