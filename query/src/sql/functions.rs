//! The functions that statements have beside DataFusion's.
//!
//! | function | gives |
//! |---|---|
//! | `uuid(text)` | an id; null for text of a column that is none |
//! | `uuid_text(id)` | its text: lower case, with hyphens |
//! | `uuid_time(id)` | when an id of version 7 was made; null for others |
//! | `attr(object, key)`, `json_text`, `object->>key` | a field of a JSON object as text; null where it is absent or null |
//! | `json_get(object, key)`, `object->key` | the field as JSON |
//! | `json_keys(object)` | the keys, sorted, as a JSON array |
//! | `contains_fold(text, part)` | whether the text contains the part, letter case aside |
//! | `time_bucket(width, ts)` | the start of the bucket; buckets are aligned to 1970 in UTC |

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowTimestampType, IntervalMonthDayNanoType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, FixedSizeBinaryArray, PrimitiveArray, StringArray,
    TimestampMicrosecondArray,
};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use datafusion::arrow::buffer::ScalarBuffer;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use model::FluxId;
use uuid::Uuid;

use crate::functions::{Needle, bucket_start, field_json, field_text, keys, texts};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Uuid,
    UuidText,
    UuidTime,
    JsonText,
    JsonGet,
    JsonKeys,
    ContainsFold,
    TimeBucket,
    /// Not offered: see [`number`].
    Number,
}

const ALL: [Kind; 8] = [
    Kind::Uuid,
    Kind::UuidText,
    Kind::UuidTime,
    Kind::JsonText,
    Kind::JsonGet,
    Kind::JsonKeys,
    Kind::ContainsFold,
    Kind::TimeBucket,
];

const ID: DataType = DataType::FixedSizeBinary(16);
const NUMBER: DataType = DataType::Decimal128(38, 0);
const WIDTH: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    kind: Kind,
    signature: Signature,
    aliases: Vec<String>,
}

impl Function {
    fn of(kind: Kind) -> Arc<ScalarUDF> {
        let aliases: &[&str] = match kind {
            Kind::JsonText => &["attr"],
            _ => &[],
        };
        Arc::new(ScalarUDF::new_from_impl(Self {
            kind,
            signature: Signature::user_defined(Volatility::Immutable),
            aliases: aliases.iter().map(|name| (*name).to_owned()).collect(),
        }))
    }
}

pub(super) fn all() -> impl Iterator<Item = Arc<ScalarUDF>> {
    ALL.into_iter().map(Function::of)
}

pub(super) fn uuid(text: Expr) -> Expr {
    Function::of(Kind::Uuid).call(vec![text])
}

pub(super) fn uuid_text(id: Expr) -> Expr {
    Function::of(Kind::UuidText).call(vec![id])
}

/// The 16 bytes of an id as one number, so that distinct ones are counted as numbers are. Equal if the ids are; it means nothing else.
pub(super) fn number(id: Expr) -> Expr {
    Function::of(Kind::Number).call(vec![id])
}

pub(super) fn json_text(object: Expr, key: Expr) -> Expr {
    Function::of(Kind::JsonText).call(vec![object, key])
}

pub(super) fn json_get(object: Expr, key: Expr) -> Expr {
    Function::of(Kind::JsonGet).call(vec![object, key])
}

