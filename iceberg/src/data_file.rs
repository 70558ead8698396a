//! A data file as a manifest describes it: where it lies, its partition, its rows, what its columns have.
//!
//! # Invariants
//!
//! - The bounds of `ts` are the engine's own, so every file has them. What else is known comes from the footer; of pieces of open
//!   files, which live for minutes, no footer is read but of those of specs, for their columns.
//! - What is said of a column is said of the type that the table's schema has for it.
//!
//! # Not here
//!
//! Avro: [`crate::manifest`].

use std::collections::BTreeMap;

use engine::PublishedFile;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

use crate::bounds::{self, ColumnMetrics};
use crate::partition_spec::{PartitionUnit, TS_COLUMN_ID};
use crate::schema::IcebergSchema;

/// A data file of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataFile {
    /// Its URI.
    pub(crate) path: String,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// Its rows.
    pub(crate) rows: u64,
    /// The length of its partition.
    pub(crate) unit: PartitionUnit,
    /// The number of its partition since the epoch, in that length.
    pub(crate) partition: i32,
    /// Values of each column, nulls among them, by its number.
    pub(crate) value_counts: BTreeMap<i32, i64>,
    /// Nulls of each column.
    pub(crate) null_counts: BTreeMap<i32, i64>,
    /// A value of each column than which none is less.
    pub(crate) lower: BTreeMap<i32, Vec<u8>>,
    /// A value of each column than which none is greater.
    pub(crate) upper: BTreeMap<i32, Vec<u8>>,
}

impl DataFile {
    /// A file that the engine publishes, with its footer if it was read, in a table with these columns.
    pub(crate) fn new(file: &PublishedFile, footer: Option<&ParquetMetaData>, schema: &IcebergSchema) -> Self {
        let mut found = Self {
            path: file.uri.clone(),
            size: file.size,
            rows: file.rows,
            unit: file.partition_by.into(),
            // Hours of the years up to 9999, which the engine knows, are far below the limit.
            partition: i32::try_from(file.partition).unwrap_or(i32::MAX),
            value_counts: BTreeMap::new(),
            null_counts: BTreeMap::new(),
            lower: BTreeMap::new(),
            upper: BTreeMap::new(),
        };
        if let Some(footer) = footer {
            found.measure(footer, schema);
        }
        found.lower.insert(TS_COLUMN_ID, bounds::of_timestamp(file.min_ts));
        found.upper.insert(TS_COLUMN_ID, bounds::of_timestamp(file.max_ts));
        found
    }

    /// Whether this is what is known of a file: in a store that was restored another one may have its place.
    pub(crate) fn is_of(&self, file: &PublishedFile) -> bool {
        let range = [&self.lower, &self.upper].map(|bounds| bounds.get(&TS_COLUMN_ID).cloned());
        let wanted = [file.min_ts, file.max_ts].map(|at| Some(bounds::of_timestamp(at)));
        (self.size, self.rows) == (file.size, file.rows) && range == wanted
    }

    /// Takes from a footer what it says of the columns that the table has. What it does not say, or says of another type, stays
    /// unknown.
    fn measure(&mut self, footer: &ParquetMetaData, schema: &IcebergSchema) {
        let Ok(own) = IcebergSchema::of_footer(footer) else {
            return;
        };
        let leaves = footer.file_metadata().schema_descr().columns();
        for (at, leaf) in leaves.iter().enumerate() {
            let info = leaf.self_type().get_basic_info();
            let is_leaf = |id: i32| info.has_id() && info.id() == id;
            let in_file = own.columns.iter().find(|column| is_leaf(column.id));
            let in_table = schema.columns.iter().find(|column| is_leaf(column.id));
            let (Some(in_file), Some(in_table)) = (in_file, in_table) else {
                continue;
            };
            let chunks = footer.row_groups().iter().map(|group| group.columns().get(at));
            let chunks: Option<Vec<&ColumnChunkMetaData>> = chunks.collect();
            if let Some(chunks) = chunks
                && in_file.kind == in_table.kind
            {
                self.add(in_table.id, ColumnMetrics::of(in_table.kind, &chunks));
            }
        }
    }

