//! Scan filter: conditions compiled once for all batches of a scan, in at most two stages.
//!
//! The first stage reads the narrow columns and `ts`. Texts and JSON are read in a second one, and only of rows that are left;
//! where nothing narrow is asked for, they are read in the first.
//!
//! # Invariants
//!
//! - The same expressions as a plan's, evaluated by the same code: a condition that is null keeps no row.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_schema::Schema;
use datafusion::arrow::compute::{and, prep_null_mask_filter};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;
use model::{ColumnType, Table};

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

    /// Which rows of a batch of all columns meet them; `None` if all do.
    pub(crate) fn keep(&self, batch: &RecordBatch) -> Result<Option<BooleanArray>> {
        let first = self.first.keep(&batch.project(&self.first.columns)?)?;
        let Some(second) = &self.second else {
            return Ok(first);
        };
        if first.as_ref().is_some_and(|mask| mask.true_count() == 0) {
            return Ok(first);
        }
        let second = second.keep(&batch.project(&second.columns)?)?;
        both(first, second)
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

    /// Which rows of a batch of its columns meet all of them; `None` if all do.
    pub(super) fn keep(&self, batch: &RecordBatch) -> Result<Option<BooleanArray>> {
        let mut kept = None;
        for condition in &self.conditions {
            let met = condition.evaluate(batch)?.into_array(batch.num_rows())?;
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
