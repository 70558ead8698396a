//! Old data goes, and nothing else does.

use std::collections::BTreeMap;

use durable_fs::fault_injection::{FaultInjector, FsOperation};
use proptest::prelude::*;

use super::*;
use crate::{RetentionPolicy, RetentionReason, RetentionRun, RetentionSettings};

pub(super) const DAY: u64 = 86_400;

/// Time passes, for the clock and for the counter that nobody sets.
pub(super) fn pass(bench: &Bench, engine: &Engine, seconds: u64) {
    bench.advance(Duration::from_secs(seconds));
    engine.shared.time.skew.fetch_add(seconds, Ordering::Relaxed);
}

pub(super) fn by(policy: RetentionPolicy, max_size: ByteSize) -> RetentionSettings {
    RetentionSettings {
        policy,
        max_size,
        check_interval: Duration::from_secs(DAY * 365 * 100),
    }
}

/// A store with rows of three hours: `a` two hours ago, `b` an hour ago, `c` now.
async fn three_hours(bench: &Bench) -> Arc<Engine> {
    let engine = bench.open().await;
    for (n, name) in ["c", "b", "a"].iter().enumerate() {
        let times = [bench.now() - n as i64 * HOUR];
        engine
            .append(batch(name, &times, from_producer(n as u64 + 1)))
            .await
            .unwrap();
    }
    engine.flush().await.unwrap();
    engine
}

