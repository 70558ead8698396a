//! The field catalog: the columns and the attributes of rows, each with how many rows have it.
//!
//! Rows are brought together by the set of their keys, of which there are few; each set is read once.
//!
//! # Invariants
//!
//! - Of at most [`MOST_KEYS`] keys anything is held. Where there are more, those of the most frequent sets are, and the answer says so.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{ident, lit};
use futures::TryStreamExt as _;
use model::TableColumn;
use serde_json::Map;

use crate::Error;
use crate::aggregation::metric_aggregation::column;
use crate::aggregation::top_values::counted_columns;
use crate::query_result::JsonPage;
use crate::query_scan::QueryScan;
use crate::scalar_functions::{FunctionKind, texts};
use crate::view_table::RowOrder;

/// More keys than these are not held.
const MOST_KEYS: usize = 10_000;
/// About the bytes of a key beside its text.
const BESIDE_TEXT: usize = 64;

/// The count of all rows.
const ROWS: &str = "rows";

/// A field, as lists of values name it, and how many rows have it.
type FieldCount = (String, i64);

/// The columns in their order, then attributes, those that most rows have first.
pub(crate) async fn fields(scan: QueryScan, limit: usize) -> Result<JsonPage, Error> {
    let mut fields = of_columns(&scan).await?;
    let (attributes, is_whole) = of_attributes(&scan).await?;
    fields.extend(attributes);
    let row = |(field, count): FieldCount| {
        Map::from_iter([("field".to_owned(), field.into()), ("count".to_owned(), count.into())])
    };
    let mut page = scan.last_page(fields.into_iter().map(row).collect());
    if !is_whole {
        let reason = format!("there are more than {MOST_KEYS} attributes: rare ones are missing");
        page.stats.add_partial_reason(&reason);
    }
    Ok(page.truncate_to(limit))
}

async fn of_columns(scan: &QueryScan) -> Result<Vec<FieldCount>, Error> {
    let columns: Vec<_> = counted_columns(scan.table()).collect();
    // A column that every row has is not read.
    let nullable = columns.iter().filter(|column| column.nullable);
    let counts = nullable.map(|column| count(ident(column.name)).alias(count_name(column)));
    let counts = std::iter::once(count(lit(1)).alias(ROWS)).chain(counts).collect();
    let frame = scan.frame(scan.window, RowOrder::Any)?;
    let found = frame.aggregate(Vec::new(), counts)?.collect().await?;
    let mut fields = Vec::with_capacity(columns.len());
    for of in columns {
        let mut rows = 0;
        for batch in &found {
            let counts = column(batch, &count_name(of))?.as_primitive::<Int64Type>();
            rows += counts.values().iter().sum::<i64>();
        }
        fields.push((of.name.to_owned(), rows));
    }
    Ok(fields)
}

/// What the plan calls the count of a column.
fn count_name(column: &TableColumn) -> String {
    match column.nullable {
        true => format!("with {}", column.name),
        false => ROWS.to_owned(),
    }
}

/// The attributes, and whether these are all of them.
async fn of_attributes(scan: &QueryScan) -> Result<(Vec<FieldCount>, bool), Error> {
    let keys = FunctionKind::JsonKeys.call(vec![ident("attributes")]).alias("keys");
    let frame = scan.frame(scan.window, RowOrder::Any)?.select(vec![keys])?;
    let frame = frame.aggregate(vec![ident("keys")], vec![count(lit(1)).alias("count")])?;
    let frame = frame.sort(vec![ident("count").sort(false, true)])?;
    let memory = scan.memory("fields");
    let (mut known, mut is_whole) = (BTreeMap::<String, i64>::new(), true);
    let mut sets = frame.execute_stream().await?;
    while let Some(batch) = sets.try_next().await? {
        let counts = column(&batch, "count")?.as_primitive::<Int64Type>().values();
        for (set, rows) in texts(column(&batch, "keys")?)?.zip(counts) {
            let keys: Vec<String> = serde_json::from_str(set.unwrap_or_default()).unwrap_or_default();
            for key in keys.into_iter().filter(|key| !key.is_empty()) {
                if let Some(so_far) = known.get_mut(&key) {
                    *so_far += rows;
                } else if known.len() < MOST_KEYS {
                    memory.try_grow(key.len() + BESIDE_TEXT)?;
                    known.insert(key, *rows);
                } else {
                    is_whole = false;
                }
            }
        }
    }
    let mut fields: Vec<FieldCount> = known
        .into_iter()
        .map(|(key, rows)| (format!("attr.{key}"), rows))
        .collect();
    fields.sort_by_key(|(_, rows)| Reverse(*rows));
    Ok((fields, is_whole))
}
