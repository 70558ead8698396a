//! The list of tables, and passes over them that end early.

use super::*;
use crate::IcebergError;

const BASE: [&str; 5] = ["dead_letters", "logs", "messages", "metrics", "traces"];

fn list_of(catalog: &TestCatalog) -> PathBuf {
    catalog.folder.join("telemetry").join("tables.json")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_tables_that_was_deleted_or_written_over_is_whole_again_after_the_next_collection() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    let mut publisher = catalog.publisher();
    publish(&mut publisher, store.files(), 0);
    let path = list_of(&catalog);
    for written_over in [None, Some(r#"["logs"]"#)] {
        match written_over {
            Some(list) => std::fs::write(&path, list).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        let before = catalog.reader().tables().unwrap();
        publish(&mut publisher, store.files(), 1);
        assert_eq!(catalog.reader().tables().unwrap(), before, "it is not read each time");
        publisher.begin_collection();
        publish(&mut publisher, store.files(), 2);
        assert_eq!(catalog.reader().tables().unwrap(), BASE);
    }
    // What another publisher listed stays.
    std::fs::write(&path, r#"["messages_a"]"#).unwrap();
    publisher.begin_collection();
    publish(&mut publisher, store.files(), 3);
    let tables = catalog.reader().tables().unwrap();
    assert_eq!(tables.len(), 6);
    assert!(tables.contains(&"messages_a".to_owned()), "{tables:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_that_is_withdrawn_has_no_tables_until_somebody_publishes_again() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    CatalogPublisher::withdraw(&catalog.objects()).unwrap();
    assert!(!catalog.folder.exists(), "there was none");
    publish(&mut catalog.publisher(), store.files(), 0);
    let (reader, whole) = (catalog.reader(), std::fs::read(list_of(&catalog)).unwrap());
    assert!(reader.load("logs").unwrap().is_some());
    for list in [whole.as_slice(), b"["] {
        std::fs::write(list_of(&catalog), list).unwrap();
        CatalogPublisher::withdraw(&catalog.objects()).unwrap();
        assert_eq!(reader.tables().unwrap(), Vec::<String>::new());
        assert!(reader.load("logs").unwrap().is_none());
    }
    publish(&mut catalog.publisher(), store.files(), 1);
    assert_eq!(reader.tables().unwrap(), BASE);
    assert_eq!(catalog.load("logs").version, 1, "nothing else is new");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_ends_when_its_list_is_too_old_and_the_next_one_goes_on_with_another() {
    let store = TestStore::new().await;
    store.add_logs("2026-11-20T09:00:00Z", 2).await;
    let catalog = store.catalog();
    let mut publisher = catalog.publisher();
    publisher.list_age = Some(Duration::ZERO);
    for pass in 1..=5 {
        assert_eq!(publish(&mut publisher, store.files(), pass).published, 1);
        let tables = catalog.reader().tables().unwrap();
        assert_eq!(tables.len() as u64, pass, "{tables:?}");
        assert!(publisher.is_due());
    }
    assert_eq!(publish(&mut publisher, store.files(), 5).published, 0);
    assert!(!publisher.is_due(), "tables with nothing new end no pass");
    store.add_logs("2026-11-21T09:00:00Z", 3).await;
    let mut passes = 0;
    loop {
        publish(&mut publisher, store.files(), 6);
        passes += 1;
        if !publisher.is_due() {
            break;
        }
    }
    assert_eq!(
        (passes, catalog.load("logs").summary("total-records").as_str()),
        (2, "5")
    );
}

/// Sealed files, of `logs` and of `messages`, in a bucket that answers no more.
async fn files_out_of_reach() -> [PublishedFile; 2] {
    let store = TestStore::in_bucket().await;
    store.add_logs("2026-11-20T08:00:00Z", 7).await;
    store.add_message("2026-11-20T08:00:00Z", None, Attributes::new()).await;
    let mut files = store.files().files;
    store.engine.close().await.unwrap();
    files.sort_unstable_by_key(|file| file.table);
    let files: [PublishedFile; 2] = files.try_into().unwrap();
    assert_eq!([files[0].table, files[1].table], [Table::Logs, Table::Messages]);
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_their_object_store_never_gives_leave_the_others_listed_and_published_in_turn() {
    let away = files_out_of_reach().await;
    let store = TestStore::new().await;
    let orders: Option<SpecName> = Some("orders".parse().unwrap());
    store
        .add_message("2026-11-20T09:00:00Z", orders, Attributes::new())
        .await;
    for (count, listed) in [
        (
            1,
            &["dead_letters", "messages", "messages_orders", "metrics", "traces"][..],
        ),
        (2, &["dead_letters", "messages_orders", "metrics", "traces"][..]),
    ] {
        let catalog = store.catalog_in(&format!("catalogue-{count}"));
        let mut publisher = catalog.publisher();
        let mut publish_thrice = || {
            for _ in 0..3 {
                let mut list = store.files();
                list.files.extend_from_slice(&away[..count]);
                let error = publisher.publish(list, now()).unwrap_err();
                assert!(matches!(error, IcebergError::Storage(engine::Error::Closed)), "{error}");
            }
        };
        publish_thrice();
        assert_eq!(catalog.reader().tables().unwrap(), listed);
        let rows = || catalog.load("messages_orders").summary("total-records");
        let before = rows();
        let ts = format!("2026-11-20T1{count}:00:00Z");
        store.add_message(&ts, orders, Attributes::new()).await;
        publish_thrice();
        assert_ne!(rows(), before, "its new file is published");
        assert_eq!(rows(), store.files().files.len().to_string());
        assert_eq!(publisher.catalog().tables().unwrap(), listed);
        // Without these files, all are there.
        publish(&mut publisher, store.files(), 1);
        assert_eq!(catalog.reader().tables().unwrap().len(), BASE.len() + 1);
    }
}
