//! Makes a sidecar from a sealed Parquet file, or from one row group of an open one: bytes from bytes, nothing is written here.
//!
//! # Invariants
//!
//! - Only bytes that have the recorded checksum are indexed: an index of damaged ones would hide rows. Those of a sealed file are
//!   compared here, those of an open one by whoever opens it.
//! - Memory is bounded by the entries of the sections of ids, eight bytes each, a page and a dictionary of a column, and what
//!   [`ngram_index`] and [`super::minute_rollup`] take, whatever the file holds.

use std::path::Path;
use std::sync::Arc;

use model::{Table, field_text};
use parquet::file::metadata::RowGroupMetaData;

use super::column_reader::{ColumnValues, IndexSource};
use super::minute_rollup::rollup_builder::FileRollupBuilder;
use super::sidecar_format::{EncodedSection, IndexedFile, SectionKind, encode};
use super::zone_map::{IdRange, ZoneMap};
use super::{BLOCK_ROWS, IdColumn, id_index, ngram_index};
use crate::Error;
use crate::datafile::{FilePrefix, compare_crc, file_crc_while, read_metadata};

/// The column whose texts are indexed.
const MESSAGE: &str = "message";

/// The sidecar of a file; `None` if `go_on`, which is asked again and again, says that it is not wanted any more.
pub(crate) fn build(
    file: &FilePrefix,
    path: &Path,
    owner: &IndexedFile,
    mut go_on: impl FnMut() -> bool,
) -> Result<Option<Vec<u8>>, Error> {
    let Some(crc) = file_crc_while(file, |_| go_on()).map_err(Error::io("read", path))? else {
        return Ok(None);
    };
    compare_crc(path, crc, owner.crc)?;
    let metadata = &Arc::new(read_metadata(file, path, true)?);
    let source = IndexSource { file, path, metadata };
    let mut counting = FileRollupBuilder::of(owner.table, owner.size, metadata);
    let mut building = SidecarBuilder::new(owner, metadata.row_groups());
    for group in 0..metadata.num_row_groups() {
        if !building.take(&source, group, &mut go_on)? {
            return Ok(None);
        }
        if let Some(counting) = &mut counting
            && !counting.take(file, group, &mut go_on)
        {
            return Ok(None);
        }
    }
    let counts = counting.map(|counting| counting.finish(owner.rows));
    Ok(Some(building.finish(owner, counts.unwrap_or_default())))
}

/// The sidecar of one row group, which has ids and texts alone; its blocks are numbered from 0. `owner` says how long the group is.
pub(super) fn build_group(
    source: &IndexSource<'_>,
    group: usize,
    owner: &IndexedFile,
    mut go_on: impl FnMut() -> bool,
) -> Result<Option<Vec<u8>>, Error> {
    let groups = source.metadata.row_groups().get(group).map(std::slice::from_ref);
    let mut building = SidecarBuilder::new(owner, groups.unwrap_or_default());
    let is_whole = building.take(source, group, &mut go_on)?;
    Ok(is_whole.then(|| building.finish(owner, Vec::new())))
}

/// Whether texts of a table are indexed.
const fn has_texts(table: Table) -> bool {
    matches!(table, Table::Logs)
}

fn texts_of(groups: &[RowGroupMetaData], size: u64) -> ngram_index::NgramIndexBuilder {
    let (mut blocks, mut bytes) = (0, 0);
    for group in groups {
        let rows = u32::try_from(group.num_rows()).unwrap_or(0);
        blocks += rows.div_ceil(BLOCK_ROWS);
        let mut columns = group.columns().iter();
        let messages = columns.find(|column| column.column_descr().path().string() == MESSAGE);
        bytes += messages.map_or(0, |chunk| u64::try_from(chunk.uncompressed_size()).unwrap_or(0));
    }
    ngram_index::NgramIndexBuilder::new(blocks, bytes, size)
}

