//! Rows of many hours at once, and clocks that jump.

use super::*;

const DAY: i64 = 24 * HOUR;

/// Rows for each of `hours` hours back from now.
fn scattered(bench: &Bench, name: &str, hours: i64) -> Batch {
    let times: Vec<i64> = (0..hours).map(|hour| bench.now() - hour * HOUR).collect();
    batch(name, &times, Origin::default())
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
        let ticks = stats(&engine).publishes;
        until("the next publish", || stats(&engine).publishes > ticks).await;
        most = most.max(stats(&engine).open_segments);
    }
    assert!(most <= 8 + 2, "{most} open files");
    assert!(stats(&engine).late_partitions > 0, "{:?}", stats(&engine));
    until("the late rows are in files", || stats(&engine).hot_rows == 0).await;
    assert_eq!(messages(&engine.view()).len(), 600);
    assert!(stats(&engine).open_segments <= 8 + 2);
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
        let row = batch(&hour.to_string(), &[bench.now() - hour * HOUR], Origin::default());
        engine.append(row).await.unwrap();
        until("the row is in a file", || stats(&engine).hot_rows == 0).await;
    }
    assert!(stats(&engine).evicted_segments >= 3, "{:?}", stats(&engine));
    assert!(stats(&engine).open_segments <= 2);
    assert_eq!(messages(&engine.view()).len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_leaves_no_late_row_in_memory() {
    let mut bench = Bench::new();
    bench.settings.open_max = 2;
    let engine = bench.open().await;
    engine.append(scattered(&bench, "a", 20)).await.unwrap();
    engine.flush().await.unwrap();
    assert_eq!((stats(&engine).hot_rows, stats(&engine).files), (0, 20));
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
        assert_eq!(engine.append(rows).await.unwrap(), Appended::Duplicate);
        wanted += 5;
        until("the rows are in files", || stats(&engine).hot_rows == 0).await;
        engine.rotate().await.unwrap();
        assert_eq!(messages(&engine.view()).len(), wanted, "round {round}");
    }
    let kept = messages(&engine.view());
    assert_eq!(stats(&engine).rotated_files, 0);
    assert!(stats(&engine).misdated_rows > 0);
    drop(engine);
    for jump in [40 * DAY, -40 * DAY, 0] {
        bench.now.store(right + jump, Ordering::Relaxed);
        let engine = bench.open().await;
        engine.rotate().await.unwrap();
        assert_eq!(messages(&engine.view()), kept, "opened at {jump}");
        engine.close().await.unwrap();
    }
}
