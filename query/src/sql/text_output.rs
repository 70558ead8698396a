//! Text output of values as PostgreSQL writes them: `value::text`, `||`, `concat`.
//!
//! | value | text |
//! |---|---|
//! | `real`, `double` | the shortest digits that read as it: `1`, `0.1`, `1e+20`, `NaN`, `Infinity` |
//! | times | `2026-01-31 10:00:00.5+00`, without a zone `2026-01-31 10:00:00.5`; a part of a microsecond is rounded |
//! | intervals, differences of times | `1 mon 2 days 03:04:05.5` |
//! | decimals without a given scale | without zeros at their end |
//! | booleans in `concat` | `t`, `f` |

use std::fmt::LowerExp;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    DurationMicrosecondType, Float32Type, Float64Type, IntervalMonthDayNanoType, TimestampMicrosecondType,
    TimestampNanosecondType,
};
use arrow_array::{Array as _, ArrayRef, StringArray};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use chrono::DateTime;
use datafusion::arrow::compute::cast;
use datafusion::common::{DFSchema, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable as _, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
    when,
};

use super::timestamps::{DAY, nearest};

/// The scale of decimals that are given none.
const USUAL_SCALE: i8 = 10;

static WRITTEN: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::new_from_impl(TextOutputFunction {
        signature: Signature::any(1, Volatility::Immutable),
    })
});

/// A value as a text; `None` if the planner writes it as PostgreSQL does.
pub(super) fn to_text_expr(value: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    let kind = value.get_type(schema)?;
    match kind {
        DataType::Float32
        | DataType::Float64
        | DataType::Timestamp(..)
        | DataType::Duration(_)
        | DataType::Interval(_)
        | DataType::Decimal128(_, USUAL_SCALE) => Ok(Some(WRITTEN.call(vec![value.clone()]))),
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
            plan_err!("a list has no text here: array_to_string(list, ',') makes one")
        }
        _ => Ok(None),
    }
}

/// An argument of `concat` as a text; anything that is one as it is.
pub(super) fn part_of(value: Expr, schema: &DFSchema) -> Result<Expr> {
    if value.get_type(schema)? == DataType::Boolean {
        return when(value.clone(), lit("t")).when(value.is_false(), lit("f")).end();
    }
    Ok(to_text_expr(&value, schema)?.unwrap_or(value))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TextOutputFunction {
    signature: Signature,
}

impl ScalarUDFImpl for TextOutputFunction {
    fn name(&self) -> &str {
        "written"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        make_scalar_function(format_values, Vec::new())(&args.args)
    }
}

fn format_values(args: &[ArrayRef]) -> Result<ArrayRef> {
    let [values] = args else {
        return exec_err!("a value was expected");
    };
    let texts: StringArray = match values.data_type() {
        DataType::Float32 => {
            let values = values.as_primitive::<Float32Type>().iter();
            values.map(|value| value.map(text_of_real)).collect()
        }
        DataType::Float64 => {
            let values = values.as_primitive::<Float64Type>().iter();
            values.map(|value| value.map(text_of_double)).collect()
        }
        DataType::Timestamp(unit, zone) => {
            let zone = if zone.is_some() { "+00" } else { "" };
            let micros = match unit {
                TimeUnit::Nanosecond => values.as_primitive::<TimestampNanosecondType>().unary(nearest),
                _ => cast(values, &DataType::Timestamp(TimeUnit::Microsecond, None))?
                    .as_primitive::<TimestampMicrosecondType>()
                    .clone(),
            };
            micros.iter().map(|at| at.map(|at| text_of_time(at, zone))).collect()
        }
        DataType::Duration(_) => {
            let micros = cast(values, &DataType::Duration(TimeUnit::Microsecond))?;
            let micros = micros.as_primitive::<DurationMicrosecondType>().iter();
            let text = |micros: i64| text_of_interval(0, micros / DAY, micros % DAY);
            micros.map(|micros| micros.map(text)).collect()
        }
        DataType::Interval(_) => {
            let values = cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let text = |value: arrow_array::types::IntervalMonthDayNano| {
                text_of_interval(value.months, value.days.into(), value.nanoseconds / 1_000)
            };
            let values = values.as_primitive::<IntervalMonthDayNanoType>().iter();
            values.map(|value| value.map(text)).collect()
        }
        _ => {
            let texts = cast(values, &DataType::Utf8)?;
            let short = |text: &str| match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
                false => text.to_owned(),
            };
            texts.as_string::<i32>().iter().map(|text| text.map(short)).collect()
        }
    };
    Ok(Arc::new(texts))
}

/// A double as PostgreSQL writes it.
#[must_use]
pub fn text_of_double(value: f64) -> String {
    let scientific = shortest(&value, value.abs() >= HALVES_OF_DOUBLES);
    text_of_number(value, &value.to_string(), &scientific, 15)
}

/// A real as PostgreSQL writes it.
#[must_use]
pub fn text_of_real(value: f32) -> String {
    let scientific = shortest(&value, value.abs() >= HALVES_OF_REALS);
    text_of_number(value.into(), &value.to_string(), &scientific, 6)
}

