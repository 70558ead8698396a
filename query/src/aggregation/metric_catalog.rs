//! The metric catalog: names, types and units of metrics, the keys of their labels and how many values these have.

use std::collections::{BTreeMap, HashSet};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{ident, lit};
use model::value_text;
use serde_json::{Map, Value};

use super::no_metric;
use crate::Error;
use crate::aggregation::metric_aggregation::{MAX_GROUPS, column};
use crate::point_labels::is_of_point;
use crate::query_result::{JsonPage, ListAnswer, MetricPage, objects};
use crate::query_scan::QueryScan;
use crate::scalar_functions::{FunctionKind, json_text, series_key, texts};
use crate::view_table::RowOrder;

/// More kinds of label sets than this are not looked at when a metric is described.
const MAX_LABEL_SETS: usize = 1_000;

/// Names and types, sorted, with their numbers of points.
pub(crate) async fn names(scan: QueryScan, limit: usize) -> Result<JsonPage, Error> {
    let keys = || ["name", "type"].map(ident).to_vec();
    let frame = scan.frame(scan.window, RowOrder::Any)?.select(keys())?;
    let frame = frame.aggregate(keys(), vec![count(lit(1)).alias("count")])?;
    let order = keys().into_iter().map(|key| key.sort(true, false)).collect();
    let found = frame.sort(order)?.limit(0, Some(limit + 1))?.collect().await?;
    Ok(scan.last_page(objects(&found).collect()).truncate_to(limit))
}

/// The keys of labels, sorted, with the number of values of each, told apart as texts, and of the points that have it. What
/// belongs to one point is no label.
pub(crate) async fn label_keys_of(scan: QueryScan, name: String, limit: usize) -> Result<JsonPage, Error> {
    let frame = scan.frame(scan.window, RowOrder::Any)?;
    let frame = frame.select(vec![series_key(ident("labels")).alias("series")])?;
    let frame = frame.aggregate(vec![ident("series")], vec![count(lit(1)).alias("count")])?;
    let mut sets = 0;
    let mut keys: BTreeMap<String, (HashSet<String>, i64)> = BTreeMap::new();
    for batch in frame.limit(0, Some(MAX_GROUPS + 1))?.collect().await? {
        sets += batch.num_rows();
        let counts = column(&batch, "count")?.as_primitive::<Int64Type>().values();
        for (labels, count) in texts(column(&batch, "series")?)?.zip(counts) {
            let labels: Map<String, Value> = serde_json::from_str(labels.unwrap_or_default()).unwrap_or_default();
            for (key, value) in labels {
                let Some(text) = value_text(value) else { continue };
                let (values, points) = keys.entry(key).or_default();
                values.insert(text);
                *points += count;
            }
        }
    }
    match sets {
        0 => return Err(no_metric(name, &scan)),
        sets if sets > MAX_GROUPS => return Err(Error::TooManyGroups(MAX_GROUPS)),
        _ => {}
    }
    let row = |(key, (values, points)): (String, (HashSet<String>, i64))| {
        let row = [
            ("key", Value::from(key)),
            ("values", values.len().into()),
            ("count", points.into()),
        ];
        Map::from_iter(row.map(|(name, value)| (name.to_owned(), value)))
    };
    Ok(scan.last_page(keys.into_iter().map(row).collect()).truncate_to(limit))
}

/// Adds what a metric is to its points. What belongs to one point is no label.
pub(crate) async fn describe(scan: QueryScan, name: String, list: ListAnswer) -> Result<MetricPage, Error> {
    let frame = scan.frame(scan.window, RowOrder::Any)?.select(vec![
        ident("type"),
        json_text(ident("labels"), lit("otel.unit")).alias("unit"),
        FunctionKind::JsonKeys.call(vec![ident("labels")]).alias("keys"),
    ])?;
    let keys = ["type", "unit", "keys"].map(ident).to_vec();
    let frame = frame.aggregate(keys, vec![count(lit(1)).alias("points")])?;
    let frame = frame.sort(vec![ident("points").sort(false, true)])?;
    let mut found = MetricPage {
        metric_type: None,
        unit: None,
        label_keys: Vec::new(),
        list,
        name,
    };
    let mut sets = 0;
    for batch in frame.limit(0, Some(MAX_LABEL_SETS + 1))?.collect().await? {
        sets += batch.num_rows();
        for kind in texts(column(&batch, "type")?)?.flatten() {
            found.metric_type = found.metric_type.or_else(|| kind.parse().ok());
        }
        for unit in texts(column(&batch, "unit")?)?.flatten() {
            found.unit.get_or_insert_with(|| unit.to_owned());
        }
        for keys in texts(column(&batch, "keys")?)?.flatten() {
            let keys: Vec<String> = serde_json::from_str(keys).unwrap_or_default();
            found
                .label_keys
                .extend(keys.into_iter().filter(|key| !is_of_point(key)));
        }
    }
    if found.metric_type.is_none() {
        return Err(no_metric(found.name, &scan));
    }
    if sets > MAX_LABEL_SETS {
        let reason = format!("there are more than {MAX_LABEL_SETS} kinds of label sets: label_keys lacks rare keys");
        found.list.stats.add_partial_reason(&reason);
    }
    found.label_keys.sort_unstable();
    found.label_keys.dedup();
    Ok(found)
}