pub(super) fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// What a function takes, for its errors.
const fn form(kind: Kind) -> &'static str {
    match kind {
        Kind::Uuid => "uuid(text)",
        Kind::UuidText => "uuid_text(id)",
        Kind::UuidTime => "uuid_time(id)",
        Kind::JsonText => "json_text(object, key), object ->> key or attr(object, key), object and key texts",
        Kind::JsonGet => "json_get(object, key) or object -> key, object and key texts",
        Kind::JsonKeys => "json_keys(object), object a text",
        Kind::ContainsFold => "contains_fold(text, part), both texts",
        Kind::Number => "id_number(id)",
        Kind::TimeBucket => "time_bucket(width, ts), such as time_bucket(INTERVAL '5 minutes', ts)",
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Uuid => "uuid",
            Kind::UuidText => "uuid_text",
            Kind::UuidTime => "uuid_time",
            Kind::JsonText => "json_text",
            Kind::JsonGet => "json_get",
            Kind::JsonKeys => "json_keys",
            Kind::ContainsFold => "contains_fold",
            Kind::TimeBucket => "time_bucket",
            Kind::Number => "id_number",
        }
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match (self.kind, types) {
            (Kind::Uuid, _) => ID,
            (Kind::UuidText | Kind::JsonText | Kind::JsonGet | Kind::JsonKeys, _) => DataType::Utf8,
            (Kind::ContainsFold, _) => DataType::Boolean,
            (Kind::Number, _) => NUMBER,
            (Kind::TimeBucket, [_, ts]) => ts.clone(),
            (Kind::UuidTime | Kind::TimeBucket, _) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        })
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let text = |kind: &DataType| is_text(kind) || kind.is_null();
        let all = |wanted: &[DataType]| Ok(wanted.to_vec());
        match (self.kind, given) {
            (Kind::Uuid | Kind::UuidText | Kind::UuidTime | Kind::Number, [kind]) if *kind == ID => all(&[ID]),
            (Kind::Uuid | Kind::UuidText | Kind::UuidTime | Kind::JsonKeys, [kind]) if text(kind) => {
                all(&[DataType::Utf8])
            }
            (Kind::JsonText | Kind::JsonGet | Kind::ContainsFold, [a, b]) if text(a) && text(b) => {
                all(&[DataType::Utf8, DataType::Utf8])
            }
            (Kind::TimeBucket, [width, ts @ DataType::Timestamp(..)])
                if text(width) || matches!(width, DataType::Interval(_)) =>
            {
                all(&[WIDTH, ts.clone()])
            }
            _ => plan_err!("{} was expected, and not {given:?}", form(self.kind)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        // One value for all rows is looked at once.
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let column = |index: usize| match args.args.get(index) {
            Some(arg) => arg.to_array(if constant { 1 } else { rows }),
            None => exec_err!("{} was expected", form(self.kind)),
        };
        let first = column(0)?;
        let made: ArrayRef = match self.kind {
            Kind::Uuid => Arc::new(ids(&first, constant)?),
            Kind::UuidText => {
                let texts = id_values(&first, constant)?.into_iter();
                Arc::new(texts.map(|id| id.map(|id| id.to_string())).collect::<StringArray>())
            }
            Kind::UuidTime => {
                let made = |id: Uuid| Some(FluxId::from_uuid(id).created()?.micros());
                let times = id_values(&first, constant)?.into_iter().map(|id| id.and_then(made));
                Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
            }
            Kind::JsonKeys => {
                let keys = texts(&first)?.map(|text| text.map(keys));
                Arc::new(keys.collect::<StringArray>())
            }
            Kind::JsonText => fields(&first, &column(1)?, field_text)?,
            Kind::JsonGet => fields(&first, &column(1)?, field_json)?,
            Kind::ContainsFold => Arc::new(contained(&first, &column(1)?)?),
            Kind::TimeBucket => bucketed(&first, &column(1)?)?,
            Kind::Number => Arc::new(numbers(&first)?),
        };
        if constant {
            return Ok(ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(
                &made, 0,
            )?));
        }
        Ok(ColumnarValue::Array(made))
    }
}

/// The ids of a column of ids or texts. A text that is written in a statement must be one.
fn id_values(column: &ArrayRef, constant: bool) -> Result<Vec<Option<Uuid>>> {
    if let Some(ids) = column.as_fixed_size_binary_opt() {
        return Ok(ids.iter().map(|id| Uuid::from_slice(id?).ok()).collect());
    }
    let parse = |text: &str| match Uuid::try_parse(text) {
        Ok(id) => Ok(Some(id)),
        Err(_) if constant => exec_err!("'{text}' is no UUID"),
        Err(_) => Ok(None),
    };
    texts(column)?.map(|text| text.map_or(Ok(None), parse)).collect()
}

