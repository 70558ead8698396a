//! Walks through a request of either version: series, their records, their labels.
//!
//! # Invariants
//!
//! - A series' labels and metadata are known before its records, wherever their fields stand in the series.

use std::ops::Range;

use super::symbol_table::SymbolTable;
use crate::protobuf::{FieldReader, MalformedProtobuf, MessageField, WireValue, step};

/// A label in version 1.0, references to symbols in 2.0; in series and exemplars.
const LABELS: u32 = 1;
/// In a series of version 2.0 what it says of its family, and in that the reference to its unit.
pub(super) const METADATA: u32 = 5;
pub(super) const UNIT: u32 = 4;
/// The most references of a series or exemplar, in bytes: each becomes eight while they are read.
const MAX_REFERENCES: usize = 1 << 14;

/// The version of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteVersion {
    /// 1.0.
    V1,
    /// 2.0.
    V2,
}

/// What a record of a series is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// A value.
    Sample,
    /// A native histogram.
    Histogram,
    /// An example of what was counted.
    Exemplar,
}

impl WriteVersion {
    /// The field of series in a request.
    const fn series(self) -> u32 {
        match self {
            Self::V1 => 1,
            Self::V2 => 5,
        }
    }

    /// What a field of a series is, if it is a record.
    const fn kind(self, field: u32) -> Option<RecordKind> {
        match (self, field) {
            (_, 2) => Some(RecordKind::Sample),
            (Self::V1, 3) | (Self::V2, 4) => Some(RecordKind::Exemplar),
            (Self::V1, 4) | (Self::V2, 3) => Some(RecordKind::Histogram),
            _ => None,
        }
    }
}

/// Where the walk is.
#[derive(Debug, Clone)]
pub(super) struct SeriesWalker {
    pub(super) version: WriteVersion,
    /// What is left of the request, and of the series.
    request: Range<usize>,
    series: Range<usize>,
    /// All of the present series.
    pub(super) itself: Range<usize>,
    /// Counts the series.
    pub(super) number: u64,
}

impl SeriesWalker {
    pub(super) const fn new(body: &[u8], version: WriteVersion) -> Self {
        Self {
            version,
            request: 0..body.len(),
            series: 0..0,
            itself: 0..0,
            number: 0,
        }
    }

    /// The next record.
    pub(super) fn next(&mut self, body: &[u8]) -> Result<Option<(RecordKind, Range<usize>)>, MalformedProtobuf> {
        loop {
            if let Some(field) = step(body, &mut self.series)? {
                if let Some(kind) = self.version.kind(field.number) {
                    return Ok(Some((kind, field.range()?)));
                }
            } else if let Some(field) = step(body, &mut self.request)? {
                if field.number == self.version.series() {
                    self.series = field.range()?;
                    self.itself = self.series.clone();
                    self.number += 1;
                }
            } else {
                return Ok(None);
            }
        }
    }
}

/// About the bytes of the labels of a series or exemplar that lies in a range, with the unit of a series.
pub(super) fn label_bytes(
    (body, range): (&[u8], Range<usize>),
    version: WriteVersion,
    symbols: &SymbolTable,
) -> Result<usize, MalformedProtobuf> {
    let (mut reader, mut bytes, mut references) = (FieldReader::new(body, range), 0, Vec::new());
    while let Some(field) = reader.next()? {
        match (version, field.number) {
            (WriteVersion::V1, LABELS) => bytes += field.range()?.len(),
            (WriteVersion::V2, LABELS) => {
                // More are refused where they are read.
                add_references(body, &field, &mut references)?;
            }
            (WriteVersion::V2, METADATA) => bytes += unit_bytes(body, &field, symbols),
            _ => {}
        }
    }
    Ok(bytes + references.iter().map(|number| symbols.length(*number)).sum::<usize>())
}

/// The bytes of the unit that metadata refers to. What is wrong with metadata refuses its series where that is read.
fn unit_bytes(body: &[u8], metadata: &MessageField, symbols: &SymbolTable) -> usize {
    let (mut reader, mut bytes) = (FieldReader::new(body, metadata.range().unwrap_or_default()), 0);
    while let Ok(Some(field)) = reader.next() {
        if field.number == UNIT {
            bytes += field.varint().map_or(0, |number| symbols.length(number));
        }
    }
    bytes
}

/// Adds references, as long as they are not too many.
fn add_references(body: &[u8], field: &MessageField, to: &mut Vec<u64>) -> Result<bool, MalformedProtobuf> {
    let more = match &field.value {
        WireValue::Bytes(range) => range.len(),
        _ => 1,
    };
    let is_room = to.len() + more <= MAX_REFERENCES;
    if is_room {
        field.repeat_varint(body, to)?;
    }
    Ok(is_room)
}

/// Tells of each label of a series or exemplar that lies in a range.
pub(super) fn labels(
    (body, range): (&[u8], Range<usize>),
    version: WriteVersion,
    symbols: &SymbolTable,
    mut each: impl FnMut(&str, &str) -> Result<(), String>,
) -> Result<(), String> {
    let (mut reader, mut references) = (FieldReader::new(body, range), Vec::new());
    while let Some(field) = reader.next()? {
        match (version, field.number) {
            (WriteVersion::V1, LABELS) => {
                let (mut pair, mut name, mut value) = (FieldReader::new(body, field.range()?), "", "");
                while let Some(field) = pair.next()? {
                    match field.number {
                        1 => name = field.text(body)?,
                        2 => value = field.text(body)?,
                        _ => {}
                    }
                }
                each(name, value)?;
            }
            (WriteVersion::V2, LABELS) if !add_references(body, &field, &mut references)? => {
                return Err(format!(
                    "the labels have more than {MAX_REFERENCES} bytes of references"
                ));
            }
            _ => {}
        }
    }
    let (pairs, rest) = references.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("a label has a name and no value: the number of references is odd".to_owned());
    }
    for [name, value] in pairs {
        each(symbols.text(body, *name)?, symbols.text(body, *value)?)?;
    }
    Ok(())
}
