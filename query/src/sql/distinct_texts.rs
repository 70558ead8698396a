//! `count(DISTINCT text)` beside another `DISTINCT`: a hash set of texts for each group, which begins empty. DataFusion's take 12 KB at once.
//!
//! # Invariants
//!
//! - Plans are optimized before: what can be two groupings, which spill, is that already. Columns keep their names.
//! - The state is a list of texts, by which [`gathers`](super::aggregate_memory::gathers) knows it.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{ArrayRef, LargeStringArray};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, ExprSchemable as _, LogicalPlan, Signature, Volatility, cast,
};
use foldhash::fast::RandomState;

use crate::scalar_functions::texts;

/// What the list that a set becomes takes beside its texts.
const LIST: usize = 256;

/// See the module.
pub(super) fn count_texts_in_sets(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Aggregate(mut aggregate) = node else {
            return Ok(Transformed::no(node));
        };
        let mut is_changed = false;
        for expr in &mut aggregate.aggr_expr {
            if let Some(counted) = counted(expr, aggregate.input.schema()) {
                *expr = counted;
                is_changed = true;
            }
        }
        Ok(Transformed::new_transformed(
            LogicalPlan::Aggregate(aggregate),
            is_changed,
        ))
    })?;
    Ok(plan.data)
}

/// The same count, by the name that it had; `None` if it is of no distinct texts.
fn counted(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::AggregateFunction(mut call) = expr.clone().unalias() else {
        return None;
    };
    let [arg] = call.params.args.as_mut_slice() else {
        return None;
    };
    match arg.get_type(schema).ok()? {
        _ if call.func.name() != "count" || !call.params.distinct => return None,
        DataType::Dictionary(_, texts) if texts.is_string() => *arg = cast(arg.clone(), *texts),
        kind if kind.is_string() => {}
        _ => return None,
    }
    call.func = Arc::new(AggregateUDF::new_from_impl(DistinctTextCount {
        signature: Signature::any(1, Volatility::Immutable),
    }));
    let name = NamePreserver::new_for_projection().save(expr);
    Some(name.restore(Expr::AggregateFunction(call)))
}

/// See the module. No statement can name it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DistinctTextCount {
    signature: Signature,
}

impl AggregateUDFImpl for DistinctTextCount {
    fn name(&self) -> &str {
        "count_texts"
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

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let name = format_state_name(args.name, "texts");
        let text = Field::new_list_field(DataType::LargeUtf8, true);
        Ok(vec![Arc::new(Field::new_list(name, text, false))])
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(DistinctTextSet::default()))
    }
}

#[derive(Debug, Default)]
struct DistinctTextSet {
    texts: HashSet<Box<str>, RandomState>,
    /// Of all texts.
    bytes: usize,
}

impl Accumulator for DistinctTextSet {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        for column in columns {
            for text in texts(column)?.flatten() {
                if !self.texts.contains(text) {
                    self.bytes += text.len().next_multiple_of(16);
                    self.texts.insert(text.into());
                }
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let Some(states) = columns.first().and_then(|column| column.as_list_opt::<i32>()) else {
            return exec_err!("texts of a partition are lists");
        };
        states.iter().flatten().try_for_each(|list| self.update_batch(&[list]))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let texts = std::mem::take(self).texts;
        let list = LargeStringArray::from_iter_values(texts);
        Ok(vec![SingleRowListArrayBuilder::new(Arc::new(list)).build_list_scalar()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(i64::try_from(self.texts.len()).ok()))
    }

    fn size(&self) -> usize {
        let buckets = self.texts.capacity() * 8 / 7;
        size_of_val(self) + LIST + buckets * (size_of::<Box<str>>() + 1) + self.bytes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use arrow_array::{StringArray, StringViewArray};

    use super::*;

    #[test]
    fn texts_of_all_types_and_parts_are_counted_once_and_nulls_not_at_all() {
        let columns: [ArrayRef; 3] = [
            Arc::new(StringArray::from(vec![Some("a"), None, Some("")])),
            Arc::new(LargeStringArray::from(vec![Some("b"), Some("a"), None])),
            Arc::new(StringViewArray::from(vec![
                None,
                Some("b"),
                Some("a longer text than fits a view"),
            ])),
        ];
        let mut whole = DistinctTextSet::default();
        for column in columns {
            let mut part = DistinctTextSet::default();
            part.update_batch(&[column]).unwrap();
            let [state] = part.state().unwrap().try_into().unwrap();
            whole.merge_batch(&[state.to_array().unwrap()]).unwrap();
        }
        assert_eq!(whole.evaluate().unwrap(), ScalarValue::Int64(Some(4)));
        let [none] = DistinctTextSet::default().state().unwrap().try_into().unwrap();
        whole.merge_batch(&[none.to_array().unwrap()]).unwrap();
        assert_eq!(whole.evaluate().unwrap(), ScalarValue::Int64(Some(4)));
    }

    #[test]
    fn a_set_takes_what_its_texts_take() {
        let mut set = DistinctTextSet::default();
        set.update_batch(&[Arc::new(StringArray::from(vec!["a short text"; 3]))])
            .unwrap();
        assert!((LIST..1_000).contains(&set.size()), "{}", set.size());
        let long = "x".repeat(100_000);
        set.update_batch(&[Arc::new(StringArray::from(vec![long]))]).unwrap();
        assert!((100_000..102_000).contains(&set.size()), "{}", set.size());
    }
}
