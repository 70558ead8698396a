//! What a view promises while the store moves on under it.

use super::*;

async fn append(bench: &Bench, engine: &Engine, name: &str) {
    engine
        .append(batch(name, &[bench.now(), bench.now() - 1], BatchOrigin::default()))
        .await
        .unwrap();
}

/// Small files, sealed as soon as they were left alone for a tick.
fn sealing(flush_interval: Duration) -> Bench {
    let mut bench = Bench::new();
    bench.ticks_every(flush_interval);
    bench.settings.seal_grace = Duration::ZERO;
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_view_reads_the_same_rows_through_publishes_and_the_seal() {
    let bench = sealing(Duration::from_millis(20));
    let engine = bench.open().await;
    let mut held = vec![(engine.view(), Vec::new())];
    for name in ["a", "b", "c"] {
        append(&bench, &engine, name).await;
        held.push((engine.view(), messages(&engine.view())));
        engine.flush().await.unwrap();
        held.push((engine.view(), messages(&engine.view())));
    }
    bench.advance(Duration::from_secs(7_200));
    until("the file is sealed", || {
        stats(&engine).seals == 1 && stats(&engine).open_files == 0
    })
    .await;
    let retired = bench.settings.store_dir.join(".staging/retired");
    assert_eq!(
        files_below(&retired).len(),
        1,
        "the open file's bytes are kept for those who hold it"
    );
    for (view, wanted) in &held {
        assert_eq!(messages(view), *wanted);
    }
    drop(held);
    let view = engine.view();
    assert_eq!(messages(&view), ["a/0", "a/1", "b/0", "b/1", "c/0", "c/1"]);
    assert!(view.files(Table::Logs)[0].sealed);
    until("nobody holds it any more", || files_below(&retired).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_after_a_seal_go_into_the_next_number() {
    let bench = sealing(Duration::from_millis(20));
    let engine = bench.open().await;
    append(&bench, &engine, "a").await;
    let late = bench.now();
    bench.advance(Duration::from_secs(7_200));
    until("the file is sealed", || {
        stats(&engine).seals == 1 && stats(&engine).open_files == 0
    })
    .await;
    engine
        .append(batch("late", &[late], BatchOrigin::default()))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    let names: Vec<_> = engine
        .view()
        .files(Table::Logs)
        .iter()
        .map(|file| file.path.file_name().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["logs_001.parquet", "logs_002.parquet"]);
    assert_eq!(messages(&engine.view()), ["a/0", "a/1", "late/0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_at_its_size_is_sealed_and_a_flood_is_sealed_from_memory() {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(20));
    bench.settings.segment_size = ByteSize::bytes(64 << 10);
    let engine = bench.open().await;
    for n in 0..200 {
        let times: Vec<i64> = (0..10).map(|row| bench.now() - row).collect();
        // No compression makes less than twice the size of a file of these, however many rows a tick finds.
        let text: String = (0..40)
            .map(|part| EntityId::for_name(&format!("{n}/{part}")).to_string())
            .collect();
        engine
            .append(batch(&text, &times, BatchOrigin::default()))
            .await
            .unwrap();
    }
    engine.flush().await.unwrap();
    until("the full files are sealed", || {
        stats(&engine).seals > 0 && stats(&engine).open_files <= 1
    })
    .await;
    let view = engine.view();
    assert_eq!(messages(&view).len(), 2_000);
    for file in view.files(Table::Logs).iter().filter(|file| file.sealed) {
        let times: Vec<_> = read(file)
            .iter()
            .flat_map(|batch| {
                (0..batch.num_rows())
                    .map(|row| row_json(batch, row)["ts"].as_str().unwrap().to_owned())
                    .collect::<Vec<_>>()
            })
            .collect();
        assert!(times.is_sorted_by(|a, b| a >= b), "newest first");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_view_under_load_has_each_acknowledged_row_once_and_the_tree_only_finished_files() {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(5));
    bench.settings.segment_size = ByteSize::bytes(64 << 10);
    bench.settings.hot_max = ByteSize::mib(1);
    let engine = bench.open().await;
    let acknowledged = Arc::new(AtomicI64::new(0));
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let watch = {
        let (engine, acknowledged, done) = (Arc::clone(&engine), Arc::clone(&acknowledged), Arc::clone(&done));
        let data_dir = bench.settings.data_dir.clone();
        std::thread::spawn(move || {
            let mut looks = 0;
            while !done.load(Ordering::Acquire) {
                let least = acknowledged.load(Ordering::Acquire);
                let mut seen = messages(&engine.view());
                let rows = seen.len();
                seen.dedup();
                assert_eq!(seen.len(), rows, "a row twice");
                assert!(rows as i64 >= least, "{rows} rows seen, {least} were acknowledged");
                for path in files_below(&data_dir) {
                    assert_eq!(
                        path.extension().and_then(|name| name.to_str()),
                        Some("parquet"),
                        "{}",
                        path.display()
                    );
                    let file = std::fs::File::open(&path).unwrap();
                    ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
                }
                looks += 1;
            }
            looks
        })
    };
    // How many rows fill a file depends on how often they are published.
    let mut n = 0;
    while n < 300 || stats(&engine).seals == 0 {
        let times: Vec<i64> = (0..50).map(|row| bench.now() - row * HOUR / 40).collect();
        engine
            .append(batch(&format!("{n:06}"), &times, from_producer(n + 1)))
            .await
            .unwrap();
        acknowledged.fetch_add(50, Ordering::Release);
        n += 1;
        assert!(n < 30_000, "no file is sealed");
    }
    done.store(true, Ordering::Release);
    assert!(watch.join().unwrap() > 3);
    assert_eq!(messages(&engine.view()).len() as u64, n * 50);
}
