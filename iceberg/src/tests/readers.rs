//! What readers are served, in the publisher's process and in others.

use super::*;
use crate::IcebergError;
use crate::catalog::TableOverview;

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_shares_what_it_published_without_reading_it() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    publish(&mut catalog.publisher(), store.files(), 0);
    let mut publisher = catalog.publisher();
    let served = publisher.catalog();
    // Before its first publication it serves what an earlier process left.
    assert_eq!(loaded(served.load("logs").unwrap()).version, 1);
    store.add_logs("2026-11-20T10:00:00Z", 3).await;
    publish(&mut publisher, store.files(), 1);
    std::fs::remove_dir_all(&catalog.folder).unwrap();
    let logs = loaded(served.load("logs").unwrap());
    assert_eq!((logs.version, logs.summary("total-records")), (2, "5".to_owned()));
    assert_eq!(served.tables().unwrap().len(), 5);
    assert_eq!(served.overview().unwrap().len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_looks_no_more_often_than_it_may() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    publish(&mut catalog.publisher(), store.files(), 0);
    let (lazy, eager) = (IcebergCatalog::with_rest(catalog.objects(), HOUR), catalog.reader());
    let version = |reader: &IcebergCatalog| reader.load("logs").unwrap().map(|table| table.version);
    assert_eq!((version(&lazy), version(&eager)), (Some(1), Some(1)));
    store.add_logs("2026-11-20T10:00:00Z", 3).await;
    publish(&mut catalog.publisher(), store.files(), 1);
    assert_eq!((version(&lazy), version(&eager)), (Some(1), Some(2)));
    assert_eq!(version(&IcebergCatalog::open(catalog.objects())), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_finds_the_newest_version_though_the_hint_stayed_behind_and_its_own_was_collected() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    // The hint names the known version, or a later one that was collected too.
    for hint in ["1", "2"] {
        let catalog = store.catalog_in(&format!("catalogue-{hint}"));
        let mut publisher = catalog.publisher();
        publish(&mut publisher, store.files(), 0);
        let reader = catalog.reader();
        let version = || reader.load("logs").unwrap().map(|table| table.version);
        assert_eq!(version(), Some(1));
        publish(&mut publisher, store.files_without(|_| true), 1);
        publish(&mut publisher, store.files(), 2);
        std::fs::write(catalog.path("logs", "version-hint.text"), hint).unwrap();
        std::fs::remove_file(catalog.path("logs", "v2.metadata.json")).unwrap();
        assert_eq!(version(), Some(1), "{hint}: as long as it is there");
        std::fs::remove_file(catalog.path("logs", "v1.metadata.json")).unwrap();
        assert_eq!(version(), Some(3), "{hint}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_storage_fails_the_known_version_is_served_and_a_failure_is_not_met_again_at_once() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    publish(&mut catalog.publisher(), store.files(), 0);
    let (lazy, eager) = (IcebergCatalog::with_rest(catalog.objects(), HOUR), catalog.reader());
    let version = |reader: &IcebergCatalog| reader.load("logs").map(|table| table.map(|table| table.version));
    assert_eq!(version(&eager).unwrap(), Some(1));
    let (folder, away) = (catalog.folder.join("telemetry"), catalog.folder.join("away"));
    std::fs::rename(&folder, &away).unwrap();
    std::fs::write(&folder, "").unwrap();
    assert_eq!(version(&eager).unwrap(), Some(1));
    let is_away = |reader: &IcebergCatalog| matches!(version(reader), Err(IcebergError::Away(_)));
    assert!(is_away(&lazy) && is_away(&catalog.reader()));
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&away, &folder).unwrap();
    assert!(is_away(&lazy));
    assert_eq!(version(&catalog.reader()).unwrap(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loaded_table_is_what_lies_at_its_location() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    publish(&mut catalog.publisher(), store.files(), 0);
    let logs = catalog.reader().load("logs").unwrap().unwrap();
    let content = std::fs::read_to_string(local(&logs.metadata_location)).unwrap();
    assert_eq!(content, logs.metadata.get());
    assert!(logs.config.is_empty(), "{:?}", logs.config);
    for name in ["log", "Logs", "../logs", "messages_order", "telemetry/logs", ""] {
        assert!(catalog.reader().load(name).unwrap().is_none(), "{name:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overview_says_what_each_table_has() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    assert!(catalog.reader().overview().unwrap().is_empty());
    publish(&mut catalog.publisher(), store.files(), 0);
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    publish(&mut catalog.publisher(), store.files(), 1);
    let overview = catalog.reader().overview().unwrap();
    let logs = overview.iter().find(|table| table.name == "logs").unwrap();
    let wanted = TableOverview {
        name: "logs".to_owned(),
        version: 2,
        snapshot_id: catalog.load("logs").current()["snapshot-id"].as_i64(),
        published: after(1),
        files: 2,
        rows: 5,
        bytes: store.files().files.iter().map(|file| file.size).sum(),
        snapshots: 2,
        newest_row: Some(time("2026-11-21T09:00:02Z")),
        columns_left_out: Vec::new(),
    };
    assert_eq!(*logs, wanted);
    let traces = overview.iter().find(|table| table.name == "traces").unwrap();
    assert_eq!((traces.snapshot_id, traces.files, traces.newest_row), (None, 0, None));
}
