//! Rows of every table, made of one cell each.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, FixedSizeBinaryBuilder};
use arrow_array::{ArrayRef, Float32Array, Float64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use model::{ColumnType as Kind, Table};

/// A row of any table, as far as its columns are that wide.
#[derive(Debug, Clone)]
pub(in crate::datafile) struct Cell {
    pub(in crate::datafile) ts: i64,
    pub(in crate::datafile) id: [u8; 16],
    pub(in crate::datafile) text: String,
    pub(in crate::datafile) json: String,
    pub(in crate::datafile) number: f64,
    pub(in crate::datafile) blob: Vec<u8>,
    pub(in crate::datafile) missing: bool,
}

/// Rows of any table, a cell each.
pub(in crate::datafile) fn batch(table: Table, cells: &[Cell]) -> RecordBatch {
    let columns = table.columns().iter().map(|column| -> ArrayRef {
        let missing = |cell: &Cell| column.nullable && cell.missing;
        match column.kind {
            Kind::Time => {
                let times = cells
                    .iter()
                    .map(|cell| Some(cell.ts))
                    .collect::<TimestampMicrosecondArray>();
                Arc::new(times.with_timezone("UTC"))
            }
            Kind::Uuid => {
                let mut ids = FixedSizeBinaryBuilder::new(16);
                for cell in cells {
                    if missing(cell) {
                        ids.append_null();
                    } else {
                        ids.append_value(cell.id).unwrap();
                    }
                }
                Arc::new(ids.finish())
            }
            Kind::Text | Kind::Word => {
                let texts = cells.iter().map(|cell| (!missing(cell)).then_some(&cell.text));
                Arc::new(texts.collect::<StringArray>())
            }
            Kind::Json => Arc::new(cells.iter().map(|cell| Some(&cell.json)).collect::<StringArray>()),
            Kind::Float => {
                #[expect(clippy::cast_possible_truncation, reason = "any number will do")]
                let numbers = cells.iter().map(|cell| Some(cell.number as f32));
                Arc::new(numbers.collect::<Float32Array>())
            }
            Kind::Double => Arc::new(cells.iter().map(|cell| Some(cell.number)).collect::<Float64Array>()),
            Kind::Blob => {
                let mut blobs = BinaryBuilder::new();
                cells.iter().for_each(|cell| blobs.append_value(&cell.blob));
                Arc::new(blobs.finish())
            }
        }
    });
    RecordBatch::try_new(table.schema(), columns.collect()).unwrap()
}
