//! What is there again after any end.

use durable_fs::fault_injection::{FaultInjector, FsOperation};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_second_opening_is_refused_with_the_folder_and_the_process() {
    let bench = Bench::new();
    let engine = bench.open().await;
    let refused = bench.try_open().await.unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }));
    assert!(
        refused.to_string().contains(&std::process::id().to_string()),
        "{refused}"
    );
    engine.close().await.unwrap();
    bench.open().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_file_goes_on_where_it_was_after_an_orderly_and_a_sudden_end() {
    let bench = Bench::new();
    for (round, name) in ["a", "b", "c", "d"].iter().enumerate() {
        let engine = bench.open().await;
        engine
            .append(batch(name, &[bench.now()], from_producer(round as u64 + 1)))
            .await
            .unwrap();
        if round % 2 == 0 {
            engine.close().await.unwrap();
        } else {
            engine.flush().await.unwrap();
            drop(engine);
        }
    }
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()), ["a/0", "b/0", "c/0", "d/0"]);
    assert_eq!(bench.tree().len(), 1);
    assert_eq!((floor(&engine), stats(&engine).replayed_rows), (4, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_settings_move_and_double_nothing() {
    let mut bench = Bench::new();
    let engine = bench.open().await;
    let old = bench.now() - 20 * 24 * HOUR;
    engine
        .append(batch("a", &[old, bench.now()], BatchOrigin::default()))
        .await
        .unwrap();
    drop(engine);
    bench.settings.max_age = Duration::from_secs(86_400);
    bench.settings.partition_by = crate::PartitionBy::Day;
    bench.settings.json_type = crate::JsonType::String;
    bench.settings.compression = crate::CompressionCodec::None;
    let engine = bench.open().await;
    engine
        .append(batch("b", &[old, bench.now()], BatchOrigin::default()))
        .await
        .unwrap();
    engine.close().await.unwrap();
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()), ["a/0", "a/1", "b/0", "b/1"]);
    assert_eq!(stats(&engine).files, 3, "{:?}", bench.tree());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_json_type_that_changed_begins_no_unreadable_file() {
    let mut bench = Bench::new();
    for (round, json_type) in [crate::JsonType::Json, crate::JsonType::String, crate::JsonType::Json]
        .iter()
        .enumerate()
    {
        bench.settings.json_type = *json_type;
        let engine = bench.open().await;
        engine
            .append(batch(&round.to_string(), &[bench.now()], BatchOrigin::default()))
            .await
            .unwrap();
        engine.close().await.unwrap();
    }
    assert_eq!(messages(&bench.open().await.view()), ["0/0", "1/0", "2/0"]);
}

/// A store that ended after a publish of `a` to `c`, before the records of the last two.
async fn without_the_last_records() -> Bench {
    let bench = Bench::new();
    let engine = bench.open().await;
    engine
        .append(batch("a", &[bench.now()], from_producer(1)))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    engine
        .append(batch("b", &[bench.now()], from_producer(2)))
        .await
        .unwrap();
    engine
        .append(batch("c", &[bench.now() - HOUR], from_producer(3)))
        .await
        .unwrap();
    let before = bench.dir.path().join("before");
    copy_tree(&bench.settings.store_dir.join("meta"), &before.join("meta"));
    copy_tree(&bench.settings.store_dir.join("wal"), &before.join("wal"));
    engine.flush().await.unwrap();
    drop(engine);
    // The tree of after the publish with the catalogue and the log of before it.
    for part in ["meta", "wal"] {
        let path = bench.settings.store_dir.join(part);
        std::fs::remove_dir_all(&path).unwrap();
        copy_tree(&before.join(part), &path);
    }
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_whose_record_was_lost_is_adopted_and_not_doubled() {
    let bench = without_the_last_records().await;
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()), ["a/0", "b/0", "c/0"]);
    assert_eq!(
        (stats(&engine).replayed_rows, stats(&engine).files),
        (0, 2),
        "the files had the rows"
    );
    assert_eq!(floor(&engine), 3);
    engine.close().await.unwrap();
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()), ["a/0", "b/0", "c/0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_start_adopted_is_there_when_its_checkpoint_is_damaged_later() {
    let bench = without_the_last_records().await;
    let engine = bench.open().await;
    let other = bench.now() - 2 * HOUR;
    engine.append(batch("d", &[other], from_producer(4))).await.unwrap();
    engine.flush().await.unwrap();
    drop(engine);
    let checkpoint = newest_checkpoint(&bench);
    let mut bytes = std::fs::read(&checkpoint).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&checkpoint, bytes).unwrap();
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()), ["a/0", "b/0", "c/0", "d/0"]);
    assert_eq!((engine.view().partial(), floor(&engine)), (None, 4));
    let again = batch("c", &[bench.now() - HOUR], from_producer(3));
    engine.append(again).await.unwrap();
    assert_eq!(messages(&engine.view()).len(), 4, "the batch is known");
}

