//! What outside readers are told of, and what they can rely on.

use std::collections::BTreeSet;

use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;

use super::remote_check::machine;
use super::retention::{DAY, pass};
use super::*;
use crate::datafile::FileFormat;
use crate::layout::TimePartition;
use crate::manifest::FileEntry;
use crate::object_storage::state::{RemoteFile, RemoteRecord, RemoteState, ReplacedObject};
use crate::{PartitionBy, PublishedFile, PublishedFiles, published_files_of};

pub(super) fn path_of(file: &PublishedFile) -> PathBuf {
    file.uri.strip_prefix("file://").unwrap().into()
}

/// The rows that a file's footer counts; none of a piece.
pub(super) async fn rows_by_footer(file: &PublishedFile) -> Option<i64> {
    let file = file.clone();
    let footer = tokio::task::spawn_blocking(move || file.footer().unwrap());
    footer.await.unwrap().map(|footer| footer.file_metadata().num_rows())
}

pub(super) async fn append(engine: &Engine, name: &str, times: &[i64], seq: u64) {
    engine.append(batch(name, times, from_producer(seq))).await.unwrap();
}

/// A store with a sealed file of five hours ago, one of four hours ago, and an open file.
pub(super) async fn two_sealed_and_one_open(bench: &mut Bench) -> Arc<Engine> {
    bench.ticks_every(Duration::from_millis(5));
    bench.settings.seal_grace = Duration::ZERO;
    bench.settings.rotation.check_interval = Duration::from_millis(1);
    let engine = bench.open().await;
    append(&engine, "open", &[bench.now()], 1).await;
    append(&engine, "old", &[bench.now() - 5 * HOUR, bench.now() - 5 * HOUR - 1], 2).await;
    append(&engine, "newer", &[bench.now() - 4 * HOUR], 3).await;
    engine.flush().await.unwrap();
    until("the past hours are sealed", || {
        stats(&engine).open_files == 1 && stats(&engine).files == 3
    })
    .await;
    engine
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sealed_files_of_a_folder_are_published_with_what_the_catalogue_knows_of_them() {
    let mut bench = Bench::new();
    let engine = two_sealed_and_one_open(&mut bench).await;
    let mut published = engine.published_files();
    assert_eq!(published.number, engine.published_number());
    published.files.sort_by_key(|file| file.min_ts);
    let view = engine.view();
    let sealed: Vec<_> = view.files(Table::Logs).iter().filter(|file| file.sealed).collect();
    assert_eq!((published.files.len(), sealed.len()), (2, 2));
    for (file, handle) in published.files.iter().zip(sealed) {
        assert_eq!(
            (file.segment, file.version, file.size, file.rows),
            (handle.id, handle.version, handle.size, handle.rows)
        );
        assert_eq!(path_of(file), handle.path.canonicalize().unwrap());
        assert_eq!((file.table, file.spec, file.is_piece), (Table::Logs, None, false));
        assert_eq!((file.min_ts, file.max_ts), (handle.min_ts, handle.max_ts));
        assert_eq!(
            (file.partition_by, file.partition),
            (PartitionBy::Hour, file.min_ts.micros().div_euclid(HOUR))
        );
        assert_eq!(rows_by_footer(file).await, i64::try_from(file.rows).ok());
    }
    assert!(!published.is_ordered, "the next process counts anew");
    assert_eq!(published.files[0].rows, 2);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_have_the_store_open_is_told_of_the_same_files() {
    let mut bench = Bench::new();
    let nobody = published_files_of(&bench.settings);
    assert!(nobody.is_err(), "there is no store yet");
    let engine = two_sealed_and_one_open(&mut bench).await;
    let about = |published: &PublishedFiles| -> BTreeSet<(u64, u32, String, u64, i64)> {
        let files = published.files.iter();
        let about = files.map(|file| (file.segment, file.version, file.uri.clone(), file.rows, file.partition));
        about.collect()
    };
    let listed = about(&engine.published_files());
    assert_eq!(listed.len(), 2);
    let (store, beside) = published_files_of(&bench.settings).unwrap();
    assert_eq!(
        (store, about(&beside)),
        (engine.store_id(), listed.clone()),
        "beside an open store"
    );
    engine.close().await.unwrap();
    let (_, alone) = published_files_of(&bench.settings).unwrap();
    assert_eq!(about(&alone).intersection(&listed).count(), 2, "without one");
    for file in &beside.files {
        assert_eq!(rows_by_footer(file).await, i64::try_from(file.rows).ok());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_changes_with_a_seal_and_with_retention_and_not_with_rows_of_an_open_file() {
    let mut bench = Bench::new();
    let engine = two_sealed_and_one_open(&mut bench).await;
    let (before, version) = (engine.published_number(), engine.view().version());
    append(&engine, "open", &[bench.now()], 4).await;
    engine.flush().await.unwrap();
    assert!(engine.view().version() > version);
    assert_eq!(engine.published_number(), before, "it has rows that are not published");
    pass(&bench, &engine, 3_600);
    until("the last hour is sealed", || stats(&engine).open_files == 0).await;
    let sealed = engine.published_files();
    assert_ne!(sealed.number, before);
    assert_eq!(sealed.files.len(), 3);
    pass(&bench, &engine, 40 * DAY);
    until("all went", || stats(&engine).files == 0).await;
    let gone = engine.published_files();
    assert_ne!(gone.number, sealed.number);
    assert_eq!(gone.files.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_published_file_stays_in_the_tree_while_it_is_held_and_no_longer() {
    let mut bench = Bench::new();
    let engine = two_sealed_and_one_open(&mut bench).await;
    let mut held = engine.published_files().files;
    held.retain(|file| file.rows == 2);
    pass(&bench, &engine, 40 * DAY);
    until("what nobody holds has left the tree", || bench.tree().len() == 1).await;
    assert_eq!(stats(&engine).files, 0);
    engine.rotate().await.unwrap();
    let kept = path_of(&held[0]);
    assert_eq!(bench.tree()[0].canonicalize().unwrap(), kept);
    assert_eq!(std::fs::metadata(&kept).unwrap().len(), held[0].size);
    assert_eq!(rows_by_footer(&held[0]).await, Some(2));
    drop(held);
    until("the tree is empty", || bench.tree().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_a_damaged_footer_is_in_no_later_list() {
    let mut bench = Bench::new();
    let engine = two_sealed_and_one_open(&mut bench).await;
    let published = engine.published_files();
    let path = path_of(&published.files[0]);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() - 20;
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let damaged = published.files[0].clone();
    let refused = tokio::task::spawn_blocking(move || damaged.footer().map(|_| ())).await;
    let refused = refused.unwrap().unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    let now = engine.published_files();
    assert_ne!(now.number, published.number);
    assert_eq!(now.files.len(), 1);
    assert_eq!(now.files[0].uri, published.files[1].uri);
}

/// The rows of published objects, each as often as it is in one.
async fn rows_in(objects: &InMemory, published: &PublishedFiles) -> Vec<String> {
    let mut all = Vec::new();
    for file in &published.files {
        let key = file.uri.strip_prefix("s3://test/").unwrap();
        let bytes = objects
            .get(&ObjectPath::from(key))
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap();
        assert_eq!(bytes.len() as u64, file.size, "{}", file.uri);
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)
            .unwrap()
            .build()
            .unwrap();
        let before = all.len();
        for rows in reader.map(Result::unwrap) {
            let message = |row| row_json(&rows, row)["message"].as_str().unwrap().to_owned();
            all.extend((0..rows.num_rows()).map(message));
        }
        assert_eq!((all.len() - before) as u64, file.rows, "{}", file.uri);
        let counted = rows_by_footer(file).await;
        assert_eq!(counted.is_none(), file.is_piece, "{}", file.uri);
        assert!(counted.is_none_or(|rows| rows == i64::try_from(file.rows).unwrap()));
    }
    all.sort();
    all
}

/// What tells published files apart.
fn names(published: &PublishedFiles) -> BTreeSet<(u64, u32, String)> {
    let files = published.files.iter();
    files
        .map(|file| (file.segment, file.version, file.uri.clone()))
        .collect()
}

pub(super) async fn is_there(objects: &InMemory, file: &PublishedFile) -> bool {
    let key = ObjectPath::from(file.uri.strip_prefix("s3://test/").unwrap());
    objects.head(&key).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn in_an_object_store_pieces_and_sealed_files_have_each_row_once_through_seal_and_take_over() {
    let objects = Arc::new(InMemory::new());
    let mut first = machine(&objects, "one");
    first.ticks_every(Duration::from_millis(5));
    let engine = first.open().await;
    for (seq, name) in [(1, "a"), (2, "b")] {
        append(&engine, name, &[first.now()], seq).await;
        engine.sync_remote().await.unwrap();
    }
    let open = engine.published_files();
    assert_eq!(open.number, engine.published_number());
    assert!(
        open.files.len() == 2 && open.files.iter().all(|file| file.is_piece),
        "{open:?}"
    );
    assert_eq!(rows_in(&objects, &open).await, ["a/0", "b/0"]);

    append(&engine, "old", &[first.now() - 5 * HOUR], 3).await;
    engine.flush().await.unwrap();
    until("the past hour is sealed", || {
        stats(&engine).open_files == 1 && stats(&engine).files == 2
    })
    .await;
    assert_eq!(names(&engine.published_files()), names(&open), "it is in no record yet");
    engine.sync_remote().await.unwrap();
    let mixed = engine.published_files();
    assert_ne!(mixed.number, open.number);
    assert_eq!(mixed.files.iter().filter(|file| file.is_piece).count(), 2);
    assert_eq!(rows_in(&objects, &mixed).await, ["a/0", "b/0", "old/0"]);
    engine.sync_remote().await.unwrap();
    assert_eq!(engine.published_number(), mixed.number, "nothing was uploaded");

    first.advance(Duration::from_secs(3_600));
    until("the last hour is sealed", || stats(&engine).open_files == 0).await;
    engine.sync_remote().await.unwrap();
    let sealed = engine.published_files();
    assert_ne!(sealed.number, mixed.number);
    assert_eq!(sealed.files.len(), 2);
    assert_eq!(rows_in(&objects, &sealed).await, ["a/0", "b/0", "old/0"]);
    assert_eq!(
        rows_in(&objects, &mixed).await,
        ["a/0", "b/0", "old/0"],
        "within the grace"
    );
    first.advance(Duration::from_secs(601));
    engine.sync_remote().await.unwrap();
    for file in &mixed.files {
        assert_eq!(
            is_there(&objects, file).await,
            !file.is_piece,
            "the grace is over: {file:?}"
        );
    }
    drop(engine);

    let mut second = machine(&objects, "two");
    second.ticks_every(Duration::from_millis(5));
    second.now.store(first.now(), Ordering::Relaxed);
    let engine = second.open().await;
    assert_eq!(names(&engine.published_files()), names(&sealed));
    append(&engine, "new", &[second.now()], 4).await;
    engine.sync_remote().await.unwrap();
    let taken_over = engine.published_files();
    assert!(
        taken_over.is_ordered && taken_over.number > sealed.number,
        "over both writers"
    );
    assert_eq!(rows_in(&objects, &taken_over).await, ["a/0", "b/0", "new/0", "old/0"]);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rewritten_object_has_another_uri_and_those_of_before_are_readable_for_the_grace() {
    let objects = Arc::new(InMemory::new());
    let mut bench = machine(&objects, "one");
    // Rows of another hour become a small sealed file at once; the fifth of them goes into one of these.
    bench.settings.open_max = 1;
    let engine = bench.open().await;
    append(&engine, "0", &[bench.now()], 1).await;
    engine.sync_remote().await.unwrap();
    for seq in 2..=5 {
        append(&engine, &seq.to_string(), &[bench.now() - HOUR], seq).await;
        engine.sync_remote().await.unwrap();
    }
    let before = engine.published_files();
    let rows_before = ["0/0", "2/0", "3/0", "4/0", "5/0"];
    assert_eq!(rows_in(&objects, &before).await, rows_before);
    append(&engine, "6", &[bench.now() - HOUR], 6).await;
    engine.sync_remote().await.unwrap();
    assert_eq!(stats(&engine).rewritten_files, 1);
    let after = engine.published_files();
    let rows_after = ["0/0", "2/0", "3/0", "4/0", "5/0", "6/0"];
    assert_eq!(rows_in(&objects, &after).await, rows_after);
    assert_eq!(rows_in(&objects, &before).await, rows_before);
    let rewritten = after.files.iter().find(|file| file.rows == 2).unwrap();
    let earlier = before
        .files
        .iter()
        .find(|file| file.segment == rewritten.segment)
        .unwrap();
    assert!(
        rewritten.uri.contains("/pieces/") && !rewritten.is_piece,
        "{rewritten:?}"
    );
    assert!(earlier.uri.contains("/telemetry/"), "{earlier:?}");

    bench.advance(Duration::from_secs(601));
    engine.sync_remote().await.unwrap();
    let moved = engine.published_files();
    assert_ne!(moved.number, after.number);
    let now = moved.files.iter().find(|file| file.rows == 2).unwrap();
    assert_eq!((now.segment, now.version), (rewritten.segment, rewritten.version));
    assert_eq!(
        now.uri, earlier.uri,
        "it took the name over when the grace of that was over"
    );
    assert_eq!(rows_in(&objects, &moved).await, rows_after);
    assert_eq!(rows_in(&objects, &after).await, rows_after, "within the grace");
    bench.advance(Duration::from_secs(601));
    engine.sync_remote().await.unwrap();
    assert!(!is_there(&objects, rewritten).await && is_there(&objects, now).await);
    engine.close().await.unwrap();
}

#[test]
fn the_grace_of_a_replaced_object_begins_with_the_record_however_long_the_upload_took() {
    let at = Timestamp::from_micros(10 * HOUR);
    let entry = FileEntry {
        id: 7,
        version: 1,
        table: Table::Logs,
        partition: TimePartition::of(at, PartitionBy::Hour),
        number: 1,
        form: FileFormat::Parquet,
        prefix: None,
        size: 1,
        rows: 1,
        min_ts: at.micros(),
        max_ts: at.micros(),
        sealed: true,
        runs: Vec::new(),
        crc: 0,
        footer_crc: 0,
        first: 1,
        last: 1,
        published: 0,
    };
    let mut state = RemoteState::default();
    let mut record = |number: u64, file: RemoteFile| {
        state.apply(RemoteRecord {
            number,
            at: i64::try_from(number).unwrap() * 100,
            put: vec![file],
            ..RemoteRecord::default()
        });
        let recorded = state.recorded.lock();
        assert_eq!(recorded.number, number);
        RemoteFile::clone(&recorded.files[&7])
    };
    record(1, RemoteFile::sealed(entry.clone(), "tree".to_owned()));
    let replacing = |version, key: &str, at| RemoteFile {
        replaces: Some(ReplacedObject {
            key: "tree".to_owned(),
            at,
        }),
        ..RemoteFile::sealed(
            FileEntry {
                version,
                ..entry.clone()
            },
            key.to_owned(),
        )
    };
    let second = record(2, replacing(2, "second", 150)).replaces.unwrap();
    assert_eq!((second.key.as_str(), second.at), ("tree", 200));
    // The tree's object has been in no record since the second.
    let third = record(3, replacing(3, "third", second.at)).replaces.unwrap();
    assert_eq!((third.key.as_str(), third.at), ("tree", 200));
}
