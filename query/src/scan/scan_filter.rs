//! Scan filter: conditions compiled once for all batches of a scan, in at most two stages.
//!
//! The first stage reads the narrow columns and `ts`. Texts and JSON are read in a second one, and only of rows that are left;
//! where nothing narrow is asked for, they are read in the first.
//!
//! # Invariants
//!
//! - The same expressions as a plan's, evaluated by the same code: a condition that is null keeps no row.
//! - Whoever waits can end it, and others have their turn, after a slice of rows: the shorter, the more conditions there are
//!   and the longer the rows are.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_schema::Schema;
use datafusion::arrow::array::BooleanBufferBuilder;
use datafusion::arrow::compute::{and, prep_null_mask_filter};
use datafusion::common::DFSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;
use model::{ColumnType, Table};

/// Rows of a slice, looks of conditions at its rows, and its bytes, at most; one row may have more.
const SLICE_ROWS: usize = 2_048;
const SLICE_LOOKS: usize = 1 << 14;
const SLICE_BYTES: usize = 1 << 20;

/// Some conditions, and the columns they look at.
#[derive(Debug)]
pub(super) struct FilterStage {
    /// In the table's order.
    columns: Vec<usize>,
    conditions: Vec<Arc<dyn PhysicalExpr>>,
}

/// The conditions of a scan.
#[derive(Debug)]
pub(crate) struct ScanFilter {
    /// Looks at `ts`, whatever is asked.
    pub(super) first: FilterStage,
    /// Looks at what is costly to read.
    pub(super) second: Option<FilterStage>,
}

impl ScanFilter {
    pub(crate) fn new(state: &SessionState, table: Table, all: &[Expr]) -> Result<Self> {
        let is_costly = |condition: &&Expr| columns_of(table, condition).iter().any(|column| costs(table, *column));
        let (costly, cheap): (Vec<_>, Vec<_>) = all.iter().partition(is_costly);
        let (first, second) = if cheap.is_empty() {
            (costly, cheap)
        } else {
            (cheap, costly)
        };
        let stage =
            |conditions: &[&Expr], with_time| FilterStage::new(state, table, &table.schema(), conditions, with_time);
        Ok(Self {
            first: stage(&first, true)?,
            second: (!second.is_empty()).then(|| stage(&second, false)).transpose()?,
        })
    }

    /// Which rows of a batch of all columns meet them; `None` if all do. `check` says before each slice whether to go on.
    pub(crate) fn keep<E: From<DataFusionError>>(
        &self,
        batch: &RecordBatch,
        check: impl Fn() -> Result<(), E>,
    ) -> Result<Option<BooleanArray>, E> {
        let of_stage = |stage: &FilterStage| {
            let columns = batch.project(&stage.columns).map_err(DataFusionError::from)?;
            stage.keep(&columns, &check)
        };
        let first = of_stage(&self.first)?;
        let is_decided = first.as_ref().is_some_and(|mask| mask.true_count() == 0);
        match &self.second {
            Some(second) if !is_decided => Ok(both(first, of_stage(second)?)?),
            _ => Ok(first),
        }
    }

    /// What of a batch its conditions look at before others have their turn.
    pub(crate) fn slices(&self, batch: &RecordBatch) -> impl Iterator<Item = RecordBatch> {
        let second = self.second.as_ref().map_or(0, |second| second.conditions.len());
        row_slices(batch, self.first.conditions.len() + second)
    }
}

impl FilterStage {
    /// `schema` says as what the table's columns come.
    pub(super) fn new(
        state: &SessionState,
        table: Table,
        schema: &Schema,
        conditions: &[&Expr],
        with_time: bool,
    ) -> Result<Self> {
        let asked = conditions.iter().flat_map(|condition| columns_of(table, condition));
        let mut columns: Vec<usize> = with_time.then_some(0).into_iter().chain(asked).collect();
        columns.sort_unstable();
        columns.dedup();
        let schema = DFSchema::try_from(schema.project(&columns)?)?;
        let conditions = conditions.iter().copied().cloned();
        let conditions = conditions.map(|condition| state.create_physical_expr(condition, &schema));
        Ok(Self {
            columns,
            conditions: conditions.collect::<Result<_>>()?,
        })
    }

