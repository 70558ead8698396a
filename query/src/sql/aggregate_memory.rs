//! `array_agg`, `string_agg` and exact percentiles, whose memory is counted as it is at their end: DataFusion counts the values that
//! were gathered, and not the list that is made of them, nor the room that values of functions leave empty.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray};
use arrow_schema::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

/// How often a value is there at the end: as it came, in the list that is made of it, in that of the next stage.
const COPIES: usize = 3;

/// The functions that gather.
const GATHERING: [&str; 4] = ["array_agg", "string_agg", "median", "percentile_cont"];

/// An aggregate function with its memory counted.
pub(super) fn with_counted_memory(function: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    if GATHERING.contains(&function.name()) {
        Arc::new(AggregateUDF::new_from_impl(GatheringAggregate(function)))
    } else {
        function
    }
}

/// Whether an operator gathers values of groups.
pub(super) fn gathers(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let aggregate = plan.downcast_ref::<AggregateExec>();
    let mut called = aggregate.into_iter().flat_map(AggregateExec::aggr_expr);
    called.any(|call| GATHERING.contains(&call.fun().name()))
}

/// See the module.
#[derive(Debug, PartialEq, Eq, Hash)]
struct GatheringAggregate(Arc<AggregateUDF>);

impl AggregateUDFImpl for GatheringAggregate {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, kinds: &[DataType]) -> Result<DataType> {
        self.0.return_type(kinds)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.0.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(GatheredValues(self.0.accumulator(args)?)))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.0.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(GatheredGroups(self.0.create_groups_accumulator(args)?)))
    }

    fn with_beneficial_ordering(self: Arc<Self>, is_ordered: bool) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let inner = AggregateUDF::clone(&self.0).with_beneficial_ordering(is_ordered)?;
        Ok(inner.map(|inner| Arc::new(Self(Arc::new(inner))) as _))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.0.reverse_udf() {
            ReversedUDAF::Reversed(inner) => ReversedUDAF::Reversed(with_counted_memory(inner)),
            other => other,
        }
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.0.supports_null_handling_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }
}

/// Values of one group.
#[derive(Debug)]
struct GatheredValues(Box<dyn Accumulator>);

impl Accumulator for GatheredValues {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate()
    }

    fn size(&self) -> usize {
        self.0.size().saturating_mul(COPIES)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }
}

/// Values of all groups.
struct GatheredGroups(Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for GatheredGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.0.update_batch(values, groups, filter, total)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.0.evaluate(emit_to)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.0.merge_batch(values, groups, total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.0.size().saturating_mul(COPIES)
    }
}
