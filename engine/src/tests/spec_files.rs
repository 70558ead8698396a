//! Files of a spec: what it promotes is in columns, over any end of the process and any change of the spec.

use ::model::spec::columns::{schema, values};
use ::model::spec::{FieldType, SpecColumn};
use arrow_array::cast::AsArray;
use object_store::memory::InMemory;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::statistics::Statistics;
use serde_json::json;

use super::message_tree::{count, row};
use super::remote_check::machine;
use super::*;
use crate::{AllSpecFiles, SpecFiles, SpecName, StorageFormat, check_store, rebuild_catalogue};

fn order() -> SpecName {
    "order".parse().unwrap()
}

fn column(name: &str, kind: FieldType) -> SpecColumn {
    SpecColumn {
        name: name.to_owned(),
        kind,
    }
}

fn files(prefix: &str, columns: &[SpecColumn]) -> AllSpecFiles {
    let files = SpecFiles {
        prefix: prefix.parse().unwrap(),
        columns: columns.to_vec(),
    };
    AllSpecFiles::from([(order(), files)])
}

fn amount_and_city() -> Vec<SpecColumn> {
    vec![column("amount", FieldType::Int), column("city", FieldType::String)]
}

/// An order of which `n` says all.
fn of(bench: &Bench, n: u64) -> AppendBatch {
    of_time(bench, n, bench.now())
}

fn of_time(bench: &Bench, n: u64, ts: i64) -> AppendBatch {
    let mut row = row(bench, n);
    row.ts = Timestamp::from_micros(ts);
    row.promoted = Attributes::new()
        .with("amount", n)
        .with("city", format!("city-{}", n % 3));
    let rows = ::model::batch::messages(&[row]).unwrap();
    AppendBatch {
        table: Table::Messages,
        origin: from_bus(n),
        payload: encode_arrow(std::slice::from_ref(&rows)).unwrap().into(),
        rows: vec![rows],
    }
}

async fn append(engine: &Engine, bench: &Bench, orders: std::ops::Range<u64>) {
    for n in orders {
        engine.append_of_specs(of(bench, n), vec![Some(order())]).await.unwrap();
    }
}

/// The amounts in the columns of files, and how many rows have none.
fn amounts(view: &ReadView) -> (Vec<i64>, usize) {
    let (mut found, mut missing) = (Vec::new(), 0);
    for batch in view.files(Table::Messages).iter().flat_map(|file| read(file)) {
        match batch.column_by_name("amount") {
            Some(column) => found.extend(
                column
                    .as_primitive::<arrow_array::types::Int64Type>()
                    .iter()
                    .map(Option::unwrap),
            ),
            None => missing += batch.num_rows(),
        }
    }
    found.sort_unstable();
    (found, missing)
}

