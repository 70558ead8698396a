//! Publications of many files: attempts that fail and go on, footers that are read at once, days of several manifests.

use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use super::expiry::collect;
use super::*;
use crate::day_manifests::MOST_FILES;

/// The files of a store under their links: what becomes of a link becomes of the file.
fn linked(store: &TestStore, catalog: &TestCatalog) -> PublishedFiles {
    store.files().pinned(&catalog.objects()).unwrap().list
}

/// So many files that have the content of `files` by turns and names of their own, in the order of their numbers.
fn many(files: &[PublishedFile], count: usize) -> PublishedFiles {
    let copy = |(at, number): (usize, u64)| {
        let mut file = files[at % files.len()].clone();
        (file.segment, file.uri) = (number, format!("file:///data/{at}.parquet"));
        file
    };
    PublishedFiles {
        number: 7,
        is_ordered: false,
        files: (0..count).zip(1_000..).map(copy).collect(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_goes_on_where_the_last_one_failed() {
    let store = TestStore::new().await;
    for (hour, rows) in [("20T08", 2), ("20T09", 3), ("21T08", 4), ("21T09", 5)] {
        store.add_logs(&format!("2026-11-{hour}:00:00Z"), rows).await;
    }
    let catalog = store.catalog();
    let list = linked(&store, &catalog);
    let link = |rows: u64| local(&list.files.iter().find(|file| file.rows == rows).unwrap().uri);
    let hide = |rows: u64| std::fs::rename(link(rows), link(rows).with_extension("away")).unwrap();
    hide(5);
    let mut publisher = catalog.publisher();
    assert!(publisher.publish(list.clone(), now()).is_err());
    assert!(!catalog.names_of("logs").contains("v1.metadata.json"));
    // No footer of those that could be read is read again, be it of the day that failed.
    std::fs::rename(link(5).with_extension("away"), link(5)).unwrap();
    for rows in [2, 3, 4] {
        hide(rows);
    }
    assert!(
        catalog.publisher().publish(list.clone(), now()).is_err(),
        "another process has to read them"
    );
    publish(&mut publisher, list.clone(), 1);
    let logs = catalog.load("logs");
    assert_eq!((logs.version, logs.summary("added-records").as_str()), (1, "14"));
    assert_eq!(
        (logs.summary("operation"), logs.manifests().len()),
        ("append".to_owned(), 2)
    );
    let id = logs.current()["snapshot-id"].as_i64();
    for entry in logs
        .manifests()
        .iter()
        .flat_map(|manifest| catalog.entries_of(manifest))
    {
        assert_eq!((entry.status, Some(entry.snapshot_id)), (EntryStatus::Added, id));
        assert!(entry.file.lower.len() > 1, "{entry:?}");
    }
    catalog.assert_whole("logs");
}

#[tokio::test(flavor = "multi_thread")]
async fn drafts_of_days_that_do_not_change_are_not_written_again_and_those_of_earlier_lists_are_garbage() {
    let store = TestStore::new().await;
    for (hour, rows) in [("19T08", 2), ("20T08", 3), ("21T07", 6), ("21T08", 4), ("21T09", 5)] {
        store.add_logs(&format!("2026-11-{hour}:00:00Z"), rows).await;
    }
    let catalog = store.catalog();
    let all = linked(&store, &catalog);
    let link = |rows: u64| local(&all.files.iter().find(|file| file.rows == rows).unwrap().uri);
    let hide = |rows: u64| std::fs::rename(link(rows), link(rows).with_extension("away")).unwrap();
    let drafts = || -> BTreeMap<String, u64> {
        let names = catalog.names_of("logs").into_iter();
        let inode = |name: &str| std::fs::metadata(catalog.path("logs", name)).unwrap().ino();
        names.map(|name| (name.clone(), inode(&name))).collect()
    };
    hide(5);
    let mut publisher = catalog.publisher();
    let mut earlier = all.clone();
    earlier.files.retain(|file| file.rows != 6);
    publisher.publish(earlier, now()).unwrap_err();
    let first = drafts();
    publisher.publish(all.clone(), now()).unwrap_err();
    let second = drafts();
    assert_eq!((first.len(), second.len()), (3, 4), "{second:?}");
    for (name, inode) in &first {
        assert_eq!(second.get(name), Some(inode), "{name}");
    }
    // That of the last day, without its new file. The table has no version yet.
    let late = Timestamp::from(SystemTime::now()).plus(HOUR * 3);
    assert_eq!(collect(&mut publisher, late), 1);
    let left = drafts();
    let gone: Vec<_> = first.keys().filter(|name| !left.contains_key(*name)).collect();
    assert!(gone.len() == 1 && gone[0].starts_with("2026-11-21-h-"), "{gone:?}");
    assert!(publisher.is_due());
    // The others serve the attempt that succeeds.
    std::fs::rename(link(5).with_extension("away"), link(5)).unwrap();
    for rows in [2, 3, 4, 6] {
        hide(rows);
    }
    publish(&mut publisher, all.clone(), 1);
    assert_eq!(catalog.load("logs").summary("added-records"), "20");
    catalog.assert_whole("logs");
    // Of a table that has versions, and cannot be published again, too.
    std::fs::write(catalog.path("logs", "snap-9-00000000000000aa.avro"), "left").unwrap();
    for rows in [2, 3, 4, 6] {
        std::fs::rename(link(rows).with_extension("away"), link(rows)).unwrap();
    }
    hide(5);
    let mut publisher = catalog.publisher();
    std::fs::remove_file(local(&catalog.load("logs").manifests()[2].path)).unwrap();
    publisher.publish(all.clone(), after(2)).unwrap_err();
    let deleted = collect(&mut publisher, late);
    assert_eq!(deleted, 2, "that one, and what was left before the first version");
    assert!(publisher.is_due());
}

#[tokio::test(flavor = "multi_thread")]
async fn footers_that_are_read_at_once_are_those_of_their_files() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-21T08:00:00Z", 2).await;
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    let catalog = store.catalog();
    let list = many(&linked(&store, &catalog).files, 50);
    publish(&mut catalog.publisher(), list.clone(), 0);
    let [manifest]: [ManifestFile; 1] = catalog.load("logs").manifests().try_into().unwrap();
    let entries = catalog.entries_of(&manifest);
    assert_eq!(entries.len(), 50);
    for (file, entry) in list.files.iter().zip(entries) {
        let counted = entry.file.value_counts[&1].unsigned_abs();
        assert_eq!((entry.file.path, counted), (file.uri.clone(), file.rows));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_of_very_many_files_has_several_manifests_and_a_new_file_changes_only_the_last() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-21T08:00:00Z", 2).await;
    let catalog = store.catalog();
    let mut files = linked(&store, &catalog).files;
    // Footers of pieces are not read.
    files[0].is_piece = true;
    let mut publisher = catalog.publisher();
    publish(&mut publisher, many(&files, MOST_FILES + 2), 0);
    let sizes = |table: &TestTable| -> Vec<u64> {
        let manifests = table.manifests();
        manifests
            .iter()
            .map(|manifest| manifest.added_files + manifest.existing_files)
            .collect()
    };
    let first = catalog.load("logs");
    assert_eq!(sizes(&first), [MOST_FILES as u64, 2]);
    for publisher in [&mut publisher, &mut catalog.publisher()] {
        assert_eq!(publish(publisher, many(&files, MOST_FILES + 2), 1).published, 0);
    }
    publish(&mut catalog.publisher(), many(&files, MOST_FILES + 3), 2);
    let second = catalog.load("logs");
    assert_eq!(sizes(&second), [MOST_FILES as u64, 3]);
    assert_eq!(second.manifests()[0], first.manifests()[0]);
    assert_eq!(
        (second.summary("operation"), second.summary("added-data-files")),
        ("append".to_owned(), "1".to_owned())
    );
    catalog.assert_whole("logs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_file_with_the_number_and_the_place_of_another_one_is_another_file() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-21T08:00:00Z", 2).await;
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    for is_same_process in [true, false] {
        let catalog = store.catalog_in(&format!("catalogue-{is_same_process}"));
        let files = linked(&store, &catalog).files;
        let (one, other) = match files.as_slice() {
            [a, b] if a.rows == 2 => (a, b),
            [a, b] => (b, a),
            _ => panic!("two files"),
        };
        let list = |file: PublishedFile| PublishedFiles {
            files: vec![file],
            ..PublishedFiles::default()
        };
        let mut publisher = catalog.publisher();
        publish(&mut publisher, list(one.clone()), 0);
        if !is_same_process {
            publisher = catalog.publisher();
        }
        let mut restored = other.clone();
        (restored.segment, restored.version) = (one.segment, one.version);
        restored.uri.clone_from(&one.uri);
        publish(&mut publisher, list(restored), 1);
        let logs = catalog.load("logs");
        let [manifest]: [ManifestFile; 1] = logs.manifests().try_into().unwrap();
        let [entry]: [ManifestEntry; 1] = catalog.entries_of(&manifest).try_into().unwrap();
        assert_eq!(
            (&entry.file.path, entry.file.rows, entry.file.size),
            (&one.uri, 3, other.size)
        );
        assert_eq!(entry.file.lower[&1], other.min_ts.micros().to_le_bytes());
        assert_eq!(logs.summary("operation"), "overwrite");
        assert_eq!(
            (logs.summary("deleted-records"), logs.summary("added-records")),
            ("2".to_owned(), "3".to_owned())
        );
    }
}
