//! The field catalog: the columns and the attributes of rows, each with how many rows have it.
//!
//! # Invariants
//!
//! - Anybody who may send rows chooses their keys. Of twice [`MOST_KEYS`] keys of [`LONGEST_KEY`] bytes anything is held at most: where
//!   there are more, those that fewest rows have had so far are forgotten (lossy counting), and the answer says so: the count of one that came
//!   back is too low by those rows.
//! - Values are skipped, not read. Others have their turn after each slice of rows.

use std::cmp::Reverse;
use std::collections::HashMap;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{ident, lit};
use futures::TryStreamExt as _;
use model::{TableColumn, each_key};
use serde_json::Map;

use crate::Error;
use crate::aggregation::metric_aggregation::column;
use crate::aggregation::top_values::counted_columns;
use crate::query_result::JsonPage;
use crate::query_scan::QueryScan;
use crate::scalar_functions::texts;
use crate::scan::row_slices;
use crate::view_table::RowOrder;

/// More keys than these are not listed.
const MOST_KEYS: usize = 10_000;
/// Longer keys are not listed.
const LONGEST_KEY: usize = 256;
/// About the bytes of a key beside its text.
const BESIDE_TEXT: usize = 128;

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
        let reason = format!(
            "there are more than {MOST_KEYS} attributes, or longer names than {LONGEST_KEY} bytes: rare and long ones are missing, and counts may be too low"
        );
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
    let frame = scan.frame(scan.window, RowOrder::Any)?;
    let mut rows = frame.select(vec![ident("attributes")])?.execute_stream().await?;
    let (memory, mut keys) = (scan.memory("fields"), KeyCounts::default());
    while let Some(batch) = rows.try_next().await? {
        for slice in row_slices(&batch, 1) {
            keys.add_rows(column(&slice, "attributes")?)?;
            memory.try_resize(keys.bytes())?;
            tokio::task::yield_now().await;
        }
    }
    Ok(keys.into_fields())
}

/// Keys, each with how many rows have it.
#[derive(Default)]
struct KeyCounts {
    known: HashMap<String, KeyCount>,
    /// The number of the last row.
    row: u64,
    /// Whether some are missing.
    is_cut: bool,
}

struct KeyCount {
    rows: i64,
    /// The last of these rows: a key that an object has twice counts once.
    last: u64,
}

impl KeyCounts {
    fn add_rows(&mut self, attributes: &ArrayRef) -> Result<(), Error> {
        for object in texts(attributes)?.flatten() {
            self.row += 1;
            each_key(object, |key| self.add(key));
        }
        Ok(())
    }

    /// Counts a key of the last row.
    fn add(&mut self, key: &str) {
        let row = self.row;
        if let Some(count) = self.known.get_mut(key) {
            if count.last != row {
                *count = KeyCount {
                    rows: count.rows + 1,
                    last: row,
                };
            }
        } else if key.len() > LONGEST_KEY {
            self.is_cut = true;
        } else if !key.is_empty() {
            self.known.insert(key.to_owned(), KeyCount { rows: 1, last: row });
            if self.known.len() > 2 * MOST_KEYS {
                self.forget_rare();
            }
        }
    }

    /// Forgets all but the keys that most rows have.
    fn forget_rare(&mut self) {
        if self.known.len() > MOST_KEYS {
            let mut known: Vec<_> = std::mem::take(&mut self.known).into_iter().collect();
            known.sort_unstable_by_key(|(_, count)| Reverse(count.rows));
            known.truncate(MOST_KEYS);
            self.known = known.into_iter().collect();
            self.is_cut = true;
        }
    }

    /// About the bytes that it takes.
    fn bytes(&self) -> usize {
        self.known.keys().map(|key| key.len() + BESIDE_TEXT).sum()
    }

    /// Those that most rows have first, and whether these are all of them.
    fn into_fields(mut self) -> (Vec<FieldCount>, bool) {
        self.forget_rare();
        let known = self.known.into_iter();
        let mut fields: Vec<FieldCount> = known.map(|(key, count)| (format!("attr.{key}"), count.rows)).collect();
        fields.sort_unstable_by(|(name, rows), (other, more)| more.cmp(rows).then_with(|| name.cmp(other)));
        (fields, !self.is_cut)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::Arc;

    use arrow_array::StringArray;

    use super::*;

    #[test]
    fn frequent_keys_are_counted_among_any_number_of_rare_ones_and_long_ones_are_left_out() {
        let mut keys = KeyCounts::default();
        let object = |number: i64| match number {
            50_000.. => r#"{"late":1}"#.to_owned(),
            _ => format!(
                r#"{{"own {number}":{{"inner":1}},"always":[1],"always":2,"{}":0,"":0}}"#,
                "x".repeat(300)
            ),
        };
        for from in (0..55_000).step_by(1_000) {
            let objects: StringArray = (from..from + 1_000).map(|number| Some(object(number))).collect();
            let objects: ArrayRef = Arc::new(objects);
            keys.add_rows(&objects).unwrap();
            assert!(keys.known.len() <= 2 * MOST_KEYS && keys.bytes() <= 2 * MOST_KEYS * (LONGEST_KEY + BESIDE_TEXT));
        }
        let (fields, is_whole) = keys.into_fields();
        assert_eq!((fields.len(), is_whole), (MOST_KEYS, false));
        assert_eq!(fields[0], ("attr.always".to_owned(), 50_000));
        assert_eq!(fields[1], ("attr.late".to_owned(), 5_000));
        assert!(
            fields[2..]
                .iter()
                .all(|(name, rows)| name.starts_with("attr.own ") && *rows == 1)
        );
    }

    #[test]
    fn as_many_keys_as_are_listed_are_all_of_them() {
        let mut keys = KeyCounts::default();
        let objects: StringArray = (0..MOST_KEYS)
            .map(|number| Some(format!(r#"{{"{number}":0}}"#)))
            .collect();
        let objects: ArrayRef = Arc::new(objects);
        keys.add_rows(&objects).unwrap();
        keys.add_rows(&objects).unwrap();
        let (fields, is_whole) = keys.into_fields();
        assert_eq!((fields.len(), is_whole), (MOST_KEYS, true));
        assert!(fields.iter().all(|(_, rows)| *rows == 2));
    }
}
