//! Rows of known types into columns: what formats of others are decoded to.
//!
//! # Invariants
//!
//! - What comes out is what [`crate::batch`] would make of the same records.
//! - A row is added whole or not at all.

use super::PublisherIdentity;
use super::attribute_buffer::AttributeBuffer;
use super::batch_builder::RecordBatchBuilder;
use super::column_buffer::ColumnBuffer;
use crate::{FluxId, Level, MetricType, SpanId, SpanStatus, Table, Timestamp, TraceId};

/// A log line but for its attributes.
#[derive(Debug, Clone, Copy)]
pub struct LogFields<'a> {
    /// When it happened.
    pub ts: Timestamp,
    /// Whose it is.
    pub entity: &'a PublisherIdentity,
    /// The signal it belongs to.
    pub flux_id: Option<FluxId>,
    /// How grave it is.
    pub level: Level,
    /// The text.
    pub message: &'a str,
}

/// A span but for its attributes.
#[derive(Debug, Clone, Copy)]
pub struct SpanFields<'a> {
    /// When it began.
    pub ts: Timestamp,
    /// Its trace.
    pub trace_id: TraceId,
    /// Its own id.
    pub span_id: SpanId,
    /// The span that caused it.
    pub parent_span_id: Option<SpanId>,
    /// The signal it belongs to.
    pub flux_id: Option<FluxId>,
    /// Whose it is.
    pub entity: &'a PublisherIdentity,
    /// The operation.
    pub span_name: &'a str,
    /// How long it took.
    pub duration_ms: f32,
    /// Whether it worked.
    pub status: SpanStatus,
}

/// A point of a metric but for its labels.
#[derive(Debug, Clone, Copy)]
pub struct PointFields<'a> {
    /// When it was measured.
    pub ts: Timestamp,
    /// The metric.
    pub name: &'a str,
    /// Whose it is.
    pub entity: &'a PublisherIdentity,
    /// What the value means.
    pub metric_type: MetricType,
    /// The value: a finite number.
    pub value: f64,
}

/// The cells of one row, column by column.
struct RowCells<'a> {
    rows: &'a mut RecordBatchBuilder,
    column: usize,
}

impl RowCells<'_> {
    fn cell(&mut self, is_there: bool) -> Option<&mut ColumnBuffer> {
        let at = self.column;
        self.column += 1;
        self.rows.cell(at, is_there)
    }

    fn time(&mut self, ts: Timestamp) {
        if let Some(ColumnBuffer::Times(cells)) = self.cell(true) {
            cells.push(ts.micros());
        }
    }

    fn entity(&mut self, entity: &PublisherIdentity) {
        if let Some(cells) = self.cell(true) {
            cells.push_uuid(entity.entity_id.as_bytes());
        }
        self.text(&entity.entity_name);
    }

    fn flux_id(&mut self, id: Option<FluxId>) {
        if let Some(cells) = self.cell(id.is_some()) {
            match id {
                Some(id) => cells.push_uuid(id.as_bytes()),
                None => cells.push_nothing(),
            }
        }
    }

    fn text(&mut self, text: &str) {
        if let Some(cells) = self.cell(true) {
            cells.push_text(text.as_bytes());
        }
    }

    fn hex(&mut self, id: Option<&[u8]>) {
        let mut text = [0; 32];
        let id_bytes = id.unwrap_or_default();
        for (pair, byte) in text.chunks_exact_mut(2).zip(id_bytes) {
            pair.copy_from_slice(&crate::hex::digits(*byte));
        }
        if let Some(cells) = self.cell(id.is_some()) {
            cells.push_text(text.get(..2 * id_bytes.len()).unwrap_or_default());
        }
    }

    fn number(&mut self, value: f64) {
        #[allow(clippy::cast_possible_truncation, reason = "the column's precision")]
        match self.cell(true) {
            // 0.0 of −0.0, see `crate::batch::conform`.
            Some(ColumnBuffer::Floats(cells)) => cells.push(value as f32 + 0.0),
            Some(ColumnBuffer::Doubles(cells)) => cells.push(value + 0.0),
            _ => {}
        }
    }

    fn attributes(&mut self, attributes: &mut AttributeBuffer) {
        if let Some(ColumnBuffer::Texts { bytes, ends }) = self.cell(true) {
            attributes.write(bytes);
            ends.push(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        }
    }
}

impl RecordBatchBuilder {
    /// Adds a log line.
    ///
    /// # Errors
    /// If the rows are those of another table.
    pub fn push_log(&mut self, row: LogFields<'_>, attributes: &mut AttributeBuffer) -> Result<(), String> {
        let mut cells = self.row_of(Table::Logs)?;
        cells.time(row.ts);
        cells.entity(row.entity);
        cells.flux_id(row.flux_id);
        cells.text(row.level.as_str());
        cells.text(row.message);
        cells.attributes(attributes);
        self.end_row();
        Ok(())
    }

    /// Adds a span.
    ///
    /// # Errors
    /// If the rows are those of another table.
    pub fn push_span(&mut self, row: SpanFields<'_>, attributes: &mut AttributeBuffer) -> Result<(), String> {
        let mut cells = self.row_of(Table::Traces)?;
        cells.time(row.ts);
        cells.hex(Some(row.trace_id.as_bytes()));
        cells.hex(Some(row.span_id.as_bytes()));
        cells.hex(row.parent_span_id.as_ref().map(|id| &id.as_bytes()[..]));
        cells.flux_id(row.flux_id);
        cells.entity(row.entity);
        cells.text(row.span_name);
        cells.number(row.duration_ms.into());
        cells.text(row.status.as_str());
        cells.attributes(attributes);
        self.end_row();
        Ok(())
    }

    /// Adds a point.
    ///
    /// # Errors
    /// If its value is not finite, or the rows are those of another table.
    pub fn push_point(&mut self, row: PointFields<'_>, labels: &mut AttributeBuffer) -> Result<(), String> {
        if !row.value.is_finite() {
            return Err(format!("the value {} is not a finite number", row.value));
        }
        let mut cells = self.row_of(Table::Metrics)?;
        cells.time(row.ts);
        cells.text(row.name);
        cells.entity(row.entity);
        cells.text(row.metric_type.as_str());
        cells.number(row.value);
        cells.attributes(labels);
        self.end_row();
        Ok(())
    }

    fn row_of(&mut self, table: Table) -> Result<RowCells<'_>, String> {
        if self.table() != table {
            return Err(format!("the rows are of {}, not of {table}", self.table()));
        }
        Ok(RowCells { rows: self, column: 0 })
    }
}