    pub(super) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Which rows of a batch of its columns meet all of them; `None` if all do. `check` says before each slice whether to go on.
    pub(super) fn keep<E: From<DataFusionError>>(
        &self,
        batch: &RecordBatch,
        check: impl Fn() -> Result<(), E>,
    ) -> Result<Option<BooleanArray>, E> {
        if self.conditions.is_empty() {
            return Ok(None);
        }
        let mut kept = BooleanBufferBuilder::new(batch.num_rows());
        for slice in row_slices(batch, self.conditions.len()) {
            check()?;
            match self.keep_slice(&slice)? {
                Some(mask) => kept.append_buffer(mask.values()),
                None => kept.append_n(slice.num_rows(), true),
            }
        }
        Ok(Some(BooleanArray::new(kept.finish(), None)))
    }

    fn keep_slice(&self, rows: &RecordBatch) -> Result<Option<BooleanArray>> {
        let mut kept = None;
        for condition in &self.conditions {
            let met = condition.evaluate(rows)?.into_array(rows.num_rows())?;
            let met = met.as_boolean();
            let met = match met.null_count() {
                0 => met.clone(),
                _ => prep_null_mask_filter(met),
            };
            kept = both(kept, Some(met))?;
            if kept.as_ref().is_some_and(|kept| kept.true_count() == 0) {
                break;
            }
        }
        Ok(kept)
    }
}

/// A batch in slices that so many conditions look at before others have their turn.
pub(crate) fn row_slices(batch: &RecordBatch, conditions: usize) -> impl Iterator<Item = RecordBatch> {
    let rows = batch.num_rows();
    // Of columns that share what they hold with others only their own part counts.
    let bytes = batch.columns().iter().map(|column| {
        let own = column.to_data().get_slice_memory_size();
        own.unwrap_or_else(|_| column.get_array_memory_size())
    });
    let of_bytes = rows.saturating_mul(SLICE_BYTES) / bytes.sum::<usize>().max(1);
    let of_looks = SLICE_LOOKS / conditions.max(1);
    let most = SLICE_ROWS.min(of_looks).min(of_bytes).max(1);
    (0..rows)
        .step_by(most)
        .map(move |at| batch.slice(at, most.min(rows - at)))
}

fn both(a: Option<BooleanArray>, b: Option<BooleanArray>) -> Result<Option<BooleanArray>> {
    Ok(match (a, b) {
        (Some(a), Some(b)) => Some(and(&a, &b)?),
        (a, b) => a.or(b),
    })
}

/// The columns that a condition looks at.
fn columns_of(table: Table, condition: &Expr) -> Vec<usize> {
    let refs = condition.column_refs();
    let is_asked = |name: &str| refs.iter().any(|column| column.name == name);
    let columns = table.columns().iter().enumerate();
    columns
        .filter(|(_, column)| is_asked(column.name))
        .map(|(at, _)| at)
        .collect()
}

/// Whether values of a column are long, and mostly different.
fn costs(table: Table, column: usize) -> bool {
    table.columns().get(column).is_some_and(|column| match column.kind {
        ColumnType::Text => !column.name.ends_with("_id"),
        ColumnType::Json | ColumnType::Blob => true,
        ColumnType::Time | ColumnType::Uuid | ColumnType::Word | ColumnType::Float | ColumnType::Double => false,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use arrow_array::{ArrayRef, StringArray};

    use super::*;

    #[test]
    fn slices_are_the_shorter_the_longer_rows_are_and_the_more_conditions_look_at_them() {
        let of = |bytes: usize, rows: usize| {
            let texts: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(bytes); rows]));
            RecordBatch::try_from_iter([("text", texts)]).unwrap()
        };
        let rows = |batch: &RecordBatch, conditions: usize| -> Vec<usize> {
            row_slices(batch, conditions).map(|slice| slice.num_rows()).collect()
        };
        assert_eq!(rows(&of(1, 5_000), 1), [2_048, 2_048, 904]);
        assert_eq!(rows(&of(1, 400), 100), [163, 163, 74]);
        let long = of(100_000, 25);
        assert_eq!(rows(&long, 1), [10, 10, 5]);
        // What it shares with the batch that it is a part of does not count.
        assert_eq!(rows(&long.slice(0, 10), 1), [10]);
        assert_eq!(rows(&of(3 << 20, 2), 1), [1, 1]);
        assert_eq!(rows(&of(1, 0), 1), [0; 0]);
    }
}
