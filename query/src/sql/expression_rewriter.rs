//! Ids and JSON in statements: 16 bytes compare with text, `->` and `->>` take fields of objects.
//!
//! | written | planned as |
//! |---|---|
//! | `flux_id = '018f…'`, also `<`, `IN`, `BETWEEN`, `IS DISTINCT FROM` | a comparison with 16 bytes |
//! | `flux_id = attributes->>'k'` | `flux_id = uuid(attributes->>'k')` |
//! | `count(DISTINCT flux_id)` | a count of numbers of 16 bytes, which is several times as fast; alone, of rows that have one |
//! | `flux_id::text`, `'018f…'::uuid` | `uuid_text(flux_id)`, 16 bytes |
//! | `attributes->>'k'`, `attributes->'k'` | `json_text(attributes, 'k')`, `json_get(attributes, 'k')` |
//! | `text ~ 'pattern'` | see [`pattern_operators`] |
//! | `number::int`, `text::varchar(5)` | see [`casts`] |
//! | times and their parts | see [`timestamps`] |
//! | `number IN ('1', '2')` | numbers |
//! | `IN (SELECT …)`, `EXISTS` | see [`subquery_predicates`] |
//! | arithmetic | see [`arithmetic`] |
//! | `sum` of whole numbers | see [`checked_sums`] |
//! | `value::text`, `text || value`, `concat` | see [`text_output`] |
//! | `round(number)` | see [`rounding`] |
//! | comparisons of `ts::date` | see [`date_comparisons`] |
//! | comparisons of intervals, `date + interval` | see [`intervals`] |
//!
//! # How
//!
//! Operators are replaced while a statement is planned, which checks their types at once; the other forms by an analyzer rule that
//! comes before the one that makes types the same. A literal that is not a UUID is an error, text of a column that is none is null.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::FieldRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ExprSchema, ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::math;
use datafusion::logical_expr::expr::{AggregateFunctionParams, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, AggregateUDF, Cast, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, TryCast, cast, lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use uuid::Uuid;

use super::comparisons::rewrite_comparison;
use super::statement_bounds::StatementBounds;
use super::{
    arithmetic, casts, checked_sums, date_comparisons, intervals, pattern_operators, rounding, subquery_predicates,
    text_output, timestamps,
};
use crate::scalar_functions::{FunctionKind, ID, json_text};

/// See the module.
#[derive(Debug)]
pub(super) struct ExpressionRewriter;

impl ExprPlanner for ExpressionRewriter {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{Arrow, Eq, Gt, GtEq, LongArrow, Lt, LtEq, Minus, NotEq, Plus, Spaceship, StringConcat};
        let RawBinaryExpr { op, left, right } = expr;
        let original = |op, left, right| PlannerResult::Original(RawBinaryExpr { op, left, right });
        Ok(match op {
            LongArrow => PlannerResult::Planned(json_text(left, right)),
            Arrow => PlannerResult::Planned(FunctionKind::JsonGet.call(vec![left, right])),
            Eq | NotEq | Lt | LtEq | Gt | GtEq | Spaceship => {
                let (left, right) = coerce_sides(left, right, schema)?;
                original(op, left, right)
            }
            Plus | Minus => {
                let moved = if op == Plus { Operator::Plus } else { Operator::Minus };
                let (left, right) = intervals::widen_date(left, moved, right, schema);
                original(op, left, right)
            }
            StringConcat if is_text(&left, schema) || is_text(&right, schema) => {
                let text =
                    |value: Expr| Ok::<_, DataFusionError>(text_output::to_text_expr(&value, schema)?.unwrap_or(value));
                original(op, text(left)?, text(right)?)
            }
            _ => original(op, left, right),
        })
    }
}

impl AnalyzerRule for ExpressionRewriter {
    fn name(&self) -> &str {
        "ids_and_text"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        let most = StatementBounds::of_pattern(options);
        Ok(plan.transform_up_with_subqueries(|plan| analyzed(plan, most))?.data)
    }
}

