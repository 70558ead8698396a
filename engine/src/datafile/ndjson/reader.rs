//! Reads lines as rows.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, FixedSizeBinaryBuilder, Float32Builder, Float64Builder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch};
use model::{ColumnType, Table, TableColumn, Timestamp};
use uuid::Uuid;

use super::super::file_format::FileFormat;
use super::super::file_prefix::FilePrefix;
use super::super::row_group::{CHUNK_BYTES, CHUNK_ROWS};
use super::frame_compressor::unpack;
use super::json_scan::members;
use crate::Error;

/// The rows of a version of a file of lines, in batches of bounded size and in the table's schema.
pub struct NdjsonReader {
    table: Table,
    path: PathBuf,
    reader: Box<dyn BufRead + Send>,
    /// Rows that are still to come.
    left: u64,
    failed: bool,
}

impl std::fmt::Debug for NdjsonReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NdjsonReader")
            .field("path", &self.path)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

impl NdjsonReader {
    pub(crate) fn new(
        table: Table,
        path: &Path,
        form: FileFormat,
        file: &FilePrefix,
        rows: u64,
    ) -> Result<Self, Error> {
        Ok(Self {
            table,
            path: path.to_owned(),
            reader: unpack(form, file, 0).map_err(Error::io("read", path))?,
            left: rows,
            failed: false,
        })
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        let mut columns: Vec<NdjsonColumnBuilder> = self.table.columns().iter().map(NdjsonColumnBuilder::of).collect();
        let (mut rows, mut bytes) = (0, 0);
        let mut line = Vec::new();
        while rows < CHUNK_ROWS && bytes < CHUNK_BYTES && self.left > 0 {
            line.clear();
            let read = self.reader.read_until(b'\n', &mut line);
            if read.map_err(Error::io("read", &self.path))? == 0 {
                return Err(Error::damaged(
                    &self.path,
                    format!("{} of its rows are missing", self.left),
                ));
            }
            add(self.table, &line, &mut columns).map_err(|reason| Error::damaged(&self.path, reason))?;
            rows += 1;
            bytes += line.len();
            self.left -= 1;
        }
        if rows == 0 {
            return Ok(None);
        }
        let columns = columns.into_iter().map(NdjsonColumnBuilder::finish).collect();
        let batch = RecordBatch::try_new(self.table.schema(), columns).map_err(Error::arrow("read", self.table))?;
        Ok(Some(batch))
    }
}

impl Iterator for NdjsonReader {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let batch = self.batch().transpose();
        self.failed = matches!(batch, Some(Err(_)));
        batch
    }
}

/// Adds a line's values to the columns.
fn add(table: Table, line: &[u8], columns: &mut [NdjsonColumnBuilder]) -> Result<(), String> {
    let mut values: Vec<Option<&[u8]>> = vec![None; columns.len()];
    let found = members(line, |key, value| {
        let at = table.columns().iter().position(|column| column.name.as_bytes() == key);
        if let Some(slot) = at.and_then(|at| values.get_mut(at)) {
            *slot = Some(value);
        }
    });
    found.ok_or("a line is not a JSON object")?;
    for ((column, builder), value) in table.columns().iter().zip(columns).zip(values) {
        let value = value.filter(|value| *value != b"null");
        if value.is_none() && !column.nullable {
            return Err(format!("a row has no {}", column.name));
        }
        builder
            .add(value)
            .ok_or_else(|| format!("a row's {} is not a value of its column", column.name))?;
    }
    Ok(())
}

enum NdjsonColumnBuilder {
    Time(TimestampMicrosecondBuilder),
    Uuid(FixedSizeBinaryBuilder),
    Text(StringBuilder),
    Json(StringBuilder),
    Float(Float32Builder),
    Double(Float64Builder),
    Blob(BinaryBuilder),
}

impl NdjsonColumnBuilder {
    fn of(column: &TableColumn) -> Self {
        match column.kind {
            ColumnType::Time => Self::Time(TimestampMicrosecondBuilder::new().with_timezone("UTC")),
            ColumnType::Uuid => Self::Uuid(FixedSizeBinaryBuilder::new(16)),
            ColumnType::Text | ColumnType::Word => Self::Text(StringBuilder::new()),
            ColumnType::Json => Self::Json(StringBuilder::new()),
            ColumnType::Float => Self::Float(Float32Builder::new()),
            ColumnType::Double => Self::Double(Float64Builder::new()),
            ColumnType::Blob => Self::Blob(BinaryBuilder::new()),
        }
    }

    /// Adds a value, or that there is none; `None` if the text is no value of the column.
    fn add(&mut self, value: Option<&[u8]>) -> Option<()> {
        let text = |value: &[u8]| serde_json::from_slice::<String>(value).ok();
        match self {
            Self::Time(times) => times.append_option(match value {
                Some(value) => Some(text(value)?.parse::<Timestamp>().ok()?.micros()),
                None => None,
            }),
            Self::Uuid(ids) => match value {
                Some(value) => ids.append_value(text(value)?.parse::<Uuid>().ok()?.as_bytes()).ok()?,
                None => ids.append_null(),
            },
            Self::Text(texts) => texts.append_option(match value {
                Some(value) => Some(text(value)?),
                None => None,
            }),
            Self::Json(texts) => texts.append_option(match value {
                Some(object @ [b'{', ..]) => Some(std::str::from_utf8(object).ok()?.to_owned()),
                Some(value) => Some(text(value)?),
                None => None,
            }),
            Self::Float(numbers) => numbers.append_option(match value {
                Some(value) => Some(number(value)?.parse().ok()?),
                None => None,
            }),
            Self::Double(numbers) => numbers.append_option(match value {
                Some(value) => Some(number(value)?.parse().ok()?),
                None => None,
            }),
            Self::Blob(blobs) => match value {
                Some(value) => blobs.append_value(unhex(&text(value)?)?),
                None => blobs.append_null(),
            },
        }
        Some(())
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Time(mut times) => Arc::new(times.finish()),
            Self::Uuid(mut ids) => Arc::new(ids.finish()),
            Self::Text(mut texts) | Self::Json(mut texts) => Arc::new(texts.finish()),
            Self::Float(mut numbers) => Arc::new(numbers.finish()),
            Self::Double(mut numbers) => Arc::new(numbers.finish()),
            Self::Blob(mut blobs) => Arc::new(blobs.finish()),
        }
    }
}

/// A number's text: what is not finite stands in quotes.
fn number(value: &[u8]) -> Option<&str> {
    let value = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""))
        .unwrap_or(value);
    std::str::from_utf8(value).ok()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}
