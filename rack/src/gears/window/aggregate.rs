//! Aggregates: what a window makes of the values of its messages, one at a time.
//!
//! # Invariants
//!
//! - An aggregate takes all of a message's value or rejects the message; null is left out.
//! - The smallest and the largest of integers are exact. Sums of integers are exact until they leave 64 bits; then, and where there are fractions, they are rounded as `double`.
//! - What an aggregate keeps is bounded ([`most_bytes`]), whatever comes.

use std::cmp::Ordering;

use gear_spec::expression::MessageVariables;
use gear_spec::window::{AggregateOperation, WindowAggregate};
use model::message::Message;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::super::GearError;

/// The largest value that `first` and `last` keep, in bytes of JSON.
const MAX_VALUE: usize = 256;

/// The most bytes of what an aggregate keeps, with its marks.
pub(super) const fn most_bytes(operation: AggregateOperation) -> usize {
    match operation {
        // A short number of JSON may have nine bytes.
        AggregateOperation::First | AggregateOperation::Last => 64 + 3 * MAX_VALUE,
        _ => 96,
    }
}

/// A message's value for an aggregate.
pub(super) fn value_of(aggregate: &WindowAggregate, message: &Message) -> Result<Value, GearError> {
    let Some(of) = &aggregate.of else {
        return Ok(Value::Null);
    };
    let value = of.value(&MessageVariables::of(message))?;
    let name = &aggregate.name;
    let reject = |reason: &str| Err(GearError::Rejected(format!("aggregates.{name}.of: {reason}")));
    match (aggregate.operation, &value) {
        (_, Value::Null | Value::Number(_)) => Ok(value),
        (AggregateOperation::First | AggregateOperation::Last, value) if value.to_string().len() > MAX_VALUE => {
            reject(&format!("the result has more than {MAX_VALUE} bytes"))
        }
        (AggregateOperation::First | AggregateOperation::Last, _) => Ok(value),
        _ => reject("the result is neither a number nor null"),
    }
}

/// An aggregate of the messages so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum WindowAccumulator {
    Count(u64),
    Sum(RunningSum),
    Min(Option<Number>),
    Max(Option<Number>),
    Mean(RunningSum),
    First(Option<Value>),
    Last(Option<Value>),
}

/// A sum, and of how many numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RunningSum {
    count: u64,
    integers: i64,
    /// None where all were integers.
    fractions: Option<f64>,
}

impl WindowAccumulator {
    pub(super) fn new(operation: AggregateOperation) -> Self {
        match operation {
            AggregateOperation::Count => Self::Count(0),
            AggregateOperation::Sum => Self::Sum(RunningSum::default()),
            AggregateOperation::Min => Self::Min(None),
            AggregateOperation::Max => Self::Max(None),
            AggregateOperation::Mean => Self::Mean(RunningSum::default()),
            AggregateOperation::First => Self::First(None),
            AggregateOperation::Last => Self::Last(None),
        }
    }

    pub(super) const fn operation(&self) -> AggregateOperation {
        match self {
            Self::Count(_) => AggregateOperation::Count,
            Self::Sum(_) => AggregateOperation::Sum,
            Self::Min(_) => AggregateOperation::Min,
            Self::Max(_) => AggregateOperation::Max,
            Self::Mean(_) => AggregateOperation::Mean,
            Self::First(_) => AggregateOperation::First,
            Self::Last(_) => AggregateOperation::Last,
        }
    }

    pub(super) fn add(&mut self, value: Value) {
        if let Self::Count(count) = self {
            *count += 1;
            return;
        }
        match (self, value) {
            (_, Value::Null) => {}
            (Self::Sum(total) | Self::Mean(total), Value::Number(number)) => total.add(&number),
            (Self::Min(least), Value::Number(number)) => keep(least, number, Ordering::Less),
            (Self::Max(most), Value::Number(number)) => keep(most, number, Ordering::Greater),
            (Self::First(first), value) => drop(first.get_or_insert(value)),
            (Self::Last(last), value) => *last = Some(value),
            // What is no number was rejected.
            (Self::Count(_) | Self::Sum(_) | Self::Mean(_) | Self::Min(_) | Self::Max(_), _) => {}
        }
    }

    pub(super) fn result(self) -> Value {
        match self {
            Self::Count(count) => count.into(),
            Self::Sum(total) => total.sum(),
            Self::Mean(total) => total.mean(),
            Self::Min(number) | Self::Max(number) => number.map_or(Value::Null, Value::Number),
            Self::First(value) | Self::Last(value) => value.unwrap_or_default(),
        }
    }
}

/// Keeps a number if it is further than the one that is kept.
fn keep(kept: &mut Option<Number>, number: Number, further: Ordering) {
    if kept.as_ref().is_none_or(|kept| compare(&number, kept) == further) {
        *kept = Some(number);
    }
}

/// Integers exactly, all else as `double`.
fn compare(one: &Number, other: &Number) -> Ordering {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => {
            let float = |number: &Number| number.as_f64().unwrap_or_default();
            float(one).total_cmp(&float(other))
        }
    }
}

