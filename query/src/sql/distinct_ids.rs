//! `count(DISTINCT id)` over all rows, in memory: ids are partitioned by their bits and deduplicated within a partition.
//!
//! ```text
//! ids of a partition ─> 256 lists, by a hash ─┐
//! ids of a partition ─> 256 lists, by a hash ─┴─> each list a small table, one after the other ─> count
//! ```
//!
//! A plan of DataFusion's groups the ids first, in one table of all of them, which no cache holds; but it can spill. So a statement is
//! planned with this and begins anew without it where there are more ids, of all partitions with those that came again, than memory
//! has room for ([`DistinctLimitError`]).
//!
//! # Invariants
//!
//! - Only where the outermost aggregate has one group for all rows: nothing was answered before it ends, so that a statement can
//!   begin anew.
//! - One partition holds at most the ids that it may, and those of one batch; all lists count as the query's memory.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, LogicalPlan, Signature, TypeSignature, Volatility,
};
use foldhash::fast::RandomState;

use super::expression_rewriter::{counts_ids, rewrite_expressions};
use crate::scalar_functions::ID;

/// Lists of a partition; a power of two.
const LISTS: usize = 256;
/// So many ids are held before it is tried whether they are fewer.
const FIRST_TRY: usize = 1 << 20;

/// There are more ids than the memory of one query has room for.
#[derive(Debug, thiserror::Error)]
#[error("there are too many distinct ids to count them in memory")]
pub(crate) struct DistinctLimitError;

/// The plan, with the counts of its outermost aggregate made here; each may hold so many bytes of ids.
pub(super) fn count_ids_in_memory(plan: LogicalPlan, most: usize) -> Result<Transformed<LogicalPlan>> {
    plan.transform_down(|plan| {
        Ok(match &plan {
            LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
                let mut counted = rewrite_aggregate(plan, most)?;
                counted.tnr = TreeNodeRecursion::Jump;
                counted
            }
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_) => Transformed::no(plan),
            _ => Transformed::new(plan, false, TreeNodeRecursion::Stop),
        })
    })
}

fn rewrite_aggregate(plan: LogicalPlan, most: usize) -> Result<Transformed<LogicalPlan>> {
    let Some(schema) = plan.inputs().first().map(|input| Arc::clone(input.schema())) else {
        return Ok(Transformed::no(plan));
    };
    rewrite_expressions(plan, |expr| Ok(counted(expr, &schema, most)))
}

fn counted(expr: Expr, schema: &DFSchema, most: usize) -> Transformed<Expr> {
    match expr {
        Expr::AggregateFunction(AggregateFunction { func, mut params }) if counts_ids(&func, &params, schema) => {
            params.distinct = false;
            let func = Arc::new(AggregateUDF::new_from_impl(DistinctIdCount {
                signature: Signature::new(TypeSignature::Exact(vec![ID]), Volatility::Immutable),
                most,
            }));
            Transformed::yes(Expr::AggregateFunction(AggregateFunction { func, params }))
        }
        other => Transformed::no(other),
    }
}

/// See the module. No statement can name it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DistinctIdCount {
    signature: Signature,
    /// Bytes of ids.
    most: usize,
}

impl AggregateUDFImpl for DistinctIdCount {
    fn name(&self) -> &str {
        "count_distinct_ids"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn is_nullable(&self) -> bool {
        false
    }

    fn default_value(&self, _: &DataType) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(Some(0)))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let name = format_state_name(args.name, "ids");
        Ok(vec![Arc::new(Field::new(name, DataType::LargeBinary, true))])
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(DistinctIdAccumulator::new(self.most / size_of::<u128>())))
    }
}

/// Ids, some of them more than once.
#[derive(Debug)]
struct DistinctIdAccumulator {
    lists: Vec<Vec<u128>>,
    /// In all lists.
    held: usize,
    /// When there are so many, it is tried whether they are fewer.
    next_try: usize,
    most: usize,
}

impl DistinctIdAccumulator {
    fn new(most: usize) -> Self {
        Self {
            lists: vec![Vec::new(); LISTS],
            held: 0,
            next_try: FIRST_TRY.min(most),
            most,
        }
    }

