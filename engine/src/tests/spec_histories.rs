//! Random histories of a spec that changes: every order is there once, and each column of a file says what `promoted` says.

use std::collections::BTreeSet;

use ::model::batch::messages as message_batch;
use ::model::spec::columns::{schema, values};
use ::model::spec::{FieldType, SpecColumn};
use arrow_array::cast::AsArray;
use proptest::prelude::*;

use super::message_tree::row;
use super::*;
use crate::{AllSpecFiles, SpecFiles, SpecName, StorageFormat};

#[derive(Debug, Clone)]
enum Step {
    /// Orders of a moment so many hours before now.
    Append(u8, i64),
    Again(usize),
    Flush,
    /// The spec is another one from now on.
    Change(u8),
    /// Hours pass: past files are sealed.
    Pass(i64),
    /// The process ends, and the next one knows another spec, or writes another form.
    Crash(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1u8..30, 0i64..3).prop_map(|(rows, hours)| Step::Append(rows, hours)),
        2 => (0usize..20).prop_map(Step::Again),
        4 => Just(Step::Flush),
        3 => any::<u8>().prop_map(Step::Change),
        2 => (1i64..4).prop_map(Step::Pass),
        2 => any::<u8>().prop_map(Step::Crash),
    ];
    prop::collection::vec(step, 1..24)
}

fn spec() -> SpecName {
    "order".parse().unwrap()
}

fn specs(which: u8) -> AllSpecFiles {
    let column = |name: &str, kind| SpecColumn {
        name: name.to_owned(),
        kind,
    };
    let columns = match which % 4 {
        0 => return AllSpecFiles::new(),
        1 => vec![column("n", FieldType::Int)],
        2 => vec![column("n", FieldType::Float), column("city", FieldType::String)],
        _ => vec![
            column("city", FieldType::String),
            column("at", FieldType::Timestamp),
            column("n", FieldType::Float),
        ],
    };
    let prefix = if which & 0x80 == 0 { "order" } else { "paid" }.parse().unwrap();
    AllSpecFiles::from([(spec(), SpecFiles { prefix, columns })])
}

struct History {
    bench: Bench,
    engine: Option<Arc<Engine>>,
    sent: Vec<AppendBatch>,
    orders: u64,
}

impl History {
    async fn engine(&mut self) -> Arc<Engine> {
        if self.engine.is_none() {
            self.engine = Some(self.bench.open().await);
        }
        Arc::clone(self.engine.as_ref().unwrap())
    }

    fn orders(&mut self, count: u8, hours: i64) -> AppendBatch {
        let rows: Vec<_> = (0..count)
            .map(|_| {
                let n = self.orders;
                self.orders += 1;
                let mut row = row(&self.bench, n % 256);
                row.ts = Timestamp::from_micros(self.bench.now() - hours * HOUR - i64::try_from(n).unwrap());
                row.promoted = Attributes::new().with("n", n).with("at", row.ts.to_string());
                if !n.is_multiple_of(3) {
                    row.promoted.set("city", format!("city-{}", n % 5));
                }
                row
            })
            .collect();
        let rows = message_batch(&rows).unwrap();
        AppendBatch {
            table: Table::Messages,
            origin: from_bus(self.sent.len() as u64 + 1),
            payload: encode_arrow(std::slice::from_ref(&rows)).unwrap().into(),
            rows: vec![rows],
        }
    }

    async fn step(&mut self, step: &Step) {
        let engine = self.engine().await;
        match step {
            Step::Append(count, hours) => {
                let batch = self.orders(*count, *hours);
                self.sent.push(batch.clone());
                let appended = engine.append_of_specs(batch, vec![Some(spec())]).await.unwrap();
                assert_eq!(appended, stored(usize::from(*count)));
            }
            Step::Again(which) => {
                if let Some(batch) = self.sent.get(*which) {
                    let appended = engine.append_of_specs(batch.clone(), vec![Some(spec())]).await.unwrap();
                    assert_eq!(appended, AppendOutcome::Duplicate);
                }
            }
            Step::Flush => engine.flush().await.unwrap(),
            Step::Change(which) => engine.set_specs(&specs(*which)),
            Step::Pass(hours) => {
                engine.flush().await.unwrap();
                self.bench.advance(Duration::from_secs(hours.unsigned_abs() * 3_600));
                let past = self.bench.now() - HOUR;
                until("past files are sealed", || {
                    let view = engine.view();
                    let mut files = view.files(Table::Messages).iter();
                    files.all(|file| file.sealed || file.max_ts.micros() >= past)
                })
                .await;
            }
            Step::Crash(which) => {
                self.engine = None;
                self.bench.settings.specs = specs(*which);
                self.bench.settings.format =
                    [StorageFormat::Parquet, StorageFormat::Json][usize::from(which & 0x60 == 0x60)];
            }
        }
    }

    async fn check(&mut self) {
        let engine = self.engine().await;
        let view = engine.view();
        assert_eq!(view.partial(), None);
        let hot = view.hot(Table::Messages).iter().map(|hot| hot.batch.clone());
        let files = view.files(Table::Messages).iter();
        let cold = files
            .inspect(|file| assert_eq!(file.spec(), Some(spec())))
            .flat_map(|file| read(file));
        let mut seen = BTreeSet::new();
        let mut rows = 0;
        for batch in hot.chain(cold) {
            let promoted = batch.column_by_name("promoted").unwrap().as_string::<i32>();
            let n = [SpecColumn {
                name: "n".to_owned(),
                kind: FieldType::Int,
            }];
            let n = values(promoted, &n).unwrap();
            seen.extend(n[0].as_primitive::<arrow_array::types::Int64Type>().iter().flatten());
            rows += batch.num_rows();
            let all = batch.schema();
            let more: Vec<_> = all.fields().iter().skip(Table::Messages.columns().len()).collect();
            let columns: Vec<_> = more.iter().map(|field| SpecColumn::of_arrow(field).unwrap()).collect();
            let wanted = values(promoted, &columns).unwrap();
            for (at, (column, wanted)) in columns.iter().zip(&wanted).enumerate() {
                let found = batch.column(Table::Messages.columns().len() + at);
                assert_eq!(found, wanted, "{column:?}");
                let field = schema(std::slice::from_ref(column));
                assert_eq!(found.data_type(), field.fields().last().unwrap().data_type());
            }
        }
        assert_eq!((rows as u64, seen.len() as u64), (self.orders, self.orders));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 60, ..ProptestConfig::default() })]
    #[test]
    fn every_order_is_there_once_and_columns_say_what_is_promoted(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut bench = Bench::new();
            bench.ticks_every(Duration::from_millis(10));
            bench.settings.seal_grace = Duration::ZERO;
            bench.settings.specs = specs(1);
            let mut history = History { bench, engine: None, sent: Vec::new(), orders: 0 };
            for step in &steps {
                history.step(step).await;
                history.check().await;
            }
            history.engine = None;
            history.check().await;
        });
    }
}