fn is_whole(bench: &Bench, files: u64) {
    let report = check_store(&bench.settings, true, |_, _| {}).unwrap();
    assert_eq!(
        (report.files, report.problems.len()),
        (files, 0),
        "{:?}",
        report.problems
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_spec_promotes_is_in_columns_with_bounds_and_filters() {
    let mut bench = Bench::new();
    bench.settings.specs = files("ord", &amount_and_city());
    let engine = bench.open().await;
    append(&engine, &bench, 1..50).await;
    engine.append(of(&bench, 50)).await.unwrap();
    drop(engine);
    // What was acknowledged is in the log alone, which knows no columns.
    let engine = bench.open().await;
    append(&engine, &bench, 51..60).await;
    engine.flush().await.unwrap();
    append(&engine, &bench, 60..70).await;
    bench.advance(Duration::from_secs(2 * 3_600));
    engine.flush().await.unwrap();
    engine.close().await.unwrap();
    bench.settings.seal_grace = Duration::ZERO;
    bench.ticks_every(Duration::from_millis(20));
    let engine = bench.open().await;
    until("everything is sealed", || {
        let view = engine.view();
        view.files(Table::Messages).iter().all(|file| file.sealed)
    })
    .await;
    let view = engine.view();
    let all: Vec<i64> = (1..50).chain(51..70).collect();
    assert_eq!(amounts(&view), (all, 1));
    let specs: Vec<_> = view.files(Table::Messages).iter().map(|file| file.spec()).collect();
    assert_eq!(specs, [None, Some(order())]);
    let file = &view.files(Table::Messages)[1];
    assert!(
        file.path.ends_with("fluxSpec/order/2026/11/21/12/ord_001.parquet"),
        "{}",
        file.path.display()
    );
    let footer = file.metadata().unwrap();
    let described = footer.file_metadata().schema_descr();
    let wanted = schema(&amount_and_city());
    for (at, field) in wanted.fields().iter().enumerate() {
        let found = described.column(at);
        assert_eq!(found.name(), field.name());
        let id = found.self_type().get_basic_info().id();
        assert_eq!(id.to_string(), field.metadata()["PARQUET:field_id"], "{}", field.name());
    }
    let group = footer.row_group(0);
    let base = Table::Messages.columns().len();
    let Some(Statistics::Int64(bounds)) = group.column(base).statistics() else {
        panic!("amounts have no bounds");
    };
    assert_eq!((bounds.min_opt(), bounds.max_opt()), (Some(&1), Some(&69)));
    assert!(group.column(base + 1).statistics().is_some());
    for at in [base, base + 1] {
        assert!(group.column(at).bloom_filter_offset().is_some(), "{at}");
    }
    engine.close().await.unwrap();
    is_whole(&bench, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_published_piece_of_a_spec_says_its_columns_and_another_one_says_nothing() {
    let objects = Arc::new(InMemory::new());
    let mut bench = machine(&objects, "one");
    bench.settings.specs = files("order", &amount_and_city());
    let engine = bench.open().await;
    append(&engine, &bench, 1..3).await;
    engine.append(of(&bench, 3)).await.unwrap();
    engine.sync_remote().await.unwrap();
    let published = engine.published_files().files;
    assert_eq!(
        published.iter().filter(|file| file.is_piece).count(),
        2,
        "{published:?}"
    );
    let look = move || {
        for file in published {
            let footer = file.footer().unwrap();
            let is_amount = |footer: Arc<ParquetMetaData>| {
                let columns = footer.file_metadata().schema_descr().columns();
                columns.iter().any(|column| column.name() == "amount")
            };
            assert_eq!(footer.map(is_amount), file.spec.map(|_| true), "{file:?}");
        }
    };
    tokio::task::spawn_blocking(look).await.unwrap();
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_spec_begins_a_new_file_and_the_old_one_stays_as_it_is() {
    let mut bench = Bench::new();
    bench.settings.specs = files("order", &amount_and_city());
    let engine = bench.open().await;
    append(&engine, &bench, 1..4).await;
    engine.flush().await.unwrap();
    append(&engine, &bench, 4..6).await;
    // The next file's rows are partly from before the change: what it has columns for they have too.
    let more = [amount_and_city(), vec![column("coupon", FieldType::Bool)]].concat();
    engine.set_specs(&files("order", &more));
    append(&engine, &bench, 6..8).await;
    engine.flush().await.unwrap();
    engine.set_specs(&files("paid", &more));
    append(&engine, &bench, 8..9).await;
    engine.flush().await.unwrap();
    let names = |view: &ReadView| -> Vec<(String, u64, usize)> {
        let files = view.files(Table::Messages).iter();
        files
            .map(|file| {
                let name = file.path.file_name().unwrap().to_str().unwrap().to_owned();
                let columns = file.metadata().unwrap().file_metadata().schema_descr().num_columns();
                (name, file.rows, columns)
            })
            .collect()
    };
    let wanted = [
        ("order_001.parquet".to_owned(), 3, 14),
        ("order_002.parquet".to_owned(), 4, 15),
        ("paid_003.parquet".to_owned(), 1, 15),
    ];
    assert_eq!(names(&engine.view()), wanted);
    drop(engine);
    // Whoever opens it next need not know any spec: files go on as they are, rows are in their folder.
    bench.settings.specs = AllSpecFiles::new();
    let engine = bench.open().await;
    append(&engine, &bench, 1..11).await;
    engine.flush().await.unwrap();
    let view = engine.view();
    assert_eq!(amounts(&view), ((1..9).collect(), 2));
    assert_eq!(names(&view).last().unwrap(), &("order_004.parquet".to_owned(), 2, 12));
    engine.close().await.unwrap();
    is_whole(&bench, 4);
    std::fs::remove_dir_all(bench.settings.store_dir.join("meta")).unwrap();
    let now = Timestamp::from_micros(bench.now());
    let report = rebuild_catalogue(&bench.settings, now, |_, _| {}).unwrap();
    assert_eq!((report.files, report.rows, report.problems.len()), (4, 10, 0));
    assert!(report.strangers.is_empty(), "{:?}", report.strangers);
    let engine = bench.open().await;
    assert_eq!(amounts(&engine.view()), ((1..9).collect(), 2));
    append(&engine, &bench, 1..11).await;
    assert_eq!(count(&engine.view()), 10, "nothing is stored twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_a_spec_that_changes_while_its_file_is_looked_at_has_its_value_in_the_column() {
    let mut bench = Bench::new();
    bench.settings.specs = files("order", &amount_and_city());
    let engine = bench.open().await;
    append(&engine, &bench, 1..3).await;
    engine.flush().await.unwrap();
    append(&engine, &bench, 3..4).await;
    let mut half = of(&bench, 4);
    let mut row = row(&bench, 4);
    row.promoted = Attributes::new().with("amount", 4.5);
    half.rows = vec![::model::batch::messages(&[row]).unwrap()];
    half.payload = encode_arrow(&half.rows).unwrap().into();
    let (runtime, change) = (tokio::runtime::Handle::current(), std::sync::Once::new());
    let store = Arc::downgrade(&engine);
    engine.shared.hooks.before_freeze.is(move || {
        change.call_once(|| {
            let store = store.upgrade().unwrap();
            store.set_specs(&files("order", &[column("amount", FieldType::Float)]));
            let appended = runtime.block_on(store.append_of_specs(half.clone(), vec![Some(order())]));
            assert_eq!(appended.unwrap(), stored(1));
        });
    });
    engine.flush().await.unwrap();
    let view = engine.view();
    assert_eq!(count(&view), 4);
    let [first, second] = view.files(Table::Messages) else {
        panic!("a file for each version of the spec");
    };
    assert_eq!((first.rows, second.rows), (2, 2));
    let mut amounts = Vec::new();
    for batch in read(second) {
        let column = batch.column_by_name("amount").unwrap();
        amounts.extend(
            column
                .as_primitive::<arrow_array::types::Float64Type>()
                .iter()
                .flatten(),
        );
    }
    amounts.sort_by(f64::total_cmp);
    assert_eq!(amounts, [3.0, 4.5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_file_goes_on_with_its_columns_after_the_process_ended() {
    let mut bench = Bench::new();
    bench.settings.specs = files("order", &amount_and_city());
    for round in 0..6 {
        let engine = bench.open().await;
        append(&engine, &bench, round * 4 + 1..round * 4 + 3).await;
        engine.flush().await.unwrap();
        append(&engine, &bench, round * 4 + 3..round * 4 + 5).await;
        let view = engine.view();
        assert_eq!(view.files(Table::Messages).len(), 1);
        let hot = view.hot(Table::Messages);
        assert!(hot.iter().all(|hot| hot.spec == Some(order())));
        let promoted = hot[0].batch.column_by_name("promoted").unwrap();
        let cities = values(promoted.as_string::<i32>(), &amount_and_city()[1..]).unwrap();
        assert!(cities[0].as_string::<i32>().value(0).starts_with("city-"));
        drop(engine);
    }
    let engine = bench.open().await;
    engine.flush().await.unwrap();
    let view = engine.view();
    assert_eq!(view.files(Table::Messages).len(), 1);
    assert_eq!(amounts(&view), ((1..25).collect(), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_orders_at_once_become_a_sealed_file_with_their_columns() {
    let mut bench = Bench::new();
    bench.settings.specs = files("order", &amount_and_city());
    bench.settings.segment_size = ByteSize::bytes(64 << 10);
    let engine = bench.open().await;
    let rows: Vec<_> = (0..400u64)
        .map(|n| {
            let mut row = row(&bench, n % 250);
            row.raw_msg = vec![u8::try_from(n % 251).unwrap(); 900];
            row.promoted = Attributes::new().with("amount", n);
            row
        })
        .collect();
    let rows = ::model::batch::messages(&rows).unwrap();
    let batch = AppendBatch {
        table: Table::Messages,
        origin: from_bus(1),
        payload: encode_arrow(std::slice::from_ref(&rows)).unwrap().into(),
        rows: vec![rows],
    };
    engine.append_of_specs(batch, vec![Some(order())]).await.unwrap();
    engine.flush().await.unwrap();
    let view = engine.view();
    assert!(view.files(Table::Messages)[0].sealed);
    assert_eq!(amounts(&view), ((0..400).collect(), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_lines_have_what_is_promoted_in_promoted_alone() {
    let mut bench = Bench::new();
    bench.settings.specs = files("ord", &amount_and_city());
    bench.settings.format = StorageFormat::Json;
    let engine = bench.open().await;
    append(&engine, &bench, 1..3).await;
    engine.flush().await.unwrap();
    append(&engine, &bench, 3..4).await;
    engine.flush().await.unwrap();
    let view = engine.view();
    let [file] = view.files(Table::Messages) else {
        panic!("one file");
    };
    assert!(file.path.ends_with("ord_001.json.zst"), "{}", file.path.display());
    let row = row_json(&read(file)[0], 0);
    let promoted = row["promoted"].clone();
    let promoted = promoted
        .as_str()
        .map_or(promoted.clone(), |text| serde_json::from_str(text).unwrap());
    assert!(promoted == json!({"amount": 1, "city": "city-1"}) || promoted == json!({"amount": 2, "city": "city-2"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn late_rows_of_a_spec_leave_few_files_of_lines() {
    let mut bench = Bench::new();
    bench.settings.specs = files("ord", &amount_and_city());
    bench.settings.format = StorageFormat::Json;
    bench.settings.open_max = 1;
    let engine = bench.open().await;
    append(&engine, &bench, 1..2).await;
    engine.flush().await.unwrap();
    for n in 2..12 {
        let late = of_time(&bench, n, bench.now() - HOUR);
        engine.append_of_specs(late, vec![Some(order())]).await.unwrap();
        engine.flush().await.unwrap();
    }
    let view = engine.view();
    assert_eq!((view.files(Table::Messages).len(), count(&view)), (5, 11));
}
