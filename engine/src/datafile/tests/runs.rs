//! Sealed files that are put together from large row groups.

use parquet::file::metadata::ParquetMetaData;

use super::*;

/// Rows enough for a group in its final form.
const LARGE: u64 = 128 << 10;

/// A row whose time is its number in milliseconds, or `late` milliseconds before that.
fn row(n: u64, late: u64) -> LogRecord {
    LogRecord {
        ts: Timestamp::from_micros(TEN + i64::try_from(n - late).unwrap() * 1000),
        ..log(n)
    }
}

fn publish(room: &mut Room, rows: &[LogRecord]) {
    let group = room
        .open
        .encode(&[model::batch::logs(rows).unwrap()], IoPriority::Yes)
        .unwrap();
    let facts = room.facts(&(0..rows.len() as u64));
    room.open.publish(&group, facts).unwrap();
    room.open.mark_recorded();
}

fn in_order(rows: Range<u64>) -> Vec<LogRecord> {
    rows.map(|n| row(n, 0)).collect()
}

/// Time and number of rows, newest first.
fn newest_first(rows: &[LogRecord]) -> Vec<Row> {
    let number = |row: &LogRecord| row.message.strip_prefix("line ").unwrap().parse().unwrap();
    let mut found: Vec<Row> = rows.iter().map(|row| (row.ts.micros(), number(row))).collect();
    found.sort_by_key(|(ts, number)| std::cmp::Reverse((*ts, *number)));
    found
}

fn has_everything(metadata: &ParquetMetaData) {
    assert!(metadata.offset_index().is_some() && metadata.column_index().is_some());
    for column in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        let name = column.column_path().string();
        assert_eq!(column.bloom_filter_offset().is_some(), name == "flux_id", "{name}");
        assert!(column.offset_index_offset().is_some(), "{name}");
    }
}

#[test]
fn large_groups_in_order_are_copied_and_the_file_is_sorted_as_a_whole() {
    let mut room = Room::new();
    let rows = in_order(0..2 * LARGE);
    let (first, second) = rows.split_at(usize::try_from(LARGE).unwrap());
    publish(&mut room, first);
    publish(&mut room, second);
    let sizes = |metadata: &ParquetMetaData| -> Vec<i64> {
        metadata
            .row_groups()
            .iter()
            .map(|group| group.compressed_size())
            .collect()
    };
    let open = sizes(&metadata_at(&room.path));
    let sealed = room.seal();
    assert_eq!(rows_at(&sealed.path), newest_first(&rows));
    assert!(sealed.runs.is_empty(), "{:?}", sealed.runs);
    let metadata = metadata_at(&sealed.path);
    has_everything(&metadata);
    assert_eq!(
        sizes(&metadata),
        open.into_iter().rev().collect::<Vec<_>>(),
        "not encoded anew"
    );
    assert_eq!(sealed.crc, crc32c::crc32c(&fs::read(&sealed.path).unwrap()));
}

#[test]
fn late_rows_make_runs_that_are_each_sorted_and_survive_a_lost_record() {
    let mut room = Room::new();
    let mut rows = in_order(0..LARGE);
    publish(&mut room, &rows);
    let few: Vec<_> = (LARGE..LARGE + 500).map(|n| row(n, 400)).collect();
    publish(&mut room, &few);
    let more: Vec<_> = (LARGE + 500..2 * LARGE + 500)
        .map(|n| row(n, if n % 100 == 0 { 7000 } else { 0 }))
        .collect();
    publish(&mut room, &more);
    rows.extend(few);
    rows.extend(more);
    let recorded = room.recorded();
    let sealed = room.seal();
    let mut found = rows_at(&sealed.path);
    assert_eq!(sealed.runs.iter().map(|run| run.rows).sum::<u64>(), 2 * LARGE + 500);
    let mut rest = &found[..];
    for run in &sealed.runs {
        let (here, behind) = rest.split_at(usize::try_from(run.rows).unwrap());
        assert!(here.is_sorted_by_key(|(ts, _)| std::cmp::Reverse(*ts)));
        let bounds = (here.last().unwrap().0, here.first().unwrap().0);
        assert_eq!(bounds, (run.min_ts.micros(), run.max_ts.micros()));
        rest = behind;
    }
    assert!(sealed.runs.is_sorted_by(|newer, older| newer.max_ts >= older.max_ts));
    found.sort_by_key(|(ts, number)| std::cmp::Reverse((*ts, *number)));
    assert_eq!(found, newest_first(&rows));
    has_everything(&metadata_at(&sealed.path));
    sealed.install(&room.path, &room.retired).unwrap();
    let again = room.resume(recorded).unwrap().file;
    assert_eq!((again.sealed, again.runs, again.crc), (true, sealed.runs, sealed.crc));
}

#[test]
fn a_file_of_mostly_small_groups_is_encoded_anew_and_sorted() {
    let mut room = Room::new();
    let mut rows = in_order(0..LARGE);
    publish(&mut room, &rows);
    let late: Vec<_> = (LARGE..2 * LARGE).map(|n| row(n, 60_000)).collect();
    late.chunks(40_000).for_each(|few| publish(&mut room, few));
    rows.extend(late);
    let sealed = room.seal();
    assert!(sealed.runs.is_empty());
    let found = rows_at(&sealed.path);
    assert!(found.is_sorted_by_key(|(ts, _)| std::cmp::Reverse(*ts)));
    assert_eq!(numbers(found), all(0..2 * LARGE));
}

#[test]
fn after_a_restart_large_groups_are_encoded_anew() {
    let mut room = Room::new();
    publish(&mut room, &in_order(0..LARGE));
    room.open = super::crash::as_recorded(room.resume(room.recorded()).unwrap());
    let sealed = room.seal();
    assert_eq!(numbers(rows_at(&sealed.path)), all(0..LARGE));
    has_everything(&metadata_at(&sealed.path));
}
