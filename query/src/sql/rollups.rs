//! Aggregates over rows, planned as aggregates over roll-ups of these rows, however the statement is worded.
//!
//! ```text
//! Aggregate: count(*), avg(value) by hour of ts         Projection: the first one's names, a sum divided by a number
//!   Filter: …                                     ─>      Aggregate: sum(rows), sum(sums) by hour of ts
//!     metrics                                               roll-ups: ts, rows, sums
//! ```
//!
//! # Invariants
//!
//! - Rows are rolled up only if every expression of the statement says the same of them, see [`RollUpGrain`].
//! - Only aggregates are replaced to which it is all one whether they see rows or what rows come to.
//! - Rows that cannot be rolled up are read, and each is a roll-up of one.
//!
//! # Not here
//!
//! Roll-ups of log records: [`super::log_rollup`]; of metric points: [`super::point_rollup`].

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::functions::expr_fn::coalesce;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{
    Aggregate, AggregateUDF, Expr, ExprSchemable as _, Filter, LogicalPlan, Projection, TableScan, TableScanBuilder,
    cast, lit, when,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::expressions::{Column as PhysicalColumn, Literal};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use model::Table;

use super::base_scan::{BaseScan, base_scan};
use super::log_rollup::LogRollup;
use super::point_rollup::{self, PointRollup};
use super::rollup_grain::RollUpGrain;
use super::scan_fallback::RowConditions;
use crate::time_bounds::{is_time_range, narrow_range};
use crate::view_table::ViewTable;

/// The column that says how many rows one stands for.
pub(super) const ROWS: &str = "rows_counted";
/// The columns of what the values of rows come to.
pub(super) const SUM: &str = "value_sum";
pub(super) const MIN: &str = "value_min";
pub(super) const MAX: &str = "value_max";
/// The column of values.
pub(super) const VALUE: &str = "value";

/// The rule; see the module.
#[derive(Debug)]
pub(super) struct RollupRule;

impl OptimizerRule for RollupRule {
    fn name(&self) -> &str {
        "roll_up_rows"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let rolled_up = match &plan {
            LogicalPlan::Aggregate(aggregate) => roll_up_aggregate(aggregate)?,
            _ => None,
        };
        Ok(match rolled_up {
            Some(rolled_up) => Transformed::yes(rolled_up),
            None => Transformed::no(plan),
        })
    }
}

fn roll_up_aggregate(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    let exprs = aggregate.group_expr.iter().chain(&aggregate.aggr_expr);
    let Some(base) = base_scan(&aggregate.input, exprs.cloned().collect())? else {
        return Ok(None);
    };
    let Ok(provider) = source_as_provider(&base.scan.source) else {
        return Ok(None);
    };
    let Some(of) = provider.downcast_ref::<ViewTable>() else {
        return Ok(None);
    };
    let (groups, aggregates) = base.exprs.split_at(aggregate.group_expr.len());
    let Some(mut grain) = grain_of(of, groups) else {
        return Ok(None);
    };
    let mut combined: Vec<FinalAggregate> = Vec::new();
    for expr in aggregates {
        match FinalAggregate::of(expr, &base.scan, &mut grain)? {
            Some(expr) => combined.push(expr),
            None => return Ok(None),
        }
    }
    let rows = match of.table {
        Table::Logs => counted(of, &base, grain)?,
        _ => summed(of, &base, &grain)?,
    };
    rows.map(|rows| named(rows, groups, &combined, aggregate)).transpose()
}

/// What groups see of the rows of a table; `None` if its rows are not rolled up for them.
fn grain_of(of: &ViewTable, groups: &[Expr]) -> Option<RollUpGrain> {
    let mut grain = RollUpGrain::new(match of.table {
        Table::Logs => &["level", "entity_name"],
        Table::Metrics => &point_rollup::WORDS,
        _ => return None,
    });
    let are_alike = |group: &Expr| groups.iter().filter(|other| *other == group).count() > 1;
    let are_taken = groups.iter().all(|group| grain.try_add(group) && !are_alike(group));
    are_taken.then_some(grain)
}

/// Counted log records that meet conditions.
fn counted(of: &ViewTable, base: &BaseScan, mut grain: RollUpGrain) -> Result<Option<LogicalPlan>> {
    let conditions = base.conditions.iter().cloned().flat_map(split_conjunction_owned);
    let (windows, conditions): (Vec<_>, Vec<_>) = conditions.partition(is_time_range);
    if !conditions.iter().all(|condition| grain.try_add(condition)) {
        return Ok(None);
    }
    let Some(rows) = LogRollup::new(of, narrow_range(of.window, &windows), &grain)? else {
        return Ok(None);
    };
    let rows = scan_of(&base.scan, rows)?;
    let condition = conditions.into_iter().reduce(Expr::and);
    let filtered = condition.map(|condition| Filter::try_new(condition, Arc::new(rows.clone())));
    Ok(Some(filtered.transpose()?.map_or(rows, LogicalPlan::Filter)))
}

/// Sums of the metric points that meet conditions.
fn summed(of: &ViewTable, base: &BaseScan, grain: &RollUpGrain) -> Result<Option<LogicalPlan>> {
    let Some(conditions) = RowConditions::of(of.window, base.conditions.clone())? else {
        return Ok(None);
    };
    // Without values, a plan reads less.
    let sees_values = |expr: &Expr| expr.column_refs().iter().any(|column| column.name == VALUE);
    if !base.exprs.iter().any(sees_values) {
        return Ok(None);
    }
    let points = PointRollup::new(of, conditions, grain)?;
    points.map(|points| scan_of(&base.scan, points)).transpose()
}

fn scan_of(scan: &TableScan, rows: impl TableProvider + 'static) -> Result<LogicalPlan> {
    let rows = TableScanBuilder::new(scan.table_name.clone(), provider_as_source(Arc::new(rows)));
    Ok(LogicalPlan::TableScan(rows.build()?))
}

/// Aggregates of roll-ups under the names that an aggregate's columns have.
fn named(
    rows: LogicalPlan,
    groups: &[Expr],
    combined: &[FinalAggregate],
    aggregate: &Aggregate,
) -> Result<LogicalPlan> {
    let mut different: Vec<&Expr> = Vec::new();
    for expr in combined.iter().flat_map(|combined| &combined.partials) {
        if !different.contains(&expr) {
            different.push(expr);
        }
    }
    let partials = different.iter().map(|expr| (*expr).clone()).collect();
    let plan = Aggregate::try_new(Arc::new(rows), groups.to_vec(), partials)?;
    let column = |at: usize| Expr::Column(Column::from(plan.schema.qualified_field(at)));
    let place = |expr: &Expr| different.iter().position(|other| *other == expr).unwrap_or_default();
    let partial = |expr: &Expr| column(groups.len() + place(expr));
    let combined = combined.iter().map(|combined| combined.value(partial));
    let values = (0..groups.len()).map(column).chain(combined);
    let names = aggregate.schema.iter();
    let values: Vec<Expr> = values
        .zip(names)
        .map(|(value, (table, field))| {
            // A sum of products has more digits.
            cast(value, field.data_type().clone()).alias_qualified(table.cloned(), field.name())
        })
        .collect();
    let projection = Projection::try_new(values, Arc::new(LogicalPlan::Aggregate(plan)))?;
    Ok(LogicalPlan::Projection(projection))
}

/// An aggregate of rows, made of aggregates of roll-ups.
struct FinalAggregate {
    by: FinalStep,
    partials: Vec<Expr>,
}

/// What an aggregate is to its partial ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FinalStep {
    /// The one that there is.
    Same,
    /// The one that there is; of no rows, none.
    Count,
    /// The first by the second.
    Average,
}