    fn add(&mut self, id: i32, metrics: ColumnMetrics) {
        self.value_counts.insert(id, metrics.values);
        self.null_counts.extend(metrics.nulls.map(|nulls| (id, nulls)));
        self.lower.extend(metrics.lower.map(|bound| (id, bound)));
        self.upper.extend(metrics.upper.map(|bound| (id, bound)));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use arrow_array::{
        ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, Float32Array, Float64Array, Int64Array, RecordBatch,
        StringArray, TimestampMicrosecondArray,
    };
    use arrow_schema::{DataType, Field, Schema, TimeUnit};
    use bytes::Bytes;
    use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};
    use parquet::file::metadata::ParquetMetaDataReader;
    use parquet::file::properties::{EnabledStatistics, WriterProperties};

    use super::*;

    /// A file about whose columns nothing is known.
    pub(crate) fn plain(path: &str, unit: PartitionUnit, partition: i32) -> DataFile {
        DataFile {
            path: path.to_owned(),
            size: 1000,
            rows: 10,
            unit,
            partition,
            value_counts: BTreeMap::new(),
            null_counts: BTreeMap::new(),
            lower: BTreeMap::new(),
            upper: BTreeMap::new(),
        }
    }

    fn schema_of(columns: &[(&str, i32, DataType)]) -> Arc<Schema> {
        let fields = columns.iter().map(|(name, id, kind)| {
            let id = (PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string());
            Field::new(*name, kind.clone(), true).with_metadata([id].into())
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// The footer of a file that has each batch as a row group.
    fn footer(schema: &Arc<Schema>, groups: &[Vec<ArrayRef>], statistics: EnabledStatistics) -> ParquetMetaData {
        let properties = WriterProperties::builder().set_statistics_enabled(statistics).build();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, Arc::clone(schema), Some(properties)).unwrap();
        for columns in groups {
            writer
                .write(&RecordBatch::try_new(Arc::clone(schema), columns.clone()).unwrap())
                .unwrap();
            writer.flush().unwrap();
        }
        writer.close().unwrap();
        let footer = ParquetMetaDataReader::new()
            .parse_and_finish(&Bytes::from(bytes))
            .unwrap();
        assert_eq!(footer.num_row_groups(), groups.len());
        footer
    }

    fn measured(footer: &ParquetMetaData, schema: &Schema) -> DataFile {
        let mut file = plain("file:///x", PartitionUnit::Hour, 1);
        file.measure(footer, &IcebergSchema::of(schema).unwrap());
        file
    }

    fn time() -> DataType {
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
    }

    fn times(values: Vec<i64>) -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC"))
    }

    #[test]
    fn bounds_of_all_row_groups_are_combined_for_each_type() {
        let schema = schema_of(&[
            ("ts", 1, time()),
            ("n", 7, DataType::Int64),
            ("f", 8, DataType::Float32),
            ("d", 9, DataType::Float64),
            ("b", 10, DataType::Boolean),
            ("s", 11, DataType::Utf8),
        ]);
        let group = |ts: i64, n: Option<i64>, f: f32, d: f64, b: bool, s: &str| -> Vec<ArrayRef> {
            vec![
                times(vec![ts]),
                Arc::new(Int64Array::from(vec![n])),
                Arc::new(Float32Array::from(vec![f])),
                Arc::new(Float64Array::from(vec![d])),
                Arc::new(BooleanArray::from(vec![b])),
                Arc::new(StringArray::from(vec![s])),
            ]
        };
        let groups = [
            group(5, Some(-3), 0.0, 2.5, true, "b"),
            group(-5, None, 0.0, -2.5, true, "a"),
            group(1, Some(300), 0.0, 1.0, false, "ccccccccccccccccX"),
        ];
        let file = measured(&footer(&schema, &groups, EnabledStatistics::Chunk), &schema);
        assert_eq!(
            file.value_counts,
            BTreeMap::from([1, 7, 8, 9, 10, 11].map(|id| (id, 3)))
        );
        assert_eq!(
            file.null_counts,
            BTreeMap::from([(1, 0), (7, 1), (8, 0), (9, 0), (10, 0), (11, 0)])
        );
        assert_eq!(
            file.lower,
            BTreeMap::from([
                (1, (-5_i64).to_le_bytes().to_vec()),
                (7, (-3_i64).to_le_bytes().to_vec()),
                (8, (-0.0_f32).to_le_bytes().to_vec()),
                (9, (-2.5_f64).to_le_bytes().to_vec()),
                (10, vec![0]),
                (11, b"a".to_vec()),
            ])
        );
        assert_eq!(
            file.upper,
            BTreeMap::from([
                (1, 5_i64.to_le_bytes().to_vec()),
                (7, 300_i64.to_le_bytes().to_vec()),
                (8, 0.0_f32.to_le_bytes().to_vec()),
                (9, 2.5_f64.to_le_bytes().to_vec()),
                (10, vec![1]),
                (11, b"cccccccccccccccd".to_vec()),
            ])
        );
    }

    #[test]
    fn columns_are_matched_by_their_numbers_and_types() {
        let in_file = schema_of(&[
            ("ts", 1, time()),
            ("old_name", 7, DataType::Int64),
            ("x", 8, DataType::Int64),
        ]);
        let groups = [vec![
            times(vec![5]),
            Arc::new(Int64Array::from(vec![77])) as ArrayRef,
            Arc::new(Int64Array::from(vec![88])),
        ]];
        let footer = footer(&in_file, &groups, EnabledStatistics::Chunk);
        let table = schema_of(&[
            ("x", 8, DataType::Float64),
            ("new_name", 7, DataType::Int64),
            ("ts", 1, time()),
        ]);
        let file = measured(&footer, &table);
        assert_eq!(file.lower[&7], 77_i64.to_le_bytes());
        assert_eq!(file.lower[&1], 5_i64.to_le_bytes());
        assert_eq!(file.lower.keys().chain(file.value_counts.keys()).max(), Some(&7));
    }

    #[test]
    fn a_group_that_does_not_say_leaves_the_column_without_bounds_but_nulls_alone_do_not() {
        let schema = schema_of(&[("d", 1, DataType::Float64), ("s", 2, DataType::Utf8)]);
        let group = |d: Option<f64>, s: Option<&str>| -> Vec<ArrayRef> {
            vec![
                Arc::new(Float64Array::from(vec![d])),
                Arc::new(StringArray::from(vec![s])),
            ]
        };
        let groups = [group(Some(1.0), Some("a")), group(Some(f64::NAN), None)];
        let file = measured(&footer(&schema, &groups, EnabledStatistics::Chunk), &schema);
        assert!(!file.lower.contains_key(&1) && !file.upper.contains_key(&1));
        assert_eq!((&file.lower[&2][..], &file.upper[&2][..]), (&b"a"[..], &b"a"[..]));
        assert_eq!(file.null_counts, BTreeMap::from([(1, 0), (2, 1)]));

        let silent = measured(&footer(&schema, &groups, EnabledStatistics::None), &schema);
        assert!(silent.lower.is_empty() && silent.upper.is_empty() && silent.null_counts.is_empty());
        assert_eq!(silent.value_counts, BTreeMap::from([(1, 2), (2, 2)]));
    }

    #[test]
    fn ids_and_blobs_have_counts_and_no_bounds() {
        let schema = schema_of(&[("id", 1, DataType::FixedSizeBinary(16)), ("raw", 2, DataType::Binary)]);
        let ids = FixedSizeBinaryArray::try_from_iter([[1_u8; 16], [200_u8; 16]].into_iter()).unwrap();
        let blobs = BinaryArray::from(vec![&b"a"[..], &b"b"[..]]);
        let groups = [vec![Arc::new(ids) as ArrayRef, Arc::new(blobs)]];
        let file = measured(&footer(&schema, &groups, EnabledStatistics::Chunk), &schema);
        assert!(file.lower.is_empty() && file.upper.is_empty());
        assert_eq!(file.null_counts, BTreeMap::from([(1, 0), (2, 0)]));
    }

    #[test]
    fn statistics_that_the_writer_cut_are_still_bounds() {
        let schema = schema_of(&[("s", 2, DataType::Utf8)]);
        let long = "z".repeat(200);
        let groups = [vec![Arc::new(StringArray::from(vec![long.as_str()])) as ArrayRef]];
        let footer = footer(&schema, &groups, EnabledStatistics::Chunk);
        let statistics = footer.row_group(0).column(0).statistics().unwrap();
        assert!(!statistics.max_is_exact(), "the writer cut it");
        let file = measured(&footer, &schema);
        assert!(file.lower[&2].as_slice() <= long.as_bytes());
        assert!(file.upper[&2].as_slice() >= long.as_bytes());
        assert_eq!(file.upper[&2], format!("{}{{", "z".repeat(15)).as_bytes());
    }
}