fn analyzed(plan: LogicalPlan, most: usize) -> Result<Transformed<LogicalPlan>> {
    let plan = subquery_predicates::three_valued(without_nulls(plan)?)?.data;
    let schema = schema_of(&plan)?;
    let averages = rounding::averages(&plan);
    let wide_sums = rounding::wide_sums(&plan);
    rewrite_expressions(plan, |expr| {
        casts::rewrite_cast(expr, &schema, &averages, |expr| rewrite_ids(expr, &schema))?
            .transform_data(|expr| Ok(rounding::rewrite_round(expr, &schema, &averages)))?
            .transform_data(|expr| pattern_operators::rewrite_pattern(expr, &schema, most))?
            .transform_data(|expr| intervals::rewrite_interval(expr, &schema))?
            .transform_data(|expr| date_comparisons::rewrite_date_comparison(expr, &schema))?
            .transform_data(|expr| timestamps::rewrite_time(expr, &schema))?
            .transform_data(|expr| Ok(arithmetic::rewrite_arithmetic(expr, &schema, &wide_sums)))?
            .transform_data(|expr| Ok(arithmetic::rewrite_average(expr, &schema)))?
            .transform_data(|expr| Ok(cast_list_items(expr, &schema)))
    })?
    .transform_data(checked_sums::rewrite_sums)?
    .transform_data(intervals::rewrite_interval_order)
}

/// A plan with the parts of its expressions replaced; columns keep their names.
pub(super) fn rewrite_expressions(
    plan: LogicalPlan,
    replaced: impl Fn(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let made = expr.transform_up(&replaced)?;
        Ok(made.update_data(|expr| name.restore(expr)))
    })?
    .map_data(LogicalPlan::recompute_schema)
}

/// The columns that expressions of a plan are of.
fn schema_of(plan: &LogicalPlan) -> Result<DFSchema> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = plan {
        schema.merge(&DFSchema::try_from_qualified_schema(
            scan.table_name.clone(),
            &scan.source.schema(),
        )?);
    }
    Ok(schema)
}

/// Texts that are written in a list have the type of what is looked for in it.
fn cast_list_items(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::InList(InList { expr, list, negated }) = expr else {
        return Transformed::no(expr);
    };
    let is_written = |item: &Expr| matches!(item, Expr::Literal(text, _) if text.data_type().is_string());
    let made = match expr.get_type(schema) {
        Ok(kind) if !kind.is_string() && !kind.is_null() && list.iter().any(is_written) => list
            .into_iter()
            .map(|item| {
                if is_written(&item) {
                    cast(item, kind.clone())
                } else {
                    item
                }
            })
            .collect(),
        _ => return Transformed::no(Expr::InList(InList { expr, list, negated })),
    };
    Transformed::yes(Expr::InList(InList {
        expr,
        list: made,
        negated,
    }))
}

fn rewrite_ids(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let compared = rewrite_comparison(
        expr,
        |sides| compares_id_with_other(sides, schema),
        |side| as_id(side, schema),
    )?;
    compared.transform_data(|expr| with_ids_or_texts(expr, schema))
}

/// A cast or a call with what stands for it.
fn with_ids_or_texts(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::Cast(Cast { expr, field }) => {
            converted(*expr, field, schema, |expr, field| Expr::Cast(Cast { expr, field }))
        }
        Expr::TryCast(TryCast { expr, field }) => converted(*expr, field, schema, |expr, field| {
            Expr::TryCast(TryCast { expr, field })
        }),
        Expr::AggregateFunction(mut call) if counts_ids(&call.func, &call.params, schema) => {
            call.params.args = vec![FunctionKind::Number.call(call.params.args)];
            Transformed::yes(Expr::AggregateFunction(call))
        }
        Expr::ScalarFunction(mut call) if ["concat", "concat_ws"].contains(&call.func.name()) => {
            let parts = call.args.into_iter().map(|arg| text_output::part_of(arg, schema));
            call.args = parts.collect::<Result<_>>()?;
            Transformed::yes(Expr::ScalarFunction(call))
        }
        // A quotient of natural logarithms is 2.9999999999999996 of 1000.
        Expr::ScalarFunction(call) if call.func.name() == "log" && call.args.len() == 1 => {
            Transformed::yes(math::log10().call(call.args))
        }
        other => Transformed::no(other),
    })
}

