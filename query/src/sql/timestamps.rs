//! Times as PostgreSQL has them: in whole microseconds, their parts with fractions, written by its patterns.
//!
//! | written | planned as |
//! |---|---|
//! | `ts > TIMESTAMP '… 23:59:59.9999995'`, also `=`, `IN`, `BETWEEN` | a comparison with the nearest microsecond |
//! | `extract(second FROM ts)`, `milliseconds` | with what is beside the whole seconds |
//! | `extract(epoch FROM a - b)`, the other parts of a difference | of its microseconds, as days and the time of a day |
//! | `to_char(ts, 'YYYY-MM-DD')` | see [`to_char`] |
//!
//! DataFusion compares a column with what is left when finer digits are cut, and counts nanoseconds in 32 bits.

use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray as _;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{ArrayRef, TimestampMicrosecondArray};
use arrow_schema::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::functions::datetime::date_part;
use datafusion::functions::math;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable as _, ScalarUDF, Volatility, cast, create_udf, lit};

use super::comparisons::rewrite_comparison;
use super::time_zones::utc_timestamp;
use super::{intervals, to_char};

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
/// Microseconds of a day.
pub(super) const DAY: i64 = 24 * HOUR;

static TO_MICROS: LazyLock<ScalarUDF> = LazyLock::new(|| {
    create_udf(
        "to_micros",
        vec![finer()],
        utc_timestamp(),
        Volatility::Immutable,
        Arc::new(make_scalar_function(to_micros, Vec::new())),
    )
});

/// See the module.
pub(super) fn rewrite_time(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == "date_part" => {
            match part(&args, schema) {
                Some(part) => Transformed::yes(part),
                None => Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })),
            }
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == "to_char" => {
            match to_char::rewrite_to_char(&args, schema)? {
                Some(written) => Transformed::yes(written),
                None => Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })),
            }
        }
        other => rewrite_comparison(
            other,
            |sides| concerns(sides, schema),
            |side| Ok(in_micros(side, schema)),
        )?,
    })
}

/// Whether times in microseconds are compared with what can be between two of them.
fn concerns(sides: &[&Expr], schema: &DFSchema) -> bool {
    let kinds = || sides.iter().filter_map(|side| side.get_type(schema).ok());
    let is_micros = |kind: DataType| matches!(kind, DataType::Timestamp(TimeUnit::Microsecond, _));
    let is_finer = |kind: DataType| matches!(kind, DataType::Timestamp(TimeUnit::Nanosecond, _)) || kind.is_string();
    kinds().any(is_micros) && kinds().any(is_finer)
}

fn finer() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
}

/// A time as the nearest microsecond; anything else as it is.
fn in_micros(expr: Expr, schema: &DFSchema) -> Expr {
    if let Expr::Literal(value, _) = &expr
        && let Some(Some(text)) = value.try_as_str()
    {
        return match ScalarValue::from(text).cast_to(&finer()) {
            Ok(ScalarValue::TimestampNanosecond(Some(at), _)) if at.rem_euclid(1_000) != 0 => {
                lit(ScalarValue::TimestampMicrosecond(Some(nearest(at)), Some("UTC".into())))
            }
            _ => expr,
        };
    }
    match expr.get_type(schema) {
        Ok(DataType::Timestamp(TimeUnit::Nanosecond, _)) => TO_MICROS.call(vec![cast(expr, finer())]),
        _ => expr,
    }
}

fn to_micros(args: &[ArrayRef]) -> Result<ArrayRef> {
    let Some(times) = args
        .first()
        .and_then(|times| times.as_primitive_opt::<TimestampNanosecondType>())
    else {
        return exec_err!("times were expected");
    };
    let rounded: TimestampMicrosecondArray = times.unary(nearest);
    Ok(Arc::new(rounded.with_timezone("UTC")))
}

/// Of two microseconds that are as near the even one, as `rint` has it.
pub(super) const fn nearest(nanos: i64) -> i64 {
    let (micros, rest) = (nanos.div_euclid(1_000), nanos.rem_euclid(1_000));
    if rest > 500 || (rest == 500 && micros % 2 != 0) {
        micros + 1
    } else {
        micros
    }
}

/// A part of a time that DataFusion gives without its fraction, or of a difference as if it had no other parts.
fn part(args: &[Expr], schema: &DFSchema) -> Option<Expr> {
    let [Expr::Literal(name, _), of] = args else {
        return None;
    };
    let name = name.try_as_str().flatten()?.trim_matches(['\'', '"']);
    let name = name.to_ascii_lowercase();
    let kind = of.get_type(schema).ok()?;
    let of = of.clone();
    let micros = match &kind {
        DataType::Duration(_) => {
            let micros = cast(cast(of, DataType::Duration(TimeUnit::Microsecond)), DataType::Int64);
            match name.as_str() {
                "epoch" => return Some(fraction(micros, SECOND)),
                "day" | "days" => return Some(micros / lit(DAY)),
                "hour" | "hours" => return Some(micros / lit(HOUR) % lit(24_i64)),
                "minute" | "minutes" => return Some(micros / lit(MINUTE) % lit(60_i64)),
                _ => micros % lit(MINUTE),
            }
        }
        DataType::Interval(_) if name == "epoch" => return Some(intervals::epoch(of)),
        DataType::Interval(_) => {
            let seconds = date_part().call(vec![lit("epoch"), of]);
            let micros = math::round().call(vec![seconds * lit(1e6)]);
            cast(micros, DataType::Int64) % lit(MINUTE)
        }
        DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_) => {
            date_part().call(vec![lit("microsecond"), of])
        }
        kind if kind.is_string() => date_part().call(vec![lit("microsecond"), of]),
        _ => return None,
    };
    let is_time = matches!(kind, DataType::Duration(_) | DataType::Interval(_));
    match name.as_str() {
        "second" | "seconds" | "sec" | "secs" | "s" => Some(fraction(micros, SECOND)),
        "millisecond" | "milliseconds" | "msecond" | "mseconds" | "msec" | "msecs" | "ms" => {
            Some(fraction(micros, SECOND / 1_000))
        }
        "microsecond" | "microseconds" | "usecond" | "useconds" | "usec" | "usecs" | "us" if is_time => Some(micros),
        _ => None,
    }
}

/// Microseconds in another unit, with a fraction.
fn fraction(micros: Expr, unit: i64) -> Expr {
    #[allow(clippy::cast_precision_loss, reason = "a power of ten")]
    let unit = unit as f64;
    cast(micros, DataType::Float64) / lit(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_between_two_microseconds_is_the_nearer() {
        for (nanos, micros) in [
            (1_499, 1),
            (1_500, 2),
            (2_500, 2),
            (2_501, 3),
            (-1_499, -1),
            (-1_500, -2),
            (-2_500, -2),
            (i64::MAX, i64::MAX / 1_000 + 1),
        ] {
            assert_eq!(nearest(nanos), micros, "{nanos}");
        }
    }
}
