//! `timezone(zone, ts)`, which is what `ts AT TIME ZONE zone` means in PostgreSQL.
//!
//! | given | gives |
//! |---|---|
//! | a time with a zone, a date, a text | what a clock of the zone shows then, without a zone |
//! | a time without a zone | when a clock of the zone shows it, with the zone of all times, UTC |
//!
//! # Invariants
//!
//! - A time that a clock shows twice is the later one, one that it skips is what it would be had the clock not been put forward: as
//!   PostgreSQL has it.

use std::str::FromStr as _;
use std::sync::Arc;

use arrow_array::Array as _;
use arrow_array::cast::AsArray as _;
use arrow_array::temporal_conversions::{as_datetime, as_datetime_with_timezone};
use arrow_array::timezone::Tz;
use arrow_array::types::{ArrowTimestampType as _, TimestampMicrosecondType};
use arrow_array::{ArrayRef, TimestampMicrosecondArray};
use arrow_schema::{DataType, TimeUnit};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::timestamps::DAY;

/// The name of the function.
pub(super) const TIMEZONE: &str = "timezone";

const LOCAL: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// The type of all times of tables.
pub(super) fn utc_timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// See the module.
pub(super) fn timezone() -> ScalarUDF {
    ScalarUDF::new_from_impl(TimeZoneFunction {
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeZoneFunction {
    signature: Signature,
}

impl ScalarUDFImpl for TimeZoneFunction {
    fn name(&self) -> &str {
        TIMEZONE
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [zone, at] if zone.is_string() || zone.is_null() => match at {
                DataType::Timestamp(_, None) => Ok(vec![DataType::Utf8, LOCAL]),
                DataType::Timestamp(_, Some(_)) | DataType::Date32 | DataType::Date64 => {
                    Ok(vec![DataType::Utf8, utc_timestamp()])
                }
                text if text.is_string() || text.is_null() => Ok(vec![DataType::Utf8, utc_timestamp()]),
                other => plan_err!("AT TIME ZONE takes a time or a date, and not {other}"),
            },
            _ => plan_err!("AT TIME ZONE takes the name of a zone, such as 'Europe/Berlin', and not {given:?}"),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(match given {
            [_, DataType::Timestamp(_, None)] => utc_timestamp(),
            _ => LOCAL,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(ScalarValue::Utf8(zone)), at] = args.args.as_slice() else {
            return exec_err!("the zone of AT TIME ZONE must be written as a text, such as 'Europe/Berlin'");
        };
        let zone = zone.as_deref().map(zone_of).transpose()?;
        let moved = |times: &[ArrayRef]| -> Result<ArrayRef> {
            let Some(times) = times
                .first()
                .and_then(|times| times.as_primitive_opt::<TimestampMicrosecondType>())
            else {
                return exec_err!("AT TIME ZONE takes a time or a date");
            };
            let is_local = *times.data_type() == LOCAL;
            let moved = |at| match zone {
                Some(zone) if is_local => moment(at, zone),
                Some(zone) => local(at, zone),
                None => None,
            };
            let made: TimestampMicrosecondArray = times.iter().map(|at| at.and_then(moved)).collect();
            Ok(Arc::new(if is_local { made.with_timezone("UTC") } else { made }))
        };
        make_scalar_function(moved, Vec::new())(std::slice::from_ref(at))
    }
}

/// A zone by its name. What PostgreSQL makes of `+02` is two hours behind UTC, which nobody means.
fn zone_of(name: &str) -> Result<Tz> {
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic());
    match Tz::from_str(name) {
        Ok(zone) if is_name => Ok(zone),
        _ => exec_err!("'{name}' is not the name of a time zone: write one such as 'Europe/Berlin' or 'UTC'"),
    }
}

/// What a clock of a zone shows at a moment.
fn local(at: i64, zone: Tz) -> Option<i64> {
    let shown = as_datetime_with_timezone::<TimestampMicrosecondType>(at, zone)?;
    TimestampMicrosecondType::from_naive_datetime(shown.naive_local(), None)
}

/// When a clock of a zone shows a time.
fn moment(shown: i64, zone: Tz) -> Option<i64> {
    // By the offset of the day after, if the clock shows it then, else by that of the day before.
    let after = unambiguous(shown.checked_add(DAY)?, zone)?.checked_sub(DAY)?;
    if local(after, zone) == Some(shown) {
        return Some(after);
    }
    unambiguous(shown.checked_sub(DAY)?, zone)?.checked_add(DAY)
}

fn unambiguous(shown: i64, zone: Tz) -> Option<i64> {
    let shown = as_datetime::<TimestampMicrosecondType>(shown)?;
    TimestampMicrosecondType::from_naive_datetime(shown, Some(&zone))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::Timestamp;

    use super::*;

    fn micros(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().micros()
    }

    #[test]
    fn clocks_that_are_put_forward_and_back_are_read_as_postgresql_reads_them() {
        let berlin = zone_of("Europe/Berlin").unwrap();
        for (shown, at) in [
            ("2026-07-01T12:00:00Z", "2026-07-01T10:00:00Z"),
            ("2026-03-29T01:59:00Z", "2026-03-29T00:59:00Z"),
            ("2026-03-29T02:30:00Z", "2026-03-29T01:30:00Z"),
            ("2026-03-29T03:00:00Z", "2026-03-29T01:00:00Z"),
            ("2026-10-25T01:59:00Z", "2026-10-24T23:59:00Z"),
            ("2026-10-25T02:30:00Z", "2026-10-25T01:30:00Z"),
            ("2026-10-25T03:00:00Z", "2026-10-25T02:00:00Z"),
        ] {
            assert_eq!(moment(micros(shown), berlin), Some(micros(at)), "{shown}");
        }
        assert_eq!(
            local(micros("2026-10-25T00:30:00Z"), berlin),
            Some(micros("2026-10-25T02:30:00Z"))
        );
        for name in ["+02", "02:00", "Berlin", ""] {
            assert!(zone_of(name).is_err(), "{name}");
        }
    }
}
