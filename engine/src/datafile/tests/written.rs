//! Every column of every table, read from the footers of an open and of a sealed file.

use model::{ColumnType, TableColumn};
use parquet::basic::{Encoding, LogicalType, TimeUnit, Type};
use parquet::file::metadata::{ColumnChunkMetaData, SortingColumn};

use super::sample::{Cell, batch};
use super::*;
use crate::JsonType;

fn cells() -> Vec<Cell> {
    (0..500u16)
        .map(|n| Cell {
            ts: TEN - i64::from(n),
            id: [u8::try_from(n % 251).unwrap(); 16],
            text: format!("text {}", n % 7),
            json: format!("{{\"n\":{n}}}"),
            number: f64::from(n) / 3.0,
            blob: n.to_le_bytes().to_vec(),
            missing: n % 3 == 0,
        })
        .collect()
}

/// How the values of [`cells`] are encoded, of which the sealed file has each twice at least.
fn encoding_of(table: Table, column: &TableColumn, sealed: bool) -> Encoding {
    match column.kind {
        ColumnType::Time => Encoding::DELTA_BINARY_PACKED,
        ColumnType::Uuid if column.name == "entity_id" => Encoding::RLE_DICTIONARY,
        ColumnType::Word => Encoding::RLE_DICTIONARY,
        ColumnType::Text | ColumnType::Json | ColumnType::Float if sealed => Encoding::RLE_DICTIONARY,
        ColumnType::Text if column.name.ends_with("_id") => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        ColumnType::Json if matches!(table, Table::Metrics | Table::Traces) => Encoding::RLE_DICTIONARY,
        ColumnType::Float => Encoding::BYTE_STREAM_SPLIT,
        _ => Encoding::PLAIN,
    }
}

/// Type, encoding, statistics and filter of a column, as decision 14 and the design say.
fn check(table: Table, at: usize, column: &ColumnChunkMetaData, json: JsonType, sealed: bool) {
    let wanted = table.columns()[at];
    let name = format!("{table}.{}, sealed: {sealed}", wanted.name);
    let described = column.column_descr();
    assert_eq!(described.name(), wanted.name);
    let info = described.self_type().get_basic_info();
    assert_eq!(info.id(), i32::try_from(at).unwrap() + 1, "field id of {name}");
    assert_eq!(
        info.repetition() == parquet::basic::Repetition::OPTIONAL,
        wanted.nullable,
        "{name}"
    );
    let timestamp = LogicalType::timestamp(true, TimeUnit::MICROS);
    let encoding = encoding_of(table, &wanted, sealed);
    let (physical, logical) = match wanted.kind {
        ColumnType::Time => (Type::INT64, Some(timestamp)),
        ColumnType::Uuid => (Type::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Uuid)),
        ColumnType::Text | ColumnType::Word => (Type::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnType::Json => match json {
            JsonType::Json => (Type::BYTE_ARRAY, Some(LogicalType::Json)),
            JsonType::String => (Type::BYTE_ARRAY, Some(LogicalType::String)),
        },
        ColumnType::Float => (Type::FLOAT, None),
        ColumnType::Double => (Type::DOUBLE, None),
        ColumnType::Blob => (Type::BYTE_ARRAY, None),
    };
    assert_eq!(described.physical_type(), physical, "{name}");
    assert_eq!(described.logical_type_ref(), logical.as_ref(), "{name}");
    let encodings: Vec<Encoding> = column.encodings().collect();
    assert!(encodings.contains(&encoding), "{name}: {encodings:?}");
    assert_eq!(
        column.dictionary_page_offset().is_some(),
        encoding == Encoding::RLE_DICTIONARY,
        "{name}"
    );
    let ordered = match wanted.kind {
        ColumnType::Json | ColumnType::Blob => false,
        ColumnType::Text => wanted.name.ends_with("_id"),
        _ => true,
    };
    let bounds = column
        .statistics()
        .is_some_and(|of| of.min_bytes_opt().is_some() && of.max_bytes_opt().is_some());
    assert_eq!(bounds, ordered, "{name}");
    let filtered = sealed && matches!(wanted.name, "flux_id" | "trace_id");
    assert_eq!(column.bloom_filter_offset().is_some(), filtered, "{name}");
    assert_eq!(column.offset_index_offset().is_some(), sealed, "{name}");
    assert_eq!(column.column_index_offset().is_some(), sealed && ordered, "{name}");
}

