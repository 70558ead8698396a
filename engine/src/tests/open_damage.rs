//! An open file that is damaged while the store runs costs what was in it, and nothing after it.

use durable_fs::fault_injection::{FaultInjector, FsOperation};

use super::*;

/// A store whose open file of this hour has two rows of two publishes.
async fn two_published(bench: &Bench) -> Arc<Engine> {
    let engine = bench.open().await;
    for (seq, name) in [(1, "a"), (2, "b")] {
        let rows = batch(name, &[bench.now()], from_producer(seq));
        engine.append(rows).await.unwrap();
        engine.flush().await.unwrap();
    }
    engine
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn names(files: &[PathBuf]) -> Vec<&str> {
    files
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap())
        .collect()
}

fn quarantine(bench: &Bench) -> Vec<PathBuf> {
    files_below(&bench.settings.store_dir.join("quarantine"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bit_that_flips_in_an_open_file_costs_its_rows_and_publishing_goes_on_in_the_next_number() {
    let bench = Bench::new();
    let engine = two_published(&bench).await;
    let victim = bench.tree()[0].clone();
    // In the rows of the second publish: the third one copies them.
    let end = std::fs::metadata(&victim).unwrap().len();
    assert_eq!(engine.view().files(Table::Logs)[0].size, end);
    let metadata = engine.view().files(Table::Logs)[0].metadata().unwrap();
    let (second, _) = metadata.row_group(1).column(0).byte_range();
    flip(&victim, usize::try_from(second).unwrap() + 10);
    for (seq, name) in [(3, "c"), (4, "d")] {
        engine
            .append(batch(name, &[bench.now()], from_producer(seq)))
            .await
            .unwrap();
        engine.flush().await.unwrap();
    }
    let view = engine.view();
    assert_eq!(messages(&view), ["c/0", "d/0"]);
    let partial = view.partial().unwrap();
    assert!(
        partial.contains(victim.to_str().unwrap()) && partial.contains("2 rows"),
        "{partial}"
    );
    assert_eq!(names(&bench.tree()), ["logs_002.parquet"]);
    assert_eq!(quarantine(&bench).len(), 1);
    let seen = stats(&engine);
    assert_eq!(
        (seen.quarantined_files, seen.memtable_rows, seen.flush_failures),
        (1, 0, 0)
    );
    assert_eq!(engine.health_issue(), None);
    drop(engine);
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()), ["c/0", "d/0"]);
    assert_eq!(engine.view().partial(), None, "the catalogue has let go of it");
    assert_eq!((floor(&engine), names(&bench.tree())), (4, vec!["logs_002.parquet"]));
    for (seq, name) in [(2, "b"), (4, "d")] {
        let again = engine.append(batch(name, &[bench.now()], from_producer(seq))).await;
        assert_eq!(again.unwrap(), AppendOutcome::Duplicate);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_from_before_a_quarantine_learns_of_the_damage() {
    let bench = Bench::new();
    let engine = two_published(&bench).await;
    let (older, other) = (engine.view(), engine.view());
    let victim = bench.tree()[0].clone();
    flip(&victim, 30);
    let found = other.files(Table::Logs)[0].open();
    assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
    // The flusher puts it aside before it publishes more.
    engine
        .append(batch("c", &[bench.now()], from_producer(3)))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    until("it has left the tree", || !victim.exists()).await;
    let file = &older.files(Table::Logs)[0];
    for missing in [file.open().err(), file.metadata().err()] {
        assert!(matches!(missing, Some(Error::Damaged { .. })), "{missing:?}");
    }
    assert_eq!(stats(&engine).quarantined_files, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_partitions_do_not_notice_and_a_file_that_was_cut_is_damaged_too() {
    let bench = Bench::new();
    let engine = two_published(&bench).await;
    let victim = bench.tree()[0].clone();
    let whole = std::fs::read(&victim).unwrap();
    std::fs::write(&victim, &whole[..whole.len() - 1]).unwrap();
    let times = [bench.now(), bench.now() - HOUR];
    engine.append(batch("c", &times, from_producer(3))).await.unwrap();
    engine.flush().await.unwrap();
    assert_eq!(messages(&engine.view()), ["c/0", "c/1"]);
    assert_eq!(names(&bench.tree()), ["logs_001.parquet", "logs_002.parquet"]);
    assert_eq!(stats(&engine).quarantined_files, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_open_file_is_never_sealed_as_if_it_were_right() {
    for cut in [false, true] {
        not_sealed(cut).await;
    }
}

async fn not_sealed(cut: bool) {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(5));
    let engine = two_published(&bench).await;
    let victim = bench.tree()[0].clone();
    if cut {
        std::fs::write(&victim, &std::fs::read(&victim).unwrap()[..30]).unwrap();
    } else {
        flip(&victim, 30);
    }
    bench.advance(Duration::from_secs(7_200));
    until("it is put aside", || stats(&engine).quarantined_files == 1).await;
    until("it has left the tree", || !victim.exists()).await;
    assert_eq!(messages(&engine.view()), [""; 0]);
    assert!(engine.view().partial().unwrap().contains("2 rows"));
    let seen = stats(&engine);
    assert_eq!((seen.seals, seen.files), (0, 0));
    until("its entry has gone", || {
        engine.shared.store.catalog.lock().state().files().next().is_none()
    })
    .await;
    let rows = batch("c", &[bench.now() - 2 * HOUR], from_producer(3));
    engine.append(rows).await.unwrap();
    engine.flush().await.unwrap();
    assert_eq!(messages(&engine.view()), ["c/0"]);
    engine.close().await.unwrap();
    drop(engine);
    assert_eq!(messages(&bench.open().await.view()), ["c/0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_quarantine_refuses_rows_go_on_all_the_same_and_the_next_start_says_it_again() {
    let bench = Bench::new();
    let engine = two_published(&bench).await;
    let victim = bench.tree()[0].clone();
    let end = std::fs::metadata(&victim).unwrap().len() as usize;
    flip(&victim, end - 20);
    let faults = FaultInjector::below(bench.dir.path());
    faults.fail(FsOperation::Rename, "logs_001.parquet", 1, libc::EIO);
    engine
        .append(batch("c", &[bench.now()], from_producer(3)))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    assert_eq!(faults.left(), 0);
    assert_eq!(messages(&engine.view()), ["c/0"]);
    drop(engine);
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()), ["c/0"]);
    assert!(engine.view().partial().unwrap().contains("logs_001.parquet"));
    assert_eq!(quarantine(&bench).len(), 1);
}

/// The store's folders as they are now, to be put back.
fn copy_of(bench: &Bench) -> PathBuf {
    let before = bench.dir.path().join("before");
    for part in ["meta", "wal"] {
        copy_tree(&bench.settings.store_dir.join(part), &before.join(part));
    }
    before
}

fn put_back(bench: &Bench, before: &Path) {
    for part in ["meta", "wal"] {
        let path = bench.settings.store_dir.join(part);
        std::fs::remove_dir_all(&path).unwrap();
        copy_tree(&before.join(part), &path);
    }
}

/// Two batches, each with a row of this hour and one of the hour before, in two open files; that of this hour is damaged then.
async fn damaged_between_two_starts() -> (Bench, PathBuf) {
    let bench = Bench::new();
    let engine = bench.open().await;
    for (seq, name) in [(1, "a"), (2, "b")] {
        let times = [bench.now(), bench.now() - HOUR];
        engine.append(batch(name, &times, from_producer(seq))).await.unwrap();
        engine.flush().await.unwrap();
    }
    drop(engine);
    let victim = bench.tree()[1].clone();
    let end = std::fs::metadata(&victim).unwrap().len();
    flip(&victim, usize::try_from(end).unwrap() - 20);
    (bench, victim)
}

const BOTH_HOURS: [&str; 4] = ["a/0", "a/1", "b/0", "b/1"];

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_damaged_open_file_that_the_log_has_are_stored_anew_whatever_ends_the_next_starts() {
    let (bench, victim) = damaged_between_two_starts().await;
    for start in 0..3 {
        let engine = bench.open().await;
        let view = engine.view();
        assert_eq!(
            (messages(&view), view.partial()),
            (BOTH_HOURS.map(str::to_owned).to_vec(), None),
            "{start}"
        );
        let seen = stats(&engine);
        assert_eq!(
            (seen.replayed_rows, seen.memtable_rows, seen.quarantined_files),
            (2, 2, u64::from(start == 0))
        );
        assert!(!victim.exists());
    }
    assert_eq!(quarantine(&bench).len(), 1);
    let engine = bench.open().await;
    let again = engine.append(batch("b", &[bench.now()], from_producer(2))).await;
    assert_eq!(again.unwrap(), AppendOutcome::Duplicate);
    engine
        .append(batch("c", &[bench.now()], from_producer(3)))
        .await
        .unwrap();
    // A publish whose record is lost, twice: the file is adopted, and nothing doubled.
    let before = copy_of(&bench);
    engine.flush().await.unwrap();
    drop(engine);
    for _ in 0..2 {
        put_back(&bench, &before);
        let engine = bench.open().await;
        let view = engine.view();
        assert_eq!(messages(&view), ["a/0", "a/1", "b/0", "b/1", "c/0"]);
        assert_eq!((view.partial(), stats(&engine).memtable_rows), (None, 0));
    }
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()), ["a/0", "a/1", "b/0", "b/1", "c/0"]);
    assert_eq!(names(&bench.tree()), ["logs_001.parquet", "logs_002.parquet"]);
    assert!(engine.shared.store.catalog.lock().state().replay().is_empty());
    assert_eq!(floor(&engine), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_leaves_to_the_next_start_what_the_log_has_of_a_damaged_open_file() {
    let (bench, victim) = damaged_between_two_starts().await;
    let report = crate::repair_store(&bench.settings, true, |_, _| {}, |_| {}).unwrap();
    assert_eq!(report.problems.len(), 1);
    assert!(!victim.exists());
    for _ in 0..2 {
        let engine = bench.open().await;
        assert_eq!(messages(&engine.view()), BOTH_HOURS);
        engine.close().await.unwrap();
    }
    assert_eq!(bench.open().await.view().partial(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_interrupted_after_a_quarantine_loses_nothing_at_the_next_start() {
    let (bench, victim) = damaged_between_two_starts().await;
    let before = copy_of(&bench);
    drop(bench.open().await);
    assert!(!victim.exists());
    put_back(&bench, &before);
    let engine = bench.open().await;
    assert_eq!(
        (messages(&engine.view()), engine.view().partial()),
        (BOTH_HOURS.map(str::to_owned).to_vec(), None)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn only_rows_released_from_the_log_are_lost_and_they_are_reported() {
    let bench = Bench::new();
    let engine = bench.open().await;
    engine
        .append(batch("a", &[bench.now()], from_producer(1)))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    // As much as the segment that has the first batch does not have room for.
    let large = "x".repeat(2 << 20);
    for seq in 2..=8 {
        engine
            .append(batch(&large, &[bench.now() - HOUR], from_producer(seq)))
            .await
            .unwrap();
        engine.flush().await.unwrap();
    }
    engine
        .append(batch("b", &[bench.now()], from_producer(9)))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    drop(engine);
    let victim = bench.tree().pop().unwrap();
    let end = std::fs::metadata(&victim).unwrap().len();
    flip(&victim, usize::try_from(end).unwrap() - 20);
    for partial in [true, false] {
        let engine = bench.open().await;
        let view = engine.view();
        let rows = messages(&view);
        assert_eq!((rows.len(), rows.contains(&"b/0".to_owned())), (8, true));
        let said = view.partial().map(str::to_owned);
        assert_eq!(
            said.is_some_and(|said| said.contains("1 of its 2 rows are lost")),
            partial
        );
        engine.close().await.unwrap();
    }
}
