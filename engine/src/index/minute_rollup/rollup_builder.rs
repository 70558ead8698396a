//! Builds counts of rows by minute, level and entity, of a file while its sidecar is made, and of others.
//!
//! # Invariants
//!
//! - Memory is bounded by what a section may have, and by some pages of three columns: whoever outgrows it is counted without
//!   entities, then not at all.
//! - A file that has these columns in another form, or a row without a value in them, is not counted: its rows are read.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{Field, Schema};
use model::Table;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use super::super::sidecar_format::EncodedSection;
use super::word_dictionary::{DictionaryColumn, WordDictionary, coded, words};
use super::{MINUTE, RollupDimension, put};
use crate::datafile::FilePrefix;

/// Bytes of a section, at most, of however small a file.
const SMALL: u64 = 64 << 10;
/// Bytes of a section, at most, of however large a file.
const LARGE: u64 = 512 << 10;
/// Rows read at once.
const BATCH_ROWS: usize = 1024;
/// Words of a row group that take more are not words: they are not read.
const MOST_OF_WORDS: i64 = 1 << 20;

/// Counts what is counted of a file.
#[derive(Debug)]
pub(in super::super) struct FileRollupBuilder {
    counted: RollupBuilder,
    metadata: ArrowReaderMetadata,
}

impl FileRollupBuilder {
    /// Of so many bytes of a file; `None` if nothing of it is counted.
    pub(in super::super) fn of(table: Table, bytes: u64, file: &Arc<ParquetMetaData>) -> Option<Self> {
        if table != Table::Logs {
            return None;
        }
        let as_stored = ArrowReaderMetadata::try_new(Arc::clone(file), ArrowReaderOptions::new()).ok()?;
        let fields = as_stored.schema().fields().iter();
        let fields = fields.map(|field| match field.name().as_str() {
            "level" | "entity_name" => Field::clone(field).with_data_type(coded()),
            _ => Field::clone(field),
        });
        let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields.collect::<Vec<_>>())));
        Some(Self {
            counted: RollupBuilder::new(SMALL, (bytes / 100).clamp(SMALL, LARGE)),
            metadata: ArrowReaderMetadata::try_new(Arc::clone(file), options).ok()?,
        })
    }

    /// Counts the next row group. Whether to go on, as `go_on` says.
    pub(in super::super) fn take(&mut self, file: &FilePrefix, group: usize, go_on: &mut impl FnMut() -> bool) -> bool {
        let about = self.metadata.metadata().row_group(group);
        let RollupBuilder { levels, entities } = &mut self.counted;
        if !is_of_words(about, "entity_name") {
            *entities = None;
        }
        if !is_of_words(about, "level") {
            (*levels, *entities) = (None, None);
        }
        if levels.is_none() && entities.is_none() {
            return true;
        }
        let names = ["ts", "level", "entity_name"];
        let names = names
            .into_iter()
            .filter(|name| *name != "entity_name" || entities.is_some());
        let mask = ProjectionMask::columns(self.metadata.parquet_schema(), names);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), self.metadata.clone())
            .with_row_groups(vec![group])
            .with_projection(mask)
            .with_batch_size(BATCH_ROWS)
            .build();
        let Ok(reader) = reader else {
            self.counted.give_up();
            return true;
        };
        for batch in reader {
            if !go_on() {
                return false;
            }
            let Ok(batch) = batch else {
                // A reader that failed says so for ever.
                self.counted.give_up();
                return true;
            };
            self.counted.add(&batch);
        }
        true
    }

    /// The sections.
    pub(in super::super) fn finish(self, rows: u64) -> Vec<EncodedSection> {
        let section = |(by, bytes): (RollupDimension, Option<Vec<u8>>)| {
            Some(EncodedSection {
                kind: by.kind(),
                form: 0,
                bytes: bytes?,
                is_checked: false,
            })
        };
        let sections = RollupDimension::ALL.into_iter().zip(self.counted.finish(rows));
        sections.filter_map(section).collect()
    }

    /// What is counted of a row group alone.
    pub(super) fn of_group(
        counted: RollupBuilder,
        file: &FilePrefix,
        metadata: &Arc<ParquetMetaData>,
        group: usize,
    ) -> Option<RollupBuilder> {
        let all = Self::of(Table::Logs, 0, metadata)?;
        let mut counting = Self { counted, ..all };
        counting.take(file, group, &mut || true);
        Some(counting.counted)
    }
}

/// Rows, counted in both ways; one that became too large is none.
#[derive(Debug)]
pub(super) struct RollupBuilder {
    levels: Option<RollupSectionBuilder>,
    entities: Option<RollupSectionBuilder>,
}

impl RollupBuilder {
    /// For sections of so many bytes at most.
    pub(super) fn new(levels: u64, entities: u64) -> Self {
        Self {
            levels: Some(RollupSectionBuilder::new(levels)),
            entities: Some(RollupSectionBuilder::new(entities)),
        }
    }

    fn give_up(&mut self) {
        (self.levels, self.entities) = (None, None);
    }

    pub(super) fn add(&mut self, batch: &RecordBatch) {
        if self.try_add(batch).is_none() {
            self.give_up();
        }
    }

    fn try_add(&mut self, batch: &RecordBatch) -> Option<()> {
        let times = batch.column_by_name("ts")?;
        if times.null_count() > 0 {
            return None;
        }
        let times = times.as_primitive_opt::<TimestampMicrosecondType>()?.values();
        let minutes = || times.iter().map(|ts| ts.div_euclid(MINUTE));
        let levels = words(batch, "level")?;
        if let Some(builder) = &mut self.levels
            && builder.add(minutes(), &levels, None).is_none()
        {
            self.levels = None;
        }
        if let Some(builder) = &mut self.entities {
            let entities = words(batch, "entity_name");
            let added = entities.and_then(|entities| builder.add(minutes(), &levels, Some(&entities)));
            if added.is_none() {
                self.entities = None;
            }
        }
        Some(())
    }

