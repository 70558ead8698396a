//! The sidecar of one version of a data file, opened, or of one row group of an open file, in memory: what queries look ids and texts up
//! in, and take counts from.
//!
//! # Invariants
//!
//! - What cannot be read, or is not as it was written, answers "every block", and the sidecar is made anew.
//! - It reads the bytes that it was opened on. A sidecar that was made anew under the same name is another one, told apart by the
//!   checksum of its head.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use model::Table;
use parquet::file::reader::Length;

use super::block_selection::{BlockSelection, IndexLookup};
use super::minute_rollup::RollupDimension;
use super::ngram_index::{self, NgramClass, NgramQuery};
use super::section_cache::{OpeningId, SectionCache};
use super::sidecar_format::{HEAD_CRC, IndexedFile, SectionEntry, SectionKind, SidecarError, SidecarHeader};
use super::zone_map::IdRange;
use super::{IdColumn, IndexQueue, id_index, path_of};
use crate::Error;
use crate::datafile::FilePrefix;
use crate::layout::FileVersionKey;

/// The sidecar of one version of a data file. There may be a hundred thousand.
#[derive(Debug)]
pub struct SidecarIndex {
    pub(super) location: SidecarLocation,
    pub(super) blocks: u32,
    pub(super) rows: u64,
    ids: Box<[IdColumnIndex]>,
    /// Sections of grams.
    texts: Box<[(NgramClass, SectionEntry)]>,
    pub(super) counts: [Option<SectionEntry>; 2],
    pub(super) memory: Arc<SectionCache>,
    pub(super) opening: OpeningId,
    /// Something in it is not as it was written, or cannot be read.
    is_bad: AtomicBool,
    /// Who is asked to make it anew when it is bad.
    queue: Weak<IndexQueue>,
    /// All of it, if it is of a row group: there is no file.
    here: Option<Box<[u8]>>,
}

/// Where it lies, and what it was when it was opened.
#[derive(Debug)]
pub(super) struct SidecarLocation {
    /// The folder of all of them.
    folder: Arc<Path>,
    table: Table,
    key: FileVersionKey,
    /// Of its head.
    crc: u32,
    pub(super) size: u64,
}

/// What is known of a column of ids.
#[derive(Debug)]
struct IdColumnIndex {
    column: IdColumn,
    range: Option<IdRange>,
    section: Option<SectionEntry>,
}

impl SidecarIndex {
    /// Opens the sidecar of a version.
    pub(crate) fn open(folder: &Arc<Path>, owner: &IndexedFile, queue: &Arc<IndexQueue>) -> Result<Self, Error> {
        let path = path_of(folder, owner.table, (owner.segment, owner.version));
        let file = FilePrefix::open(&path)?;
        let size = file.len();
        let damaged = |reason: String| Error::damaged(&path, reason);
        match SidecarHeader::read(|at, length| file.read(at, length), size) {
            Ok(head) if head.owner == *owner => {
                Ok(Self::of(&head, size, folder, &queue.memory, &Arc::downgrade(queue)))
            }
            Ok(_) => Err(damaged("it is of another data file".to_owned())),
            Err(SidecarError::Io(source) | SidecarError::Shut(source)) => Err(Error::io("read", &path)(source)),
            Err(SidecarError::Form(reason)) => Err(damaged(reason.to_owned())),
        }
    }

    pub(super) fn of(
        head: &SidecarHeader,
        size: u64,
        folder: &Arc<Path>,
        memory: &Arc<SectionCache>,
        queue: &Weak<IndexQueue>,
    ) -> Self {
        let ids = [IdColumn::FluxId, IdColumn::TraceId].map(|column| IdColumnIndex {
            column,
            range: head.digest.range(column.kind()),
            section: head.section(column.kind()),
        });
        let texts = NgramClass::ALL
            .into_iter()
            .filter_map(|class| Some((class, head.section(class.kind())?)));
        let texts: Box<[_]> = texts.collect();
        Self {
            counts: RollupDimension::ALL.map(|by| head.section(by.kind())),
            // An empty one says nothing.
            texts: texts.into_iter().filter(|(_, section)| section.length > 0).collect(),
            location: SidecarLocation {
                folder: Arc::clone(folder),
                table: head.owner.table,
                key: (head.owner.segment, head.owner.version),
                crc: head.crc,
                size,
            },
            blocks: head.blocks,
            rows: head.owner.rows,
            ids: ids.into(),
            memory: Arc::clone(memory),
            opening: memory.begin(),
            is_bad: false.into(),
            queue: Weak::clone(queue),
            here: None,
        }
    }

    /// That of a row group, which stays in memory; `None` if there is no room for it.
    pub(super) fn of_group(bytes: Vec<u8>, memory: &Arc<SectionCache>) -> Result<Option<Self>, SidecarError> {
        if !memory.take_room_for_open(bytes.len()) {
            return Ok(None);
        }
        let bytes = bytes.into_boxed_slice();
        let read = |at, length| Ok(piece(&bytes, at, length)?.to_vec());
        let head = SidecarHeader::read(read, bytes.len() as u64).inspect_err(|_| memory.give_room_back(bytes.len()))?;
        let mut index = Self::of(&head, bytes.len() as u64, &Path::new("").into(), memory, &Weak::new());
        index.here = Some(bytes);
        Ok(Some(index))
    }

