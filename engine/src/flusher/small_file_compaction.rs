//! Compaction of small files of a partition, as late rows, restarts and evictions leave them.
//!
//! A partition whose open file was sealed gets another one when rows come late. Once it has [`MOST`] files that are not full, its
//! youngest sealed one of them is rewritten together with the late rows, and exchanged under its name:
//!
//! ```text
//! old rows and new ones sorted into staging ─> exchanged under the name ─> catalogue record ─> swap the view
//! ```
//!
//! # Invariants
//!
//! - At every moment a list of the tree has each row once: one name means the file without the late rows, or with them.
//! - The later version differs from the earlier one in length: so a start that finds it without its record knows it.
//! - Views of then read the earlier version, under its retired name. A copy of it that is on its way from the object store never
//!   takes the name of the later one.
//! - The flusher waits for no object store: a file that is not here is not rewritten, late rows get one of their own.

use std::sync::Arc;

use super::MemtableFlusher;
use crate::Error;
use crate::data_file_handle::DataFileHandle;
use crate::datafile::{FilePrefix, FooterFacts, WriteOptions, read_whole, write_sealed};
use crate::engine_core::EngineCore;
use crate::file_templates::FileTemplate;
use crate::layout::TimePartition;
use crate::manifest::{FileEntry, FileLineage};
use crate::memtable::{FrozenRows, OriginRanges, PartitionKey};
use crate::open_partition::{FlushedGroup, write_options};

/// Files of a partition that are not full, at most.
const MOST: usize = 4;
/// A file is full from this part of [`crate::Settings::segment_size`] on: to rewrite it for a few rows would not pay.
const FULL_PART: u64 = 32;
/// Or from so many rows on: they are all in memory while it is rewritten.
const FULL_ROWS: u64 = 256 << 10;
/// And so many bytes, decoded: what repeats takes little of a file.
const MOST_BYTES: usize = 128 << 20;

impl MemtableFlusher {
    /// Whether the partition's next rows go into a file that it has: it is past, has no open file, and small ones enough.
    pub(super) fn has_many_small(&self, place: PartitionKey) -> bool {
        let now = TimePartition::of(self.shared.time.clock.now(), self.shared.settings.partition_by);
        !self.open.contains_key(&place)
            && place.1.of_spec(None) != now
            && small_files(&self.shared, place).len() >= MOST
    }

    /// Publishes rows into the youngest small file that takes them; `None` if none does.
    pub(super) fn merge_into_small(
        &self,
        place: PartitionKey,
        frozen: &FrozenRows,
    ) -> Result<Option<FlushedGroup>, Error> {
        if !self.has_many_small(place) {
            return Ok(None);
        }
        for segment in small_files(&self.shared, place).iter().rev().filter(|file| file.sealed) {
            if let Some(done) = merge(&self.shared, segment, frozen)? {
                return Ok(Some(done));
            }
        }
        Ok(None)
    }
}

/// The files of a partition that are not full, the youngest last.
fn small_files(shared: &EngineCore, place: PartitionKey) -> Vec<Arc<DataFileHandle>> {
    let full = shared.settings.segment_size.get() / FULL_PART;
    let state = shared.rows.state.lock();
    let files = state.files_of(place).iter();
    let is_small = |file: &&Arc<DataFileHandle>| file.size < full && file.rows < FULL_ROWS;
    files.filter(is_small).cloned().collect()
}

/// Rewrites a sealed file with more rows; `None` if it is damaged, is not here, is large when it is decoded, or has other columns
/// than a new one would.
fn merge(shared: &EngineCore, segment: &DataFileHandle, frozen: &FrozenRows) -> Result<Option<FlushedGroup>, Error> {
    let Some(old) = shared.store.catalog.lock().state().file(segment.id).cloned() else {
        return Ok(None);
    };
    let place = old.place();
    let FileTemplate { prefix, promoted } = shared.file_form(place);
    let options = write_options(&shared.settings);
    // Files of lines have the table's columns alone.
    let promoted = promoted.filter(|_| options.form.is_parquet());
    let options = WriteOptions { promoted, ..options };
    if (old.prefix, old.form) != (prefix, options.form) {
        return Ok(None);
    }
    // One that cannot be read is for those to find who read it: rows that come do not wait for that.
    let whole = segment.find().and_then(|file| {
        let file = FilePrefix::new(file, old.size);
        segment.compare(&file)?;
        read_whole(old.table, &file, &segment.path, MOST_BYTES)
    });
    let Some(whole) = whole.ok().flatten().filter(|whole| whole.promoted == options.promoted) else {
        return Ok(None);
    };
    let mut origins = OriginRanges::from_text(&whole.facts.origins);
    origins.join(&frozen.origins);
    let facts = FooterFacts {
        version: old.version + 1,
        first_lsn: old.first.min(frozen.first),
        last_lsn: old.last.max(frozen.through),
        origins: origins.to_text(),
    };
    let rows = [whole.rows, frozen.rows.clone()].concat();
    let staged = shared.store.layout.sealing(old.table, old.id);
    let sealed = write_sealed(&old.identity(shared.store.id), &rows, facts, &staged, &options)?;
    if sealed.size == old.size {
        durable_fs::remove_if_there(&staged)?;
        return Ok(None);
    }
    let cache = shared.remote.as_ref().map(|remote| &remote.cache);
    let object = cache.and_then(|cache| cache.supersede(old.id, old.version));
    // From here on nobody takes a copy away; it may be gone already.
    let is_here = segment.path.symlink_metadata().is_ok();
    let installed = if is_here {
        sealed.install(&segment.path, &segment.lineage().retired())
    } else {
        Ok(durable_fs::remove_if_there(&staged)?)
    };
    if !is_here || installed.is_err() {
        let is_in_doubt = installed.as_ref().is_err_and(Error::is_in_doubt);
        if let (Some(cache), false) = (cache, is_in_doubt) {
            cache.restore(old.id, object, is_here);
        }
        return installed.map(|()| None);
    }
    shared.counters.rewritten_files.add(1);
    let entry = FileEntry {
        published: shared.time.clock.now().micros(),
        ..old.at(&sealed)
    };
    Ok(Some(FlushedGroup {
        place,
        lineage: FileLineage::of_sealed(&shared.store.layout, &entry),
        entry,
        displaced: Some(Arc::clone(segment.lineage())),
        through: frozen.through,
        rows: sealed.rows - segment.rows,
        bytes: sealed.size,
    }))
}
