//! The functions that statements have beside DataFusion's, and those over columns that plans need and it lacks.
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
//! | `histogram_quantile(share, labels)` | the quantile of the histogram that a point's labels have; null for others |
//! | [`series_key`], of plans | labels without those of one point: what names a series |
//! | [`bucket`], of plans | the start of the bucket, µs since the epoch; its width is in µs |
//! | `row_hash`, of plans | a hash of a row's content |
//! | `id_number`, of plans | an id as a number |
//!
//! Letter case is what [`model::fold_into`] takes away.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowTimestampType, Float32Type, Float64Type, Int64Type, IntervalMonthDayNanoType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, FixedSizeBinaryArray, Float64Array, PrimitiveArray, StringArray,
    TimestampMicrosecondArray, UInt64Array,
};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use datafusion::arrow::array::BooleanBufferBuilder;
use datafusion::arrow::buffer::ScalarBuffer;
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use memchr::memmem::Finder;
use model::{FluxId, extend_stable_hash, fold_into};
pub(crate) use model::{field_json, field_text};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::bucket_histogram::quantile_of;
use crate::point_labels::without_point_labels;

/// The name of [`json_text`] in plans.
pub(crate) const JSON_TEXT: &str = "json_text";
/// The name of [`contains_fold`] in plans.
pub(crate) const CONTAINS_FOLD: &str = "contains_fold";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FunctionKind {
    Uuid,
    UuidText,
    UuidTime,
    JsonText,
    JsonGet,
    JsonKeys,
    ContainsFold,
    TimeBucket,
    HistogramQuantile,
    SeriesKey,
    Bucket,
    RowHash,
    /// The 16 bytes of an id as one number, so that distinct ones are counted as numbers are. Equal if the ids are; it means nothing
    /// else.
    Number,
}

impl FunctionKind {
    /// The function of arguments.
    pub(crate) fn call(self, args: Vec<Expr>) -> Expr {
        BuiltinFunction::of(self).call(args)
    }
}

/// Those of statements; the others are of plans alone.
const OFFERED: [FunctionKind; 9] = [
    FunctionKind::Uuid,
    FunctionKind::UuidText,
    FunctionKind::UuidTime,
    FunctionKind::JsonText,
    FunctionKind::JsonGet,
    FunctionKind::JsonKeys,
    FunctionKind::ContainsFold,
    FunctionKind::TimeBucket,
    FunctionKind::HistogramQuantile,
];

/// The type of ids.
pub(crate) const ID: DataType = DataType::FixedSizeBinary(16);
const NUMBER: DataType = DataType::Decimal128(38, 0);
const WIDTH: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

#[derive(Debug, PartialEq, Eq, Hash)]
struct BuiltinFunction {
    kind: FunctionKind,
    signature: Signature,
    aliases: Vec<String>,
}

impl BuiltinFunction {
    fn of(kind: FunctionKind) -> Arc<ScalarUDF> {
        let aliases: &[&str] = match kind {
            FunctionKind::JsonText => &["attr"],
            _ => &[],
        };
        Arc::new(ScalarUDF::new_from_impl(Self {
            kind,
            signature: Signature::user_defined(Volatility::Immutable),
            aliases: aliases.iter().map(|name| (*name).to_owned()).collect(),
        }))
    }
}

pub(crate) fn offered() -> impl Iterator<Item = Arc<ScalarUDF>> {
    OFFERED.into_iter().map(BuiltinFunction::of)
}

pub(crate) fn json_text(object: Expr, key: Expr) -> Expr {
    FunctionKind::JsonText.call(vec![object, key])
}

pub(crate) fn contains_fold(text: Expr, part: &str) -> Expr {
    FunctionKind::ContainsFold.call(vec![text, lit(part)])
}

pub(crate) fn series_key(labels: Expr) -> Expr {
    FunctionKind::SeriesKey.call(vec![labels])
}

