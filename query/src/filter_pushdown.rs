//! Pushdown of filters in physical plans, where it cannot mistake one column for another of the same name.
//!
//! DataFusion 55 maps the columns of a filter that moves below a node by their names. Above a join of two tables that both have a
//! `level`, that takes the first one for the second: the filter of one side removes rows of the other
//! (<https://github.com/apache/datafusion/issues/21246>, mended after 55.2 by pull request 25259). Logical plans are not
//! affected: their columns know their tables.
//!
//! # Invariants
//!
//! - No filter moves through a node whose output has two columns of one name, nor through a semi join of keys with different
//!   names. Below and above these all is as in DataFusion. Inputs of a union are no such node: its plan gives them the same names.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::{JoinType, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

use crate::scan_order::ScanOrder;
use crate::unknown_order::UnknownOrderRule;

type PhysicalRule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// [`UnknownOrderRule`], DataFusion's rules in their order, and [`ScanOrder`].
pub(crate) fn optimizer_rules() -> Vec<PhysicalRule> {
    let guarded = |rule: PhysicalRule| -> PhysicalRule {
        if rule.name().starts_with("FilterPushdown") {
            Arc::new(UnambiguousFilterPushdown(rule))
        } else {
            rule
        }
    };
    let rules = PhysicalOptimizer::new().rules.into_iter().map(guarded);
    let first = [Arc::new(UnknownOrderRule) as PhysicalRule];
    first
        .into_iter()
        .chain(rules)
        .chain([Arc::new(ScanOrder) as PhysicalRule])
        .collect()
}

/// See the module.
#[derive(Debug)]
struct UnambiguousFilterPushdown(PhysicalRule);

impl PhysicalOptimizerRule for UnambiguousFilterPushdown {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let children = plan.children();
        // Nothing comes from above to the topmost node, whatever its own columns are called.
        if !children.iter().any(|child| is_ambiguous(child)) {
            return self.0.optimize(plan, config);
        }
        let children = children
            .into_iter()
            .map(|child| self.optimize(Arc::clone(child), config));
        let children = children.collect::<Result<_>>()?;
        replace_children_if_necessary(plan, children)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// Whether a filter that moves through a plan can take one column for another.
fn is_ambiguous(plan: &Arc<dyn ExecutionPlan>) -> bool {
    has_equal_names(plan) || has_other_keys(plan) || plan.children().into_iter().any(is_ambiguous)
}

fn has_equal_names(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let schema = plan.schema();
    let mut names = HashSet::with_capacity(schema.fields().len());
    schema.fields().iter().any(|field| !names.insert(field.name()))
}

/// Whether it is a semi join, of which filters of the keys go to both sides, and these name them differently.
fn has_other_keys(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let Some(join) = plan.downcast_ref::<HashJoinExec>() else {
        return false;
    };
    let name = |key: &Arc<dyn PhysicalExpr>| key.downcast_ref::<Column>().map(|column| column.name().to_owned());
    let is_semi = matches!(join.join_type(), JoinType::LeftSemi | JoinType::RightSemi);
    is_semi && join.on().iter().any(|(left, right)| name(left) != name(right))
}