fn ids(column: &ArrayRef, constant: bool) -> Result<FixedSizeBinaryArray> {
    let ids = id_values(column, constant)?;
    let bytes = ids.iter().map(|id| id.as_ref().map(Uuid::as_bytes));
    Ok(FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes, 16)?)
}

/// Without a copy where the bytes lie as numbers must.
fn numbers(column: &ArrayRef) -> Result<Decimal128Array> {
    let Some(ids) = column.as_fixed_size_binary_opt() else {
        return exec_err!("{} was expected", form(Kind::Number));
    };
    let bytes = ids.values();
    let numbers = if bytes.as_ptr().align_offset(align_of::<i128>()) == 0 {
        ScalarBuffer::new(bytes.clone(), 0, ids.len())
    } else {
        let (all, _) = bytes.as_chunks::<16>();
        let numbers: Vec<_> = all.iter().map(|id| i128::from_ne_bytes(*id)).collect();
        numbers.into()
    };
    let numbers = Decimal128Array::try_new(numbers, ids.nulls().cloned())?;
    Ok(numbers.with_data_type(NUMBER))
}

fn fields(objects: &ArrayRef, keys: &ArrayRef, field: fn(&str, &str) -> Option<String>) -> Result<ArrayRef> {
    let found = texts(objects)?
        .zip(texts(keys)?)
        .map(|(object, key)| field(object?, key?));
    Ok(Arc::new(found.collect::<StringArray>()))
}

fn contained(column: &ArrayRef, parts: &ArrayRef) -> Result<BooleanArray> {
    let mut scratch = String::new();
    let mut needle: Option<(&str, Needle)> = None;
    let found = texts(column)?.zip(texts(parts)?).map(|(text, part)| {
        let (text, part) = (text?, part?);
        if needle.as_ref().is_none_or(|(known, _)| *known != part) {
            needle = Some((part, Needle::new(part)));
        }
        needle.as_ref().map(|(_, needle)| needle.is_in(text, &mut scratch))
    });
    Ok(found.collect())
}

fn bucketed(widths: &ArrayRef, times: &ArrayRef) -> Result<ArrayRef> {
    let DataType::Timestamp(unit, _) = times.data_type() else {
        return exec_err!("{} was expected", form(Kind::TimeBucket));
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
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn numbers_of_ids_are_equal_exactly_where_the_ids_are_wherever_their_bytes_lie() {
        let ids: Vec<_> = (0..40u128)
            .map(|n| (n % 7 != 3).then_some(((n % 5) << 64) | (n % 3)))
            .collect();
        let bytes = ids.iter().map(|id| id.map(u128::to_be_bytes));
        let whole = FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes, 16).unwrap();
        // Behind a byte of another buffer they lie as no number may.
        let shifted: Vec<u8> = std::iter::once(0).chain(whole.values().iter().copied()).collect();
        let shifted = datafusion::arrow::buffer::Buffer::from_vec(shifted).slice(1);
        let shifted = FixedSizeBinaryArray::try_new(16, shifted, whole.nulls().cloned()).unwrap();
        for column in [Arc::new(whole) as ArrayRef, Arc::new(shifted)] {
            for column in [column.slice(0, 40), column.slice(3, 30), column.slice(5, 0)] {
                let made = numbers(&column).unwrap();
                let given = column.as_fixed_size_binary();
                assert_eq!(made.len(), given.len());
                for (a, b) in (0..made.len()).flat_map(|a| (0..made.len()).map(move |b| (a, b))) {
                    assert_eq!(made.is_null(a), given.is_null(a));
                    if made.is_valid(a) && made.is_valid(b) {
                        assert_eq!(made.value(a) == made.value(b), given.value(a) == given.value(b));
                    }
                }
            }
        }
    }
}
