//! How rows lie best in Parquet: bytes per row, the CPU of writing and reading them, and what one series costs, by sort order,
//! row group, page, encoding and compression.
//!
//! Method: `bench-layout TABLE [FILE.ndjson]`, rows of `benches::data` (`BENCH_ROWS`, 1,000,000) or of a file, taken in their order
//! of arrival in groups of so many rows, as a fast stream makes them; each group is sorted and written as one row group, on one
//! thread, into memory. The plainest layout comes first, then variants that differ in one thing each. `one`: the rows of one name
//! (metrics) or one host (others) of the middle group, its times and values decoded, by a pushed-down filter with page index.
//! Best of three. `bench-layout sizes [TABLE [FILE.ndjson]]` instead compares the engine's sealed files with what others write:
//! `layout/sizes.rs`.

#[path = "layout/sizes.rs"]
mod sizes;

use std::hint::black_box;
use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_ord::sort::{SortColumn, SortOptions, lexsort_to_indices};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use benches::data::Source;
use benches::{cost, load, setting};
use bytes::Bytes;
use harness::Failure;
use model::telemetry_codec::{BatchEncoding as Wire, PublisherIdentity, decode};
use model::{EntityId, Table};
use parquet::arrow::arrow_reader::{ArrowPredicateFn, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowFilter};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::PageIndexPolicy;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::schema::types::ColumnPath;

type Change = fn(WriterPropertiesBuilder) -> WriterPropertiesBuilder;

/// One way to write a table.
#[derive(Clone, Copy)]
struct Layout {
    name: &'static str,
    /// Columns to sort by; a `-` before the newest or greatest first.
    order: &'static [&'static str],
    group: usize,
    level: i32,
    change: Change,
}

const SAME: Change = |builder| builder;

/// The plainest layout, then what differs.
fn layouts(table: Table) -> Vec<Layout> {
    let base = Layout {
        name: "plain",
        order: &["-ts"],
        group: 128 << 10,
        level: 1,
        change: SAME,
    };
    let mut all = vec![base];
    let mut and = |name, change: fn(Layout) -> Layout| all.push(Layout { name, ..change(base) });
    and("group 32k", |l| Layout { group: 32 << 10, ..l });
    and("group 256k", |l| Layout { group: 256 << 10, ..l });
    and("group 1M", |l| Layout { group: 1 << 20, ..l });
    and("zstd 2", |l| Layout { level: 2, ..l });
    and("zstd 3", |l| Layout { level: 3, ..l });
    and("zstd 6", |l| Layout { level: 6, ..l });
    and("page 256 KiB", |l| Layout {
        change: |b| {
            b.set_data_page_size_limit(256 << 10)
                .set_data_page_row_count_limit(usize::MAX)
        },
        ..l
    });
    and("page 1 MiB, any rows", |l| Layout {
        change: |b| b.set_data_page_row_count_limit(usize::MAX),
        ..l
    });
    and("page 4 MiB, any rows", |l| Layout {
        change: |b| {
            b.set_data_page_size_limit(4 << 20)
                .set_data_page_row_count_limit(usize::MAX)
        },
        ..l
    });
    and("by entity, newest first", |l| Layout {
        order: &["entity_id", "-ts"],
        ..l
    });
    all.extend(encodings(base));
    if table == Table::Metrics {
        all.extend(by_series(base));
    }
    all
}

fn encodings(base: Layout) -> Vec<Layout> {
    let mut all = Vec::new();
    let mut and = |name, change: fn(Layout) -> Layout| all.push(Layout { name, ..change(base) });
    and("dictionaries everywhere", |l| Layout {
        change: |b| {
            [
                "attributes",
                "labels",
                "message",
                "entity_id",
                "trace_id",
                "flux_id",
                "value",
            ]
            .iter()
            .fold(b, |b, name| {
                b.set_column_dictionary_enabled(ColumnPath::from(*name), true)
            })
        },
        ..l
    });
    and("dictionary for JSON", |l| Layout {
        change: |b| {
            b.set_column_dictionary_enabled("attributes".into(), true)
                .set_column_dictionary_enabled("labels".into(), true)
        },
        ..l
    });
    and("JSON and text as delta lengths", |l| Layout {
        change: |b| {
            ["attributes", "labels", "message"].iter().fold(b, |b, name| {
                b.set_column_encoding(ColumnPath::from(*name), Encoding::DELTA_LENGTH_BYTE_ARRAY)
            })
        },
        ..l
    });
    and("version 2, dictionary for entities, lengths of ids apart", |l| Layout {
        change: version_2,
        ..l
    });
    and("the same, large dictionaries at zstd 2", |l| Layout {
        change: |b| large_dictionaries(version_2(b)),
        ..l
    });
    and("value split into bytes", |l| Layout {
        change: |b| b.set_column_encoding("value".into(), Encoding::BYTE_STREAM_SPLIT),
        ..l
    });
    all
}

