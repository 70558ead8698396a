//! OTLP's spans into rows of `traces`.

use std::ops::Range;

use model::telemetry_codec::{AttributeBuffer, FoundRecord, RecordBatchBuilder, RecordFormat, SpanFields};
use model::{SpanId, SpanStatus, TraceId};

use super::any_value::{key_value, set_attribute};
use super::context::{ScopeContext, flux_id, nanos_text, set_count, time};
use super::signal_walker::SignalWalker;
use crate::protobuf::{FieldReader, MessageField};
use crate::sender::SenderSettings;

/// The names of a span's kind, by number.
pub(super) const KINDS: [&str; 6] = ["", "internal", "server", "client", "producer", "consumer"];
/// The trace was sampled (W3C), and it is known whether the parent is remote.
const USUAL_FLAGS: u32 = 0x101;
/// The most bytes that the events and links of a span become, however large it is.
const LARGEST_LISTS: usize = 8 << 20;
pub(super) const STATUS_OK: i32 = 1;
pub(super) const STATUS_ERROR: i32 = 2;

/// The spans of a request.
#[derive(Debug)]
pub(super) struct SpanRecords {
    walker: SignalWalker,
    context: ScopeContext,
    nested: NestedRecords,
}

/// Events and links of a span: lists of objects, which become JSON arrays.
#[derive(Debug, Default)]
struct NestedRecords {
    events: Vec<u8>,
    links: Vec<u8>,
    /// The attributes of one of them.
    attributes: AttributeBuffer,
}

impl SpanRecords {
    pub(super) fn new(walker: SignalWalker, settings: SenderSettings) -> Self {
        Self {
            walker,
            context: ScopeContext::new(settings),
            nested: NestedRecords::default(),
        }
    }
}

impl RecordFormat for SpanRecords {
    fn find(&mut self, body: &[u8]) -> Option<FoundRecord> {
        let range = self.walker.next(body).ok().flatten()?;
        Some(FoundRecord { range, part: 0 })
    }

    fn push(&mut self, body: &[u8], record: &FoundRecord, rows: &mut RecordBatchBuilder) -> Result<bool, String> {
        let mut flux = self.context.start_row(body, &self.walker)?;
        self.nested.events.clear();
        self.nested.links.clear();
        let size = record.range.len();
        let attributes = &mut self.context.attributes;
        let mut reader = FieldReader::new(body, record.range.clone());
        let (mut trace_id, mut span_id, mut parent): (&[u8], &[u8], &[u8]) = (&[], &[], &[]);
        let (mut name, mut start, mut end, mut status) = ("", 0, 0, 0);
        while let Some(field) = reader.next()? {
            // A field that is repeated is a leaf each time.
            attributes.check(size)?;
            self.nested.check(size)?;
            match field.number {
                1 => trace_id = field.bytes(body)?,
                2 => span_id = field.bytes(body)?,
                3 => set_text(attributes, "otel.trace_state", field.text(body)?),
                4 => parent = field.bytes(body)?,
                5 => name = field.text(body)?,
                6 => set_kind(attributes, field.int32()?),
                7 => start = field.fixed64()?,
                8 => end = field.fixed64()?,
                9 => {
                    let (key, value) = key_value(body, &field)?;
                    match flux_id(key, &value) {
                        Some(id) => flux = Some(id),
                        None => set_attribute(attributes, body, ("", key), &value, size)?,
                    }
                }
                10 => set_count(attributes, "otel.dropped_attributes_count", field.varint()?),
                11 => self.nested.event(body, field.range()?)?,
                12 => set_count(attributes, "otel.dropped_events_count", field.varint()?),
                13 => self.nested.link(body, field.range()?)?,
                14 => set_count(attributes, "otel.dropped_links_count", field.varint()?),
                15 => status = read_status(attributes, body, field.range()?)?,
                16 if field.fixed32()? & !USUAL_FLAGS != 0 => attributes.set("", "otel.flags", &field.fixed32()?),
                _ => {}
            }
        }
        self.nested.check(size)?;
        for (key, list) in [
            ("otel.events", &mut self.nested.events),
            ("otel.links", &mut self.nested.links),
        ] {
            if !list.is_empty() {
                list.push(b']');
                attributes.set_with("", key, |to| to.extend_from_slice(list));
            }
        }
        let parent = parent
            .iter()
            .any(|byte| *byte != 0)
            .then(|| id::<SpanId>(parent, "parent_span_id"));
        let row = SpanFields {
            ts: time(start).or_else(|| time(end)).unwrap_or(self.context.settings.now),
            trace_id: id::<TraceId>(trace_id, "trace_id")?,
            span_id: id::<SpanId>(span_id, "span_id")?,
            parent_span_id: parent.transpose()?,
            flux_id: flux,
            entity: &self.context.entity,
            span_name: name,
            // Of one that says only when it ended nothing is known.
            duration_ms: milliseconds(if start == 0 { 0 } else { end.saturating_sub(start) }),
            status: if status == STATUS_ERROR {
                SpanStatus::Error
            } else {
                SpanStatus::Ok
            },
        };
        rows.push_span(row, &mut self.context.attributes)?;
        Ok(true)
    }
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "the column's precision"
)]
fn milliseconds(nanos: u64) -> f32 {
    (nanos as f64 / 1e6) as f32
}

