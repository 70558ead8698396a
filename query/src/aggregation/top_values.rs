//! The most frequent values of a field, with how many rows have them. Rows that lack the field are not counted.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Expr, ident, lit};
use model::filter::TopFilter;
use model::{ColumnType, Table, TableColumn};
use serde_json::Map;

use crate::Error;
use crate::aggregation::metric_aggregation::column;
use crate::query_result::{JsonPage, objects};
use crate::query_scan::QueryScan;
use crate::scalar_functions::{json_text, texts};
use crate::scan::RollupQuery;
use crate::view_table::RowOrder;

/// The columns of a table whose values are counted.
pub(crate) fn counted_columns(table: Table) -> impl Iterator<Item = &'static TableColumn> + Clone {
    let columns = table.columns().iter();
    columns.filter(|column| !matches!(column.kind, ColumnType::Time | ColumnType::Json | ColumnType::Blob))
}

/// The column, or the key of a JSON column, that a request names.
pub(crate) fn field_of(table: Table, top: &TopFilter) -> Result<Expr, Error> {
    let mut names = counted_columns(table).map(|column| column.name);
    let Some(field) = top.field.as_deref() else {
        return Err(unknown("give", names));
    };
    if let Some(key) = field.strip_prefix("attr.").filter(|key| !key.is_empty()) {
        return Ok(json_text(ident("attributes"), lit(key)));
    }
    match names.clone().find(|name| *name == field) {
        Some(name) => Ok(ident(name)),
        None => Err(unknown(
            &format!("{field:?} is not a field of {table}: give"),
            &mut names,
        )),
    }
}

fn unknown(wrong: &str, names: impl Iterator<Item = &'static str>) -> Error {
    let names: Vec<_> = names.collect();
    Error::parameter("field", format!("{wrong} {} or attr.<key>", names.join(", ")))
}

/// More values than these are not brought together here, but by a plan, which can put them aside.
pub(crate) const MOST_VALUES: usize = 100_000;

/// As [`most_frequent`], by counts of segments where they can answer the question.
pub(crate) async fn most_frequent_counted(
    scan: QueryScan,
    field: Expr,
    question: Option<RollupQuery>,
    limit: usize,
) -> Result<JsonPage, Error> {
    if let Some(question) = question
        && let Some(counts) = counts(&scan, &field, &question).await?
    {
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_unstable_by(|(a, first), (b, second)| second.cmp(first).then_with(|| a.cmp(b)));
        counts.truncate(limit);
        let row = |(value, count): (String, i64)| {
            Map::from_iter([("value".to_owned(), value.into()), ("count".to_owned(), count.into())])
        };
        return Ok(scan.last_page(counts.into_iter().map(row).collect()));
    }
    most_frequent(&scan, &field, limit).await
}

/// How many rows have each value; `None` if a plan must say.
async fn counts(scan: &QueryScan, field: &Expr, question: &RollupQuery) -> Result<Option<HashMap<String, i64>>, Error> {
    let Some((counted, rows)) = scan.count_from_rollup(question).await? else {
        return Ok(None);
    };
    if counted.is_nothing {
        return Ok(None);
    }
    // One of the two at the most tells rows apart.
    let total =
        |(level, entity, buckets): (String, String, HashMap<i64, i64>)| (level + &entity, buckets.into_values().sum());
    let mut counts: HashMap<String, i64> = counted.groups().map(total).collect();
    if let Some(rows) = rows {
        for batch in values(rows, field)?.limit(0, Some(MOST_VALUES + 1))?.collect().await? {
            let more = column(&batch, "count")?.as_primitive::<Int64Type>().values();
            for (value, more) in texts(column(&batch, "value")?)?.zip(more) {
                *counts.entry(value.unwrap_or_default().to_owned()).or_default() += *more;
            }
        }
    }
    Ok((counts.len() <= MOST_VALUES).then_some(counts))
}

/// The values of rows, each with its count.
fn values(rows: DataFrame, field: &Expr) -> Result<DataFrame, Error> {
    let frame = rows.select(vec![field.clone().alias("value")])?;
    let frame = frame.filter(ident("value").is_not_null())?;
    Ok(frame.aggregate(vec![ident("value")], vec![count(lit(1)).alias("count")])?)
}

/// The values with the greatest counts; of equal counts in the values' order.
pub(crate) async fn most_frequent(scan: &QueryScan, field: &Expr, limit: usize) -> Result<JsonPage, Error> {
    let frame = values(scan.frame(scan.window, RowOrder::Any)?, field)?;
    let order = vec![ident("count").sort(false, true), ident("value").sort(true, false)];
    let found = frame.sort(order)?.limit(0, Some(limit))?.collect().await?;
    Ok(scan.last_page(objects(&found).collect()))
}
