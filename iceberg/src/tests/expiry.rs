//! Expiry of snapshots, links of files that left the store, and garbage collection.

use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use super::*;

/// A store with two rows of one day and three of the next one, a folder for its catalogue, and the time now: the disk says when an
/// object was written and when a name went.
async fn two_days() -> (TestStore, TestCatalog, Timestamp) {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    let catalog = store.catalog();
    (store, catalog, Timestamp::from(SystemTime::now()))
}

fn snapshots_of(catalog: &TestCatalog) -> usize {
    catalog.load("logs").snapshots().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_expires_its_age_after_the_next_one_took_its_place() {
    let (store, catalog, _) = two_days().await;
    let mut publisher = catalog.publisher();
    publish(&mut publisher, store.files(), 0);
    let left = || store.files_without(|file| file.rows == 2);
    publish(&mut publisher, left(), 500);
    assert_eq!(snapshots_of(&catalog), 2);
    assert_eq!(publish(&mut publisher, left(), 559).published, 0);
    assert_eq!(snapshots_of(&catalog), 2);
    assert_eq!(publish(&mut publisher, left(), 560).published, 1);
    assert_eq!(snapshots_of(&catalog), 1);
    let third = catalog.load("logs");
    assert_eq!(
        (third.version, &third.metadata["last-sequence-number"]),
        (3, &Value::from(2))
    );
    assert_eq!(third.summary("total-records"), "3");
    assert_eq!(third.metadata["snapshot-log"].as_array().unwrap().len(), 1);
    catalog.assert_whole("logs");
}

/// Collects the garbage of all tables; how many objects were deleted.
pub(super) fn collect(publisher: &mut CatalogPublisher, at: Timestamp) -> u64 {
    publisher.begin_collection();
    let mut deleted = 0;
    while let Some(some) = publisher.collect_garbage(at).unwrap() {
        deleted += some;
    }
    deleted
}

/// How many links the catalogue has.
fn links(catalog: &TestCatalog) -> usize {
    std::fs::read_dir(catalog.folder.join(engine::PINNED)).unwrap().count()
}

/// Takes the file with so many rows out of the tree, as retention does.
fn remove_from_tree(store: &TestStore, rows: u64) {
    let files = store.files().files;
    let file = files.iter().find(|file| file.rows == rows).unwrap();
    std::fs::remove_file(local(&file.uri)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_goes_after_the_age_of_snapshots_since_it_is_the_only_name_whoever_published_it() {
    let (store, catalog, start) = two_days().await;
    let left = || store.files_without(|file| file.rows == 2);
    let at = |minutes: u64| start.plus(Duration::from_secs(60 * minutes));
    catalog.publisher().publish(store.files(), at(0)).unwrap();
    assert_eq!(links(&catalog), 2);
    // While the tree has the file, its link costs nothing.
    catalog.publisher().publish(left(), at(6_000)).unwrap();
    assert_eq!(links(&catalog), 2);
    // Those that somebody took away are there again with the next publication.
    std::fs::remove_dir_all(catalog.folder.join(engine::PINNED)).unwrap();
    catalog.publisher().publish(store.files(), at(6_001)).unwrap();
    assert_eq!(links(&catalog), 2);
    remove_from_tree(&store, 2);
    catalog.publisher().publish(left(), at(69)).unwrap();
    assert_eq!(links(&catalog), 2, "younger than the age of snapshots and ten minutes");
    // A process that never knew of it removes it, and goes on to where nothing can be published.
    let in_the_way = catalog.folder.join("telemetry/messages_a");
    std::fs::write(catalog.folder.join("telemetry/tables.json"), r#"["messages_a"]"#).unwrap();
    std::fs::write(&in_the_way, "").unwrap();
    assert!(catalog.publisher().publish(left(), at(6_100)).is_err());
    assert_eq!(links(&catalog), 1, "although a table failed");
    std::fs::remove_file(&in_the_way).unwrap();
    // One that the list names stays, whatever the tree has.
    remove_from_tree(&store, 3);
    catalog.publisher().publish(left(), at(9_000)).unwrap();
    assert_eq!(links(&catalog), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_cannot_be_published_keeps_the_links_of_its_newest_version_for_a_day() {
    let (store, catalog, start) = two_days().await;
    let mut publisher = catalog.publisher();
    publisher.publish(store.files(), start).unwrap();
    remove_from_tree(&store, 2);
    let (folder, away) = (catalog.path("logs", ""), catalog.folder.join("away"));
    std::fs::rename(&folder, &away).unwrap();
    std::fs::write(folder.parent().unwrap().join("metadata"), "").unwrap();
    let left = || store.files_without(|file| file.rows == 2);
    assert!(publisher.publish(left(), start.plus(HOUR * 20)).is_err());
    assert_eq!(links(&catalog), 2);
    // A process that did not publish it yet does not know what it names; the last one does not even know the tables.
    assert!(catalog.publisher().publish(left(), start.plus(HOUR * 20)).is_err());
    assert_eq!(links(&catalog), 2);
    let list = catalog.folder.join("telemetry/tables.json");
    std::fs::remove_file(&list).unwrap();
    std::fs::create_dir(&list).unwrap();
    assert!(catalog.publisher().publish(left(), start.plus(HOUR * 20)).is_err());
    assert_eq!(links(&catalog), 2);
    // It fails for longer than a day, and the file that it names has no other name.
    assert!(catalog.publisher().publish(left(), start.plus(HOUR * 30)).is_err());
    assert_eq!(links(&catalog), 1);
}

/// The link of the sealed file with so many rows.
fn link_of(catalog: &TestCatalog, store: &TestStore, rows: u64) -> PathBuf {
    let files = store.files().files;
    let file = files.iter().find(|file| file.rows == rows).unwrap();
    let links = std::fs::read_dir(catalog.folder.join(engine::PINNED)).unwrap();
    let mut links = links.map(|entry| entry.unwrap().path());
    let start = format!("{:016}_", file.segment);
    let is_its = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&start);
    links.find(is_its).unwrap()
}

/// When the disk says that the inode of a file changed.
fn changed(path: &Path) -> Timestamp {
    let about = std::fs::metadata(path).unwrap();
    Timestamp::from_micros(about.ctime() * 1_000_000 + about.ctime_nsec() / 1_000)
}

/// Waits until the disk's time is later than that of the last change of a file, and says it.
fn wait_for_later_than(path: &Path) -> Timestamp {
    let (deadline, probe) = (Instant::now() + Duration::from_secs(30), path.with_extension("probe"));
    loop {
        std::fs::write(&probe, "").unwrap();
        let now = changed(&probe);
        std::fs::remove_file(&probe).unwrap();
        if now > changed(path) {
            return now;
        }
        assert!(Instant::now() < deadline, "the time of the disk stands still");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_leaves_the_newest_version_is_kept_from_then_on_however_long_nobody_published() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    let catalog = store.catalog();
    let start = Timestamp::from(SystemTime::now());
    catalog.publisher().publish(store.files(), start).unwrap();
    let link = link_of(&catalog, &store, 2);
    // The file leaves the tree behind the last look of a process that ends then.
    remove_from_tree(&store, 2);
    let kept = HOUR + Duration::from_secs(600);
    let left = || store.files_without(|file| file.rows == 2);
    let lost = changed(&link);
    let later = wait_for_later_than(&link);
    let mut publisher = catalog.publisher();
    publisher.publish(left(), later.plus(kept)).unwrap();
    assert_eq!(snapshots_of(&catalog), 2, "the one that names it can be read");
    assert_eq!(links(&catalog), 2);
    assert!(changed(&link) > lost);
    // Nothing renews it again: its time is over.
    let later = wait_for_later_than(&link);
    let renewed = changed(&link);
    publisher.publish(left(), later.plus(kept / 2)).unwrap();
    assert_eq!(changed(&link), renewed);
    publisher.publish(left(), later.plus(kept * 2)).unwrap();
    assert_eq!(links(&catalog), 1);
    assert!(!link.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_a_link_that_left_begins_once_though_it_fails_at_first_and_over_restarts() {
    let (store, catalog, start) = two_days().await;
    let mut publisher = catalog.publisher();
    publisher.publish(store.files(), start).unwrap();
    let link = link_of(&catalog, &store, 2);
    remove_from_tree(&store, 2);
    let left = || store.files_without(|file| file.rows == 2);
    let lost = changed(&link);
    let later = lost.max(start).plus(Duration::from_millis(1));
    while wait_for_later_than(&link) < later {}
    // What the snapshot before names cannot be read.
    let first = catalog.load("logs").current();
    let list = local(first["manifest-list"].as_str().unwrap());
    let content = std::fs::read(list).unwrap();
    std::fs::remove_file(list).unwrap();
    std::fs::create_dir(list).unwrap();
    assert!(publisher.publish(left(), later).is_err());
    assert_eq!((catalog.load("logs").version, changed(&link)), (2, lost));
    std::fs::remove_dir(list).unwrap();
    std::fs::write(list, content).unwrap();
    publisher.publish(left(), later).unwrap();
    let renewed = changed(&link);
    assert!(renewed > lost);
    wait_for_later_than(&link);
    catalog.publisher().publish(left(), later).unwrap();
    assert_eq!(changed(&link), renewed);
    assert_eq!(catalog.load("logs").version, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_a_copy_of_its_file_is_made_anew_once_and_costs_nothing_then() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    let catalog = store.catalog();
    catalog.publisher().publish(store.files(), now()).unwrap();
    // As a copy of the store has them that was made without its hard links.
    let (known, lost) = (link_of(&catalog, &store, 3), link_of(&catalog, &store, 2));
    for link in [&known, &lost] {
        let copy = link.with_extension("copy");
        std::fs::copy(link, &copy).unwrap();
        std::fs::rename(&copy, link).unwrap();
    }
    let names_of = |path: &Path| std::fs::metadata(path).unwrap().nlink();
    assert_eq!((names_of(&known), names_of(&lost)), (1, 1));
    remove_from_tree(&store, 2);
    catalog.publisher().publish(store.files(), after(1)).unwrap();
    // The one whose file is nowhere else is all that there is of it.
    assert_eq!((names_of(&known), names_of(&lost)), (2, 1));
    assert_eq!(links(&catalog), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_snapshots_are_kept_and_garbage_is_what_nobody_names() {
    let (store, catalog, start) = two_days().await;
    let mut publisher = catalog.publisher();
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
    assert_eq!(last.metadata["metadata-log"].as_array().unwrap().len(), 10);
    catalog.assert_whole("logs");

    std::fs::write(catalog.path("logs", "notes.txt"), "of somebody else").unwrap();
    let before = catalog.names_of("logs");
    // All of it is young.
    assert_eq!(collect(&mut publisher, start.plus(HOUR / 2)), 0);
    assert_eq!(catalog.names_of("logs"), before);
    // By then all but the current snapshot have expired, which makes a version.
    let files = store.files_without(|file| version % 2 == 1 && file.rows == 3);
    publisher.publish(files, start.plus(HOUR * 3)).unwrap();
    let deleted = collect(&mut publisher, start.plus(HOUR * 3));
    let left = catalog.names_of("logs");
    assert_eq!(usize::try_from(deleted).unwrap(), before.len() + 1 - left.len());
    assert_eq!(snapshots_of(&catalog), 1);
    let expected = (201..=211).map(|version| format!("v{version}.metadata.json"));
    let versions = left.iter().filter(|name| name.ends_with(".metadata.json")).cloned();
    assert_eq!(versions.collect::<BTreeSet<_>>(), expected.collect::<BTreeSet<_>>());
    for name in ["notes.txt", "version-hint.text"] {
        assert!(left.contains(name), "{name}");
    }
    // What the newest version names is there, what only earlier ones named is not.
    let lists: Vec<_> = left.iter().filter(|name| name.starts_with("snap-")).collect();
    assert!(lists.len() == 1 && lists[0].starts_with("snap-210-"), "{lists:?}");
    let manifests = catalog.load("logs").manifests();
    assert_eq!(
        manifests
            .iter()
            .map(|manifest| catalog.entries_of(manifest).len())
            .sum::<usize>(),
        2
    );
    assert_eq!(
        left.iter().filter(|name| name.ends_with("-m.avro")).count(),
        manifests.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_collected_of_a_few_tables_at_a_time_and_not_again_while_nothing_changed() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    let mut publisher = catalog.publisher();
    let start = Timestamp::from(SystemTime::now());
    publisher.publish(store.files(), start).unwrap();
    let late = start.plus(HOUR * 3);
    assert_eq!(publisher.collect_garbage(late).unwrap(), None);
    publisher.begin_collection();
    let of_five = [(); 3].map(|()| publisher.collect_garbage(late).unwrap());
    assert_eq!(of_five, [Some(0), Some(0), None]);
    // Those that still wait when the next collection begins are not put off.
    publisher
        .publish(store.files_without(|_| true), start.plus(HOUR))
        .unwrap();
    std::fs::write(catalog.path("logs", "snap-8-00000000000000aa.avro"), "left").unwrap();
    publisher.begin_collection();
    let of_five = [(); 3].map(|()| {
        let deleted = publisher.collect_garbage(late).unwrap();
        if deleted == Some(0) {
            publisher.begin_collection();
        }
        deleted
    });
    assert_eq!(of_five, [Some(0), Some(1), None]);
    // Nothing is looked for until there is another version.
    std::fs::write(catalog.path("logs", "snap-9-00000000000000aa.avro"), "left").unwrap();
    assert_eq!(collect(&mut publisher, late), 0);
    publisher.publish(store.files(), start.plus(HOUR)).unwrap();
    assert_eq!(collect(&mut publisher, start), 0, "it is young");
    assert_eq!(collect(&mut publisher, late), 1);
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
    assert_eq!(collect(&mut publisher, start.plus(HOUR)), 0);
    assert_eq!(catalog.names_of("logs"), before);
    // Who does not know the last version does not know what it names.
    assert_eq!(collect(&mut publisher, start.plus(HOUR * 3)), 0);
    assert_eq!(catalog.names_of("logs"), before);
    assert!(publisher.is_due());
    std::fs::remove_file(catalog.path("logs", "v9.metadata.json")).unwrap();
    publisher.publish(store.files(), start).unwrap();
    assert_eq!(collect(&mut publisher, start.plus(HOUR * 3)), 3);
    assert_eq!(catalog.load("logs").summary("total-records"), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_fell_behind_deletes_nothing_of_what_later_versions_name() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    let mut publisher = catalog.publisher();
    let start = Timestamp::from(SystemTime::now());
    publisher.publish(store.files(), start).unwrap();
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    catalog.publisher().publish(store.files(), start).unwrap();
    let late = start.plus(HOUR * 3);
    let before = catalog.names_of("logs");
    assert_eq!(collect(&mut publisher, late), 0);
    assert_eq!(catalog.names_of("logs"), before);
    assert!(publisher.is_due());
    catalog.assert_whole("logs");
    // It goes on from what the other one published: the first snapshot has expired by then.
    publisher.publish(store.files(), late).unwrap();
    let logs = catalog.load("logs");
    assert_eq!((logs.version, logs.snapshots().len()), (3, 1));
    assert_eq!(
        collect(&mut publisher, late),
        1,
        "the manifest list of the first snapshot"
    );
    assert_eq!(
        logs.manifests()
            .iter()
            .map(|manifest| catalog.entries_of(manifest).len())
            .sum::<usize>(),
        2
    );
}
