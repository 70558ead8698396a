//! `codec_csv`: records of CSV to values and back, by RFC 4180.
//!
//! # Invariants
//!
//! - Decoding makes one message for each record: an object with a field for each column. A body is checked whole before its first
//!   record leaves: one bad record refuses the body, with its line.
//! - At most `max_records` records of a body; what they are made of is held one at a time.
//! - The messages of a body have at most [`MOST_MADE`] bytes together: each has the names of the columns and the facts anew, so that a
//!   small body could become very much.
//! - With a list of names in `header`, bodies have no header line, when read and when written; with `first`, each has one.
//! - `infer` makes values only of texts that JSON writes the same way: `007` and `1e400` stay texts.

use std::sync::Arc;

use csv::{ErrorKind, Reader, ReaderBuilder, StringRecord, WriterBuilder};
use futures::FutureExt;
use gear_spec::codec::CodecDirection;
use gear_spec::codec_csv::{CodecCsvConfig, CsvHeader, HeaderKeyword, TypeInference, duplicate_column};
use model::gear_manifest;
use model::message::Message;
use serde_json::{Map, Value};

use super::codec::{data, decoded, encoded, raw};
use super::{Gear, GearContext, GearError, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;

/// The most bytes that the messages of a body have together. On a guaranteed wire all of them are held at once.
const MOST_MADE: usize = 16 << 20;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    Ok(Gear::Passive(Box::new(CsvCodec(gear_manifest::config(config)?))))
}

struct CsvCodec(CodecCsvConfig);

impl PassiveGear for CsvCodec {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let of = delivery.message;
            if self.0.direction == CodecDirection::Encode {
                let bytes = write(&self.0, data(&of)?).map_err(GearError::Rejected)?;
                // A refusal has been counted and reported.
                cx.send("out", encoded(cx, &of, bytes, "text/csv")).await.ok();
                return Ok(());
            }
            check_body(&self.0, raw(&of)?, head_size(&of)).map_err(GearError::Rejected)?;
            let mut records = CsvRecordReader::open(&self.0, &of.raw).map_err(GearError::Rejected)?;
            while let Some(record) = records.next().map_err(GearError::Rejected)? {
                // As above; the next record may pass.
                cx.send("out", message_of(&self.0, cx, &of, record)).await.ok();
            }
            Ok(())
        }
        .boxed()
    }
}

/// One record: its line, its bytes, its value.
struct CsvRecord<'a> {
    line: u64,
    raw: &'a [u8],
    value: Map<String, Value>,
}

/// The records of a body, one after another.
struct CsvRecordReader<'a> {
    config: &'a CodecCsvConfig,
    body: &'a [u8],
    reader: Reader<&'a [u8]>,
    columns: Vec<String>,
    record: StringRecord,
    count: u32,
    /// Where the record begins, and the line that is.
    begin: usize,
    line: u64,
}

impl<'a> CsvRecordReader<'a> {
    fn open(config: &'a CodecCsvConfig, body: &'a [u8]) -> Result<Self, String> {
        let mut builder = ReaderBuilder::new();
        builder.delimiter(config.delimiter()?).has_headers(false);
        let mut records = Self {
            config,
            body,
            reader: builder.from_reader(body),
            columns: Vec::new(),
            record: StringRecord::new(),
            count: 0,
            begin: 0,
            line: 1,
        };
        records.columns = match &config.header {
            CsvHeader::Names(names) => names.clone(),
            CsvHeader::Word(HeaderKeyword::First) => {
                records.advance()?;
                records.record.iter().map(str::to_owned).collect()
            }
        };
        records.count = 0;
        match duplicate_column(&records.columns) {
            Some(name) => Err(format!("the header has the column {name:?} twice")),
            None => Ok(records),
        }
    }

    /// Goes to the next record; false at the end.
    fn advance(&mut self) -> Result<bool, String> {
        self.find(self.reader.position().byte());
        let line = self.line;
        let there = self
            .reader
            .read_record(&mut self.record)
            .map_err(|error| explain(line, &error))?;
        self.count += u32::from(there);
        let most = self.config.max_records;
        if self.count > most {
            return Err(format!(
                "the body has more than {most} records, the most that max_records allows"
            ));
        }
        let (has, wanted) = (self.record.len(), self.columns.len());
        if there && wanted > 0 && has != wanted {
            return Err(format!("line {line} has {has} fields, the header {wanted}"));
        }
        Ok(there)
    }

    /// Finds the record that the reader comes to: it stands before the empty lines, and within the end of a line.
    fn find(&mut self, at: u64) {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let ends = self
            .body
            .get(at..)
            .unwrap_or_default()
            .iter()
            .take_while(|byte| b"\r\n".contains(byte))
            .count();
        let begin = at.saturating_add(ends);
        let passed = self.body.get(self.begin..begin).unwrap_or_default();
        self.line += passed.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.begin = begin;
    }

    fn next(&mut self) -> Result<Option<CsvRecord<'a>>, String> {
        if !self.advance()? {
            return Ok(None);
        }
        let end = usize::try_from(self.reader.position().byte()).unwrap_or(usize::MAX);
        let raw = self.body.get(self.begin..end).unwrap_or_default();
        let raw = raw.strip_suffix(b"\n").unwrap_or(raw);
        let fields = self.columns.iter().zip(self.record.iter());
        Ok(Some(CsvRecord {
            line: self.line,
            raw: raw.strip_suffix(b"\r").unwrap_or(raw),
            value: fields
                .map(|(name, text)| (name.clone(), value_of(self.config.types, text)))
                .collect(),
        }))
    }
}

