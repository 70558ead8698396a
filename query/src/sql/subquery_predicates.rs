//! Predicates of subqueries in three-valued logic, where the planner would take null for false.
//!
//! | written | planned as |
//! |---|---|
//! | `x IN (SELECT y …)` under nothing but `AND` and `OR` | it is: a semi join, for null and false come to the same there |
//! | `x NOT IN (SELECT y …)` under nothing but `AND`, `x` a column, of a subquery that knows no outer row | it is: an anti join that minds nulls |
//! | both anywhere else, where `x` or `y` may be null | `x = ANY (SELECT y …)`, `x <> ALL (SELECT y …)` |
//! | `EXISTS`, `NOT IN`, `ANY`, `ALL` of an aggregate without `GROUP BY` over rows that depend on the outer row | refused |
//! | `IN` of such an aggregate, unless it is null of no rows, as `max` is | refused |
//!
//! Joins give marks that are never null (<https://github.com/apache/datafusion/issues/25347>). And they leave out the outer rows for which
//! there are none to aggregate, though the aggregate of none is a row (<https://github.com/apache/datafusion/issues/24960>).

use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{DFSchema, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable as _, LogicalPlan, Operator, Subquery};

/// Subqueries within each other that are compared by quantifiers: each is planned three times.
const DEEPEST: usize = 4;
/// Aggregates that are null of no rows.
const NULL_OF_NONE: [&str; 4] = ["max", "min", "sum", "avg"];

/// What the truth of a predicate decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TruthContext {
    /// It is a part of a condition of which all must be true.
    Conjunct,
    /// It is a part of a condition that is met where this is true, and not more where it is null than where it is false.
    Positive,
    /// Null and false may come to different things.
    ThreeValued,
}

/// See the module.
pub(super) fn three_valued(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Join(_)) {
        return Ok(Transformed::no(plan));
    }
    let schema = merge_schema(&plan.inputs());
    plan.map_expressions(|expr| {
        if expr.exists(|part| Ok(predicate_of(part).is_some()))? {
            predicate(expr, TruthContext::Conjunct, &schema).map(Transformed::yes)
        } else {
            Ok(Transformed::no(expr))
        }
    })
}

fn predicate(expr: Expr, context: TruthContext, schema: &DFSchema) -> Result<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if matches!(op, Operator::And | Operator::Or) => {
            let context = match (op, context) {
                (Operator::Or, TruthContext::Conjunct) => TruthContext::Positive,
                (_, context) => context,
            };
            let side = |side: Box<Expr>| predicate(*side, context, schema).map(Box::new);
            Ok(Expr::BinaryExpr(BinaryExpr::new(side(left)?, op, side(right)?)))
        }
        Expr::Not(inner) => match *inner {
            Expr::InSubquery(of) => member(InSubquery::new(of.expr, of.subquery, !of.negated), context, schema),
            inner => Ok(Expr::Not(Box::new(predicate(
                inner,
                TruthContext::ThreeValued,
                schema,
            )?))),
        },
        Expr::InSubquery(membership) => member(membership, context, schema),
        other => {
            if let Some(subquery) = predicate_of(&other) {
                refuse_aggregate(subquery)?;
            }
            let part = |part| predicate(part, TruthContext::ThreeValued, schema).map(Transformed::yes);
            Ok(other.map_children(part)?.data)
        }
    }
}

fn member(membership: InSubquery, context: TruthContext, schema: &DFSchema) -> Result<Expr> {
    let InSubquery {
        expr,
        subquery,
        negated,
    } = membership;
    let is_correlated = !subquery.outer_ref_columns.is_empty();
    let is_only_if_true = !negated && context != TruthContext::ThreeValued;
    if !(is_only_if_true && is_null_of_none(&subquery.subquery)) {
        refuse_aggregate(&subquery)?;
    }
    let expr = Box::new(predicate(*expr, TruthContext::ThreeValued, schema)?);
    let is_anti_join = negated && context == TruthContext::Conjunct && !is_correlated && !expr.column_refs().is_empty();
    let values = subquery.subquery.schema();
    let can_be_null = expr.nullable(schema)? || values.fields().iter().any(|value| value.is_nullable());
    if is_only_if_true || is_anti_join || !can_be_null {
        return Ok(Expr::InSubquery(InSubquery::new(expr, subquery, negated)));
    }
    if is_correlated
        && subquery
            .subquery
            .exists(|node| Ok(matches!(node, LogicalPlan::Limit(_))))?
    {
        return plan_err!("NOT IN takes no subquery with LIMIT that depends on the outer row: write NOT EXISTS");
    }
    if quantifiers(&subquery.subquery)? >= DEEPEST {
        return plan_err!(
            "IN (SELECT …), ANY and ALL that must tell null from false are more than {DEEPEST} within each other: write EXISTS or NOT EXISTS"
        );
    }
    let (op, quantifier) = if negated {
        (Operator::NotEq, SetQuantifier::All)
    } else {
        (Operator::Eq, SetQuantifier::Any)
    };
    Ok(Expr::SetComparison(SetComparison::new(expr, subquery, op, quantifier)))
}

/// How many comparisons by quantifiers are within each other.
fn quantifiers(plan: &LogicalPlan) -> Result<usize> {
    let mut deepest = 0;
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                let within = match part {
                    Expr::ScalarSubquery(of) => Some(of),
                    _ => predicate_of(part),
                };
                if let Some(subquery) = within {
                    let own = usize::from(matches!(part, Expr::SetComparison(_)));
                    deepest = deepest.max(own + quantifiers(&subquery.subquery)?);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(deepest)
}

fn predicate_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::InSubquery(of) => Some(&of.subquery),
        Expr::Exists(of) => Some(&of.subquery),
        Expr::SetComparison(of) => Some(&of.subquery),
        _ => None,
    }
}

/// Whether a subquery is nothing but an aggregate that is null of no rows.
fn is_null_of_none(plan: &LogicalPlan) -> bool {
    let is_column = |expr: &Expr| match expr.clone().unalias() {
        Expr::Column(_) => true,
        Expr::Cast(Cast { expr, .. }) => matches!(*expr, Expr::Column(_)),
        _ => false,
    };
    let is_one = |expr: &Expr| match expr.clone().unalias() {
        Expr::AggregateFunction(call) => NULL_OF_NONE.contains(&call.func.name()),
        _ => false,
    };
    match plan {
        LogicalPlan::SubqueryAlias(of) => is_null_of_none(&of.input),
        LogicalPlan::Projection(of) => of.expr.iter().all(is_column) && is_null_of_none(&of.input),
        LogicalPlan::Aggregate(of) => of.group_expr.is_empty() && of.aggr_expr.iter().all(is_one),
        _ => false,
    }
}

fn refuse_aggregate(subquery: &Subquery) -> Result<()> {
    let is_one = |node: &LogicalPlan| match node {
        LogicalPlan::Aggregate(of) => of.group_expr.is_empty() && !of.input.all_out_ref_exprs().is_empty(),
        _ => false,
    };
    if !subquery.outer_ref_columns.is_empty() && subquery.subquery.exists(|node| Ok(is_one(node)))? {
        return plan_err!(
            "EXISTS, IN, ANY and ALL take no aggregate without GROUP BY over rows that depend on the outer row: compare it itself, such as \
             (SELECT count(*) FROM …) > 0"
        );
    }
    Ok(())
}
