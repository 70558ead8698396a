//! Random histories against a list of rows: whatever happens in whatever order, a view has exactly what was acknowledged.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{CompressionCodec, StorageFormat};

#[derive(Debug, Clone)]
enum Step {
    /// A new batch: rows, and how many hours before now.
    Append(usize, i64),
    /// A batch that was appended before, by its place in history.
    Again(usize),
    Flush,
    /// Hours pass, and ticks with them: past files are sealed.
    Pass(i64),
    /// The store is closed; the next opening has other settings.
    Close(u8),
    /// The process ends; the next one has other settings.
    Crash(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1usize..40, 0i64..4).prop_map(|(rows, hours)| Step::Append(rows, hours)),
        3 => (0usize..20).prop_map(Step::Again),
        3 => Just(Step::Flush),
        2 => (1i64..4).prop_map(Step::Pass),
        1 => any::<u8>().prop_map(Step::Close),
        2 => any::<u8>().prop_map(Step::Crash),
    ];
    prop::collection::vec(step, 1..30)
}

struct History {
    bench: Bench,
    engine: Option<Arc<Engine>>,
    sent: Vec<AppendBatch>,
    wanted: BTreeSet<String>,
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
                let batch = batch(&seq.to_string(), &times, from_producer(seq));
                self.sent.push(batch.clone());
                assert_eq!(engine.append(batch).await.unwrap(), stored(*rows));
                self.wanted.extend((0..*rows).map(|row| format!("{seq}/{row}")));
            }
            Step::Again(which) => {
                if let Some(batch) = self.sent.get(*which) {
                    assert_eq!(engine.append(batch.clone()).await.unwrap(), AppendOutcome::Duplicate);
                }
            }
            Step::Flush => engine.flush().await.unwrap(),
            Step::Pass(hours) => {
                engine.flush().await.unwrap();
                self.bench.advance(Duration::from_secs(hours.unsigned_abs() * 3_600));
                let seals = stats(&engine).seals;
                let ripe = engine
                    .view()
                    .files(Table::Logs)
                    .iter()
                    .any(|file| !file.sealed && file.max_ts.micros() < self.bench.now() - HOUR);
                if ripe {
                    until("a past file is sealed", || stats(&engine).seals > seals).await;
                }
            }
            Step::Close(settings) => {
                engine.close().await.unwrap();
                self.change(*settings);
            }
            Step::Crash(settings) => self.change(*settings),
        }
    }

    /// Ends the engine; the next one writes new files in another form, and keeps more or fewer of them open.
    fn change(&mut self, settings: u8) {
        self.engine = None;
        let now = &mut self.bench.settings;
        now.format = [StorageFormat::Parquet, StorageFormat::Json][usize::from(settings & 1)];
        now.compression =
            [CompressionCodec::Zstd, CompressionCodec::Snappy, CompressionCodec::None][usize::from(settings >> 1) % 3];
        now.open_max = [1, 64][usize::from(settings >> 7)];
    }

    async fn check(&mut self) {
        let engine = self.engine().await;
        let seen = messages(&engine.view());
        let wanted: Vec<String> = self.wanted.iter().cloned().collect();
        assert_eq!(seen, wanted);
        assert_eq!(floor(&engine), self.sent.len() as u64);
        assert_eq!(engine.view().partial(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 60, ..ProptestConfig::default() })]
    #[test]
    fn a_view_has_exactly_what_was_acknowledged_each_row_once(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut bench = Bench::new();
            bench.ticks_every(Duration::from_millis(10));
            bench.settings.seal_grace = Duration::ZERO;
            bench.settings.segment_size = ByteSize::bytes(64 << 10);
            let mut history = History { bench, engine: None, sent: Vec::new(), wanted: BTreeSet::new() };
            for step in &steps {
                history.step(step).await;
                history.check().await;
            }
            history.engine = None;
            history.check().await;
        });
    }
}
