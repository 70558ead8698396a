//! A reader from outside that listed the tree finds every name until it has passed on, whatever expires meanwhile.

use std::fs::File;

use arrow_schema::Fields;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::retention::{DAY, by, pass};
use super::*;
use crate::{RetentionPolicy, StorageFormat, check_store, rebuild_catalogue};

const REST: u64 = 60;

/// A store that lets readers pass on, with two hours that are sealed, and too large for its rules.
async fn two_hours() -> (Bench, Arc<Engine>) {
    let mut bench = Bench::new();
    bench.settings.rotation = by(RetentionPolicy::Size, ByteSize::bytes(1));
    bench.settings.reader_rest = Duration::from_secs(REST);
    let engine = bench.open().await;
    for (seq, name) in [(1, "old"), (2, "new")] {
        let times = [bench.now() - (4 - seq) * HOUR; 3];
        let batch = batch(name, &times, from_producer(seq as u64));
        engine.append(batch).await.unwrap();
    }
    engine.flush().await.unwrap();
    (bench, engine)
}

/// The rows of each file of the tree, and its columns, read as anybody would.
fn read_names(names: &[PathBuf]) -> Vec<(usize, Fields)> {
    let read = |path: &PathBuf| {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
        let fields = reader.schema().fields().clone();
        let rows = reader.build().unwrap().map(|batch| batch.unwrap().num_rows()).sum();
        (rows, fields)
    };
    names.iter().map(read).collect()
}

fn bytes_of(names: &[PathBuf]) -> u64 {
    names.iter().map(|path| path.metadata().unwrap().len()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_an_expired_partition_stay_without_rows_until_readers_have_passed_on() {
    let (bench, engine) = two_hours().await;
    let names = bench.tree();
    let before = read_names(&names);
    let size = bytes_of(&names);
    assert_eq!(before.iter().map(|(rows, _)| rows).sum::<usize>(), 6);
    assert_eq!(engine.rotate().await.unwrap().removed.len(), 2);
    assert_eq!(messages(&engine.view()), [""; 0]);
    // Whoever has listed them opens them now.
    let after = read_names(&names);
    for ((rows, fields), (_, same)) in after.iter().zip(&before) {
        assert_eq!((*rows, fields), (0, same));
    }
    assert!(bytes_of(&names) < size);
    assert_eq!(
        check_store(&bench.settings, true, |_, _| {}).unwrap().strangers,
        [""; 0].map(PathBuf::from)
    );
    let staged = files_below(&bench.settings.store_dir.join(".staging"));
    assert!(
        staged.iter().all(|path| path.extension().is_none()),
        "the rows are unlinked: {staged:?}"
    );
    // A reader comes by now and then, at last none does.
    for _ in 0..3 {
        read_names(&names[..1]);
        engine.rotate().await.unwrap();
        pass(&bench, &engine, REST - 1);
        engine.rotate().await.unwrap();
        assert!(names[0].exists(), "somebody opened it a moment ago");
    }
    assert!(!names[1].exists(), "nobody looked there for long");
    pass(&bench, &engine, 1);
    engine.rotate().await.unwrap();
    assert_eq!(files_below(&bench.settings.data_dir), [""; 0].map(PathBuf::from));
    assert!(!bench.settings.data_dir.join("logs/2026").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_never_pause_do_not_keep_names_for_ever() {
    let (bench, engine) = two_hours().await;
    let names = bench.tree();
    engine.rotate().await.unwrap();
    for _ in 0..DAY / (REST / 2) {
        read_names(&names);
        engine.rotate().await.unwrap();
        pass(&bench, &engine, REST / 2);
    }
    engine.rotate().await.unwrap();
    assert_eq!(bench.tree(), [""; 0].map(PathBuf::from));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_unlinks_what_is_empty_also_when_the_catalogue_is_lost() {
    for lost in [false, true] {
        let (bench, engine) = two_hours().await;
        engine.rotate().await.unwrap();
        drop(engine);
        assert_eq!(bench.tree().len(), 2);
        if lost {
            for path in files_below(&bench.settings.store_dir.join("meta")) {
                std::fs::remove_file(path).unwrap();
            }
            // The log still has the rows, and nothing says that they went.
            std::fs::remove_dir_all(bench.settings.store_dir.join("wal")).unwrap();
            let now = Timestamp::from_micros(bench.now());
            let report = rebuild_catalogue(&bench.settings, now, |_, _| {}).unwrap();
            assert_eq!(
                (report.files, report.problems.len(), report.strangers.len()),
                (0, 0, 0),
                "{report:?}"
            );
        }
        let engine = bench.open().await;
        assert_eq!(messages(&engine.view()), [""; 0]);
        assert_eq!(bench.tree(), [""; 0].map(PathBuf::from));
        assert_eq!((stats(&engine).quarantined_files, engine.view().partial()), (0, None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_takes_rows_again_keeps_them() {
    let (bench, engine) = two_hours().await;
    let names = bench.tree();
    engine.rotate().await.unwrap();
    let late = batch("late", &[bench.now() - 3 * HOUR], from_producer(9));
    engine.append(late).await.unwrap();
    engine.flush().await.unwrap();
    assert_eq!(messages(&engine.view()), ["late/0"]);
    // It expires as well. Its folder has a file that stands in for another, so it goes at once.
    assert_eq!(engine.rotate().await.unwrap().removed.len(), 1);
    engine.rotate().await.unwrap();
    assert_eq!(bench.tree(), names);
    // Listing it was reading.
    engine.rotate().await.unwrap();
    pass(&bench, &engine, REST);
    engine.rotate().await.unwrap();
    assert_eq!(bench.tree(), [""; 0].map(PathBuf::from));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_lines_and_folders_with_files_of_others_go_at_once() {
    let mut bench = Bench::new();
    bench.settings.format = StorageFormat::Json;
    bench.settings.rotation = by(RetentionPolicy::Size, ByteSize::bytes(1));
    bench.settings.reader_rest = Duration::from_secs(REST);
    let engine = bench.open().await;
    let times = [bench.now() - 3 * HOUR];
    engine.append(batch("old", &times, from_producer(1))).await.unwrap();
    engine.flush().await.unwrap();
    engine.rotate().await.unwrap();
    assert_eq!(bench.tree(), [""; 0].map(PathBuf::from));
    let (bench, engine) = two_hours().await;
    let foreign = bench.tree()[0].with_file_name("notes.txt");
    std::fs::write(&foreign, "ours").unwrap();
    engine.rotate().await.unwrap();
    assert_eq!(
        bench.tree().len(),
        2,
        "what is not ours, and an empty file of the other hour"
    );
    assert_eq!(std::fs::read(&foreign).unwrap(), b"ours");
}