/// From here on what lies halfway between two doubles can have as few digits as a double.
const HALVES_OF_DOUBLES: f64 = 4_503_599_627_370_496.0;
/// The same of reals.
const HALVES_OF_REALS: f32 = 4_194_304.0;
/// So many tell every double from every other.
const DIGITS_OF_DOUBLES: usize = 17;

/// The shortest digits nearer to this number than to any other. Rust takes those halfway between two numbers for the
/// even one, PostgreSQL for neither.
fn shortest<T: LowerExp + FromStr + PartialEq>(value: &T, can_be_halfway: bool) -> String {
    let text = format!("{value:e}");
    if !can_be_halfway || !is_halfway(value, &text) {
        return text;
    }
    let mut longer = (1..DIGITS_OF_DOUBLES).map(|digits| format!("{value:.digits$e}"));
    let is_it = |text: &String| text.parse().is_ok_and(|same: T| same == *value) && !is_halfway(value, text);
    longer.find(is_it).unwrap_or(text)
}

/// Whether with a little more, or a little less, these digits are another number.
fn is_halfway<T: FromStr + PartialEq>(value: &T, scientific: &str) -> bool {
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return false;
    };
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let (Ok(count), width) = (digits.parse::<u64>(), digits.len()) else {
        return false;
    };
    let less = format!("{:0>width$}{:9<20}", count.saturating_sub(1), "");
    let more = format!("{digits}{:0>20}", 1);
    [less, more].iter().any(|digits| {
        let (first, rest) = digits.split_at(1);
        let beside = format!("{sign}{first}.{rest}e{exponent}");
        beside.parse::<T>().is_ok_and(|other| other != *value)
    })
}

fn text_of_number(value: f64, plain: &str, scientific: &str, digits: i32) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return plain.to_owned();
    };
    match exponent.parse::<i32>() {
        Ok(exponent) if value != 0.0 && !(-4..digits).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => plain.to_owned(),
    }
}

/// A time as PostgreSQL writes it, with its zone; `infinity` if no calendar has it.
#[must_use]
pub fn text_of_time(micros: i64, zone: &str) -> String {
    let Some(at) = DateTime::from_timestamp_micros(micros) else {
        return if micros < 0 { "-infinity" } else { "infinity" }.to_owned();
    };
    let text = at.naive_utc().to_string();
    let text = if text.contains('.') {
        text.trim_end_matches('0')
    } else {
        &text
    };
    format!("{text}{zone}")
}

/// Months, days and microseconds as PostgreSQL writes an interval.
#[must_use]
pub fn text_of_interval(months: i32, days: i64, micros: i64) -> String {
    let mut parts = Vec::new();
    // What comes after something negative says that it is not.
    let mut was_negative = false;
    let counts = [
        (i64::from(months / 12), "year"),
        (i64::from(months % 12), "mon"),
        (days, "day"),
    ];
    for (count, unit) in counts.into_iter().filter(|(count, _)| *count != 0) {
        let sign = if was_negative && count > 0 { "+" } else { "" };
        let more = if count == 1 { "" } else { "s" };
        parts.push(format!("{sign}{count} {unit}{more}"));
        was_negative = count < 0;
    }
    if micros != 0 || parts.is_empty() {
        let sign = match micros {
            ..0 => "-",
            _ if was_negative => "+",
            _ => "",
        };
        let size = micros.unsigned_abs();
        let (seconds, fraction) = (size / 1_000_000, size % 1_000_000);
        let mut time = format!(
            "{sign}{:02}:{:02}:{:02}",
            seconds / 3_600,
            seconds / 60 % 60,
            seconds % 60
        );
        if fraction != 0 {
            time.push_str(format!(".{fraction:06}").trim_end_matches('0'));
        }
        parts.push(time);
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_postgresql_writes_them() {
        for (value, text) in [
            (1.0, "1"),
            (0.1, "0.1"),
            (1e20, "1e+20"),
            (1e15, "1e+15"),
            (123_456_789_012_345.0, "123456789012345"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1e22, "1e+22"),
            // Halfway between two doubles, of which this is the even one.
            (1e23, "9.999999999999999e+22"),
            (-1e23, "-9.999999999999999e+22"),
            (-0.0, "-0"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(text_of_double(value), text);
        }
        for (value, text) in [
            (1e6, "1e+06"),
            (1_795_736_064.0, "1.7957361e+09"),
            (1_795_736_192.0, "1.7957362e+09"),
            (f32::from_bits(0x4c00_0004), "3.3554448e+07"),
            (f32::from_bits(0x5006_1c46), "8.999999e+09"),
            (f32::from_bits(0x5100_06a8), "3.4366718e+10"),
        ] {
            assert_eq!(text_of_real(value), text);
        }
        assert_eq!(text_of_interval(14, -1, 5_500_000), "1 year 2 mons -1 days +00:00:05.5");
        assert_eq!(text_of_interval(0, 0, -3_600_000_000), "-01:00:00");
        for (micros, text) in [
            (1_500_000, "1970-01-01 00:00:01.5+00"),
            (600_000_000, "1970-01-01 00:10:00+00"),
            (-1, "1969-12-31 23:59:59.999999+00"),
            (i64::MIN, "-infinity"),
            (i64::MAX, "infinity"),
        ] {
            assert_eq!(text_of_time(micros, "+00"), text);
        }
    }
}
