//! Renders archived business messages, with their bytes in the requested form.
//!
//! # As JSON
//!
//! The envelope's fields under their names ([`model::message`]), ids as text, and in the place of `data` and `raw`:
//!
//! | `body` | `body_is` | where |
//! |---|---|---|
//! | the value | `value` | the message has one |
//! | what the bytes say | `json` | `meta` says that they are JSON, and they are |
//! | the bytes as text | `text` | they are UTF-8 |
//! | the bytes in base64 | `base64` | all else |
//! | null | `nothing` | there is no body |
//!
//! A value that is nested deeper than readers of JSON follow is its JSON as a text. What is no message is `{"error", "base64"}`.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_schema::extension::Json;
use arrow_schema::{DataType, Field, Schema};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use model::batch::row_json;
use model::filter::RawForm;
use model::message::Message;
use serde_json::{Map, Value, json};

use crate::Error;

/// The column that holds a message's bytes.
pub(crate) const RAW: &str = "raw_msg";
/// A body that is nested deeper is shown as a text: readers follow 128 levels, and there are some around it.
const DEEPEST: usize = 100;
/// The bytes that a column of texts can have.
const MOST_OF_A_COLUMN: usize = i32::MAX as usize;

/// One of such messages as a JSON object.
pub(crate) fn render_json(messages: &RecordBatch, row: usize, form: RawForm) -> Map<String, Value> {
    let mut object = row_json(messages, row);
    if let (RawForm::Json, Some(said)) = (form, object.get_mut(RAW))
        && let Some(value) = said.as_str().and_then(|text| serde_json::from_str(text).ok())
    {
        *said = value;
    }
    object
}

/// Messages with their bytes in a form: as they are (texts have them as hex), as a text in base64, as JSON, or not at all. The texts
/// are counted in `memory` before they are kept.
pub(crate) fn render_messages(
    messages: &RecordBatch,
    form: RawForm,
    memory: Option<&MemoryReservation>,
) -> Result<RecordBatch, Error> {
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
        let field = Field::new(RAW, DataType::Utf8, true);
        let (text, field): (fn(&[u8]) -> String, _) = if form == RawForm::Json {
            (decoded, field.with_extension_type(Json::default()))
        } else {
            (|bytes| STANDARD.encode(bytes), field)
        };
        let mut texts = StringBuilder::new();
        for bytes in columns[at].as_binary::<i32>() {
            let text = bytes.map(text);
            let more = text.as_ref().map_or(0, String::len);
            if texts.values_slice().len().saturating_add(more) > MOST_OF_A_COLUMN {
                let reason = "the bytes of messages come to more than 2 GiB as texts: ask for fewer";
                return Err(DataFusionError::ResourcesExhausted(reason.to_owned()).into());
            }
            memory.map_or(Ok(()), |memory| memory.try_grow(more))?;
            texts.append_option(text);
        }
        columns[at] = Arc::new(texts.finish());
        fields[at] = Arc::new(field);
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// What a message's bytes say.
fn decoded(bytes: &[u8]) -> String {
    let message = match Message::from_cbor(bytes) {
        Ok(message) => message,
        Err(reason) => return json!({ "error": reason, "base64": STANDARD.encode(bytes) }).to_string(),
    };
    let (body, body_is) = body(&message);
    let said = json!({
        "id": message.id.to_string(),
        "ts": message.ts.to_string(),
        "parent": message.parent.map(|id| id.to_string()),
        "flux_id": message.flux_id.to_string(),
        "trace_id": message.trace_id.to_string(),
        "span_id": message.span_id.to_string(),
        "sampled": message.sampled,
        "hops": message.hops,
        "meta": message.meta.as_map(),
        "body": body,
        "body_is": body_is,
    });
    said.to_string()
}

fn body(message: &Message) -> (Value, &'static str) {
    if !message.data.is_null() {
        return (bounded(&message.data), "value");
    }
    if message.raw.is_empty() {
        return (Value::Null, "nothing");
    }
    if says_json(message)
        && let Ok(value) = serde_json::from_slice::<Value>(&message.raw)
    {
        return (bounded(&value), "json");
    }
    match std::str::from_utf8(&message.raw) {
        Ok(text) => (text.into(), "text"),
        Err(_) => (STANDARD.encode(&message.raw).into(), "base64"),
    }
}

/// Whether the facts say that the bytes are JSON.
fn says_json(message: &Message) -> bool {
    let kind = message
        .meta
        .get("content_type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

fn bounded(value: &Value) -> Value {
    if depth(value) > DEEPEST {
        value.to_string().into()
    } else {
        value.clone()
    }
}

/// How deep a value is nested; what made it does not let it be deep enough for the stack.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
