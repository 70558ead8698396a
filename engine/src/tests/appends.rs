//! What an append promises.

use super::restarts::catalogue_log;
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_appended_batch_is_visible_and_in_the_log_when_append_returns() {
    let bench = Bench::new();
    let engine = bench.open().await;
    let answer = engine
        .append(batch("a", &[bench.now(), bench.now() - 5], BatchOrigin::default()))
        .await
        .unwrap();
    assert_eq!(answer, stored(2));
    assert_eq!(messages(&engine.view()), ["a/0", "a/1"]);
    assert!(bench.tree().is_empty(), "nothing was published");
    drop(engine);
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()), ["a/0", "a/1"]);
    assert_eq!(stats(&engine).replayed_rows, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_stored_once_however_often_and_wherever_it_comes() {
    let bench = Bench::new();
    let engine = bench.open().await;
    let send = |engine: &Arc<Engine>| {
        let engine = Arc::clone(engine);
        let batch = batch("a", &[bench.now()], from_producer(1));
        async move { engine.append(batch).await.unwrap() }
    };
    let (a, b, c) = tokio::join!(send(&engine), send(&engine), send(&engine));
    let stored_times = [a, b, c].iter().filter(|answer| **answer == stored(1)).count();
    assert_eq!(stored_times, 1, "of concurrent ones");
    engine.flush().await.unwrap();
    assert_eq!(send(&engine).await, AppendOutcome::Duplicate, "after its publish");
    drop(engine);
    let engine = bench.open().await;
    assert_eq!(send(&engine).await, AppendOutcome::Duplicate, "after a restart");
    assert_eq!(messages(&engine.view()), ["a/0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_known_by_stream_incarnation_and_sequence_and_the_tail_says_how_far() {
    let bench = Bench::new();
    let mut engine = bench.open().await;
    let send = async |engine: &Engine, name: &str, incarnation, seq, identity| {
        let bus = from_bus(seq).bus.map(|position| BusPosition {
            incarnation,
            identity,
            ..position
        });
        let origin = BatchOrigin {
            bus,
            ..BatchOrigin::default()
        };
        engine.append(batch(name, &[bench.now()], origin)).await.unwrap()
    };
    assert_eq!(engine.stream_tail("flux-telemetry", 500), None);
    assert_eq!(send(&engine, "9", 500, 9, 90).await, stored(1));
    assert_eq!(send(&engine, "lost by the bus", 500, 10, 100).await, stored(1));
    assert_eq!(send(&engine, "10 again", 501, 10, 101).await, stored(1));
    assert_eq!(send(&engine, "8 again", 501, 8, 81).await, stored(1));
    for round in 0..3 {
        if round == 1 {
            // What is stored is in the log alone.
            drop(engine);
            engine = bench.open().await;
        }
        if round == 2 {
            engine.close().await.unwrap();
            engine = bench.open().await;
        }
        for (incarnation, seq) in [(500, 9), (500, 10), (501, 10), (501, 8)] {
            // Only the tail is looked at for its identity.
            let again = send(&engine, "again", incarnation, seq, 7).await;
            assert_eq!(again, AppendOutcome::Duplicate, "{incarnation} {seq}");
        }
        let tail = crate::StreamTail {
            incarnation: 501,
            last: 10,
            newest: Some((10, 101)),
        };
        assert_eq!(engine.stream_tail("flux-telemetry", 500), Some(tail), "round {round}");
        let all = ["10 again/0", "8 again/0", "9/0", "lost by the bus/0"];
        assert_eq!(messages(&engine.view()), all);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_records_hold_of_a_stream_with_gaps_is_small_once_its_floor_is_raised() {
    let bench = Bench::new();
    let engine = bench.open().await;
    let record = async |seq| {
        let one = batch("a", &[bench.now()], from_bus(seq));
        engine.append(one).await.unwrap();
        let before = catalogue_log(&bench).1;
        engine.flush().await.unwrap();
        catalogue_log(&bench).1 - before
    };
    let small = record(2).await;
    for n in 2..=1_000 {
        let one = batch("a", &[bench.now()], from_bus(2 * n));
        engine.append(one).await.unwrap();
    }
    let large = record(2_002).await;
    assert!(large > small + 1_500, "{large} bytes, {small} before");
    engine.raise_stream_floor("flux-telemetry", 1, 2_002);
    let small_again = record(2_004).await;
    assert!(small_again < small + 64, "{small_again} bytes, {small} before");
    for seq in [2, 1_001, 2_004] {
        let again = engine.append(batch("b", &[bench.now()], from_bus(seq))).await;
        assert_eq!(again.unwrap(), AppendOutcome::Duplicate, "{seq}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_floor_follows_what_is_stored_or_settled_and_survives_everything() {
    let bench = Bench::new();
    let engine = bench.open().await;
    for seq in [1, 2, 4, 7] {
        engine
            .append(batch("a", &[bench.now()], from_producer(seq)))
            .await
            .unwrap();
    }
    assert_eq!(floor(&engine), 2);
    engine.flush().await.unwrap();
    let origin = BatchOrigin {
        settled: 6,
        ..from_producer(8)
    };
    engine.append(batch("b", &[bench.now()], origin)).await.unwrap();
    assert_eq!(floor(&engine), 8);
    drop(engine);
    let engine = bench.open().await;
    assert_eq!(floor(&engine), 8, "partly from the catalogue, partly from the log");
    engine.close().await.unwrap();
    let engine = bench.open().await;
    assert_eq!(floor(&engine), 8);
    assert_eq!(engine.floor(EntityId::for_name("rack-b"), 1), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn absurd_times_are_kept_in_the_hour_of_their_arrival_with_the_original_noted() {
    let bench = Bench::new();
    let engine = bench.open().await;
    let times = [i64::MIN, 0, bench.now() - HOUR, bench.now() + 2 * HOUR, i64::MAX];
    engine.append(batch("a", &times, BatchOrigin::default())).await.unwrap();
    assert_eq!(stats(&engine).out_of_range_rows, 4);
    engine.flush().await.unwrap();
    let names: Vec<_> = bench
        .tree()
        .iter()
        .map(|path| path.strip_prefix(&bench.settings.data_dir).unwrap().to_owned())
        .collect();
    assert_eq!(
        names,
        [
            PathBuf::from("logs/2026/11/21/11/logs_001.parquet"),
            PathBuf::from("logs/2026/11/21/12/logs_001.parquet")
        ]
    );
    let rows = all_rows(&engine.view());
    for (row, original) in rows.iter().zip(times) {
        let original = Timestamp::from_micros(original).to_string();
        let noted = row["attributes"].get("_ts_original").and_then(Value::as_str);
        if row["message"] == "a/2" {
            assert_eq!((row["ts"].as_str(), noted), (Some(original.as_str()), None));
        } else {
            assert_eq!(noted, Some(original.as_str()));
            assert_eq!(row["ts"], Timestamp::from_micros(bench.now()).to_string());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_can_never_fit_is_refused_with_its_size_and_rows_of_another_table_by_name() {
    let mut bench = Bench::new();
    bench.settings.wal_max = ByteSize::mib(1);
    let engine = bench.open().await;
    let mut large = batch("a", &[bench.now()], BatchOrigin::default());
    large.payload = vec![0; 2 << 20].into();
    assert!(matches!(engine.append(large).await, Err(Error::TooLarge { .. })));
    let mut other = batch("a", &[bench.now()], BatchOrigin::default());
    other.table = Table::Metrics;
    assert!(matches!(engine.append(other).await, Err(Error::Rows { .. })));
    assert!(messages(&engine.view()).is_empty());
}

/// Appends `count` batches of about 10 kB each, as many at once as `at_once` says.
async fn flood(engine: &Arc<Engine>, now: i64, count: u64, at_once: usize) {
    let mut tasks = tokio::task::JoinSet::new();
    for seq in 1..=count {
        if tasks.len() >= at_once {
            tasks.join_next().await.unwrap().unwrap();
        }
        let engine = Arc::clone(engine);
        tasks.spawn(async move {
            let batch = batch(&format!("{seq:05}"), &vec![now; 100], from_producer(seq));
            assert_eq!(engine.append(batch).await.unwrap(), stored(100));
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_cap_of_hot_rows_appends_wait_and_nothing_is_lost() {
    let mut bench = Bench::new();
    bench.settings.hot_max = ByteSize::mib(1);
    let engine = bench.open().await;
    flood(&engine, bench.now(), 400, 64).await;
    assert!(stats(&engine).flushes > 0, "crowded memory publishes before the tick");
    assert!(stats(&engine).memtable_bytes <= 1 << 20);
    assert_eq!(messages(&engine.view()).len(), 40_000);
    assert_eq!(floor(&engine), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_cap_of_the_log_appends_wait_and_nothing_is_lost() {
    let mut bench = Bench::new();
    bench.settings.wal_max = ByteSize::mib(1);
    let engine = bench.open().await;
    flood(&engine, bench.now(), 400, 64).await;
    let log: u64 = files_below(&bench.settings.store_dir.join("wal"))
        .iter()
        .map(|path| path.metadata().unwrap().len())
        .sum();
    assert!(log <= 1 << 20, "the log takes {log} bytes");
    assert_eq!(messages(&engine.view()).len(), 40_000);
    drop(engine);
    assert_eq!(messages(&bench.open().await.view()).len(), 40_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_refuses_what_waits_and_what_comes_later() {
    let mut bench = Bench::new();
    bench.settings.hot_max = ByteSize::mib(1);
    let engine = bench.open().await;
    let mut waiting = tokio::task::JoinSet::new();
    for seq in 1..=300 {
        let engine = Arc::clone(&engine);
        let batch = batch(&format!("{seq:05}"), &vec![bench.now(); 100], from_producer(seq));
        waiting.spawn(async move { engine.append(batch).await });
    }
    until("something is stored", || stats(&engine).appended_batches > 0).await;
    engine.close().await.unwrap();
    engine.close().await.unwrap();
    let mut kept = 0;
    while let Some(answer) = waiting.join_next().await {
        match answer.unwrap() {
            Ok(answer) => {
                assert_eq!(answer, stored(100));
                kept += 100;
            }
            Err(error) => assert!(matches!(error, Error::Closed), "{error}"),
        }
    }
    assert!(matches!(
        engine.append(batch("z", &[bench.now()], BatchOrigin::default())).await,
        Err(Error::Closed)
    ));
    assert!(matches!(engine.flush().await, Err(Error::Closed)));
    assert_eq!(messages(&engine.view()).len(), kept, "the view stays readable");
    assert_eq!(stats(&engine).memtable_rows, 0, "everything is published");
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()).len(), kept);
    assert_eq!(stats(&engine).replayed_rows, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_request_is_stored_once_also_after_sudden_and_orderly_ends() {
    let bench = Bench::new();
    let id = uuid::Uuid::from_u128(42);
    let part = |from| BatchOrigin {
        request: Some(crate::RequestPart {
            id,
            sender: 3,
            digest: 9,
            from,
            to: from + 10,
        }),
        ..BatchOrigin::default()
    };
    let engine = bench.open().await;
    assert_eq!(engine.request(3, id), None);
    let send = || engine.append(batch("a", &[bench.now()], part(0)));
    let (first, second) = tokio::join!(send(), send());
    assert_eq!([first.unwrap(), second.unwrap()], [stored(1), AppendOutcome::Duplicate]);
    drop(engine);
    for round in 0..2 {
        let engine = bench.open().await;
        let known = crate::StoredRequest {
            digest: 9,
            through: 10 * (round + 1),
        };
        assert_eq!(engine.request(3, id), Some(known), "round {round}");
        for origin in [part(0), part(10 * round)] {
            let again = engine.append(batch("a", &[bench.now()], origin)).await.unwrap();
            assert_eq!(again, AppendOutcome::Duplicate, "round {round}");
        }
        let next = engine
            .append(batch("b", &[bench.now()], part(10 * (round + 1))))
            .await
            .unwrap();
        assert_eq!(next, stored(1));
        engine.close().await.unwrap();
    }
    assert_eq!(messages(&bench.open().await.view()), ["a/0", "b/0", "b/0"]);
}