impl FinalAggregate {
    /// `None` if it is of another kind, or sees more than roll-ups tell.
    fn of(expr: &Expr, scan: &TableScan, grain: &mut RollUpGrain) -> Result<Option<Self>> {
        let Expr::AggregateFunction(AggregateFunction { func, params }) = expr.clone().unalias() else {
            return Ok(None);
        };
        let [arg] = params.args.as_slice() else {
            return Ok(None);
        };
        let is_plain = params.order_by.is_empty() && params.null_treatment.is_none();
        if !is_plain || params.filter.as_ref().is_some_and(|filter| !grain.try_add(filter)) {
            return Ok(None);
        }
        let column = |name: &str| Expr::Column(Column::new(Some(scan.table_name.clone()), name));
        let rows = column(ROWS);
        let schema = &scan.projected_schema;
        let is_there = matches!(arg, Expr::Column(_) | Expr::Literal(..)) && !arg.nullable(schema.as_ref())?;
        let is_value = matches!(arg, Expr::Column(column) if column.name == VALUE);
        let of = |func: Arc<AggregateUDF>, arg: Expr| {
            let params = AggregateFunctionParams {
                args: vec![arg],
                ..params.clone()
            };
            Expr::AggregateFunction(AggregateFunction { func, params })
        };
        let (by, partials) = match func.name() {
            "count" if !params.distinct && is_there => (FinalStep::Count, vec![of(sum_udaf(), rows)]),
            "avg" if !params.distinct && is_value => (
                FinalStep::Average,
                vec![of(sum_udaf(), column(SUM)), of(sum_udaf(), rows)],
            ),
            "sum" if !params.distinct && is_value => (FinalStep::Same, vec![of(func, column(SUM))]),
            "min" if is_value => (FinalStep::Same, vec![of(func, column(MIN))]),
            "max" if is_value => (FinalStep::Same, vec![of(func, column(MAX))]),
            _ if !grain.try_add(arg) => return Ok(None),
            "count" if !params.distinct => {
                let rows = when(arg.clone().is_not_null(), rows).end()?;
                (FinalStep::Count, vec![of(sum_udaf(), rows)])
            }
            // Sums of whole numbers are ones of decimals by now.
            "sum" if !params.distinct && matches!(arg.get_type(schema.as_ref())?, DataType::Decimal128(_, 0)) => {
                let product = arg.clone() * cast(rows, DataType::Decimal128(19, 0));
                (FinalStep::Same, vec![of(func, product)])
            }
            "count" | "sum" if params.distinct => (FinalStep::Same, vec![of(func, arg.clone())]),
            "min" | "max" => (FinalStep::Same, vec![of(func, arg.clone())]),
            _ => return Ok(None),
        };
        Ok(Some(Self { by, partials }))
    }

