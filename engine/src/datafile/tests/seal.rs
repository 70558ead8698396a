//! Sealed files.

use parquet::file::metadata::SortingColumn;

use super::super::row_group_merge::{RowGroupMerge, batch_rows};
use super::super::row_width::RowWidths;
use super::super::sort_order::FileSortOrder;
use super::*;

fn filled(groups: u64, rows: u64) -> Room {
    let mut room = Room::new();
    for n in 0..groups {
        room.publish(n * rows..(n + 1) * rows);
    }
    room
}

#[test]
fn a_sealed_file_has_the_open_files_rows_newest_first_and_equal_times_as_they_arrived() {
    let mut room = filled(60, 100);
    let sealed = room.seal();
    assert_eq!(sealed.rows, 6000);
    assert_eq!(rows_at(&sealed.path), sorted(0..6000));
    assert_eq!(sealed.crc, crc32c::crc32c(&fs::read(&sealed.path).unwrap()));
    assert_eq!(numbers(rows_at(&room.path)), all(0..6000), "the open file is as it was");
}

#[test]
fn a_seal_merges_groups_larger_than_a_cursors_batch() {
    let mut room = filled(4, 9000);
    assert_eq!(rows_at(&room.seal().path), sorted(0..36_000));
}

#[test]
fn a_sealed_file_takes_what_its_rows_need_however_long_the_open_one_was() {
    let mut room = filled(100, 20);
    let sealed = room.seal();
    let batches: Vec<RecordBatch> = (0..100).map(|n| logs(n * 20..(n + 1) * 20)).collect();
    let direct = room.dir.path().join(".staging/direct.sealed");
    let needed = write_sealed(
        &IDENTITY,
        &batches,
        FooterFacts::default(),
        &direct,
        &WriteOptions::default(),
    )
    .unwrap();
    assert!(
        sealed.size * 100 <= needed.size * 102,
        "{} bytes, {} are needed, the open file has {}",
        sealed.size,
        needed.size,
        room.open.size()
    );
    assert_eq!(fs::metadata(&sealed.path).unwrap().len(), sealed.size);
}

#[test]
fn an_open_file_has_nothing_between_its_row_groups_and_its_footer() {
    let mut room = filled(1, 1);
    let data: u64 = metadata_at(&room.path)
        .row_groups()
        .iter()
        .map(|group| group.compressed_size() as u64)
        .sum();
    let bytes = room.bytes();
    let length = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap());
    assert_eq!(room.open.size(), 4 + data + u64::from(length) + 8);
    assert_eq!(rows_at(&room.seal().path), sorted(0..1));
}

#[test]
fn a_sealed_file_has_filters_page_indexes_and_a_declared_order() {
    let mut room = filled(5, 100);
    let sealed = room.seal();
    let metadata = metadata_at(&sealed.path);
    assert!(metadata.offset_index().is_some() && metadata.column_index().is_some());
    for group in metadata.row_groups() {
        let newest_first = SortingColumn {
            column_idx: 0,
            descending: true,
            nulls_first: false,
        };
        assert_eq!(group.sorting_columns(), Some(&vec![newest_first]));
        for column in group.columns() {
            let name = column.column_path().string();
            assert_eq!(column.bloom_filter_offset().is_some(), name == "flux_id", "{name}");
            assert!(column.offset_index_offset().is_some(), "{name}");
            let text = matches!(name.as_str(), "message" | "attributes");
            assert_eq!(column.column_index_offset().is_some(), !text, "{name}");
        }
    }
    let found = inspect(&sealed.path).unwrap();
    assert!(found.sealed);
    assert_eq!((found.identity, &found.facts), (IDENTITY, &sealed.facts));
    assert_eq!((found.facts.version, found.facts.last_lsn), (6, 500));
}

