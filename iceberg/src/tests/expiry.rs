//! Expiry of snapshots, what is held for them, and garbage collection.

use std::time::SystemTime;

use super::*;

fn snapshots_of(catalog: &TestCatalog) -> usize {
    catalog.load("logs").snapshots().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_snapshot_are_held_until_it_expires() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    let catalog = store.catalog();
    let mut publisher = catalog.publisher();
    publish(&mut publisher, store.files(), 0);
    assert_eq!(publisher.waiting(), 0);
    let left = || store.files_without(|file| file.rows == 2);
    publish(&mut publisher, left(), 500);
    assert_eq!((snapshots_of(&catalog), publisher.waiting()), (2, 1));
    // Its hour began when the second snapshot took its place.
    assert_eq!(publish(&mut publisher, left(), 559).published, 0);
    assert_eq!((snapshots_of(&catalog), publisher.waiting()), (2, 1));
    assert_eq!(publish(&mut publisher, left(), 560).published, 1);
    assert_eq!((snapshots_of(&catalog), publisher.waiting()), (1, 0));
    let third = catalog.load("logs");
    assert_eq!(
        (third.version, &third.metadata["last-sequence-number"]),
        (3, &Value::from(2))
    );
    assert_eq!(third.summary("total-records"), "3");
    assert_eq!(third.metadata["snapshot-log"].as_array().unwrap().len(), 1);
    catalog.assert_whole("logs");
    // The same by the hourly collection, of a store whose files do not change any more.
    publish(&mut publisher, store.files_without(|_| true), 600);
    assert_eq!((snapshots_of(&catalog), publisher.waiting()), (2, 1));
    publisher.collect_garbage(after(659)).unwrap();
    assert_eq!((snapshots_of(&catalog), publisher.waiting()), (2, 1));
    publisher.collect_garbage(after(660)).unwrap();
    assert_eq!((snapshots_of(&catalog), publisher.waiting()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_of_a_file_is_there_until_no_kept_snapshot_names_it_also_after_a_restart() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    let catalog = store.catalog();
    let links = || std::fs::read_dir(catalog.folder.join(engine::PINNED)).unwrap().count();
    let left = || store.files_without(|file| file.rows == 2);
    publish(&mut catalog.publisher(), store.files(), 0);
    assert_eq!(links(), 2);
    // Another process goes on; it never held what the first snapshot names.
    let mut publisher = catalog.publisher();
    publish(&mut publisher, left(), 10);
    assert_eq!((snapshots_of(&catalog), links()), (2, 2));
    publisher.collect_garbage(after(69)).unwrap();
    assert_eq!((snapshots_of(&catalog), links()), (2, 2));
    publisher.collect_garbage(after(70)).unwrap();
    assert_eq!(
        (snapshots_of(&catalog), links()),
        (1, 2),
        "an earlier run may have published more"
    );
    publisher.collect_garbage(after(80)).unwrap();
    assert_eq!((snapshots_of(&catalog), links()), (1, 1));
    catalog.assert_whole("logs");
    // One that somebody took away is there again with the next publication.
    std::fs::remove_dir_all(catalog.folder.join(engine::PINNED)).unwrap();
    publish(&mut publisher, left(), 90);
    assert_eq!(links(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_snapshots_and_versions_are_kept_and_garbage_is_what_nobody_names() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    let catalog = store.catalog();
    let mut publisher = catalog.publisher();
    let start = Timestamp::from(SystemTime::now());
    let mut version = 0;
    let mut churn = |publisher: &mut CatalogPublisher, times: u64| {
        for _ in 0..times {
            version += 1;
            let files = store.files_without(|file| version % 2 == 1 && file.rows == 3);
            // All within an hour.
            publisher
                .publish(files, start.plus(Duration::from_secs(version)))
                .unwrap();
        }
    };
    churn(&mut publisher, 99);
    assert_eq!(snapshots_of(&catalog), 99);
    churn(&mut publisher, 111);
    let last = catalog.load("logs");
    assert_eq!((last.version, last.snapshots().len()), (210, 100));
    assert_eq!(last.snapshots()[0]["sequence-number"], 111);
    assert_eq!(last.metadata["metadata-log"].as_array().unwrap().len(), 100);
    catalog.assert_whole("logs");

    std::fs::write(catalog.path("logs", "notes.txt"), "of somebody else").unwrap();
    let before = catalog.names_of("logs");
    // All of it is young.
    assert_eq!(publisher.collect_garbage(start.plus(HOUR / 2)).unwrap(), 0);
    assert_eq!(catalog.names_of("logs"), before);
    // By then all but the current snapshot have expired, which makes a version.
    let deleted = publisher.collect_garbage(start.plus(HOUR * 3)).unwrap();
    let left = catalog.names_of("logs");
    assert_eq!(usize::try_from(deleted).unwrap(), before.len() + 1 - left.len());
    assert_eq!(snapshots_of(&catalog), 1);
    let versions = left.iter().filter(|name| name.ends_with(".metadata.json"));
    assert_eq!(versions.count(), 101);
    for name in [
        "v211.metadata.json",
        "v111.metadata.json",
        "notes.txt",
        "version-hint.text",
    ] {
        assert!(left.contains(name), "{name}");
    }
    assert!(before.contains("v110.metadata.json") && !left.contains("v110.metadata.json"));
    // What the oldest version names is there, what only earlier ones named is not: version 111 has the hundred before it.
    catalog.assert_whole("logs");
    let has_list = |names: &BTreeSet<String>, version: u64| {
        let prefix = format!("snap-{version}-");
        names.iter().any(|name| name.starts_with(&prefix))
    };
    assert!(has_list(&left, 12));
    assert!(has_list(&before, 11) && !has_list(&left, 11));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_publisher_is_about_to_name_is_no_garbage() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    let mut publisher = catalog.publisher();
    let start = Timestamp::from(SystemTime::now());
    publisher.publish(store.files(), start).unwrap();
    for name in [
        "2026-11-20-h-0-aa-bb-m.avro",
        "snap-9-00000000000000aa.avro",
        ".snap-9-00000000000000aa.avro.7.1.tmp",
        "v9.metadata.json",
    ] {
        std::fs::write(catalog.path("logs", name), "not whole yet").unwrap();
    }
    let before = catalog.names_of("logs");
    assert_eq!(publisher.collect_garbage(start.plus(HOUR)).unwrap(), 0);
    assert_eq!(catalog.names_of("logs"), before);
    // A later version is never garbage here, whatever it is; what it does not name is.
    assert_eq!(publisher.collect_garbage(start.plus(HOUR * 3)).unwrap(), 3);
    assert!(catalog.names_of("logs").contains("v9.metadata.json"));
    assert_eq!(catalog.load("logs").summary("total-records"), "2");
}
