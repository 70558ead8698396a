//! The rows of one spec: from files that have its columns, from those that have not, and from memory.
//!
//! # Invariants
//!
//! - A promoted value is the same wherever its row lies: what is no column is read out of `promoted`.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{DataType, FieldRef};
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, internal_datafusion_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, ident,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use engine::Segment;
use model::Table;
use model::spec::SpecColumn;
use model::spec::columns::values;

use super::ViewTable;
use crate::scan::{Asked, Scanner, Told};
use crate::specs::SpecTable;

/// The column that has what is promoted.
const PROMOTED: &str = "promoted";

impl ViewTable {
    /// The files that can have rows, those without the columns apart.
    pub(super) async fn told_apart(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        files: Vec<Arc<Segment>>,
    ) -> Result<Told> {
        let (Some(spec), Some(scanner)) = (&self.spec, state.config().get_extension::<Scanner>()) else {
            return Ok(Told {
                typed: files,
                ..Told::default()
            });
        };
        let asked = Asked {
            columns: spec.promoted_of(projection),
            predicate: predicate(state, spec, filters)?,
        };
        let told = scanner.told_apart(asked, files).await;
        told.map_err(|error| DataFusionError::External(Box::new(error)))
    }

    /// The columns of a plan over `messages`, of which `columns` are asked for, with those out of `promoted`.
    pub(super) fn derived(
        &self,
        state: &dyn Session,
        spec: &SpecTable,
        columns: &[usize],
        plan: Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = DFSchema::try_from(plan.schema())?;
        let base = Table::Messages.columns().len();
        let exprs = columns.iter().map(|at| -> Result<(Arc<dyn PhysicalExpr>, String)> {
            let field = spec.schema.field(*at);
            let expr = match at.checked_sub(base).and_then(|at| spec.columns.get(at)) {
                None => ident(field.name()),
                Some(column) => ScalarUDF::new_from_impl(OutOfPromoted {
                    column: column.clone(),
                    field: Arc::new(field.clone()),
                    signature: Signature::exact(vec![DataType::Utf8], Volatility::Immutable),
                })
                .call(vec![ident(PROMOTED)]),
            };
            Ok((state.create_physical_expr(expr, &schema)?, field.name().clone()))
        });
        let exprs = exprs.collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(ProjectionExec::try_new(exprs, plan)?))
    }
}

/// The columns of `messages` that the columns of a spec's table follow from.
pub(super) fn base_of(columns: &[usize]) -> Vec<usize> {
    let base = Table::Messages.columns().len();
    let mut needed: Vec<usize> = columns.iter().copied().filter(|at| *at < base).collect();
    let promoted = Table::Messages
        .columns()
        .iter()
        .position(|column| column.name == PROMOTED);
    if columns.iter().any(|at| *at >= base) {
        needed.extend(promoted.filter(|at| !needed.contains(at)));
    }
    needed
}

/// Rows from memory as rows of the table; what is not asked for is null.
pub(super) fn of_memory(spec: &SpecTable, rows: &RecordBatch, asked: &[SpecColumn]) -> Result<RecordBatch> {
    let promoted = rows
        .column_by_name(PROMOTED)
        .and_then(|column| column.as_string_opt::<i32>())
        .ok_or_else(|| internal_datafusion_err!("messages in memory have no {PROMOTED}"))?;
    let mut found = asked.iter().zip(values(promoted, asked)?);
    let mut next = found.next();
    let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
    let base = columns.len();
    for (column, at) in spec.columns.iter().zip(base..) {
        match next.take_if(|(asked, _)| *asked == column) {
            Some((_, values)) => {
                columns.push(values);
                next = found.next();
            }
            None => columns.push(new_null_array(spec.schema.field(at).data_type(), rows.num_rows())),
        }
    }
    Ok(RecordBatch::try_new(Arc::clone(&spec.schema), columns)?)
}

/// What the bounds of a file are held against.
fn predicate(state: &dyn Session, spec: &SpecTable, filters: &[Expr]) -> Result<Option<PruningPredicate>> {
    let Some(all) = conjunction(filters.iter().cloned()) else {
        return Ok(None);
    };
    let schema = DFSchema::try_from(Arc::clone(&spec.schema))?;
    let all = state.create_physical_expr(all, &schema)?;
    let predicate = PruningPredicateBuilder::new()
        .with_file_schema(Arc::clone(&spec.schema))
        .try_build(all)
        .ok();
    Ok(predicate.filter(|predicate| !predicate.always_true()))
}

/// A column out of the JSON of `promoted`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OutOfPromoted {
    column: SpecColumn,
    field: FieldRef,
    signature: Signature,
}

impl ScalarUDFImpl for OutOfPromoted {
    fn name(&self) -> &str {
        "out_of_promoted"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.field.data_type().clone())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&self.field))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let column = |promoted: &[ArrayRef]| -> Result<ArrayRef> {
            let promoted = promoted.first().and_then(|column| column.as_string_opt::<i32>());
            let promoted = promoted.ok_or_else(|| internal_datafusion_err!("{PROMOTED} is no column of texts"))?;
            let column = values(promoted, std::slice::from_ref(&self.column))?.pop();
            column.ok_or_else(|| internal_datafusion_err!("{} has no values", self.column.name))
        };
        make_scalar_function(column, Vec::new())(&args.args)
    }
}
