//! Ends of the process between any two writes, and other publishers of the same catalogue.

use super::*;

/// A catalogue with one version of two days' files, and the names that a second publication of `store` adds in their order.
fn published_twice(store: &TestStore, folder: &str) -> (TestCatalog, Vec<String>) {
    let catalog = store.catalog_in(folder);
    publish(&mut catalog.publisher(), store.files_without(|file| file.rows == 4), 0);
    let first = catalog.names_of("logs");
    publish(&mut catalog.publisher(), store.files(), 1);
    let names = catalog.names_of("logs");
    let order = |name: &&String| match name.as_str() {
        name if name.ends_with("-m.avro") => 0,
        name if name.starts_with("snap-") => 1,
        _ => 2,
    };
    let mut added: Vec<_> = names.difference(&first).collect();
    added.sort_by_key(order);
    let added = added.into_iter().cloned().collect();
    (catalog, added)
}

/// Whether an object of this name is lost.
type IsLost = fn(&str) -> bool;

#[tokio::test(flavor = "multi_thread")]
async fn after_an_end_between_any_two_writes_the_next_publication_goes_on() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    store.add_logs("2026-11-21T10:00:00Z", 4).await;
    let (whole, added) = published_twice(&store, "whole");
    assert_eq!(added.len(), 3, "{added:?}");
    assert_eq!(added[2], "v2.metadata.json");
    whole.assert_whole("logs");
    // The hint is the last write, before it those of `added` from the end.
    for lost in 0..=added.len() {
        let (catalog, added) = published_twice(&store, &format!("catalogue-{lost}"));
        std::fs::write(catalog.path("logs", "version-hint.text"), "1").unwrap();
        for name in added.iter().rev().take(lost) {
            std::fs::remove_file(catalog.path("logs", name)).unwrap();
        }
        catalog.assert_whole("logs");
        let before = catalog.load("logs");
        let wanted = if lost == 0 { (2, "9") } else { (1, "5") };
        assert_eq!(
            (before.version, before.summary("total-records").as_str()),
            wanted,
            "{lost}"
        );
        let mut publisher = catalog.publisher();
        let report = publish(&mut publisher, store.files(), 2);
        assert_eq!(report.versions["logs"], 2, "{lost}");
        assert_eq!(report.published, usize::from(lost > 0), "{lost}");
        catalog.assert_whole("logs");
        let after = catalog.load("logs");
        assert_eq!(
            (after.version, after.summary("total-records").as_str()),
            (2, "9"),
            "{lost}"
        );
        assert_eq!(
            std::fs::read(catalog.path("logs", "version-hint.text")).unwrap(),
            b"2",
            "{lost}"
        );
        let entries = catalog.entries_of(&after.manifests()[1]);
        let statuses: Vec<_> = entries.iter().map(|entry| entry.status).collect();
        assert_eq!(statuses, [EntryStatus::Existing, EntryStatus::Added], "{lost}");
        assert_eq!(
            Some(entries[1].snapshot_id),
            after.current()["snapshot-id"].as_i64(),
            "{lost}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_an_ended_publication_left_is_never_another_one_of_the_next() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    store.add_logs("2026-11-21T09:00:00Z", 4).await;
    let catalog = store.catalog();
    publish(&mut catalog.publisher(), store.files_without(|file| file.rows == 4), 0);
    // It ends before its version is created.
    publish(&mut catalog.publisher(), store.files(), 1);
    std::fs::remove_file(catalog.path("logs", "v2.metadata.json")).unwrap();
    let left = catalog.objects_of("logs");
    // The next one has the same files of that day, in another snapshot.
    store.add_logs("2026-11-19T09:00:00Z", 7).await;
    publish(&mut catalog.publisher(), store.files(), 2);
    let now = catalog.objects_of("logs");
    for (name, content) in left.iter().filter(|(name, _)| name.ends_with(".avro")) {
        assert_eq!(now.get(name), Some(content), "{name}");
    }
    catalog.assert_whole("logs");
    let current = catalog.load("logs");
    let (manifests, id) = (current.manifests(), current.current()["snapshot-id"].as_i64());
    let is_new = |manifest: &&ManifestFile| Some(manifest.added_snapshot_id) == id;
    assert_eq!(
        manifests.iter().filter(is_new).count(),
        2,
        "of the day that was left and of the new one"
    );
    for manifest in manifests.iter().filter(is_new) {
        for entry in catalog.entries_of(manifest) {
            assert_eq!((entry.status, Some(entry.snapshot_id)), (EntryStatus::Added, id));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_goes_on_from_what_another_one_published_meanwhile() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    let (mut ours, mut other) = (catalog.publisher(), catalog.publisher());
    publish(&mut ours, store.files(), 0);
    publish(&mut other, store.files(), 1);
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    publish(&mut other, store.files(), 2);
    assert_eq!(catalog.load("logs").version, 2);
    store.add_logs("2026-11-21T10:00:00Z", 4).await;
    let report = publish(&mut ours, store.files(), 3);
    assert_eq!((report.published, report.versions["logs"]), (1, 3));
    let third = catalog.load("logs");
    assert_eq!(third.summary("added-records"), "4");
    assert_eq!(third.summary("total-records"), "9");
    let ids: Vec<_> = third
        .snapshots()
        .iter()
        .map(|snapshot| snapshot["snapshot-id"].clone())
        .collect();
    assert_eq!(ids.len(), 3);
    assert_eq!(third.current()["parent-snapshot-id"], ids[1]);
    // The other has the same list: what it finds is what it wants.
    let report = publish(&mut other, store.files(), 4);
    assert_eq!((report.published, report.versions["logs"]), (0, 3));
    assert_eq!(catalog.load("logs").version, 3);
    catalog.assert_whole("logs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_was_pushed_out_publishes_no_older_list_over_a_newer_one() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    let (mut ours, mut other) = (catalog.publisher(), catalog.publisher());
    let numbered = |mut list: PublishedFiles, number| {
        (list.number, list.is_ordered) = (number, true);
        list
    };
    publish(&mut ours, numbered(store.files(), 7), 0);
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    publish(&mut other, numbered(store.files(), 9), 1);
    let older = || store.files_without(|_| true);
    for number in [8, 7] {
        let error = ours.publish(numbered(older(), number), after(2)).unwrap_err();
        assert!(error.to_string().contains("list 9 is published"), "{error}");
        assert!(ours.is_due());
        assert_eq!(catalog.load("logs").summary("total-records"), "5");
    }
    assert_eq!(catalog.load("logs").version, 2);
    // A later list is published, and so is one whose number says nothing.
    publish(&mut ours, numbered(older(), 10), 3);
    assert_eq!(catalog.load("logs").summary("total-records"), "0");
    let unordered = PublishedFiles {
        number: 1,
        ..store.files()
    };
    publish(&mut ours, unordered, 4);
    assert_eq!(catalog.load("logs").summary("total-records"), "5");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_is_not_given_again_though_the_version_that_had_it_was_collected() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    let (mut ours, mut other) = (catalog.publisher(), catalog.publisher());
    publish(&mut ours, store.files(), 0);
    publish(&mut other, store.files_without(|_| true), 1);
    publish(&mut other, store.files(), 2);
    std::fs::remove_file(catalog.path("logs", "v2.metadata.json")).unwrap();
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    assert_eq!(publish(&mut ours, store.files(), 3).versions["logs"], 4);
    assert!(!catalog.names_of("logs").contains("v2.metadata.json"));
    let logs = catalog.load("logs");
    assert_eq!((logs.version, logs.snapshots().len()), (4, 4));
    catalog.assert_whole("logs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_notices_what_another_one_published_though_its_own_list_is_the_same() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    let (mut ours, mut other) = (catalog.publisher(), catalog.publisher());
    publish(&mut ours, store.files(), 0);
    ours.notice_others().unwrap();
    assert!(!ours.is_due());
    publish(&mut other, store.files_without(|_| true), 1);
    ours.notice_others().unwrap();
    assert!(ours.is_due());
    publish(&mut ours, store.files(), 2);
    assert!(!ours.is_due());
    let logs = catalog.load("logs");
    assert_eq!((logs.version, logs.summary("total-records").as_str()), (3, "2"));
    assert_eq!(loaded(ours.catalog().load("logs").unwrap()).version, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_that_was_deleted_is_made_anew() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    let reader = catalog.reader();
    publish(&mut catalog.publisher(), store.files(), 0);
    store.add_logs("2026-11-20T10:00:00Z", 3).await;
    publish(&mut catalog.publisher(), store.files(), 1);
    assert_eq!(loaded(reader.load("logs").unwrap()).version, 2);
    std::fs::remove_dir_all(&catalog.folder).unwrap();
    publish(&mut catalog.publisher(), store.files(), 2);
    let again = loaded(reader.load("logs").unwrap());
    assert_eq!((again.version, again.summary("total-records")), (1, "5".to_owned()));
    catalog.assert_whole("logs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_whose_objects_are_lost_is_whole_after_the_next_publication() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    let losses: [(&str, IsLost); 3] = [
        ("manifest", |name| name.starts_with("2026-11-20-h-")),
        ("list", |name| name.starts_with("snap-")),
        ("all", |name| name.ends_with(".avro")),
    ];
    for (folder, is_lost) in losses {
        let catalog = store.catalog_in(folder);
        publish(&mut catalog.publisher(), store.files(), 0);
        let lost: Vec<_> = catalog
            .names_of("logs")
            .into_iter()
            .filter(|name| is_lost(name))
            .collect();
        assert!(!lost.is_empty(), "{folder}");
        for name in &lost {
            std::fs::remove_file(catalog.path("logs", name)).unwrap();
        }
        assert_eq!(
            publish(&mut catalog.publisher(), store.files(), 1).published,
            1,
            "{folder}"
        );
        let second = catalog.load("logs");
        assert_eq!((second.version, second.snapshots().len()), (2, 1), "{folder}");
        let manifests = second.manifests();
        let rows = manifests.iter().flat_map(|manifest| catalog.entries_of(manifest));
        assert_eq!(rows.map(|entry| entry.file.rows).sum::<u64>(), 5, "{folder}");
    }
}
