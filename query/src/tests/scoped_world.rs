//! Rows of three entities, one of which no scope has, in a store with all of them and in stores with those of a scope only.

use engine::{AppendBatch, BatchOrigin, SpecFiles, SpecName};
use model::batch::{MessageRow, messages};
use model::spec::{FieldType, SpecColumn};
use model::{Attributes, EntityId, LogRecord, MetricPoint, Span, Table};

use super::Bench;
use super::random_world::{self, ENTITIES, Random};
use crate::{DataScope, SpecTable};

/// What is nowhere but in rows of the entity that no scope has.
pub(super) const SECRET: &str = "geheim";
/// That entity.
pub(super) const OUTSIDE: &str = ENTITIES[1];

/// Rows of all kinds in one of three ages.
pub(super) struct RowSet {
    pub(super) logs: Vec<LogRecord>,
    spans: Vec<Span>,
    points: Vec<MetricPoint>,
    messages: Vec<MessageRow>,
    orders: Vec<MessageRow>,
}

/// What the entities of scopes say is a number that is not 0; what the others say is none, and a secret.
pub(super) fn row_set(random: &mut Random, size: u64) -> RowSet {
    let is_outside = |name: &str| name == OUTSIDE;
    let log = |n: u64, mut log: LogRecord| {
        log.message = n.to_string();
        if is_outside(&log.entity_name) {
            log.message = format!("{SECRET} {n}");
            log.attributes.set(SECRET, SECRET);
        }
        log
    };
    let span = |mut span: Span| {
        if is_outside(&span.entity_name) {
            span.span_name = SECRET.to_owned();
        }
        span
    };
    let point = |mut point: MetricPoint| {
        point.value += 1.0;
        if is_outside(&point.entity_name) {
            (point.name, point.value) = (SECRET.to_owned(), 0.0);
        }
        point
    };
    let message = |n: u64, mut message: MessageRow| {
        message.promoted = Attributes::new().with("amount", n + 1).with("city", n.to_string());
        if is_outside(&message.entity_name) {
            message.msg_type = SECRET.to_owned();
            message.promoted = Attributes::new().with("amount", 0).with("city", SECRET);
        }
        message
    };
    RowSet {
        logs: (0..size).map(|n| log(n, random_world::log(random))).collect(),
        spans: (0..size).map(|_| span(random_world::span(random))).collect(),
        points: (0..size).map(|_| point(random_world::point(random))).collect(),
        messages: (0..size).map(|n| message(n, random_world::message(random))).collect(),
        orders: (0..size).map(|n| message(n, random_world::message(random))).collect(),
    }
}

impl RowSet {
    /// Appends the rows of some entities.
    async fn append(&self, bench: &Bench, of: &[&str]) {
        fn those<R: Clone>(rows: &[R], of: &[&str], name: impl Fn(&R) -> &str) -> Vec<R> {
            rows.iter().filter(|row| of.contains(&name(row))).cloned().collect()
        }
        bench.append(&those(&self.logs, of, |row| &row.entity_name)).await;
        bench.append(&those(&self.spans, of, |row| &row.entity_name)).await;
        bench.append(&those(&self.points, of, |row| &row.entity_name)).await;
        for (rows, spec) in [(&self.messages, None), (&self.orders, Some(order()))] {
            let rows = those(rows, of, |row| &row.entity_name);
            if rows.is_empty() {
                continue;
            }
            let rows = messages(&rows).unwrap();
            let payload = model::telemetry_codec::encode_arrow(std::slice::from_ref(&rows)).unwrap();
            let batch = AppendBatch {
                table: Table::Messages,
                origin: BatchOrigin::default(),
                payload: payload.into(),
                rows: vec![rows],
            };
            bench.engine.append_of_specs(batch, vec![spec]).await.unwrap();
        }
    }
}

fn order() -> SpecName {
    "order".parse().unwrap()
}

/// The same rows, those of some entities, in sealed files, in open files and in memory.
pub(super) async fn worlds<const N: usize>(seed: u64, of: [&[&str]; N]) -> [Bench; N] {
    let column = |name: &str, kind| SpecColumn {
        name: name.to_owned(),
        kind,
    };
    let columns = vec![column("amount", FieldType::Int), column("city", FieldType::String)];
    let mut random = Random::seeded(seed);
    let ages = [60, 30, 20].map(|size| row_set(&mut random, size));
    let mut benches = Vec::new();
    for of in of {
        let mut bench = Bench::new().await;
        let files = SpecFiles {
            prefix: order(),
            columns: columns.clone(),
        };
        bench.engine.set_specs(&[(order(), files)].into());
        ages[0].append(&bench, of).await;
        bench.seal().await;
        ages[1].append(&bench, of).await;
        bench.publish().await;
        ages[2].append(&bench, of).await;
        bench.querier.set_specs(vec![SpecTable::new(order(), columns.clone())]);
        benches.push(bench);
    }
    benches.try_into().ok().unwrap()
}

pub(super) fn entities(texts: &[&str]) -> DataScope {
    DataScope {
        entities: Some(texts.iter().map(|text| (*text).to_owned()).collect()),
        ..DataScope::default()
    }
}

pub(super) fn tables(of: &[Table]) -> DataScope {
    DataScope {
        tables: Some(of.iter().copied().collect()),
        ..DataScope::default()
    }
}

/// A scope's names for its entities, and the entities.
pub(super) fn scopes() -> [(DataScope, usize); 4] {
    let id = EntityId::for_name(ENTITIES[0]).to_string();
    [
        (entities(&[ENTITIES[0]]), 0),
        (entities(&[&id]), 0),
        (entities(&[&id, ENTITIES[2], "nobody"]), 1),
        (entities(&[]), 2),
    ]
}

/// A store with everything, and one for each of the scopes.
pub(super) async fn scoped_worlds(seed: u64) -> (Bench, [Bench; 3]) {
    let of: [&[&str]; 4] = [&ENTITIES, &ENTITIES[..1], &[ENTITIES[0], ENTITIES[2]], &[]];
    let [all, a, b, c] = worlds(seed, of).await;
    (all, [a, b, c])
}