#[test]
fn a_row_group_of_a_sealed_file_has_at_most_128k_rows() {
    let rows: Vec<model::MetricPoint> = (0..140_000u64)
        .map(|n| model::MetricPoint {
            ts: log(n).ts,
            name: "cpu".to_owned(),
            entity_id: EntityId::from_bytes([1; 16]),
            entity_name: "host".to_owned(),
            metric_type: model::MetricType::Gauge,
            value: 1.0,
            labels: Attributes::new(),
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let identity = FileIdentity {
        table: Table::Metrics,
        ..IDENTITY
    };
    let batch = model::batch::metrics(&rows).unwrap();
    let staged = dir.path().join("metrics.sealed");
    let facts = FooterFacts::default();
    let sealed = write_sealed(&identity, &[batch], facts, &staged, &WriteOptions::default()).unwrap();
    let metadata = metadata_at(&sealed.path);
    let groups: Vec<i64> = metadata.row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(groups, [131_072, 140_000 - 131_072]);
}

#[test]
fn rows_in_memory_are_sealed_as_an_open_file_would_be() {
    let mut room = filled(3, 700);
    let batches: Vec<RecordBatch> = (0..3).map(|n| logs(n * 700..(n + 1) * 700)).collect();
    let facts = FooterFacts {
        version: 4,
        ..room.open.published().unwrap().facts
    };
    let staged = room.dir.path().join(".staging/direct.sealed");
    let direct = write_sealed(&IDENTITY, &batches, facts, &staged, &WriteOptions::default()).unwrap();
    let merged = room.seal();
    assert_eq!(rows_at(&direct.path), rows_at(&merged.path));
    let says = |sealed: &FileVersion| (sealed.rows, sealed.facts.clone(), sealed.min_ts, sealed.max_ts);
    assert_eq!(says(&direct), says(&merged));
    let path = room.dir.path().join("telemetry/logs/2026/11/21/11/logs_001.parquet");
    let again = FileVersion {
        path: staged.clone(),
        ..merged
    };
    again.install_new(&path).unwrap();
    assert_eq!(rows_at(&path), sorted(0..2100));
    fs::write(&staged, "another").unwrap();
    assert!(again.install_new(&path).is_err(), "a taken name is not replaced");
    assert_eq!(rows_at(&path), sorted(0..2100));
}

#[test]
fn the_displaced_open_file_is_found_among_the_retired() {
    let mut room = filled(3, 10);
    let open = room.open.published().unwrap();
    let before = room.bytes();
    let sealed = room.seal();
    sealed.install(&room.path, &room.retired).unwrap();
    assert_eq!(fs::read(&room.retired).unwrap(), before);
    let retired = FilePrefix::new(File::open(&room.retired).unwrap(), open.size);
    assert_eq!(footer_crc(&retired).unwrap(), Some(open.footer_crc));
    let present = FilePrefix::new(File::open(&room.path).unwrap(), open.size);
    assert_ne!(footer_crc(&present).unwrap(), Some(open.footer_crc));
    room.open.discard_shadow().unwrap();
    assert_eq!(room.files(".staging"), [".staging/retired/segment_7.parquet"]);
    assert_eq!(room.files("telemetry").len(), 1);
}

#[test]
fn a_damaged_open_file_is_not_sealed() {
    let mut room = filled(3, 1000);
    let mut bytes = room.bytes();
    bytes[5000] ^= 1;
    fs::write(&room.path, &bytes).unwrap();
    let refused = seal(&room.open, &room.staged, 9, &WriteOptions::default()).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    room.open.discard_shadow().unwrap();
    assert_eq!(room.files(".staging"), [""; 0]);
    assert_eq!(room.bytes(), bytes);
}

#[test]
fn nothing_to_seal_is_an_error() {
    let room = Room::new();
    assert!(seal(&room.open, &room.staged, 1, &WriteOptions::default()).is_err());
    let none = write_sealed(
        &IDENTITY,
        &[],
        FooterFacts::default(),
        &room.staged,
        &WriteOptions::default(),
    );
    assert!(none.is_err());
    assert_eq!(room.files(""), [""; 0]);
}

#[test]
fn a_merge_holds_a_bounded_part_of_the_rows_whatever_their_size() {
    for (groups, message) in [(1, 10), (128, 10), (128, 2000), (16, 200_000)] {
        let rows: Vec<LogRecord> = (0..20)
            .map(|n| LogRecord {
                message: "x".repeat(message),
                ..log(n)
            })
            .collect();
        let batch = model::batch::logs(&rows).unwrap();
        let group = encode(Table::Logs, &[batch], &WriteOptions::default(), IoPriority::Yes).unwrap();
        let metadata = group.metadata.as_ref().unwrap().row_group(0);
        let held = groups * batch_rows(metadata, None, groups) * message;
        assert!(
            held <= 16 << 20,
            "{groups} cursors hold {held} bytes of messages {message} long"
        );
        assert!(batch_rows(metadata, None, groups) >= 1);
    }
}

#[test]
fn a_merge_hands_out_chunks_of_bounded_rows_and_bytes() {
    let mut room = Room::new();
    for n in 0..3u64 {
        let rows: Vec<LogRecord> = (0..60)
            .map(|row| LogRecord {
                message: "y".repeat(200_000),
                ..log(n * 60 + row)
            })
            .collect();
        let group = room
            .open
            .encode(&[model::batch::logs(&rows).unwrap()], IoPriority::Yes)
            .unwrap();
        let facts = room.facts(&(0..60));
        room.open.publish(&group, facts).unwrap();
        room.open.mark_recorded();
    }
    let source = FilePrefix::new(File::open(&room.path).unwrap(), room.open.size());
    let metadata = std::sync::Arc::new(metadata_at(&room.path));
    let mut merge = RowGroupMerge::new(
        &Table::Logs.into(),
        &room.path,
        &source,
        metadata,
        &RowWidths::default(),
        FileSortOrder::Newest,
    )
    .unwrap();
    let (mut rows, mut chunks) = (0, 0);
    while let Some(chunk) = merge.next_chunk().unwrap() {
        assert!(chunk.num_rows() <= 8192);
        assert!(chunk.num_rows() * 200_000 <= 16 << 20, "{} rows", chunk.num_rows());
        rows += chunk.num_rows();
        chunks += 1;
    }
    assert_eq!(rows, 180);
    assert!(chunks >= 3, "{chunks} chunks");
}

#[test]
fn a_group_that_is_not_sorted_is_damage_and_not_merged_wrong() {
    let room = Room::new();
    let mut bytes = Vec::new();
    let schema = Table::Logs.schema();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut bytes, schema, None).unwrap();
    writer.write(&logs(0..100)).unwrap();
    writer.close().unwrap();
    let path = room.dir.path().join("unsorted.parquet");
    fs::write(&path, &bytes).unwrap();
    let source = FilePrefix::new(File::open(&path).unwrap(), bytes.len() as u64);
    let metadata = std::sync::Arc::new(metadata_at(&path));
    let mut merge = RowGroupMerge::new(
        &Table::Logs.into(),
        &path,
        &source,
        metadata,
        &RowWidths::default(),
        FileSortOrder::Newest,
    )
    .unwrap();
    let refused = merge.next_chunk().unwrap_err();
    assert!(refused.to_string().contains("row group 0 is not sorted"), "{refused}");
}
