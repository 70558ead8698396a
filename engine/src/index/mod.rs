//! Sidecars: beside a sealed Parquet file, in a folder of their own, a file that says which of its rows can have an id, or a text
//! in their message, and how many rows each minute has. Of open files the same is in memory, row group by row group: [`live_index`].
//!
//! ```text
//! <store_dir>/index/<table>/<segment / 4096>/segment_<segment>_v<version>.idx
//!
//! sealer, or indexer: reads the sealed file, writes its sidecar ─> DataFileHandle::index ─> queries: blocks to read, or none
//! ```
//!
//! A *block* is [`BLOCK_ROWS`] consecutive rows of one row group; the last one of a group may have fewer. Blocks are numbered
//! through the groups of a file.
//!
//! # Invariants
//!
//! - A row that has an id or a text lies in a block of the answer, whatever became of the sidecar: what is missing, damaged, or of
//!   another version answers "every block", and counts nothing.
//! - A sidecar is never needed: it is not in the catalogue, not synced, and made anew where it is not as written. Nothing
//!   relies on what it was before a crash.
//! - It is of one version of one segment, by the checksum of the data file's bytes.
//!
//! # Not here
//!
//! What a query asks, and the rows themselves: `query`.

mod block_selection;
mod checksummed_pages;
mod column_reader;
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod id_index;
mod index_queue;
mod live_index;
mod minute_rollup;
mod ngram_index;
mod section_cache;
mod sidecar;
pub(crate) mod sidecar_builder;
mod sidecar_format;
#[cfg(test)]
pub(crate) mod tests;
mod zone_map;

use std::path::{Path, PathBuf};

use model::Table;

use crate::Error;
use crate::layout::{FileVersionKey, StoreLayout};
use sidecar_format::SectionKind;

pub use block_selection::{BlockSelection, IndexLookup};
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use fuzz::fuzz_sidecar;
pub(crate) use index_queue::{IndexQueue, IndexerGuard};
pub(crate) use live_index::{FileVersionExtent, LiveIndex};
pub(crate) use minute_rollup::LiveRollup;
pub use minute_rollup::{MINUTE, MinuteRollup, RollupDimension, RollupGroup};
pub use ngram_index::NgramQuery;
pub(crate) use section_cache::SectionCache;
pub use sidecar::SidecarIndex;
pub(crate) use sidecar_format::IndexedFile;

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
    const fn kind(self) -> SectionKind {
        match self {
            Self::FluxId => SectionKind::FluxIds,
            Self::TraceId => SectionKind::TraceIds,
        }
    }
}

/// How names of sidecars end.
pub(crate) const FINISHED: &str = "idx";
/// How names of sidecars end while they are written.
pub(crate) const UNFINISHED: &str = "new";

/// The name of the sidecar of a version, in the folder of all of them.
fn path_of(folder: &Path, table: Table, (id, version): FileVersionKey) -> PathBuf {
    let name = format!("{:06}/segment_{id:020}_v{version}.{FINISHED}", id / 4096);
    folder.join(table.name()).join(name)
}

impl StoreLayout {
    /// The sidecar of a version of a segment.
    pub(crate) fn sidecar(&self, table: Table, key: FileVersionKey) -> PathBuf {
        path_of(&self.index, table, key)
    }
}

/// Whether rows of a table have ids to index.
pub(crate) fn is_indexed(table: Table) -> bool {
    !sidecar_builder::columns_of_table(table).is_empty()
}

/// Puts a sidecar under its name, whole or not at all. It is worth no sync.
pub(crate) fn write_sidecar(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let folder = durable_fs::parent_of(path);
    std::fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let unfinished = path.with_extension(UNFINISHED);
    let written = std::fs::write(&unfinished, bytes).and_then(|()| std::fs::rename(&unfinished, path));
    written.map_err(|source| {
        // Part of a sidecar is worth nothing; the next start removes what stays.
        let _ = std::fs::remove_file(&unfinished);
        Error::io("write", path)(source)
    })
}
