//! The first opening of a data file by a query compares it with its checksum; a damaged one leaves every later view.

use super::*;

/// A store with a sealed file of the hour before, and an open file of this hour; closed.
async fn sealed_and_open(bench: &mut Bench) {
    bench.ticks_every(Duration::from_millis(5));
    let engine = bench.open().await;
    let times: Vec<i64> = (0..50).map(|row| bench.now() - HOUR - row).collect();
    engine.append(batch("old", &times, from_producer(1))).await.unwrap();
    engine.flush().await.unwrap();
    bench.advance(Duration::from_secs(1_200));
    until("the past hour is sealed", || stats(&engine).seals == 1).await;
    let times: Vec<i64> = (0..30).map(|row| bench.now() - row).collect();
    engine.append(batch("new", &times, from_producer(2))).await.unwrap();
    engine.close().await.unwrap();
}

fn flip(path: &Path, at: usize, bit: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1 << bit;
    std::fs::write(path, bytes).unwrap();
}

fn quarantine(bench: &Bench) -> Vec<PathBuf> {
    files_below(&bench.settings.store_dir.join("quarantine"))
}

/// What a query does that meets damage: it begins anew with a new view.
fn rows_after_damage(engine: &Engine) -> usize {
    for _ in 0..4 {
        let view = engine.view();
        let opened = view
            .files(Table::Logs)
            .iter()
            .try_for_each(|segment| segment.open().map(drop));
        match opened {
            Ok(()) => return messages(&view).len(),
            Err(error) => assert!(matches!(error, Error::Damaged { .. }), "{error}"),
        }
    }
    panic!("damage never leaves the view");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_anywhere_in_a_file_takes_it_out_of_every_later_view_and_of_the_tree() {
    // Of flips in the open file: some a start sees, in its footer, the others whoever reads it first.
    let (mut at_start, mut later) = (0, 0);
    for which in [0, 1] {
        let mut bench = Bench::new();
        sealed_and_open(&mut bench).await;
        let victim = bench.tree()[which].clone();
        let whole = std::fs::read(&victim).unwrap();
        for at in (0..whole.len()).step_by(whole.len() / 7) {
            std::fs::write(&victim, &whole).unwrap();
            flip(&victim, at, at % 8);
            let store = bench.dir.path().join("copy");
            copy_tree(&bench.settings.store_dir, &store);
            let mut copied = Bench::new();
            copied.settings.store_dir.clone_from(&store);
            copied.settings.data_dir = store.join("telemetry");
            copied.now.store(bench.now(), Ordering::Relaxed);
            let engine = copied.open().await;
            if stats(&engine).replayed_rows > 0 {
                // The start found the open file damaged, and its rows in the log.
                assert_eq!((which, stats(&engine).replayed_rows), (1, 30), "byte {at}");
                assert_eq!((rows_after_damage(&engine), engine.view().partial()), (80, None));
                assert_eq!((quarantine(&copied).len(), stats(&engine).quarantined_files), (1, 1));
                at_start += 1;
                drop(engine);
                std::fs::remove_dir_all(store).unwrap();
                continue;
            }
            later += which;
            assert_eq!(
                rows_after_damage(&engine),
                if which == 0 { 30 } else { 50 },
                "byte {at}"
            );
            let view = engine.view();
            let partial = view.partial().unwrap();
            let name = victim.file_name().unwrap().to_str().unwrap();
            assert!(partial.contains(name), "{partial}");
            until("it is put aside", || {
                quarantine(&copied).len() == 1 && copied.tree().len() == 1
            })
            .await;
            assert_eq!(stats(&engine).quarantined_files, 1);
            drop(engine);
            std::fs::remove_dir_all(store).unwrap();
        }
    }
    assert!(at_start > 0 && later > 0, "{at_start} {later}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_read_whole_once_and_of_its_later_versions_only_what_was_added() {
    let mut bench = Bench::new();
    sealed_and_open(&mut bench).await;
    bench.ticks_every(Duration::from_secs(3_600));
    let engine = bench.open().await;
    let size = |engine: &Engine| -> u64 { engine.view().files(Table::Logs).iter().map(|file| file.size).sum() };
    assert_eq!(stats(&engine).checked_bytes, 0, "opening a store reads no data file");
    for _ in 0..3 {
        assert_eq!(messages(&engine.view()).len(), 80);
        assert_eq!(stats(&engine).checked_bytes, size(&engine));
    }
    let old = engine.view();
    let more = batch("more", &[bench.now()], from_producer(3));
    engine.append(more).await.unwrap();
    engine.flush().await.unwrap();
    assert_eq!(messages(&engine.view()).len(), 81);
    assert_eq!(messages(&old).len(), 80);
    assert_eq!(stats(&engine).checked_bytes, size(&engine));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_file_that_a_query_finds_damaged_takes_no_more_rows() {
    let mut bench = Bench::new();
    sealed_and_open(&mut bench).await;
    let victim = bench.tree()[1].clone();
    flip(&victim, 40, 3);
    let engine = bench.open().await;
    assert_eq!(rows_after_damage(&engine), 50);
    until("it is put aside", || !victim.exists()).await;
    let more = batch("more", &[bench.now()], from_producer(3));
    engine.append(more).await.unwrap();
    engine.flush().await.unwrap();
    assert_eq!(messages(&engine.view()).len(), 51);
    assert_eq!(engine.health_issue(), None);
    let again = engine.append(batch("new", &[bench.now()], from_producer(2))).await;
    assert_eq!(
        again.unwrap(),
        AppendOutcome::Duplicate,
        "what is gone is not stored again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_from_before_a_seal_that_meets_damage_leaves_the_sealed_file_in_view() {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(5));
    let engine = bench.open().await;
    let times: Vec<i64> = (0..50).map(|row| bench.now() - HOUR - row).collect();
    engine.append(batch("old", &times, from_producer(1))).await.unwrap();
    engine.flush().await.unwrap();
    let before = engine.view();
    bench.advance(Duration::from_secs(1_200));
    until("the past hour is sealed", || stats(&engine).seals == 1).await;
    let retired = files_below(&bench.settings.data_dir.join("../.staging"));
    let retired: Vec<_> = retired.iter().filter(|path| path.extension().is_some()).collect();
    for path in &retired {
        flip(path, 40, 3);
    }
    assert!(
        !retired.is_empty(),
        "the open version is kept for the view that holds it"
    );
    let damaged = before.files(Table::Logs)[0].open();
    assert!(matches!(damaged, Err(Error::Damaged { .. })), "{damaged:?}");
    let view = engine.view();
    assert_eq!((messages(&view).len(), view.partial()), (50, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_answers_say_of_damage_stays_short_however_many_files_are_damaged() {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(5));
    let engine = bench.open().await;
    for seq in 1..=20 {
        let times = [bench.now() - i64::try_from(seq).unwrap() * HOUR];
        engine.append(batch("old", &times, from_producer(seq))).await.unwrap();
    }
    engine.flush().await.unwrap();
    bench.advance(Duration::from_secs(1_200));
    until("all are sealed", || stats(&engine).seals == 20).await;
    for path in bench.tree() {
        flip(&path, 40, 1);
    }
    for segment in engine.view().files(Table::Logs) {
        segment.open().unwrap_err();
    }
    let view = engine.view();
    let partial = view.partial().unwrap();
    assert!(partial.len() < 600 && partial.contains("and 19 more"), "{partial}");
    until("all are put aside", || quarantine(&bench).len() == 20).await;
}