fn newest_checkpoint(bench: &Bench) -> PathBuf {
    let files = files_below(&bench.settings.store_dir.join("meta"));
    let is_one = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("checkpoint_"))
    };
    files.into_iter().rfind(is_one).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_record_at_the_catalogues_end_is_cut_and_its_rows_come_from_files_or_log() {
    let bench = Bench::new();
    let engine = bench.open().await;
    engine
        .append(batch("a", &[bench.now()], from_producer(1)))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    let (log, before) = catalogue_log(&bench);
    engine
        .append(batch("b", &[bench.now() - HOUR], from_producer(2)))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    drop(engine);
    let whole = std::fs::read(&log).unwrap();
    for cut in [before + 1, before + 9, whole.len() - 17] {
        let copy = Bench {
            dir: tempfile::tempdir().unwrap(),
            settings: bench.settings.clone(),
            now: Arc::clone(&bench.now),
        };
        let mut copy = copy;
        copy.settings.store_dir = copy.dir.path().join("store");
        copy.settings.data_dir = copy.settings.store_dir.join("telemetry");
        copy_tree(&bench.settings.store_dir, &copy.settings.store_dir);
        let torn = copy.settings.store_dir.join("meta").join(log.file_name().unwrap());
        std::fs::write(&torn, &whole[..cut]).unwrap();
        let engine = copy.open().await;
        assert_eq!(messages(&engine.view()), ["a/0", "b/0"], "cut at {cut}");
        assert_eq!(floor(&engine), 2);
    }
}

