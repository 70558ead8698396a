//! Sidecars: beside a sealed Parquet file, in a folder of their own, a file that says which of its rows can have an id, and how many
//! rows each minute has.
//!
//! ```text
//! <store_dir>/index/<table>/<segment / 4096>/segment_<segment>_v<version>.idx
//!
//! sealer ─> view ─> keeper: reads the sealed file, writes its sidecar ─> Segment::index ─> queries: blocks to read, or none
//! ```
//!
//! A *block* is [`BLOCK_ROWS`] consecutive rows of one row group; the last one of a group may have fewer. Blocks are numbered
//! through the groups of a file.
//!
//! # Invariants
//!
//! - A row that has an id lies in a block of the answer, whatever became of the sidecar: what is missing, damaged, or of
//!   another version answers "every block".
//! - A sidecar is never needed: it is not in the catalogue, not synced, and made anew where it is not as written. Nothing
//!   relies on what it was before a crash.
//! - It is of one version of one segment, by the checksum of the data file's bytes.
//!
//! # Not here
//!
//! What a query asks, and the rows themselves: `query`.

mod build;
mod counts;
mod digest;
mod format;
mod ids;
mod keeper;
mod memory;
mod orders;
mod rebuild;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use model::Table;

use crate::catalog::{Key, Segment};
use crate::layout::Layout;
use crate::segment::FileAt;
use crate::shared::Shared;
use crate::{Engine, Error};
use digest::Range;
use format::{Bad, Head, Kind, Section, level_of, read_at};
use memory::Memory;

pub use counts::{CountedGroup, Counts, CountsBy, MINUTE};
pub(crate) use format::Owner;
pub(crate) use keeper::run;
pub(crate) use orders::Indexes;
pub use rebuild::{IndexReport, rebuild_index};

/// Rows of a block.
pub const BLOCK_ROWS: u32 = 2048;

/// A column of ids that is indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdColumn {
    /// `flux_id`: 16 bytes.
    FluxId,
    /// `trace_id`, as text; of logs, the attribute of that name as text.
    TraceId,
}

impl IdColumn {
    const fn kind(self) -> Kind {
        match self {
            Self::FluxId => Kind::FluxIds,
            Self::TraceId => Kind::TraceIds,
        }
    }
}

/// Blocks of a segment that can have what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocks {
    /// Every one.
    All,
    /// These, in order, each once.
    Some(Vec<u32>),
}

impl Blocks {
    /// No block at all.
    pub const NONE: Self = Self::Some(Vec::new());

    /// Whether no row of the segment can be meant.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Those that are in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, blocks) | (blocks, Self::All) => blocks,
            (Self::Some(mut blocks), Self::Some(other)) => {
                blocks.retain(|block| other.binary_search(block).is_ok());
                Self::Some(blocks)
            }
        }
    }

    /// Those that are in one of them.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::Some(mut blocks), Self::Some(other)) => {
                blocks.extend(other);
                blocks.sort_unstable();
                blocks.dedup();
                Self::Some(blocks)
            }
        }
    }
}

/// What was found in an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// Where rows can be.
    pub blocks: Blocks,
    /// Bytes that were read from the disk for it; none where what is kept in memory says it.
    pub bytes: u64,
}

impl Lookup {
    const fn free(blocks: Blocks) -> Self {
        Self { blocks, bytes: 0 }
    }
}

/// The sidecar of one version of a data file. There may be a hundred thousand.
#[derive(Debug)]
pub struct SegmentIndex {
    /// The folder of all of them.
    folder: Arc<Path>,
    table: Table,
    key: Key,
    size: u64,
    blocks: u32,
    rows: u64,
    ids: Box<[Ids]>,
    counts: [Option<Section>; 2],
    /// It may lack what is made now.
    is_outdated: bool,
    memory: Arc<Memory>,
    /// Something in it is not as it was written, or cannot be read.
    is_bad: AtomicBool,
    store: Weak<Shared>,
}

/// What is known of a column of ids.
#[derive(Debug)]
struct Ids {
    column: IdColumn,
    range: Option<Range>,
    section: Option<Section>,
}

