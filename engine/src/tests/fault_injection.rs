//! What the engine does when the disk does not do what it is told.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_cannot_be_published_stay_visible_and_are_published_when_they_can() {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(20));
    let engine = bench.open().await;
    // A file where the table's folder should be: no data file can be created.
    let table_dir = bench.settings.data_dir.join("logs");
    std::fs::write(&table_dir, "").unwrap();
    engine
        .append(batch("a", &[bench.now()], BatchOrigin::default()))
        .await
        .unwrap();
    assert!(matches!(engine.flush().await, Err(Error::Publishing { .. })));
    assert!(matches!(engine.health_issue(), Some(crate::HealthIssue::Publishing(_))));
    engine
        .append(batch("b", &[bench.now()], BatchOrigin::default()))
        .await
        .unwrap();
    assert_eq!(messages(&engine.view()), ["a/0", "b/0"]);
    std::fs::remove_file(&table_dir).unwrap();
    until("everything is published", || stats(&engine).memtable_rows == 0).await;
    until("all is well", || engine.health_issue().is_none()).await;
    assert_eq!(messages(&engine.view()), ["a/0", "b/0"]);
    drop(engine);
    assert_eq!(messages(&bench.open().await.view()), ["a/0", "b/0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_somebody_took_costs_a_number_and_nothing_else() {
    let bench = Bench::new();
    let engine = bench.open().await;
    let folder = bench.settings.data_dir.join("logs/2026/11/21/12");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("logs_001.parquet"), "somebody else's").unwrap();
    engine
        .append(batch("a", &[bench.now()], BatchOrigin::default()))
        .await
        .unwrap();
    assert!(matches!(engine.flush().await, Err(Error::Publishing { .. })));
    engine.flush().await.unwrap();
    assert_eq!(messages(&engine.view()), ["a/0"]);
    assert_eq!(bench.tree().last().unwrap().file_name().unwrap(), "logs_002.parquet");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_sync_nothing_is_acknowledged_and_what_was_stays_visible() {
    let bench = Bench::new();
    let engine = bench.open().await;
    engine
        .append(batch("a", &[bench.now()], from_producer(1)))
        .await
        .unwrap();
    engine.shared.hooks.fail_log_syncs.now();
    let lost = engine.append(batch("b", &[bench.now()], from_producer(2))).await;
    assert!(matches!(lost, Err(Error::Poisoned { .. })), "{lost:?}");
    let later = engine.append(batch("c", &[bench.now()], from_producer(3))).await;
    assert!(matches!(later, Err(Error::Poisoned { .. })), "{later:?}");
    assert_eq!(messages(&engine.view()), ["a/0"]);
    assert!(engine.poisoned().await.contains("sync"));
    assert!(matches!(engine.health_issue(), Some(crate::HealthIssue::Poisoned(_))));
    assert!(matches!(engine.flush().await, Err(Error::Publishing { .. })));
    assert!(matches!(engine.close().await, Err(Error::Poisoned { .. })));
    drop(engine);
    let engine = bench.open().await;
    let seen = messages(&engine.view());
    assert!(seen == ["a/0"] || seen == ["a/0", "b/0"], "{seen:?}");
    let again = engine
        .append(batch("b", &[bench.now()], from_producer(2)))
        .await
        .unwrap();
    assert_eq!(
        again == AppendOutcome::Duplicate,
        seen.len() == 2,
        "redelivered, it is stored once"
    );
    assert_eq!(messages(&engine.view()), ["a/0", "b/0"]);
}