fn explain(line: u64, error: &csv::Error) -> String {
    match error.kind() {
        ErrorKind::Utf8 { err, .. } => format!("line {line}, field {} is not UTF-8", err.field() + 1),
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("line {line} has {len} fields, the first record {expected_len}")
        }
        _ => format!("line {line} is not CSV: {error}"),
    }
}

/// The bytes of a message without its body.
fn head_size(of: &Message) -> usize {
    let head = Message {
        raw: Vec::new(),
        data: Value::Null,
        meta: of.meta.clone(),
        trace_state: of.trace_state.clone(),
        ..*of
    };
    head.size()
}

/// What a field becomes.
fn value_of(types: TypeInference, text: &str) -> Value {
    if types == TypeInference::Text {
        return text.into();
    }
    match text {
        "" => Value::Null,
        "true" => true.into(),
        "false" => false.into(),
        text if text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => number(text),
        text => text.into(),
    }
}

fn number(text: &str) -> Value {
    let is_integer = !text.contains(['.', 'e', 'E']);
    match serde_json::from_str::<serde_json::Number>(text) {
        Ok(number) if number.is_f64() == is_integer || text.ends_with(char::is_whitespace) => text.into(),
        Ok(number) => Value::Number(number),
        Err(_) => text.into(),
    }
}

/// Reads a body to its end, to know that all of it can be read, and how much it becomes: each message has a head of this size.
fn check_body(config: &CodecCsvConfig, body: &[u8], head: usize) -> Result<(), String> {
    let mut records = CsvRecordReader::open(config, body)?;
    let names: usize = records.columns.iter().map(String::len).sum();
    let mut made: usize = 0;
    while records.advance()? {
        let fields = records.record.as_slice().len();
        let copies = if config.keep_raw { 2 } else { 1 };
        made = made.saturating_add(head + names + fields * copies);
        if made > MOST_MADE {
            return Err(format!(
                "its messages would have more than {MOST_MADE} bytes together: each has the {names} bytes of the columns' names and the metadata again"
            ));
        }
    }
    Ok(())
}

/// Reads a body as a message of 100 bytes brings it, record by record; gives how many there are.
#[cfg(any(test, feature = "fuzz"))]
pub(super) fn fuzz_body(config: &CodecCsvConfig, body: &[u8]) -> Result<usize, String> {
    check_body(config, body, 100)?;
    let mut records = CsvRecordReader::open(config, body)?;
    let mut count = 0;
    while let Some(record) = records.next()? {
        assert!(record.line > 0 && record.value.len() == records.columns.len());
        count += 1;
    }
    Ok(count)
}

fn message_of(config: &CodecCsvConfig, cx: &GearContext, of: &Message, record: CsvRecord<'_>) -> Message {
    let head = Message {
        raw: if config.keep_raw {
            record.raw.to_vec()
        } else {
            Vec::new()
        },
        meta: of.meta.clone().with("csv.line", record.line),
        trace_state: of.trace_state.clone(),
        data: Value::Null,
        ..*of
    };
    decoded(cx, &head, Value::Object(record.value), config.keep_raw)
}

fn write(config: &CodecCsvConfig, value: &Value) -> Result<Vec<u8>, String> {
    let objects: Vec<&Map<String, Value>> = match value {
        Value::Object(object) => vec![object],
        Value::Array(list) => {
            let objects: Option<_> = list.iter().map(Value::as_object).collect();
            objects.ok_or("the list has something else than objects")?
        }
        _ => return Err("the value is neither an object nor a list of objects".into()),
    };
    if objects.len() > config.max_records as usize {
        return Err(format!(
            "{} records; max_records allows {}",
            objects.len(),
            config.max_records
        ));
    }
    let mut writer = WriterBuilder::new()
        .delimiter(config.delimiter()?)
        .from_writer(Vec::new());
    let columns: Vec<&str> = match &config.header {
        CsvHeader::Names(names) => names.iter().map(String::as_str).collect(),
        CsvHeader::Word(HeaderKeyword::First) => {
            let columns: Vec<&str> = objects
                .first()
                .into_iter()
                .flat_map(|object| object.keys())
                .map(String::as_str)
                .collect();
            writer.write_record(&columns).map_err(|error| error.to_string())?;
            columns
        }
    };
    for (index, object) in objects.iter().enumerate() {
        if matches!(config.header, CsvHeader::Word(_)) && !object.keys().eq(columns.iter()) {
            return Err(format!(
                "record {index} has other fields than the first one; name the columns in header"
            ));
        }
        let fields = columns.iter().map(|name| field(name, object.get(*name)));
        writer
            .write_record(fields.collect::<Result<Vec<_>, _>>()?)
            .map_err(|error| error.to_string())?;
    }
    writer.into_inner().map_err(|error| error.to_string())
}

fn field(name: &str, value: Option<&Value>) -> Result<String, String> {
    match value {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => Ok(value.to_string()),
        Some(_) => Err(format!(
            "the field {name} is a list or an object, which a column cannot hold"
        )),
    }
}

#[cfg(test)]
mod tests;
