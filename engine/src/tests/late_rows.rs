//! Rows of many hours at once, and clocks that jump.

use durable_fs::fault_injection::{FaultInjector, FsOperation};

use super::*;

const DAY: i64 = 24 * HOUR;

/// Rows for each of `hours` hours back from now.
fn scattered(bench: &Bench, name: &str, hours: i64) -> AppendBatch {
    let times: Vec<i64> = (0..hours).map(|hour| bench.now() - hour * HOUR).collect();
    batch(name, &times, BatchOrigin::default())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_for_many_hours_open_a_bounded_number_of_files_and_all_of_them_end_in_files() {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(20));
    bench.settings.open_max = 8;
    let engine = bench.open().await;
    let mut most = 0;
    for round in 0..10 {
        engine
            .append(scattered(&bench, &format!("{round:02}"), 60))
            .await
            .unwrap();
        let ticks = stats(&engine).flushes;
        until("the next publish", || stats(&engine).flushes > ticks).await;
        most = most.max(stats(&engine).open_files);
    }
    assert!(most <= 8 + 2, "{most} open files");
    assert!(stats(&engine).late_partitions > 0, "{:?}", stats(&engine));
    until("the late rows are in files", || stats(&engine).memtable_rows == 0).await;
    assert_eq!(messages(&engine.view()).len(), 600);
    assert!(stats(&engine).open_files <= 8 + 2);
    let files = stats(&engine).files;
    assert!(files <= 60 * 4, "{files} files: late rows wait for company");
    drop(engine);
    assert_eq!(messages(&bench.open().await.view()).len(), 600);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_left_alone_makes_room_for_another_partition() {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(20));
    bench.settings.open_max = 2;
    let engine = bench.open().await;
    for hour in 1..6 {
        let row = batch(&hour.to_string(), &[bench.now() - hour * HOUR], BatchOrigin::default());
        engine.append(row).await.unwrap();
        until("the row is in a file", || stats(&engine).memtable_rows == 0).await;
    }
    assert!(stats(&engine).evicted_files >= 3, "{:?}", stats(&engine));
    assert!(stats(&engine).open_files <= 2);
    assert_eq!(messages(&engine.view()).len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_rows_do_not_take_the_present_hours_file() {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(20));
    bench.settings.open_max = 2;
    let engine = bench.open().await;
    for hour in [0, 1, 2, 3, 0, 4, 5, 6, 0] {
        let row = batch(&hour.to_string(), &[bench.now() - hour * HOUR], BatchOrigin::default());
        engine.append(row).await.unwrap();
        until("the row is in a file", || stats(&engine).memtable_rows == 0).await;
    }
    assert_eq!(stats(&engine).files, 7, "one of each hour");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_leaves_no_late_row_in_memory() {
    let mut bench = Bench::new();
    bench.settings.open_max = 2;
    let engine = bench.open().await;
    engine.append(scattered(&bench, "a", 20)).await.unwrap();
    engine.flush().await.unwrap();
    assert_eq!((stats(&engine).memtable_rows, stats(&engine).files), (0, 20));
    assert_eq!(messages(&engine.view()).len(), 20);
    engine.close().await.unwrap();
    let engine = bench.open().await;
    assert_eq!((messages(&engine.view()).len(), stats(&engine).replayed_rows), (20, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_forty_days_either_way_loses_doubles_and_removes_nothing() {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(10));
    bench.settings.rotation.check_interval = Duration::from_millis(10);
    let engine = bench.open().await;
    let right = bench.now();
    let mut wanted = 0;
    for (round, jump) in [0, 40 * DAY, 0, -40 * DAY, 0, 40 * DAY, -40 * DAY]
        .into_iter()
        .enumerate()
    {
        bench.now.store(right + jump, Ordering::Relaxed);
        // Producers whose clocks are right, as wrong as ours, and absurd.
        let times = [right, right + jump, right - HOUR, i64::MIN / 2, i64::MAX / 2];
        let rows = batch(&round.to_string(), &times, from_producer(round as u64 + 1));
        assert_eq!(engine.append(rows.clone()).await.unwrap(), stored(5));
        assert_eq!(engine.append(rows).await.unwrap(), AppendOutcome::Duplicate);
        wanted += 5;
        until("the rows are in files", || stats(&engine).memtable_rows == 0).await;
        engine.rotate().await.unwrap();
        assert_eq!(messages(&engine.view()).len(), wanted, "round {round}");
    }
    let kept = messages(&engine.view());
    assert_eq!(stats(&engine).rotated_files, 0);
    assert!(stats(&engine).out_of_range_rows > 0);
    drop(engine);
    for jump in [40 * DAY, -40 * DAY, 0] {
        bench.now.store(right + jump, Ordering::Relaxed);
        let engine = bench.open().await;
        engine.rotate().await.unwrap();
        assert_eq!(messages(&engine.view()), kept, "opened at {jump}");
        engine.close().await.unwrap();
    }
}

/// Files of each partition that the view has.
fn most_files(engine: &Engine) -> usize {
    let view = engine.view();
    let mut of_folder = std::collections::HashMap::<PathBuf, usize>::new();
    for file in view.files(Table::Logs) {
        *of_folder.entry(file.path.parent().unwrap().to_owned()).or_default() += 1;
    }
    of_folder.into_values().max().unwrap_or(0)
}

/// Data files of logs that a list of the tree finds.
fn in_tree(bench: &Bench) -> usize {
    files_below(&bench.settings.data_dir.join("logs")).len()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_trickle_into_many_hours_leave_few_files_an_hour() {
    let mut bench = Bench::new();
    bench.settings.open_max = 2;
    let mut engine = bench.open().await;
    let mut wanted = Vec::new();
    for round in 0..20 {
        let name = format!("{round:02}");
        engine.append(scattered(&bench, &name, 15)).await.unwrap();
        wanted.extend((0..15).map(|row| format!("{name}/{row}")));
        engine.flush().await.unwrap();
        assert!(
            most_files(&engine) <= 4,
            "{} files after round {round}",
            most_files(&engine)
        );
        assert_eq!(in_tree(&bench), engine.view().files(Table::Logs).len());
        if round % 7 == 3 {
            drop(engine);
            engine = bench.open().await;
        }
    }
    let mut found = messages(&engine.view());
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
    drop(engine);
    let engine = bench.open().await;
    assert_eq!((messages(&engine.view()).len(), stats(&engine).replayed_rows), (300, 0));
}

/// A store whose last hour has as many small files as it may, with one row more in memory.
async fn crowded(bench: &mut Bench) -> Arc<Engine> {
    bench.settings.open_max = 1;
    let engine = bench.open().await;
    // The open file that there may be.
    let row = batch("0", &[bench.now()], BatchOrigin::default());
    engine.append(row).await.unwrap();
    engine.flush().await.unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        let row = batch(name, &[bench.now() - HOUR], BatchOrigin::default());
        engine.append(row).await.unwrap();
        if name != "e" {
            engine.flush().await.unwrap();
        }
    }
    engine
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_file_that_is_written_anew_survives_every_fault() {
    for (op, part, errno) in [
        (FsOperation::Create, ".sealing", libc::ENOSPC),
        (FsOperation::SyncFile, ".sealing", libc::EIO),
        (FsOperation::Rename, ".sealing", libc::EIO),
        (FsOperation::Remove, "retired", libc::EIO),
        (FsOperation::SyncFile, "catalogue_", libc::ENOSPC),
    ] {
        let mut bench = Bench::new();
        let engine = crowded(&mut bench).await;
        let before = engine.view();
        let faults = FaultInjector::below(bench.dir.path());
        faults.fail(op, part, 2, errno);
        let failed = engine.flush().await;
        assert!(failed.is_err(), "{op:?} {part}");
        assert_eq!(messages(&engine.view()).len(), 6, "{op:?} {part}");
        assert_eq!(messages(&before).len(), 6, "{op:?} {part}: a view of then reads on");
        drop((before, engine, faults));
        let engine = bench.open().await;
        let mut found = messages(&engine.view());
        found.sort();
        assert_eq!(found, ["0/0", "a/0", "b/0", "c/0", "d/0", "e/0"], "{op:?} {part}");
        assert_eq!(engine.view().partial(), None, "{op:?} {part}");
        engine.flush().await.unwrap();
        assert_eq!((most_files(&engine), in_tree(&bench)), (4, 5), "{op:?} {part}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_of_then_reads_every_version_of_a_small_file() {
    let mut bench = Bench::new();
    let engine = crowded(&mut bench).await;
    let mut views = Vec::new();
    for round in 0..5 {
        engine.flush().await.unwrap();
        views.push(engine.view());
        let row = batch(&format!("f{round}"), &[bench.now() - HOUR], BatchOrigin::default());
        engine.append(row).await.unwrap();
    }
    for (at, view) in views.iter().enumerate() {
        assert_eq!(messages(view).len(), 6 + at);
        assert_eq!(view.files(Table::Logs).len(), 5);
    }
    assert!(stats(&engine).rewritten_files >= 4, "{:?}", stats(&engine));
    drop(views);
    until("the versions of then are gone", || {
        let files = files_below(bench.dir.path());
        files.iter().all(|path| !path.parent().unwrap().ends_with("retired"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_small_file_takes_no_rows() {
    let mut bench = Bench::new();
    let engine = crowded(&mut bench).await;
    let view = engine.view();
    let last = view.files(Table::Logs).iter().rev().find(|file| file.sealed).unwrap();
    let mut bytes = std::fs::read(&last.path).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&last.path, bytes).unwrap();
    engine.flush().await.unwrap();
    let now = engine.view();
    let still = now.files(Table::Logs).iter().find(|file| file.id == last.id).unwrap();
    assert_eq!((still.version, stats(&engine).rewritten_files), (last.version, 1));
    assert_eq!(most_files(&engine), 4);
}
