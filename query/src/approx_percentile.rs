//! `approx_percentile_cont`, for all groups at once and without sorted rows.
//!
//! DataFusion's own keeps a t-digest per group, for which every batch is sorted, and its plan sorts all rows before that. Under the
//! same name this one counts values in cells: see [`quantile_sketch`]. With a number of centroids, DataFusion's is called.
//!
//! # Invariants
//!
//! - What is kept counts as the query's memory; groups that do not fit are spilled by the plan.
//! - The sketches of all groups may leave as one array: its offsets have 64 bits, as its bytes may be more than 2 GiB.

mod quantile_sketch;

use std::mem::take;
use std::sync::Arc;

use arrow_array::builder::LargeBinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::arrow::compute::cast;
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::approx_percentile_cont::ApproxPercentileCont;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, Expr, GroupsAccumulator, Signature, lit,
};
use datafusion::physical_expr::expressions::Literal;

use self::quantile_sketch::QuantileSketch;

/// What a part of the values, 0 to 1, are not greater than: of plans.
pub(crate) fn approx_percentile(values: Expr, part: f64) -> Expr {
    let order = values.clone().sort(true, false);
    let call = AggregateFunction::new_udf(function(), vec![values, lit(part)], false, None, vec![order], None);
    Expr::AggregateFunction(call)
}

pub(crate) fn function() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(ApproxPercentile::default()))
}

/// See the module.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct ApproxPercentile {
    theirs: ApproxPercentileCont,
}

/// Whether a number of centroids is given.
const fn has_centroids(arguments: usize) -> bool {
    arguments > 2
}

impl AggregateUDFImpl for ApproxPercentile {
    fn name(&self) -> &str {
        self.theirs.name()
    }

