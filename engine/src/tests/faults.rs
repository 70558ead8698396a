//! What the engine does when the disk does not do what it is told.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_cannot_be_published_stay_visible_and_are_published_when_they_can() {
    let mut bench = Bench::new();
    bench.settings.flush_interval = Duration::from_millis(20);
    let engine = bench.open().await;
    // A file where the table's folder should be: no data file can be created.
    let table_dir = bench.settings.data_dir.join("logs");
    std::fs::write(&table_dir, "").unwrap();
    engine
        .append(batch("a", &[bench.now()], Origin::default()))
        .await
        .unwrap();
    assert!(matches!(engine.flush().await, Err(Error::Publishing { .. })));
    assert!(matches!(engine.trouble(), Some(crate::Trouble::Publishing(_))));
    engine
        .append(batch("b", &[bench.now()], Origin::default()))
        .await
        .unwrap();
    assert_eq!(messages(&engine.view()), ["a/0", "b/0"]);
    std::fs::remove_file(&table_dir).unwrap();
    until("everything is published", || stats(&engine).hot_rows == 0).await;
    assert_eq!(engine.trouble(), None);
    assert_eq!(messages(&engine.view()), ["a/0", "b/0"]);
    drop(engine);
    assert_eq!(messages(&bench.open().await.view()), ["a/0", "b/0"]);
}