    /// Its bytes on the disk.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.location.size
    }

    /// As [`crate::DataFileHandle::ids`].
    pub(crate) fn ids(&self, column: IdColumn, id: &[u8]) -> IndexLookup {
        let Some(ids) = self.ids.iter().find(|ids| ids.column == column) else {
            return IndexLookup::free(BlockSelection::All);
        };
        if ids.range.is_some_and(|range| !range.may_hold(id)) {
            return IndexLookup::free(BlockSelection::NONE);
        }
        let Some(section) = ids.section.filter(|_| !self.is_bad()) else {
            return IndexLookup::free(BlockSelection::All);
        };
        let place = (section.form, section.length);
        self.look_up(column.kind(), section, |read| {
            id_index::find(id, place, self.blocks, read)
        })
    }

    /// As [`crate::DataFileHandle::text`].
    pub(crate) fn text(&self, grams: &NgramQuery) -> IndexLookup {
        let mut found = IndexLookup::free(BlockSelection::All);
        for (class, section) in &self.texts {
            let grams = grams.of_class(*class);
            if grams.is_empty() || found.blocks.is_none() || self.is_bad() {
                continue;
            }
            let place = (section.form, section.length);
            let of_class = self.look_up(class.kind(), *section, |read| {
                ngram_index::find(grams, place, self.blocks, read)
            });
            found.blocks = found.blocks.and(of_class.blocks);
            found.bytes += of_class.bytes;
        }
        found
    }

    /// Looks something up in a section; what is wrong with it does not hide a row.
    fn look_up(
        &self,
        kind: SectionKind,
        section: SectionEntry,
        find: impl Fn(&SectionReader<'_>) -> Result<IndexLookup, SidecarError>,
    ) -> IndexLookup {
        self.try_look_up(kind, section, find).unwrap_or_else(|error| {
            self.mark_if_bad(&error);
            IndexLookup::free(BlockSelection::All)
        })
    }

    /// Looks something up in what is kept of a section, in all of it if that is to be kept, else in pieces of it.
    fn try_look_up(
        &self,
        kind: SectionKind,
        section: SectionEntry,
        find: impl Fn(&SectionReader<'_>) -> Result<IndexLookup, SidecarError>,
    ) -> Result<IndexLookup, SidecarError> {
        if let Some(all) = &self.here {
            let section = piece(all, section.offset, section.length)?;
            return Ok(IndexLookup::free(find(&within(section))?.blocks));
        }
        if let Some(kept) = self.memory.section(self.opening, kind) {
            return Ok(IndexLookup::free(find(&within(&kept))?.blocks));
        }
        if !self.memory.wants(section.length) {
            let file = self.file().map_err(SidecarError::Shut)?;
            return find(&|buffer: &mut [u8], at| file.read_exact_at(buffer, section.offset + at));
        }
        let file = FilePrefix::new(self.open_anew().map_err(SidecarError::Shut)?, self.location.size);
        let bytes: Arc<[u8]> = file.read(section.offset, section.length)?.into();
        let blocks = find(&within(&bytes))?.blocks;
        self.memory.keep(self.opening, kind, bytes);
        Ok(IndexLookup {
            blocks,
            bytes: section.length,
        })
    }

    pub(super) fn path(&self) -> PathBuf {
        path_of(&self.location.folder, self.location.table, self.location.key)
    }

    /// Its bytes, by a handle that is kept.
    pub(super) fn file(&self) -> std::io::Result<FilePrefix> {
        let file = match self.memory.files.get(self.opening) {
            Some(file) => file,
            None => {
                let file = Arc::new(self.open_anew()?);
                self.memory.files.put(self.opening, Arc::clone(&file), 1);
                file
            }
        };
        Ok(FilePrefix::shared(file, self.location.size))
    }

    /// Its file, by name: not found where another one has taken its place.
    pub(super) fn open_anew(&self) -> std::io::Result<File> {
        let file = File::open(self.path())?;
        let mut crc = [0; 4];
        file.read_exact_at(&mut crc, HEAD_CRC)?;
        if u32::from_le_bytes(crc) == self.location.crc {
            return Ok(file);
        }
        Err(ErrorKind::NotFound.into())
    }

    pub(crate) fn is_bad(&self) -> bool {
        self.is_bad.load(Ordering::Relaxed)
    }

    /// Says nothing more if it is not whole. For want of handles it is not thrown away.
    pub(super) fn mark_if_bad(&self, error: &SidecarError) {
        let may_be_whole = matches!(error, SidecarError::Shut(error) if error.kind() != ErrorKind::NotFound);
        if !may_be_whole {
            self.mark_bad(error);
        }
    }

    /// From now on it says nothing; it is made anew, if the segment is still there.
    fn mark_bad(&self, error: &SidecarError) {
        if self.is_bad.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(queue) = self.queue.upgrade() {
            queue.request_pass();
            tracing::warn!(%error, path = %self.path().display(), "an index is damaged; rebuilding it");
        }
    }
}

impl Drop for SidecarIndex {
    fn drop(&mut self) {
        match &self.here {
            Some(bytes) => self.memory.give_room_back(bytes.len()),
            None => self.memory.forget(self.opening),
        }
    }
}

/// Fills a buffer from a place of a section.
type SectionReader<'a> = dyn Fn(&mut [u8], u64) -> std::io::Result<()> + 'a;

/// Reads from bytes as from a file.
fn within(bytes: &[u8]) -> impl Fn(&mut [u8], u64) -> std::io::Result<()> {
    |buffer, at| {
        buffer.copy_from_slice(piece(bytes, at, buffer.len() as u64)?);
        Ok(())
    }
}

/// So many bytes from a place on.
fn piece(bytes: &[u8], at: u64, length: u64) -> std::io::Result<&[u8]> {
    let place = usize::try_from(at).ok().zip(usize::try_from(length).ok());
    let piece = place.and_then(|(at, length)| bytes.get(at..)?.get(..length));
    Ok(piece.ok_or(ErrorKind::UnexpectedEof)?)
}
