//! Tests of the layout: partitions to folders and names, and back.
#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn a_partition_holds_its_start_and_not_its_end() {
    for by in [PartitionBy::Hour, PartitionBy::Day] {
        for text in [
            "2026-11-21T10:59:59.999999Z",
            "1969-12-31T23:30:00Z",
            "0001-01-01T00:00:00Z",
        ] {
            let part = TimePartition::of(at(text), by);
            assert!(part.start() <= at(text) && at(text) < part.end());
            assert_eq!(TimePartition::of(part.start(), by), part);
            assert_ne!(TimePartition::of(part.end(), by), part);
        }
    }
}

#[test]
fn folders_are_dates_and_absurd_times_stay_within_four_digit_years() {
    let ten = at("2026-03-02T10:59:59Z");
    assert_eq!(TimePartition::of(ten, PartitionBy::Hour).to_string(), "2026/03/02/10");
    assert_eq!(TimePartition::of(ten, PartitionBy::Day).to_string(), "2026/03/02");
    let absurd = Timestamp::from_micros(i64::MAX);
    assert_eq!(
        TimePartition::of(absurd, PartitionBy::Hour).to_string(),
        "9999/12/31/23"
    );
    let absurd = Timestamp::from_micros(i64::MIN);
    assert_eq!(TimePartition::of(absurd, PartitionBy::Day).to_string(), "0001/01/01");
}

#[test]
fn staging_lies_beside_a_tree_outside_of_the_store_and_never_in_it() {
    let mut settings = Settings::new("/store");
    assert_eq!(StoreLayout::new(&settings).data_staging, Path::new("/store/.staging"));
    settings.data_dir = "/other/disk/telemetry".into();
    assert_eq!(
        StoreLayout::new(&settings).data_staging,
        Path::new("/other/disk/.staging/telemetry")
    );
}

#[test]
fn a_file_name_gives_its_number_back() {
    let layout = StoreLayout::new(&Settings::new("/store"));
    let part = TimePartition::of(at("2026-03-02T10:00:00Z"), PartitionBy::Hour);
    for number in [1, 42, 999, 1000, 123_456] {
        for form in [
            FileFormat::Parquet,
            FileFormat::Json,
            FileFormat::JsonZstd,
            FileFormat::JsonSnappy,
        ] {
            let named = DataFileName {
                number,
                form,
                prefix: None,
            };
            let path = layout.file(Table::Logs, part, named);
            assert_eq!(file_number(Table::Logs, &path), Some(number));
            assert_eq!(
                parse_path(&layout, Table::Logs, &path, part.start()),
                Some((part, named))
            );
        }
    }
    for bad in [
        "logs_1.parquet",
        "logs_abc.parquet",
        "traces_001.parquet",
        ".logs_001.parquet",
        "logs_001.tmp",
        "logs_001.json.gz",
    ] {
        assert_eq!(file_number(Table::Logs, Path::new(bad)), None, "{bad}");
    }
}

#[test]
fn messages_have_a_tree_of_their_own_with_a_folder_for_each_spec() {
    let layout = StoreLayout::new(&Settings::new("/store"));
    let part = TimePartition::of(at("2026-03-02T10:00:00Z"), PartitionBy::Hour);
    let named = |number, form, prefix: Option<&str>| DataFileName {
        number,
        form,
        prefix: prefix.map(|prefix| prefix.parse().unwrap()),
    };
    let generic = layout.file(Table::Messages, part, named(1, FileFormat::Parquet, None));
    assert_eq!(
        generic,
        Path::new("/store/messages/generic/2026/03/02/10/fluxmsg_001.parquet")
    );
    let spec: SpecName = "order_paid".parse().unwrap();
    let part = part.of_spec(Some(spec));
    let plain = named(12, FileFormat::JsonZstd, None);
    let path = layout.file(Table::Messages, part, plain);
    assert_eq!(
        path,
        Path::new("/store/messages/fluxSpec/order_paid/2026/03/02/10/order_paid_012.json.zst")
    );
    assert_eq!(
        parse_path(&layout, Table::Messages, &path, part.start()),
        Some((part, plain))
    );
    let prefixed = named(13, FileFormat::Parquet, Some("paid"));
    let path = layout.file(Table::Messages, part, prefixed);
    assert_eq!(
        path,
        Path::new("/store/messages/fluxSpec/order_paid/2026/03/02/10/paid_013.parquet")
    );
    assert_eq!(
        parse_path(&layout, Table::Messages, &path, part.start()),
        Some((part, prefixed))
    );
    let elsewhere = Path::new("/store/messages/generic/2026/03/02/10/order_paid_012.json.zst");
    assert_eq!(parse_path(&layout, Table::Messages, elsewhere, part.start()), None);
}
