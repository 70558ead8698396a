//! The tables of specs: promoted columns wherever rows lie, old files beside new ones, files left out by their bounds.

use engine::{AllSpecFiles, SpecFiles, SpecName};
use model::batch::{MessageRow, messages};
use model::filter::MessageFilter;
use model::spec::{FieldType, SpecColumn};
use model::{Attributes, Table, Timestamp};
use serde_json::{Value, json};

use super::random_world::{self, Random};
use super::sql::{asked, rows};
use super::{Bench, HOUR, append_batch, now};
use crate::{Error, ListQuery, QueryLimits, SpecTable, SqlDialect, SqlStatement};

fn order() -> SpecName {
    "order".parse().unwrap()
}

fn column(name: &str, kind: FieldType) -> SpecColumn {
    SpecColumn {
        name: name.to_owned(),
        kind,
    }
}

fn first() -> Vec<SpecColumn> {
    vec![column("amount", FieldType::Int), column("city", FieldType::String)]
}

fn second() -> Vec<SpecColumn> {
    vec![
        column("amount", FieldType::Float),
        column("city", FieldType::String),
        column("coupon", FieldType::Bool),
        column("id", FieldType::Uuid),
        column("placed", FieldType::Timestamp),
    ]
}

fn files(columns: Vec<SpecColumn>) -> AllSpecFiles {
    let files = SpecFiles {
        prefix: order(),
        columns,
    };
    AllSpecFiles::from([(order(), files)])
}

async fn append(bench: &Bench, hours: i64, orders: Vec<Attributes>) {
    let mut random = Random::new();
    let rows: Vec<MessageRow> = orders
        .into_iter()
        .map(|promoted| MessageRow {
            ts: Timestamp::from_micros(now().micros() - hours * HOUR),
            msg_type: "order".to_owned(),
            promoted,
            ..random_world::message(&mut random)
        })
        .collect();
    let batch = messages(&rows).unwrap();
    let batch = engine::AppendBatch {
        table: Table::Messages,
        origin: engine::BatchOrigin::default(),
        payload: model::telemetry_codec::encode_arrow(std::slice::from_ref(&batch))
            .unwrap()
            .into(),
        rows: vec![batch],
    };
    bench.engine.append_of_specs(batch, vec![Some(order())]).await.unwrap();
}

fn old(n: u64) -> Attributes {
    Attributes::new()
        .with("amount", n)
        .with("city", format!("city-{}", n % 5))
}

fn new(n: u32) -> Attributes {
    Attributes::new()
        .with("amount", f64::from(n) + 0.5)
        .with("city", format!("city-{}", n % 5))
        .with("coupon", n.is_multiple_of(2))
        .with("id", format!("01935000-0000-7000-8000-{n:012x}"))
        .with("placed", "2026-11-21T10:00:00.000000Z")
}

/// Orders 0 to 159: 100 in a sealed file of the first version, 20 in a file without columns, 30 in a file of the second version,
/// 10 in memory; and messages of no spec.
async fn bench() -> Bench {
    let mut bench = Bench::new().await;
    fill(&mut bench).await;
    bench
}

