//! Random histories in which the catalogue is lost now and then.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

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
    sent: Vec<(AppendBatch, usize)>,
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
                    0 => from_bus(seq),
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
                engine.shared.time.skew.fetch_add(hours * 3_600, Ordering::Relaxed);
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
                    Ok(report) => self.may_have_been_removed(&report, *damage),
                    Err(error) => assert!(*damage && matches!(error, Error::CatalogueWhole { .. }), "{error}"),
                }
                self.redeliver().await;
            }
        }
    }

    /// The flip may have hit the very record that removed a file: nothing but old files may be missing, and only then.
    fn may_have_been_removed(&self, report: &RebuildReport, damage: bool) {
        for problem in &report.problems {
            let hour = problem.path.parent().unwrap().to_str().unwrap();
            let hour =
                chrono::NaiveDateTime::parse_from_str(&format!("{}:00", &hour[hour.len() - 13..]), "%Y/%m/%d/%H:%M");
            let young = self.is_young_hour(hour.unwrap().and_utc().timestamp_micros());
            assert!(damage && !young && problem.what == MISSING, "{problem:?}");
        }
    }

    fn is_young_hour(&self, ts: i64) -> bool {
        (ts.div_euclid(HOUR) + 1) * HOUR + 24 * HOUR > self.bench.now()
    }

    /// Whether no check of the rotation rules may have removed a row. One that may be gone may be back too: the log may
    /// still have it, and nobody knows without the old catalogue that it went.
    fn is_young(&self, row: &str) -> bool {
        let Some(ts) = self.rows.get(row) else {
            return false;
        };
        self.is_young_hour(*ts)
    }

    /// The last batches come again, as after a crash of the bus. Those whose rows may all be gone may have left no trace.
    async fn redeliver(&mut self) {
        let engine = self.engine().await;
        let last = self.sent.len().saturating_sub(5)..self.sent.len();
        for at in last {
            let (batch, rows) = self.sent[at].clone();
            if (0..rows).any(|row| self.is_young(&format!("{}/{row}", at + 1))) {
                let again = engine.append(batch).await.unwrap();
                assert_eq!(again, AppendOutcome::Duplicate, "batch {}", at + 1);
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
            bench.ticks_every(Duration::from_millis(10));
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