pub(crate) fn bucket(ts: Expr, width: i64) -> Expr {
    FunctionKind::Bucket.call(vec![ts, lit(width)])
}

/// The name of a function and what it takes, for its errors.
const fn form(kind: FunctionKind) -> &'static str {
    match kind {
        FunctionKind::Uuid => "uuid(text)",
        FunctionKind::UuidText => "uuid_text(id)",
        FunctionKind::UuidTime => "uuid_time(id)",
        FunctionKind::JsonText => "json_text(object, key), object ->> key or attr(object, key), object and key texts",
        FunctionKind::JsonGet => "json_get(object, key) or object -> key, object and key texts",
        FunctionKind::JsonKeys => "json_keys(object), object a text",
        FunctionKind::ContainsFold => "contains_fold(text, part), both texts",
        FunctionKind::Number => "id_number(id)",
        FunctionKind::TimeBucket => "time_bucket(width, ts), such as time_bucket(INTERVAL '5 minutes', ts)",
        FunctionKind::HistogramQuantile => {
            "histogram_quantile(share, labels), share a number from 0 to 1 and labels a text"
        }
        FunctionKind::SeriesKey => "series_key(labels)",
        FunctionKind::Bucket => "bucket(ts, width)",
        FunctionKind::RowHash => "row_hash(columns)",
    }
}

impl ScalarUDFImpl for BuiltinFunction {
    fn name(&self) -> &str {
        form(self.kind).split('(').next().unwrap_or_default()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match (self.kind, types) {
            (FunctionKind::Uuid, _) => ID,
            (
                FunctionKind::UuidText
                | FunctionKind::JsonText
                | FunctionKind::JsonGet
                | FunctionKind::JsonKeys
                | FunctionKind::SeriesKey,
                _,
            ) => DataType::Utf8,
            (FunctionKind::Bucket, _) => DataType::Int64,
            (FunctionKind::RowHash, _) => DataType::UInt64,
            (FunctionKind::ContainsFold, _) => DataType::Boolean,
            (FunctionKind::Number, _) => NUMBER,
            (FunctionKind::HistogramQuantile, _) => DataType::Float64,
            (FunctionKind::TimeBucket, [_, ts]) => ts.clone(),
            (FunctionKind::UuidTime | FunctionKind::TimeBucket, _) => {
                DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
            }
        })
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let text = |kind: &DataType| kind.is_string() || kind.is_null();
        let all = |wanted: &[DataType]| Ok(wanted.to_vec());
        match (self.kind, given) {
            (FunctionKind::Uuid | FunctionKind::UuidText | FunctionKind::UuidTime | FunctionKind::Number, [kind])
                if *kind == ID =>
            {
                all(&[ID])
            }
            (
                FunctionKind::Uuid
                | FunctionKind::UuidText
                | FunctionKind::UuidTime
                | FunctionKind::JsonKeys
                | FunctionKind::SeriesKey,
                [kind],
            ) if text(kind) => all(&[DataType::Utf8]),
            (FunctionKind::Bucket | FunctionKind::RowHash, given) => all(given),
            (FunctionKind::JsonText | FunctionKind::JsonGet | FunctionKind::ContainsFold, [a, b])
                if text(a) && text(b) =>
            {
                all(&[DataType::Utf8, DataType::Utf8])
            }
            (FunctionKind::HistogramQuantile, [share, labels])
                if (share.is_numeric() || share.is_null()) && text(labels) =>
            {
                all(&[DataType::Float64, DataType::Utf8])
            }
            (FunctionKind::TimeBucket, [width, ts @ DataType::Timestamp(..)])
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
            FunctionKind::Uuid => Arc::new(ids(&first, constant)?),
            FunctionKind::UuidText => {
                let texts = id_values(&first, constant)?.into_iter();
                Arc::new(texts.map(|id| id.map(|id| id.to_string())).collect::<StringArray>())
            }
            FunctionKind::UuidTime => {
                let made = |id: Uuid| Some(FluxId::from_uuid(id).created()?.micros());
                let times = id_values(&first, constant)?.into_iter().map(|id| id.and_then(made));
                Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
            }
            FunctionKind::JsonKeys => {
                let keys = texts(&first)?.map(|text| text.map(keys));
                Arc::new(keys.collect::<StringArray>())
            }
            FunctionKind::JsonText => fields(texts(&first)?, seconds(&args.args)?, field_text),
            FunctionKind::JsonGet => fields(texts(&first)?, seconds(&args.args)?, field_json),
            FunctionKind::ContainsFold => {
                let part = match args.args.get(1) {
                    Some(ColumnarValue::Scalar(part)) => part.try_as_str().flatten(),
                    _ => None,
                };
                let part = part.zip(first.as_string_opt::<i32>());
                match part.and_then(|(part, texts)| CaseFoldFinder::new(part).find_in_each(texts)) {
                    Some(found) => Arc::new(found),
                    None => Arc::new(contained(texts(&first)?, seconds(&args.args)?)),
                }
            }
            FunctionKind::SeriesKey => {
                let series = texts(&first)?.map(|text| text.map(without_point_labels));
                Arc::new(series.collect::<StringArray>())
            }
            FunctionKind::Bucket => {
                let Some(ColumnarValue::Scalar(ScalarValue::Int64(Some(width)))) = args.args.get(1) else {
                    return exec_err!("{} was expected", form(self.kind));
                };
                let ts = first.as_primitive::<TimestampMicrosecondType>();
                Arc::new(ts.unary::<_, Int64Type>(|ts| bucket_start(ts, *width)))
            }
            FunctionKind::RowHash => {
                let columns = ColumnarValue::values_to_arrays(&args.args)?;
                Arc::new(UInt64Array::from(hash_rows(&columns, rows)?))
            }
            FunctionKind::TimeBucket => bucketed(&first, &column(1)?)?,
            FunctionKind::HistogramQuantile => Arc::new(quantiles(&first, &column(1)?)?),
            FunctionKind::Number => Arc::new(numbers(&first)?),
        };
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?));
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
        Err(_) if constant => exec_err!("'{text}' is not a UUID"),
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
        return exec_err!("{} was expected", form(FunctionKind::Number));
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

