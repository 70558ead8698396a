//! Exemplars of a point as one label: a JSON array, of which the ids lead to traces.

use std::ops::Range;

use model::telemetry_codec::AttributeBuffer;

use super::any_value::{key_value, set_attribute};
use super::context::nanos_text;
use crate::protobuf::FieldReader;

/// So many exemplars of a point are kept.
const MOST: usize = 8;

/// The exemplars of the present point.
#[derive(Debug, Default)]
pub(super) struct ExemplarList {
    json: Vec<u8>,
    count: usize,
    attributes: AttributeBuffer,
}

impl ExemplarList {
    pub(super) fn clear(&mut self) {
        self.json.clear();
        self.count = 0;
    }

    /// Adds an exemplar, if there is room for it.
    pub(super) fn add(&mut self, body: &[u8], range: Range<usize>) -> Result<(), String> {
        self.count += 1;
        if self.count > MOST {
            return Ok(());
        }
        let size = range.len();
        let (mut reader, mut at, mut value) = (FieldReader::new(body, range), 0, serde_json::Value::Null);
        let (mut span_id, mut trace_id): (&[u8], &[u8]) = (&[], &[]);
        self.attributes.clear();
        while let Some(field) = reader.next()? {
            match field.number {
                2 => at = field.fixed64()?,
                3 => value = field.double()?.into(),
                4 => span_id = field.bytes(body)?,
                5 => trace_id = field.bytes(body)?,
                6 => value = field.fixed64()?.cast_signed().into(),
                7 => {
                    let (key, value) = key_value(body, &field)?;
                    set_attribute(&mut self.attributes, body, ("", key), &value, size)?;
                }
                _ => {}
            }
        }
        self.json.push(if self.json.is_empty() { b'[' } else { b',' });
        let head = format!(r#"{{"time":"{}","value":{value}"#, nanos_text(at));
        self.json.extend_from_slice(head.as_bytes());
        for (key, id) in [("trace_id", trace_id), ("span_id", span_id)] {
            if !id.is_empty() {
                self.json
                    .extend_from_slice(format!(r#","{key}":"{}""#, model::hex::encode(id)).as_bytes());
            }
        }
        if self.attributes.bytes() > 0 {
            self.json.extend_from_slice(br#","attributes":"#);
            self.attributes.write(&mut self.json);
        }
        self.json.push(b'}');
        Ok(())
    }

    /// Sets the label, if there are exemplars.
    pub(super) fn set_label(&mut self, labels: &mut AttributeBuffer) {
        if !self.json.is_empty() {
            self.json.push(b']');
            labels.set_with("", "otel.exemplars", |to| to.extend_from_slice(&self.json));
        }
    }
}