impl RunningSum {
    fn add(&mut self, number: &Number) {
        self.count += 1;
        match number.as_i64().and_then(|integer| self.integers.checked_add(integer)) {
            Some(sum) => self.integers = sum,
            None => *self.fractions.get_or_insert_default() += number.as_f64().unwrap_or_default(),
        }
    }

    fn sum(&self) -> Value {
        match self.fractions {
            None => self.integers.into(),
            Some(fractions) => (self.integers as f64 + fractions).into(),
        }
    }

    fn mean(&self) -> Value {
        if self.count == 0 {
            return Value::Null;
        }
        let sum = self.integers as f64 + self.fractions.unwrap_or_default();
        (sum / self.count as f64).into()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use gear_spec::expression::CelExpression;
    use serde_json::json;

    use super::super::super::testing;
    use super::*;

    fn made(operation: AggregateOperation, values: &[Value]) -> Value {
        let mut accumulator = WindowAccumulator::new(operation);
        values.iter().for_each(|value| accumulator.add(value.clone()));
        let mut bytes = Vec::new();
        ciborium::into_writer(&accumulator, &mut bytes).unwrap();
        assert!(
            bytes.len() <= most_bytes(operation),
            "{accumulator:?} has {} bytes",
            bytes.len()
        );
        assert_eq!(
            ciborium::from_reader::<WindowAccumulator, _>(&bytes[..]).unwrap(),
            accumulator
        );
        assert_eq!(accumulator.operation(), operation);
        accumulator.result()
    }

    #[test]
    fn every_operation_makes_of_the_values_what_it_says_and_leaves_null_out() {
        use AggregateOperation::{Count, First, Last, Max, Mean, Min, Sum};
        let values = [json!(3), json!(null), json!(-1), json!(4.5)];
        for (operation, result, of_none) in [
            (Count, json!(4), json!(0)),
            (Sum, json!(6.5), json!(0)),
            (Min, json!(-1), json!(null)),
            (Max, json!(4.5), json!(null)),
            (Mean, json!(6.5 / 3.0), json!(null)),
            (First, json!(3), json!(null)),
            (Last, json!(4.5), json!(null)),
        ] {
            assert_eq!(made(operation, &values), result, "{operation:?}");
            assert_eq!(made(operation, &[]), of_none, "{operation:?}");
        }
        let texts = [json!("a"), json!(null), json!({"b": "x".repeat(MAX_VALUE - 10)})];
        assert_eq!(
            (made(First, &texts), made(Last, &texts)),
            (texts[0].clone(), texts[2].clone())
        );
    }

    #[test]
    fn sums_are_exact_within_64_bits_and_rounded_beyond() {
        let max = i64::MAX;
        assert_eq!(made(AggregateOperation::Sum, &[json!(max - 1), json!(1)]), json!(max));
        assert_eq!(
            made(AggregateOperation::Sum, &[json!(max), json!(max)]),
            json!(2.0 * max as f64)
        );
        assert_eq!(
            made(AggregateOperation::Sum, &[json!(u64::MAX)]),
            json!(u64::MAX as f64)
        );
        assert_eq!(
            made(AggregateOperation::Sum, &[json!(f64::MAX), json!(f64::MAX)]),
            json!(null)
        );
        assert_eq!(
            made(AggregateOperation::Mean, &[json!(max), json!(max)]),
            json!(max as f64)
        );
    }

    #[test]
    fn the_largest_and_the_smallest_integer_are_found_where_doubles_do_not_tell_them_apart() {
        let (less, more) = (json!((1_u64 << 53) + 2), json!((1_u64 << 53) + 3));
        for values in [[less.clone(), more.clone()], [more.clone(), less.clone()]] {
            assert_eq!(
                (
                    made(AggregateOperation::Min, &values),
                    made(AggregateOperation::Max, &values)
                ),
                (less.clone(), more.clone())
            );
        }
        assert_eq!(
            made(
                AggregateOperation::Max,
                &[json!(u64::MAX - 1), json!(u64::MAX), json!(-1)]
            ),
            json!(u64::MAX)
        );
    }

    #[test]
    fn a_value_that_an_operation_cannot_take_rejects_the_message_and_names_the_aggregate() {
        let aggregate = |operation| WindowAggregate {
            name: "total".into(),
            operation,
            of: Some(CelExpression::compile("aggregates.total.of", "data").unwrap()),
        };
        let value = |operation, data| {
            value_of(&aggregate(operation), &testing::message(1, data, b"")).map_err(|why| why.to_string())
        };
        assert_eq!(value(AggregateOperation::Sum, json!(2)), Ok(json!(2)));
        let says = "aggregates.total.of: the result is neither a number nor null";
        assert_eq!(value(AggregateOperation::Max, json!("2")), Err(says.into()));
        assert_eq!(value(AggregateOperation::First, json!("2")), Ok(json!("2")));
        let long = value(AggregateOperation::Last, json!("x".repeat(MAX_VALUE)));
        assert_eq!(
            long,
            Err("aggregates.total.of: the result has more than 256 bytes".into())
        );
    }
}