/// The texts of the second argument; one that is the same for all rows is not written out.
fn seconds(args: &[ColumnarValue]) -> Result<TextIterator<'_>> {
    match args.get(1) {
        Some(ColumnarValue::Array(column)) => texts(column),
        Some(ColumnarValue::Scalar(ScalarValue::Utf8(text))) => Ok(Box::new(std::iter::repeat(text.as_deref()))),
        other => exec_err!("a text was expected, not {other:?}"),
    }
}

fn fields(objects: TextIterator<'_>, keys: TextIterator<'_>, field: fn(&str, &str) -> Option<String>) -> ArrayRef {
    let found = objects.zip(keys).map(|(object, key)| field(object?, key?));
    Arc::new(found.collect::<StringArray>())
}

fn contained(texts: TextIterator<'_>, parts: TextIterator<'_>) -> BooleanArray {
    let mut scratch = String::new();
    let mut needle: Option<(&str, CaseFoldFinder)> = None;
    let found = texts.zip(parts).map(|(text, part)| {
        let (text, part) = (text?, part?);
        if needle.as_ref().is_none_or(|(known, _)| *known != part) {
            needle = Some((part, CaseFoldFinder::new(part)));
        }
        needle.as_ref().map(|(_, needle)| needle.found_in(text, &mut scratch))
    });
    found.collect()
}