fn by_series(base: Layout) -> Vec<Layout> {
    let mut all = Vec::new();
    let mut and = |name, change: fn(Layout) -> Layout| all.push(Layout { name, ..change(base) });

    and("by name, entity, oldest first", |l| Layout {
        order: &["name", "entity_id", "ts"],
        ..l
    });
    and("by name, entity, newest first", |l| Layout {
        order: &["name", "entity_id", "-ts"],
        ..l
    });
    and("by name, entity, labels, newest first", |l| Layout {
        order: &["name", "entity_id", "labels", "-ts"],
        ..l
    });
    and("by name, entity, labels, dictionary for labels and value", |l| Layout {
        order: &["name", "entity_id", "labels", "-ts"],
        change: |b| {
            b.set_column_dictionary_enabled("labels".into(), true)
                .set_column_dictionary_enabled("value".into(), true)
        },
        ..l
    });
    and("by name, entity, labels, dictionary for labels", |l| Layout {
        order: &["name", "entity_id", "labels", "-ts"],
        change: |b| b.set_column_dictionary_enabled("labels".into(), true),
        ..l
    });
    all
}

fn zstd(level: i32) -> Compression {
    ZstdLevel::try_new(level).map_or(Compression::UNCOMPRESSED, Compression::ZSTD)
}

/// Fixed-size ids have dictionaries only in version 2, which writes texts by their differences unless told otherwise.
fn version_2(builder: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
    let plain = ["message", "attributes", "labels", "flux_id", "entity_id", "value"];
    let ids = ["trace_id", "span_id", "parent_span_id"];
    let plain = plain.map(|name| (name, Encoding::PLAIN));
    let ids = ids.map(|name| (name, Encoding::DELTA_LENGTH_BYTE_ARRAY));
    let builder = builder.set_writer_version(WriterVersion::PARQUET_2_0);
    let named = plain.into_iter().chain(ids);
    named
        .fold(builder, |builder, (name, encoding)| {
            builder.set_column_encoding(name.into(), encoding)
        })
        .set_column_dictionary_enabled("entity_id".into(), true)
}

/// For all that the engine gives one when it pays, whether it does or not.
fn large_dictionaries(builder: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
    let names = ["message", "attributes", "labels", "trace_id", "duration_ms"];
    names.into_iter().fold(builder, |builder, name| {
        builder
            .set_column_dictionary_enabled(name.into(), true)
            .set_column_dictionary_page_size_limit(name.into(), 6 << 20)
            .set_column_compression(name.into(), zstd(2))
    })
}

fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let is_sizes = args.first().is_some_and(|word| word == "sizes");
    if is_sizes {
        args.remove(0);
    }
    let tables: Vec<Table> = Table::ALL
        .into_iter()
        .filter(|table| args.first().is_none_or(|name| name == table.name()))
        .filter(|table| matches!(table, Table::Logs | Table::Metrics | Table::Traces))
        .collect();
    for table in tables {
        let rows = rows(table, args.get(1).map(String::as_str))?;
        if is_sizes {
            sizes::compare(table, &rows)?;
            continue;
        }
        println!("{table}: {} rows", rows.num_rows());
        println!(
            "| layout | bytes/row | write CPU s/M | read CPU s/M | one, ms | columns, bytes/row |\n|---|---|---|---|---|---|"
        );
        for layout in layouts(table) {
            measure(table, &rows, layout)?;
        }
    }
    println!("load after: {}", load());
    Ok(())
}

/// The rows in their order of arrival.
fn rows(table: Table, file: Option<&str>) -> Result<RecordBatch, Failure> {
    let batches = match file {
        None => {
            let (mut source, count) = (Source::new(7), usize::try_from(setting("BENCH_ROWS", 1_000_000))?);
            (0..count / 10_000)
                .map(|_| source.batch(table, 10_000))
                .collect::<Result<Vec<_>, _>>()?
        }
        Some(path) => {
            let publisher = PublisherIdentity {
                entity_id: EntityId::for_name("bench"),
                entity_name: "bench".to_owned(),
            };
            decode(table, Wire::Ndjson, &std::fs::read(path)?.into(), &publisher)?
        }
    };
    Ok(concat_batches(&table.schema(), &batches)?)
}

fn properties(table: Table, layout: Layout) -> Result<WriterProperties, Failure> {
    use model::ColumnType::{Blob, Float, Json, Text, Time, Word};
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(layout.level)?))
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_max_row_group_row_count(None);
    for column in table.columns() {
        let path = || ColumnPath::from(column.name);
        builder = match column.kind {
            Time => builder.set_column_encoding(path(), Encoding::DELTA_BINARY_PACKED),
            Word => builder.set_column_dictionary_enabled(path(), true),
            Float => builder.set_column_encoding(path(), Encoding::BYTE_STREAM_SPLIT),
            Text if column.name.ends_with("_id") => builder,
            Text | Json | Blob => builder.set_column_statistics_enabled(path(), EnabledStatistics::None),
            _ => builder,
        };
    }
    Ok((layout.change)(builder).build())
}

