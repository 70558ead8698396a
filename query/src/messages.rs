//! Business messages as they are archived, with their bytes in the form that was asked for.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use model::filter::RawForm;

use crate::Error;

/// The column that holds a message's bytes.
const RAW: &str = "raw_msg";

/// Messages with their bytes in a form: as they are (texts have them as hex), as a text in base64, or not at all.
pub(crate) fn shown(messages: &RecordBatch, form: RawForm) -> Result<RecordBatch, Error> {
    let schema = messages.schema();
    let (at, _) = match schema.column_with_name(RAW) {
        Some(found) if form != RawForm::Hex => found,
        _ => return Ok(messages.clone()),
    };
    let (mut fields, mut columns) = (schema.fields().to_vec(), messages.columns().to_vec());
    if form == RawForm::None {
        fields.remove(at);
        columns.remove(at);
    } else {
        let texts = columns[at]
            .as_binary::<i32>()
            .iter()
            .map(|bytes| bytes.map(|bytes| STANDARD.encode(bytes)));
        fields[at] = Arc::new(Field::new(RAW, DataType::Utf8, true));
        columns[at] = Arc::new(StringArray::from_iter(texts));
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}