/// Leaves out rows without an id where nothing but distinct ids of one column is counted: each would be looked up among them.
fn without_nulls(plan: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Aggregate(aggregate) = &plan else {
        return Ok(plan);
    };
    let schema = aggregate.input.schema();
    let counted = |expr: &Expr| match expr.clone().unalias() {
        Expr::AggregateFunction(call)
            if counts_ids(&call.func, &call.params, schema) && call.params.filter.is_none() =>
        {
            call.params.args.into_iter().next()
        }
        _ => None,
    };
    let counted: Option<HashSet<Expr>> = aggregate.aggr_expr.iter().map(counted).collect();
    let mut counted = counted.into_iter().flatten();
    let (true, Some(id), None) = (aggregate.group_expr.is_empty(), counted.next(), counted.next()) else {
        return Ok(plan);
    };
    let input = LogicalPlanBuilder::from(aggregate.input.as_ref().clone()).filter(id.is_not_null())?;
    let aggr_expr = aggregate.aggr_expr.clone();
    Ok(LogicalPlan::Aggregate(Aggregate::try_new(
        Arc::new(input.build()?),
        Vec::new(),
        aggr_expr,
    )?))
}

/// Whether a call counts distinct ids.
pub(super) fn counts_ids(function: &AggregateUDF, call: &AggregateFunctionParams, schema: &DFSchema) -> bool {
    let ids = call.args.iter().all(|arg| is_id(arg, schema));
    call.distinct && function.name() == "count" && call.args.len() == 1 && ids
}

/// A cast between ids and text.
fn converted(
    expr: Expr,
    to: FieldRef,
    schema: &DFSchema,
    cast: impl FnOnce(Box<Expr>, FieldRef) -> Expr,
) -> Transformed<Expr> {
    match expr.get_type(schema) {
        Ok(ID) if to.data_type().is_string() => Transformed::yes(FunctionKind::UuidText.call(vec![expr])),
        Ok(from) if from.is_string() && *to.data_type() == ID => Transformed::yes(FunctionKind::Uuid.call(vec![expr])),
        _ => Transformed::no(cast(Box::new(expr), to)),
    }
}

/// Whether an id is compared with what is none.
fn compares_id_with_other(sides: &[&Expr], schema: &DFSchema) -> bool {
    let is = |expr: &&&Expr| is_id(expr, schema);
    let ids = sides.iter().filter(is).count();
    ids > 0 && ids < sides.len()
}

fn is_text(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|kind| kind.is_string())
}

fn is_id(expr: &Expr, schema: &dyn ExprSchema) -> bool {
    matches!(expr.get_type(schema), Ok(ID))
}

/// Both sides as ids if one of them is.
fn coerce_sides(left: Expr, right: Expr, schema: &DFSchema) -> Result<(Expr, Expr)> {
    if is_id(&left, schema) || is_id(&right, schema) {
        Ok((as_id(left, schema)?, as_id(right, schema)?))
    } else {
        Ok((left, right))
    }
}

/// Text as an id; anything else as it is.
fn as_id(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    if let Expr::Literal(value, _) = &expr
        && let Some(value) = value.try_as_str()
    {
        let Some(text) = value else {
            return Ok(lit(ScalarValue::FixedSizeBinary(16, None)));
        };
        return match Uuid::try_parse(text) {
            Ok(id) => Ok(lit(ScalarValue::FixedSizeBinary(16, Some(id.as_bytes().to_vec())))),
            Err(_) => {
                plan_err!(
                    "'{text}' is not a UUID, and it is compared with an id: write all of one, such as \
                           '018f2c1e-…'"
                )
            }
        };
    }
    match expr.get_type(schema) {
        Ok(kind) if kind.is_string() => Ok(FunctionKind::Uuid.call(vec![expr])),
        _ => Ok(expr),
    }
}