fn partitions(run: &RetentionRun) -> Vec<&str> {
    run.removed.iter().map(|removal| removal.partition.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_partitions_go_with_their_folders_and_watermarks_and_names_stay() {
    let bench = Bench::new();
    let engine = three_hours(&bench).await;
    assert_eq!(engine.rotate().await.unwrap().removed, []);
    // The hour of `a` ended at 11:00, thirty days before this.
    pass(&bench, &engine, 30 * DAY - 5_400);
    let run = engine.rotate().await.unwrap();
    assert_eq!(partitions(&run), ["2026/11/21/10"]);
    let removal = &run.removed[0];
    assert_eq!((removal.table, removal.files, removal.rows), (Table::Logs, 1, 1));
    assert_eq!(removal.reason, RetentionReason::Age);
    assert_eq!(messages(&engine.view()), ["b/0", "c/0"]);
    assert!(!bench.settings.data_dir.join("logs/2026/11/21/10").exists());
    assert!(bench.settings.data_dir.join("logs/2026/11/21/11").exists());
    let seen = stats(&engine);
    assert_eq!(
        (seen.rotated_partitions, seen.rotated_files, seen.rotated_rows),
        (1, 1, 1)
    );
    assert_eq!(seen.rotated_bytes, removal.bytes);
    assert_eq!(engine.rotation().last, Some(run));

    until("what is past is sealed", || stats(&engine).open_files == 0).await;
    pass(&bench, &engine, DAY);
    while engine.rotate().await.unwrap().more {}
    assert_eq!(messages(&engine.view()), [""; 0]);
    assert_eq!(bench.tree(), [""; 0].map(PathBuf::from));
    assert!(!bench.settings.data_dir.join("logs/2026").exists());
    assert_eq!(floor(&engine), 3);
    drop(engine);
    let engine = bench.open().await;
    assert_eq!((floor(&engine), stats(&engine).files), (3, 0));
    let again = engine.append(batch("a", &[bench.now()], from_producer(3))).await;
    assert_eq!(
        again.unwrap(),
        AppendOutcome::Duplicate,
        "what is gone is not stored again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_went_is_not_used_again() {
    let mut bench = Bench::new();
    bench.settings.rotation = by(RetentionPolicy::Size, ByteSize::bytes(1));
    let engine = three_hours(&bench).await;
    assert_eq!(
        partitions(&engine.rotate().await.unwrap()),
        ["2026/11/21/10", "2026/11/21/11"]
    );
    let late = batch("d", &[bench.now() - HOUR], from_producer(4));
    engine.append(late).await.unwrap();
    engine.flush().await.unwrap();
    let names: Vec<_> = bench
        .tree()
        .iter()
        .map(|path| path.file_name().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["logs_002.parquet", "logs_001.parquet"]);
    assert_eq!(messages(&engine.view()), ["c/0", "d/0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_with_rows_that_wait_and_the_present_one_never_go() {
    let mut bench = Bench::new();
    bench.settings.rotation = by(RetentionPolicy::Both, ByteSize::bytes(1));
    let engine = bench.open().await;
    let old = bench.now() - HOUR;
    engine.append(batch("a", &[old], from_producer(1))).await.unwrap();
    engine.flush().await.unwrap();
    engine.append(batch("b", &[old], from_producer(2))).await.unwrap();
    engine
        .append(batch("c", &[bench.now()], from_producer(3)))
        .await
        .unwrap();
    assert_eq!(engine.rotate().await.unwrap().removed, [], "b waits in that hour");
    engine.flush().await.unwrap();
    assert_eq!(partitions(&engine.rotate().await.unwrap()), ["2026/11/21/11"]);
    assert_eq!(messages(&engine.view()), ["c/0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn by_size_the_oldest_go_until_data_and_log_fit() {
    let mut bench = Bench::new();
    let engine = bench.open().await;
    for hour in 1..=6 {
        let times: Vec<i64> = (0..400).map(|row| bench.now() - hour * HOUR - row).collect();
        let rows = batch(&hour.to_string(), &times, from_producer(hour.unsigned_abs()));
        engine.append(rows).await.unwrap();
        engine.flush().await.unwrap();
    }
    engine.close().await.unwrap();
    let sizes: Vec<u64> = bench.tree().iter().map(|path| path.metadata().unwrap().len()).collect();
    // Room for the log, some for the catalogue, and three and a half of six files.
    let data = sizes.iter().rev().take(3).sum::<u64>() + sizes[0] / 2;
    let engine = bench.open().await;
    let log = stats(&engine).wal_bytes;
    drop(engine);
    bench.settings.rotation = by(RetentionPolicy::Size, ByteSize::bytes(data + log + 2_000));
    let engine = bench.open().await;
    let run = engine.rotate().await.unwrap();
    assert_eq!(partitions(&run), ["2026/11/21/06", "2026/11/21/07", "2026/11/21/08"]);
    assert!(
        run.removed
            .iter()
            .all(|removal| removal.reason == RetentionReason::Size)
    );
    assert!(!run.more);
    assert_eq!(messages(&engine.view()).len(), 1_200);
    assert_eq!(engine.rotate().await.unwrap().removed, [], "it fits now");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumped_deletes_nothing_also_after_a_restart() {
    let bench = Bench::new();
    let engine = three_hours(&bench).await;
    bench.advance(Duration::from_secs(40 * DAY));
    let run = engine.rotate().await.unwrap();
    assert_eq!(run.removed, []);
    assert!(run.held.unwrap().contains("ahead"));
    // What comes meanwhile is stored with the clock's time and proves nothing.
    engine
        .append(batch("d", &[bench.now()], from_producer(4)))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    drop(engine);
    let engine = bench.open().await;
    pass(&bench, &engine, DAY / 2);
    let run = engine.rotate().await.unwrap();
    assert_eq!((run.removed, run.held.is_some()), (vec![], true));
    assert_eq!(messages(&engine.view()), ["a/0", "b/0", "c/0", "d/0"]);
    until("what is past is sealed", || stats(&engine).open_files <= 1).await;
    // It runs evenly for a day: it is right.
    pass(&bench, &engine, DAY);
    while engine.rotate().await.unwrap().more {}
    assert_eq!(messages(&engine.view()), ["d/0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_is_held_reads_all_its_files_and_the_last_holder_lets_them_go() {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(5));
    bench.settings.rotation.check_interval = Duration::from_millis(1);
    let engine = three_hours(&bench).await;
    let young = engine.view();
    engine
        .append(batch("d", &[bench.now()], from_producer(4)))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    let open = engine.view();
    pass(&bench, &engine, 7_200);
    until("all are sealed", || stats(&engine).open_files == 0).await;
    let sealed = engine.view();
    pass(&bench, &engine, 40 * DAY);
    until("all went", || stats(&engine).files == 0).await;
    assert_eq!(messages(&engine.view()), [""; 0]);
    for _ in 0..3 {
        assert_eq!(messages(&young), ["a/0", "b/0", "c/0"]);
        assert_eq!(messages(&open), ["a/0", "b/0", "c/0", "d/0"]);
        assert_eq!(messages(&sealed), ["a/0", "b/0", "c/0", "d/0"]);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(bench.tree().len(), 3);
    drop((young, open));
    assert_eq!(messages(&sealed), ["a/0", "b/0", "c/0", "d/0"]);
    drop(sealed);
    until("the tree is empty", || {
        !bench.settings.data_dir.join("logs/2026").exists()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_file_that_expires_under_a_view_is_read_to_the_end() {
    let mut bench = Bench::new();
    bench.settings.rotation = by(RetentionPolicy::Size, ByteSize::bytes(1));
    let engine = three_hours(&bench).await;
    let view = engine.view();
    engine
        .append(batch("d", &[bench.now() - HOUR], from_producer(4)))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    let later = engine.view();
    assert_eq!(engine.rotate().await.unwrap().removed.len(), 2);
    assert_eq!(messages(&engine.view()), ["c/0"]);
    drop(later);
    engine.rotate().await.unwrap();
    assert_eq!(messages(&view), ["a/0", "b/0", "c/0"], "an earlier version of the file");
    drop(view);
    engine.rotate().await.unwrap();
    assert_eq!(bench.tree().len(), 1);
    let staged = files_below(&bench.settings.store_dir.join(".staging"));
    assert!(staged.iter().all(|path| path.extension().is_none()), "{staged:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_at_any_step_leaves_all_or_nothing_of_what_goes() {
    let mut bench = Bench::new();
    bench.settings.rotation = by(RetentionPolicy::Size, ByteSize::bytes(1));
    // Before the record.
    let engine = three_hours(&bench).await;
    let faults = FaultInjector::below(&bench.settings.store_dir.join("meta"));
    faults.fail(FsOperation::SyncFile, "catalogue_", 1, libc::ENOSPC);
    assert!(matches!(engine.rotate().await, Err(Error::Rotation { .. })));
    assert_eq!(messages(&engine.view()), ["a/0", "b/0", "c/0"]);
    assert_eq!(bench.tree().len(), 3);
    drop(faults);
    // Between record and unlinking: a view holds the files.
    let held = engine.view();
    assert_eq!(engine.rotate().await.unwrap().removed.len(), 2);
    assert_eq!(bench.tree().len(), 3);
    drop(engine);
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()), ["c/0"]);
    assert_eq!((bench.tree().len(), engine.view().partial()), (1, None));
    assert!(!bench.settings.data_dir.join("logs/2026/11/21/10").exists());
    assert_eq!((floor(&engine), stats(&engine).quarantined_files), (3, 0));
    drop(held);
    // An unlinking that fails is tried again.
    engine
        .append(batch("d", &[bench.now() - HOUR], from_producer(4)))
        .await
        .unwrap();
    engine.flush().await.unwrap();
    let faults = FaultInjector::below(&bench.settings.store_dir);
    faults.fail(FsOperation::Remove, "logs_002", 2, libc::EIO);
    let aside = || files_below(&bench.settings.store_dir.join(".staging")).len();
    let before = aside();
    assert_eq!(engine.rotate().await.unwrap().removed.len(), 1);
    assert_eq!(
        (bench.tree().len(), aside()),
        (1, before + 1),
        "out of the tree, not unlinked"
    );
    engine.rotate().await.unwrap();
    engine.rotate().await.unwrap();
    assert_eq!((bench.tree().len(), aside(), faults.left()), (1, before, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_says_what_a_check_then_does_and_changes_nothing() {
    let mut bench = Bench::new();
    bench.settings.rotation = by(RetentionPolicy::Size, ByteSize::bytes(1));
    let now = Arc::clone(&bench.now);
    let clock = Clock::new(move || Timestamp::from_micros(now.load(Ordering::Relaxed)));
    let none = crate::preview_rotation(&bench.settings, &clock).unwrap_err();
    assert!(none.to_string().contains("store.dir"), "{none}");
    let engine = three_hours(&bench).await;
    let preview = crate::preview_rotation(&bench.settings, &clock).unwrap();
    assert_eq!((preview.files, bench.tree().len()), (3, 3));
    assert!(preview.total_bytes > 3_000);
    let run = engine.rotate().await.unwrap();
    assert_eq!(preview.removals, run.removed);
    drop(engine);
    let preview = crate::preview_rotation(&bench.settings, &clock).unwrap();
    assert_eq!((preview.removals.len(), preview.clock_ahead_seconds), (0, None));
    bench.advance(Duration::from_secs(10_000));
    let preview = crate::preview_rotation(&bench.settings, &clock).unwrap();
    assert_eq!(preview.clock_ahead_seconds, Some(10_000));
}

#[derive(Debug, Clone)]
enum Step {
    /// Rows, and how many hours before now.
    Append(usize, i64),
    Again(usize),
    Flush,
    /// Hours pass.
    Pass(u64),
    Rotate,
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1usize..10, 0i64..40).prop_map(|(rows, hours)| Step::Append(rows, hours)),
        2 => (0usize..20).prop_map(Step::Again),
        3 => Just(Step::Flush),
        3 => (1u64..30).prop_map(Step::Pass),
        3 => Just(Step::Rotate),
        2 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..40)
}

/// What must be there, with the end of its hour.
#[derive(Default)]
struct Model {
    rows: BTreeMap<String, i64>,
    sent: Vec<AppendBatch>,
}

impl Model {
    async fn append(&mut self, bench: &Bench, engine: &Engine, rows: usize, hours: i64) {
        let seq = self.sent.len() as u64 + 1;
        let times: Vec<i64> = (0..rows as i64)
            .map(|row| bench.now() - hours * HOUR - row * HOUR / 4)
            .collect();
        let sent = batch(&seq.to_string(), &times, from_producer(seq));
        self.sent.push(sent.clone());
        assert_eq!(engine.append(sent).await.unwrap(), stored(rows));
        for (row, time) in times.iter().enumerate() {
            let too_old = *time < bench.now() - 2 * 24 * HOUR;
            let time = if too_old { bench.now() } else { *time };
            self.rows
                .insert(format!("{seq}/{row}"), (time.div_euclid(HOUR) + 1) * HOUR);
        }
    }

    /// Everything is published, a clock that was off is believed after a day, and checks are made until nothing is too old:
    /// a file that is just being sealed goes at the next one.
    async fn rotate(&mut self, bench: &Bench, engine: &Engine) {
        engine.flush().await.unwrap();
        let mut run = engine.rotate().await.unwrap();
        while run.held.is_some() {
            pass(bench, engine, DAY);
            run = engine.rotate().await.unwrap();
        }
        let oldest = bench.now() - 2 * 24 * HOUR;
        let too_old = |file: &DataFileHandle| (file.max_ts.micros().div_euclid(HOUR) + 1) * HOUR <= oldest;
        let end = Instant::now() + Duration::from_secs(20);
        while engine.view().files(Table::Logs).iter().any(|file| too_old(file)) {
            assert!(Instant::now() < end, "what is too old does not go: {run:?}");
            // The sealer steps back for who asks again and again.
            tokio::time::sleep(Duration::from_millis(5)).await;
            run = engine.rotate().await.unwrap();
        }
        self.rows.retain(|_, end| *end > oldest);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 60, ..ProptestConfig::default() })]
    #[test]
    fn exactly_the_hours_that_are_too_old_go_in_any_history(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut bench = Bench::new();
            bench.ticks_every(Duration::from_millis(10));
            bench.settings.seal_grace = Duration::ZERO;
            bench.settings.max_age = Duration::from_secs(2 * DAY);
            bench.settings.rotation = by(RetentionPolicy::Time, ByteSize::mib(1));
            let mut engine = bench.open().await;
            // The first tick's own check.
            until("it was made", || engine.rotation().last.is_some()).await;
            let mut model = Model::default();
            for step in &steps {
                match step {
                    Step::Append(rows, hours) => model.append(&bench, &engine, *rows, *hours).await,
                    Step::Again(which) => if let Some(batch) = model.sent.get(*which) {
                        assert_eq!(engine.append(batch.clone()).await.unwrap(), AppendOutcome::Duplicate);
                    },
                    Step::Flush => engine.flush().await.unwrap(),
                    Step::Pass(hours) => pass(&bench, &engine, hours * 3_600),
                    Step::Rotate => model.rotate(&bench, &engine).await,
                    Step::Crash => {
                        drop(engine);
                        engine = bench.open().await;
                        // Its first tick makes a check of its own.
                        until("it was made", || engine.rotation().last.is_some()).await;
                        model.rotate(&bench, &engine).await;
                    }
                }
                let wanted: Vec<String> = model.rows.keys().cloned().collect();
                assert_eq!(messages(&engine.view()), wanted, "after {step:?}");
                assert_eq!(engine.view().partial(), None);
                assert_eq!(floor(&engine), model.sent.len() as u64);
            }
        });
    }
}
