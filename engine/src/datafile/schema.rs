//! Parquet schema of each column: types, encodings, statistics, filters.
//!
//! | [`ColumnType`] | Parquet | encoding | statistics |
//! |---|---|---|---|
//! | `Time` | INT64 TIMESTAMP(MICROS, adjusted) | DELTA_BINARY_PACKED | yes |
//! | `Uuid` | FLBA(16) UUID | dictionary for entities, else PLAIN | yes |
//! | `Word` | BYTE_ARRAY UTF8 | dictionary | yes |
//! | `Text` | BYTE_ARRAY UTF8 | dictionary where it pays, else DELTA_LENGTH_BYTE_ARRAY for ids, PLAIN for others | only ids |
//! | `Json` | BYTE_ARRAY JSON or UTF8 | dictionary where it pays, and in small groups of metrics and traces; else PLAIN | no |
//! | `Float` | FLOAT | dictionary where it pays, else BYTE_STREAM_SPLIT | yes |
//! | `Double` | DOUBLE | PLAIN | yes |
//! | `Blob` | BYTE_ARRAY | PLAIN | no |
//!
//! Where a dictionary pays, [`super::dictionary_choice`] says for the rows of a final form. Pages are of version 2, without which the
//! writer gives no dictionary to fixed-size ids. Every encoding is named here, as that version's defaults are others, which
//! not every reader knows for every type.
//!
//! The embedded Arrow schema says Utf8 for JSON columns: readers that prefer it see a string instead of an extension type
//! they may not know, the others see JSON. Words are never Parquet ENUM, which many readers show as bytes.
//!
//! What a spec promotes comes behind, with statistics in every file, and filters for texts, whole numbers and ids in final forms.
//!
//! # Not here
//!
//! Which columns a table has: [`model::Table`].

use std::sync::Arc;

use arrow_schema::extension::Json as JsonExtension;
use arrow_schema::{Field, Schema};
use model::spec::SpecColumn;
use model::{ColumnType, Table, TableColumn};
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression as Codec, Encoding, LogicalType, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::schema::types::{ColumnPath, SchemaDescriptor};

use super::dictionary_choice::DictionaryChoice;
use super::file_format::FileFormat;
use super::promoted_columns::{self, FileColumns, PromotedColumns};
use super::sort_order::FileSortOrder;
use crate::io_pacing::IoPriority;
use crate::{CompressionCodec, JsonType};

/// Rows of a sealed row group, at most.
pub(super) const SEALED_GROUP_ROWS: usize = 128 << 10;
/// Bytes of a page and of a dictionary in an open file. A seal holds one page per column and row group at once.
const OPEN_PAGE_BYTES: usize = 64 << 10;
/// Values between two looks at a page's size: large values overshoot the limit by at most so many.
const OPEN_WRITE_BATCH: usize = 128;
/// Bytes of a dictionary in a final form, at most: whoever reads one row of the column decodes all of it, and a column that
/// outgrows it goes on without.
pub(super) const DICTIONARY_BYTES: usize = 6 << 20;
/// The level of zstd for texts in a large dictionary, at least: what is left of them when nothing is there twice is alike at
/// distances that level 1 does not see.
const DICTIONARY_LEVEL: i32 = 2;
/// How often a filter may claim an id that is not there.
const BLOOM_FALSE_POSITIVES: f64 = 0.01;
/// Different ids that a filter has room for: as many as the largest row groups have rows. It shrinks to what it holds.
const BLOOM_DISTINCT: u64 = 256 << 10;

/// How files of a store are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    /// What files are made of.
    pub(crate) form: FileFormat,
    /// The page compression.
    pub(crate) compression: CompressionCodec,
    /// The level of zstd, 1 to 22, at least; other codecs have none.
    pub(crate) zstd_level: i32,
    /// The Parquet type of JSON columns.
    pub(crate) json: JsonType,
    /// The order of the rows; of an open file, its own.
    pub(crate) order: FileSortOrder,
    /// What the row groups of an open file may cost a merge.
    pub(crate) merge_max: u64,
    /// Bytes of a row group, at most, encoded or not: the memory of its writer, and of whoever reads it whole.
    pub(crate) group_max: usize,
    /// Whether somebody waits for a sealed file.
    pub(crate) haste: IoPriority,
    /// The columns behind the table's; of an open file, its own.
    pub(crate) promoted: Option<Arc<PromotedColumns>>,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            form: FileFormat::default(),
            compression: CompressionCodec::default(),
            zstd_level: 1,
            json: JsonType::default(),
            order: FileSortOrder::default(),
            merge_max: 64 << 20,
            group_max: 64 << 20,
            haste: IoPriority::default(),
            promoted: None,
        }
    }
}

