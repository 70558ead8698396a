//! Which columns get a dictionary, and what large groups are split into.

use parquet::basic::Encoding;
use parquet::file::metadata::ColumnChunkMetaData;

use super::super::dictionary_choice::DictionaryChoice;
use super::sample::{Cell, batch};
use super::*;

fn cell(n: u64, text: String) -> Cell {
    Cell {
        ts: TEN + i64::try_from(n % 1000).unwrap(),
        id: [u8::try_from(n % 251).unwrap(); 16],
        json: format!("{{\"n\":{n}}}"),
        #[expect(clippy::cast_precision_loss, reason = "any number will do")]
        number: n as f64 / 7.0,
        blob: Vec::new(),
        missing: n.is_multiple_of(5),
        text,
    }
}

fn rows(table: Table, count: u64, text: impl Fn(u64) -> String) -> RecordBatch {
    let cells: Vec<Cell> = (0..count).map(|n| cell(n, text(n))).collect();
    batch(table, &cells)
}

/// Whether the column would get a dictionary.
fn repeats(table: Table, column: &str, batches: &[RecordBatch]) -> bool {
    let rows = batches.iter().map(RecordBatch::num_rows).sum();
    let at = table.columns().iter().position(|known| known.name == column).unwrap();
    DictionaryChoice::of(&table.into(), batches.iter(), rows, rows).has(at)
}

/// A text that is like others but not the same.
fn unique(n: u64) -> String {
    format!(
        "request {} answered in {n} ms for a client",
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    )
}

#[test]
fn texts_repeat_themselves_when_a_third_of_their_bytes_is_there_twice() {
    for (count, same, wanted) in [
        (20_000, 20_000, true),
        (20_000, 2_000, true),
        (20_000, 10, true),
        (20_000, 2, true),
        (20_000, 1, false),
        (500, 2, true),
        (500, 1, false),
    ] {
        let batches = [rows(Table::Logs, count, |n| unique(n / same))];
        assert_eq!(
            repeats(Table::Logs, "message", &batches),
            wanted,
            "{count} rows, each text {same} times"
        );
    }
}

#[test]
fn what_is_counted_does_not_depend_on_how_rows_are_cut_into_batches() {
    let whole = rows(Table::Logs, 30_000, |n| unique(n % 17_000));
    let pieces: Vec<RecordBatch> = (0..30).map(|at| whole.slice(at * 1000, 1000)).collect();
    let of = |batches: &[RecordBatch]| DictionaryChoice::of(&Table::Logs.into(), batches.iter(), 30_000, 60_000);
    assert_eq!(of(&[whole]), of(&pieces));
}

#[test]
fn only_the_first_rows_are_counted() {
    let batches = [
        rows(Table::Logs, 10_000, |n| unique(n % 10)),
        rows(Table::Logs, 60_000, unique),
    ];
    let first = DictionaryChoice::of(&Table::Logs.into(), batches.iter(), 10_000, 10_000);
    let all = DictionaryChoice::of(&Table::Logs.into(), batches.iter(), 70_000, 70_000);
    assert!(first.has(5) && !all.has(5));
}

#[test]
fn short_texts_do_not_repeat_themselves_where_numbers_take_as_much() {
    let batches = [rows(Table::Logs, 100_000, |n| format!("{:05}", n / 2))];
    assert!(!repeats(Table::Logs, "message", &batches));
}

#[test]
fn a_column_whose_dictionary_would_be_large_gets_none() {
    let wide = |n: u64| format!("{}{}", unique(n / 2), "-".repeat(2000));
    let batches = [rows(Table::Logs, 10_000, wide)];
    assert!(!repeats(Table::Logs, "message", &batches));
}

#[test]
fn ids_repeat_themselves_when_most_are_there_several_times() {
    for (same, wanted) in [(2, false), (8, true)] {
        let id = |n: u64| format!("{:032x}", (n / same).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let batches = [rows(Table::Traces, 20_000, id)];
        assert_eq!(
            repeats(Table::Traces, "trace_id", &batches),
            wanted,
            "each id {same} times"
        );
    }
}

#[test]
fn durations_repeat_themselves_when_their_numbers_take_less() {
    for (different, wanted) in [(50, true), (28_000, true), (50_000, false)] {
        let mut cells: Vec<Cell> = (0..65_536).map(|n| cell(n, String::new())).collect();
        for (n, cell) in cells.iter_mut().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "any number will do")]
            let number = (n * 7919 % different) as f64;
            cell.number = number / 16.0;
        }
        let batches = [batch(Table::Traces, &cells)];
        assert_eq!(repeats(Table::Traces, "duration_ms", &batches), wanted, "{different}");
    }
}

/// Whether durations, of which so many different ones occur at all, would get a dictionary in a row group of 128k rows.
fn durations_repeat(different: u64, looked_at: usize) -> bool {
    let mut random = 1u64;
    let mut cells: Vec<Cell> = (0..131_072).map(|n| cell(n, String::new())).collect();
    for cell in &mut cells {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        #[expect(clippy::cast_precision_loss, reason = "any number will do")]
        let number = ((random >> 33) % different) as f64;
        cell.number = number;
    }
    let at = Table::Traces
        .columns()
        .iter()
        .position(|known| known.name == "duration_ms");
    let batches = [batch(Table::Traces, &cells)];
    DictionaryChoice::of(&Table::Traces.into(), batches.iter(), looked_at, 131_072).has(at.unwrap())
}

