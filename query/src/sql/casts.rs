//! Casts as PostgreSQL makes them.
//!
//! | written | gives |
//! |---|---|
//! | `text::varchar(n)`, `::char(n)` | the first letters; nothing is added to a shorter text |
//! | `2.5::int`, a `decimal` as a whole number | the nearest, of two the one further from 0 |
//! | a `decimal` with fewer digits | rounded before it is cast |
//! | a `real` or a `double` as a whole number | the nearest, of two the even one |
//! | a value as a text | see [`text_output`] |

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray as _;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, Float64Array};
use arrow_schema::{DataType, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::functions::{math, unicode};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable as _, ScalarUDF, TryCast, Volatility, cast, create_udf, lit};

use super::sql_types::LETTERS;
use super::{rounding, text_output};

static NEAREST: LazyLock<ScalarUDF> = LazyLock::new(|| {
    create_udf(
        "nearest",
        vec![DataType::Float64],
        DataType::Float64,
        Volatility::Immutable,
        Arc::new(make_scalar_function(nearest_of, Vec::new())),
    )
});

/// See the module. `convert` makes what any other cast, and all that is none, becomes.
pub(super) fn rewrite_cast(
    expr: Expr,
    schema: &DFSchema,
    averages: &HashSet<String>,
    convert: impl FnOnce(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<Expr>> {
    let Some((inner, field)) = parts(&expr) else {
        return convert(expr);
    };
    let to = field.data_type().clone();
    let text = if to.is_string() {
        text_output::to_text_expr(inner, schema)?
    } else {
        None
    };
    let letters = field.metadata().get(LETTERS);
    if let Some(letters) = letters.and_then(|letters| letters.parse::<i64>().ok()) {
        let text = match text {
            Some(text) => text,
            None => convert(changed(expr, |inner| inner, to))?.data,
        };
        return Ok(Transformed::yes(unicode::left().call(vec![text, lit(letters)])));
    }
    if let Some(text) = text {
        return Ok(Transformed::yes(text));
    }
    // DataFusion undoes a cast in a comparison, whatever the digits that it loses.
    if let (Ok(DataType::Decimal128(_, from)), DataType::Decimal128(_, scale)) = (inner.get_type(schema), &to)
        && *scale < from
    {
        let scale = i64::from(*scale);
        let rounded = |inner| math::round().call(vec![inner, lit(scale)]);
        return Ok(Transformed::yes(changed(expr, rounded, to)));
    }
    // A condition that is a cast counts as constant, and with it, for rows in order, what is cast.
    if to == DataType::Boolean && inner.get_type(schema).is_ok_and(|kind| kind.is_integer()) {
        return Ok(Transformed::yes(inner.clone().not_eq(lit(0_i64))));
    }
    match rounding(inner, &to, schema, averages) {
        Some(round) => Ok(Transformed::yes(changed(expr, round, to))),
        None => convert(expr),
    }
}

fn parts(expr: &Expr) -> Option<(&Expr, &FieldRef)> {
    match expr {
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => Some((expr, field)),
        _ => None,
    }
}

/// The same cast, of something else, to a plain type.
fn changed(expr: Expr, change: impl FnOnce(Expr) -> Expr, to: DataType) -> Expr {
    match expr {
        Expr::Cast(Cast { expr, .. }) => cast(change(*expr), to),
        Expr::TryCast(TryCast { expr, .. }) => Expr::TryCast(TryCast::new(Box::new(change(*expr)), to)),
        other => other,
    }
}

/// What makes a number whole before it is cast, which would cut it.
fn rounding(number: &Expr, to: &DataType, schema: &DFSchema, averages: &HashSet<String>) -> Option<fn(Expr) -> Expr> {
    if !to.is_integer() {
        return None;
    }
    match (number, number.get_type(schema).ok()?) {
        // PostgreSQL takes a number that is written with a point for a decimal.
        (Expr::Literal(ScalarValue::Float64(_), _), _) => Some(nearest_of_literal),
        (number, DataType::Float64) if rounding::is_decimal(number, schema, averages) => Some(away_from_zero),
        (_, DataType::Float16 | DataType::Float32 | DataType::Float64) => Some(nearest),
        (_, DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..)) => Some(away_from_zero),
        _ => None,
    }
}

fn nearest_of_literal(number: Expr) -> Expr {
    match number {
        Expr::Literal(ScalarValue::Float64(Some(number)), _) => lit(number.round()),
        other => other,
    }
}

/// Half away from 0, by a function: a comparison would undo a cast.
fn away_from_zero(number: Expr) -> Expr {
    math::round().call(vec![number])
}

/// The nearest whole number, of two the even one.
pub(super) fn nearest(number: Expr) -> Expr {
    NEAREST.call(vec![cast(number, DataType::Float64)])
}

fn nearest_of(args: &[ArrayRef]) -> Result<ArrayRef> {
    let Some(numbers) = args
        .first()
        .and_then(|numbers| numbers.as_primitive_opt::<Float64Type>())
    else {
        return exec_err!("a number was expected");
    };
    let rounded: Float64Array = numbers.unary(f64::round_ties_even);
    Ok(Arc::new(rounded))
}
