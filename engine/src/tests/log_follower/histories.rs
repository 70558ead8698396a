//! Random histories of appends, settling, flushes, ends and switches against a list of rows.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Append(usize),
    /// A batch of before.
    Again(usize),
    /// So many rows are settled.
    Settle(usize),
    Flush,
    /// The end, and a start with the same mode or with another one of the two others.
    Close(Option<bool>),
    Crash(Option<bool>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1usize..6).prop_map(Step::Append),
        1 => (0usize..20).prop_map(Step::Again),
        5 => (1usize..12).prop_map(Step::Settle),
        2 => Just(Step::Flush),
        1 => any::<Option<bool>>().prop_map(Step::Close),
        2 => any::<Option<bool>>().prop_map(Step::Crash),
    ];
    prop::collection::vec(step, 1..40)
}

/// What was appended, in order, and how much of it is settled.
struct History {
    bench: Bench,
    engine: Option<Arc<Engine>>,
    batches: Vec<AppendBatch>,
    sent: Vec<String>,
    settled: usize,
    /// Appended while telemetry was stored, or in batches that were not settled when that began.
    stored: BTreeSet<String>,
}

impl History {
    fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Append(rows) => {
                let seq = self.batches.len() as u64 + 1;
                let one = batch(&format!("{seq:04}"), &vec![self.bench.now(); *rows], from_producer(seq));
                assert_eq!(self.engine().append(one.clone()).await.unwrap(), stored(*rows));
                self.batches.push(one);
                let names = (0..*rows).map(|row| format!("{seq:04}/{row}"));
                if self.bench.settings.export != ExportMode::Only {
                    self.stored.extend(names.clone());
                }
                self.sent.extend(names);
            }
            Step::Again(which) => {
                if let Some(one) = self.batches.get(*which) {
                    let again = self.engine().append(one.clone()).await.unwrap();
                    assert_eq!(again, AppendOutcome::Duplicate);
                }
            }
            Step::Settle(rows) => self.settle(*rows).await,
            Step::Flush if self.bench.settings.export == ExportMode::Off => self.engine().flush().await.unwrap(),
            Step::Flush => {
                // The log lets go of what all signals have settled.
                let others = OtherSignals::pass(self.engine());
                self.engine().flush().await.unwrap();
                others.stop().await;
            }
            Step::Close(other) => {
                self.engine().close().await.unwrap();
                self.reopen(*other).await;
            }
            Step::Crash(other) => self.reopen(*other).await,
        }
    }

    /// What comes next is what was not settled; of that, `rows` are settled.
    async fn settle(&mut self, rows: usize) {
        if self.settled == self.sent.len() || self.bench.settings.export == ExportMode::Off {
            return;
        }
        let (follower, entries) = follow(self.engine()).await;
        let found: Vec<String> = entries.iter().flat_map(names).collect();
        assert_eq!(found, self.sent[self.settled..]);
        let mut left = rows;
        for entry in &entries {
            let now = left.min(entry.row_count());
            if now > 0 {
                follower.settle(entry.behind(now)).await.unwrap();
            }
            left -= now;
            self.settled += now;
        }
    }

    async fn reopen(&mut self, other: Option<bool>) {
        let before = self.bench.settings.export;
        let others = match before {
            ExportMode::Copy => [ExportMode::Only, ExportMode::Off],
            ExportMode::Only => [ExportMode::Copy, ExportMode::Off],
            ExportMode::Off => [ExportMode::Copy, ExportMode::Only],
        };
        let now = other.map_or(before, |other| others[usize::from(other)]);
        self.bench.settings.export = now;
        if before == ExportMode::Off && now != ExportMode::Off {
            // The export begins with what comes from now on.
            self.settled = self.sent.len();
        }
        if now != ExportMode::Only {
            let first = self.sent.get(self.settled);
            let first = first.and_then(|row| self.sent.iter().position(|other| other[..5] == row[..5]));
            self.stored
                .extend(self.sent[first.unwrap_or(self.settled)..].iter().cloned());
        }
        self.engine = None;
        self.engine = Some(reopen(&self.bench).await);
    }

    fn check(&self) {
        let seen = messages(&self.engine().view());
        let wanted: Vec<_> = self.stored.iter().cloned().collect();
        assert_eq!(
            seen, wanted,
            "each row is stored once, and what was only exported is not"
        );
        assert_eq!(floor(self.engine()), self.batches.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 60, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_the_exporter_gets_exactly_what_is_not_settled(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut bench = bench(ExportMode::Copy);
            bench.ticks_every(Duration::from_millis(10));
            let engine = Some(bench.open().await);
            let mut history =
                History { bench, engine, batches: Vec::new(), sent: Vec::new(), settled: 0, stored: BTreeSet::new() };
            for step in &steps {
                history.step(step).await;
                history.check();
            }
            let all = history.sent.len();
            history.settle(all).await;
        });
    }
}
