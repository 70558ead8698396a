//! Files of metrics: a series in one place.

use model::{MetricPoint, MetricType};

use super::super::sort_order::FileSortOrder;
use super::*;

const METRICS: FileIdentity = FileIdentity {
    table: Table::Metrics,
    ..IDENTITY
};

/// Point `n` of nine series of three names and three hosts; times go back and forth, and repeat.
fn point(n: u64) -> MetricPoint {
    MetricPoint {
        ts: log(n).ts,
        name: ["cpu.time", "cpu", "memory"][usize::try_from(n % 3).unwrap()].to_owned(),
        entity_id: EntityId::from_bytes([u8::try_from(n / 3 % 3).unwrap(); 16]),
        entity_name: "host".to_owned(),
        metric_type: MetricType::Gauge,
        value: f64::from(u32::try_from(n).unwrap()),
        labels: Attributes::new(),
    }
}

fn points(rows: Range<u64>) -> RecordBatch {
    model::batch::metrics(&rows.map(point).collect::<Vec<_>>()).unwrap()
}

fn segment(dir: &Path) -> OpenDataFile {
    let options = WriteOptions::default();
    OpenDataFile::create(dir.join("metrics_001.parquet"), dir.join("twin"), METRICS, options)
}

fn publish(open: &mut OpenDataFile, group: &RowGroup, version: u32) {
    let facts = FooterFacts {
        version,
        ..FooterFacts::default()
    };
    open.publish(group, facts).unwrap();
    open.mark_recorded();
}

/// The numbers of a file's points, in stored order, by row group.
fn stored(path: &Path) -> Vec<Vec<u64>> {
    let metadata = metadata_at(path);
    let mut rest = Vec::new();
    for batch in ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap())
        .unwrap()
        .build()
        .unwrap()
    {
        let batch = batch.unwrap();
        let values = batch.column_by_name("value").unwrap();
        let values = values.as_primitive::<arrow_array::types::Float64Type>().values();
        rest.extend(values.iter().map(|value| *value as u64));
    }
    let counts = metadata
        .row_groups()
        .iter()
        .map(|group| usize::try_from(group.num_rows()).unwrap());
    counts.map(|count| rest.drain(..count).collect()).collect()
}

fn by_series(rows: Range<u64>) -> Vec<u64> {
    let mut rows: Vec<u64> = rows.collect();
    rows.sort_by_key(|n| {
        let point = point(*n);
        (point.name, *point.entity_id.as_bytes(), std::cmp::Reverse(point.ts))
    });
    rows
}

#[test]
fn a_series_is_in_one_place_of_each_group_and_of_the_sealed_file_newest_first() {
    let dir = tempfile::tempdir().unwrap();
    let mut open = segment(dir.path());
    for (version, rows) in (1..).zip([0..2000, 2000..2500, 2500..6000]) {
        let group = open
            .encode(
                &[points(rows.start..rows.start + 100), points(rows.start + 100..rows.end)],
                IoPriority::Yes,
            )
            .unwrap();
        publish(&mut open, &group, version);
    }
    assert_eq!(
        stored(open.path()),
        [by_series(0..2000), by_series(2000..2500), by_series(2500..6000)]
    );
    let sealed = seal(&open, &dir.path().join("sealed"), 4, &WriteOptions::default()).unwrap();
    assert_eq!(stored(&sealed.path), [by_series(0..6000)]);
    assert_eq!(sealed.runs, []);
    assert_eq!(
        (sealed.min_ts, sealed.max_ts),
        (open.published().unwrap().min_ts, open.published().unwrap().max_ts)
    );
    let metadata = metadata_at(&sealed.path);
    assert_eq!(
        metadata.row_group(0).sorting_columns(),
        Some(&FileSortOrder::Series.columns())
    );
}

#[test]
fn large_groups_are_copied_and_the_file_names_no_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mut open = segment(dir.path());
    for (version, rows) in (1..).zip([0..140_000, 140_000..280_000]) {
        let group = open.encode(&[points(rows)], IoPriority::Yes).unwrap();
        publish(&mut open, &group, version);
    }
    let sealed = seal(&open, &dir.path().join("sealed"), 3, &WriteOptions::default()).unwrap();
    assert_eq!(sealed.runs, []);
    let groups = stored(&sealed.path);
    assert_eq!(groups.len(), 2);
    assert!(groups.contains(&by_series(0..140_000)) && groups.contains(&by_series(140_000..280_000)));
}

#[test]
fn an_open_file_that_was_begun_newest_first_goes_on_and_is_sealed_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut open = segment(dir.path());
    let earlier = encode(
        Table::Metrics,
        &[points(0..500)],
        &WriteOptions::default(),
        IoPriority::Yes,
    )
    .unwrap();
    publish(&mut open, &earlier, 1);
    let recorded = open.published().map(|published| RecordedVersion {
        size: published.size,
        crc: published.crc,
        footer_crc: published.footer_crc,
    });
    let (path, twin) = (open.path().to_owned(), dir.path().join("twin"));
    let resumed = resume(path, twin, METRICS, WriteOptions::default(), recorded).unwrap();
    let mut open = super::crash::as_recorded(resumed);
    let group = open.encode(&[points(500..1000)], IoPriority::Yes).unwrap();
    publish(&mut open, &group, 2);
    let sealed = seal(&open, &dir.path().join("sealed"), 3, &WriteOptions::default()).unwrap();
    let mut wanted: Vec<u64> = (0..1000).collect();
    wanted.sort_by_key(|n| std::cmp::Reverse(point(*n).ts));
    assert_eq!(stored(&sealed.path), [wanted]);
}