    /// It, of the columns of its partial aggregates.
    fn value(&self, column: impl Fn(&Expr) -> Expr) -> Expr {
        match (self.by, self.partials.as_slice()) {
            (FinalStep::Average, [sum, rows]) => column(sum) / cast(column(rows), DataType::Float64),
            (FinalStep::Count, [rows]) => coalesce(vec![column(rows), lit(0_i64)]),
            (_, partials) => partials.first().map_or(lit(ScalarValue::Null), column),
        }
    }
}

/// Some columns of a table, and others of what its rows come to.
pub(super) fn schema(table: &Schema, columns: &[usize], totals: &[(&str, DataType)]) -> Result<SchemaRef> {
    let mut fields: Vec<FieldRef> = table.project(columns)?.fields().to_vec();
    let totals = totals.iter().map(|(name, kind)| Field::new(*name, kind.clone(), false));
    fields.extend(totals.map(Arc::new));
    Ok(Arc::new(Schema::new(fields)))
}

/// Rows as roll-ups of such a schema, each of one row.
pub(super) fn each_alone(rows: Arc<dyn ExecutionPlan>, schema: &Schema) -> Result<Arc<dyn ExecutionPlan>> {
    let of_rows = rows.schema();
    let columns = schema.fields().iter().map(|field| {
        let value: Arc<dyn PhysicalExpr> = match field.name().as_str() {
            ROWS => Arc::new(Literal::new(ScalarValue::Int64(Some(1)))),
            SUM | MIN | MAX => Arc::new(PhysicalColumn::new_with_schema(VALUE, &of_rows)?),
            name => Arc::new(PhysicalColumn::new_with_schema(name, &of_rows)?),
        };
        Ok(ProjectionExpr::new(value, field.name().clone()))
    });
    let columns: Vec<_> = columns.collect::<Result<_>>()?;
    Ok(Arc::new(ProjectionExec::try_new(columns, rows)?))
}

/// The columns that are asked for, of all.
pub(super) fn projected(
    plan: Arc<dyn ExecutionPlan>,
    projection: Option<&Vec<usize>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(projection) = projection else {
        return Ok(plan);
    };
    let schema = plan.schema();
    let columns = projection.iter().map(|at| {
        let name = schema.field(*at).name();
        ProjectionExpr::new(Arc::new(PhysicalColumn::new(name, *at)), name.clone())
    });
    Ok(Arc::new(ProjectionExec::try_new(columns, plan)?))
}