/// What a group of rows is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WritePurpose {
    /// One row group of an open file: cheap, small pages, no page index, no filters.
    Publish,
    /// Row groups of an open file in their final form, which a seal copies.
    Run(DictionaryChoice),
    /// A sealed file.
    Seal(DictionaryChoice),
}

impl WritePurpose {
    /// Which columns get a large dictionary; `None` where all are small.
    fn repeats(self) -> Option<DictionaryChoice> {
        match self {
            Self::Publish => None,
            Self::Run(repeats) | Self::Seal(repeats) => Some(repeats),
        }
    }
}

/// The Parquet schema of a file.
pub(super) fn parquet_schema(columns: &FileColumns, json: JsonType) -> Result<SchemaDescriptor, ParquetError> {
    let (table, schema) = (columns.table, columns.schema());
    let fields = schema.fields().iter().enumerate().map(|(at, field)| {
        let field = Field::clone(field);
        let is_json = table
            .columns()
            .get(at)
            .is_some_and(|column| column.kind == ColumnType::Json);
        if is_json && json == JsonType::Json {
            field.with_extension_type(JsonExtension::default())
        } else {
            field
        }
    });
    let fields = Schema::new(fields.collect::<Vec<_>>());
    ArrowSchemaConverter::new().schema_root(table.name()).convert(&fields)
}

/// Which JSON type a file was begun with; a table without JSON columns fits both.
pub(super) fn json_type_of(table: Table, schema: &SchemaDescriptor) -> JsonType {
    let is_json = |column: &TableColumn| column.kind == ColumnType::Json;
    let first = table.columns().iter().position(is_json);
    let descriptor = first.and_then(|at| schema.columns().get(at));
    match descriptor.and_then(|column| column.logical_type_ref()) {
        Some(LogicalType::Json) | None => JsonType::Json,
        Some(_) => JsonType::String,
    }
}

/// Everything the Arrow writer needs.
pub(super) fn writer_options(
    columns: &FileColumns,
    options: &WriteOptions,
    purpose: WritePurpose,
) -> Result<ArrowWriterOptions, ParquetError> {
    Ok(ArrowWriterOptions::new()
        .with_properties(properties(columns, options, purpose)?)
        .with_parquet_schema(parquet_schema(columns, options.json)?))
}

fn properties(
    columns: &FileColumns,
    options: &WriteOptions,
    purpose: WritePurpose,
) -> Result<WriterProperties, ParquetError> {
    let table = columns.table;
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("platform version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(codec(options, options.zstd_level)?)
        .set_dictionary_enabled(false)
        .set_sorting_columns(Some(options.order.columns()));
    builder = match purpose {
        WritePurpose::Publish => builder
            .set_max_row_group_row_count(None)
            .set_data_page_size_limit(OPEN_PAGE_BYTES)
            .set_dictionary_page_size_limit(OPEN_PAGE_BYTES)
            .set_write_batch_size(OPEN_WRITE_BATCH)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true),
        WritePurpose::Run(_) => builder
            .set_max_row_group_row_count(None)
            .set_statistics_enabled(EnabledStatistics::Page),
        WritePurpose::Seal(_) => builder
            .set_max_row_group_row_count(Some(SEALED_GROUP_ROWS))
            .set_max_row_group_bytes(Some(options.group_max))
            .set_statistics_enabled(EnabledStatistics::Page),
    };
    for (at, column) in table.columns().iter().enumerate() {
        let repeats = purpose.repeats().map(|repeats| repeats.has(at));
        builder = column_properties(builder, table, column, repeats);
        if repeats == Some(true) && column.kind != ColumnType::Float {
            let level = options.zstd_level.max(DICTIONARY_LEVEL);
            builder = builder.set_column_compression(ColumnPath::from(column.name), codec(options, level)?);
        }
    }
    for (column, at) in columns.promoted().iter().zip(table.columns().len()..) {
        let repeats = purpose.repeats().map(|repeats| repeats.has(at));
        builder = promoted_properties(builder, column, repeats);
    }
    Ok(builder.build())
}

