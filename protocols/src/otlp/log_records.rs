//! OTLP's log records into rows of `logs`.

use model::Level;
use model::telemetry_codec::{AttributeBuffer, FoundRecord, LogFields, RecordBatchBuilder, RecordFormat};

use super::any_value::{TypedValue, key_value, set_attribute};
use super::context::{ScopeContext, flux_id, set_count, time};
use super::signal_walker::SignalWalker;
use crate::protobuf::FieldReader;
use crate::sender::SenderSettings;
use crate::severity;

/// The records of a request.
#[derive(Debug)]
pub(super) struct LogRecords {
    walker: SignalWalker,
    context: ScopeContext,
}

impl LogRecords {
    pub(super) fn new(walker: SignalWalker, settings: SenderSettings) -> Self {
        Self {
            walker,
            context: ScopeContext::new(settings),
        }
    }
}

impl RecordFormat for LogRecords {
    fn find(&mut self, body: &[u8]) -> Option<FoundRecord> {
        let range = self.walker.next(body).ok().flatten()?;
        Some(FoundRecord { range, part: 0 })
    }

    fn push(&mut self, body: &[u8], record: &FoundRecord, rows: &mut RecordBatchBuilder) -> Result<bool, String> {
        let mut flux = self.context.start_row(body, &self.walker)?;
        let size = record.range.len();
        let attributes = &mut self.context.attributes;
        let mut reader = FieldReader::new(body, record.range.clone());
        let (mut at, mut observed) = (0, 0);
        let (mut number, mut severity_text, mut event, mut value) = (0, "", "", TypedValue::None);
        while let Some(field) = reader.next()? {
            // A field that is repeated is a leaf each time.
            attributes.check(size)?;
            match field.number {
                1 => at = field.fixed64()?,
                2 => number = field.int32()?,
                3 => severity_text = field.text(body)?,
                5 => value = TypedValue::read(body, field.range()?)?,
                6 => {
                    let (key, value) = key_value(body, &field)?;
                    match flux_id(key, &value) {
                        Some(id) => flux = Some(id),
                        None => set_attribute(attributes, body, ("", key), &value, size)?,
                    }
                }
                7 => set_count(attributes, "otel.dropped_attributes_count", field.varint()?),
                // The lowest bit says that its trace was sampled.
                8 if field.fixed32()? & !1 != 0 => attributes.set("", "otel.flags", &field.fixed32()?),
                9 => set_id(attributes, ("trace_id", 16), field.bytes(body)?)?,
                10 => set_id(attributes, ("span_id", 8), field.bytes(body)?)?,
                11 => observed = field.fixed64()?,
                12 => event = field.text(body)?,
                _ => {}
            }
        }
        if !event.is_empty() {
            attributes.set("", "otel.event.name", event);
        }
        let level = severity::of_number(number)
            .or_else(|| severity::of_text(severity_text))
            .unwrap_or(Level::Info);
        if number != 0 && number != severity::canonical_number(level) {
            attributes.set("", "otel.severity_number", &number);
        }
        if !severity_text.is_empty() && severity_text != severity::canonical_text(level) {
            attributes.set("", "otel.severity_text", severity_text);
        }
        let message = self.message(body, event, &value, size)?;
        let row = LogFields {
            ts: time(at).or_else(|| time(observed)).unwrap_or(self.context.settings.now),
            entity: &self.context.entity,
            flux_id: flux,
            level,
            message: match (&message, &value) {
                (Some(message), _) => message,
                (None, TypedValue::Text(text)) => text,
                (None, _) => event,
            },
        };
        rows.push_log(row, &mut self.context.attributes)?;
        Ok(true)
    }
}

impl LogRecords {
    /// The text of a body that is no text; what it was is among the attributes.
    fn message(
        &mut self,
        body: &[u8],
        event: &str,
        value: &TypedValue<'_>,
        size: usize,
    ) -> Result<Option<String>, String> {
        let kind = match value {
            TypedValue::None | TypedValue::Text(_) => return Ok(None),
            TypedValue::Map(_) => "map",
            TypedValue::Bool(_) => "bool",
            TypedValue::Int(_) => "int",
            TypedValue::Double(_) => "double",
            TypedValue::Array(_) => "array",
            TypedValue::Bytes(_) => "bytes",
        };
        self.context.attributes.set("", "otel.body.type", kind);
        let json = value.to_json(body)?;
        if kind == "map" {
            set_attribute(&mut self.context.attributes, body, ("", "body"), value, size)?;
            let text = ["message", "msg"].iter().find_map(|key| json.get(key)?.as_str());
            if let Some(text) = text {
                return Ok(Some(text.to_owned()));
            }
            if !event.is_empty() {
                return Ok(Some(event.to_owned()));
            }
        }
        Ok(Some(json.as_str().map_or_else(|| json.to_string(), str::to_owned)))
    }
}

/// Sets an id as hex; one that is not there is empty.
fn set_id(attributes: &mut AttributeBuffer, (key, length): (&str, usize), id: &[u8]) -> Result<(), String> {
    if id.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    if id.len() != length {
        return Err(format!("{key} has {} bytes, not {length}", id.len()));
    }
    attributes.set("", key, model::hex::encode(id).as_str());
    Ok(())
}
