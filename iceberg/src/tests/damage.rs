//! Damaged and foreign objects: an error that names them, or a table that is made anew.

use super::*;
use crate::IcebergError;

async fn published() -> (TestStore, TestCatalog) {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    let catalog = store.catalog();
    publish(&mut catalog.publisher(), store.files(), 0);
    (store, catalog)
}

fn rows(catalog: &TestCatalog) -> u64 {
    let manifests = catalog.load("logs").manifests();
    let entries = manifests.iter().flat_map(|manifest| catalog.entries_of(manifest));
    entries.map(|entry| entry.file.rows).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_of_another_store_is_not_gone_on_from() {
    let (store, catalog) = published().await;
    let settings = CatalogSettings {
        snapshot_age: HOUR,
        partition_by: PartitionBy::Day,
    };
    let first = catalog.load("logs");
    let other = Uuid::from_u128(5);
    publish(
        &mut CatalogPublisher::new(catalog.objects(), other, settings),
        store.files(),
        1,
    );
    let second = catalog.load("logs");
    assert_eq!((second.version, second.snapshots().len()), (2, 1));
    assert_eq!(second.metadata["table-uuid"], Uuid::new_v5(&other, b"logs").to_string());
    assert_eq!(second.metadata["default-spec-id"], 1);
    assert!(second.metadata["metadata-log"].as_array().unwrap().is_empty());
    let entries = catalog.entries_of(&second.manifests()[0]);
    assert_eq!(Some(entries[0].snapshot_id), second.current()["snapshot-id"].as_i64());
    assert_ne!(first.metadata["table-uuid"], second.metadata["table-uuid"]);
    catalog.assert_whole("logs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_that_was_moved_names_no_object_of_its_old_place() {
    let (store, catalog) = published().await;
    let moved = store.catalog_in("elsewhere");
    std::fs::rename(&catalog.folder, &moved.folder).unwrap();
    publish(&mut moved.publisher(), store.files(), 1);
    let second = moved.load("logs");
    assert_eq!((second.version, second.snapshots().len()), (2, 1));
    let place = moved.folder.canonicalize().unwrap();
    for manifest in second.manifests() {
        assert!(local(&manifest.path).starts_with(&place), "{}", manifest.path);
    }
    assert_eq!(rows(&moved), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hint_is_only_a_hint() {
    let (store, catalog) = published().await;
    store.add_logs("2026-11-21T10:00:00Z", 4).await;
    publish(&mut catalog.publisher(), store.files(), 1);
    let hint = catalog.path("logs", "version-hint.text");
    let hints: [&[u8]; 9] = [
        b"",
        b"1",
        b"7",
        b"0",
        b"-1",
        b"18446744073709551615",
        b"999999999999999999999999",
        b"two",
        &[0xff; 4_096],
    ];
    for content in hints {
        std::fs::write(&hint, content).unwrap();
        assert_eq!(catalog.load("logs").version, 2, "{content:?}");
        assert_eq!(
            publish(&mut catalog.publisher(), store.files(), 2).published,
            0,
            "{content:?}"
        );
        assert_eq!(std::fs::read(&hint).unwrap(), b"2", "{content:?}");
    }
    std::fs::remove_file(&hint).unwrap();
    assert_eq!(catalog.load("logs").version, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_no_metadata_is_named_to_readers_and_passed_by_the_publisher() {
    let huge = vec![b' '; (16 << 20) + 1];
    let deep = "[".repeat(100_000).into_bytes();
    let (store, catalog) = published().await;
    let garbage: [&[u8]; 5] = [b"", b"{}", b"\xff\xfe", &deep, &huge];
    let mut version = 1;
    for content in garbage {
        version += 1;
        let name = format!("v{version}.metadata.json");
        std::fs::write(catalog.path("logs", &name), content).unwrap();
        let error = catalog.reader().load("logs").unwrap_err();
        assert!(
            matches!(&error, IcebergError::Damaged { object, .. } if object.ends_with(&name)),
            "{error}"
        );
        version += 1;
        let report = publish(&mut catalog.publisher(), store.files(), version);
        assert_eq!(report.versions["logs"], version);
        assert_eq!((catalog.load("logs").version, rows(&catalog)), (version, 5));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_were_never_published_are_not_gone_on_from() {
    let (store, catalog) = published().await;
    let path = catalog.path("logs", "v1.metadata.json");
    let whole: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let current = whole["snapshots"][0].clone();
    for (key, value) in [
        ("last-sequence-number", Value::from(i64::MAX)),
        ("last-updated-ms", Value::from(i64::MAX)),
        ("snapshots", Value::from(vec![current.clone(), current])),
        (
            "schemas",
            Value::from(vec![whole["schemas"][0].clone(), whole["schemas"][0].clone()]),
        ),
        ("location", Value::from("s3://elsewhere/logs")),
    ] {
        let mut changed = whole.clone();
        changed[key] = value;
        std::fs::write(&path, changed.to_string()).unwrap();
        std::fs::write(catalog.path("logs", "version-hint.text"), "1").unwrap();
        publish(&mut catalog.publisher(), store.files_without(|file| file.rows == 3), 1);
        let second = catalog.load("logs");
        assert_eq!((second.version, rows(&catalog)), (2, 2), "{key}");
        assert_eq!(second.summary("total-records"), "2", "{key}");
        std::fs::remove_file(catalog.path("logs", "v2.metadata.json")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_changed_byte_of_any_object_makes_no_wrong_table() {
    let (store, catalog) = published().await;
    let first = catalog.objects_of("logs");
    store.add_logs("2026-11-21T10:00:00Z", 4).await;
    for (name, content) in &first {
        for part in 0..24 {
            let at = content.len() * part / 24;
            let mut changed = content.clone();
            changed[at] ^= 1;
            for left in catalog.names_of("logs") {
                std::fs::remove_file(catalog.path("logs", &left)).unwrap();
            }
            for (name, content) in &first {
                std::fs::write(catalog.path("logs", name), content).unwrap();
            }
            std::fs::write(catalog.path("logs", name), &changed).unwrap();
            publish(&mut catalog.publisher(), store.files(), 1);
            // A manifest of a day that did not change is not read: its damage is found by who reads it.
            if !name.starts_with("2026-11-20") {
                assert_eq!(rows(&catalog), 9, "{name} at {at}");
            }
            assert_eq!(catalog.load("logs").summary("total-records"), "9", "{name} at {at}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_whose_manifest_is_lost_or_damaged_take_their_own_place_and_are_not_new() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    let before = store.files();
    store.add_logs("2026-11-21T10:00:00Z", 4).await;
    let all = store.files();
    store.add_logs("2026-11-21T11:00:00Z", 5).await;
    let one_more = store.files();
    let counts = |table: &TestTable| {
        let keys = [
            "added-data-files",
            "added-records",
            "deleted-data-files",
            "deleted-records",
        ];
        (
            table.summary("operation"),
            keys.map(|key| table.summary(key).parse::<u64>().unwrap()),
        )
    };
    let case = |folder: &str, harm: &dyn Fn(&TestCatalog, &TestTable), list: &PublishedFiles| {
        let catalog = store.catalog_in(folder);
        publish(&mut catalog.publisher(), before.clone(), 0);
        publish(&mut catalog.publisher(), all.clone(), 1);
        harm(&catalog, &catalog.load("logs"));
        publish(&mut catalog.publisher(), list.clone(), 2);
        let third = catalog.load("logs");
        assert_eq!(
            (third.version, rows(&catalog).to_string()),
            (3, third.summary("total-records")),
            "{folder}"
        );
        counts(&third)
    };
    let list_of = |table: &TestTable| local(table.current()["manifest-list"].as_str().unwrap()).to_owned();
    let overwrite = |counts: [u64; 4]| ("overwrite".to_owned(), counts);

    let damaged = |_: &TestCatalog, table: &TestTable| {
        let manifests = table.manifests();
        std::fs::write(local(&manifests[1].path), "damaged").unwrap();
    };
    assert_eq!(case("damaged", &damaged, &one_more), overwrite([3, 12, 2, 7]));
    let lost = |_: &TestCatalog, table: &TestTable| std::fs::remove_file(local(&table.manifests()[1].path)).unwrap();
    assert_eq!(case("lost", &lost, &all), overwrite([2, 7, 2, 7]));
    let without_list = |_: &TestCatalog, table: &TestTable| std::fs::remove_file(list_of(table)).unwrap();
    assert_eq!(case("list", &without_list, &all), overwrite([3, 9, 3, 9]));
    // Without any earlier snapshot there is nobody who has read one.
    let alone = |catalog: &TestCatalog, table: &TestTable| {
        for snapshot in table.snapshots() {
            std::fs::remove_file(local(snapshot["manifest-list"].as_str().unwrap())).unwrap();
        }
        assert!(catalog.names_of("logs").contains("v2.metadata.json"));
    };
    assert_eq!(case("alone", &alone, &all), ("append".to_owned(), [3, 9, 0, 0]));
    assert_eq!(
        case("whole", &|_, _| {}, &one_more),
        ("append".to_owned(), [1, 5, 0, 0])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_list_of_tables_is_named_and_written_anew() {
    let (store, catalog) = published().await;
    let path = catalog.folder.join("telemetry").join("tables.json");
    let whole = std::fs::read(&path).unwrap();
    for content in [b"[".to_vec(), vec![b' '; (1 << 20) + 1], b"[7]".to_vec()] {
        std::fs::write(&path, content).unwrap();
        let error = catalog.reader().tables().unwrap_err();
        assert!(
            error
                .to_string()
                .contains("tables.json of the Iceberg catalogue is damaged"),
            "{error}"
        );
        publish(&mut catalog.publisher(), store.files(), 1);
        assert_eq!(std::fs::read(&path).unwrap(), whole);
    }
    std::fs::write(&path, r#"["logs", "../../etc", "messages_a/b", "traces"]"#).unwrap();
    assert_eq!(catalog.reader().tables().unwrap(), ["logs", "traces"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_publisher_finds_what_is_missing_and_publishes_it_anew() {
    let (store, catalog) = published().await;
    let mut publisher = catalog.publisher();
    publish(&mut publisher, store.files(), 1);
    let losses: [fn(&str) -> bool; 4] = [
        |name| name.starts_with("2026-11-20-h-"),
        |name| name.starts_with("snap-"),
        |name| name.ends_with(".metadata.json"),
        |_| true,
    ];
    for (minute, is_lost) in (2..).zip(losses) {
        publisher.begin_collection();
        while publisher.collect_garbage(after(minute)).unwrap().is_some() {}
        assert!(!publisher.is_due());
        let lost: Vec<_> = catalog
            .names_of("logs")
            .into_iter()
            .filter(|name| is_lost(name))
            .collect();
        assert!(!lost.is_empty());
        for name in lost {
            std::fs::remove_file(catalog.path("logs", &name)).unwrap();
        }
        publisher.begin_collection();
        while publisher.collect_garbage(after(minute)).unwrap().is_some() {}
        assert!(publisher.is_due());
        publish(&mut publisher, store.files(), minute);
        assert_eq!((rows(&catalog), publisher.is_due()), (5, false));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_whose_current_snapshot_is_lost_does_not_go_back_to_an_earlier_one() {
    let (store, catalog) = published().await;
    let none = || store.files_without(|_| true);
    publish(&mut catalog.publisher(), none(), 1);
    let second = catalog.load("logs");
    assert_eq!(second.summary("total-records"), "0");
    std::fs::remove_file(local(second.current()["manifest-list"].as_str().unwrap())).unwrap();
    publish(&mut catalog.publisher(), none(), 2);
    let third = catalog.load("logs");
    assert_eq!((third.version, third.summary("total-records").as_str()), (3, "0"));
    assert_eq!((third.snapshots().len(), rows(&catalog)), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_with_one_table_leaves_the_others_published() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    // A file is in the way of the first table's folder.
    std::fs::create_dir_all(catalog.folder.join("telemetry")).unwrap();
    let in_the_way = catalog.folder.join("telemetry").join("dead_letters");
    std::fs::write(&in_the_way, "").unwrap();
    let mut publisher = catalog.publisher();
    let error = publisher.publish(store.files(), now()).unwrap_err();
    assert!(matches!(error, IcebergError::Storage(_)), "{error}");
    assert_eq!(catalog.load("logs").summary("total-records"), "2");
    assert_eq!(catalog.reader().tables().unwrap().len(), 4);
    std::fs::remove_file(&in_the_way).unwrap();
    let report = publish(&mut publisher, store.files(), 1);
    assert_eq!((report.published, report.versions.len()), (1, 5));
    assert_eq!(catalog.reader().tables().unwrap().len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_gone_holds_up_its_tables_alone_and_is_missed_in_none() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    store.add_message("2026-11-20T09:00:00Z", None, Attributes::new()).await;
    let catalog = store.catalog();
    let mut publisher = catalog.publisher();
    publish(&mut publisher, store.files(), 0);
    store.add_logs("2026-11-20T10:00:00Z", 3).await;
    store.add_message("2026-11-20T10:00:00Z", None, Attributes::new()).await;
    let files = store.files();
    let lost = files.files.iter().find(|file| file.rows == 3).unwrap();
    let path = local(&lost.uri).to_owned();
    let content = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let error = publisher.publish(files, after(1)).unwrap_err();
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(error.to_string().contains(name), "{error}");
    let rows = |table: &str| catalog.load(table).summary("total-records");
    assert_eq!((rows("logs").as_str(), rows("messages").as_str()), ("2", "2"));
    assert_eq!((catalog.load("logs").version, catalog.load("messages").version), (1, 2));
    std::fs::write(&path, content).unwrap();
    publish(&mut publisher, store.files(), 2);
    assert_eq!(rows("logs"), "5");
}
