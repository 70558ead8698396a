//! The rules of DataFusion's planner and our own, each of which asks before it looks at a plan, or at a node of one, whether its
//! statement was cancelled or is out of time: nobody else can end the thread that plans, and until it ends the rows that the
//! statement's snapshot retains are in memory.
//!
//! # Not here
//!
//! What ends a statement ([`super::cancellation`]), and plans that one rule would take too long for ([`super::expression_size`]).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::Optimizer;
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use super::rollups::RollupRule;
use super::row_lookup::RowLookupRule;
use super::statement_bounds::StatementBounds;
use crate::filter_pushdown;

type SharedAnalyzerRule = Arc<dyn AnalyzerRule + Send + Sync>;
type SharedOptimizerRule = Arc<dyn OptimizerRule + Send + Sync>;
type SharedPhysicalRule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// These rules, each asking first.
pub(super) fn analyzer_rules(rules: Vec<SharedAnalyzerRule>) -> Vec<SharedAnalyzerRule> {
    let rules = rules.into_iter();
    rules.map(|rule| Arc::new(CancellableRule(rule)) as _).collect()
}

/// The rules that optimize logical plans.
pub(super) fn optimizer_rules() -> Vec<SharedOptimizerRule> {
    let own: [SharedOptimizerRule; 2] = [Arc::new(RollupRule), Arc::new(RowLookupRule)];
    let rules = Optimizer::new().rules.into_iter().chain(own);
    rules.map(|rule| Arc::new(CancellableRule(rule)) as _).collect()
}

/// The rules that optimize physical plans.
pub(super) fn physical_optimizer_rules() -> Vec<SharedPhysicalRule> {
    let rules = filter_pushdown::optimizer_rules().into_iter();
    rules.map(|rule| Arc::new(CancellableRule(rule)) as _).collect()
}

/// A rule that asks first.
#[derive(Debug)]
struct CancellableRule<R>(R);

fn check(options: &ConfigOptions) -> Result<()> {
    let bounds = options.extensions.get::<StatementBounds>();
    bounds.map_or(Ok(()), StatementBounds::check)
}

impl AnalyzerRule for CancellableRule<SharedAnalyzerRule> {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        check(config)?;
        self.0.analyze(plan, config)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

impl OptimizerRule for CancellableRule<SharedOptimizerRule> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        check(&config.options())?;
        self.0.rewrite(plan, config)
    }
}

impl PhysicalOptimizerRule for CancellableRule<SharedPhysicalRule> {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        check(config)?;
        self.0.optimize(plan, config)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::UnboundedMemoryPool;
    use datafusion::logical_expr::LogicalPlanBuilder;
    use datafusion::optimizer::{Analyzer, OptimizerContext};
    use datafusion::physical_plan::empty::EmptyExec;
    use tokio_util::sync::CancellationToken;

    use super::super::cancellation::StatementCancellation;
    use super::*;

    #[test]
    fn each_rule_hears_of_the_end() {
        let stop = StatementCancellation {
            gone: CancellationToken::new(),
            too_old: CancellationToken::new(),
            deadline: None,
        };
        let too_old = stop.too_old.clone();
        let mut options = ConfigOptions::new();
        let bounds = StatementBounds::new(&UnboundedMemoryPool::default(), Some(Arc::new(stop)));
        options.extensions.insert(bounds);
        let context = OptimizerContext::new_with_config_options(Arc::new(options.clone()));
        let plan = LogicalPlanBuilder::empty(true).build().unwrap();
        let physical_plan: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(Arc::clone(plan.schema().inner())));
        let ended = || {
            let analyzed = analyzer_rules(Analyzer::new().rules).into_iter();
            let analyzed = analyzed.map(|rule| rule.analyze(plan.clone(), &options).is_err());
            let optimized = optimizer_rules().into_iter();
            let optimized = optimized.map(|rule| {
                Optimizer::with_rules(vec![rule])
                    .optimize(plan.clone(), &context, |_, _| {})
                    .is_err()
            });
            let made = physical_optimizer_rules().into_iter();
            let made = made.map(|rule| rule.optimize(Arc::clone(&physical_plan), &options).is_err());
            analyzed.chain(optimized).chain(made).collect::<Vec<_>>()
        };
        let before = ended();
        assert!(before.iter().all(|ended| !ended), "{before:?}");
        too_old.cancel();
        let after = ended();
        assert!(after.iter().all(|ended| *ended), "{after:?}");
    }
}