/// The newest log of the catalogue, and its length.
pub(super) fn catalogue_log(bench: &Bench) -> (PathBuf, usize) {
    let logs = files_below(&bench.settings.store_dir.join("meta"));
    let log = logs
        .into_iter()
        .rfind(|path| path.extension().is_some_and(|name| name == "log"))
        .unwrap();
    let len = std::fs::read(&log).unwrap().len();
    (log, len)
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_inside_the_catalogue_stops_the_start_and_names_the_file_and_the_command() {
    let bench = Bench::new();
    let engine = bench.open().await;
    for name in ["a", "b", "c"] {
        engine
            .append(batch(name, &[bench.now()], BatchOrigin::default()))
            .await
            .unwrap();
        engine.flush().await.unwrap();
    }
    drop(engine);
    let (log, _) = catalogue_log(&bench);
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let refused = bench.try_open().await.unwrap_err().to_string();
    assert!(refused.contains(&log.display().to_string()), "{refused}");
    assert!(refused.contains("platform-mixer check --rebuild"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_damaged_data_file_makes_snapshots_partial_and_is_quarantined() {
    let bench = Bench::new();
    let engine = bench.open().await;
    for (n, name) in ["a", "b", "c"].iter().enumerate() {
        engine
            .append(batch(name, &[bench.now() - n as i64 * HOUR], BatchOrigin::default()))
            .await
            .unwrap();
    }
    engine.close().await.unwrap();
    let tree = bench.tree();
    std::fs::remove_file(&tree[0]).unwrap();
    let torn = std::fs::read(&tree[1]).unwrap();
    std::fs::write(&tree[1], &torn[..torn.len() - 9]).unwrap();
    let engine = bench.open().await;
    let view = engine.view();
    // The log still has the rows of the damaged one, and those of the other one are there when it is put back.
    assert_eq!(messages(&view), ["a/0", "b/0"]);
    let partial = view.partial().unwrap();
    assert!(partial.contains(tree[0].to_str().unwrap()), "{partial}");
    assert_eq!(stats(&engine).quarantined_files, 1);
    assert_eq!(files_below(&bench.settings.store_dir.join("quarantine")).len(), 1);
    engine
        .append(batch("d", &[bench.now() - HOUR], BatchOrigin::default()))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    assert_eq!(messages(&engine.view()), ["a/0", "b/0", "d/0"]);
    assert!(!bench.tree().contains(&tree[1]), "its number is not used again");
    drop(engine);
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()), ["a/0", "b/0", "d/0"]);
    assert!(engine.view().partial().unwrap().contains(tree[0].to_str().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_somebody_else_among_the_data_is_left_alone() {
    let bench = Bench::new();
    let engine = bench.open().await;
    engine
        .append(batch("a", &[bench.now()], BatchOrigin::default()))
        .await
        .unwrap();
    engine.close().await.unwrap();
    let foreign = bench.tree()[0].with_file_name("logs_007.parquet");
    std::fs::write(&foreign, "not parquet").unwrap();
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()), ["a/0"]);
    assert_eq!(std::fs::read_to_string(&foreign).unwrap(), "not parquet");
}

#[tokio::test(flavor = "multi_thread")]
async fn watermarks_survive_checkpoints_of_the_manifest() {
    let bench = Bench::new();
    for round in 0..4u64 {
        let engine = bench.open().await;
        for seq in round * 5 + 1..=round * 5 + 5 {
            let answer = engine
                .append(batch("a", &[bench.now()], from_producer(seq)))
                .await
                .unwrap();
            assert_eq!(answer, stored(1));
            engine.flush().await.unwrap();
        }
        engine.close().await.unwrap();
    }
    let engine = bench.open().await;
    assert_eq!(floor(&engine), 20);
    for seq in 1..=20 {
        let answer = engine
            .append(batch("a", &[bench.now()], from_producer(seq)))
            .await
            .unwrap();
        assert_eq!(answer, AppendOutcome::Duplicate);
    }
    assert_eq!(messages(&engine.view()).len(), 20);
}

/// A store whose log has a batch that cannot be read, after a sudden end.
async fn with_an_unreadable_batch() -> Bench {
    let bench = Bench::new();
    let engine = bench.open().await;
    let mut unreadable = batch("a", &[bench.now()], from_producer(1));
    unreadable.payload = "not what was appended".into();
    engine.append(unreadable).await.unwrap();
    drop(engine);
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_the_log_that_cannot_be_read_is_durable_elsewhere_before_the_log_lets_go_of_it() {
    let bench = with_an_unreadable_batch().await;
    let quarantine = bench.settings.store_dir.join("quarantine");
    let faults = FaultInjector::below(&quarantine);
    for op in [FsOperation::Create, FsOperation::SyncFile, FsOperation::SyncFolder] {
        faults.fail(op, "quarantine", 1, libc::EIO);
        assert!(bench.try_open().await.is_err(), "{op:?}");
        assert_eq!(faults.left(), 0);
    }
    let engine = bench.open().await;
    let view = engine.view();
    assert!(
        view.partial().unwrap().contains("batch 1 of the log"),
        "{:?}",
        view.partial()
    );
    let done = faults.done("quarantine");
    let synced = done.iter().rposition(|op| *op == FsOperation::SyncFile).unwrap();
    assert!(done[synced..].contains(&FsOperation::SyncFolder), "{done:?}");
    engine
        .append(batch("b", &[bench.now()], from_producer(2)))
        .await
        .unwrap();
    engine.close().await.unwrap();
    let kept = files_below(&quarantine);
    assert_eq!(std::fs::read_to_string(&kept[0]).unwrap(), "not what was appended");
    let engine = bench.open().await;
    assert_eq!(engine.view().partial(), None, "the log has let go of it");
    assert_eq!(files_below(&quarantine), kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_the_last_record_of_the_catalogue_stops_the_start_and_names_the_file() {
    let bench = Bench::new();
    let engine = bench.open().await;
    engine
        .append(batch("a", &[bench.now()], from_producer(1)))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    drop(engine);
    let (log, len) = catalogue_log(&bench);
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[len - 30] ^= 4;
    std::fs::write(&log, bytes).unwrap();
    let refused = bench.try_open().await.unwrap_err();
    assert!(matches!(refused, Error::Catalogue { .. }), "{refused}");
    assert!(refused.to_string().contains(&log.display().to_string()), "{refused}");
}
