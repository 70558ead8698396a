//! Patterns that a statement has as they are become [`Matches`]: `text ~ 'pattern'`, `regexp_like(text, 'pattern')`.
//!
//! A pattern that is none is left to DataFusion, which says what is wrong with it; so are flags, `~*`, and patterns out of columns.

use arrow_schema::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable as _, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;

use super::ids::schema_of;
use crate::patterns::Matches;

/// See the module.
#[derive(Debug)]
pub(super) struct Patterns;

impl AnalyzerRule for Patterns {
    fn name(&self) -> &str {
        "patterns"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(analyzed)?.data)
    }
}

fn analyzed(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = schema_of(&plan)?;
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let made = expr.transform_up(|expr| Ok(replaced(expr, &schema)))?;
        Ok(made.update_data(|expr| name.restore(expr)))
    })
}

fn replaced(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let matched = match &expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::RegexMatch,
            right,
        }) => matched(left, right, schema),
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == "regexp_like" => match args.as_slice() {
            [text, pattern] => matched(text, pattern, schema),
            _ => None,
        },
        _ => None,
    };
    matched.map_or_else(|| Transformed::no(expr), Transformed::yes)
}

fn matched(text: &Expr, pattern: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::Literal(ScalarValue::Utf8(Some(pattern)) | ScalarValue::Utf8View(Some(pattern)), _) = pattern else {
        return None;
    };
    // What is not of this type would be made it, row by row.
    (text.get_type(schema).ok()? == DataType::Utf8).then(|| Matches::call(text.clone(), pattern))?
}
