//! What readers are served, in the publisher's process and in others.

use std::fs::File;
use std::process::Command;

use super::*;
use crate::catalog::TableOverview;
use crate::catalog_table::CatalogTable;
use crate::metadata_folder::MetadataFolder;
use crate::{IcebergError, table_index};

const LOGS: CatalogTable = CatalogTable::base(Table::Logs);

/// The version of the logs that a reader serves.
fn version(reader: &IcebergCatalog) -> Result<Option<u64>, IcebergError> {
    Ok(reader.load("logs")?.map(|table| table.version))
}

/// Puts a pipe in the place of the hint of a table: who looks for a newer version waits until somebody has opened it for writing and
/// closed it again.
fn hold_looks(catalog: &TestCatalog, table: &str) -> PathBuf {
    let hint = catalog.path(table, "version-hint.text");
    std::fs::remove_file(&hint).unwrap();
    assert!(Command::new("mkfifo").arg(&hint).status().unwrap().success());
    hint
}

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
    assert_eq!(served.overview().unwrap().0.len(), 5);
    assert_eq!(loaded(served.at_once().load("logs").unwrap()).version, 2);
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
async fn a_look_that_takes_long_holds_up_neither_others_nor_the_publisher() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    publish(&mut catalog.publisher(), store.files(), 0);
    let reader = catalog.reader();
    let version = |reader: &IcebergCatalog| reader.load("logs").unwrap().map(|table| table.version);
    assert_eq!(version(&reader), Some(1));
    // It is always time for a look, and nobody makes one.
    assert!(matches!(reader.at_once().load("logs"), Err(IcebergError::Away(_))));
    assert_eq!(version(&reader.as_known()), Some(1));
    let folder = MetadataFolder::new(&catalog.objects(), LOGS);
    let content = folder.get_version(1).unwrap().unwrap();
    let shared = folder.parse(7, &content).unwrap();
    let hint = hold_looks(&catalog, "logs");
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| version(&reader));
        // It is opened once somebody reads there.
        let held = File::options().write(true).open(&hint).unwrap();
        assert_eq!(version(&reader), Some(1));
        assert_eq!(reader.overview().unwrap().0.len(), 5);
        reader.share(LOGS, shared);
        reader.share_names(table_index::read(&catalog.objects()).unwrap());
        assert_eq!(version(&reader.at_once()), Some(7));
        std::fs::write(catalog.path("logs", "v2.metadata.json"), &content).unwrap();
        drop(held);
        assert_eq!(looking.join().unwrap(), Some(7), "the look found 2");
    });
    assert_eq!(version(&reader), Some(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_version_leaves_the_known_one_and_is_not_read_again_at_once() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    publish(&mut catalog.publisher(), store.files(), 0);
    let (lazy, eager) = (IcebergCatalog::with_rest(catalog.objects(), HOUR), catalog.reader());
    assert_eq!(version(&eager).unwrap(), Some(1));
    let second = catalog.path("logs", "v2.metadata.json");
    std::fs::write(&second, "{}").unwrap();
    assert_eq!(version(&eager).unwrap(), Some(1));
    let is_damaged = |reader: &IcebergCatalog| matches!(version(reader), Err(IcebergError::Damaged { .. }));
    assert!(is_damaged(&lazy) && is_damaged(&catalog.reader()));
    let (tables, failure) = catalog.reader().overview().unwrap();
    assert_eq!(tables.len(), 4);
    assert!(matches!(failure, Some(IcebergError::Damaged { .. })), "{failure:?}");
    std::fs::remove_file(&second).unwrap();
    assert!(is_damaged(&lazy));
    assert_eq!(version(&catalog.reader()).unwrap(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overview_asks_a_storage_that_is_away_once() {
    let store = TestStore::new().await;
    let catalog = store.catalog();
    publish(&mut catalog.publisher(), store.files(), 0);
    let reader = catalog.reader();
    assert!(reader.load("logs").unwrap().is_some());
    // The first table cannot be read, the third has not been looked for yet.
    let first = catalog.folder.join("telemetry").join("logs");
    std::fs::rename(&first, catalog.folder.join("away")).unwrap();
    std::fs::write(&first, "").unwrap();
    let (tables, failure) = reader.overview().unwrap();
    let names: Vec<_> = tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, ["logs"]);
    assert!(matches!(failure, Some(IcebergError::Away(_))), "{failure:?}");
    std::fs::remove_file(&first).unwrap();
    std::fs::rename(catalog.folder.join("away"), &first).unwrap();
    let (tables, failure) = reader.overview().unwrap();
    assert_eq!((tables.len(), failure.is_some()), (5, false));
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
    assert!(catalog.reader().overview().unwrap().0.is_empty());
    publish(&mut catalog.publisher(), store.files(), 0);
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    publish(&mut catalog.publisher(), store.files(), 1);
    let (overview, _) = catalog.reader().overview().unwrap();
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
