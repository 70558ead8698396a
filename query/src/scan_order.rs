//! Scans that declare an order give their rows in it under a limit too.
//!
//! DataFusion 55 forgets that a scan's order matters when a limit moves into it from a merge above: files are then opened by whichever
//! thread is free, and row groups left out that have the first rows (<https://github.com/apache/datafusion/issues/24272>, open).

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

/// The rule, to run after limits have moved.
#[derive(Debug)]
pub(crate) struct ScanOrder;

impl PhysicalOptimizerRule for ScanOrder {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|node| {
            let is_in_order = node.is::<DataSourceExec>() && node.properties().output_ordering().is_some();
            let preserved = if is_in_order {
                node.with_preserve_order(true)
            } else {
                None
            };
            Ok(match preserved {
                Some(preserved) => Transformed::yes(preserved),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "scan_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