async fn fill(bench: &mut Bench) {
    bench.engine.set_specs(&files(first()));
    append(bench, 5, (0..100).map(old).collect()).await;
    bench.seal().await;
    append(bench, 3, (100..120).map(old).collect()).await;
    bench.publish().await;
    bench.engine.set_specs(&files(second()));
    append(bench, 2, (120..150).map(new).collect()).await;
    bench.publish().await;
    append(bench, 0, (150..160).map(new).collect()).await;
    let mut random = Random::new();
    let others: Vec<_> = (0..7).map(|_| random_world::message(&mut random)).collect();
    append_batch(&bench.engine, Table::Messages, messages(&others).unwrap()).await;
    bench.querier.set_specs(vec![SpecTable::new(order(), second())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_column_is_the_same_in_old_files_in_new_ones_and_in_memory() {
    let bench = bench().await;
    let query = "SELECT count(*), sum(amount), min(amount), max(amount), count(coupon), count(id), min(placed)
                 FROM messages_order";
    let sum = f64::from((0..160).sum::<u32>()) + 40.0 * 0.5;
    assert_eq!(
        rows(&bench, query).await,
        [[
            json!(160),
            json!(sum),
            json!(0.0),
            json!(159.5),
            json!(40),
            json!(40),
            json!("2026-11-21T10:00:00.000000Z")
        ]]
    );
    for (condition, wanted) in [
        ("amount > 98", 61),
        ("amount > 100", 59),
        ("amount BETWEEN 95 AND 121", 26),
        ("amount = 99", 1),
        ("amount = 120.5", 1),
        ("city = 'city-3'", 32),
        ("city LIKE 'city-%' AND coupon", 20),
        ("coupon IS NULL", 120),
        ("id = '01935000-0000-7000-8000-00000000007d'", 1),
        ("placed < '2026-11-21T11:00:00Z'", 40),
        ("amount > 1000", 0),
        ("amount > 98 AND ts < now() - INTERVAL '4 hours'", 1),
        ("amount > 98 AND ts >= now() - INTERVAL '3 hours'", 60),
        ("ts >= now() - INTERVAL '1 hour'", 10),
        ("msg_type = 'order'", 160),
    ] {
        let found = rows(
            &bench,
            &format!("SELECT count(*) FROM messages_order WHERE {condition}"),
        )
        .await;
        assert_eq!(found, [[json!(wanted)]], "{condition}");
        let found = rows(&bench, &format!("SELECT * FROM messages_order WHERE {condition}")).await;
        assert_eq!(found.len(), wanted, "{condition}");
    }
    let newest = rows(
        &bench,
        "SELECT amount FROM messages_order ORDER BY ts DESC, amount DESC LIMIT 12",
    )
    .await;
    assert_eq!(
        (newest.len(), &newest[0], &newest[11]),
        (12, &vec![json!(159.5)], &vec![json!(148.5)])
    );
    let oldest = rows(
        &bench,
        "SELECT city, amount FROM messages_order ORDER BY ts, amount LIMIT 1",
    )
    .await;
    assert_eq!(oldest, [[json!("city-0"), json!(0.0)]]);
    assert_eq!(rows(&bench, "SELECT count(*) FROM messages").await, [[json!(167)]]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_comes_before_the_others_changes_no_answer() {
    let mut bench = Bench::new().await;
    bench.engine.set_specs(&files(vec![column("city", FieldType::String)]));
    append(&bench, 5, (0..100).map(old).collect()).await;
    bench.seal().await;
    bench.engine.set_specs(&files(first()));
    append(&bench, 3, (100..120).map(old).collect()).await;
    bench.publish().await;
    bench.querier.set_specs(vec![SpecTable::new(order(), first())]);
    for (condition, wanted) in [
        ("city = 'city-3'", 24),
        ("city > 'city-3'", 24),
        ("amount >= 100", 20),
        ("city < 'a'", 0),
    ] {
        let query = format!("SELECT count(*) FROM messages_order WHERE {condition}");
        assert_eq!(rows(&bench, &query).await, [[json!(wanted)]], "{condition}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_is_opened_before_a_plan_comes_to_it() {
    let limits = QueryLimits {
        threads: 1,
        ..QueryLimits::default()
    };
    let mut bench = Bench::with(limits).await;
    fill(&mut bench).await;
    // Nothing is known of the files but what the catalogue says.
    bench.set_index(true).await;
    bench.querier.set_specs(vec![SpecTable::new(order(), second())]);
    let opened = |bench: &Bench| {
        let view = bench.engine.view();
        let files = view.files(Table::Messages).iter();
        let opened = files.filter(|file| file.spec().is_some() && file.metadata_cached().is_some());
        opened.count()
    };
    assert_eq!(opened(&bench), 0);
    for query in [
        "EXPLAIN SELECT amount FROM messages_order WHERE amount > 98",
        "SELECT amount FROM messages_order LIMIT 0",
    ] {
        asked(&bench, query, json!([])).await.unwrap();
        assert_eq!(opened(&bench), 0, "{query}");
    }
    assert_eq!(rows(&bench, "SELECT amount FROM messages_order LIMIT 1").await.len(), 1);
    let (few, query) = (opened(&bench), "SELECT count(amount) FROM messages_order");
    assert_eq!(rows(&bench, query).await, [[json!(160)]]);
    assert!(few < opened(&bench), "{few} files were opened for one row");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_whose_bounds_rule_them_out_are_not_read() {
    let bench = bench().await;
    let stats = |answer: &Value| {
        let stats = &answer["stats"];
        [&stats["files_considered"], &stats["files_pruned"], &stats["files_read"]].map(|count| count.as_u64().unwrap())
    };
    for (condition, pruned, read_at_most) in [
        ("amount > 100", 0, 2),
        ("amount > 1000", 0, 1),
        ("amount < 100", 0, 2),
        ("amount >= 0", 0, 3),
        ("city = 'nowhere'", 0, 1),
        ("coupon", 0, 3),
        ("amount > 100 AND ts < now() - INTERVAL '4 hours'", 2, 0),
    ] {
        let query = format!("SELECT count(*) FROM messages_order WHERE {condition}");
        let answer = asked(&bench, &query, json!([])).await.unwrap();
        let [considered, left_out, read] = stats(&answer);
        assert_eq!((considered, left_out), (3, pruned), "{condition}");
        assert!(read <= read_at_most, "{condition}: {read} files were read");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_specs_are_listed_with_all_others() {
    let bench = bench().await;
    for (msg_type, least) in [("order", 160), ("order_", 0)] {
        let filter = MessageFilter {
            msg_type: Some(msg_type.to_owned()),
            limit: Some(1000),
            ..MessageFilter::default()
        };
        let page = bench.querier.page(ListQuery::Messages(filter.clone())).await.unwrap();
        let of_spec = page
            .rows
            .iter()
            .filter(|row| row["promoted"].to_string().contains("city-"));
        assert_eq!(of_spec.count(), least);
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_lines_have_the_columns_too() {
    let mut bench = Bench::of_lines().await;
    fill(&mut bench).await;
    let found = rows(
        &bench,
        "SELECT count(*), sum(amount) FROM messages_order WHERE amount > 98",
    )
    .await;
    let sum = f64::from((99..160).sum::<u32>()) + 40.0 * 0.5;
    assert_eq!(found, [[json!(61), json!(sum)]]);
    let found = rows(&bench, "SELECT count(*) FROM messages_order WHERE msg_type = 'order'").await;
    assert_eq!(found, [[json!(160)]]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_there_as_soon_as_its_spec_and_clients_of_postgresql_see_it() {
    let bench = Bench::new().await;
    let query = "SELECT amount FROM messages_order";
    let unknown = asked(&bench, query, json!([])).await.unwrap_err();
    assert!(matches!(&unknown, Error::Statement { .. }), "{unknown}");
    let attributes = "SELECT count(*) FROM pg_catalog.pg_attribute WHERE attname = 'coupon'";
    let statement = |query: &str| SqlStatement {
        query: query.to_owned(),
        dialect: SqlDialect::Postgres,
        ..SqlStatement::default()
    };
    let count = async |bench: &Bench| {
        let mut answer = bench.querier.sql(&statement(attributes)).await.unwrap();
        let batch = answer.next().await.unwrap().unwrap();
        arrow_array::cast::AsArray::as_primitive::<arrow_array::types::Int64Type>(batch.column(0)).value(0)
    };
    assert_eq!(count(&bench).await, 0);
    bench.querier.set_specs(vec![SpecTable::new(order(), second())]);
    assert_eq!(rows(&bench, query).await, Vec::<Vec<Value>>::new());
    assert_eq!(count(&bench).await, 1);
    let tables = "SELECT count(*) FROM information_schema.columns WHERE table_name = 'messages_order'";
    assert_eq!(
        rows(&bench, tables).await,
        [[json!(Table::Messages.columns().len() + 5)]]
    );
    bench.close().await;
}
