//! What the sealer does when the disk does not do what it is told.

use durable_fs::fault_injection::{FaultInjector, FsOperation};

use super::*;

/// A store with one file that is due for its seal.
async fn due(bench: &mut Bench) -> Arc<Engine> {
    bench.ticks_every(Duration::from_millis(5));
    let engine = bench.open().await;
    for (seq, name) in [(1, "a"), (2, "b")] {
        let rows = batch(name, &[bench.now()], from_producer(seq));
        engine.append(rows).await.unwrap();
        engine.flush().await.unwrap();
    }
    engine
}

fn is_sealed(engine: &Engine) -> bool {
    engine.view().files(Table::Logs).iter().all(|file| file.sealed)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_changed_nothing_is_tried_again_and_nobody_notices() {
    for (op, part, errno) in [
        (FsOperation::Create, ".sealing", libc::ENOSPC),
        (FsOperation::SyncFile, ".sealing", libc::EIO),
        (FsOperation::Rename, ".sealing", libc::EIO),
        (FsOperation::Remove, "retired", libc::EIO),
        (FsOperation::OpenFolder, "retired", libc::EMFILE),
        (FsOperation::SyncFile, "catalogue_", libc::ENOSPC),
    ] {
        let mut bench = Bench::new();
        let engine = due(&mut bench).await;
        let faults = FaultInjector::below(bench.dir.path());
        faults.fail(op, part, 3, errno);
        let before = engine.view();
        bench.advance(Duration::from_secs(7_200));
        until("three attempts failed", || faults.left() == 0).await;
        assert_eq!(engine.health_issue(), None, "{op:?}");
        let rows = batch("c", &[bench.now()], from_producer(3));
        assert_eq!(engine.append(rows).await.unwrap(), stored(1), "{op:?}");
        assert_eq!(messages(&engine.view()), ["a/0", "b/0", "c/0"], "{op:?}");
        until("the file is sealed", || stats(&engine).seals > 0).await;
        assert!(stats(&engine).seal_failures >= 3, "{op:?}");
        assert!(stats(&engine).wal_failed == 0, "{op:?}");
        assert_eq!(messages(&before), ["a/0", "b/0"], "{op:?}: a view of then reads on");
        engine.close().await.unwrap();
        drop(before);
        let engine = bench.open().await;
        assert_eq!(messages(&engine.view()), ["a/0", "b/0", "c/0"], "{op:?}");
        assert_eq!(engine.view().partial(), None, "{op:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_second_name_is_refused_the_open_file_goes_back_or_is_kept_for_its_readers() {
    let mut bench = Bench::new();
    let engine = due(&mut bench).await;
    let faults = FaultInjector::below(bench.dir.path());
    faults.fail(FsOperation::Link, "retired", 100, libc::EPERM);
    let before = engine.view();
    bench.advance(Duration::from_secs(7_200));
    until("the file is sealed", || is_sealed(&engine)).await;
    assert_eq!(messages(&before), ["a/0", "b/0"]);
    assert_eq!(messages(&engine.view()), ["a/0", "b/0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_of_names_poisons_because_nobody_knows_what_is_on_the_disk() {
    let mut bench = Bench::new();
    let engine = due(&mut bench).await;
    let faults = FaultInjector::below(&bench.settings.store_dir.join(".staging"));
    faults.fail(FsOperation::SyncFolder, "retired", 1, libc::EIO);
    bench.advance(Duration::from_secs(7_200));
    until("the store is poisoned", || stats(&engine).wal_failed > 0).await;
    let refused = engine.append(batch("c", &[bench.now()], from_producer(3))).await;
    assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
    assert_eq!(messages(&engine.view()), ["a/0", "b/0"]);
    drop(engine);
    drop(faults);
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()), ["a/0", "b/0"]);
    until("the file is sealed", || is_sealed(&engine)).await;
    assert_eq!(stats(&engine).files, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_is_tried_again_after_what_changed_nothing_and_poisons_after_a_failed_sync_of_names() {
    let bench = Bench::new();
    let engine = bench.open().await;
    let faults = FaultInjector::below(bench.dir.path());
    for (n, (op, part)) in [
        (FsOperation::Create, ".twin"),
        (FsOperation::SyncFile, ".twin"),
        (FsOperation::OpenFolder, ".staging"),
        (FsOperation::Rename, ".twin"),
    ]
    .into_iter()
    .enumerate()
    {
        for again in 0..2 {
            let name = format!("{n}{again}");
            let rows = batch(&name, &[bench.now()], BatchOrigin::default());
            engine.append(rows).await.unwrap();
            faults.fail(op, part, 1, libc::EIO);
            assert!(engine.flush().await.is_err(), "{op:?}");
            assert_eq!(faults.left(), 0, "{op:?}");
            engine.flush().await.unwrap();
        }
    }
    assert_eq!((messages(&engine.view()).len(), stats(&engine).files), (8, 1));
    engine
        .append(batch("x", &[bench.now()], BatchOrigin::default()))
        .await
        .unwrap();
    faults.fail(FsOperation::SyncFolder, "logs/2026", 1, libc::EIO);
    assert!(engine.flush().await.is_err());
    assert!(stats(&engine).wal_failed > 0);
    assert_eq!(messages(&engine.view()).len(), 9);
    drop(engine);
    drop(faults);
    assert_eq!(messages(&bench.open().await.view()).len(), 9);
}