impl SegmentIndex {
    /// Opens the sidecar of a version.
    fn open(folder: &Arc<Path>, owner: &Owner, memory: &Arc<Memory>, store: &Weak<Shared>) -> Result<Self, Error> {
        let path = path_of(folder, owner.table, (owner.segment, owner.version));
        let file = File::open(&path).map_err(Error::io("open", &path))?;
        let size = file.metadata().map_err(Error::io("read", &path))?.len();
        let damaged = |reason: String| Error::Damaged {
            path: path.clone(),
            reason,
        };
        match Head::read(&FileAt::new(file, size), size) {
            Ok(head) if head.owner == *owner => Ok(Self::of(&head, size, folder, memory, store)),
            Ok(_) => Err(damaged("it is of another data file".to_owned())),
            Err(Bad::Io(source) | Bad::Shut(source)) => Err(Error::io("read", &path)(source)),
            Err(Bad::Form(reason)) => Err(damaged(reason.to_owned())),
        }
    }

    fn of(head: &Head, size: u64, folder: &Arc<Path>, memory: &Arc<Memory>, store: &Weak<Shared>) -> Self {
        let ids = [IdColumn::FluxId, IdColumn::TraceId].map(|column| Ids {
            column,
            range: head.digest.range(column.kind()),
            section: head.section(column.kind()),
        });
        Self {
            folder: Arc::clone(folder),
            table: head.owner.table,
            key: (head.owner.segment, head.owner.version),
            size,
            blocks: head.blocks,
            rows: head.owner.rows,
            ids: ids.into(),
            counts: CountsBy::ALL.map(|by| head.section(by.kind())),
            is_outdated: head.level < level_of(head.owner.table),
            memory: Arc::clone(memory),
            is_bad: false.into(),
            store: Weak::clone(store),
        }
    }

    /// Its bytes on the disk.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The blocks whose rows can have an id, given by the bytes by which the column stores it. May read from the disk.
    #[must_use]
    pub fn ids(&self, column: IdColumn, id: &[u8]) -> Lookup {
        let Some(ids) = self.ids.iter().find(|ids| ids.column == column) else {
            return Lookup::free(Blocks::All);
        };
        if ids.range.is_some_and(|range| !range.may_hold(id)) {
            return Lookup::free(Blocks::NONE);
        }
        let Some(section) = ids.section.filter(|_| !self.is_bad()) else {
            return Lookup::free(Blocks::All);
        };
        self.look_up(column, section, id).unwrap_or_else(|error| {
            self.give_up_if_bad(&error);
            Lookup::free(Blocks::All)
        })
    }

    /// Looks an id up in what is kept of a section, in all of it if that is to be kept, else in pieces of it.
    fn look_up(&self, column: IdColumn, section: Section, id: &[u8]) -> Result<Lookup, Bad> {
        if let Some(kept) = self.memory.section(self.key, column.kind()) {
            return Ok(Lookup::free(self.find(section, id, within(&kept))?.blocks));
        }
        if !self.memory.wants(section.length) {
            let file = self.file().map_err(Bad::Shut)?;
            return self.find(section, id, |buffer, at| {
                file.read_exact_at(buffer, section.offset + at)
            });
        }
        let file = File::open(self.path()).map_err(Bad::Shut)?;
        let bytes: Arc<[u8]> = read_at(&FileAt::new(file, self.size), section.offset, section.length)?.into();
        let blocks = self.find(section, id, within(&bytes))?.blocks;
        self.memory.keep(self.key, column.kind(), bytes);
        Ok(Lookup {
            blocks,
            bytes: section.length,
        })
    }

    fn find(
        &self,
        section: Section,
        id: &[u8],
        read: impl Fn(&mut [u8], u64) -> std::io::Result<()>,
    ) -> Result<Lookup, Bad> {
        let found = ids::find(id, section.form, section.length, read)?;
        if found.blocks.last().is_some_and(|last| *last >= self.blocks) {
            return Err(Bad::Form("an index of ids names a block that is not there"));
        }
        Ok(Lookup {
            blocks: Blocks::Some(found.blocks),
            bytes: found.bytes,
        })
    }

