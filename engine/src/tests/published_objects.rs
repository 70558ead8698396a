//! Objects that outside readers were told of: how long they stay, and those that are damaged or missing.

use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;

use super::published_files::{append, is_there, rows_by_footer};
use super::remote_check::machine;
use super::*;
use crate::PublishedFile;
use crate::data_file_handle::DataFileOwner;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_removed_before_a_start_is_deleted_within_a_grace_of_it() {
    let objects = Arc::new(InMemory::new());
    let mut bench = machine(&objects, "one");
    bench.ticks_every(Duration::from_millis(5));
    let engine = bench.open().await;
    append(&engine, "a", &[bench.now()], 1).await;
    engine.sync_remote().await.unwrap();
    let open = engine.published_files();
    assert!(open.files.len() == 1 && open.files[0].is_piece);
    bench.advance(Duration::from_secs(3_600));
    until("the hour is sealed", || stats(&engine).open_files == 0).await;
    engine.sync_remote().await.unwrap();
    assert!(!engine.published_files().files[0].is_piece);
    engine.close().await.unwrap();
    drop(engine);
    // Outside readers have been told of nothing since then.
    bench.advance(Duration::from_secs(3_600));
    let engine = bench.open().await;
    for seconds in [0, 599] {
        bench.advance(Duration::from_secs(seconds));
        engine.sync_remote().await.unwrap();
        assert!(is_there(&objects, &open.files[0]).await, "{seconds}");
    }
    bench.advance(Duration::from_secs(1));
    engine.sync_remote().await.unwrap();
    assert!(!is_there(&objects, &open.files[0]).await);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_short_starts_removed_stays_until_one_lasts_a_grace() {
    let objects = Arc::new(InMemory::new());
    let mut bench = machine(&objects, "one");
    bench.ticks_every(Duration::from_millis(5));
    let mut pieces = Vec::new();
    // Each start removes the piece of the one before, and ends at once.
    for (seq, name) in [(1, "a"), (2, "b")] {
        let engine = bench.open().await;
        until("earlier hours are sealed", || stats(&engine).open_files == 0).await;
        append(&engine, name, &[bench.now()], seq).await;
        engine.sync_remote().await.unwrap();
        let files = engine.published_files().files;
        pieces.extend(files.into_iter().filter(|file| file.is_piece));
        assert_eq!(pieces.len() as u64, seq);
        engine.close().await.unwrap();
        drop(engine);
        bench.advance(Duration::from_secs(3_600));
    }
    // Any of them may have ended before outside readers were told of another list.
    for _ in 0..2 {
        let engine = bench.open().await;
        until("earlier hours are sealed", || stats(&engine).open_files == 0).await;
        engine.sync_remote().await.unwrap();
        assert!(engine.published_files().files.iter().all(|file| !file.is_piece));
        assert!(is_there(&objects, &pieces[0]).await && is_there(&objects, &pieces[1]).await);
        engine.close().await.unwrap();
    }
    let engine = bench.open().await;
    bench.advance(Duration::from_secs(600));
    engine.sync_remote().await.unwrap();
    assert!(!is_there(&objects, &pieces[0]).await && !is_there(&objects, &pieces[1]).await);
    engine.close().await.unwrap();
}

/// A machine without room for copies, with two sealed files that are uploaded. It looks at the object store after each `poll`.
async fn two_uploaded(objects: &Arc<InMemory>, poll: Duration) -> (Bench, Arc<Engine>) {
    let mut bench = machine(objects, "one");
    bench.ticks_every(Duration::from_millis(5));
    let remote = bench.settings.remote.as_mut().unwrap();
    (remote.cache_size, remote.poll) = (ByteSize::bytes(0), poll);
    let engine = bench.open().await;
    append(&engine, "a", &[bench.now() - 5 * HOUR], 1).await;
    append(&engine, "b", &[bench.now() - 4 * HOUR], 2).await;
    engine.flush().await.unwrap();
    until("both are sealed", || {
        stats(&engine).open_files == 0 && stats(&engine).files == 2
    })
    .await;
    engine.sync_remote().await.unwrap();
    assert_eq!(engine.published_files().files.len(), 2);
    (bench, engine)
}

async fn damage_object(objects: &InMemory, file: &PublishedFile) {
    let key = ObjectPath::from(file.uri.strip_prefix("s3://test/").unwrap());
    let mut bytes = objects.get(&key).await.unwrap().bytes().await.unwrap().to_vec();
    let at = bytes.len() - 20;
    bytes[at] ^= 1;
    objects.put(&key, bytes.into()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_damaged_or_missing_is_left_out_once_its_footer_was_read_twice() {
    let objects = Arc::new(InMemory::new());
    let (_bench, engine) = two_uploaded(&objects, Duration::from_secs(3_600)).await;
    let (listed, number) = (engine.published_files(), engine.published_number());
    assert_eq!(number, listed.number);
    let link = engine.shared.remote.as_ref().unwrap();
    let reads = || link.io.counters().reads.get();
    let before = reads();
    assert_eq!(rows_by_footer(&listed.files[0]).await, Some(1));
    assert_eq!(reads() - before, 1, "it is sound");
    damage_object(&objects, &listed.files[0]).await;
    let gone = ObjectPath::from(listed.files[1].uri.strip_prefix("s3://test/").unwrap());
    objects.delete(&gone).await.unwrap();
    for (nth, left, changes) in [(0, 1, 1), (1, 0, 2)] {
        let (file, before) = (listed.files[nth].clone(), reads());
        let refused = tokio::task::spawn_blocking(move || file.footer().map(|_| ()))
            .await
            .unwrap();
        assert!(matches!(refused, Err(Error::Remote { .. })), "{refused:?}");
        assert_eq!(reads() - before, 2);
        let later = engine.published_files();
        assert_eq!((later.files.len(), later.number), (left, listed.number));
        assert_eq!(engine.published_number(), number + changes, "who publishes looks again");
        assert!(later.files.iter().all(|file| file.uri != listed.files[nth].uri));
    }
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_a_query_found_damaged_is_in_no_later_list() {
    let objects = Arc::new(InMemory::new());
    let (bench, engine) = two_uploaded(&objects, Duration::from_millis(10)).await;
    let listed = engine.published_files();
    let damaged = listed.files.iter().min_by_key(|file| file.min_ts).unwrap();
    damage_object(&objects, damaged).await;
    until("there are no copies", || bench.tree().is_empty()).await;
    let handle = Arc::clone(&engine.view().files(Table::Logs)[0]);
    assert_eq!(handle.id, damaged.segment);
    let opened = tokio::task::spawn_blocking(move || handle.open().map(|_| ()))
        .await
        .unwrap();
    assert!(matches!(opened, Err(Error::Damaged { .. })), "{opened:?}");
    let later = engine.published_files();
    assert_eq!(later.files.len(), 1);
    assert_ne!(later.files[0].uri, damaged.uri);
    assert_eq!(stats(&engine).quarantined_files, 1);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_of_a_file_that_is_another_one_in_the_view_by_now_leaves_no_object_out() {
    let objects = Arc::new(InMemory::new());
    let (bench, engine) = two_uploaded(&objects, Duration::from_millis(10)).await;
    let earlier = Arc::clone(&engine.view().files(Table::Logs)[0]);
    engine.close().await.unwrap();
    drop(engine);
    let engine = bench.open().await;
    let now = Arc::clone(&engine.view().files(Table::Logs)[0]);
    assert_eq!((now.id, now.version), (earlier.id, earlier.version));
    assert!(now.is_uploaded() && earlier.is_uploaded());
    engine.shared.report_damage(&earlier, "somebody overwrote it");
    assert_eq!(engine.published_files().files.len(), 2);
    engine.shared.report_damage(&now, "a bit flipped");
    assert_eq!(engine.published_files().files.len(), 1);
    engine.close().await.unwrap();
}
