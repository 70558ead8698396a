//! Walks through a push request, stream by stream, and makes rows of its entries.
//!
//! # Invariants
//!
//! - A stream's labels are known before its entries, wherever their field stands in the stream.

use std::ops::Range;

use model::telemetry_codec::{
    AttributeBuffer, FoundRecord, LogFields, PublisherIdentity, RecordBatchBuilder, RecordFormat,
};
use model::{FluxId, Level, SpanId, Timestamp, TraceId};

use super::label_parser;
use crate::protobuf::{FieldReader, MalformedProtobuf, step};
use crate::record_shape;
use crate::sender::{EntityField, SenderSettings, check_labels};

/// Of a request: streams. Of a stream: its labels, its entries.
const STREAMS: u32 = 1;
const LABELS: u32 = 1;
const ENTRIES: u32 = 2;

/// Where the walk is.
#[derive(Debug, Clone)]
pub(super) struct StreamWalker {
    /// What is left of the request, and of the stream.
    streams: Range<usize>,
    entries: Range<usize>,
    labels: Range<usize>,
    /// Counts the streams.
    number: u64,
}

impl StreamWalker {
    pub(super) const fn new(body: &[u8]) -> Self {
        Self {
            streams: 0..body.len(),
            entries: 0..0,
            labels: 0..0,
            number: 0,
        }
    }

    /// The next entry.
    fn next(&mut self, body: &[u8]) -> Result<Option<Range<usize>>, MalformedProtobuf> {
        loop {
            if let Some(field) = step(body, &mut self.entries)? {
                if field.number == ENTRIES {
                    return field.range().map(Some);
                }
            } else if let Some(field) = step(body, &mut self.streams)? {
                if field.number == STREAMS {
                    self.entries = field.range()?;
                    self.labels = labels(body, &self.entries)?;
                    self.number += 1;
                }
            } else {
                return Ok(None);
            }
        }
    }

    /// The bytes of the entries, each with its labels; looks through them to the end.
    pub(super) fn expanded(mut self, body: &[u8]) -> Result<u64, MalformedProtobuf> {
        let mut bytes = 0u64;
        while let Some(entry) = self.next(body)? {
            bytes = bytes.saturating_add((entry.len() + self.labels.len()) as u64);
        }
        Ok(bytes)
    }

