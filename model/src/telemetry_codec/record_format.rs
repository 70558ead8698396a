//! Formats of others, whose bodies become rows record by record.
//!
//! # Invariants
//!
//! - What is found depends on the body only: a body of which a part is stored is read on from its position.
//! - A record is added with what was found last; it may be added again after it was taken back.

use std::fmt;
use std::ops::Range;

use super::RecordBatchBuilder;

/// A record of a body that becomes one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRecord {
    /// Its bytes in the body.
    pub range: Range<usize>,
    /// Which of the rows that these bytes become, from 0.
    pub part: u32,
}

/// A format that is read record by record.
pub trait RecordFormat: fmt::Debug + Send {
    /// The next record; `None` at the end. The body was looked through before: what cannot be told apart is not here.
    fn find(&mut self, body: &[u8]) -> Option<FoundRecord>;

    /// Adds the record that was found last; whether there is a row for it: some records say only that there is no value.
    ///
    /// # Errors
    /// Why it is none; nothing was added then.
    fn push(&mut self, body: &[u8], record: &FoundRecord, rows: &mut RecordBatchBuilder) -> Result<bool, String>;
}
