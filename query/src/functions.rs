//! The few functions over columns that plans need and DataFusion lacks.
//!
//! | function | of | gives |
//! |---|---|---|
//! | [`contains_fold`] | text, needle | whether the text contains the needle, letter case aside |
//! | [`json_text`] | flat JSON object, key | the key's value as text; null where it is absent or null |
//! | [`series_key`] | labels | the labels without what a histogram's points carry: what names a series |
//! | [`label_keys`] | labels | the keys, sorted, as a JSON array |
//! | [`bucket`] | `ts`, width in µs | the start of the bucket, µs since the epoch; buckets are aligned to the epoch |
//! | [`row_hash`] | all columns | a hash of the row's content |
//!
//! Letter case is what [`model::fold_into`] takes away.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, BooleanArray, StringArray, UInt64Array};
use arrow_schema::DataType;
use datafusion::common::{ScalarValue, exec_err, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use model::{extend_stable_hash, fold_into};
pub(crate) use model::{field_json, field_text};
use serde_json::{Map, Value};

/// Labels that belong to one point of a histogram, not to its series.
const POINT_LABELS: [&str; 10] = [
    "otel.count",
    "otel.min",
    "otel.max",
    "otel.bounds",
    "otel.buckets",
    "otel.scale",
    "otel.zero_count",
    "otel.positive",
    "otel.negative",
    "otel.start_time",
];

/// The name of [`json_text`] in plans.
pub(crate) const JSON_TEXT: &str = "json_text";
/// The name of [`contains_fold`] in plans.
pub(crate) const CONTAINS_FOLD: &str = "contains_fold";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    ContainsFold,
    JsonText,
    SeriesKey,
    LabelKeys,
    Bucket,
    RowHash,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    kind: Kind,
    signature: Signature,
}

fn call(kind: Kind, args: Vec<Expr>) -> Expr {
    let signature = Signature::any(args.len(), Volatility::Immutable);
    ScalarUDF::new_from_impl(Function { kind, signature }).call(args)
}

pub(crate) fn contains_fold(text: Expr, needle: &str) -> Expr {
    call(Kind::ContainsFold, vec![text, lit(needle)])
}

pub(crate) fn json_text(object: Expr, key: &str) -> Expr {
    call(Kind::JsonText, vec![object, lit(key)])
}

pub(crate) fn series_key(labels: Expr) -> Expr {
    call(Kind::SeriesKey, vec![labels])
}

pub(crate) fn label_keys(labels: Expr) -> Expr {
    call(Kind::LabelKeys, vec![labels])
}

pub(crate) fn bucket(ts: Expr, width: i64) -> Expr {
    call(Kind::Bucket, vec![ts, lit(width)])
}

pub(crate) fn row_hash(columns: Vec<Expr>) -> Expr {
    call(Kind::RowHash, columns)
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        match self.kind {
            Kind::ContainsFold => CONTAINS_FOLD,
            Kind::JsonText => JSON_TEXT,
            Kind::SeriesKey => "series_key",
            Kind::LabelKeys => "label_keys",
            Kind::Bucket => "bucket",
            Kind::RowHash => "row_hash",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            Kind::ContainsFold => DataType::Boolean,
            Kind::JsonText | Kind::SeriesKey | Kind::LabelKeys => DataType::Utf8,
            Kind::Bucket => DataType::Int64,
            Kind::RowHash => DataType::UInt64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        if self.kind == Kind::RowHash {
            let columns = ColumnarValue::values_to_arrays(&args.args)?;
            return Ok(array(UInt64Array::from(hash_rows(&columns, rows)?)));
        }
        let Some(first) = args.args.first() else {
            return internal_err!("{} needs an argument", self.name());
        };
        let column = first.to_array(rows)?;
        Ok(match self.kind {
            Kind::ContainsFold => {
                let needle = Needle::new(text_argument(&args.args)?);
                let mut scratch = String::new();
                let found = texts(&column)?.map(|text| text.map(|text| needle.is_in(text, &mut scratch)));
                array(found.collect::<BooleanArray>())
            }
            Kind::JsonText => {
                let key = text_argument(&args.args)?;
                let values = texts(&column)?.map(|text| field_text(text?, key));
                array(values.collect::<StringArray>())
            }
            Kind::SeriesKey => array(
                texts(&column)?
                    .map(|text| text.map(without_point_labels))
                    .collect::<StringArray>(),
            ),
            Kind::LabelKeys => array(texts(&column)?.map(|text| text.map(keys)).collect::<StringArray>()),
            Kind::Bucket | Kind::RowHash => {
                let Some(ColumnarValue::Scalar(ScalarValue::Int64(Some(width)))) = args.args.get(1) else {
                    return internal_err!("a bucket's width must be a number");
                };
                let ts = column.as_primitive::<TimestampMicrosecondType>();
                array(ts.unary::<_, Int64Type>(|ts| bucket_start(ts, *width)))
            }
        })
    }
}

