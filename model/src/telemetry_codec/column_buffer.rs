//! A column buffer that grows cell by cell and can be rolled back, which Arrow's own builders cannot.

use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeBinaryArray, Float32Array, Float64Array, StringArray, TimestampMicrosecondArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

use crate::ColumnType;

/// One column as it grows.
#[derive(Debug)]
pub(super) enum ColumnBuffer {
    Times(Vec<i64>),
    Uuids(Vec<u8>),
    Texts { bytes: Vec<u8>, ends: Vec<i32> },
    Floats(Vec<f32>),
    Doubles(Vec<f64>),
}

impl ColumnBuffer {
    pub(super) fn new(kind: ColumnType) -> Self {
        match kind {
            ColumnType::Time => Self::Times(Vec::new()),
            ColumnType::Uuid => Self::Uuids(Vec::new()),
            ColumnType::Text | ColumnType::Word | ColumnType::Json | ColumnType::Blob => Self::Texts {
                bytes: Vec::new(),
                ends: vec![0],
            },
            ColumnType::Float => Self::Floats(Vec::new()),
            ColumnType::Double => Self::Doubles(Vec::new()),
        }
    }

    /// Back to `rows` rows.
    pub(super) fn truncate(&mut self, rows: usize) {
        match self {
            Self::Times(cells) => cells.truncate(rows),
            Self::Uuids(cells) => cells.truncate(rows * 16),
            Self::Texts { bytes, ends } => {
                ends.truncate(rows + 1);
                let end = ends.last().copied().unwrap_or(0);
                bytes.truncate(usize::try_from(end).unwrap_or(0));
            }
            Self::Floats(cells) => cells.truncate(rows),
            Self::Doubles(cells) => cells.truncate(rows),
        }
    }

    pub(super) fn push_text(&mut self, text: &[u8]) {
        if let Self::Texts { bytes, ends } = self {
            bytes.extend_from_slice(text);
            ends.push(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        }
    }

    pub(super) fn push_uuid(&mut self, id: &[u8; 16]) {
        if let Self::Uuids(cells) = self {
            cells.extend_from_slice(id);
        }
    }

    /// Something under a null.
    pub(super) fn push_nothing(&mut self) {
        match self {
            Self::Times(cells) => cells.push(0),
            Self::Uuids(_) => self.push_uuid(&[0; 16]),
            Self::Texts { .. } => self.push_text(b""),
            Self::Floats(cells) => cells.push(0.0),
            Self::Doubles(cells) => cells.push(0.0),
        }
    }

    /// The bytes of the newest cell.
    pub(super) fn last_bytes(&self) -> usize {
        match self {
            Self::Times(_) | Self::Doubles(_) => 8,
            Self::Floats(_) => 4,
            Self::Uuids(_) => 16,
            Self::Texts { ends, .. } => match ends.as_slice() {
                [.., before, end] => 4 + usize::try_from(end - before).unwrap_or(0),
                _ => 4,
            },
        }
    }

    /// The column; spare memory is given back, for rows stay in memory for a while.
    pub(super) fn finish(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Times(cells) => {
                Arc::new(TimestampMicrosecondArray::try_new(fitted(cells).into(), nulls)?.with_timezone("UTC"))
            }
            Self::Uuids(cells) => {
                let cells = Buffer::from_vec(fitted(cells));
                Arc::new(FixedSizeBinaryArray::try_new(16, cells, nulls)?)
            }
            Self::Texts { bytes, ends } => {
                let ends = OffsetBuffer::new(ScalarBuffer::from(fitted(ends)));
                Arc::new(StringArray::try_new(ends, Buffer::from_vec(fitted(bytes)), nulls)?)
            }
            Self::Floats(cells) => Arc::new(Float32Array::try_new(fitted(cells).into(), nulls)?),
            Self::Doubles(cells) => Arc::new(Float64Array::try_new(fitted(cells).into(), nulls)?),
        })
    }
}

fn fitted<T>(mut cells: Vec<T>) -> Vec<T> {
    cells.shrink_to_fit();
    cells
}