#[test]
fn half_of_a_row_group_says_what_the_whole_would() {
    for (different, wanted) in [(20_000, true), (50_000, true), (200_000, false), (10_000_000, false)] {
        for part in [131_072, 65_536] {
            let found = durations_repeat(different, part);
            assert_eq!(found, wanted, "{part} rows, {different} different ones");
        }
    }
}

#[test]
fn a_quarter_of_a_row_group_says_it_where_the_whole_leaves_no_doubt() {
    for (different, wanted) in [(20_000, true), (200_000, false)] {
        assert_eq!(
            durations_repeat(different, 32_768),
            wanted,
            "{different} different ones"
        );
    }
}

#[test]
fn a_dictionary_that_would_outgrow_its_bounds_in_the_whole_row_group_is_not_begun() {
    // Each text twice, in one place: 4 MiB of them in this part, 8 in the whole.
    let wide = |n: u64| format!("{}{}", unique(n / 2), "-".repeat(150));
    let batches = [rows(Table::Logs, 40_000, wide)];
    let of = |group| DictionaryChoice::of(&Table::Logs.into(), batches.iter(), 40_000, group);
    assert!(of(40_000).has(5) && !of(80_000).has(5));
}

#[test]
fn rows_without_texts_repeat_nothing() {
    let none = [rows(Table::Traces, 0, unique)];
    assert!(!repeats(Table::Traces, "span_id", &none));
    assert_eq!(
        DictionaryChoice::of(&Table::Logs.into(), std::iter::empty(), 0, 0),
        DictionaryChoice::default()
    );
}

/// The message column of each row group.
fn messages(metadata: &ParquetMetaData) -> Vec<ColumnChunkMetaData> {
    metadata
        .row_groups()
        .iter()
        .map(|group| group.column(5).clone())
        .collect()
}

fn has_dictionary(column: &ColumnChunkMetaData) -> bool {
    column.encodings().any(|encoding| encoding == Encoding::RLE_DICTIONARY)
}

fn texts_at(path: &Path) -> Vec<String> {
    let file = File::open(path).unwrap();
    let mut texts: Vec<String> = Vec::new();
    for batch in ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap() {
        let batch = batch.unwrap();
        let column = batch.column(5).as_string::<i32>();
        texts.extend(column.iter().map(|text| text.unwrap().to_owned()));
    }
    texts.sort();
    texts
}

#[test]
fn a_large_group_is_split_into_row_groups_of_the_size_of_sealed_ones_and_sealed_as_it_is() {
    const ROWS: u64 = 250_000;
    let mut room = Room::new();
    let written = rows(Table::Logs, ROWS, |n| unique(n % 20_000));
    let group = room
        .open
        .encode(std::slice::from_ref(&written), IoPriority::Yes)
        .unwrap();
    let facts = room.facts(&(0..ROWS));
    room.open.publish(&group, facts).unwrap();
    room.open.mark_recorded();
    let metadata = metadata_at(&room.path);
    let sizes: Vec<i64> = metadata.row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(sizes, [125_000, 125_000]);
    assert!(messages(&metadata).iter().all(has_dictionary));
    let small = rows(Table::Logs, 100, unique);
    let group = room.open.encode(std::slice::from_ref(&small), IoPriority::Yes).unwrap();
    let facts = room.facts(&(ROWS..ROWS + 100));
    room.open.publish(&group, facts).unwrap();
    room.open.mark_recorded();
    let wanted = texts_at(&room.path);
    assert_eq!(wanted.len() as u64, ROWS + 100);
    let sealed = room.seal();
    assert_eq!(texts_at(&sealed.path), wanted);
    assert_eq!(metadata_at(&sealed.path).num_row_groups(), 3);
}

#[test]
fn a_file_of_split_groups_is_merged_after_a_restart() {
    const ROWS: u64 = 200_000;
    let mut room = Room::new();
    let written = rows(Table::Logs, ROWS, |n| unique(n % 20_000));
    let group = room
        .open
        .encode(std::slice::from_ref(&written), IoPriority::Yes)
        .unwrap();
    let facts = room.facts(&(0..ROWS));
    room.open.publish(&group, facts).unwrap();
    room.open.mark_recorded();
    let wanted = texts_at(&room.path);
    room.open = super::crash::as_recorded(room.resume(room.recorded()).unwrap());
    let sealed = room.seal();
    assert_eq!(sealed.runs, []);
    assert_eq!(texts_at(&sealed.path), wanted);
}

#[test]
fn rows_that_stop_repeating_outgrow_their_dictionary_and_are_all_there() {
    let dir = tempfile::tempdir().unwrap();
    let staged = dir.path().join("outgrown");
    // Newest first: the texts that repeat themselves come first.
    let text = |n: u64| format!("{}{}", unique(if n % 1000 > 499 { n % 7 } else { n }), "-".repeat(200));
    let written = rows(Table::Logs, 130_000, text);
    let facts = FooterFacts::default();
    write_sealed(&IDENTITY, &[written], facts, &staged, &WriteOptions::default()).unwrap();
    let first = &messages(&metadata_at(&staged))[0];
    let encodings: Vec<Encoding> = first.encodings().collect();
    assert!(
        has_dictionary(first) && encodings.contains(&Encoding::PLAIN),
        "{encodings:?}"
    );
    let mut wanted: Vec<String> = (0..130_000).map(text).collect();
    wanted.sort();
    assert_eq!(texts_at(&staged), wanted);
}
