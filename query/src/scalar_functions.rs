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
//! | [`contains_any_fold`], of plans | whether the text contains one of the parts, letter case aside |
//!
//! Letter case is what [`model::fold_into`] takes away.

mod case_fold;
mod contains_any;
mod ids;
mod row_hash;
mod text_columns;
mod time_buckets;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, Float64Array, StringArray, TimestampMicrosecondArray, UInt64Array};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use model::FluxId;
pub(crate) use model::{field_json, field_text};
use uuid::Uuid;

use self::case_fold::{CaseFoldFinder, contained};
pub(crate) use self::contains_any::contains_any_fold;
use self::ids::{id_values, ids, numbers};
pub(crate) use self::row_hash::hash_rows;
pub(crate) use self::text_columns::texts;
use self::text_columns::{fields, keys, seconds};
pub(crate) use self::time_buckets::bucket_start;
use self::time_buckets::bucketed;
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