    /// The sections, as [`RollupDimension::ALL`] has them.
    pub(super) fn finish(self, rows: u64) -> [Option<Vec<u8>>; 2] {
        [self.levels, self.entities].map(|builder| builder?.finish(rows))
    }
}

fn is_of_words(group: &RowGroupMetaData, name: &str) -> bool {
    let mut columns = group.columns().iter();
    let column = columns.find(|column| column.column_path().string() == name);
    column.is_some_and(|column| column.uncompressed_size() <= MOST_OF_WORDS)
}

/// Minutes and their rows; one may be there more than once until they are tidied.
type MinuteCells = Vec<(i64, u64)>;

/// Makes one section.
#[derive(Debug)]
pub(super) struct RollupSectionBuilder {
    most: usize,
    levels: WordDictionary,
    entities: WordDictionary,
    groups: HashMap<(u32, u32), MinuteCells>,
    cells: usize,
    tidied: usize,
}

impl RollupSectionBuilder {
    /// A section of at most so many bytes.
    pub(super) fn new(most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Self {
            most,
            levels: WordDictionary::new(most),
            entities: WordDictionary::new(most),
            groups: HashMap::new(),
            cells: 0,
            tidied: 0,
        }
    }

    /// Counts rows; `None` if there is too much for a section.
    fn add(
        &mut self,
        minutes: impl Iterator<Item = i64>,
        levels: &DictionaryColumn,
        entities: Option<&DictionaryColumn>,
    ) -> Option<()> {
        let levels = levels.numbers(&mut self.levels)?;
        let entities = match entities {
            Some(entities) => entities.numbers(&mut self.entities)?,
            None => vec![0; levels.len()],
        };
        for (minute, group) in minutes.zip(levels.into_iter().zip(entities)) {
            self.count(minute, group);
        }
        self.compact_to_bounds().then_some(())
    }

    /// Counts one row.
    #[cfg(test)]
    pub(super) fn add_row(&mut self, minute: i64, level: &str, entity: Option<&str>) -> Option<()> {
        let entity = entity.map_or(Some(0), |entity| self.entities.number(entity))?;
        let group = (self.levels.number(level)?, entity);
        self.count(minute, group);
        self.compact_to_bounds().then_some(())
    }

    fn count(&mut self, minute: i64, group: (u32, u32)) {
        let cells = self.groups.entry(group).or_default();
        match cells.last_mut() {
            Some((last, rows)) if *last == minute => *rows += 1,
            _ => {
                cells.push((minute, 1));
                self.cells += 1;
            }
        }
    }

    /// A cell takes two bytes at least, a group eight with its first cell.
    fn compact_to_bounds(&mut self) -> bool {
        if self.cells > 2 * self.tidied + 1024 {
            self.groups.values_mut().for_each(tidy);
            self.cells = self.groups.values().map(Vec::len).sum();
            self.tidied = self.cells;
        }
        self.groups.len() * 6 + self.tidied * 2 <= self.most
    }

    /// The section; `None` if it is too large, or has not as many rows as there are.
    pub(super) fn finish(self, rows: u64) -> Option<Vec<u8>> {
        let (levels, level_places) = self.levels.sorted();
        let (entities, entity_places) = self.entities.sorted();
        let place = |places: &[usize], number: u32| places.get(number as usize).copied().unwrap_or(0);
        let groups = self.groups.into_iter();
        let mut groups: Vec<((usize, usize), MinuteCells)> = groups
            .map(|((level, entity), mut cells)| {
                tidy(&mut cells);
                ((place(&level_places, level), place(&entity_places, entity)), cells)
            })
            .collect();
        groups.sort_unstable_by_key(|(key, _)| *key);
        let firsts = groups.iter().filter_map(|(_, cells)| cells.first());
        let start = firsts.map(|(minute, _)| *minute).min().unwrap_or(0);
        let mut out = start.to_le_bytes().to_vec();
        for texts in [levels, entities] {
            put(&mut out, texts.len() as u64);
            for text in texts {
                put(&mut out, text.len() as u64);
                out.extend_from_slice(text.as_bytes());
            }
        }
        put(&mut out, groups.len() as u64);
        let mut counted = 0;
        for (key, cells) in groups {
            counted += put_group(&mut out, start, key, &cells)?;
        }
        (counted == rows && out.len() <= self.most).then_some(out)
    }
}

fn tidy(cells: &mut MinuteCells) {
    cells.sort_unstable();
    cells.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        kept.1 += if is_same { next.1 } else { 0 };
        is_same
    });
}

/// How many rows it has.
fn put_group(out: &mut Vec<u8>, start: i64, (level, entity): (usize, usize), cells: &MinuteCells) -> Option<u64> {
    let (first, last) = (cells.first()?.0, cells.last()?.0);
    let mut encoded = Vec::new();
    let (mut minute, mut rows) = (first, 0);
    for (next, count) in cells {
        put(&mut encoded, next.abs_diff(minute));
        put(&mut encoded, count.checked_sub(1)?);
        minute = *next;
        rows += count;
    }
    for number in [
        level as u64,
        entity as u64,
        rows,
        first.abs_diff(start),
        last.abs_diff(first),
        encoded.len() as u64,
    ] {
        put(out, number);
    }
    out.extend_from_slice(&encoded);
    Some(rows)
}
