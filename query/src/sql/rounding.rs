//! `round` as PostgreSQL rounds: doubles half to even, decimals half away from 0.
//!
//! | written | rounds |
//! |---|---|
//! | `round(double)` | to the even one of two |
//! | `round(1.5)`, `round(avg(whole number))`, which are decimals in PostgreSQL | away from 0 |
//! | `trunc`, `floor`, `ceil` | to 0 without a sign |
//! | `round(number, 2)` | the digits that are shown, away from 0; 0.1 + 0.2 counts as 0.3 |

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{ArrayRef, Float64Array};
use arrow_schema::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable as _, LogicalPlan, ScalarUDF, Volatility, cast, create_udf, lit,
};

use super::casts::nearest;

static ROUND_DIGITS: LazyLock<ScalarUDF> = LazyLock::new(|| {
    create_udf(
        "round_digits",
        vec![DataType::Float64, DataType::Int64],
        DataType::Float64,
        Volatility::Immutable,
        Arc::new(make_scalar_function(round_digits, Vec::new())),
    )
});

/// See the module. `averages` are those of whole numbers and decimals, by name.
pub(super) fn rewrite_round(expr: Expr, schema: &DFSchema, averages: &HashSet<String>) -> Transformed<Expr> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = &expr else {
        return Transformed::no(expr);
    };
    let is_float = |number: &Expr| matches!(number.get_type(schema), Ok(DataType::Float32 | DataType::Float64));
    match args.as_slice() {
        // Of two zeros the one with a sign would come before the other.
        [number] if ["ceil", "floor", "trunc"].contains(&func.name()) && is_float(number) => {
            Transformed::yes(expr.clone() + lit(0.0))
        }
        [number] if func.name() == "round" && is_float(number) && !is_decimal(number, schema, averages) => {
            Transformed::yes(nearest(number.clone()) + lit(0.0))
        }
        [number, digits] if func.name() == "round" && is_float(number) => Transformed::yes(ROUND_DIGITS.call(vec![
            cast(number.clone(), DataType::Float64),
            cast(digits.clone(), DataType::Int64),
        ])),
        _ => Transformed::no(expr),
    }
}

/// The averages of a plan's inputs that PostgreSQL has as decimals.
pub(super) fn averages(plan: &LogicalPlan) -> HashSet<String> {
    let is_average = |expr: &Expr, schema: &DFSchema| match expr {
        Expr::AggregateFunction(call) if call.func.name() == "avg" => {
            let mut args = call.params.args.iter();
            args.all(|arg| !matches!(arg.get_type(schema), Ok(DataType::Float32 | DataType::Float64)))
        }
        _ => false,
    };
    plan.inputs()
        .into_iter()
        .flat_map(|input| aggregates(input, &is_average))
        .collect()
}

/// The sums of a plan's inputs that PostgreSQL has as decimals: those of `bigint`.
pub(super) fn wide_sums(plan: &LogicalPlan) -> HashSet<String> {
    let is_wide = |expr: &Expr, schema: &DFSchema| match expr {
        Expr::AggregateFunction(call) if call.func.name() == "sum" => {
            call.params.args.iter().any(|arg| is_bigint(arg, schema))
        }
        _ => false,
    };
    plan.inputs()
        .into_iter()
        .flat_map(|input| aggregates(input, &is_wide))
        .collect()
}

/// The columns of a plan that are such aggregates, by whatever name they left the plan that made them.
fn aggregates(plan: &LogicalPlan, is_it: &dyn Fn(&Expr, &DFSchema) -> bool) -> HashSet<String> {
    let of_inputs = || {
        plan.inputs()
            .into_iter()
            .flat_map(|input| aggregates(input, is_it))
            .collect()
    };
    match plan {
        LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Limit(_) | LogicalPlan::SubqueryAlias(_) => {
            of_inputs()
        }
        LogicalPlan::Projection(projection) => {
            let below: HashSet<String> = of_inputs();
            let is_one = |expr: &&Expr| match (*expr).clone().unalias() {
                Expr::Column(column) => below.contains(&column.name),
                // What a sum is made of again, see `sums`; a cast with another name is one that was asked for.
                Expr::Cast(Cast { expr: inner, .. }) => match *inner {
                    Expr::Column(column) => below.contains(&column.name) && column.name == name_of(expr),
                    _ => false,
                },
                _ => false,
            };
            projection.expr.iter().filter(is_one).map(name_of).collect()
        }
        LogicalPlan::Aggregate(aggregate) => {
            let schema = aggregate.input.schema();
            let is_one = |expr: &&Expr| is_it(&(*expr).clone().unalias(), schema);
            aggregate.aggr_expr.iter().filter(is_one).map(name_of).collect()
        }
        _ => HashSet::new(),
    }
}

fn name_of(expr: &Expr) -> String {
    expr.qualified_name().1
}