fn quantiles(shares: &ArrayRef, labels: &ArrayRef) -> Result<Float64Array> {
    let rows = shares.as_primitive::<Float64Type>().iter().zip(texts(labels)?);
    let quantiles = rows.map(|(share, labels)| match share {
        Some(share) if !(0.0..=1.0).contains(&share) => {
            exec_err!("{share} is no share of observations: give a number from 0 to 1")
        }
        Some(share) => Ok(labels.and_then(|labels| quantile_of(labels, share))),
        None => Ok(None),
    });
    quantiles.collect()
}

fn bucketed(widths: &ArrayRef, times: &ArrayRef) -> Result<ArrayRef> {
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

/// The texts of rows.
type TextIterator<'a> = Box<dyn Iterator<Item = Option<&'a str>> + 'a>;

/// The texts of a column in any of the forms in which a plan may hold it.
pub(crate) fn texts(column: &ArrayRef) -> Result<TextIterator<'_>> {
    Ok(match column.data_type() {
        DataType::Utf8 => Box::new(column.as_string::<i32>().iter()),
        DataType::LargeUtf8 => Box::new(column.as_string::<i64>().iter()),
        DataType::Utf8View => Box::new(column.as_string_view().iter()),
        other => return exec_err!("a text column was expected, not {other}"),
    })
}

/// The start of the bucket that `ts` is in.
pub(crate) fn bucket_start(ts: i64, width: i64) -> i64 {
    let width = width.max(1);
    ts.div_euclid(width).saturating_mul(width)
}