fn array(array: impl Array + 'static) -> ColumnarValue {
    ColumnarValue::Array(Arc::new(array))
}

fn text_argument(args: &[ColumnarValue]) -> Result<&str> {
    match args.get(1) {
        Some(ColumnarValue::Scalar(ScalarValue::Utf8(Some(text)))) => Ok(text),
        other => internal_err!("the second argument must be a text, not {other:?}"),
    }
}

/// The texts of a column in any of the forms in which a plan may hold it.
pub(crate) fn texts(column: &ArrayRef) -> Result<Box<dyn Iterator<Item = Option<&str>> + '_>> {
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

/// A text to look for, letter case aside.
pub(crate) struct Needle(String);

impl Needle {
    pub(crate) fn new(text: &str) -> Self {
        let mut folded = String::new();
        fold_into(text, &mut folded);
        Self(folded)
    }

    pub(crate) fn is_in(&self, text: &str, scratch: &mut String) -> bool {
        scratch.clear();
        fold_into(text, scratch);
        scratch.contains(&self.0)
    }
}

fn without_point_labels(labels: &str) -> String {
    if !labels.contains("otel.") {
        return labels.to_owned();
    }
    let Ok(mut object) = serde_json::from_str::<Map<String, Value>>(labels) else {
        return labels.to_owned();
    };
    object.retain(|key, _| !POINT_LABELS.contains(&key.as_str()));
    Value::Object(object).to_string()
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
                add(&mut hashes, column.iter().map(|value| value.map(i64::to_le_bytes)));
            }
            DataType::Float32 => {
                let column = column.as_primitive::<Float32Type>();
                add(&mut hashes, column.iter().map(|value| value.map(f32::to_le_bytes)));
            }
            DataType::Float64 => {
                let column = column.as_primitive::<Float64Type>();
                add(&mut hashes, column.iter().map(|value| value.map(f64::to_le_bytes)));
            }
            DataType::FixedSizeBinary(_) => add(&mut hashes, column.as_fixed_size_binary().iter()),
            DataType::Binary => add(&mut hashes, column.as_binary::<i32>().iter()),
            DataType::BinaryView => add(&mut hashes, column.as_binary_view().iter()),
            _ => add(&mut hashes, texts(column)?),
        }
    }
    Ok(hashes)
}

fn add<T: AsRef<[u8]>>(hashes: &mut [u64], values: impl Iterator<Item = Option<T>>) {
    for (hash, value) in hashes.iter_mut().zip(values) {
        *hash = extend_stable_hash(*hash, value.as_ref().map(T::as_ref));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, needle: &str) -> bool {
        Needle::new(needle).is_in(text, &mut String::new())
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
    fn a_series_is_named_by_what_its_points_share() {
        assert_eq!(
            without_point_labels(r#"{"cpu":"0","otel.count":3,"otel.buckets":[1,2],"otel.unit":"s"}"#),
            r#"{"cpu":"0","otel.unit":"s"}"#
        );
        assert_eq!(keys(r#"{"b":1,"a":2}"#), r#"["a","b"]"#);
    }
}