    #[inline]
    fn add(&mut self, id: u128) {
        // All bits count: ids may differ in any of them.
        let bits = (id as u64) ^ ((id >> 64) as u64).rotate_left(32);
        let list = (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % LISTS;
        if let Some(list) = self.lists.get_mut(list) {
            list.push(id);
        }
    }

    /// To be called after some were added.
    fn check(&mut self) -> Result<()> {
        self.held = self.lists.iter().map(Vec::len).sum();
        if self.held < self.next_try {
            return Ok(());
        }
        let mut table = HashSet::with_hasher(RandomState::default());
        for list in &mut self.lists {
            table.clear();
            list.retain(|id| table.insert(*id));
        }
        self.held = self.lists.iter().map(Vec::len).sum();
        // Each try looks at all: the next one comes when there are several times as many.
        self.next_try = (self.held * 4).clamp(FIRST_TRY.min(self.most), self.most);
        // With less room than a quarter the next try would come too soon.
        if self.held > self.most / 4 * 3 {
            return Err(DataFusionError::External(Box::new(DistinctLimitError)));
        }
        Ok(())
    }

    fn count(&self) -> usize {
        let mut table = HashSet::<u128, _>::with_hasher(RandomState::default());
        let mut of_list = |list: &Vec<u128>| {
            table.clear();
            table.reserve(list.len());
            table.extend(list);
            table.len()
        };
        self.lists.iter().map(&mut of_list).sum()
    }
}

impl Accumulator for DistinctIdAccumulator {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let Some(ids) = columns.first().and_then(|column| column.as_fixed_size_binary_opt()) else {
            return exec_err!("ids are 16 bytes");
        };
        for id in ids.iter().flatten().filter_map(|id| id.try_into().ok()) {
            self.add(u128::from_le_bytes(id));
        }
        self.check()
    }

    fn merge_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let Some(states) = columns.first().and_then(|column| column.as_binary_opt::<i64>()) else {
            return exec_err!("ids of a partition are bytes");
        };
        for state in states.iter().flatten() {
            for id in state.as_chunks().0 {
                self.add(u128::from_le_bytes(*id));
            }
            self.check()?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let mut bytes = Vec::with_capacity(self.held * size_of::<u128>());
        for list in std::mem::take(&mut self.lists) {
            bytes.extend(list.iter().flat_map(|id| id.to_le_bytes()));
        }
        Ok(vec![ScalarValue::LargeBinary(Some(bytes))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(i64::try_from(self.count()).ok()))
    }

    fn size(&self) -> usize {
        let lists: usize = self.lists.iter().map(Vec::capacity).sum();
        size_of_val(self) + LISTS * size_of::<Vec<u128>>() + lists * size_of::<u128>()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::error::is_caused_by;

    fn added(most: usize, ids: impl Iterator<Item = u128>) -> (DistinctIdAccumulator, Result<()>) {
        let mut counted = DistinctIdAccumulator::new(most);
        let mut checked = Ok(());
        for id in ids {
            counted.add(id);
            checked = checked.and_then(|()| counted.check());
        }
        (counted, checked)
    }

    #[test]
    fn repeated_ids_take_no_memory_and_too_many_are_an_error() {
        let (ids, checked) = added(100, (0..1_000).map(|n| n % 70));
        checked.unwrap();
        assert_eq!(ids.count(), 70);
        let (_, checked) = added(100, 0..1_000);
        assert!(is_caused_by::<DistinctLimitError>(&checked.unwrap_err()));
    }

    #[test]
    fn ids_of_parts_are_counted_once() {
        let mut whole = DistinctIdAccumulator::new(1_000);
        for part in [0..300, 200..500] {
            let (mut part, checked) = added(1_000, part.map(|n: u128| n << 64 | n));
            checked.unwrap();
            let [state] = part.state().unwrap().try_into().unwrap();
            whole.merge_batch(&[state.to_array().unwrap()]).unwrap();
        }
        assert_eq!(whole.evaluate().unwrap(), ScalarValue::Int64(Some(500)));
    }
}
