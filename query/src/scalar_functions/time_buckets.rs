//! Buckets of time, aligned to 1970 in UTC.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowTimestampType, IntervalMonthDayNanoType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_schema::{DataType, TimeUnit};
use datafusion::common::exec_err;
use datafusion::error::Result;

use super::{FunctionKind, form};

/// The start of the bucket that `ts` is in.
pub(crate) fn bucket_start(ts: i64, width: i64) -> i64 {
    let width = width.max(1);
    ts.div_euclid(width).saturating_mul(width)
}

pub(super) fn bucketed(widths: &ArrayRef, times: &ArrayRef) -> Result<ArrayRef> {
    let DataType::Timestamp(unit, _) = times.data_type() else {
        return exec_err!("{} was expected", form(FunctionKind::TimeBucket));
    };
    match unit {
        TimeUnit::Second => buckets::<TimestampSecondType>(widths, times, 1_000_000_000),
        TimeUnit::Millisecond => buckets::<TimestampMillisecondType>(widths, times, 1_000_000),
        TimeUnit::Microsecond => buckets::<TimestampMicrosecondType>(widths, times, 1_000),
        TimeUnit::Nanosecond => buckets::<TimestampNanosecondType>(widths, times, 1),
    }
}

fn buckets<T: ArrowTimestampType>(widths: &ArrayRef, times: &ArrayRef, nanos: i64) -> Result<ArrayRef> {
    let widths = widths.as_primitive::<IntervalMonthDayNanoType>().iter();
    let starts = widths.zip(times.as_primitive::<T>().iter()).map(|(width, ts)| {
        let (Some(width), Some(ts)) = (width, ts) else {
            return Ok(None);
        };
        if width.months != 0 {
            return exec_err!("months differ in length: use date_trunc('month', ts)");
        }
        let days = i64::from(width.days).saturating_mul(86_400_000_000_000);
        match days.saturating_add(width.nanoseconds) / nanos {
            ticks @ 1.. => Ok(Some(bucket_start(ts, ticks))),
            _ => exec_err!("the width of a bucket must be at least one tick of the time"),
        }
    });
    let starts: PrimitiveArray<T> = starts.collect::<Result<_>>()?;
    Ok(Arc::new(starts.with_data_type(times.data_type().clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_aligned_to_the_epoch_on_both_sides_of_it() {
        assert_eq!(bucket_start(125, 60), 120);
        assert_eq!(bucket_start(-1, 60), -60);
        assert_eq!(bucket_start(-60, 60), -60);
        assert_eq!(bucket_start(i64::MIN, 7), i64::MIN);
    }
}
