//! Columns of texts in any of the forms in which a plan may hold them, and the fields of JSON objects in them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, StringArray};
use arrow_schema::DataType;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use model::each_key;
use serde_json::Value;

/// The texts of rows.
pub(super) type TextIterator<'a> = Box<dyn Iterator<Item = Option<&'a str>> + 'a>;

/// The texts of a column in any of the forms in which a plan may hold it.
pub(crate) fn texts(column: &ArrayRef) -> Result<TextIterator<'_>> {
    Ok(match column.data_type() {
        DataType::Utf8 => Box::new(column.as_string::<i32>().iter()),
        DataType::LargeUtf8 => Box::new(column.as_string::<i64>().iter()),
        DataType::Utf8View => Box::new(column.as_string_view().iter()),
        other => return exec_err!("a text column was expected, not {other}"),
    })
}

/// The texts of the second argument; one that is the same for all rows is not written out.
pub(super) fn seconds(args: &[ColumnarValue]) -> Result<TextIterator<'_>> {
    match args.get(1) {
        Some(ColumnarValue::Array(column)) => texts(column),
        Some(ColumnarValue::Scalar(ScalarValue::Utf8(text))) => Ok(Box::new(std::iter::repeat(text.as_deref()))),
        other => exec_err!("a text was expected, not {other:?}"),
    }
}

pub(super) fn fields(
    objects: TextIterator<'_>,
    keys: TextIterator<'_>,
    field: fn(&str, &str) -> Option<String>,
) -> ArrayRef {
    let found = objects.zip(keys).map(|(object, key)| field(object?, key?));
    Arc::new(found.collect::<StringArray>())
}

/// The keys of an object as a JSON array.
pub(super) fn keys(labels: &str) -> String {
    let mut keys = Vec::new();
    if !each_key(labels, |key| keys.push(key.to_owned())) {
        keys.clear();
    }
    keys.sort_unstable();
    keys.dedup();
    Value::from(keys).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_and_there_once_and_what_is_no_object_has_none() {
        assert_eq!(keys(r#"{"b":{"c":1},"a":2,"b":3}"#), r#"["a","b"]"#);
        for other in ["", "[1]", r#"{"a":1"#] {
            assert_eq!(keys(other), "[]", "{other}");
        }
    }
}