    /// Whether the first entry has a time.
    pub(super) fn has_time(mut self, body: &[u8]) -> Result<bool, MalformedProtobuf> {
        let Some(entry) = self.next(body)? else {
            return Ok(false);
        };
        // What is wrong with an entry refuses that entry, later.
        let mut reader = FieldReader::new(body, entry);
        while let Ok(Some(field)) = reader.next() {
            if field.number == 1 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where the labels of the first stream with entries are.
    pub(super) fn first_labels(mut self, body: &[u8]) -> Result<Range<usize>, MalformedProtobuf> {
        self.next(body)?;
        Ok(self.labels)
    }
}

fn labels(body: &[u8], stream: &Range<usize>) -> Result<Range<usize>, MalformedProtobuf> {
    let (mut reader, mut labels) = (FieldReader::new(body, stream.clone()), 0..0);
    while let Some(field) = reader.next()? {
        if field.number == LABELS {
            labels = field.range()?;
        }
    }
    Ok(labels)
}

/// The entries of a request.
#[derive(Debug)]
pub(super) struct StreamEntries {
    walker: StreamWalker,
    settings: SenderSettings,
    attributes: AttributeBuffer,
    entity: PublisherIdentity,
    /// The stream that the following was read of, and what is wrong with its labels.
    read_number: u64,
    fault: Option<String>,
    field: EntityField,
    said: LabelMeaning,
}

/// What labels or metadata say beside themselves.
#[derive(Debug, Clone, Copy, Default)]
struct LabelMeaning {
    level: Option<Level>,
    flux_id: Option<FluxId>,
}

impl LabelMeaning {
    /// Takes a label; others than the signal are attributes as well, ids of traces under our names.
    fn take(&mut self, name: &str, value: &str, to: &mut AttributeBuffer) {
        if record_shape::is_level_name(name) || name == "detected_level" {
            self.level = record_shape::level_of_text(value).or(self.level);
        }
        if name == record_shape::FLUX_ID
            && let Ok(id) = value.parse()
        {
            self.flux_id = Some(id);
        } else if let Some(id) = record_shape::parsed_id::<TraceId>(&record_shape::TRACE_IDS, name, value) {
            to.set("", "trace_id", id.to_string().as_str());
        } else if let Some(id) = record_shape::parsed_id::<SpanId>(&record_shape::SPAN_IDS, name, value) {
            to.set("", "span_id", id.to_string().as_str());
        } else {
            to.set("", name, value);
        }
    }
}

impl StreamEntries {
    pub(super) fn new(walker: StreamWalker, settings: SenderSettings) -> Self {
        Self {
            walker,
            entity: settings.fallback.clone(),
            settings,
            attributes: AttributeBuffer::default(),
            read_number: 0,
            fault: None,
            field: EntityField::default(),
            said: LabelMeaning::default(),
        }
    }

    /// Begins an entry: only what its stream has is left.
    fn start_row(&mut self, body: &[u8]) -> Result<(), String> {
        if self.read_number != self.walker.number {
            self.read_number = self.walker.number;
            self.fault = self.read_labels(body).err();
        }
        self.attributes.start_row();
        self.fault.clone().map_or(Ok(()), Err)
    }

    fn read_labels(&mut self, body: &[u8]) -> Result<(), String> {
        self.attributes.clear();
        self.field.clear();
        self.said = LabelMeaning::default();
        check_labels(self.walker.labels.len())?;
        let labels = body.get(self.walker.labels.clone()).unwrap_or_default();
        let labels = std::str::from_utf8(labels).map_err(|_| "the labels are not UTF-8".to_owned())?;
        let (settings, field) = (&self.settings, &mut self.field);
        let (said, attributes) = (&mut self.said, &mut self.attributes);
        label_parser::parse(labels, |name, value| {
            field.offer(settings, name, value);
            said.take(name, value, attributes);
            Ok(())
        })?;
        self.attributes.share();
        Ok(())
    }
}

impl RecordFormat for StreamEntries {
    fn find(&mut self, body: &[u8]) -> Option<FoundRecord> {
        let range = self.walker.next(body).ok().flatten()?;
        Some(FoundRecord { range, part: 0 })
    }

    fn push(&mut self, body: &[u8], record: &FoundRecord, rows: &mut RecordBatchBuilder) -> Result<bool, String> {
        self.start_row(body)?;
        let (mut at, mut line) = (None, "");
        let mut said = self.said;
        let mut own: Option<EntityField> = None;
        let mut reader = FieldReader::new(body, record.range.clone());
        while let Some(field) = reader.next()? {
            match field.number {
                1 => at = Some(time(body, field.range()?)?),
                2 => line = field.text(body)?,
                3 => {
                    let (name, value) = pair(body, field.range()?)?;
                    said.take(name, value, &mut self.attributes);
                    own.get_or_insert_with(|| self.field.clone())
                        .offer(&self.settings, name, value);
                }
                _ => {}
            }
        }
        own.as_ref()
            .unwrap_or(&self.field)
            .resolve(&self.settings, &mut self.entity)?;
        let level = said.level.or_else(|| record_shape::level_of_line(line));
        let row = LogFields {
            ts: at.unwrap_or(self.settings.now),
            entity: &self.entity,
            flux_id: said.flux_id,
            level: level.unwrap_or(Level::Info),
            message: line.trim_end_matches(['\n', '\r']),
        };
        rows.push_log(row, &mut self.attributes)?;
        Ok(true)
    }
}

/// A `google.protobuf.Timestamp`; what is below a microsecond is cut off.
fn time(body: &[u8], range: Range<usize>) -> Result<Timestamp, String> {
    let (mut reader, mut seconds, mut nanos) = (FieldReader::new(body, range), 0i64, 0i32);
    while let Some(field) = reader.next()? {
        match field.number {
            1 => seconds = field.varint()?.cast_signed(),
            2 => nanos = field.int32()?,
            _ => {}
        }
    }
    let micros = seconds
        .checked_mul(1_000_000)
        .filter(|_| (0..1_000_000_000).contains(&nanos));
    let micros = micros.and_then(|micros| micros.checked_add(i64::from(nanos / 1_000)));
    let at = micros.map(Timestamp::from_micros);
    at.filter(|at| (Timestamp::MIN..=Timestamp::MAX).contains(at))
        .ok_or_else(|| format!("the timestamp of {seconds} seconds and {nanos} nanoseconds is none"))
}

/// A name and its value.
fn pair(body: &[u8], range: Range<usize>) -> Result<(&str, &str), MalformedProtobuf> {
    let (mut reader, mut name, mut value) = (FieldReader::new(body, range), "", "");
    while let Some(field) = reader.next()? {
        match field.number {
            1 => name = field.text(body)?,
            2 => value = field.text(body)?,
            _ => {}
        }
    }
    Ok((name, value))
}