    fn path(&self) -> PathBuf {
        path_of(&self.folder, self.table, self.key)
    }

    /// Its bytes, by a handle that is kept.
    fn file(&self) -> std::io::Result<FileAt> {
        let file = match self.memory.file(self.key) {
            Some(file) => file,
            None => {
                let file = Arc::new(File::open(self.path())?);
                self.memory.keep_file(self.key, &file);
                file
            }
        };
        Ok(FileAt::shared(file, self.size))
    }

    fn is_bad(&self) -> bool {
        self.is_bad.load(Ordering::Relaxed)
    }

    /// Whether it is whole, and has what is made now.
    fn is_as_wanted(&self) -> bool {
        !self.is_bad() && !self.is_outdated
    }

    /// From now on it says nothing; it is made anew, if the segment is still there.
    fn give_up(&self, error: &Bad) {
        if self.is_bad.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(store) = self.store.upgrade() {
            store.indexes.look();
            tracing::warn!(%error, path = %self.path().display(), "an index is not as it was written; it is made anew");
        }
    }
}

impl Drop for SegmentIndex {
    fn drop(&mut self) {
        self.memory.forget(self.key);
    }
}

/// Reads from bytes as from a file.
fn within(bytes: &[u8]) -> impl Fn(&mut [u8], u64) -> std::io::Result<()> {
    |buffer, at| {
        let piece = usize::try_from(at)
            .ok()
            .and_then(|at| bytes.get(at..)?.get(..buffer.len()));
        buffer.copy_from_slice(piece.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// How names of sidecars end.
const FINISHED: &str = "idx";

/// The name of the sidecar of a version, in the folder of all of them.
fn path_of(folder: &Path, table: Table, (id, version): Key) -> PathBuf {
    let name = format!("{:06}/segment_{id:020}_v{version}.{FINISHED}", id / 4096);
    folder.join(table.name()).join(name)
}

impl Layout {
    /// The sidecar of a version of a segment.
    pub(crate) fn sidecar(&self, table: Table, key: Key) -> PathBuf {
        path_of(&self.index, table, key)
    }
}

/// Opens what may be a sidecar, of whatever it says, looks ids up in it, and counts.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz_sidecar(file: File, size: u64) {
    let file = Arc::new(file);
    let Ok(head) = Head::read(&FileAt::shared(Arc::clone(&file), size), size) else {
        return;
    };
    // Nothing is kept of it but the handle: there is no file by its name.
    let memory = Arc::new(Memory::new(0));
    let index = SegmentIndex::of(&head, size, &Path::new("").into(), &memory, &Weak::new());
    memory.keep_file(index.key, &file);
    for column in [IdColumn::FluxId, IdColumn::TraceId] {
        for id in [
            &[0; 16][..],
            &[0x7f; 16],
            &[0xff; 16],
            b"0123456789abcdef0123456789abcdef",
        ] {
            if let Blocks::Some(blocks) = index.ids(column, id).blocks {
                assert!(blocks.is_sorted() && blocks.iter().all(|block| *block < head.blocks));
            }
        }
    }
    for (counts, _) in CountsBy::ALL.into_iter().filter_map(|by| index.counts(by)) {
        let cells = counts.groups().flat_map(|group| group.minutes());
        assert_eq!(cells.map(|(_, rows)| rows).sum::<u64>(), head.owner.rows);
    }
}

impl Engine {
    /// Returns when every sealed file that can be indexed is, or could not be just now; at once where nothing is indexed.
    ///
    /// # Errors
    /// If the store is closed meanwhile.
    pub async fn index_all(&self) -> Result<(), Error> {
        if !self.shared.settings.index || self.shared.indexes.all().await {
            return Ok(());
        }
        Err(self.shared.refusal())
    }
}

/// Whether rows of a table have ids to index.
pub(crate) fn is_indexed(table: Table) -> bool {
    !build::columns_of_table(table).is_empty()
}

/// Whether a segment should have a sidecar.
pub(crate) fn wants_index(segment: &Segment) -> bool {
    segment.sealed && segment.is_parquet() && is_indexed(segment.table)
}