/// A text to look for, ignoring case.
pub(crate) struct CaseFoldFinder(Finder<'static>);

impl CaseFoldFinder {
    pub(crate) fn new(text: &str) -> Self {
        let mut folded = String::new();
        fold_into(text, &mut folded);
        Self(Finder::new(&folded).into_owned())
    }

    pub(crate) fn found_in(&self, text: &str, scratch: &mut String) -> bool {
        scratch.clear();
        fold_into(text, scratch);
        self.0.find(scratch.as_bytes()).is_some()
    }

    /// Which texts it is in, searched as the one text that they are in memory; `None` where letters are not ASCII's alone.
    fn find_in_each(&self, texts: &StringArray) -> Option<BooleanArray> {
        let (offsets, width) = (texts.value_offsets(), self.0.needle().len());
        let (first, last) = (*offsets.first()?, *offsets.last()?);
        let bytes = texts
            .value_data()
            .get(usize::try_from(first).ok()?..usize::try_from(last).ok()?)?;
        if width == 0 || !bytes.is_ascii() {
            return None;
        }
        let folded = bytes.to_ascii_lowercase();
        let mut found = BooleanBufferBuilder::new(texts.len());
        found.append_n(texts.len(), false);
        let mut from = 0;
        while let Some(at) = folded.get(from..).and_then(|rest| self.0.find(rest)) {
            let at = from + at;
            let begins = first + i32::try_from(at).ok()?;
            let row = offsets.partition_point(|offset| *offset <= begins) - 1;
            let end = usize::try_from(offsets.get(row + 1)? - first).ok()?;
            // What begins in one text and ends in the next is in neither.
            let is_within = at + width <= end;
            if is_within {
                found.set_bit(row, true);
            }
            from = if is_within { end } else { at + 1 };
        }
        Some(BooleanArray::new(found.finish(), texts.nulls().cloned()))
    }
}

pub(crate) fn keys(labels: &str) -> String {
    let object: Map<String, Value> = serde_json::from_str(labels).unwrap_or_default();
    let mut keys: Vec<_> = object.into_iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    Value::from(keys).to_string()
}

/// A hash of each row's content; the same in whatever form the columns are held, and in every release: cursors carry it.
pub(crate) fn hash_rows(columns: &[ArrayRef], rows: usize) -> Result<Vec<u64>> {
    let mut hashes = vec![0; rows];
    for column in columns {
        match column.data_type() {
            DataType::Timestamp(_, _) => {
                let column = column.as_primitive::<TimestampMicrosecondType>();
                hash_values(&mut hashes, column.iter().map(|value| value.map(i64::to_le_bytes)));
            }
            DataType::Float32 => {
                let column = column.as_primitive::<Float32Type>();
                hash_values(&mut hashes, column.iter().map(|value| value.map(f32::to_le_bytes)));
            }
            DataType::Float64 => {
                let column = column.as_primitive::<Float64Type>();
                hash_values(&mut hashes, column.iter().map(|value| value.map(f64::to_le_bytes)));
            }
            DataType::FixedSizeBinary(_) => hash_values(&mut hashes, column.as_fixed_size_binary().iter()),
            DataType::Binary => hash_values(&mut hashes, column.as_binary::<i32>().iter()),
            DataType::BinaryView => hash_values(&mut hashes, column.as_binary_view().iter()),
            _ => hash_values(&mut hashes, texts(column)?),
        }
    }
    Ok(hashes)
}

fn hash_values<T: AsRef<[u8]>>(hashes: &mut [u64], values: impl Iterator<Item = Option<T>>) {
    for (hash, value) in hashes.iter_mut().zip(values) {
        *hash = extend_stable_hash(*hash, value.as_ref().map(T::as_ref));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn found(text: &str, needle: &str) -> bool {
        CaseFoldFinder::new(needle).found_in(text, &mut String::new())
    }

    #[test]
    fn texts_that_lie_together_are_searched_each_for_itself() {
        let texts = StringArray::from(vec![
            Some("aab"),
            Some(""),
            Some("AB aab"),
            None,
            Some("ba"),
            Some("a"),
            Some(""),
            Some("b"),
            Some("bAaB"),
        ]);
        for part in ["a", "ab", "aab", "b", "ba", "bb", "abab", "x", " "] {
            let needle = CaseFoldFinder::new(part);
            for texts in [texts.clone(), texts.slice(2, 6)] {
                let each = texts
                    .iter()
                    .map(|text| Some(needle.found_in(text?, &mut String::new())));
                assert_eq!(needle.find_in_each(&texts), Some(each.collect()), "{part}");
            }
        }
        assert_eq!(CaseFoldFinder::new("").find_in_each(&texts), None);
        assert_eq!(
            CaseFoldFinder::new("a").find_in_each(&StringArray::from(vec!["a", "Ä"])),
            None
        );
    }

    #[test]
    fn letter_case_does_not_matter_in_any_script_and_nothing_is_a_wildcard() {
        assert!(found("Disk FULL on sda", "full ON"));
        assert!(found("ÄRGER Straße", "ärger stra"));
        assert!(found("ΟΔΟΣ", "οδοσ") && found("\u{212a}elvin", "kelvin"));
        assert!(!found("abc", "a.c") && !found("abc", "a%") && !found("abc", "a_c") && found("50%_x", "%_"));
        assert!(found("", "") && !found("", "a"));
    }

    #[test]
    fn buckets_are_aligned_to_the_epoch_on_both_sides_of_it() {
        assert_eq!(bucket_start(125, 60), 120);
        assert_eq!(bucket_start(-1, 60), -60);
        assert_eq!(bucket_start(-60, 60), -60);
        assert_eq!(bucket_start(i64::MIN, 7), i64::MIN);
    }

    #[test]
    fn the_hash_of_a_row_is_the_same_in_every_release() {
        let columns: [ArrayRef; 3] = [
            Arc::new(arrow_array::TimestampMicrosecondArray::from(vec![1, -1])),
            Arc::new(StringArray::from(vec![Some("full"), None])),
            Arc::new(arrow_array::Float64Array::from(vec![0.5, -0.0])),
        ];
        let hashes = hash_rows(&columns, 2).unwrap_or_default();
        assert_eq!(hashes, [0x3b0d_d027_4490_7d94, 0x76f2_bd94_a138_7e79]);
    }

    #[test]
    fn keys_are_sorted() {
        assert_eq!(keys(r#"{"b":1,"a":2}"#), r#"["a","b"]"#);
    }

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
