//! Business messages as they are archived, with their bytes in the form that was asked for.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use model::filter::RawForm;

use crate::Error;

/// The column that holds a message's bytes.
const RAW: &str = "raw_msg";
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

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
        let texts = columns[at].as_binary::<i32>().iter().map(|bytes| bytes.map(base64));
        fields[at] = Arc::new(Field::new(RAW, DataType::Utf8, true));
        columns[at] = Arc::new(StringArray::from_iter(texts));
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// Bytes in base64 with padding.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (24 - 8 * three.len());
        for place in 0..4 {
            let value = bits >> (18 - 6 * place) & 63;
            text.push(if place <= three.len() {
                char::from(BASE64[value as usize])
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_any_length_is_that_of_the_rfc() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"fooba", "Zm9vYmE="),
            (b"\xfb\xff\xbf", "+/+/"),
        ] {
            assert_eq!(base64(bytes), text);
        }
    }
}
