//! A log that is longer than memory is for: published while it is read, each row once, whatever refuses on the way.

use durable_fs::fault_injection::{FaultInjector, FsOperation};

use super::*;

const BATCHES: u64 = 120;
const ROWS: i64 = 400;

/// A store whose log has a few MiB of rows of which none is published, after a sudden end; then memory is small.
async fn with_a_long_log() -> Bench {
    let mut bench = Bench::new();
    bench.settings.flush_interval = Duration::from_secs(3_600);
    bench.settings.hot_max = ByteSize::mib(64);
    let engine = bench.open().await;
    for seq in 1..=BATCHES {
        // Every tenth has rows of an hour before.
        let late = if seq % 10 == 0 { 3_600_000_000 } else { 0 };
        let times: Vec<i64> = (0..ROWS).map(|n| bench.now() - late - n).collect();
        let name = format!("{seq:03}");
        engine.append(batch(&name, &times, from_producer(seq))).await.unwrap();
    }
    assert_eq!(stats(&engine).flushes, 0);
    drop(engine);
    bench.settings.hot_max = ByteSize::mib(1);
    bench.settings.group_max = ByteSize::bytes(256 << 10);
    bench
}

fn check_rows(engine: &Engine) {
    let mut found = messages(&engine.view());
    found.sort();
    let all = (1..=BATCHES).flat_map(|seq| (0..ROWS).map(move |n| format!("{seq:03}/{n}")));
    let mut all: Vec<_> = all.collect();
    all.sort();
    assert_eq!(found.len(), all.len());
    assert!(found == all, "each row once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_longer_than_memory_is_published_while_it_is_read_and_memory_keeps_its_cap() {
    let bench = with_a_long_log().await;
    let engine = bench.open().await;
    let opened = stats(&engine);
    assert_eq!(opened.replayed_rows, BATCHES * ROWS as u64);
    assert!(opened.flushes > 1, "{opened:?}");
    check_rows(&engine);
    // A batch may pass the cap before it is noticed.
    assert!(opened.memtable_bytes <= (1 << 20) + (256 << 10), "{opened:?}");
    // A second sudden end: what was published is not read again.
    drop(engine);
    let engine = bench.open().await;
    assert!(stats(&engine).replayed_rows < BATCHES * ROWS as u64);
    check_rows(&engine);
    engine
        .append(batch("001", &[bench.now()], from_producer(1)))
        .await
        .unwrap();
    engine.close().await.unwrap();
    let engine = bench.open().await;
    check_rows(&engine);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_opens_with_all_rows_in_memory_where_none_can_be_published() {
    let bench = with_a_long_log().await;
    let faults = FaultInjector::below(&bench.settings.store_dir);
    faults.fail(FsOperation::Create, ".twin", usize::MAX, libc::ENOSPC);
    let engine = bench.open().await;
    let opened = stats(&engine);
    assert!(opened.flush_failures > 0 && opened.flushes == 0, "{opened:?}");
    check_rows(&engine);
    drop(faults);
    engine.flush().await.unwrap();
    assert_eq!(stats(&engine).memtable_rows, 0);
    check_rows(&engine);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_cannot_tell_what_is_on_the_disk_fails_and_the_next_one_has_every_row() {
    let bench = with_a_long_log().await;
    let faults = FaultInjector::below(&bench.settings.store_dir);
    faults.fail(FsOperation::SyncFolder, "telemetry", 1, libc::EIO);
    let refused = bench.try_open().await.map(|_| ()).unwrap_err();
    assert!(refused.is_in_doubt(), "{refused}");
    assert_eq!(faults.left(), 0);
    let engine = bench.open().await;
    check_rows(&engine);
}