    fn signature(&self) -> &Signature {
        self.theirs.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.theirs.return_type(types)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if has_centroids(args.input_fields.len()) {
            return self.theirs.state_fields(args);
        }
        let name = format_state_name(args.name, "sketch");
        Ok(vec![Arc::new(Field::new(name, DataType::LargeBinary, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if has_centroids(args.exprs.len()) {
            return self.theirs.accumulator(args);
        }
        Ok(Box::new(PercentileAccumulator(PercentileGroups::of(&args)?)))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !has_centroids(args.exprs.len())
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(PercentileGroups::of(&args)?))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.theirs.documentation()
    }
}

/// The values of all groups.
#[derive(Debug)]
struct PercentileGroups {
    part: f64,
    /// What comes out.
    kind: DataType,
    sketches: Vec<QuantileSketch>,
    /// Bytes outside of the sketches.
    bytes: usize,
}

impl PercentileGroups {
    fn of(args: &AccumulatorArgs<'_>) -> Result<Self> {
        let part = match args.exprs {
            [_, part] => part.downcast_ref::<Literal>().map(Literal::value),
            _ => None,
        };
        let part = match part {
            Some(ScalarValue::Float64(Some(part))) => *part,
            Some(ScalarValue::Float32(Some(part))) => f64::from(*part),
            _ => return plan_err!("approx_percentile_cont takes a literal between 0 and 1"),
        };
        if !(0.0..=1.0).contains(&part) {
            return plan_err!("approx_percentile_cont takes a literal between 0 and 1, and not {part}");
        }
        let is_descending = args.order_bys.first().is_some_and(|by| by.options.descending);
        Ok(Self {
            part: if is_descending { 1.0 - part } else { part },
            kind: args.return_field.data_type().clone(),
            sketches: Vec::new(),
            bytes: 0,
        })
    }

    fn add(&mut self, group: usize, value: f64) {
        if let Some(sketch) = self.sketches.get_mut(group) {
            self.bytes += sketch.add(value);
        }
    }

    fn emit(&mut self, emit_to: EmitTo) -> Vec<QuantileSketch> {
        let emitted = emit_to.take_needed(&mut self.sketches);
        let bytes: usize = emitted.iter().map(QuantileSketch::heap).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
        emitted
    }
}

/// The one column that is aggregated, as numbers.
fn numbers(columns: &[ArrayRef]) -> Result<Float64Array> {
    match columns.first() {
        Some(column) => Ok(cast(column, &DataType::Float64)?.as_primitive::<Float64Type>().clone()),
        None => exec_err!("approx_percentile_cont has no values"),
    }
}

fn is_kept(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

impl GroupsAccumulator for PercentileGroups {
    fn update_batch(
        &mut self,
        columns: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.sketches.resize_with(count, QuantileSketch::default);
        let values = numbers(columns)?;
        if filter.is_none() && values.null_count() == 0 {
            for (group, value) in groups.iter().zip(values.values()) {
                self.add(*group, *value);
            }
            return Ok(());
        }
        for (row, (group, value)) in groups.iter().zip(&values).enumerate() {
            if let Some(value) = value.filter(|_| is_kept(filter, row)) {
                self.add(*group, value);
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, columns: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.sketches.resize_with(count, QuantileSketch::default);
        let Some(states) = columns.first().and_then(|column| column.as_binary_opt::<i64>()) else {
            return exec_err!("sketches of percentiles are bytes");
        };
        for (group, state) in groups.iter().zip(states) {
            if let (Some(sketch), Some(state)) = (self.sketches.get_mut(*group), state) {
                self.bytes += sketch.merge(QuantileSketch::from_bytes(state)?);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (part, mut sketches) = (self.part, self.emit(emit_to));
        let values: Float64Array = sketches.iter_mut().map(|sketch| sketch.percentile(part)).collect();
        Ok(cast(&values, &self.kind)?)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let mut states = LargeBinaryBuilder::new();
        for sketch in self.emit(emit_to) {
            states.append_value(sketch.to_bytes());
        }
        Ok(vec![Arc::new(states.finish())])
    }

    fn convert_to_state(&self, columns: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut states = LargeBinaryBuilder::new();
        for (row, value) in numbers(columns)?.iter().enumerate() {
            match value.filter(|_| is_kept(filter, row)) {
                Some(value) => states.append_value(value.to_bits().to_le_bytes()),
                None => states.append_null(),
            }
        }
        Ok(vec![Arc::new(states.finish())])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sketches.capacity() * size_of::<QuantileSketch>() + self.bytes
    }
}

/// All rows as one group.
#[derive(Debug)]
struct PercentileAccumulator(PercentileGroups);

impl Accumulator for PercentileAccumulator {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let rows = columns.first().map_or(0, Array::len);
        self.0.update_batch(columns, &vec![0; rows], None, 1)
    }

    fn merge_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let rows = columns.first().map_or(0, Array::len);
        self.0.merge_batch(columns, &vec![0; rows], 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = self
            .0
            .sketches
            .first_mut()
            .and_then(|sketch| sketch.percentile(self.0.part));
        ScalarValue::Float64(value).cast_to(&self.0.kind)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sketch = take(&mut self.0.sketches).into_iter().next().unwrap_or_default();
        Ok(vec![ScalarValue::LargeBinary(Some(sketch.to_bytes()))])
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn groups() -> PercentileGroups {
        PercentileGroups {
            part: 0.5,
            kind: DataType::Float64,
            sketches: Vec::new(),
            bytes: 0,
        }
    }

    #[test]
    fn states_have_wide_offsets_and_are_merged_to_what_they_were_made_of() {
        let values: [ArrayRef; 1] = [Arc::new(Float64Array::from_iter_values((0..1_000).map(f64::from)))];
        let (mut whole, mut one) = (groups(), PercentileAccumulator(groups()));
        whole.update_batch(&values, &[0; 1_000], None, 1).unwrap();
        one.update_batch(&values).unwrap();
        for states in [
            whole.convert_to_state(&values, None).unwrap(),
            whole.state(EmitTo::All).unwrap(),
            vec![one.state().unwrap()[0].to_array().unwrap()],
        ] {
            assert_eq!(states[0].data_type(), &DataType::LargeBinary);
            let mut merged = groups();
            merged.merge_batch(&states, &vec![0; states[0].len()], 1).unwrap();
            let found = merged.evaluate(EmitTo::All).unwrap();
            let median = found.as_primitive::<Float64Type>().value(0);
            assert!((median - 499.5).abs() < 4.0, "{median}");
        }
    }
}