/// Whether a whole number is a `bigint` in PostgreSQL, where what is written out is an `integer`.
fn is_bigint(expr: &Expr, schema: &DFSchema) -> bool {
    let is_whole = |part: &Expr| part.get_type(schema).is_ok_and(|kind| kind.is_integer());
    match expr {
        Expr::Column(_) => matches!(expr.get_type(schema), Ok(DataType::Int64)),
        Expr::Cast(Cast { field, .. }) if *field.data_type() == DataType::Int64 => true,
        Expr::Cast(Cast { field, .. }) if matches!(field.data_type(), DataType::Int32 | DataType::Int16) => false,
        Expr::Cast(Cast { expr, .. }) | Expr::Negative(expr) => is_bigint(expr, schema),
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => {
            is_whole(expr) && (is_bigint(left, schema) || is_bigint(right, schema))
        }
        Expr::Case(case) => {
            let values = case.when_then_expr.iter().map(|(_, value)| value);
            values.chain(&case.else_expr).any(|value| is_bigint(value, schema))
        }
        Expr::ScalarFunction(call) => call.args.iter().any(|arg| is_whole(arg) && is_bigint(arg, schema)),
        _ => false,
    }
}

/// Whether a double here is a decimal in PostgreSQL: made of numbers that are written out, whole ones and averages of these.
pub(super) fn is_decimal(expr: &Expr, schema: &DFSchema, averages: &HashSet<String>) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Float64(_), _) => true,
        Expr::Column(column) if averages.contains(&column.name) => true,
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => {
            is_decimal(left, schema, averages) && is_decimal(right, schema, averages)
        }
        Expr::Negative(inner) => is_decimal(inner, schema, averages),
        Expr::ScalarFunction(call)
            if ["abs", "coalesce", "greatest", "least", "nullif"].contains(&call.func.name()) =>
        {
            call.args.iter().all(|arg| is_decimal(arg, schema, averages))
        }
        other => other
            .get_type(schema)
            .is_ok_and(|kind| kind.is_integer() || matches!(kind, DataType::Decimal128(..))),
    }
}

fn round_digits(args: &[ArrayRef]) -> Result<ArrayRef> {
    let [numbers, digits] = args else {
        return exec_err!("a number and digits were expected");
    };
    let numbers = numbers.as_primitive::<Float64Type>().iter();
    let rounded: Float64Array = numbers
        .zip(digits.as_primitive::<Int64Type>().iter())
        .map(|(number, digits)| Some(rounded(number?, digits?)))
        .collect();
    Ok(Arc::new(rounded))
}

/// A number with so many digits after the point: of its shortest digits, or of its first 15 where that is the same but for what sums
/// of doubles leave.
fn rounded(number: f64, digits: i64) -> f64 {
    let short: f64 = format!("{number:.14e}").parse().unwrap_or(number);
    let left = (short - number).abs();
    let number = if left <= number.abs() * 2.0 * f64::EPSILON {
        short
    } else {
        number
    };
    let text = number.to_string();
    let Some((whole, fraction)) = text
        .split_once('.')
        .or(Some((text.as_str(), "")))
        .filter(|_| number.is_finite())
    else {
        return number;
    };
    let sign = if number < 0.0 { "-" } else { "" };
    let all: Vec<u8> = whole.trim_start_matches('-').bytes().chain(fraction.bytes()).collect();
    let point = i64::try_from(all.len() - fraction.len()).unwrap_or(i64::MAX);
    let Ok(kept) = usize::try_from(point.saturating_add(digits)) else {
        return 0.0;
    };
    if kept >= all.len() {
        return number;
    }
    let mut made: Vec<u8> = all.iter().take(kept).copied().collect();
    let mut carries = all.get(kept).is_some_and(|digit| *digit >= b'5');
    for digit in made.iter_mut().rev() {
        if !carries {
            break;
        }
        carries = *digit == b'9';
        *digit = if carries { b'0' } else { *digit + 1 };
    }
    let first = if carries { "1" } else { "0" };
    let made = String::from_utf8(made).unwrap_or_default();
    let rounded = format!("{sign}{first}{made}e{}", digits.saturating_neg()).parse();
    // A zero has no sign, see above.
    rounded.unwrap_or(number) + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_rounded_as_they_are_shown() {
        for (number, digits, expected) in [
            (2.675, 2, 2.68),
            (-2.675, 2, -2.68),
            (0.5, 0, 1.0),
            (9.996, 2, 10.0),
            (1250.0, -2, 1300.0),
            (1e20, 2, 1e20),
            (40.0, -2, 0.0),
            (50.0, -2, 100.0),
            (5.0, -3, 0.0),
            (0.1, 5, 0.1),
            (0.049_999_999_999_999_996, 1, 0.1),
            (0.1 + 0.2, 1, 0.3),
            (0.1 + 0.2, 5, 0.3),
            (1.1 + 2.2, 2, 3.3),
            (1_795_255_636.851_246, 4, 1_795_255_636.851_2),
            (1_795_255_636.851_204, 5, 1_795_255_636.851_2),
            (100_000_000_000.124_9, 2, 100_000_000_000.12),
            (1_234.567_890_123_456_7, 12, 1_234.567_890_123_457),
        ] {
            assert_eq!(
                rounded(number, digits).to_bits(),
                f64::to_bits(expected),
                "{number} {digits}"
            );
        }
    }
}
