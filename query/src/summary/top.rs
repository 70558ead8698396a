//! The most frequent values of a field, with how many rows have them. Rows that lack the field are not counted.

use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Expr, ident, lit};
use model::batch::row_json;
use model::filter::TopFilter;
use model::{ColumnType, Table};

use crate::Error;
use crate::answer::Page;
use crate::exec::Scan;
use crate::functions::json_text;
use crate::table::Order;

/// A column, or a key of a JSON column.
#[derive(Debug, Clone)]
pub(super) struct Field(Expr);

impl Field {
    /// What a request names.
    pub(super) fn of(table: Table, top: &TopFilter) -> Result<Self, Error> {
        let columns = table.columns().iter();
        let plain =
            columns.filter(|column| !matches!(column.kind, ColumnType::Time | ColumnType::Json | ColumnType::Blob));
        let mut names = plain.map(|column| column.name);
        let Some(field) = top.field.as_deref() else {
            return Err(unknown("give", names));
        };
        if let Some(key) = field.strip_prefix("attr.").filter(|key| !key.is_empty()) {
            return Ok(Self(json_text(ident("attributes"), key)));
        }
        match names.clone().find(|name| *name == field) {
            Some(name) => Ok(Self(ident(name))),
            None => Err(unknown(&format!("{field:?} is no field of {table}: give"), &mut names)),
        }
    }

    /// A label of metrics.
    pub(super) fn label(key: &str) -> Self {
        Self(json_text(ident("labels"), key))
    }
}

fn unknown(wrong: &str, names: impl Iterator<Item = &'static str>) -> Error {
    let names: Vec<_> = names.collect();
    Error::parameter("field", format!("{wrong} {} or attr.<key>", names.join(", ")))
}

/// The values with the greatest counts; of equal counts in the values' order.
pub(super) async fn most_frequent(scan: &Scan, field: &Field, limit: usize) -> Result<Page, Error> {
    let frame = scan.frame(scan.window, Order::Any)?;
    let frame = frame.select(vec![field.0.clone().alias("value")])?;
    let frame = frame.filter(ident("value").is_not_null())?;
    let frame = frame.aggregate(vec![ident("value")], vec![count(lit(1)).alias("count")])?;
    let order = vec![ident("count").sort(false, true), ident("value").sort(true, false)];
    let found = frame.sort(order)?.limit(0, Some(limit))?.collect().await?;
    let rows = |batch| (0..arrow_array::RecordBatch::num_rows(batch)).map(|row| row_json(batch, row));
    let rows: Vec<_> = found.iter().flat_map(rows).collect();
    Ok(Page {
        stats: scan.stats(rows.len()),
        rows,
        next_cursor: None,
    })
}
