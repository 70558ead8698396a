//! A catalogue that is made anew serves the same rows, and what comes again is still a duplicate.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::check::store;
use super::*;
use crate::{RebuildReport, rebuild_catalogue};

fn meta(bench: &Bench) -> PathBuf {
    bench.settings.store_dir.join("meta")
}

fn try_rebuild(bench: &Bench) -> Result<RebuildReport, Error> {
    rebuild_catalogue(&bench.settings, Timestamp::from_micros(bench.now()), |_, _| {})
}

fn rebuild(bench: &Bench) -> RebuildReport {
    try_rebuild(bench).unwrap()
}

/// Removes the catalogue; the store's id too if it is said.
fn lose_catalogue(bench: &Bench, id_too: bool) {
    for path in files_below(&meta(bench)) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("catalogue_") || name.starts_with("checkpoint_") || (id_too && name == "store.id") {
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// Flips a bit in the middle of every checkpoint and log.
fn damage_catalogue(bench: &Bench) {
    for path in files_below(&meta(bench)) {
        if path.file_name().unwrap() != "store.id" && path.file_name().unwrap() != "LOCK" {
            let mut bytes = std::fs::read(&path).unwrap();
            let at = bytes.len() / 2;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1;
            }
            std::fs::write(&path, bytes).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_catalogue_refuses_the_start_and_a_new_one_has_every_row_and_every_mark() {
    for id_too in [false, true] {
        let bench = store().await;
        let engine = bench.open().await;
        engine
            .append(batch("5", &[bench.now()], from_producer(5)))
            .await
            .unwrap();
        let before = messages(&engine.view());
        drop(engine);
        lose_catalogue(&bench, id_too);
        let refused = bench.try_open().await.unwrap_err().to_string();
        assert!(refused.contains("platform-mixer check --rebuild"), "{refused}");
        if !id_too {
            let refused = crate::check_store(&bench.settings, false, |_, _| {}).unwrap_err();
            assert!(matches!(refused, Error::Catalogue { .. }), "{refused}");
        }
        let report = rebuild(&bench);
        assert_eq!((report.files, report.problems.len()), (3, 0));
        // The last one may have been published by a tick.
        assert!((303..=304).contains(&report.rows), "{}", report.rows);
        assert_eq!(report.kept, None);
        assert!(report.unknown.iter().any(|unknown| unknown.contains("checksum")));
        let engine = bench.open().await;
        let view = engine.view();
        assert_eq!((messages(&view), view.partial()), (before.clone(), None));
        assert_eq!(floor(&engine), 5);
        for seq in 1..=5 {
            let again = engine.append(batch("again", &[bench.now()], from_producer(seq))).await;
            assert_eq!(again.unwrap(), Appended::Duplicate, "{seq}");
        }
        let rows = batch("6", &[bench.now()], from_producer(6));
        assert_eq!(engine.append(rows).await.unwrap(), stored(1));
        engine.close().await.unwrap();
        drop((engine, view));
        assert_eq!(messages(&bench.open().await.view()).len(), before.len() + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_catalogue_is_kept_under_a_name_that_says_when_and_what_it_still_says_counts() {
    let bench = store().await;
    // An orderly start and end: one generation, whose log has one record.
    let engine = bench.open().await;
    for (seq, hours) in [(5, 0), (6, 1)] {
        let times = [bench.now() - hours * HOUR];
        let rows = batch(&seq.to_string(), &times, from_producer(seq));
        engine.append(rows).await.unwrap();
        engine.flush().await.unwrap();
    }
    let before = messages(&engine.view());
    drop(engine);
    damage_catalogue(&bench);
    let report = rebuild(&bench);
    let kept = report.kept.unwrap();
    assert!(
        kept.to_str().unwrap().contains("quarantine/catalogue_20261121T"),
        "{kept:?}"
    );
    assert!(files_below(&kept).len() >= 3);
    let engine = bench.open().await;
    assert_eq!((messages(&engine.view()), floor(&engine)), (before, 6));
    assert_eq!(engine.view().partial(), None);
    engine.close().await.unwrap();
    drop(engine);
    let whole = try_rebuild(&bench).unwrap_err();
    assert!(matches!(whole, Error::CatalogueWhole { .. }), "{whole}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_was_overtaken_in_the_log_is_not_taken_for_stored() {
    let bench = Bench::new();
    let engine = bench.open().await;
    for seq in [1, 2, 4] {
        let rows = batch(&seq.to_string(), &[bench.now()], from_producer(seq));
        engine.append(rows).await.unwrap();
        let rows = batch(&format!("bus {seq}"), &[bench.now()], from_bus(seq, bench.now()));
        engine.append(rows).await.unwrap();
        engine.flush().await.unwrap();
    }
    drop(engine);
    lose_catalogue(&bench, false);
    rebuild(&bench);
    let engine = bench.open().await;
    let origins: [fn(u64) -> Origin; 2] = [from_producer, |seq| from_bus(seq, 5)];
    for origin in origins {
        for seq in [1, 2, 4] {
            let again = engine.append(batch("again", &[bench.now()], origin(seq))).await;
            assert_eq!(again.unwrap(), Appended::Duplicate, "{seq}");
        }
        let late = engine.append(batch("late", &[bench.now()], origin(3))).await;
        assert_eq!(late.unwrap(), stored(1));
    }
    assert_eq!(messages(&engine.view()).len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bus_that_reuses_a_sequence_after_the_rebuild_is_recognised() {
    let bench = Bench::new();
    let engine = bench.open().await;
    engine
        .append(batch("a", &[bench.now()], from_bus(9, bench.now())))
        .await
        .unwrap();
    engine.close().await.unwrap();
    // The log lets go of what is published.
    bench.open().await.close().await.unwrap();
    lose_catalogue(&bench, false);
    rebuild(&bench);
    let engine = bench.open().await;
    let again = engine
        .append(batch("a", &[bench.now()], from_bus(9, bench.now())))
        .await;
    assert_eq!(again.unwrap(), Appended::Duplicate);
    let other = engine
        .append(batch("b", &[bench.now()], from_bus(9, bench.now() + 1)))
        .await;
    assert_eq!(other.unwrap(), stored(1));
    assert_eq!(stats(&engine).bus_regressions, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_old_catalogue_contradicts_is_put_aside_and_a_missing_one_is_named() {
    let bench = store().await;
    let tree = bench.tree();
    // One more generation: its log is damaged, its checkpoint says what the files were.
    let engine = bench.open().await;
    engine
        .append(batch("5", &[bench.now()], from_producer(5)))
        .await
        .unwrap();
    engine.close().await.unwrap();
    let logs = files_below(&meta(&bench));
    let log = logs
        .iter()
        .rfind(|path| path.extension().is_some_and(|end| end == "log"));
    let mut bytes = std::fs::read(log.unwrap()).unwrap();
    bytes[20] ^= 1;
    std::fs::write(log.unwrap(), bytes).unwrap();
    let mut bytes = std::fs::read(&tree[0]).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&tree[0], bytes).unwrap();
    std::fs::remove_file(&tree[1]).unwrap();
    let report = rebuild(&bench);
    let named: Vec<_> = report.problems.iter().map(|problem| &problem.path).collect();
    assert_eq!(named, [&tree[0], &tree[1]]);
    assert!(report.problems[0].kept.as_ref().unwrap().exists());
    assert_eq!(report.problems[1].what, "it is missing");
    let engine = bench.open().await;
    assert_eq!(engine.view().partial(), None);
    assert_eq!(floor(&engine), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_others_are_left_alone_and_a_folder_without_a_store_is_refused() {
    let empty = Bench::new();
    let none = try_rebuild(&empty).unwrap_err();
    assert!(none.to_string().contains("store.dir"), "{none}");
    let bench = store().await;
    let stranger = bench.tree()[0].with_file_name("notes.txt");
    let copy = bench.tree()[0].with_file_name("logs_050.parquet");
    std::fs::write(&stranger, "somebody else's").unwrap();
    std::fs::copy(&bench.tree()[0], &copy).unwrap();
    lose_catalogue(&bench, false);
    let report = rebuild(&bench);
    assert_eq!((report.files, report.problems.len()), (3, 0));
    assert_eq!(report.strangers.len(), 2);
    assert!(stranger.exists() && copy.exists());
    let engine = bench.open().await;
    let refused = try_rebuild(&bench).unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    assert_eq!(messages(&engine.view()).len(), 303);
}

#[derive(Debug, Clone)]
enum Step {
    /// A new batch: rows, and how many hours before now.
    Append(usize, i64),
    Flush,
    /// Hours pass, and ticks with them: past files are sealed.
    Pass(u64),
    Rotate,
    Close,
    Crash,
    /// The catalogue goes; whether only by damage.
    Lose(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1usize..40, 0i64..4).prop_map(|(rows, hours)| Step::Append(rows, hours)),
        4 => Just(Step::Flush),
        2 => (1u64..20).prop_map(Step::Pass),
        1 => Just(Step::Rotate),
        1 => Just(Step::Close),
        2 => Just(Step::Crash),
        3 => any::<bool>().prop_map(Step::Lose),
    ];
    prop::collection::vec(step, 1..30)
}

struct History {
    bench: Bench,
    engine: Option<Arc<Engine>>,
    sent: Vec<(Batch, usize)>,
    /// Every row ever stored, and its time.
    rows: BTreeMap<String, i64>,
}

impl History {
    async fn engine(&mut self) -> Arc<Engine> {
        if self.engine.is_none() {
            self.engine = Some(self.bench.open().await);
        }
        Arc::clone(self.engine.as_ref().unwrap())
    }

    async fn step(&mut self, step: &Step) {
        let engine = self.engine().await;
        match step {
            Step::Append(rows, hours) => {
                let seq = self.sent.len() as u64 + 1;
                let from = self.bench.now() - hours * HOUR;
                let times: Vec<i64> = (0..*rows as i64).map(|row| from - row * HOUR / 20).collect();
                let origin = match seq % 2 {
                    0 => from_bus(seq, self.bench.now()),
                    _ => from_producer(seq),
                };
                let batch = batch(&seq.to_string(), &times, origin);
                assert_eq!(engine.append(batch.clone()).await.unwrap(), stored(*rows));
                self.sent.push((batch, *rows));
                let named = times.iter().enumerate().map(|(row, ts)| (format!("{seq}/{row}"), *ts));
                self.rows.extend(named);
            }
            Step::Flush => engine.flush().await.unwrap(),
            Step::Pass(hours) => {
                engine.flush().await.unwrap();
                self.bench.advance(Duration::from_secs(hours * 3_600));
                engine.shared.skew.fetch_add(hours * 3_600, Ordering::Relaxed);
                let seals = stats(&engine).seals;
                let end = self.bench.now() - HOUR;
                let view = engine.view();
                if view
                    .files(Table::Logs)
                    .iter()
                    .any(|file| !file.sealed && file.max_ts.micros() < end)
                {
                    drop(view);
                    until("a past file is sealed", || stats(&engine).seals > seals).await;
                }
            }
            Step::Rotate => {
                engine.rotate().await.unwrap();
            }
            Step::Close => {
                engine.close().await.unwrap();
                self.engine = None;
            }
            Step::Crash => self.engine = None,
            Step::Lose(damage) => {
                drop(engine);
                self.engine = None;
                if *damage {
                    damage_catalogue(&self.bench);
                } else {
                    lose_catalogue(&self.bench, false);
                }
                // A flip may have hit what is not needed any more.
                match try_rebuild(&self.bench) {
                    Ok(report) => assert_eq!(report.problems, []),
                    Err(error) => assert!(*damage && matches!(error, Error::CatalogueWhole { .. }), "{error}"),
                }
                self.redeliver().await;
            }
        }
    }

    /// Whether no check of the rotation rules may have removed a row. One that may be gone may be back too: the log may
    /// still have it, and nobody knows without the old catalogue that it went.
    fn is_young(&self, row: &str) -> bool {
        let Some(ts) = self.rows.get(row) else {
            return false;
        };
        (ts.div_euclid(HOUR) + 1) * HOUR + 24 * HOUR > self.bench.now()
    }

    /// The last batches come again, as after a crash of the bus. Those whose rows may all be gone may have left no trace.
    async fn redeliver(&mut self) {
        let engine = self.engine().await;
        let last = self.sent.len().saturating_sub(5)..self.sent.len();
        for at in last {
            let (batch, rows) = self.sent[at].clone();
            if (0..rows).any(|row| self.is_young(&format!("{}/{row}", at + 1))) {
                let again = engine.append(batch).await.unwrap();
                assert_eq!(again, Appended::Duplicate, "batch {}", at + 1);
            }
        }
    }

    async fn check(&mut self) {
        let engine = self.engine().await;
        let seen = messages(&engine.view());
        let once: BTreeSet<String> = seen.iter().cloned().collect();
        assert_eq!(seen.len(), once.len(), "each row once");
        let lost: Vec<_> = self
            .rows
            .keys()
            .filter(|row| !once.contains(*row) && self.is_young(row))
            .collect();
        assert_eq!(lost, Vec::<&String>::new());
        let strange: Vec<_> = once.iter().filter(|row| !self.rows.contains_key(*row)).collect();
        assert_eq!(strange, Vec::<&String>::new());
        assert_eq!(engine.view().partial(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 60, ..ProptestConfig::default() })]
    #[test]
    fn a_rebuilt_catalogue_has_every_row_once_whatever_was_before(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut bench = Bench::new();
            bench.settings.flush_interval = Duration::from_millis(10);
            bench.settings.seal_grace = Duration::ZERO;
            bench.settings.segment_size = ByteSize::bytes(64 << 10);
            bench.settings.max_age = Duration::from_secs(24 * 3_600);
            bench.settings.rotation.check_interval = Duration::from_secs(86_400 * 36_500);
            let mut history = History { bench, engine: None, sent: Vec::new(), rows: BTreeMap::new() };
            for step in &steps {
                history.step(step).await;
                history.check().await;
            }
            history.step(&Step::Lose(false)).await;
            history.check().await;
        });
    }
}