#[test]
fn every_column_of_every_table_is_written_as_promised_open_and_sealed() {
    for (table, json) in Table::ALL
        .into_iter()
        .flat_map(|table| [(table, JsonType::Json), (table, JsonType::String)])
    {
        let dir = tempfile::tempdir().unwrap();
        let identity = FileIdentity { table, ..IDENTITY };
        let options = WriteOptions {
            json,
            ..WriteOptions::default()
        };
        let (path, twin) = (dir.path().join("tree/file.parquet"), dir.path().join("twin"));
        let mut open = OpenDataFile::create(path.clone(), twin, identity, options.clone());
        for version in 1..=2 {
            let group = open.encode(&[batch(table, &cells())], IoPriority::Yes).unwrap();
            let facts = FooterFacts {
                version,
                first_lsn: 3,
                last_lsn: 9,
                origins: "[]".to_owned(),
            };
            open.publish(&group, facts).unwrap();
            open.mark_recorded();
        }
        let staged = dir.path().join("sealed");
        seal(&open, &staged, 3, &options).unwrap();
        for (path, sealed) in [(path, false), (staged, true)] {
            let metadata = metadata_at(&path);
            assert_eq!(metadata.num_row_groups(), if sealed { 1 } else { 2 });
            for group in metadata.row_groups() {
                let sorted = |column_idx, descending| SortingColumn {
                    column_idx,
                    descending,
                    nulls_first: false,
                };
                let newest = sorted(0, true);
                let order = match table {
                    Table::Metrics => vec![sorted(1, false), sorted(2, false), newest],
                    _ => vec![newest],
                };
                assert_eq!(group.sorting_columns(), Some(&order));
                for (at, column) in group.columns().iter().enumerate() {
                    check(table, at, column, json, sealed);
                }
            }
            let pairs = metadata.file_metadata().key_value_metadata().unwrap();
            let says = |key: &str| {
                pairs
                    .iter()
                    .find(|pair| pair.key == key)
                    .and_then(|pair| pair.value.as_deref())
            };
            let id = IDENTITY.store.to_string();
            for (key, value) in [
                ("platform.table", table.name()),
                ("platform.schema_version", "1"),
                ("platform.store_id", id.as_str()),
                ("platform.segment", "7"),
                ("platform.version", if sealed { "3" } else { "2" }),
                ("platform.sealed", if sealed { "true" } else { "false" }),
                ("platform.lsn", "3-9"),
                ("platform.rows", "1000"),
                ("platform.ts", &format!("{}..{TEN}", TEN - 499)),
                ("platform.origins", "[]"),
            ] {
                assert_eq!(says(key), Some(value), "{table}: {key}");
            }
            assert!(says("ARROW:schema").is_some());
        }
    }
}

#[test]
fn a_row_group_takes_few_bytes_also_of_rows_that_compress_well() {
    let options = WriteOptions {
        group_max: 1 << 20,
        ..WriteOptions::default()
    };
    let rows: Vec<LogRecord> = (0..40)
        .map(|n| LogRecord {
            message: "x".repeat(100_000),
            ..log(n)
        })
        .collect();
    let rows = model::batch::logs(&rows).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let staged = dir.path().join("direct");
    write_sealed(
        &IDENTITY,
        std::slice::from_ref(&rows),
        FooterFacts::default(),
        &staged,
        &options,
    )
    .unwrap();
    let mut room = Room::with(options.clone());
    let group = room.open.encode(&[rows], IoPriority::Yes).unwrap();
    let facts = room.facts(&(0..40));
    room.open.publish(&group, facts).unwrap();
    seal(&room.open, &room.staged, 2, &options).unwrap();
    for path in [&staged, &room.staged] {
        let metadata = metadata_at(path);
        let groups: Vec<i64> = metadata.row_groups().iter().map(|group| group.num_rows()).collect();
        assert_eq!(groups.iter().sum::<i64>(), 40);
        assert!(groups.iter().all(|rows| *rows <= 10), "{groups:?}");
    }
}

#[test]
fn a_file_of_wide_rows_takes_few_row_groups_also_after_a_restart() {
    let options = WriteOptions {
        merge_max: 6 << 20,
        ..WriteOptions::default()
    };
    let mut room = Room::with(options.clone());
    for n in 0..3u64 {
        assert!(!room.open.is_full(), "{n} row groups");
        let wide = LogRecord {
            message: "x".repeat(400_000),
            ..log(n)
        };
        let group = room
            .open
            .encode(&[model::batch::logs(&[wide]).unwrap()], IoPriority::Yes)
            .unwrap();
        let facts = room.facts(&(n..n + 1));
        room.open.publish(&group, facts).unwrap();
        room.open.mark_recorded();
        if n == 1 {
            let (path, twin) = (room.path.clone(), room.twin.clone());
            let resumed = resume(path, twin, IDENTITY, options.clone(), room.recorded()).unwrap();
            room.open = super::crash::as_recorded(resumed);
        }
    }
    assert!(room.open.is_full(), "three times four times half a megabyte");
}
