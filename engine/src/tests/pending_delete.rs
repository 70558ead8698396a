//! How an expired partition leaves the tree: in one step, when nobody holds a file of it, and nothing else with it.

use durable_fs::fault_injection::{FaultInjector, FsOperation};

use super::retention::{DAY, by, pass};
use super::*;
use crate::RetentionPolicy;

/// A store with an hour of two files that is too old, and has not been checked since.
async fn an_hour_of_two_files(bench: &mut Bench) -> (Arc<Engine>, PathBuf) {
    bench.settings.rotation = by(RetentionPolicy::Time, ByteSize::bytes(1));
    let engine = bench.open().await;
    for seq in 1..=2 {
        let rows = batch(&seq.to_string(), &[bench.now() - 2 * HOUR], from_producer(seq));
        engine.append(rows).await.unwrap();
        engine.flush().await.unwrap();
        pass(bench, &engine, 600);
        until("it is sealed", || stats(&engine).open_files == 0).await;
    }
    let hour = bench.tree()[0].parent().unwrap().to_owned();
    assert_eq!(files_below(&hour).len(), 2);
    pass(bench, &engine, 40 * DAY);
    (engine, hour)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_leaves_the_tree_in_one_step_when_nobody_holds_a_file_of_it() {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(5));
    let (engine, hour) = an_hour_of_two_files(&mut bench).await;
    let one = Arc::clone(&engine.view().files(Table::Logs)[1]);
    let faults = FaultInjector::below(&bench.settings.store_dir);
    faults.fail(FsOperation::Remove, "logs_00", usize::MAX, libc::EIO);
    assert_eq!(engine.rotate().await.unwrap().removed.len(), 1);
    assert_eq!(files_below(&hour).len(), 2, "one is held: both stay");
    assert_eq!(read(&one).len(), 1);
    drop(one);
    let year = bench.settings.data_dir.join("logs/2026");
    until("the hour has left the tree, with folders that are empty then", || {
        !year.exists()
    })
    .await;
    let aside = || {
        let mut left = files_below(&bench.settings.store_dir.join(".staging"));
        left.retain(|path| path.to_string_lossy().contains("expired_"));
        left.len()
    };
    assert_eq!(aside(), 2, "no file of it can be unlinked");
    // A sudden end: the next start clears it away.
    drop((engine, faults));
    let engine = bench.open().await;
    assert_eq!((aside(), stats(&engine).files, engine.view().partial()), (0, 0, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_file_stays_where_it_is_when_the_partition_beside_it_goes() {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(5));
    let (engine, hour) = an_hour_of_two_files(&mut bench).await;
    std::fs::write(hour.join("notes.txt"), "keep me").unwrap();
    assert_eq!(engine.rotate().await.unwrap().removed.len(), 1);
    // Whoever looks at a file of it just now keeps it there for as long.
    until("its own files have left", || {
        files_below(&hour) == [hour.join("notes.txt")]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_unlinked_one_by_one_where_their_folder_cannot_be_moved() {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(5));
    let (engine, hour) = an_hour_of_two_files(&mut bench).await;
    let faults = FaultInjector::below(&bench.settings.data_dir);
    faults.fail(FsOperation::Rename, hour.to_str().unwrap(), 1, libc::EXDEV);
    assert_eq!(engine.rotate().await.unwrap().removed.len(), 1);
    // Whoever looks at a file of it just now keeps it there for as long.
    until("its files have left", || !hour.exists()).await;
    assert_eq!(faults.left(), 0);
}
