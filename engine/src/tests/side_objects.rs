//! Objects beside the store: the same in a folder and in an object store.

use bytes::Bytes;
use durable_fs::fault_injection::{FaultInjector, FsOperation};
use object_store::memory::InMemory;

use super::remote_check::machine;
use super::*;
use crate::{RemoteMode, S3ClientSettings, SideObjects, check_store};

fn names_below(objects: &SideObjects, folder: &str) -> Vec<String> {
    let listed = objects.list(folder).unwrap().into_iter();
    listed.map(|(name, _)| name).collect()
}

/// What every kind of them does, with nothing there at first.
fn behaves(objects: &SideObjects) {
    let (one, two) = (Bytes::from_static(b"one"), Bytes::from_static(b"two"));
    assert_eq!(objects.get("t/logs/v1.json", 100).unwrap(), None);
    assert_eq!(names_below(objects, ""), [""; 0]);
    assert!(objects.create("t/logs/v1.json", one.clone()).unwrap());
    assert!(!objects.create("t/logs/v1.json", two.clone()).unwrap());
    assert_eq!(objects.get("t/logs/v1.json", 100).unwrap(), Some(one.clone()));
    objects.put("t/logs/hint.text", one).unwrap();
    objects.put("t/logs/hint.text", two.clone()).unwrap();
    assert_eq!(objects.get("t/logs/hint.text", 3).unwrap(), Some(two.clone()));
    let more = objects.get("t/logs/hint.text", 1).unwrap();
    assert_eq!(more, Some(Bytes::from_static(b"tw")), "one byte more than are wanted");
    objects.put("t/logs_2/v1.json", two).unwrap();
    assert_eq!(names_below(objects, "t/logs"), ["t/logs/hint.text", "t/logs/v1.json"]);
    assert_eq!(names_below(objects, "").len(), 3);
    assert_eq!(names_below(objects, "none"), [""; 0]);
    let day = Duration::from_secs(86_400);
    let now = Timestamp::from(std::time::SystemTime::now());
    for (name, at) in objects.list("").unwrap() {
        assert!(at > now.minus(day) && at < now.plus(day), "{name}: {at}");
    }
    objects.delete("t/logs/v1.json").unwrap();
    objects.delete("t/logs/v1.json").unwrap();
    assert_eq!(names_below(objects, "t/logs"), ["t/logs/hint.text"]);
    for name in [
        "", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "a/./b", "a b", "a\\b", "a%2e", "ä", "a\0",
    ] {
        let refused = [
            objects.get(name, 100).map(|_| ()),
            objects.put(name, Bytes::new()),
            objects.create(name, Bytes::new()).map(|_| ()),
            objects.delete(name),
        ];
        for refused in refused {
            assert!(
                matches!(refused, Err(Error::ObjectName { .. })),
                "{name:?}: {refused:?}"
            );
        }
        assert!(name.is_empty() || objects.list(name).is_err(), "{name:?}");
    }
}

async fn behave(objects: SideObjects) {
    tokio::task::spawn_blocking(move || behaves(&objects)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_store_in_a_folder_they_lie_in_iceberg_and_may_be_deleted() {
    let mut bench = Bench::new();
    bench.settings.store_dir = bench.dir.path().join("a b");
    bench.settings.data_dir = bench.settings.store_dir.join("telemetry");
    bench.settings.messages_dir = bench.settings.store_dir.join("messages");
    let engine = bench.open().await;
    let (objects, folder) = (engine.side_objects(), bench.settings.store_dir.join("iceberg"));
    assert!(!folder.exists(), "nothing was written");
    behave(objects.clone()).await;
    let expected = format!("file://{}/t/logs", folder.canonicalize().unwrap().display());
    assert_eq!(objects.uri("t/logs"), expected, "as it stands, with its space");
    assert_eq!(objects.client_settings(), None);
    append_one(&engine, &bench).await;
    engine.close().await.unwrap();
    let report = check_store(&bench.settings, true, |_, _| {}).unwrap();
    assert_eq!((report.problems, report.strangers), (vec![], vec![]));
    std::fs::remove_dir_all(&folder).unwrap();
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()), ["a/0"]);
    behave(engine.side_objects()).await;
    engine.close().await.unwrap();
}

async fn append_one(engine: &Engine, bench: &Bench) {
    engine
        .append(batch("a", &[bench.now()], from_producer(1)))
        .await
        .unwrap();
    engine.flush().await.unwrap();
}

#[test]
fn a_write_that_fails_leaves_no_part_of_an_object() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let objects = SideObjects::in_folder(root.join("out"));
    let (one, two) = (Bytes::from_static(b"one"), Bytes::from_static(b"two"));
    objects.put("hint", one.clone()).unwrap();
    for operation in [FsOperation::Create, FsOperation::SyncFile, FsOperation::Rename] {
        let faults = FaultInjector::below(&root);
        faults.fail(operation, "out/.", 2, libc::EIO);
        objects.put("hint", two.clone()).unwrap_err();
        objects.create("new", two.clone()).unwrap_err();
        assert_eq!(faults.left(), 0, "{operation:?}");
        assert_eq!(objects.get("hint", 100).unwrap(), Some(one.clone()), "{operation:?}");
        assert_eq!(names_below(&objects, ""), ["hint"], "{operation:?}");
    }
    assert!(objects.create("new", two).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn in_an_object_store_they_lie_below_the_prefix_and_readers_change_nothing() {
    let store = Arc::new(InMemory::new());
    let mut bench = machine(&store, "one");
    let client = S3ClientSettings {
        endpoint: Some("http://127.0.0.1:9000".to_owned()),
        region: "eu-central-1".to_owned(),
        path_style: true,
    };
    bench.settings.remote.as_mut().unwrap().client = Some(client.clone());
    let engine = bench.open().await;
    let objects = engine.side_objects();
    behave(objects.clone()).await;
    assert_eq!(objects.uri("t/logs"), "s3://test/p/iceberg/t/logs");
    assert_eq!(objects.client_settings(), Some(client));
    // A name as a data file of ours has it.
    let name = "telemetry/logs/logs_001.parquet";
    let put = move || objects.put(name, Bytes::from_static(b"one"));
    tokio::task::spawn_blocking(put).await.unwrap().unwrap();
    append_one(&engine, &bench).await;
    engine.close().await.unwrap();
    // Each start looks for orphans.
    let engine = bench.open().await;
    engine.sync_remote().await.unwrap();

    let mut reader = machine(&store, "two");
    reader.settings.remote.as_mut().unwrap().mode = RemoteMode::Read;
    let reading = reader.open().await;
    assert_eq!(
        (reading.published_number(), reading.published_files().files.len()),
        (0, 0)
    );
    let objects = reading.side_objects();
    let read = move || {
        assert_eq!(objects.get(name, 100).unwrap(), Some(Bytes::from_static(b"one")));
        assert_eq!(names_below(&objects, "telemetry"), [name]);
        for refused in [
            objects.put(name, Bytes::new()),
            objects.create(name, Bytes::new()).map(|_| ()),
            objects.delete(name),
        ] {
            assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
        }
    };
    tokio::task::spawn_blocking(read).await.unwrap();
    reading.close().await.unwrap();
    let objects = engine.side_objects();
    engine.close().await.unwrap();
    let closed = tokio::task::spawn_blocking(move || objects.get(name, 100))
        .await
        .unwrap();
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
}
