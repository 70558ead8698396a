//! The records of a body in a format of others, and what their rows may become together.
//!
//! # Invariants
//!
//! - All rows of a body become at most [`REPEATED`] times its bytes, or [`REPEATED_AT_LEAST`]. Behind the first record that does not
//!   fit nothing is decoded any more.

use super::batch_builder::RecordBatchBuilder;
use super::record_format::{FoundRecord, RecordFormat};
use super::record_framing::{LARGEST, too_large};

/// The rows become at most so many times their body: resource attributes stand once in it, and in every row.
const REPEATED: usize = 64;
/// And so many bytes.
const REPEATED_AT_LEAST: usize = 4 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct ForeignRecords {
    format: Box<dyn RecordFormat>,
    /// What the rows may still become.
    left: usize,
    is_full: bool,
}

impl ForeignRecords {
    pub(super) fn new(format: Box<dyn RecordFormat>, body: &[u8]) -> Self {
        Self {
            format,
            left: body.len().saturating_mul(REPEATED).saturating_add(REPEATED_AT_LEAST),
            is_full: false,
        }
    }

    /// The next record.
    pub(super) fn find(&mut self, body: &[u8]) -> Option<FoundRecord> {
        self.format.find(body)
    }

    /// Whether the rows became what they may.
    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Adds the record that was found last; whether there is a row for it.
    pub(super) fn push(
        &mut self,
        body: &[u8],
        record: &FoundRecord,
        rows: &mut RecordBatchBuilder,
    ) -> Result<bool, String> {
        if record.range.len() > LARGEST {
            return Err(too_large(record.range.len()));
        }
        let before = rows.bytes();
        let has_row = self.format.push(body, record, rows)?;
        let grown = rows.bytes() - before;
        let left = self.left.checked_sub(grown);
        // A row that is refused was made all the same.
        self.left = left.unwrap_or_default();
        if left.is_none() {
            rows.pop();
            self.is_full = true;
            return Err(format!(
                "the rows of the body become more than {REPEATED} times its bytes: send fewer records with so many shared attributes"
            ));
        }
        if grown > LARGEST {
            rows.pop();
            return Err(format!("the row has {grown} bytes, more than {LARGEST}"));
        }
        Ok(has_row)
    }

    /// Gives back what a row took that was taken back.
    pub(super) const fn give_back(&mut self, bytes: usize) {
        self.left = self.left.saturating_add(bytes);
    }
}