/// What is indexed of row groups, so far.
struct SidecarBuilder {
    columns: Vec<IdColumnBuilder>,
    texts: Option<ngram_index::NgramIndexBuilder>,
}

impl SidecarBuilder {
    /// Nothing yet, of these groups.
    fn new(owner: &IndexedFile, groups: &[RowGroupMetaData]) -> Self {
        Self {
            columns: columns_of(owner.table),
            texts: has_texts(owner.table).then(|| texts_of(groups, owner.size)),
        }
    }

    /// Takes the next group. Whether it was taken whole, as `go_on` says.
    fn take(
        &mut self,
        source: &IndexSource<'_>,
        group: usize,
        go_on: &mut impl FnMut() -> bool,
    ) -> Result<bool, Error> {
        for column in &mut self.columns {
            let name = column.name;
            if !source.read(group, name, |values| column.take(&values).map(|()| go_on()))? {
                return Ok(false);
            }
            column.ids.end_group();
        }
        if let Some(texts) = &mut self.texts {
            let take = |values: ColumnValues<'_>| texts.add(values.rows, values.do_repeat).map(|()| go_on());
            if !source.read(group, MESSAGE, take)? {
                return Ok(false);
            }
            texts.end_group();
        }
        Ok(true)
    }

    fn finish(self, owner: &IndexedFile, counts: Vec<EncodedSection>) -> Vec<u8> {
        let blocks = self.columns.first().map_or(0, |column| column.ids.blocks());
        let ranges: Vec<_> = self.columns.iter().map(|column| (column.kind, column.range)).collect();
        let mut parts = vec![EncodedSection {
            kind: SectionKind::Digest,
            form: 0,
            bytes: ZoneMap::new(&ranges).encode(),
            is_checked: false,
        }];
        for column in self.columns {
            parts.extend(column.ids.finish().map(|(form, bytes)| EncodedSection {
                kind: column.kind,
                form,
                bytes,
                is_checked: true,
            }));
        }
        for (class, form, bytes) in self.texts.into_iter().flat_map(ngram_index::NgramIndexBuilder::finish) {
            parts.push(EncodedSection {
                kind: class.kind(),
                form,
                bytes,
                is_checked: true,
            });
        }
        parts.extend(counts);
        encode(owner, BLOCK_ROWS, blocks, &parts)
    }
}

/// A column whose values, or the trace ids in them, are indexed.
struct IdColumnBuilder {
    name: &'static str,
    kind: SectionKind,
    ids: id_index::IdIndexBuilder,
    range: IdRange,
}

/// What is indexed of a table; nothing of most.
pub(super) fn columns_of_table(table: Table) -> &'static [(&'static str, IdColumn)] {
    match table {
        Table::Logs => &[("flux_id", IdColumn::FluxId), ("attributes", IdColumn::TraceId)],
        Table::Traces | Table::Messages => &[("flux_id", IdColumn::FluxId), ("trace_id", IdColumn::TraceId)],
        Table::Metrics | Table::DeadLetters => &[],
    }
}

fn columns_of(table: Table) -> Vec<IdColumnBuilder> {
    let columns = columns_of_table(table).iter();
    let column = |(name, of): &(&'static str, IdColumn)| IdColumnBuilder {
        name,
        kind: of.kind(),
        ids: id_index::IdIndexBuilder::default(),
        range: IdRange::default(),
    };
    columns.map(column).collect()
}

impl IdColumnBuilder {
    fn add(&mut self, id: Option<&[u8]>) {
        id.iter().for_each(|id| self.range.add(id));
        self.ids.add(id);
    }

    /// The next rows; `None` if they are not what the column has.
    fn take(&mut self, values: &ColumnValues<'_>) -> Option<()> {
        for value in values.rows {
            if self.name == "attributes" {
                let object = value.map(std::str::from_utf8).transpose().ok()?;
                let id = object.and_then(|object| field_text(object, "trace_id"));
                self.add(id.as_deref().map(str::as_bytes));
            } else {
                self.add(*value);
            }
        }
        Some(())
    }
}