fn promoted_properties(
    builder: WriterPropertiesBuilder,
    column: &SpecColumn,
    repeats: Option<bool>,
) -> WriterPropertiesBuilder {
    let path = ColumnPath::from(column.name.as_str());
    let builder = builder
        .set_column_encoding(path.clone(), promoted_columns::encoding(column.kind))
        .set_column_dictionary_enabled(path.clone(), repeats == Some(true));
    final_properties(builder, &path, repeats, promoted_columns::has_filter(column.kind))
}

/// What a column has in final forms alone: a large dictionary, a filter.
fn final_properties(
    builder: WriterPropertiesBuilder,
    path: &ColumnPath,
    repeats: Option<bool>,
    has_filter: bool,
) -> WriterPropertiesBuilder {
    let builder = if repeats == Some(true) {
        builder.set_column_dictionary_page_size_limit(path.clone(), DICTIONARY_BYTES)
    } else {
        builder
    };
    if repeats.is_none() || !has_filter {
        return builder;
    }
    builder
        .set_column_bloom_filter_enabled(path.clone(), true)
        .set_column_bloom_filter_fpp(path.clone(), BLOOM_FALSE_POSITIVES)
        .set_column_bloom_filter_max_ndv(path.clone(), BLOOM_DISTINCT)
}

/// `repeats`: whether the column does, in a final form.
fn column_properties(
    builder: WriterPropertiesBuilder,
    table: Table,
    column: &TableColumn,
    repeats: Option<bool>,
) -> WriterPropertiesBuilder {
    let path = ColumnPath::from(column.name);
    let builder = builder
        .set_column_encoding(path.clone(), encoding(column))
        .set_column_dictionary_enabled(path.clone(), has_dictionary(table, column, repeats));
    let builder = if has_statistics(column) {
        builder
    } else {
        builder.set_column_statistics_enabled(path.clone(), EnabledStatistics::None)
    };
    let has_filter = matches!(column.name, "flux_id" | "trace_id");
    final_properties(builder, &path, repeats, has_filter)
}

/// The encoding of values that are in no dictionary.
fn encoding(column: &TableColumn) -> Encoding {
    match column.kind {
        ColumnType::Time => Encoding::DELTA_BINARY_PACKED,
        ColumnType::Float => Encoding::BYTE_STREAM_SPLIT,
        // Digits of equal length: their lengths take nothing, and between digits they cost a bit each.
        ColumnType::Text if is_id(column) => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        ColumnType::Uuid
        | ColumnType::Word
        | ColumnType::Text
        | ColumnType::Json
        | ColumnType::Double
        | ColumnType::Blob => Encoding::PLAIN,
    }
}

fn has_dictionary(table: Table, column: &TableColumn, repeats: Option<bool>) -> bool {
    match column.kind {
        ColumnType::Word => true,
        ColumnType::Uuid => column.name == "entity_id",
        // Labels and the attributes of spans mostly repeat themselves, those of logs often do not.
        ColumnType::Json => repeats.unwrap_or(matches!(table, Table::Metrics | Table::Traces)),
        ColumnType::Text | ColumnType::Float => repeats.unwrap_or(false),
        ColumnType::Time | ColumnType::Double | ColumnType::Blob => false,
    }
}

pub(super) fn is_id(column: &TableColumn) -> bool {
    column.name.ends_with("_id")
}

/// The least and greatest of a free text prune nothing, and cost space in every footer.
fn has_statistics(column: &TableColumn) -> bool {
    match column.kind {
        ColumnType::Json | ColumnType::Blob => false,
        ColumnType::Text => is_id(column),
        ColumnType::Time | ColumnType::Uuid | ColumnType::Word | ColumnType::Float | ColumnType::Double => true,
    }
}

fn codec(options: &WriteOptions, level: i32) -> Result<Codec, ParquetError> {
    Ok(match options.compression {
        CompressionCodec::Zstd => Codec::ZSTD(ZstdLevel::try_new(level)?),
        CompressionCodec::Snappy => Codec::SNAPPY,
        CompressionCodec::None => Codec::UNCOMPRESSED,
    })
}

/// The schema that a file of `table` must have to take a group written with `options`.
pub(super) fn same_schema(a: &Arc<SchemaDescriptor>, b: &Arc<SchemaDescriptor>) -> bool {
    Arc::ptr_eq(a, b) || a.root_schema() == b.root_schema()
}