/// A group in the order of a layout.
fn sorted(rows: &RecordBatch, order: &[&str]) -> Result<RecordBatch, Failure> {
    let columns = order.iter().map(|name| {
        let (name, descending) = name.strip_prefix('-').map_or((*name, false), |name| (name, true));
        let values = rows.column_by_name(name).ok_or("no such column")?;
        Ok::<_, Failure>(SortColumn {
            values: std::sync::Arc::clone(values),
            options: Some(SortOptions {
                descending,
                nulls_first: false,
            }),
        })
    });
    let indices = lexsort_to_indices(&columns.collect::<Result<Vec<_>, _>>()?, None)?;
    Ok(take_record_batch(rows, &indices)?)
}

#[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
fn measure(table: Table, rows: &RecordBatch, layout: Layout) -> Result<(), Failure> {
    let groups: Vec<RecordBatch> = (0..rows.num_rows())
        .step_by(layout.group)
        .map(|at| sorted(&rows.slice(at, layout.group.min(rows.num_rows() - at)), layout.order))
        .collect::<Result<_, _>>()?;
    let per_million = 1e6 / rows.num_rows() as f64;
    let mut file = Bytes::new();
    let write = best(|| {
        let mut writer = ArrowWriter::try_new(Vec::new(), table.schema(), Some(properties(table, layout)?))?;
        for group in &groups {
            for at in (0..group.num_rows()).step_by(8192) {
                writer.write(&group.slice(at, 8192.min(group.num_rows() - at)))?;
            }
            writer.flush()?;
        }
        file = writer.into_inner()?.into();
        Ok(())
    })?;
    let read = best(|| {
        for batch in ParquetRecordBatchReaderBuilder::try_new(file.clone())?
            .with_batch_size(8192)
            .build()?
        {
            black_box(batch?);
        }
        Ok(())
    })?;
    let (column, value) = match table {
        Table::Metrics => (
            "name",
            rows.column_by_name("name")
                .map(|names| names.as_string::<i32>().value(rows.num_rows() / 2)),
        ),
        _ => ("entity_name", Some("web-00")),
    };
    let one = best(|| one(&file, column, value.unwrap_or_default()))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file.clone())?;
    let columns: Vec<String> = (0..table.columns().len())
        .map(|at| {
            let groups = builder.metadata().row_groups().iter();
            let bytes: i64 = groups.map(|group| group.column(at).compressed_size()).sum();
            format!(
                "{} {:.2}",
                table.columns()[at].name,
                bytes as f64 / rows.num_rows() as f64
            )
        })
        .collect();
    println!(
        "| {} | {:.2} | {:.3} | {:.3} | {:.2} | {} |",
        layout.name,
        file.len() as f64 / rows.num_rows() as f64,
        write * per_million,
        read * per_million,
        one * 1e3,
        columns.join(", ")
    );
    Ok(())
}

/// The times and last fixed-size values of the rows whose `column` is `value`, in the middle row group.
fn one(file: &Bytes, column: &str, value: &str) -> Result<(), Failure> {
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file.clone(), options)?;
    let schema = builder.parquet_schema();
    let wanted = value.to_owned();
    let predicate = ArrowPredicateFn::new(ProjectionMask::columns(schema, [column]), move |batch: RecordBatch| {
        let texts = batch.column(0).as_string::<i32>();
        Ok(BooleanArray::from_iter(
            texts.iter().map(|text| Some(text == Some(wanted.as_str()))),
        ))
    });
    let projection = ProjectionMask::columns(schema, ["ts", "entity_id", "value", "level", "duration_ms"]);
    let middle = builder.metadata().num_row_groups() / 2;
    let reader = builder
        .with_row_groups(vec![middle])
        .with_row_filter(RowFilter::new(vec![Box::new(predicate)]))
        .with_projection(projection)
        .with_batch_size(8192)
        .build()?;
    for batch in reader {
        black_box(batch?);
    }
    Ok(())
}

/// The fastest of three, in CPU seconds.
fn best(mut run: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let pid = i32::try_from(std::process::id())?;
    let mut best = f64::MAX;
    for _ in 0..3 {
        let (start, before) = (Instant::now(), cost(pid).cpu_seconds);
        run()?;
        let (wall, cpu) = (start.elapsed().as_secs_f64(), cost(pid).cpu_seconds - before);
        // The kernel counts in hundredths: good for what takes longer, and not disturbed by others.
        best = best.min(if wall > 0.1 { cpu } else { wall });
    }
    Ok(best)
}