fn id<'a, T: TryFrom<&'a [u8], Error = model::BadId>>(bytes: &'a [u8], name: &str) -> Result<T, String> {
    T::try_from(bytes).map_err(|error| format!("{name}: {error}"))
}

fn set_text(attributes: &mut AttributeBuffer, key: &str, text: &str) {
    if !text.is_empty() {
        attributes.set("", key, text);
    }
}

fn set_kind(attributes: &mut AttributeBuffer, kind: i32) {
    match usize::try_from(kind).ok().and_then(|kind| KINDS.get(kind)) {
        Some(name) => set_text(attributes, "span.kind", name),
        None => attributes.set("", "span.kind", &kind),
    }
}

/// The status code; what it says beside is among the attributes.
fn read_status(attributes: &mut AttributeBuffer, body: &[u8], range: Range<usize>) -> Result<i32, String> {
    let (mut reader, mut code) = (FieldReader::new(body, range), 0);
    while let Some(field) = reader.next()? {
        match field.number {
            2 => set_text(attributes, "otel.status_description", field.text(body)?),
            3 => code = field.int32()?,
            _ => {}
        }
    }
    if code == STATUS_OK {
        attributes.set("", "otel.status_code", "OK");
    }
    Ok(code)
}

impl NestedRecords {
    /// As of [`AttributeBuffer::check`]: an event of two bytes becomes fifty.
    fn check(&self, record: usize) -> Result<(), String> {
        let most = LARGEST_LISTS.min(record.saturating_mul(8).saturating_add(64 << 10));
        if self.events.len() + self.links.len() > most {
            return Err(format!("the events and links become more than {most} bytes"));
        }
        Ok(())
    }

    fn event(&mut self, body: &[u8], range: Range<usize>) -> Result<(), String> {
        let Self {
            events: to, attributes, ..
        } = self;
        let size = range.len();
        let (mut reader, mut at, mut name, mut dropped) = (FieldReader::new(body, range), 0, "", 0);
        attributes.clear();
        while let Some(field) = reader.next()? {
            match field.number {
                1 => at = field.fixed64()?,
                2 => name = field.text(body)?,
                3 => nested_attribute(attributes, body, &field, size)?,
                4 => dropped = field.varint()?,
                _ => {}
            }
        }
        let name = serde_json::to_string(name).unwrap_or_default();
        begin(to);
        to.extend_from_slice(format!(r#"{{"time":"{}","name":{name}"#, nanos_text(at)).as_bytes());
        end(to, attributes, dropped);
        Ok(())
    }

    fn link(&mut self, body: &[u8], range: Range<usize>) -> Result<(), String> {
        let Self {
            links: to, attributes, ..
        } = self;
        let size = range.len();
        let mut reader = FieldReader::new(body, range);
        let (mut trace_id, mut span_id, mut state, mut dropped, mut flags) = (String::new(), String::new(), "", 0, 0);
        attributes.clear();
        while let Some(field) = reader.next()? {
            match field.number {
                1 => trace_id = model::hex::encode(field.bytes(body)?),
                2 => span_id = model::hex::encode(field.bytes(body)?),
                3 => state = field.text(body)?,
                4 => nested_attribute(attributes, body, &field, size)?,
                5 => dropped = field.varint()?,
                6 => flags = field.fixed32()?,
                _ => {}
            }
        }
        begin(to);
        to.extend_from_slice(format!(r#"{{"trace_id":"{trace_id}","span_id":"{span_id}""#).as_bytes());
        if !state.is_empty() {
            let state = serde_json::to_string(state).unwrap_or_default();
            to.extend_from_slice(format!(r#","trace_state":{state}"#).as_bytes());
        }
        if flags & !USUAL_FLAGS != 0 {
            to.extend_from_slice(format!(r#","flags":{flags}"#).as_bytes());
        }
        end(to, attributes, dropped);
        Ok(())
    }
}

fn nested_attribute(to: &mut AttributeBuffer, body: &[u8], field: &MessageField, size: usize) -> Result<(), String> {
    let (key, value) = key_value(body, field)?;
    set_attribute(to, body, ("", key), &value, size)
}

fn begin(list: &mut Vec<u8>) {
    list.push(if list.is_empty() { b'[' } else { b',' });
}

/// Ends an object with its attributes.
fn end(to: &mut Vec<u8>, attributes: &mut AttributeBuffer, dropped: u64) {
    if attributes.bytes() > 0 {
        to.extend_from_slice(br#","attributes":"#);
        attributes.write(to);
    }
    if dropped > 0 {
        to.extend_from_slice(format!(r#","dropped_attributes_count":{dropped}"#).as_bytes());
    }
    to.push(b'}');
}
