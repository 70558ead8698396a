//! What a publication writes: the first one, after files came, after files went.

use super::*;

fn is_of(entry: &ManifestEntry, status: EntryStatus, snapshot: &Value, sequence_number: i64) -> bool {
    entry.status == status
        && Some(entry.snapshot_id) == snapshot["snapshot-id"].as_i64()
        && entry.sequence_number == sequence_number
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_publication_makes_every_base_table_and_a_snapshot_of_those_with_files() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    store.add_logs("2026-11-20T23:00:00Z", 2).await;
    let catalog = store.catalog();
    assert_eq!(catalog.reader().tables().unwrap(), Vec::<String>::new());
    let mut publisher = catalog.publisher();
    let report = publish(&mut publisher, store.files(), 0);
    assert_eq!((report.published, report.number), (5, store.files().number));
    let names = ["dead_letters", "logs", "messages", "metrics", "traces"];
    assert_eq!(report.versions, BTreeMap::from(names.map(|name| (name.to_owned(), 1))));
    assert_eq!(catalog.reader().tables().unwrap(), names);
    catalog.assert_whole("logs");
    let logs = catalog.load("logs");
    assert_eq!(logs.version, 1);
    assert_eq!(logs.metadata["format-version"], 2);
    assert_eq!(logs.metadata["table-uuid"], Uuid::new_v5(&STORE, b"logs").to_string());
    assert_eq!(logs.metadata["last-sequence-number"], 1);
    assert_eq!(logs.metadata["last-updated-ms"], now().micros() / 1_000);
    assert_eq!(logs.metadata["default-spec-id"], 0);
    assert_eq!(
        logs.metadata["properties"]["read.parquet.vectorization.enabled"],
        "false"
    );
    assert_eq!(std::fs::read(catalog.path("logs", "version-hint.text")).unwrap(), b"1");
    for (key, value) in [
        ("operation", "append"),
        ("added-data-files", "2"),
        ("deleted-data-files", "0"),
        ("added-records", "5"),
        ("deleted-records", "0"),
        ("total-records", "5"),
        ("total-data-files", "2"),
        ("platform.number", report.number.to_string().as_str()),
    ] {
        assert_eq!(logs.summary(key), value, "{key}");
    }
    let bytes: u64 = store.files().files.iter().map(|file| file.size).sum();
    assert_eq!(logs.summary("total-files-size"), bytes.to_string());
    let manifests = logs.manifests();
    let days: Vec<_> = manifests
        .iter()
        .map(|manifest| manifest.partition_lower.div_euclid(24))
        .collect();
    assert_eq!(days, [20_777, 20_778]);
    for manifest in &manifests {
        let entries = catalog.entries_of(manifest);
        assert!(
            entries
                .iter()
                .all(|entry| is_of(entry, EntryStatus::Added, &logs.current(), 1))
        );
    }
    let metrics = catalog.load("metrics");
    assert_eq!((metrics.version, metrics.snapshots().len()), (1, 0));
    assert_eq!(metrics.metadata["last-sequence-number"], 0);
    assert_eq!(
        catalog.names_of("metrics"),
        BTreeSet::from(["v1.metadata.json", "version-hint.text"].map(str::to_owned))
    );
    // Nothing changed: nothing is written.
    let before = catalog.objects_of("logs");
    assert_eq!(publish(&mut publisher, store.files(), 1).published, 0);
    assert_eq!(publish(&mut catalog.publisher(), store.files(), 2).published, 0);
    assert_eq!(catalog.objects_of("logs"), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_file_makes_the_manifest_of_its_day_anew_and_leaves_those_of_other_days() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    let catalog = store.catalog();
    publish(&mut catalog.publisher(), store.files(), 0);
    let first = catalog.load("logs");
    let before = catalog.objects_of("logs");
    store.add_logs("2026-11-21T10:00:00Z", 4).await;
    // Another process: it knows of the first publication what it left in the folder.
    let report = publish(&mut catalog.publisher(), store.files(), 1);
    assert_eq!(
        (report.published, report.versions["logs"], report.versions["metrics"]),
        (1, 2, 1)
    );
    catalog.assert_whole("logs");
    let second = catalog.load("logs");
    let [old_day, new_day]: [ManifestFile; 2] = second.manifests().try_into().unwrap();
    assert_eq!(old_day, first.manifests()[0]);
    assert_ne!(new_day, first.manifests()[1]);
    let old_name = local(&old_day.path).file_name().unwrap().to_str().unwrap();
    assert_eq!(before[old_name], catalog.objects_of("logs")[old_name]);
    assert_eq!((new_day.sequence_number, new_day.min_sequence_number), (2, 1));
    let entries = catalog.entries_of(&new_day);
    assert!(
        is_of(&entries[0], EntryStatus::Existing, &first.current(), 1),
        "{entries:?}"
    );
    assert!(
        is_of(&entries[1], EntryStatus::Added, &second.current(), 2),
        "{entries:?}"
    );
    assert_eq!(entries.len(), 2);
    // What is taken over has its bounds still.
    let earlier = catalog.entries_of(&first.manifests()[1]).remove(0);
    assert!(earlier.file.lower.len() > 1, "{earlier:?}");
    assert_eq!(earlier.file, entries[0].file);
    assert_eq!(second.current()["parent-snapshot-id"], first.current()["snapshot-id"]);
    assert_eq!(second.summary("operation"), "append");
    assert_eq!(
        (second.summary("added-records"), second.summary("total-records")),
        ("4".into(), "9".into())
    );
    let log = second.metadata["metadata-log"].as_array().unwrap();
    assert_eq!(log.len(), 1);
    assert!(log[0]["metadata-file"].as_str().unwrap().ends_with("/v1.metadata.json"));
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_files_are_in_no_later_manifest_and_the_last_one_leaves_an_empty_snapshot() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    store.add_logs("2026-11-21T08:00:00Z", 3).await;
    store.add_logs("2026-11-21T09:00:00Z", 5).await;
    let catalog = store.catalog();
    let mut publisher = catalog.publisher();
    publish(&mut publisher, store.files(), 0);
    // A whole day, and one file of another.
    let is_gone = |file: &PublishedFile| is_of_day(file, "2026-11-20") || file.rows == 3;
    publish(&mut publisher, store.files_without(is_gone), 1);
    let second = catalog.load("logs");
    assert_eq!(second.summary("operation"), "delete");
    assert_eq!(
        (second.summary("deleted-data-files"), second.summary("deleted-records")),
        ("2".into(), "5".into())
    );
    assert_eq!(
        (second.summary("total-data-files"), second.summary("total-records")),
        ("1".into(), "5".into())
    );
    let [left]: [ManifestFile; 1] = second.manifests().try_into().unwrap();
    assert_eq!(catalog.entries_of(&left).len(), 1);
    publish(&mut publisher, store.files_without(|_| true), 2);
    let third = catalog.load("logs");
    assert_eq!(
        (third.manifests(), third.summary("total-records")),
        (Vec::new(), "0".into())
    );
    assert_eq!((third.version, third.snapshots().len()), (3, 3));
    // They come back, as after a restore.
    store.add_logs("2026-11-21T10:00:00Z", 1).await;
    publish(&mut publisher, store.files(), 3);
    assert_eq!(catalog.load("logs").summary("total-records"), "11");
    catalog.assert_whole("logs");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_take_the_place_of_others_are_an_overwrite() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-21T08:00:00Z", 3).await;
    let catalog = store.catalog();
    let mut publisher = catalog.publisher();
    publish(&mut publisher, store.files(), 0);
    store.add_logs("2026-11-21T09:00:00Z", 5).await;
    publish(&mut publisher, store.files_without(|file| file.rows == 3), 1);
    let second = catalog.load("logs");
    assert_eq!(second.summary("operation"), "overwrite");
    assert_eq!(
        (second.summary("added-records"), second.summary("deleted-records")),
        ("5".into(), "3".into())
    );
    assert_eq!(second.summary("total-records"), "5");
    catalog.assert_whole("logs");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_list_after_the_same_metadata_gives_the_same_bytes() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-21T08:00:00Z", 3).await;
    let catalog = store.catalog();
    publish(&mut catalog.publisher(), store.files(), 0);
    store.add_logs("2026-11-21T09:00:00Z", 5).await;
    let before = catalog.names_of("logs");
    publish(&mut catalog.publisher(), store.files(), 1);
    let first = catalog.objects_of("logs");
    for name in catalog.names_of("logs").difference(&before) {
        std::fs::remove_file(catalog.path("logs", name)).unwrap();
    }
    let mut settled = store.files();
    settled.files.reverse();
    publish(&mut catalog.publisher(), settled, 1);
    assert_eq!(
        catalog.objects_of("logs"),
        first,
        "the same list and the same previous metadata give the same bytes"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn times_do_not_go_back_when_the_clock_does() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-21T08:00:00Z", 3).await;
    let catalog = store.catalog();
    let mut publisher = catalog.publisher();
    publish(&mut publisher, store.files(), 60);
    store.add_logs("2026-11-21T09:00:00Z", 5).await;
    publish(&mut publisher, store.files(), 0);
    let second = catalog.load("logs");
    let last = after(60).micros() / 1_000 + 1;
    assert_eq!(second.metadata["last-updated-ms"], last);
    assert_eq!(second.current()["timestamp-ms"], last);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_an_earlier_release_gets_a_new_column_and_keeps_its_snapshots_and_manifests() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    let catalog = store.catalog();
    publish(&mut catalog.publisher(), store.files(), 0);
    // That release did not know the last column.
    let path = catalog.path("logs", "v1.metadata.json");
    let mut metadata: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let columns = metadata["schemas"][0]["fields"].as_array_mut().unwrap();
    let (all, _) = (columns.len(), columns.pop());
    std::fs::write(&path, metadata.to_string()).unwrap();
    let first = catalog.load("logs");
    store.add_logs("2026-11-21T10:00:00Z", 4).await;
    publish(&mut catalog.publisher(), store.files(), 1);
    let second = catalog.load("logs");
    let of_schemas = |table: &TestTable| -> Vec<i64> {
        let snapshots = table.snapshots();
        snapshots
            .iter()
            .map(|snapshot| snapshot["schema-id"].as_i64().unwrap())
            .collect()
    };
    assert_eq!((second.version, of_schemas(&second)), (2, vec![0, 1]));
    assert_eq!(second.metadata["current-schema-id"], 1);
    let schemas = second.metadata["schemas"].as_array().unwrap();
    let columns = schemas.iter().map(|schema| schema["fields"].as_array().unwrap().len());
    assert_eq!(columns.collect::<Vec<_>>(), [all - 1, all]);
    let manifests = second.manifests();
    assert_eq!(manifests.len(), 3, "files of either schema on one day");
    assert_eq!(manifests[..2], first.manifests());
    assert_eq!(
        (second.summary("operation"), second.summary("added-records")),
        ("append".to_owned(), "4".to_owned())
    );
    catalog.assert_whole("logs");
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_of_another_length_are_in_manifests_of_their_own() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-21T08:00:00Z", 3).await;
    let catalog = store.catalog();
    publish(&mut catalog.publisher(), store.files(), 0);
    store.add_logs("2026-11-21T09:00:00Z", 5).await;
    let mut files = store.files();
    // As a store has it whose setting changed.
    for file in files.files.iter_mut().filter(|file| file.rows == 5) {
        (file.partition_by, file.partition) = (PartitionBy::Day, file.partition.div_euclid(24));
    }
    publish(&mut catalog.publisher(), files, 1);
    let second = catalog.load("logs");
    let units: Vec<_> = second
        .manifests()
        .iter()
        .map(|manifest| manifest.unit.spec_id())
        .collect();
    assert_eq!(units, [0, 1]);
    catalog.assert_whole("logs");
}
