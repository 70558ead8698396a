//! Tables of specs: columns that come, go, and change their types.

use engine::{AllSpecFiles, SpecFiles};
use model::spec::{FieldType, SpecColumn};

use super::*;

fn order() -> SpecName {
    "order".parse().unwrap()
}

fn set_columns(store: &TestStore, columns: &[(&str, FieldType)]) {
    let columns = columns.iter().map(|(name, kind)| SpecColumn {
        name: (*name).to_owned(),
        kind: *kind,
    });
    let files = SpecFiles {
        prefix: order(),
        columns: columns.collect(),
    };
    store.engine.set_specs(&AllSpecFiles::from([(order(), files)]));
}

async fn add_order(store: &TestStore, ts: &str, amount: impl Into<Value>) {
    let promoted = Attributes::new().with("amount", amount).with("city", "Basel");
    store.add_message(ts, Some(order()), promoted).await;
}

fn wanted(columns: &[(&str, &str)]) -> Vec<(String, String)> {
    columns
        .iter()
        .map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_come_and_go_with_the_files_that_have_them() {
    let store = TestStore::new().await;
    let catalog = store.catalog();
    store.add_message("2026-11-19T08:00:00Z", None, Attributes::new()).await;
    set_columns(&store, &[("amount", FieldType::Int)]);
    add_order(&store, "2026-11-19T09:00:00Z", 5).await;
    publish(&mut catalog.publisher(), store.files(), 0);
    assert_eq!(catalog.reader().tables().unwrap().len(), 6);
    let (all, orders) = (catalog.load("messages"), catalog.load("messages_order"));
    assert_eq!(
        (all.summary("total-records"), all.promoted()),
        ("2".to_owned(), Vec::new())
    );
    assert_eq!(orders.summary("total-records"), "1");
    assert_eq!(orders.promoted(), wanted(&[("amount", "long")]));
    assert_eq!(
        orders.metadata["table-uuid"],
        Uuid::new_v5(&STORE, b"messages_order").to_string()
    );

    set_columns(&store, &[("amount", FieldType::Int), ("city", FieldType::String)]);
    add_order(&store, "2026-11-20T09:00:00Z", 6).await;
    publish(&mut catalog.publisher(), store.files(), 1);
    let second = catalog.load("messages_order");
    let both = wanted(&[("amount", "long"), ("city", "string")]);
    assert_eq!(second.promoted(), both);
    assert_eq!(
        second.manifests()[0],
        orders.manifests()[0],
        "a new column leaves manifests of other days as they are"
    );

    set_columns(&store, &[("city", FieldType::String)]);
    add_order(&store, "2026-11-21T09:00:00Z", 7).await;
    publish(&mut catalog.publisher(), store.files(), 2);
    let third = catalog.load("messages_order");
    assert_eq!(
        (third.promoted(), &third.metadata["current-schema-id"]),
        (both, &second.metadata["current-schema-id"])
    );

    let recent = store.files_without(|file| !is_of_day(file, "2026-11-21"));
    publish(&mut catalog.publisher(), recent, 3);
    let fourth = catalog.load("messages_order");
    assert_eq!(fourth.promoted(), wanted(&[("city", "string")]));
    // Snapshots name the schema of their time.
    assert_ne!(fourth.current()["schema-id"], third.current()["schema-id"]);
    assert_eq!(fourth.metadata["schemas"].as_array().unwrap().len(), 4);

    // A spec without files keeps its table, and its columns for whoever names them in a statement.
    publish(&mut catalog.publisher(), store.files_without(|_| true), 4);
    let fifth = catalog.load("messages_order");
    assert_eq!(
        (fifth.summary("total-records"), fifth.promoted()),
        ("0".to_owned(), wanted(&[("city", "string")]))
    );
    assert_eq!(catalog.reader().tables().unwrap().len(), 6);
    let earlier = store.files_without(|file| !is_of_day(file, "2026-11-19"));
    publish(&mut catalog.publisher(), earlier, 5);
    assert_eq!(catalog.load("messages_order").promoted(), wanted(&[("amount", "long")]));
    for table in ["messages", "messages_order"] {
        catalog.assert_whole(table);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_whose_type_changed_is_left_out_until_the_older_files_are_gone() {
    let store = TestStore::new().await;
    let catalog = store.catalog();
    set_columns(&store, &[("amount", FieldType::Int), ("city", FieldType::String)]);
    add_order(&store, "2026-11-19T09:00:00Z", 5).await;
    // On one day both.
    add_order(&store, "2026-11-20T08:00:00Z", 6).await;
    set_columns(&store, &[("amount", FieldType::Float), ("city", FieldType::String)]);
    add_order(&store, "2026-11-20T09:00:00Z", 6.5).await;
    publish(&mut catalog.publisher(), store.files(), 0);
    let first = catalog.load("messages_order");
    assert_eq!(first.promoted(), wanted(&[("city", "string")]));
    assert_eq!(first.manifests().len(), 3, "one for each day and schema of files");
    assert_eq!(left_out(&catalog), ["amount"]);
    // A later process finds that nothing changed.
    assert_eq!(publish(&mut catalog.publisher(), store.files(), 1).published, 0);

    let without = |hours: &'static [&'static str]| {
        store.files_without(move |file| hours.iter().any(|hour| file.min_ts.to_string().starts_with(hour)))
    };
    publish(&mut catalog.publisher(), without(&["2026-11-19"]), 2);
    assert_eq!(left_out(&catalog), ["amount"]);
    publish(&mut catalog.publisher(), without(&["2026-11-19", "2026-11-20T08"]), 3);
    let last = catalog.load("messages_order");
    assert_eq!(last.promoted(), wanted(&[("amount", "double"), ("city", "string")]));
    assert_eq!(left_out(&catalog), [] as [&str; 0]);
    // The file that is left has the bounds of its own type: its manifest was never made anew.
    let [manifest]: [ManifestFile; 1] = last.manifests().try_into().unwrap();
    assert!(first.manifests().contains(&manifest));
    let [entry]: [ManifestEntry; 1] = catalog.entries_of(&manifest).try_into().unwrap();
    let bounds: Vec<_> = entry
        .file
        .lower
        .iter()
        .filter(|(id, _)| **id >= 1_000)
        .map(|(_, bound)| bound.clone())
        .collect();
    assert!(bounds.contains(&6.5_f64.to_le_bytes().to_vec()), "{bounds:?}");
    catalog.assert_whole("messages_order");
}

fn left_out(catalog: &TestCatalog) -> Vec<String> {
    let (overview, _) = catalog.reader().overview().unwrap();
    let table = overview.into_iter().find(|table| table.name == "messages_order");
    table.unwrap().columns_left_out
}
